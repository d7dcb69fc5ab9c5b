"""Bytes on disk: atomic files, batches, credit, truth and annotations, and their schemas."""

from accredit.store.atomic import atomic_file
from accredit.store.batches import load_parquet, save_batch
from accredit.store.credit import SavedCredit, read_credit, save_credit

__all__ = ["SavedCredit", "atomic_file", "load_parquet", "read_credit", "save_batch", "save_credit"]
