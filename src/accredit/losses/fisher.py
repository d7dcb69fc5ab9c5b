"""Moments of an evidence direction under the student: all that Fisher Evidence Contrast needs of logits.

Four distributions at a token: student p; teacher without evidence q0, with right evidence q+, with wrong
evidence q-.  Task direction t and presence direction n come from the three teachers.

Source: arXiv 2609.06100; hamsterjiang23/VERPO @ a2b470fa932d ``risk_aware_opsd/verpo_zpd.py``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from accredit.errors import DataError, ParamError
from accredit.losses.divergence import log_softmax
from accredit.typing import Array, BoolArray, Floats, Ints

__all__ = ["MOMENTS", "Directions", "directions", "fisher_moments", "row_pieces"]

MOMENTS = ("E_p t", "E_p n", "E_p t^2", "E_p n^2", "E_p tn", "t_y", "n_y")
_DIVERGENCES = ("forward_kl", "reverse_kl")
_CELLS = 1 << 18  # numbers that are worked on at once: they stay in the cache


class Directions(NamedTuple):
    """What evidence changes, by word.

    Args:
        task_TV: from wrong to right evidence: ``q+ - q-``, or ``log q+ - log q-``.
        presence_TV: from none to any: ``(q+ + q-) / 2 - q0``, or the same of logarithms.
    """

    task_TV: Floats
    presence_TV: Floats


def directions(
    none_TV: Array, pos_TV: Array, neg_TV: Array, *, divergence: str = "forward_kl", temperature: float = 1.0
) -> Directions:
    """Return the directions of task and presence ``[T, V]``.

    Args:
        none_TV: logits of the teacher without evidence.
        pos_TV: with right evidence.
        neg_TV: with wrong evidence.
        divergence: ``forward_kl`` = of probabilities, ``reverse_kl`` = of log-probabilities.
        temperature: divides the logits first.

    Example:
        >>> none, pos, neg = (np.log([q]) for q in ([.4, .35, .25], [.2, .6, .2], [.6, .2, .2]))
        >>> [(d.round(6) + 0.0).tolist() for d in directions(none, pos, neg)]
        [[[-0.4, 0.4, 0.0]], [[0.0, 0.05, -0.05]]]
    """
    logs = [log_softmax(x, temperature) for x in (none_TV, pos_TV, neg_TV)]
    return _directions(logs, _checked(divergence))


def fisher_moments(
    student_TV: Array,
    none_TV: Array,
    pos_TV: Array,
    neg_TV: Array,
    token_T: Ints,
    *,
    divergence: str = "forward_kl",
    temperature: float = 1.0,
    top_k: int | None = None,
    chunk: int = 4096,
) -> Floats:
    """Return the seven moments of each token ``[T, 7]``, in the order of `MOMENTS`.

    ``forward_kl``: t and n are the directions themselves.  ``reverse_kl``: they are the tangents
    ``p (r - E_p r)`` of the log-ratios r.  y is the sampled word.  Nothing of the size T x V is made.

    Args:
        student_TV: logits of the policy ``[T, V]``.
        none_TV: logits of the teacher without evidence.
        pos_TV: with right evidence.
        neg_TV: with wrong evidence.
        token_T: sampled word of each token ``[T]``.
        divergence: ``forward_kl`` or ``reverse_kl``.
        temperature: divides all logits first.
        top_k: sums over the union of the k likeliest words of the four and y alone, with the
            probabilities of the full softmax; None = over all words.
        chunk: words that are worked on at once.

    Raises:
        DataError: arrays that do not fit, logits that are not finite, or a word outside the vocabulary.
        ParamError: for an unknown divergence, or a temperature, top_k or chunk that is not positive.

    Source: arXiv 2609.06100 section on Fisher Evidence Contrast.
    """
    _checked(divergence)
    for name, value in (
        ("temperature", temperature),
        ("top_k", 1 if top_k is None else top_k),
        ("chunk", chunk),
    ):
        if not value > 0:
            raise ParamError(f"{name} must be > 0, got {value!r}")
    four = (student_TV, none_TV, pos_TV, neg_TV)
    _check(four, token_T)
    words = student_TV.shape[1]
    found = np.empty((len(token_T), len(MOMENTS)))
    for rows in row_pieces(len(token_T), min(words, chunk)):
        block = _Block([x[rows] for x in four], token_T[rows], temperature, chunk, top_k)
        found[rows] = block.moments(divergence)
    return found


def row_pieces(n: int, width: int) -> Iterator[slice]:
    """Yield slices that cover n rows, so many at a time that their cells fit the cache.

    Args:
        n: number of rows.
        width: numbers in a row.
    """
    size = max(1, _CELLS // max(1, width))
    for first in range(0, n, size):
        yield slice(first, min(n, first + size))


class _Block:
    """Some rows of the four distributions, walked over in slices of words."""

    def __init__(
        self, four: Sequence[Array], token: Ints, temperature: float, chunk: int, top_k: int | None
    ) -> None:
        self.four, self.token, self.temperature, self.chunk = four, token, temperature, chunk
        self.words = four[0].shape[1]
        self.norms = [self._norm(x) for x in four]
        self.kept = None if top_k is None or top_k >= self.words else self._union(top_k)

    def moments(self, divergence: str) -> Floats:
        """Return the seven moments ``[rows, 7]``."""
        centre = np.zeros((2, len(self.token)))
        if divergence == "reverse_kl":
            for at in self._slices():
                p, t, n = self._at(at, divergence, centre=None)
                centre += [(p * t).sum(axis=1), (p * n).sum(axis=1)]
        found = np.zeros((len(self.token), 7))
        for at in self._slices():
            p, t, n = self._at(at, divergence, centre)
            pt, pn = p * t, p * n
            sums = (pt, pn, pt * t, pn * n, pt * n)
            found[:, :5] += np.stack([x.sum(axis=1) for x in sums], axis=1)
        found[:, 5:] = self._chosen(divergence, centre)
        return found

    def _slices(self) -> Iterator[slice]:
        for first in range(0, self.words, self.chunk):
            yield slice(first, min(self.words, first + self.chunk))

    def _norm(self, logits: Array) -> Floats:
        """Return the logarithm of the sum that softmax divides by ``[rows, 1]``."""
        top = logits.max(axis=1, keepdims=True).astype(np.float64) / self.temperature
        total = np.zeros_like(top)
        for at in self._slices():
            scaled = np.asarray(logits[:, at], np.float64) / self.temperature
            total += np.exp(scaled - top).sum(axis=1, keepdims=True)
        found: Floats = top + np.log(total)
        return found

    def _union(self, top_k: int) -> BoolArray:
        kept = np.zeros((len(self.token), self.words), bool)
        for logits in self.four:
            best = np.argsort(-np.asarray(logits, np.float64), axis=1, kind="stable")[:, :top_k]
            np.put_along_axis(kept, best, values=True, axis=1)
        kept[np.arange(len(self.token)), self.token] = True
        return kept

    def _at(self, at: slice, divergence: str, centre: Floats | None) -> tuple[Floats, Floats, Floats]:
        """Return p (0 on words that are left out), t and n of a slice; log-ratios where centre is None."""
        logs = [
            np.asarray(x[:, at], np.float64) / self.temperature - norm
            for x, norm in zip(self.four, self.norms, strict=True)
        ]
        p = np.exp(logs[0])
        t, n = _tangents(p, logs[1:], divergence, centre)
        return (p if self.kept is None else p * self.kept[:, at]), t, n

    def _chosen(self, divergence: str, centre: Floats) -> Floats:
        """Return t and n at the sampled word ``[rows, 2]``."""
        row = np.arange(len(self.token))
        logs = [
            (np.asarray(x[row, self.token], np.float64) / self.temperature)[:, None] - norm
            for x, norm in zip(self.four, self.norms, strict=True)
        ]
        return np.concatenate(_tangents(np.exp(logs[0]), logs[1:], divergence, centre), axis=1)


def _tangents(
    p: Floats, logs: Sequence[Floats], divergence: str, centre: Floats | None
) -> tuple[Floats, Floats]:
    t, n = _directions(logs, divergence)
    if divergence == "forward_kl" or centre is None:
        return t, n
    return p * (t - centre[0][:, None]), p * (n - centre[1][:, None])


def _directions(logs: Sequence[Floats], divergence: str) -> Directions:
    none, pos, neg = logs if divergence == "reverse_kl" else map(np.exp, logs)
    return Directions(pos - neg, (pos + neg) / 2 - none)


def _checked(divergence: str) -> str:
    if divergence not in _DIVERGENCES:
        raise ParamError(f"divergence must be one of {', '.join(_DIVERGENCES)}; got {divergence!r}")
    return divergence


def _check(four: Sequence[Array], token: Ints) -> None:
    shapes = {x.shape for x in four}
    if len(shapes) > 1 or four[0].ndim != 2 or len(four[0]) != len(token):
        raise DataError(
            f"logits {', '.join(str(x.shape) for x in four)} and {len(token)} tokens do not fit",
            hint="Give four rows of V numbers a policy token: policy, teacher without, with right and "
            "with wrong evidence",
        )
    if not all(np.isfinite(x).all() for x in four):
        raise DataError("logits must be finite", hint="Rescore with the full vocabulary")
    words = four[0].shape[1]
    if len(token) and not (0 <= token.min() and token.max() < words):
        raise DataError(
            f"token ids from {token.min()} to {token.max()} for {words} words",
            hint="Logits must stand in the order of the token ids",
        )
