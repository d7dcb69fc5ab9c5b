"""What the true value of recorded steps costs: continuations from the state, and after the action taken."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from accredit.data import Batch
from accredit.errors import DataError, ParamError
from accredit.planners.asking import Answer, Place, Request
from accredit.typing import Floats, Ints

__all__ = ["Estimates", "TruthPlanner", "continuations_for", "nexts_of", "places_of"]

_NORMAL = 1.959964  # two-sided 95 %


def continuations_for(half_width: float, variance: float = 0.25) -> int:
    """Return how many continuations a side give A an interval of this half width (95 %).

    ``K >= z^2 (v_pre + v_post) / e^2`` with both variances equal; for outcomes of 0 and 1 they are at
    most 1/4.

    Args:
        half_width: e, in reward units, above 0.
        variance: of one continuation's reward.

    Raises:
        ParamError: for a half width that is not above 0, or a variance below 0.

    Example:
        >>> continuations_for(0.1), continuations_for(0.05)
        (193, 769)
    """
    if not half_width > 0 or not variance >= 0:
        raise ParamError(f"half width must be > 0 and variance >= 0, got {half_width!r} and {variance!r}")
    return int(np.ceil(_NORMAL**2 * 2 * variance / half_width**2))


def places_of(batch: Batch, steps: Sequence[int] | Ints, *, markov: bool) -> list[Place]:
    """Return the place before each of some steps, from the episode's start that its rollout had.

    Args:
        batch: rollouts whose steps carry every action; `start` is the seed of the episode's start where
            that is not 0.
        steps: step numbers of the batch.
        markov: what comes depends on the state and the steps left alone, so that equal states of a
            group at the same step are one place; else only equal paths from one start are.

    Raises:
        DataError: if an action, or under ``markov`` a state, is missing.
    """
    rollout_S = np.repeat(np.arange(len(batch)), np.diff(batch.step_start_R1))
    action, state = batch.columns.get("action_S"), batch.columns.get("state_S")
    if action is None or not action.mask(batch.n_steps).all():
        raise DataError(
            "some step has no action, so that its rollout cannot be played again",
            code="ACC401",
            hint="Give `action` in every step",
        )
    if markov and (state is None or not state.mask(batch.n_steps).all()):
        raise DataError("some step has no state", code="ACC401", hint="Without states: markov=False")
    words = action.decoded()
    shown = None if state is None else state.decoded()
    known = None if state is None else state.mask(batch.n_steps)
    starts = _starts(batch)
    found = []
    for s in np.asarray(steps, np.int64).tolist():
        r = int(rollout_S[s])
        first = int(batch.step_start_R1[r])
        path = tuple(str(a) for a in words[first:s])
        here = str(shown[s]) if shown is not None and known is not None and known[s] else ""
        begun = f"{s - first} from start {starts[r]}" if starts[r] and not markov else str(s - first)
        key = "\n".join((begun, here) if markov else (begun, *path))
        group = str(batch.group_names[int(batch.group_R[r])])
        found.append(Place(group, key, path, starts[r], here, batch.ids[r], s - first))
    return found


def _starts(batch: Batch) -> list[int]:
    """Return the seed of each rollout's start; 0 where it does not say."""
    column = batch.columns.get("start_R")
    if column is None:
        return [0] * len(batch)
    found: list[int] = np.where(column.mask(len(batch)), column.values, 0).astype(np.int64).tolist()
    return found


def nexts_of(batch: Batch, steps: Sequence[int] | Ints) -> list[tuple[str, str] | None]:
    """Return the action of each of some steps and the state recorded after it; None = not recorded.

    Args:
        batch: the rollouts.
        steps: step numbers.
    """
    action, state = batch.columns.get("action_S"), batch.columns.get("state_S")
    if action is None or state is None:
        return [None] * len(steps)
    inner = np.zeros(batch.n_steps + 1, bool)
    inner[batch.step_start_R1] = True  # where a rollout begins, the step before it was another's last
    known = np.append(state.mask(batch.n_steps), False) & ~inner
    return [
        (str(action.item(s)), str(state.item(s + 1))) if known[s + 1] else None
        for s in np.asarray(steps, np.int64).tolist()
    ]


