"""`convert`: the same rollouts in another file form."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from accredit.data import Exclusion, Finding
from accredit.readers.reading import read
from accredit.readers.retokenize import Retokenize
from accredit.store.batches import save_batch
from accredit.store.kinds import file_kind
from accredit.store.limits import Limits

__all__ = ["Converted", "convert"]


class Converted(NamedTuple):
    """What a conversion wrote.

    Args:
        path: the new file.
        rollouts: how many it holds.
        excluded: rollouts of the source that it does not hold, with reasons (named in it, too).
        findings: what reading found.
    """

    path: Path
    rollouts: int
    excluded: tuple[Exclusion, ...]
    findings: tuple[Finding, ...]


def convert(
    source: str | Path,
    target: str | Path,
    format: str | None = None,
    *,
    strict: bool = False,
    limits: Limits | None = None,
    mapping: Mapping[str, str] | None = None,
    group_size: int | None = None,
    retokenize: Retokenize | None = None,
) -> Converted:
    """Write the rollouts of a file or folder as a native file; nothing that was read is lost.

    The target appears whole or not at all, and may be the source itself.

    Args:
        source: anything that `read` takes.
        target: ends in ``.parquet``, ``.jsonl``, ``.jsonl.gz`` or ``.jsonl.zst``.
        format: format of the source; None: told from its content.
        strict: stop at the first rollout that cannot be used.
        limits: bounds on what the source may ask for.
        mapping: field to column, see `read`.
        group_size: rollouts a group by position, see `read`.
        retokenize: what makes token ids of text where a rollout has none, see `read`.

    Raises:
        DataError: if the source cannot be read.
        StoreError: if the target cannot be written.
    """
    file_kind(target)  # an unknown ending is told before hours of reading
    batch = read(
        source,
        format,
        strict=strict,
        limits=limits,
        mapping=mapping,
        group_size=group_size,
        retokenize=retokenize,
    )
    path = save_batch(batch, target)
    return Converted(path, len(batch), batch.excluded, batch.findings)
