"""What the sampling model says of the bundled rollouts beside what was recorded, joined by step."""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping
from functools import lru_cache
from importlib.resources import as_file, files
from typing import Any, NamedTuple

import numpy as np
import pyarrow.parquet as pq

from accredit.data import Batch, Finding
from accredit.data.ragged import take_offsets
from accredit.errors import DataError
from accredit.typing import Array, BoolArray, Ints

__all__ = ["SIGNALS_KEY", "SIGNALS_SCHEMA", "call_digests", "with_signals"]

SIGNALS_SCHEMA = "accredit.sample-signals/1"
SIGNALS_KEY = b"accredit"
_SAMPLER = "sampler_logprobs_T"


def with_signals(batch: Batch) -> Batch:
    """Return bundled TextWorld rollouts with the signals of the token methods.

    ``logprob_T`` is then the probe's, as all the others are, so that differences are the context's
    doing alone; what the sampler recorded is in ``sampler_logprobs_T``.  Each column's provenance says
    model, weights, back end and context.  `examples/textworld/signals.py` made the file.

    Args:
        batch: rollouts of ``textworld``, all or some of them.

    Returns:
        Those of them whose game was probed; the others are left out, with a finding.

    Raises:
        DataError: for other rollouts (unknown ids, or other tokens under their names), or if none of
            them was probed.

    Example:
        >>> import accredit as ac
        >>> from accredit import samples
        >>> batch = samples.with_signals(ac.read(str(samples.path())))
        >>> batch.has("logprobs_hindsight_T"), batch.column("logprob_T").provenance["context"]
        (True, 'sampled')
    """
    kept = _kept()
    batch = _probed(batch, kept)
    rows = _rows_of(batch, kept)
    if not np.array_equal(kept.call_S[rows], call_digests(batch)):
        s = int(np.flatnonzero(kept.call_S[rows] != call_digests(batch))[0])
        r = int(np.searchsorted(batch.step_start_R1, s, "right")) - 1
        raise _others(batch.ids[r], f"other ids at step {s - int(batch.step_start_R1[r])}")
    tokens, _ = take_offsets(kept.token_start_S1, rows)
    found = batch
    if batch.has("logprob_T") and "probe" not in batch.column("logprob_T").provenance:
        recorded = batch.column("logprob_T")
        found = batch.with_column(_SAMPLER, recorded.values, recorded.provenance, valid=recorded.valid)
    for name, (values, valid, made) in kept.columns.items():
        found = found.with_column(name, values[tokens], made, valid=valid[rows])
    return found


def call_digests(batch: Batch) -> Ints:
    """Return a checksum of each step's call ``[S]``: the ids added to its context, and its policy tokens.

    Args:
        batch: rollouts with token and context ids.

    Raises:
        DataError: if the rollouts have no ids.
    """
    start = batch.context_start_S1
    if start is None or not batch.has("token_T"):
        raise DataError("these rollouts have no token ids", hint="Read the bundled file: samples.path()")
    told = batch.column("context_token_C").values.astype("<i8")
    said = batch.column("token_T").values.astype("<i8")
    at = batch.token_start_S1
    pairs = ((told[start[s] : start[s + 1]], said[at[s] : at[s + 1]]) for s in range(batch.n_steps))
    return np.array([zlib.crc32(b.tobytes(), zlib.crc32(a.tobytes())) for a, b in pairs], np.int64)


class _Kept(NamedTuple):
    """The file: values by step.

    Args:
        first: row of each rollout's first step, and its number of steps.
        left_out: bundled rollouts that were not probed.
        call_S: checksum of each step's call.
        token_start_S1: of each step.
        columns: values ``[T]`` or ``[T, d]``, validity ``[S]`` and provenance by name.
    """

    first: Mapping[str, tuple[int, int]]
    left_out: frozenset[str]
    call_S: Ints
    token_start_S1: Ints
    columns: Mapping[str, tuple[Array, BoolArray, Mapping[str, Any]]]


@lru_cache(maxsize=1)
def _kept() -> _Kept:
    with as_file(files(__package__) / "textworld-signals.parquet") as path:
        table = pq.read_table(path)
    told = json.loads(table.schema.metadata[SIGNALS_KEY])
    ids, first, n = np.unique(
        table.column("rollout").to_numpy().astype(str), return_index=True, return_counts=True
    )
    lists = {name: table.column(name).combine_chunks() for name in told["columns"]}
    counts = table.column("tokens").to_numpy()
    start = np.concatenate([[0], np.cumsum(counts)])
    columns = {name: (*_values(lists[name], start), told["columns"][name]) for name in lists}
    places = zip(first.tolist(), n.tolist(), strict=True)
    return _Kept(
        first=dict(zip(ids.tolist(), places, strict=True)),
        left_out=frozenset(told["left_out"]),
        call_S=table.column("call").to_numpy(),
        token_start_S1=start,
        columns=columns,
    )


def _values(lists: Any, start: Ints) -> tuple[Array, BoolArray]:
    """Return the values ``[T]`` or ``[T, d]`` and the validity ``[S]`` of a list a step."""
    inner = lists.flatten()
    width = getattr(inner.type, "list_size", 0)
    there = lists.is_valid().to_numpy(zero_copy_only=False)
    flat = (inner.flatten() if width else inner).to_numpy(zero_copy_only=False)
    shape = (int(start[-1]), width) if width else (int(start[-1]),)
    values = np.zeros(shape, np.float32)
    values[np.repeat(there, np.diff(start))] = flat.reshape(-1, *shape[1:])
    return values, there


def _probed(batch: Batch, kept: _Kept) -> Batch:
    """Return the rollouts that were not left out when the file was made."""
    there = np.array([name not in kept.left_out for name in batch.ids], bool)
    gone = [name for name, found in zip(batch.ids, there, strict=True) if not found]
    if not gone:
        return batch
    if not there.any():
        raise DataError(
            "none of these rollouts was probed",
            hint="examples/textworld/signals.py probes more games",
        )
    message = f"{len(gone)} rollouts are left out: their games were not probed"
    told = Finding("ACC753", "info", message, gone[0], count=len(gone), examples=tuple(gone[:5]))
    found = batch.take(np.flatnonzero(there))
    return found.annotated((*batch.findings, told), batch.excluded)


def _rows_of(batch: Batch, kept: _Kept) -> Ints:
    """Return the file's row of each step ``[S]``."""
    rows = []
    for r, name in enumerate(batch.ids):
        if name not in kept.first:
            raise _others(name, "no numbers")
        first, n = kept.first[name]
        if n != len(batch.steps_of(r)):
            raise _others(name, f"{n} steps rather than {len(batch.steps_of(r))}")
        rows.append(np.arange(first, first + n))
    return np.concatenate(rows) if rows else np.zeros(0, np.int64)


def _others(rollout: str, what: str) -> DataError:
    return DataError(
        f"the signals are of other rollouts: they have {what}, in rollout {rollout!r}",
        code="ACC915",
        hint="Read the bundled file textworld: samples.path()",
    )
