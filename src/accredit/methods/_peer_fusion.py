"""Two estimates of a step's advantage, and how far each is trusted: the step level of `uniopsd`.

The environment's (return against the other visits of the state) and a peer's (how much likelier the action
becomes when a successful rollout is shown).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from accredit.errors import ParamError
from accredit.index import GroupStats, Index
from accredit.methods._reweight import step_mean
from accredit.methods._teacher import Gap
from accredit.typing import BoolArray, Floats

__all__ = ["Estimates", "History", "Mix", "estimates", "lower_median", "measured", "mixed", "updated"]


@dataclass(frozen=True)
class Estimates:
    """Both estimates of each step, and their precisions.

    Args:
        own: A^S, return against the other visits of the state ``[S]``.
        peer: A^T, the peer's gap scaled to A^S ``[S]``.
        scale: s, reward units a nat.
        has_own: E, steps whose state has visits with different returns ``[S]``.
        has_peer: T, steps that a peer rescored to another number ``[S]``.
        own_precision: p^S ``[S]``, 0 off E.
        peer_precision: p^T ``[S]``, 0 off T.
        visits: statistics of returns over the state groups.
    """

    own: Floats
    peer: Floats
    scale: float
    has_own: BoolArray
    has_peer: BoolArray
    own_precision: Floats
    peer_precision: Floats
    visits: GroupStats

    @property
    def both(self) -> BoolArray:
        """B, steps with both estimates ``[S]``."""
        return self.has_own & self.has_peer


def estimates(
    index: Index, gap: Gap, counted_S: BoolArray, *, gamma: float, omega: float, eps: float
) -> Estimates:
    """Return both estimates of each step.

    Args:
        index: of the batch.
        gap: of the peer's teacher, by token.
        counted_S: steps of rollouts that count ``[S]``.
        gamma: discount of step rewards.
        omega: weight of A^S.
        eps: floor of deviations and variances.
    """
    anchors, n = index.anchor_S, index.n_anchors
    visits = GroupStats(index.return_S(gamma), anchors, n, counted_S)
    own = omega * visits.centred
    mean = step_mean(index, gap.values)
    d = GroupStats(mean, anchors, n, counted_S).centred
    variance_d = _variance(index, gap.values, mean)
    has_peer = ((mean != 0) | (variance_d > 0)) & counted_S  # some token has a gap
    spread = float(d[has_peer].std(ddof=1)) if has_peer.sum() > 1 else 0.0
    scale = float(own[has_peer].std(ddof=1)) / (spread + eps) if spread > eps else 0.0
    size = visits.size[anchors]
    # A variance can be 1e-15 for equal returns; a tie is told by largest and smallest value.
    has_own = counted_S & (size >= 2) & ~visits.flat[anchors]
    variance = np.maximum((visits.std() ** 2)[anchors], eps)
    of_mean = np.maximum(scale**2 * variance_d / np.maximum(index.tokens_S, 1), eps)
    return Estimates(
        own,
        scale * d,
        scale,
        has_own,
        has_peer,
        np.where(has_own, size / variance, 0.0),
        np.where(has_peer, 1.0 / of_mean, 0.0),
        visits,
    )


def _variance(index: Index, gap: Floats, mean: Floats) -> Floats:
    """Return the population variance of the gap over each step's tokens ``[S]``."""
    away = np.repeat(mean, index.tokens_S)
    np.subtract(gap, away, out=away)
    away *= away
    return step_mean(index, away)


def lower_median(values: Floats) -> float:
    """Return the median, of two middle values the lower one (torch's; numpy takes their mean).

    Args:
        values: at least one.

    Example:
        >>> lower_median(np.array([4.0, 1.0, 3.0, 2.0]))
        2.0
    """
    middle = (values.size - 1) // 2
    return float(np.partition(values, middle)[middle])


@dataclass(frozen=True)
class Mix:
    """How far the own estimate is trusted, step by step.

    Args:
        c: weight of the own estimate ``[S]``; 1 - c is the peer's.
        level: cbar, the global one.
        own_z: p^S over its median ``[S]``.
        peer_z: p^T over its median ``[S]``.
    """

    c: Floats
    level: float
    own_z: Floats
    peer_z: Floats


