"""Divergences between a student and a teacher: from chosen tokens, or from whole distributions.

The teacher is a constant; every gradient is the student's.

Source: siyan-zhao/OPSD ``generalized_jsd_loss`` and TRL ``GKDTrainer`` (the same formula); verl
``kl_penalty``; hamsterjiang23/VERPO ``losses.py``.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from accredit.errors import DataError, ParamError, suggest
from accredit.losses.policy import Loss, aggregate, same_length
from accredit.typing import Array, Floats

__all__ = [
    "ESTIMATORS",
    "LogitLoss",
    "evidence",
    "forward_kl",
    "jsd",
    "kl_estimate",
    "log_softmax",
    "reverse_kl",
]

ESTIMATORS = ("k1", "k2", "k3", "abs", "k1+", "k3+")
# Bound of the exponent, as in the sources.
_LOG_RATIO_MOST = 20.0


class LogitLoss(NamedTuple):
    """A loss of whole distributions and its gradient.

    Args:
        value: the loss, to be minimised.
        grad_TV: derivative by the student's logits ``[T, V]``.
        loss_T: loss of each token before it is weighed ``[T]``.
    """

    value: float
    grad_TV: Floats
    loss_T: Floats


def log_softmax(logits: Array, temperature: float = 1.0) -> Floats:
    """Return log-probabilities over the last axis, nats.

    Args:
        logits: finite, any shape.
        temperature: divides them first.

    Example:
        >>> log_softmax(np.log([0.5, 0.25, 0.25])).round(4).tolist()
        [-0.6931, -1.3863, -1.3863]
    """
    scaled = np.asarray(logits, np.float64) / temperature
    scaled -= scaled.max(axis=-1, keepdims=True)
    scaled -= np.log(np.exp(scaled).sum(axis=-1, keepdims=True))
    return scaled


def kl_estimate(logprob_T: Floats, reference_T: Floats, weight_T: Floats, *, estimator: str = "k3") -> Loss:
    """Return an estimate of KL(policy || reference) from tokens that the policy sampled.

    With d = log pi - log ref: ``k1`` = d, ``k2`` = d^2 / 2, ``k3`` = exp(-d) - 1 + d, ``abs`` = |d|.
    A ``+`` keeps the value and takes the gradient of k2, whose mean is that of the divergence.

    Args:
        logprob_T: log-probabilities under the policy ``[T]``, nats.
        reference_T: under the reference ``[T]``, nats.
        weight_T: from `accredit.losses.token_weights`.
        estimator: one of `ESTIMATORS`.

    Raises:
        ParamError: for another name.

    Source: Schulman, "Approximating KL divergence"; verl ``kl_penalty`` (which also bounds k3 by 10).

    Example:
        >>> kl_estimate(np.array([-1.0]), np.array([-1.5]), np.ones(1), estimator="k1").value
        0.5
    """
    if estimator not in ESTIMATORS:
        raise ParamError(f"no estimator {estimator!r}", hint=suggest(estimator, ESTIMATORS))
    same_length(logprob_T, reference_T, weight_T)
    d = logprob_T - reference_T
    loss, grad = _estimated(d, estimator.removesuffix("+"))
    return aggregate(loss, d if estimator.endswith("+") else grad, weight_T)


def _estimated(d: Floats, estimator: str) -> tuple[Floats, Floats]:
    if estimator == "k1":
        return d, np.ones_like(d)
    if estimator == "k2":
        return 0.5 * d * d, d
    if estimator == "abs":
        return np.abs(d), np.sign(d)
    return k3_of(d)


def k3_of(d: Floats) -> tuple[Floats, Floats]:
    """Return ``exp(-d) - 1 + d`` and its derivative by d; the exponent is at most 20.

    Args:
        d: log-ratios, policy minus reference.
    """
    grown = np.exp(np.minimum(-d, _LOG_RATIO_MOST))
    return grown - 1.0 + d, np.where(-d < _LOG_RATIO_MOST, 1.0 - grown, 1.0)


def jsd(
    student_TV: Array,
    teacher_TV: Array,
    weight_T: Floats,
    *,
    beta: float = 0.5,
    temperature: float = 1.0,
    top_k: int | None = None,
) -> LogitLoss:
    """Return the generalised Jensen-Shannon divergence of student S and teacher T.

    ``beta KL(T || M) + (1 - beta) KL(S || M)``, ``M = (1 - beta) S + beta T``; ``beta=0`` is
    KL(T || S) (forward), ``beta=1`` is KL(S || T) (reverse): branches of their own, not the limits.

    Args:
        student_TV: logits ``[T, V]``.
        teacher_TV: logits ``[T, V]``.
        weight_T: from `accredit.losses.token_weights`.
        beta: weight of the teacher, in [0, 1].
        temperature: divides both first.
        top_k: only the teacher's k likeliest words, both renormalised on them; None = all.

    Raises:
        ParamError: beta outside [0, 1], a temperature or top_k that is not positive.
        DataError: arrays that do not fit, or logits that are not finite.

    Source: siyan-zhao/OPSD @ 590ec26c59e6 ``generalized_jsd_loss``; TRL ``GKDTrainer``.

    Example:
        >>> student, teacher = np.log([[0.7, 0.3]]), np.log([[0.4, 0.6]])
        >>> [round(jsd(student, teacher, np.ones(1), beta=b).value, 6) for b in (0.5, 0, 1)]
        [0.046201, 0.192042, 0.183787]
    """
    _check_logits(student_TV, teacher_TV, weight_T, temperature)
    if not 0 <= beta <= 1:
        raise ParamError(f"beta must be in [0, 1], got {beta!r}")
    if top_k is not None and top_k < 1:
        raise ParamError(f"top_k must be at least 1 or None, got {top_k!r}")
    student, teacher = (np.asarray(x, np.float64) for x in (student_TV, teacher_TV))
    if top_k is None or top_k >= student.shape[1]:
        return _from_logs(student, teacher, weight_T, beta, temperature)
    kept = np.argsort(-teacher, axis=1, kind="stable")[:, :top_k]
    inside = [np.take_along_axis(x, kept, axis=1) for x in (student, teacher)]
    found = _from_logs(inside[0], inside[1], weight_T, beta, temperature)
    grad = np.zeros_like(student)
    np.put_along_axis(grad, kept, found.grad_TV, axis=1)
    return found._replace(grad_TV=grad)


def forward_kl(
    student_TV: Array,
    teacher_TV: Array,
    weight_T: Floats,
    *,
    temperature: float = 1.0,
    top_k: int | None = None,
) -> LogitLoss:
    """Return KL(teacher || student), `jsd` with ``beta=0``; its descent direction is T - S.

    Args:
        student_TV: logits ``[T, V]``.
        teacher_TV: logits ``[T, V]``.
        weight_T: from `accredit.losses.token_weights`.
        temperature: divides both first.
        top_k: only the teacher's k likeliest words; None = all.
    """
    return jsd(student_TV, teacher_TV, weight_T, beta=0.0, temperature=temperature, top_k=top_k)


def reverse_kl(
    student_TV: Array,
    teacher_TV: Array,
    weight_T: Floats,
    *,
    temperature: float = 1.0,
    top_k: int | None = None,
) -> LogitLoss:
    """Return KL(student || teacher), `jsd` with ``beta=1``.

    Args:
        student_TV: logits ``[T, V]``.
        teacher_TV: logits ``[T, V]``.
        weight_T: from `accredit.losses.token_weights`.
        temperature: divides both first.
        top_k: only the teacher's k likeliest words; None = all.
    """
    return jsd(student_TV, teacher_TV, weight_T, beta=1.0, temperature=temperature, top_k=top_k)


def evidence(
    student_TV: Array,
    direction_TV: Array,
    weight_T: Floats,
    *,
    divergence: str = "forward_kl",
    temperature: float = 1.0,
) -> LogitLoss:
    """Return VERPO's evidence loss: ``-sum_v D(v) log pi(v)``, or ``-E_{v~pi} r(v)``.

    ``forward_kl``: D is a displacement of probabilities (sums to 0), and the descent direction on the
    logits is D itself.  ``reverse_kl``: r is a log-ratio.

    Args:
        student_TV: logits ``[T, V]``.
        direction_TV: D or r ``[T, V]``, a constant.
        weight_T: weight of each token: the controller's w over the number of tokens.
        divergence: ``forward_kl`` or ``reverse_kl``.
        temperature: divides the logits first.

    Raises:
        ParamError: for another divergence.

    Source: arXiv 2609.06100; hamsterjiang23/VERPO ``losses.py``.

    Example:
        >>> found = evidence(np.zeros((1, 2)), np.array([[0.2, -0.2]]), np.ones(1))
        >>> found.grad_TV.round(12).tolist()
        [[-0.2, 0.2]]
    """
    _check_logits(student_TV, direction_TV, weight_T, temperature)
    logs = log_softmax(student_TV, temperature)
    toward = np.asarray(direction_TV, np.float64)
    if divergence == "forward_kl":
        return _by_logits(logs, -np.sum(toward * logs, axis=1), -toward, weight_T, temperature)
    if divergence == "reverse_kl":
        slope = -np.exp(logs) * toward
        return _by_logits(logs, slope.sum(axis=1), slope, weight_T, temperature)
    raise ParamError(f"divergence must be one of forward_kl, reverse_kl; got {divergence!r}")


def _from_logs(
    student: Floats, teacher: Floats, weight: Floats, beta: float, temperature: float
) -> LogitLoss:
    s, t = log_softmax(student, temperature), log_softmax(teacher, temperature)
    p, q = np.exp(s), np.exp(t)
    if beta == 0:
        return _by_logits(s, np.sum(q * (t - s), axis=1), -q, weight, temperature)
    if beta == 1:
        return _by_logits(s, np.sum(p * (s - t), axis=1), p * (s - t), weight, temperature)
    mixed = np.logaddexp(s + np.log1p(-beta), t + np.log(beta))
    own = p * (s - mixed)
    loss = np.sum(beta * q * (t - mixed) + (1 - beta) * own, axis=1)
    return _by_logits(s, loss, (1 - beta) * own, weight, temperature)


def _by_logits(s: Floats, loss_T: Floats, slope: Floats, weight: Floats, temperature: float) -> LogitLoss:
    """Return the loss with ``slope``, its derivative by the log-probabilities, taken to the logits."""
    grad = slope - np.exp(s) * slope.sum(axis=1, keepdims=True)
    grad *= (weight / temperature)[:, None]
    return LogitLoss(float(np.sum(loss_T * weight)), grad, loss_T)


def _check_logits(student: Array, teacher: Array, weight: Floats, temperature: float) -> None:
    if not temperature > 0:
        raise ParamError(f"temperature must be > 0, got {temperature!r}")
    if student.ndim != 2 or student.shape != teacher.shape or student.shape[:1] != weight.shape:
        raise DataError(
            f"student {student.shape}, teacher {teacher.shape} and weights {weight.shape} do not fit",
            hint="Give one row of V numbers a policy token in both, and one weight a token",
        )
    if not (np.isfinite(student).all() and np.isfinite(teacher).all()):
        raise DataError(
            "logits must be finite",
            hint="Rescore with the full vocabulary: a word masked by top-p or top-k has no log-ratio",
        )
