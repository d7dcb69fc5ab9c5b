"""Several distributions over the same tokens, as one number or a few moments a token.

Rows are log-probabilities of a few tokens at a time, so that nothing of size T x V is ever kept.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol, TypeAlias

import numpy as np

from accredit.errors import ParamError
from accredit.signals.reductions import top
from accredit.typing import Array, Floats, Ints

__all__ = ["Divergence", "FisherMoments", "Measure", "Rows"]

Rows: TypeAlias = Mapping[str, Array]  # role -> log-probabilities [n, V]


class Measure(Protocol):
    """What is made of the distributions of some roles."""

    @property
    def roles(self) -> tuple[str, ...]:
        """Views that it needs, by name."""

    @property
    def column(self) -> str:
        """Token column of its result."""

    def of(self, rows: Rows, chosen: Ints) -> Array:
        """Return ``[n]`` or ``[n, d]`` of ``n`` tokens.

        Args:
            rows: log-probabilities by role.
            chosen: ids of the tokens.
        """


@dataclass(frozen=True, slots=True)
class FisherMoments:
    """``E_p t, E_p n, E_p t^2, E_p n^2, E_p tn, t_y, n_y`` of an evidence contrast t and its nuisance n.

    forward: ``t = q+ - q-``, ``n = (q+ + q-) / 2 - q0``. reverse: ``r_t = log q+ - log q-``,
    ``r_n = (log q+ + log q-) / 2 - log q0``, and t and n are their tangents ``p (r - E_p r)``.
    Probabilities of several negatives are averaged first.

    Args:
        form: ``forward`` or ``reverse`` Kullback-Leibler geometry.
        negatives: roles of the teachers that saw wrong evidence.

    Source: VERPO, arXiv 2609.06100 (sections 4 and 9 of the method's page).
    """

    form: Literal["forward", "reverse"] = "forward"
    negatives: tuple[str, ...] = ("neg",)

    @property
    def roles(self) -> tuple[str, ...]:
        """The policy, and the teacher with no, correct and wrong evidence."""
        return ("student", "none", "pos", *self.negatives)

    @property
    def column(self) -> str:
        """``fisher_moments_T`` (forward) or ``fisher_moments_reverse_T``."""
        return "fisher_moments_T" if self.form == "forward" else "fisher_moments_reverse_T"

    def of(self, rows: Rows, chosen: Ints) -> Floats:
        """Return the seven numbers ``[n, 7]``, float64."""
        p, none, pos = (np.exp(rows[role].astype(np.float64)) for role in ("student", "none", "pos"))
        neg = np.mean([np.exp(rows[role].astype(np.float64)) for role in self.negatives], axis=0)
        if self.form == "forward":
            t, n = pos - neg, (pos + neg) / 2 - none
        else:
            t, n = _tangents(p, rows, neg, self.negatives)
        row = np.arange(len(p))
        means = [_mean(p, x) for x in (t, n, t * t, n * n, t * n)]
        return np.stack([*means, t[row, chosen], n[row, chosen]], axis=1)


def _tangents(p: Floats, rows: Rows, neg: Floats, negatives: Sequence[str]) -> tuple[Floats, Floats]:
    if len(negatives) == 1:
        log_neg = rows[negatives[0]].astype(np.float64)
    else:
        log_neg = np.log(np.maximum(neg, np.finfo(np.float64).tiny))
    log_pos, log_none = rows["pos"].astype(np.float64), rows["none"].astype(np.float64)
    ratios = (log_pos - log_neg, (log_pos + log_neg) / 2 - log_none)
    t, n = (p * (r - _mean(p, r)[:, None]) for r in ratios)
    return t, n


def _mean(p: Floats, x: Floats) -> Floats:
    found: Floats = np.einsum("ij,ij->i", p, x)
    return found


@dataclass(frozen=True, slots=True)
class Divergence:
    """A divergence of teacher and student at each token, nats.

    ``jsd``: ``beta KL(T || M) + (1 - beta) KL(S || M)`` with ``M = (1 - beta) S + beta T``; ``forward``:
    ``KL(T || S)``; ``reverse``: ``KL(S || T)``. As in OPSD's code, beta 0 is forward and beta 1 reverse.

    Args:
        form: ``jsd``, ``forward`` or ``reverse``.
        beta: weight of the teacher, 0 to 1; for ``jsd``.
        top_k: only the teacher's k most probable ids, both renormalised on them; 0: all.
        student: role of the policy.
        teacher: role of the teacher.

    Source: OPSD, arXiv 2601.18734, opsd_trainer.py.
    """

    form: Literal["jsd", "forward", "reverse"] = "jsd"
    beta: float = 0.5
    top_k: int = 0
    student: str = "student"
    teacher: str = "teacher"

    def __post_init__(self) -> None:
        if not 0 <= self.beta <= 1:
            raise ParamError(f"beta must lie in 0 .. 1, got {self.beta}")
        if self.top_k < 0:
            raise ParamError(f"top_k must be 0 (all) or more, got {self.top_k}")

    @property
    def roles(self) -> tuple[str, ...]:
        """Student and teacher."""
        return (self.student, self.teacher)

    @property
    def column(self) -> str:
        """``jsd_T``, ``kl_forward_T`` or ``kl_reverse_T``."""
        return "jsd_T" if self.form == "jsd" else f"kl_{self.form}_T"

    def of(self, rows: Rows, chosen: Ints) -> Floats:
        """Return the divergence ``[n]``, float64, at least 0; ``chosen`` does not matter."""
        s, t = rows[self.student], rows[self.teacher]
        if self.top_k:
            ids = top(t, self.top_k)[0].astype(np.int64)
            s, t = (_renormalised(np.take_along_axis(x, ids, axis=1)) for x in (s, t))
        s, t = s.astype(np.float64), t.astype(np.float64)
        if self.form == "forward" or (self.form == "jsd" and self.beta == 0):
            found = _kl(t, s)
        elif self.form == "reverse" or self.beta == 1:
            found = _kl(s, t)
        else:
            mixed = np.logaddexp(s + np.log1p(-self.beta), t + np.log(self.beta))
            found = self.beta * _kl(t, mixed) + (1 - self.beta) * _kl(s, mixed)
        return np.maximum(found, 0)


def _kl(p: Floats, q: Floats) -> Floats:
    """``sum_v p (log p - log q)`` of log-probabilities."""
    found: Floats = np.einsum("ij,ij->i", np.exp(p), p - q)
    return found


def _renormalised(log: Array) -> Array:
    highest = log.max(axis=1, keepdims=True)
    found: Array = log - highest - np.log(np.exp(log - highest).sum(axis=1, keepdims=True))
    return found