@dataclass(frozen=True, slots=True, eq=False)
class Estimates:
    """Monte-Carlo values of some steps.

    Args:
        steps: step numbers ``[n]``.
        value: mean reward from the state before each ``[n]``.
        q: mean reward after the action taken, its own reward included ``[n]``.
        se_value: standard error of ``value`` ``[n]``.
        se_q: of ``q`` ``[n]``.
        k: results behind value and q ``[n, 2]``.
        halves: A by the even and by the odd continuations ``[2, n]``.
    """

    steps: Ints
    value: Floats
    q: Floats
    se_value: Floats
    se_q: Floats
    k: Ints
    halves: Floats

    @property
    def advantage(self) -> Floats:
        """A = q - value ``[n]``."""
        return self.q - self.value

    @property
    def se(self) -> Floats:
        """Standard error of A ``[n]``."""
        return np.hypot(self.se_value, self.se_q)

    @property
    def reliability(self) -> float | None:
        """Share of the variance of A over the steps that is no noise; None where nothing spreads.

        Correlation of the two halves, stepped up to the whole (Spearman-Brown); at least 0.
        """
        a, b = self.halves
        if a.size < 3 or np.ptp(a) == 0 or np.ptp(b) == 0:
            return None
        r = max(float(np.corrcoef(a, b)[0, 1]), 0.0)
        return 2 * r / (1 + r)

    @property
    def ceiling(self) -> float | None:
        """Largest correlation that even the true A would have with these estimates."""
        return None if self.reliability is None else float(np.sqrt(self.reliability))

    def verdict(self) -> str:
        """Return whether these numbers may be called truth, in one sentence."""
        if self.ceiling is None:
            return "The estimates do not spread: nothing can be compared with them."
        spread, error = float(self.advantage.std()), float(np.sqrt(np.mean(self.se**2)))
        told = (
            f"error of A {error:.3f}, its spread {spread:.3f}, ceiling of any correlation {self.ceiling:.2f}"
        )
        if self.ceiling < 0.95:
            need = continuations_for(max(spread, 1e-3) / 3)
            return f"Not truth: {told}. About {need} continuations a side would do."
        return f"Good enough to compare with: {told}."


class TruthPlanner:
    """Asks for V of the state before each step, and for Q of the action that was taken there.

    The number of continuations is fixed before any is seen, and their chance is shared with nothing
    else: means are unbiased, and errors of V and Q independent.

    Args:
        batch: rollouts whose steps carry every action.
        steps: step numbers to look at.
        k: continuations a side.
        markov: see `places_of`.
        horizon: steps of an episode; None = what the world says.
        policy: name of the policy that goes on.
    """

    def __init__(
        self,
        batch: Batch,
        steps: Sequence[int] | Ints,
        k: int,
        *,
        markov: bool,
        horizon: int | None = None,
        policy: str = "actor",
    ) -> None:
        if k < 2:
            raise ParamError(f"k must be at least 2, got {k!r}")
        self._steps = np.asarray(steps, np.int64)
        self._asked = False
        self._answers: tuple[Answer, ...] = ()
        self._requests: list[Request] = []
        for s, place in zip(self._steps.tolist(), places_of(batch, self._steps, markov=markov), strict=True):
            left = None if horizon is None else max(horizon - place.step, 0)
            for forced in ((), (str(batch.column("action_S").item(s)),)):
                arm = "q" if forced else "v"
                self._requests.append(
                    Request(place, k, policy, forced, f"truth {arm}", max_steps=left, purpose="truth")
                )

    def ask(self) -> Sequence[Request]:
        """Return all requests at once."""
        if self._asked:
            return ()
        self._asked = True
        return self._requests

    def tell(self, answers: Sequence[Answer]) -> None:
        """Take the answers."""
        self._answers = tuple(answers)

    def estimates(self) -> Estimates:
        """Return what was learnt; steps of which a side has fewer than two results are left out."""
        pairs = list(zip(self._answers[::2], self._answers[1::2], strict=True))
        kept = [i for i, (v, q) in enumerate(pairs) if v.k > 1 and q.k > 1]
        rows = [pairs[i] for i in kept]
        halves = [[q.rewards[h::2].mean() - v.rewards[h::2].mean() for v, q in rows] for h in (0, 1)]
        return Estimates(
            self._steps[kept],
            np.array([v.mean for v, _ in rows], np.float64),
            np.array([q.mean for _, q in rows], np.float64),
            np.array([v.se for v, _ in rows], np.float64),
            np.array([q.se for _, q in rows], np.float64),
            np.array([[v.k, q.k] for v, q in rows], np.int64).reshape(len(rows), 2),
            np.array(halves, np.float64).reshape(2, len(rows)),
        )
