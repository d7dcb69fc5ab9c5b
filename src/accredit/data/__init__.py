"""The vocabulary: rollouts, steps and credit, as records and as flat ragged columns."""

from accredit.data.batch import Batch
from accredit.data.builder import BatchBuilder
from accredit.data.column import Column
from accredit.data.credit import Credit
from accredit.data.explanation import Explanation, Member, Term
from accredit.data.finding import Exclusion, Finding
from accredit.data.log import FindingLog
from accredit.data.parts import MethodCard, ParamSpec, Parts
from accredit.data.records import SCHEMA, Rollout, Step

__all__ = [
    "SCHEMA",
    "Batch",
    "BatchBuilder",
    "Column",
    "Credit",
    "Exclusion",
    "Explanation",
    "Finding",
    "FindingLog",
    "Member",
    "MethodCard",
    "ParamSpec",
    "Parts",
    "Rollout",
    "Step",
    "Term",
]
