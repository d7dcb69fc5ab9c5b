"""Loss terms of self-distillation on the student's own tokens, from chosen-token log-probabilities.

``d = log pi_teacher - log pi_student``; everything from the teacher is a constant.

Source: siyan-zhao/OPSD (``use_tinker_loss``); ZJU-REAL/SDAR ``sdar_utils.py``, ``skillsd_utils.py``.
"""

from __future__ import annotations

import math

import numpy as np

from accredit.errors import ParamError
from accredit.losses.divergence import k3_of
from accredit.losses.policy import Loss, aggregate, same_length
from accredit.typing import BoolArray, Floats

__all__ = ["GATES", "sampled_reverse_kl", "sdar", "sdar_gate", "skill_sd"]

GATES = ("sigmoid", "topq", "const")
_LOG_RATIO_MOST = 10.0


def sampled_reverse_kl(logprob_T: Floats, teacher_T: Floats, weight_T: Floats) -> Loss:
    """Return OPSD's sampled-token loss ``-sg[d] log pi(y)``: policy gradient with advantage d.

    Its mean gradient is that of KL(student || teacher).

    Args:
        logprob_T: log-probabilities under the student ``[T]``, nats.
        teacher_T: under the teacher ``[T]``, nats.
        weight_T: from `accredit.losses.token_weights`.

    Source: siyan-zhao/OPSD @ 590ec26c59e6, the ``use_thinking_machines_loss`` branch.

    Example:
        >>> sampled_reverse_kl(np.array([-1.0]), np.array([-0.5]), np.ones(1)).grad_T.tolist()
        [-0.5]
    """
    same_length(logprob_T, teacher_T, weight_T)
    gap = teacher_T - logprob_T
    return aggregate(-gap * logprob_T, -gap, weight_T)


def sdar_gate(
    gap_T: Floats,
    *,
    gate: str = "sigmoid",
    beta: float = 5.0,
    top: float = 0.1,
    counted_T: BoolArray | None = None,
) -> Floats:
    """Return how much of the teacher each token takes ``[T]``, in [0, 1].

    ``sigmoid``: ``1 / (1 + exp(-beta d))``.  ``topq``: 1 on the share ``top`` of the counted tokens
    with the largest positive d (ties with the last of them too), else 0.  ``const``: 1.

    Args:
        gap_T: d ``[T]``, nats.
        gate: one of `GATES`.
        beta: steepness of the sigmoid, 1/nats.
        top: share of the positive d that ``topq`` keeps.
        counted_T: tokens among which ``topq`` ranks; None = all.

    Raises:
        ParamError: for another gate.

    Example:
        >>> sdar_gate(np.array([-1, -0.1, 0, 0.1, 1])).round(4).tolist()
        [0.0067, 0.3775, 0.5, 0.6225, 0.9933]
    """
    if gate == "sigmoid":
        found: Floats = 1.0 / (1.0 + np.exp(np.minimum(-beta * gap_T, 700.0)))
        return found
    if gate == "const":
        return np.ones_like(gap_T)
    if gate != "topq":
        raise ParamError(f"gate must be one of {', '.join(GATES)}; got {gate!r}")
    positive = gap_T[(gap_T > 0) if counted_T is None else (gap_T > 0) & counted_T]
    if not positive.size:
        return np.zeros_like(gap_T)
    kept = min(positive.size, max(1, math.ceil(top * positive.size - 1e-9)))
    least = np.partition(positive, positive.size - kept)[positive.size - kept]
    kept_T: Floats = (gap_T >= least).astype(np.float64)
    return kept_T


def sdar(
    logprob_T: Floats,
    teacher_T: Floats,
    weight_T: Floats,
    *,
    gate: str = "sigmoid",
    beta: float = 5.0,
    top: float = 0.1,
) -> Loss:
    """Return SDAR's term ``sg[g] (log pi_teacher - log pi)``: its gradient lifts log pi by the gate g.

    Args:
        logprob_T: log-probabilities under the student ``[T]``, nats.
        teacher_T: under the teacher ``[T]``, nats.
        weight_T: from `accredit.losses.token_weights`.
        gate: see `sdar_gate`.
        beta: steepness of the sigmoid.
        top: share that ``topq`` keeps, of the tokens with a weight.

    Source: arXiv 2605.15155; ZJU-REAL/SDAR @ 8b85c231df3b ``compute_sdar_loss``.
    """
    same_length(logprob_T, teacher_T, weight_T)
    gap = teacher_T - logprob_T
    held = sdar_gate(gap, gate=gate, beta=beta, top=top, counted_T=weight_T > 0)
    return aggregate(held * gap, -held, weight_T)


def skill_sd(logprob_T: Floats, teacher_T: Floats, old_T: Floats, weight_T: Floats) -> Loss:
    """Return Skill-SD's term ``rho k3``: k3 of student and teacher under the importance ratio rho.

    ``rho = exp(min(log pi - log pi_old, 10))``, ``k3 = exp(min(-l, 20)) - 1 + l``,
    ``l = log pi - log pi_teacher``; the gradient goes through both.

    Args:
        logprob_T: log-probabilities under the student ``[T]``, nats.
        teacher_T: under the teacher ``[T]``, nats.
        old_T: under the policy that sampled ``[T]``, nats.
        weight_T: from `accredit.losses.token_weights`.

    Source: arXiv 2604.10674; ZJU-REAL/SDAR @ 8b85c231df3b ``compute_sdl_loss``.

    Example:
        >>> skill_sd(np.array([-1.0]), np.array([-1.0]), np.array([-1.0]), np.ones(1)).value
        0.0
    """
    same_length(logprob_T, teacher_T, old_T, weight_T)
    moved = logprob_T - old_T
    ratio = np.exp(np.minimum(moved, _LOG_RATIO_MOST))
    k3, slope = k3_of(logprob_T - teacher_T)
    through = np.where(moved < _LOG_RATIO_MOST, k3, 0.0)
    return aggregate(ratio * k3, ratio * (slope + through), weight_T)
