"""Proximal entropy: how uncertain a token is beside its neighbours, over ragged rows."""

from __future__ import annotations

import numpy as np

from accredit.errors import DataError, ParamError
from accredit.index import discounted_sum, row_of, segment_extremes
from accredit.typing import Array, Floats, Ints

__all__ = ["proximal_entropy"]

# Differences of running sums cancel where a row's entropies (over the temperature) spread more: at
# 12 a window of small values keeps nine digits in a row of 10,000 tokens.
_SPREAD = 12.0


def proximal_entropy(
    H: Array, W: int = 101, *, temperature: float = 1.0, start: Ints | None = None
) -> Floats:
    """Return the softmax weight of each token's entropy within the window around it.

    ``e_t = exp(H_t / temp) / sum_k exp(H_k / temp)``, ``|k - t| <= W/2``: floor(W/2) neighbours on
    each side, the row mirrored at its ends without repeating the edge, as often as needed.  A
    constant added to a row's entropies changes nothing; equal entropies give 1 / (number of
    neighbours + 1), and so does a row of one token.

    Args:
        H: entropies ``[T]``, nats, finite.
        W: width of the window, tokens, at least 1; an even width counts as the next odd one.
        temperature: of the softmax, above 0.
        start: offsets of the rows ``[R+1]``, int64; None = one row.

    Returns:
        ``[T]`` in (0, 1].

    Raises:
        ParamError: for a width below 1 or a temperature that is not above 0.
        DataError: for entropies that are not finite numbers in a row.

    Source: arXiv 2609.39402, Eq. 6 and App. C.2.

    Example:
        >>> proximal_entropy([0, 1, 0, 2, 0], 3).round(6).tolist()
        [0.155362, 0.576117, 0.090031, 0.786986, 0.063379]
    """
    if W < 1 or not 0 < temperature < np.inf:
        raise ParamError(f"W must be at least 1 and temperature above 0, got {W!r} and {temperature!r}")
    x = np.asarray(H, np.float64)
    if x.ndim != 1 or not np.isfinite(x).all():
        raise DataError("entropies must be one row of finite numbers", hint="Give one a token, nats")
    half = int(W) // 2
    if not x.size or not half:
        return np.ones(x.size)
    start_R1 = np.array([0, x.size]) if start is None else start
    row = row_of(start_R1)
    low, top = segment_extremes(x, row, start_R1.size - 1)
    wide = top - low > _SPREAD * temperature
    if not wide.any():
        return _by_running_sums(x, start_R1, top, half, temperature)
    direct = wide[row]
    found = np.empty(x.size)
    sizes = np.where(wide, 0, np.diff(start_R1))
    narrow = np.concatenate([[0], np.cumsum(sizes)])
    found[~direct] = _by_running_sums(x[~direct], narrow, top, half, temperature)
    found[direct] = _by_neighbours(x, np.flatnonzero(direct), row, start_R1, half, temperature)
    return found


def _by_running_sums(x: Floats, start_R1: Ints, top_R: Floats, half: int, temperature: float) -> Floats:
    """Windows as differences of running sums of the mirrored row, which has period 2 (size - 1)."""
    if not x.size:
        return x
    size_R = np.diff(start_R1)
    power = x - np.repeat(top_R, size_R)
    power /= temperature
    np.exp(power, out=power)
    after = np.append(discounted_sum(power, start_R1, 1.0), 0.0)  # sum from a token to its row's end
    window = np.ones(x.size)
    if x.size > 2 * half + 1:  # right where the window ends before its row does; the rest comes now
        np.subtract(after[: -2 * half - 2], after[2 * half + 1 : -1], out=window[half : -half - 1])
    row, place = _near_ends(size_R, half)
    rows = _Mirrored(power, after, start_R1)
    at = start_R1[row] + place
    window[at] = rows.before(row, place + half + 1) - rows.before(row, place - half)
    found: Floats = np.divide(power, window, out=power)
    return np.minimum(found, 1.0, out=found)


def _near_ends(size_R: Ints, half: int) -> tuple[Ints, Ints]:
    """Return row and place of the first ``half`` and last ``half + 1`` tokens of each row."""
    many = np.minimum(size_R, 2 * half + 1)
    start = np.concatenate([[0], np.cumsum(many)])
    row = row_of(start)
    nth = np.arange(row.size) - start[row]
    return row, np.where(nth < half, nth, (size_R - many)[row] + nth)


class _Mirrored:
    """Running sums of rows that go on for ever in both directions, mirrored at their ends."""

    def __init__(self, power: Floats, after: Floats, start_R1: Ints) -> None:
        self.start = start_R1[:-1]
        self.size = np.diff(start_R1)
        self.power, self.after = power, after
        some = self.size > 0
        first = np.where(some, self.start, 0)
        last = np.where(some, start_R1[1:] - 1, 0)
        self.total = after[first]
        self.period = np.maximum(2 * (self.size - 1), 1)  # a row of one token repeats it
        both_ends = np.where(self.size > 1, power[first] + power[last], 0.0)
        self.cycle = np.where(self.size > 1, 2 * self.total - both_ends, self.total)

    def before(self, row: Ints, place: Ints) -> Floats:
        """Return the sum of the places from 0 up to before this one (negative: minus what is between)."""
        turns, rest = np.divmod(place, self.period[row])
        return turns * self.cycle[row] + self._within(row, rest)

    def _within(self, row: Ints, rest: Ints) -> Floats:
        size, total = self.size[row], self.total[row]
        outward = np.minimum(rest, size - 1)
        found: Floats = total - self.after[self.start[row] + outward]
        # From the last token on, the walk goes back: its places beyond are size - 2, size - 3, ...
        back = rest - outward
        turned = back > 0
        r, b = row[turned], back[turned]
        last = self.start[r] + self.size[r] - 1
        # After b places back from the last one: the last token, and b - 1 tokens before it.
        found[turned] = total[turned] + (self.after[last - b + 1] - self.power[last])
        return found


def _by_neighbours(x: Floats, at: Ints, row: Ints, start_R1: Ints, half: int, temperature: float) -> Floats:
    """Windows added up neighbour by neighbour: no cancellation, O(tokens x width)."""
    first = start_R1[row[at]]
    size = np.diff(start_R1)[row[at]]
    period = np.maximum(2 * (size - 1), 1)
    own, place = x[at], at - first
    total = np.zeros(at.size)
    with np.errstate(over="ignore"):  # beside an entropy 700 temperatures higher the weight is 0
        for shift in range(-half, half + 1):
            folded = np.mod(place + shift, period)
            folded = np.minimum(folded, np.where(size > 1, period - folded, 0))
            total += np.exp((x[first + folded] - own) / temperature)
    found: Floats = 1.0 / total
    return found
