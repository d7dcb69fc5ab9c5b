"""The truth of some steps of a batch: what it says of each, and how far it can be trusted itself."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from accredit.data import Batch
from accredit.errors import DataError, ParamError
from accredit.store.truth import Truth, read_truth
from accredit.typing import BoolArray, Floats, Ints

__all__ = ["Reliability", "TruthLike", "advantages", "errors", "reliability", "told_of", "truth_of"]

TruthLike: TypeAlias = Truth | str | Path
_BASES = ("", "exact", "n", "se")
_TOLD = ("kind", "world", "policy", "memory", "continuations", "verdict")


@dataclass(frozen=True, slots=True)
class Reliability:
    """How far the reference itself can be trusted.

    A reference of continuations is the truth plus chance.  Cut into halves, it would agree with
    itself by ``halves``; the whole is ``2 halves / (1 + halves)`` reliable (Spearman-Brown), which is
    ``1 - mean(se^2) / var(reference)``; no credit can be expected to correlate with it above the
    square root of that, nor the truth itself to have a lower NMSE than ``floor``.

    Args:
        halves: expected correlation of two halves.
        whole: reliability of the reference, in [0, 1].
        ceiling: sqrt(whole), the correlation that the truth itself would reach.
        floor: NMSE that the truth itself would have.
        n_noisy: steps whose reference has a standard error.
        basis: ``se``, ``n`` (from the number of continuations), or ``exact``.
    """

    halves: float
    whole: float
    ceiling: float
    floor: float
    n_noisy: int
    basis: str


def truth_of(batch: Batch, truth: TruthLike) -> Truth:
    """Return the rows of a truth, read where it is a file, after seeing that they speak of a batch.

    Args:
        batch: the rollouts.
        truth: its rows, or a file of schema ``accredit.truth/1``.

    Raises:
        ParamError: for anything else.
        DataError: if it cannot be read, or knows the advantage of no step of these rollouts.
    """
    if not isinstance(truth, Truth | str | Path):
        raise ParamError(
            f"truth is a file or a Truth, not a {type(truth).__name__}",
            hint='Write one {"rollout": id, "step": t, "advantage": number} a line, and give the path',
        )
    table = truth if isinstance(truth, Truth) else read_truth(truth)
    if not advantages(batch, table)[1].any():
        raise DataError(
            f"the truth knows the advantage of none of the {batch.n_steps} steps{_strangers(batch, table)}",
            code="ACC834",
            hint="Give advantage, or value and q, of steps of these rollouts, by the same rollout ids",
        )
    return table


def _strangers(batch: Batch, truth: Truth) -> str:
    """Say it where no id is one of the batch: an id of each side shows why."""
    ids = set(truth.rollout)
    if not ids or not len(batch) or ids & set(batch.ids):
        return ""
    return f": its rollouts are others, {truth.rollout[0][:60]!r} for one; these have {batch.ids[0][:60]!r}"


def advantages(batch: Batch, truth: Truth) -> tuple[Floats, BoolArray]:
    """Return the advantage as told, or q - value, and where it is known: each ``[S]``, reward units.

    Args:
        batch: the rollouts.
        truth: its rows; those of other rollouts are left out.

    Raises:
        DataError: if a row names a step that its rollout does not have.
    """
    told, value, q = (truth.column(batch, which) for which in ("advantage", "value", "q"))
    n = batch.n_steps
    both = value.mask(n) & q.mask(n)
    found = np.where(told.mask(n), told.values, np.where(both, q.values - value.values, 0.0))
    return found, told.mask(n) | both


def errors(batch: Batch, truth: Truth) -> tuple[Floats, Ints]:
    """Return the squared standard error of each step's reference, 0 where it is unknown, and its basis.

    Args:
        batch: the rollouts.
        truth: its rows.

    Returns:
        ``[S]`` and ``[S]``: 0 unknown, 1 exact, 2 from the number of continuations, 3 told.
    """
    told = truth.column(batch, "se")
    known_S = told.mask(batch.n_steps)
    n_S, exact_S, p_S = _counts(batch, truth)
    # Variance of a share of successes, of its n continuations.
    share = p_S * (1 - p_S) / np.maximum(n_S, 1)
    basis_S = np.select([known_S, (n_S > 0) & (p_S >= 0), exact_S], [3, 2, 1], 0)
    return np.select([basis_S == 3, basis_S == 2], [told.values**2, share], 0.0), basis_S


def _counts(batch: Batch, truth: Truth) -> tuple[Ints, BoolArray, Floats]:
    """Continuations, whether the row says it is exact, and q where it is a share (else -1), by step."""
    n_S, exact_S = np.zeros(batch.n_steps, np.int64), np.zeros(batch.n_steps, bool)
    p_S = np.full(batch.n_steps, -1.0)
    for i, (name, step) in enumerate(zip(truth.rollout, truth.step, strict=True)):
        r = batch.rollout_of.get(name)
        if r is None:
            continue
        s = batch.steps_of(r)[step]
        n_S[s], exact_S[s] = truth.n[i], truth.source[i] == "exact"
        if truth.known["q"][i] and 0 <= truth.numbers["q"][i] <= 1:
            p_S[s] = truth.numbers["q"][i]
    return n_S, exact_S, p_S


def reliability(batch: Batch, truth: Truth, kept: Ints, reference: Floats) -> Reliability | None:
    """Return how far a reference can be trusted; None where standard errors are unknown, or it is constant.

    Args:
        batch: the rollouts.
        truth: its rows.
        kept: steps that are looked at ``[K]``.
        reference: their advantages ``[K]``.
    """
    error2_S, basis_S = errors(batch, truth)
    error2, spread = error2_S[kept], float(reference.var())
    if not basis_S[kept].all() or not spread:
        return None
    noise = float(error2.mean())
    whole = min(1.0, max(0.0, 1 - noise / spread))
    square = float(np.mean(reference**2))
    return Reliability(
        max(0.0, (spread - noise) / (spread + noise)),
        whole,
        math.sqrt(whole),
        min(1.0, noise / square),
        int((error2 > 0).sum()),
        _BASES[int(basis_S[kept].max())],
    )


def told_of(truth: Truth) -> dict[str, Any]:
    """Return what a truth says of itself: kind, world, policy, memory, continuations, verdict.

    Args:
        truth: its rows; the kind of a file that does not tell it is the source of all its rows.
    """
    header: Mapping[str, Any] = truth.header
    told = {k: header[k] for k in _TOLD if isinstance(header.get(k), str | int | float)}
    sources = set(truth.source)
    if "kind" not in told and len(sources) == 1 and all(sources):
        told["kind"] = truth.source[0]
    return told
