"""How much hidden states add: log-determinants token by token, and where a response changes its shape."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

import numpy as np

from accredit.typing import Array, BoolArray, Floats, Ints

__all__ = ["boundaries", "logdet_gains", "projected"]

STRIDE = 8  # tokens between places that may be boundaries
WINDOW = 32  # tokens on either side that are compared
SHORTEST = 24  # tokens of an induced step
SNAP = 8  # tokens within which a line or sentence end is preferred
PERCENTILE = 85.0  # of the change, above which a place is a boundary
_EPS = 1e-8
_BLOCK = 64  # rows at least that are taken at once
_NARROW = 8  # dimensions up to which every row's matrix is kept: rows are worked on side by side


def logdet_gains(hidden: Floats, beta: float | Floats, start_R1: Ints | None = None) -> Floats:
    """Return what each row adds to ``F(S) = 0.5 logdet(I + beta sum_{h in S} h h^T)``, nats ``[n]``.

    Row i adds ``0.5 log(1 + beta h^T B^-1 h)``, B the matrix of the rows before it: the logarithms of
    the diagonal of one Cholesky factor.  Rows are taken in blocks of d (at least 64), so that no
    matrix is larger; where n <= d the only block is the n x n Gram matrix (Sylvester).  Up to d = 8 the
    B of all rows are running sums, eliminated side by side.

    Args:
        hidden: ``[n, d]``, float64.
        beta: weight of a row; one number, or one a response ``[R]``.
        start_R1: offsets of the responses, each a set of its own; None = one.

    Example:
        >>> logdet_gains(np.array([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]]), 1.0).round(4).tolist()
        [0.3466, 0.2027, 0.3466]
    """
    start = np.array([0, len(hidden)]) if start_R1 is None else start_R1
    weight = np.broadcast_to(np.asarray(beta, np.float64), start.size - 1)
    if hidden.shape[1] <= _NARROW:
        return _narrow_gains(hidden, weight, start)
    parts = [_wide_gains(hidden[a:b], w) for (a, b), w in zip(pairwise(start.tolist()), weight, strict=True)]
    return np.concatenate(parts) if parts else np.zeros(0)


def _wide_gains(hidden: Floats, beta: float) -> Floats:
    from scipy.linalg import cho_factor, cho_solve  # importing it costs more than most methods

    n, d = hidden.shape
    gains = np.zeros(n)
    before: Floats | None = None
    block = max(_BLOCK, d)
    for a in range(0, n, block):
        rows = hidden[a : a + block]
        solved = rows.T if before is None else cho_solve(cho_factor(before, lower=True), rows.T)
        gram = beta * (rows @ solved)
        gram[np.diag_indices_from(gram)] += 1.0
        gains[a : a + block] = np.log(np.diag(np.linalg.cholesky(gram)))
        if a + block < n:
            before = (np.eye(d) if before is None else before) + beta * (rows.T @ rows)
    return np.maximum(gains, 0.0)


def _narrow_gains(hidden: Floats, beta_R: Floats, start_R1: Ints) -> Floats:
    """Return the same by elimination of each row's own matrix, a vector operation over all rows.

    Row i of the matrices' lower triangle stands in rows i (i + 1) / 2 and following.
    """
    n, d = hidden.shape
    scale = np.repeat(np.sqrt(beta_R), np.diff(start_R1))
    h = np.multiply(hidden.T, scale, order="C")  # [d, n]
    added, matrix = np.empty((2, d * (d + 1) // 2, n))
    for i in range(d):
        np.multiply(h[: i + 1], h[i], out=_triangle_row(added, i))
    for a, b in pairwise(start_R1.tolist()):
        if b > a:
            matrix[:, a] = 0.0
            np.cumsum(added[:, a : b - 1], axis=1, out=matrix[:, a + 1 : b])
    for i in range(d):
        _triangle_row(matrix, i)[i] += 1.0
    found: Floats = 0.5 * np.log1p(_quadratic(matrix, h))
    return found


def _triangle_row(packed: Floats, i: int) -> Floats:
    return packed[i * (i + 1) // 2 : (i + 1) * (i + 2) // 2]


def _quadratic(matrix: Floats, h: Floats) -> Floats:
    """Return ``h^T B^-1 h`` of each column of h ``[d, n]`` and its B; both are overwritten.

    Args:
        matrix: lower triangles of the B, packed; a B is the identity and more, so no pivot is below 1.
        h: ``[d, n]``.
    """
    rows = [_triangle_row(matrix, i) for i in range(len(h))]
    found = np.zeros(h.shape[1])
    for j, row in enumerate(rows):
        pivot = np.maximum(row[j], 1.0)
        share = h[j] / pivot
        found += share * h[j]
        for i in range(j + 1, len(h)):
            ratio = rows[i][j] / pivot
            for k in range(j + 1, i + 1):
                rows[i][k] -= ratio * rows[k][j]
            h[i] -= share * rows[i][j]
    return found


def projected(hidden: Floats, width: int | None) -> Floats:
    """Return the rows under a fixed map with orthonormal columns ``[n, width]``; None = as they are.

    Args:
        hidden: ``[n, d]``.
        width: dimensions to keep; at least d changes nothing.
    """
    d = hidden.shape[1]
    if width is None or width >= d:
        return hidden
    found: Floats = hidden @ _basis(d, width)
    return found


@lru_cache(maxsize=1)
def _basis(d: int, width: int) -> Floats:
    basis, _ = np.linalg.qr(np.random.default_rng(0).normal(size=(d, width)))
    return basis


@dataclass(frozen=True)
class _Windows:
    """Windows at every grid place: their means ``[m, d]``, volume and effective dimension ``[m]``."""

    mean: Floats
    volume: Floats
    dimension: Floats

    @classmethod
    def of(cls, hidden: Floats) -> _Windows:
        starts = np.arange(0, len(hidden) - WINDOW + 1, STRIDE)
        d = hidden.shape[1]
        mean, spectra = np.empty((starts.size, d)), np.empty((starts.size, WINDOW))
        for i, a in enumerate(starts.tolist()):
            rows = hidden[a : a + WINDOW]
            mean[i] = rows.mean(axis=0)
            away = rows - mean[i]
            spectra[i] = np.linalg.eigvalsh(away @ away.T)
        spectra = np.maximum(spectra, 0.0)
        total, square = spectra.sum(axis=1), np.square(spectra).sum(axis=1)
        volume = 0.5 * np.log1p((d / WINDOW) * spectra).sum(axis=1)
        return cls(mean, volume, np.square(total) / (square + _EPS))


def boundaries(hidden: Floats, ends: BoolArray | None = None) -> Ints:
    """Return the first tokens of the induced steps of one long response, the first step's left out.

    At each place t of the grid the 32 tokens before and after it are compared: change of
    ``V - eta D``, loss of volume V, gain of effective dimension D, turn of the mean; each
    standardised, then averaged.  Local maxima above the 85th percentile are boundaries, at least 24
    tokens apart (the larger stays), moved to a line or sentence end within 8 tokens.

    Args:
        hidden: ``[n, d]``, float64.
        ends: whether each token ends a line or sentence ``[n]``; None = not known.
    """
    if len(hidden) < 2 * WINDOW:
        return np.zeros(0, np.int64)
    chi = _change(_Windows.of(hidden))
    padded = np.concatenate([[-np.inf], chi, [-np.inf]])
    peak = (chi >= padded[:-2]) & (chi >= padded[2:]) & (chi > np.percentile(chi, PERCENTILE))
    kept: list[int] = []
    for i in sorted(np.flatnonzero(peak).tolist(), key=lambda i: (-chi[i], i)):
        if all(abs(i - other) * STRIDE >= SHORTEST for other in kept):
            kept.append(i)
    places = WINDOW + STRIDE * np.array(sorted(kept), np.int64)
    return places if ends is None else np.array([_snapped(int(t), ends) for t in places], np.int64)


def _change(windows: _Windows) -> Floats:
    """Return chi at each place that has a window on either side: starts t - 32 and t."""
    lag = WINDOW // STRIDE
    spread = float(windows.dimension.std())
    eta = float(windows.volume.std()) / spread if spread > 0 else 0.0
    psi = windows.volume - eta * windows.dimension
    features = np.stack(
        [
            np.abs(psi[lag:] - psi[:-lag]),
            np.maximum(windows.volume[:-lag] - windows.volume[lag:], 0.0),
            np.maximum(windows.dimension[lag:] - windows.dimension[:-lag], 0.0),
            1.0 - _cosine(windows.mean[:-lag], windows.mean[lag:]),
        ]
    )
    centred = features - features.mean(axis=1, keepdims=True)
    found: Floats = (centred / (features.std(axis=1, keepdims=True) + _EPS)).mean(axis=0)
    return found


def _cosine(a: Floats, b: Floats) -> Floats:
    norm = np.linalg.norm(a, axis=1) * np.linalg.norm(b, axis=1)
    dot: Floats = np.einsum("ij,ij->i", a, b)
    found: Floats = np.divide(dot, norm, out=np.zeros_like(dot), where=norm > 0)
    return found


def _snapped(t: int, ends: Array) -> int:
    """Return the place nearest to t, within 8 tokens, whose token before it is an end; else t."""
    near = [u for u in range(t - SNAP, t + SNAP + 1) if ends[u - 1]]
    return min(near, key=lambda u: (abs(u - t), u), default=t)
