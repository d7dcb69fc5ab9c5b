"""The addend by which whitening changes a credit, explained."""

from __future__ import annotations

from accredit.data import Term
from accredit.spread import Whitening

__all__ = ["whitening_term"]


def whitening_term(white: Whitening, raw: float, eps: float, *, counted: bool) -> Term:
    """Return ``(raw - mean) / sqrt(var + eps) - raw``; ``-raw`` in a tie or without credit.

    Args:
        white: the statistics.
        raw: the credit before whitening.
        eps: inside the root.
        counted: whether the step's rollout gets credit.
    """
    inputs = {"raw": raw, "mean": white.mean, "var": white.var, "n": float(white.n), "eps": eps}
    text = f"({raw:.6g} - mean {white.mean:.6g}) / sqrt(var {white.var:.6g} + {eps:g}) - {raw:.6g}"
    if white.tie or not counted:
        return Term("whitening", -raw, f"{text} [all equal, or no credit: exactly 0]", inputs)
    return Term("whitening", (raw - white.mean) / (white.var + eps) ** 0.5 - raw, text, inputs)
