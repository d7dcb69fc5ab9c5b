"""Batches on disk, as JSON Lines or Parquet; nothing is lost either way."""

from __future__ import annotations

from pathlib import Path

from accredit.data import Batch
from accredit.store.encode import rollout_lines
from accredit.store.kinds import file_kind, lines_file

__all__ = ["load_parquet", "save_batch"]


def save_batch(batch: Batch, path: str | Path) -> Path:
    """Write a batch (schema ``accredit.rollouts/1``); the file appears whole or not at all.

    Args:
        batch: the rollouts.
        path: ends in ``.parquet``, ``.jsonl``, ``.jsonl.gz`` or ``.jsonl.zst``.

    Returns:
        The path.

    Raises:
        StoreError: if the file cannot be written, its kind is not known, or a value has no JSON
            form.
    """
    target = Path(path)
    if file_kind(target) == "parquet":
        from accredit.store.parquet import write_parquet  # Arrow's Parquet is loaded for Parquet alone

        write_parquet(batch, target)
    else:
        with lines_file(target) as out:
            for line in rollout_lines(batch):
                out.write(line)
    return target


def load_parquet(path: str | Path) -> Batch:
    """Return the batch of a Parquet file that `save_batch` wrote.

    Args:
        path: the file. Foreign Parquet files are read by `accredit.readers.read`.

    Raises:
        VersionError: if it has a newer schema.
        DataError: if its content is not what its header says.
    """
    from accredit.store.parquet import parquet_batches

    parts = list(parquet_batches(Path(path)))
    whole = parts[0] if len(parts) == 1 else Batch.concat(parts)
    origin = parts[0].provenance
    made = {"source": str(path), **({"origin": dict(origin)} if origin else {})}
    return whole.with_provenance(made)
