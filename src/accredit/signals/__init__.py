"""Models asked about rollouts: the same tokens rescored, in their own context or in another."""

from accredit.signals.beliefs import answer_beliefs, asks_belief, belief_asked, known_answers
from accredit.signals.client import Limits
from accredit.signals.divergences import Divergence, FisherMoments
from accredit.signals.drifts import Alignment, Checkup, Drift, alignment, checkup, drift
from accredit.signals.endpoint import Endpoint, entropy_bounds
from accredit.signals.fake import FakeBackend
from accredit.signals.joints import View, joint
from accredit.signals.pairs import paired
from accredit.signals.precomputed import Precomputed
from accredit.signals.request import (
    CONTEXT,
    SAMPLED,
    Backend,
    Context,
    Distributions,
    Passage,
    ProbeRequest,
    Provenance,
    Scores,
    Segment,
    Span,
    Want,
)
from accredit.signals.rescore import backend_of, context_of, probe
from accredit.signals.torch_backend import TransformersBackend

__all__ = [
    "CONTEXT",
    "SAMPLED",
    "Alignment",
    "Backend",
    "Checkup",
    "Context",
    "Distributions",
    "Divergence",
    "Drift",
    "Endpoint",
    "FakeBackend",
    "FisherMoments",
    "Limits",
    "Passage",
    "Precomputed",
    "ProbeRequest",
    "Provenance",
    "Scores",
    "Segment",
    "Span",
    "TransformersBackend",
    "View",
    "Want",
    "alignment",
    "answer_beliefs",
    "asks_belief",
    "backend_of",
    "belief_asked",
    "checkup",
    "context_of",
    "drift",
    "entropy_bounds",
    "joint",
    "known_answers",
    "paired",
    "probe",
]