def mixed(found: Estimates, rho: float, u: float, mode: str, eps: float) -> Mix:
    """Return the weights of the two estimates.

    Args:
        found: both estimates.
        rho: lower bound of their correlation, from history.
        u: trust in the own estimate before anything is known.
        mode: ``corr``, ``invvar``, ``invvar_raw`` or ``const``.
        eps: floor of a median.
    """
    own_z = _over_median(found.own_precision, found.both, found.has_own, eps)
    peer_z = _over_median(found.peer_precision, found.both, found.has_peer, eps)
    level = u if mode == "const" else _level(rho, u) if mode == "corr" else 0.5
    if mode == "corr" and level >= 1 - 1e-6:
        return Mix(np.ones_like(own_z), 1.0, own_z, peer_z)
    if mode == "const":
        return Mix(np.where(found.has_peer, u, 1.0), u, own_z, peer_z)
    mine, theirs = (found.own_precision, found.peer_precision) if mode == "invvar_raw" else (own_z, peer_z)
    odds = level / (1 - level)
    total = odds * mine + theirs
    share = np.divide(odds * mine, total, out=np.zeros_like(total), where=found.both)
    alone = level if mode == "corr" else 0.0
    c = np.where(found.both, share, np.where(found.has_peer, alone, 1.0))
    return Mix(c, level, own_z, peer_z)


def _over_median(precision: Floats, both: BoolArray, own: BoolArray, eps: float) -> Floats:
    among = both if both.any() else own
    middle = lower_median(precision[among]) if among.any() else 1.0
    return precision / max(middle, eps)


def _level(rho: float, u: float) -> float:
    q = min(rho * rho, u * (1 - 1e-6))
    below = u * u - 2 * u * q + q
    return float(np.clip(u * (u - q) / below, 0.0, 1.0)) if below > 0 else 1.0


@dataclass(frozen=True)
class History:
    """What earlier batches showed of the correlation of the two estimates.

    Args:
        rho: its moving average.
        rows: steps behind the last measurement.
    """

    rho: float
    rows: float

    @classmethod
    def of(cls, pair: object) -> History | None:
        """Return the history that a user's ``(rho, rows)`` means; None for None.

        Raises:
            ParamError: if it is no pair of a correlation and a count.
        """
        if pair is None:
            return None
        if not isinstance(pair, list | tuple) or len(pair) != 2:
            raise ParamError(
                f"history must be (rho, rows), got {pair!r}", hint="Give an earlier credit.state"
            )
        rho, rows = (float(x) for x in pair)
        if not (-1 <= rho <= 1 and rows >= 0):
            raise ParamError(f"history must be a correlation in [-1, 1] and a count >= 0, got {pair!r}")
        return cls(rho, rows)

    def bound(self, z: float, beta: float) -> float:
        """Return ``max(0, rho - z / sqrt(H max(rows, 1)))``, H = 1 / (1 - beta) batches in the average.

        Args:
            z: how many standard errors are taken off.
            beta: of the moving average.
        """
        return max(0.0, self.rho - z * float(np.sqrt((1 - beta) / max(self.rows, 1.0))))


def measured(found: Estimates) -> History | None:
    """Return the correlation of the two estimates over B and the size of B; None where it has none.

    Args:
        found: both estimates.
    """
    a, b = found.own[found.both], found.peer[found.both]
    if a.size < 2 or a.min() == a.max() or b.min() == b.max():
        return None
    away = a - a.mean(), b - b.mean()
    norm = float(np.sqrt((away[0] @ away[0]) * (away[1] @ away[1])))
    return History(float(np.clip(away[0] @ away[1] / norm, -1, 1)), float(a.size)) if norm > 0 else None


def updated(before: History | None, now: History | None, beta: float) -> History | None:
    """Return the history for the next batch: a moving average that begins with the first measurement.

    Args:
        before: of earlier batches.
        now: of this batch; None leaves the history as it is.
        beta: weight of what was.
    """
    if now is None or before is None:
        return now or before
    return History(beta * before.rho + (1 - beta) * now.rho, now.rows)
