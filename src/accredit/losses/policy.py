"""Policy losses over ragged rows of tokens: clipping forms times aggregation modes.

A method returns un-normalised token advantages; how they are averaged belongs to the loss.  Each
function returns the value and its gradient by the tokens' log-probabilities, so that a trainer's
autograd can be compared with it.

Source: verl ``core_algos`` (``agg_loss``, ``compute_policy_loss_gspo``, ``_cispo``); arXiv 2507.18071
(GSPO), 2506.13585 (CISPO), 2511.20347 (SAPO), 2507.20673 (GMPO), 2503.20783 (Dr.GRPO's constant),
2510.14545 (AEPO).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from accredit.errors import DataError, ParamError, suggest
from accredit.typing import BoolArray, Floats, Ints

__all__ = [
    "AGGREGATIONS",
    "Loss",
    "aepo",
    "aggregate",
    "cispo",
    "gmpo",
    "gspo",
    "ppo",
    "same_length",
    "sapo",
    "token_weights",
]

AGGREGATIONS = (
    "token-mean",
    "seq-mean-token-mean",
    "seq-mean-token-sum",
    "seq-mean-token-sum-norm",
    "token-sum",
)
# verl's bound on the logarithm of a sequence ratio.
_LOG_RATIO_MOST = 10.0


class Loss(NamedTuple):
    """A loss and its gradient.

    Args:
        value: the loss, to be minimised.
        grad_T: derivative by each token's log-probability ``[T]``; 0 on tokens that do not count.
        loss_T: loss of each token before it is weighed ``[T]``.
    """

    value: float
    grad_T: Floats
    loss_T: Floats


def token_weights(
    start_R1: Ints, mode: str = "token-mean", mask_T: BoolArray | None = None, constant: float | None = None
) -> Floats:
    """Return the weight of each token in a loss ``[T]``; the loss is the weighted sum of token losses.

    ``token-mean``: 1 / all tokens (DAPO).  ``seq-mean-token-mean``: 1 / (rows x tokens of the row)
    (GRPO).  ``seq-mean-token-sum``: 1 / rows.  ``seq-mean-token-sum-norm``: 1 / (rows x constant)
    (Dr.GRPO).  ``token-sum``: 1.  Rows without counted tokens are no rows.

    Args:
        start_R1: offsets of the rows' tokens.
        mode: one of `AGGREGATIONS`.
        mask_T: tokens that count ``[T]``; None = all.
        constant: of ``seq-mean-token-sum-norm``, tokens.

    Raises:
        ParamError: for an unknown mode, or a missing or non-positive constant.

    Example:
        >>> token_weights(np.array([0, 1, 4]), "seq-mean-token-mean").round(4).tolist()
        [0.5, 0.1667, 0.1667, 0.1667]
    """
    if mode not in AGGREGATIONS:
        raise ParamError(f"no aggregation {mode!r}", hint=suggest(mode, AGGREGATIONS))
    rows = _Rows.of(start_R1, mask_T)
    spoken = max(1, int((rows.size_R > 0).sum()))
    divisor: Floats | float = 1.0  # token-sum
    if mode == "token-mean":
        divisor = max(1.0, float(rows.size_R.sum()))
    elif mode == "seq-mean-token-mean":
        divisor = spoken * np.maximum(rows.size_R, 1.0)[rows.row_T]
    elif mode == "seq-mean-token-sum":
        divisor = spoken
    elif mode == "seq-mean-token-sum-norm":
        if constant is None or not constant > 0:
            raise ParamError(f"{mode} needs a constant > 0, got {constant!r}")
        divisor = spoken * constant
    return rows.counted_T / divisor


class _Rows(NamedTuple):
    """Rows of tokens: the row of each token, whether it counts (1 or 0), and how many of a row do."""

    row_T: Ints
    counted_T: Floats
    size_R: Floats

    @classmethod
    def of(cls, start_R1: Ints, mask_T: BoolArray | None) -> _Rows:
        row_T = np.repeat(np.arange(start_R1.size - 1), np.diff(start_R1))
        counted_T = np.ones(row_T.size) if mask_T is None else np.asarray(mask_T, np.float64)
        size_R = np.bincount(row_T, counted_T, start_R1.size - 1)
        return cls(row_T, counted_T, size_R.astype(np.float64, copy=False))

    def mean(self, values_T: Floats) -> Floats:
        """Return the mean over the counted tokens of each row ``[R]``; 0 where there is none."""
        total = np.bincount(self.row_T, values_T * self.counted_T, self.size_R.size)
        return total / np.maximum(self.size_R, 1.0)


def aggregate(loss_T: Floats, grad_T: Floats, weight_T: Floats) -> Loss:
    """Return the weighted sum of token losses, and of their gradients.

    Args:
        loss_T: loss of each token ``[T]``.
        grad_T: its derivative by the token's log-probability ``[T]``.
        weight_T: from `token_weights`.
    """
    return Loss(float(np.sum(loss_T * weight_T)), grad_T * weight_T, loss_T)


def ppo(
    logprob_T: Floats,
    old_T: Floats,
    advantage_T: Floats,
    weight_T: Floats,
    *,
    clip_low: float = 0.2,
    clip_high: float = 0.2,
) -> Loss:
    """Return the clipped surrogate ``max(-A r, -A clip(r, 1 - low, 1 + high))``, r = pi / pi_old.

    The gradient is 0 where the clipped branch is strictly larger.

    Args:
        logprob_T: log-probabilities under the policy ``[T]``, nats.
        old_T: under the policy that sampled ``[T]``, nats.
        advantage_T: token advantages ``[T]``.
        weight_T: from `token_weights`.
        clip_low: how far below 1 the ratio counts.
        clip_high: how far above 1.

    Raises:
        DataError: arrays of different lengths.

    Example:
        >>> ppo(np.array([0.0]), np.array([0.0]), np.array([2.0]), np.ones(1)).grad_T.tolist()
        [-2.0]
    """
    same_length(logprob_T, old_T, advantage_T, weight_T)
    ratio = np.exp(logprob_T - old_T)
    return _clipped(ratio, advantage_T, weight_T, clip_low, clip_high)


def aepo(
    logprob_T: Floats,
    old_T: Floats,
    advantage_T: Floats,
    weight_T: Floats,
    *,
    clip_low: float = 0.2,
    clip_high: float = 0.2,
) -> Loss:
    """Return `ppo` whose upper bound is ``(1 + high) r / sg[r]``: its value, and no gradient lost above it.

    Where ``r > 1 + high`` and ``A > 0`` the gradient is ``-(1 + high) A`` by the log-probability, where
    `ppo` has 0; the lower side is that of `ppo`.  For positive advantages it is `cispo` without its lower
    bound.

    Args:
        logprob_T: log-probabilities under the policy ``[T]``, nats.
        old_T: under the policy that sampled ``[T]``, nats.
        advantage_T: token advantages ``[T]``.
        weight_T: from `token_weights`.
        clip_low: how far below 1 the ratio counts.
        clip_high: how far above 1.

    Raises:
        DataError: arrays of different lengths.

    Source: arXiv 2510.14545, from notes.

    Example:
        >>> for loss in (ppo, aepo):
        ...     print(loss(np.array([0.0]), np.array([-1.0]), np.array([2.0]), np.ones(1)).grad_T.tolist())
        [0.0]
        [-2.4]
    """
    same_length(logprob_T, old_T, advantage_T, weight_T)
    ratio = np.exp(logprob_T - old_T)
    plain = _clipped(ratio, advantage_T, weight_T, clip_low, clip_high)
    above = (ratio > 1 + clip_high) & (advantage_T > 0)
    kept = np.where(above, -(1 + clip_high) * advantage_T * weight_T, plain.grad_T)
    return plain._replace(grad_T=kept)


def gspo(
    logprob_T: Floats,
    old_T: Floats,
    advantage_T: Floats,
    start_R1: Ints,
    *,
    mask_T: BoolArray | None = None,
    clip_low: float = 3e-4,
    clip_high: float = 4e-4,
    mode: str = "seq-mean-token-mean",
) -> Loss:
    """Return the sequence-ratio surrogate: `ppo` with ``s_i = exp(mean_t log r_{i,t})`` for all tokens.

    The token form: each token's gradient is that of ``sg[s_i] pi / sg[pi]``, so advantages may vary
    inside a row.

    Args:
        logprob_T: log-probabilities under the policy ``[T]``, nats.
        old_T: under the policy that sampled ``[T]``, nats.
        advantage_T: token advantages ``[T]``.
        start_R1: offsets of the rows.
        mask_T: tokens that count ``[T]``; None = all.
        clip_low: how far below 1 the ratio counts.
        clip_high: how far above 1.
        mode: aggregation.
    """
    same_length(logprob_T, old_T, advantage_T)
    rows = _Rows.of(start_R1, mask_T)
    ratio = np.exp(np.minimum(rows.mean(logprob_T - old_T), _LOG_RATIO_MOST))[rows.row_T]
    return _clipped(ratio, advantage_T, token_weights(start_R1, mode, mask_T), clip_low, clip_high)


def cispo(
    logprob_T: Floats,
    old_T: Floats,
    advantage_T: Floats,
    weight_T: Floats,
    *,
    clip_low: float = 0.2,
    clip_high: float = 0.2,
) -> Loss:
    """Return ``-sg[clip(r, 1 - low, 1 + high)] A log pi``: no token loses its gradient.

    Args:
        logprob_T: log-probabilities under the policy ``[T]``, nats.
        old_T: under the policy that sampled ``[T]``, nats.
        advantage_T: token advantages ``[T]``.
        weight_T: from `token_weights`.
        clip_low: how far below 1 the weight goes.
        clip_high: how far above 1.
    """
    same_length(logprob_T, old_T, advantage_T, weight_T)
    held = -np.clip(np.exp(logprob_T - old_T), 1 - clip_low, 1 + clip_high) * advantage_T
    return aggregate(held * logprob_T, held, weight_T)


def sapo(
    logprob_T: Floats,
    old_T: Floats,
    advantage_T: Floats,
    weight_T: Floats,
    *,
    tau_positive: float = 1.0,
    tau_negative: float = 1.05,
) -> Loss:
    """Return the soft gate ``-(4 / tau) sigmoid(tau (r - 1)) A``, tau by the advantage's sign.

    Args:
        logprob_T: log-probabilities under the policy ``[T]``, nats.
        old_T: under the policy that sampled ``[T]``, nats.
        advantage_T: token advantages ``[T]``.
        weight_T: from `token_weights`.
        tau_positive: steepness where the advantage is positive.
        tau_negative: elsewhere.
    """
    same_length(logprob_T, old_T, advantage_T, weight_T)
    ratio = np.exp(logprob_T - old_T)
    tau = np.where(advantage_T > 0, tau_positive, tau_negative)
    gate = 1.0 / (1.0 + np.exp(-tau * (ratio - 1.0)))
    loss = -(4.0 / tau) * gate * advantage_T
    return aggregate(loss, -4.0 * gate * (1.0 - gate) * ratio * advantage_T, weight_T)


def gmpo(
    logprob_T: Floats,
    old_T: Floats,
    advantage_T: Floats,
    start_R1: Ints,
    *,
    mask_T: BoolArray | None = None,
    clip_low: float = 0.4,
    clip_high: float = 0.4,
) -> Loss:
    """Return the geometric-mean surrogate: the mean over rows of ``-A_i exp(mean_t l_{i,t})``.

    ``l`` is the token's log-ratio, held at ``clip_high`` where the advantage is positive and at
    ``-clip_low`` where it is negative (one side only, in nats); A_i is the row's mean advantage.

    Args:
        logprob_T: log-probabilities under the policy ``[T]``, nats.
        old_T: under the policy that sampled ``[T]``, nats.
        advantage_T: token advantages ``[T]``; meant to be equal inside a row.
        start_R1: offsets of the rows.
        mask_T: tokens that count ``[T]``; None = all.
        clip_low: how far below 0 a log-ratio counts, nats.
        clip_high: how far above 0, nats.

    Source: arXiv 2507.20673; verl ``compute_policy_loss_geo_mean``.
    """
    same_length(logprob_T, old_T, advantage_T)
    weight = token_weights(start_R1, "seq-mean-token-mean", mask_T)
    rows = _Rows.of(start_R1, mask_T)
    log_ratio = logprob_T - old_T
    held = np.where(advantage_T > 0, np.minimum(log_ratio, clip_high), np.maximum(log_ratio, -clip_low))
    held = np.where(advantage_T == 0, 0.0, held)
    free = (held == log_ratio) & (advantage_T != 0)
    loss = (-rows.mean(advantage_T) * np.exp(rows.mean(held)))[rows.row_T]
    return aggregate(loss, np.where(free, loss, 0.0), weight)


def _clipped(ratio: Floats, advantage: Floats, weight: Floats, low: float, high: float) -> Loss:
    free = -advantage * ratio
    held = -advantage * np.clip(ratio, 1 - low, 1 + high)
    return aggregate(np.maximum(free, held), np.where(held > free, 0.0, free), weight)


def same_length(*arrays: Floats) -> None:
    """Check that token arrays belong together.

    Args:
        *arrays: each ``[T]``.

    Raises:
        DataError: naming the lengths.
    """
    sizes = [a.size for a in arrays]
    if len(set(sizes)) > 1:
        raise DataError(
            f"log-probs, old log-probs, advantages and weights have {sizes} values",
            hint="Give one value a policy token in each, in the same order",
        )
