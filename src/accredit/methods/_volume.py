"""How much hidden states add: log-determinants token by token, and where a response changes its shape."""

from __future__ import annotations

from dataclasses import dataclass

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
_PIECE = 2048  # rows of these that are taken at once


def logdet_gains(hidden: Floats, beta: float) -> Floats:
    """Return what each row adds to ``F(S) = 0.5 logdet(I + beta sum_{h in S} h h^T)``, nats ``[n]``.

    Row i adds ``0.5 log(1 + beta h^T B^-1 h)``, B the matrix of the rows before it: the logarithms of
    the diagonal of one Cholesky factor.  Rows are taken in blocks of d (at least 64), so that no
    matrix is larger; where n <= d the only block is the n x n Gram matrix (Sylvester).  Up to d = 8 the
    B of all rows are running sums, eliminated side by side.

    Args:
        hidden: ``[n, d]``, float64.
        beta: weight of a row.

    Example:
        >>> logdet_gains(np.array([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]]), 1.0).round(4).tolist()
        [0.3466, 0.2027, 0.3466]
    """
    n, d = hidden.shape
    if d <= _NARROW:
        return _narrow_gains(hidden, beta)
    from scipy.linalg import cho_factor, cho_solve  # importing it costs more than most methods

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


def _narrow_gains(hidden: Floats, beta: float) -> Floats:
    """Return the same by elimination of each row's own matrix, a vector operation over the rows."""
    n, d = hidden.shape
    gains = np.empty(n)
    before = np.eye(d)
    for a in range(0, n, _PIECE):
        h = np.multiply(hidden[a : a + _PIECE].T, np.sqrt(beta), order="C")  # [d, m]
        sums = np.empty((d, d, h.shape[1] + 1))  # B before each row and after the last: below the diagonal
        sums[:, :, 0] = before
        for i in range(d):
            np.multiply(h[: i + 1], h[i], out=sums[i, : i + 1, 1:])
            np.cumsum(sums[i, : i + 1], axis=1, out=sums[i, : i + 1])
        before = sums[:, :, -1].copy()
        gains[a : a + _PIECE] = 0.5 * np.log1p(_quadratic(sums[:, :, :-1], h))
    return gains


def _quadratic(matrix: Floats, h: Floats) -> Floats:
    """Return ``h^T B^-1 h`` of each column of h ``[d, m]`` and its B ``[d, d, m]``; both are overwritten.

    B is read below its diagonal alone; it is the identity and more, so that no pivot is below 1.
    """
    found = np.zeros(h.shape[1])
    for j in range(len(h)):
        pivot = np.maximum(matrix[j, j], 1.0)
        share = h[j] / pivot
        found += share * h[j]
        for i in range(j + 1, len(h)):
            matrix[i, j + 1 : i + 1] -= matrix[i, j] / pivot * matrix[j + 1 : i + 1, j]
            h[i] -= share * matrix[i, j]
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
    basis, _ = np.linalg.qr(np.random.default_rng(0).normal(size=(d, width)))
    found: Floats = hidden @ basis
    return found


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
