"""Where the belief about the answer moved most: selectors of forks, and how good a selection is.

Boundary j of a rollout is the place before its step j.  b_j is the belief there, ``s_j = D(b_j,
b_{j+1})`` the shift over step j; a fork at boundary j lets siblings play step j again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any, Literal, TypeAlias

import numpy as np

from accredit.data.chance import prf
from accredit.errors import ParamError
from accredit.index import Index, fork_parents, step_entropy
from accredit.planners.growing import Rule
from accredit.typing import Floats, Ints

__all__ = [
    "SELECTORS",
    "Selector",
    "belief_forks",
    "bsv",
    "candidates",
    "chosen",
    "fork_report",
    "lens_shift",
    "midpoint",
    "probe_js",
]

Belief: TypeAlias = Mapping[str, float]
Selector: TypeAlias = Literal["probe_js", "lens_shift", "midpoint", "entropy", "uniform", "random", "oracle"]
SELECTORS = ("probe_js", "lens_shift", "midpoint", "entropy", "uniform", "random", "oracle")
_STILL = 1e-12


def probe_js(before: Belief, after: Belief) -> float:
    """Return the Jensen-Shannon divergence of two beliefs about the first token of the answer, nats.

    The support is what either side names; what one side lacks gets half of that side's smallest
    probability, then both are normalised.  ``JS = KL(p||m)/2 + KL(q||m)/2``, m the mean.

    Args:
        before: probability of each of the likeliest answers, above 0.
        after: the same, one boundary later.

    Returns:
        In [0, log 2]; 0 iff both are the same distribution.

    Source: arXiv 2609.11061, PROBE-JS.

    Example:
        >>> round(probe_js({"4": 0.55, "7": 0.35, "9": 0.1}, {"7": 0.9, "4": 0.08, "3": 0.02}), 5)
        0.18063
    """
    names = sorted({*before, *after})
    p, q = (_padded(side, names) for side in (before, after))
    m = (p + q) / 2
    found = float(p @ np.log(p / m) + q @ np.log(q / m)) / 2
    return min(max(found, 0.0), float(np.log(2)))


def _padded(side: Belief, names: Sequence[str]) -> Floats:
    held = [float(p) for p in side.values()]
    if not held or not min(held) > 0 or not np.isfinite(held).all():
        raise ParamError(
            f"a belief gives answers probabilities above 0, got {dict(side)!r:.80}",
            hint="Leave answers of probability 0 out",
        )
    raw = np.array([side.get(name, min(held) / 2) for name in names], np.float64)
    found: Floats = raw / raw.sum()
    return found


def lens_shift(
    before_L: Floats,
    after_L: Floats,
    form: Literal["shape", "height", "depth"] = "shape",
    *,
    eps: float = 0.1,
) -> float:
    """Return how the log-probability of the final answer, read at each layer, moved over a step.

    ``shape``: ``||b' - b||_2``; ``height``: absolute mean difference over the deeper half of the
    layers; ``depth``: ``|l' - l|``, l the first layer with ``|b(l) - b(last)| <= eps (max - min)``.

    Args:
        before_L: ``sum_i log p(a_i)`` by the logit lens at each layer ``[L]``, nats.
        after_L: the same, one boundary later.
        form: of the score.
        eps: share of the range, for ``depth``.

    Source: arXiv 2609.11061, LENS-SHIFT.

    Example:
        >>> lens_shift(np.array([-3.0, -3.0]), np.array([-3.0, -1.0])), lens_shift(
        ...     np.array([-3.0, -3.0]), np.array([-3.0, -1.0]), "depth")
        (2.0, 1.0)
    """
    if before_L.shape != after_L.shape or before_L.ndim != 1 or not before_L.size:
        raise ParamError(f"one number a layer, got shapes {before_L.shape} and {after_L.shape}")
    apart = after_L - before_L
    if form == "shape":
        return float(np.linalg.norm(apart))
    if form == "height":
        return float(abs(apart[apart.size // 2 :].mean()))
    return float(abs(_settled(after_L, eps) - _settled(before_L, eps)))


def _settled(values_L: Floats, eps: float) -> int:
    near = np.abs(values_L - values_L[-1]) <= eps * np.ptp(values_L)
    return int(np.flatnonzero(near)[0])


def bsv(surge_KL: Floats, steady_KL: Floats, drop_KL: Floats, hidden_L: Floats) -> float:
    """Return the belief-shift vector's score of a boundary: ``<u_-, h>`` at the layer that tells best.

    u of a regime is the mean over its examples of (mean hidden state of 16 tokens after the cut minus
    that of 16 before); ``u_+ = u_surge - u_steady``, ``u_- = u_drop - u_steady``; the layer has the
    smallest ``cos(u_+, u_-)``.  It is off-policy as soon as the policy moves.

    Args:
        surge_KL: differences of hidden states where success became likelier ``[K, L, d]``.
        steady_KL: where nothing moved ``[K, L, d]``.
        drop_KL: where it became less likely ``[K, L, d]``.
        hidden_L: hidden state at the boundary ``[L, d]``.

    Source: arXiv 2609.11061, BSV.

    Example:
        >>> up, none = np.array([[[1.0, 0.0]]]), np.zeros((1, 1, 2))
        >>> bsv(up, none, -up, np.array([[-2.0, 5.0]]))
        2.0
    """
    steady = steady_KL.mean(0)
    up, down = surge_KL.mean(0) - steady, drop_KL.mean(0) - steady
    size = np.linalg.norm(up, axis=-1) * np.linalg.norm(down, axis=-1)
    cosine = np.divide((up * down).sum(-1), size, out=np.ones(size.shape), where=size > 0)
    layer = int(cosine.argmin())
    return float(down[layer] @ hidden_L[layer])


def candidates(n: int, cap: int = 16) -> list[int]:
    """Return the candidate boundaries of a rollout with n boundaries after its start, 1 .. n.

    More than ``cap``: numbers ``floor(1 + i (n - 1) / (cap - 1) + 1/2)``, i = 0 .. cap-1.

    Args:
        n: steps of the rollout less one.
        cap: most candidates, at least 2.

    Example:
        >>> candidates(3), candidates(31)[:4], len(candidates(31))
        ([1, 2, 3], [1, 3, 5, 7], 16)
    """
    if n <= cap:
        return list(range(1, n + 1))
    return [int(np.floor(1 + i * (n - 1) / (cap - 1) + 0.5)) for i in range(cap)]


def midpoint(marks: Sequence[int]) -> int:
    """Return the middle candidate, number ceil(C / 2); boundary 0 where there is none.

    Args:
        marks: the candidates.
    """
    return marks[(len(marks) + 1) // 2 - 1] if marks else 0


def chosen(scores: Sequence[float | None], marks: Sequence[int]) -> tuple[int, bool]:
    """Return the boundary to fork at, and whether scores decided it.

    ``argmax`` of the scores, the earliest in a tie; a missing score is left out.  One candidate is
    taken as it is.  Without scores, or where all are below 1e-12, it is the midpoint.

    Args:
        scores: s_0 .. s_{C-1}: of the start and of all candidates but the last.
        marks: the C candidates.

    Example:
        >>> chosen([0.00151, 0.18063, 0.00212], [1, 2, 3]), chosen([0.0, None, 0.0], [1, 2, 3])
        ((1, True), (2, False))
    """
    if len(marks) < 2:
        return midpoint(marks), False
    known = [(float(s), -j) for j, s in enumerate(scores) if s is not None]
    if not known or max(known)[0] < _STILL:
        return midpoint(marks), False
    return (0, *marks)[-max(known)[1]], True


def belief_forks(selector: Selector = "probe_js", *, cap: int = 16, seed: int = 0) -> Rule:
    """Return the rule that forks each rollout once, at the boundary that the selector takes.

    ``probe_js`` reads the step field `belief`, an object of answers and their probabilities before the
    step; ``lens_shift`` reads `answer_lens`, a number a layer (form ``shape``); ``oracle`` the largest
    change of `value`; ``entropy`` the step of the largest entropy (see `accredit.index.step_entropy`);
    ``midpoint`` the middle candidate; ``uniform`` candidates evenly spread over the rollouts of a task;
    ``random`` any.  A branch is not forked again.

    Args:
        selector: one of `SELECTORS`.
        cap: most candidates of a rollout.
        seed: of ``random``.

    Source: arXiv 2609.11061.
    """
    if selector not in SELECTORS:
        raise ParamError(f"selector must be one of {', '.join(SELECTORS)}; got {selector!r}")

    def rule(index: Index, turn: int) -> Ints:
        chains = np.flatnonzero((fork_parents(index) < 0) & (index.steps_R > 0))
        rank = {r: i for g in range(index.n_groups) for i, r in enumerate(_of_group(index, chains, g))}
        size = np.bincount(index.group_R[chains], minlength=index.n_groups)
        found = []
        for r in chains.tolist():
            marks = candidates(int(index.steps_R[r]) - 1, cap)
            if selector in ("uniform", "random"):
                share = (rank[r] + 0.5) / size[index.group_R[r]]
                if selector == "random":
                    share = prf(seed, index.batch.ids[r]) / 2.0**64
                at = (0, *marks)[int(share * max(len(marks), 1))]
            elif selector == "midpoint":
                at = midpoint(marks)
            else:
                at = chosen(_scores(index, r, (0, *marks), selector), marks)[0]
            found.append(int(index.batch.step_start_R1[r]) + at)
        return np.array(found, np.int64)

    return rule


def _of_group(index: Index, chains: Ints, g: int) -> list[int]:
    found: list[int] = chains[index.group_R[chains] == g].tolist()
    return found


def _scores(index: Index, r: int, marks: Sequence[int], selector: str) -> list[float | None]:
    """Return the score of each boundary but the last."""
    first = int(index.batch.step_start_R1[r])
    if selector == "entropy":
        steps = step_entropy(index)[0][first : first + int(index.steps_R[r])]
        return [float(steps[a:b].mean()) for a, b in pairwise(marks)]
    name = {"probe_js": "belief_S", "lens_shift": "answer_lens_S", "oracle": "value_S"}[selector]
    column = index.batch.columns.get(name)
    if column is None:
        return [None] * (len(marks) - 1)
    there, values = column.mask(index.batch.n_steps), column.decoded()
    said = [values[first + j] if there[first + j] else None for j in marks]
    shift = _SHIFTS[selector]
    return [None if a is None or b is None else shift(a, b) for a, b in pairwise(said)]


_SHIFTS: Mapping[str, Callable[[Any, Any], float]] = {
    "probe_js": probe_js,
    "lens_shift": lens_shift,
    "oracle": lambda a, b: abs(float(b) - float(a)),
}


def fork_report(scores: Sequence[float], values: Sequence[float], budget: int) -> tuple[float, float] | None:
    """Return how far a curve of values lies from lines through the top boundaries, and the least there is.

    The ``budget`` boundaries of the highest score are kept, the first in a tie, and the two ends; error
    = ``sum |V - line|``.  The least error over all choices of so many boundaries is found by dynamic
    programming; a good selector's error is near it.

    Args:
        scores: of boundaries 1 .. n-2; higher = kept first.
        values: V at boundaries 0 .. n-1.
        budget: boundaries kept besides the ends.

    Returns:
        (error, least error); None for a flat curve, on which nothing can be told.

    Raises:
        ParamError: if there is not one score an inner boundary.

    Source: arXiv 2609.11061; that the ends are always kept is ours.

    Example:
        >>> fork_report([0.9, 0.1, 0.1], [0.5, 1.0, 1.0, 1.0, 1.0], 1)
        (0.0, 0.0)
    """
    curve = np.asarray(values, np.float64)
    if len(scores) != max(curve.size - 2, 0) or budget < 0:
        raise ParamError(f"{len(scores)} scores for {curve.size} values; give one an inner boundary")
    if curve.size < 3 or np.ptp(curve) < _STILL:
        return None
    order = sorted(range(1, curve.size - 1), key=lambda j: (-scores[j - 1], j))
    kept = sorted([0, curve.size - 1, *order[:budget]])
    apart = _errors(curve)
    error = float(sum(apart[a, b] for a, b in pairwise(kept)))
    return error, _least(apart, budget)


def _errors(curve: Floats) -> Floats:
    """Return the error of one line from boundary a to boundary b ``[n, n]``."""
    n = curve.size
    found = np.full((n, n), np.inf)
    for a in range(n):
        for b in range(a + 1, n):
            line = np.interp(np.arange(a, b + 1), [a, b], [curve[a], curve[b]])
            found[a, b] = np.abs(curve[a : b + 1] - line).sum()
    return found


def _least(apart: Floats, budget: int) -> float:
    """Return the least error of a path from the first to the last boundary over ``budget`` others."""
    best = apart[0].copy()
    for _ in range(budget):
        best = np.minimum(best, (best[:, None] + apart).min(0))
    return float(best[-1])
