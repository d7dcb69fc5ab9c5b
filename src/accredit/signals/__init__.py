"""Models asked about rollouts: the same tokens rescored, in their own context or in another."""

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

__all__ = [
    "CONTEXT",
    "SAMPLED",
    "Backend",
    "Context",
    "Distributions",
    "Passage",
    "ProbeRequest",
    "Provenance",
    "Scores",
    "Segment",
    "Span",
    "Want",
]
