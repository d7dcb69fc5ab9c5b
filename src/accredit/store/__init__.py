"""Bytes on disk: atomic files, batches, credit, truth and annotations, and their schemas."""

from accredit.store.annotation import Annotation, Annotator, read_annotations, save_annotations
from accredit.store.atomic import atomic_file
from accredit.store.batches import load_parquet, save_batch
from accredit.store.credit import SavedCredit, read_credit, save_credit
from accredit.store.limits import Limits
from accredit.store.schema import ANNOTATION, CREDIT, ROLLOUTS, TRUTH
from accredit.store.truth import Truth, read_truth, save_truth

__all__ = [
    "ANNOTATION",
    "CREDIT",
    "ROLLOUTS",
    "TRUTH",
    "Annotation",
    "Annotator",
    "Limits",
    "SavedCredit",
    "Truth",
    "atomic_file",
    "load_parquet",
    "read_annotations",
    "read_credit",
    "read_truth",
    "save_annotations",
    "save_batch",
    "save_credit",
    "save_truth",
]
