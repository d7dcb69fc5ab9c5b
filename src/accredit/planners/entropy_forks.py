"""Forks of ARPO and AEPO: where the policy became unsure after a tool's answer.

A boundary is the place before step t >= 1 of a rollout; dH there is the entropy at the beginning of
step t minus that at the beginning of step 0.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np

from accredit.data import Batch
from accredit.data.chance import unit
from accredit.errors import ParamError
from accredit.index import Forks, Index, fork_parents, fork_step_R
from accredit.planners.asking import Answer, Place, Request
from accredit.planners.growing import Grower, Rule
from accredit.typing import Floats, Ints

__all__ = [
    "AEPO",
    "ARPO",
    "EntropyForks",
    "ForkLaw",
    "WindowForm",
    "entropy_forks",
    "global_share",
    "recorded_entropy",
    "streaks",
    "window_entropy",
]

WindowForm: TypeAlias = Literal["window_mean", "sum", "mean"]
Entropy: TypeAlias = Callable[[Index], Floats]
"""Normalised entropy at the beginning of each step ``[S]``; NaN where it is unknown."""


def window_entropy(
    top_logprobs: Sequence[Sequence[float]],
    *,
    vocabulary: int,
    window: int = 20,
    top: int = 10,
    form: WindowForm = "window_mean",
) -> float:
    """Return the entropy of the first tokens of a text, in units of that of a uniform choice.

    Of each token ``h = -sum p log p`` over the ``top`` largest probabilities, not renormalised.
    ``sum`` adds the first ``window`` tokens, ``mean`` takes their mean, ``window_mean`` is ``window``
    times the mean: the sum of a full window, and a short text is not taken for a sure one.

    Args:
        top_logprobs: log-probabilities of the likeliest next tokens at each token, nats.
        vocabulary: size of the vocabulary; the result is divided by its logarithm.
        window: tokens that count.
        top: probabilities of a token that count.
        form: how tokens are put together.

    Returns:
        0 for a text without tokens.

    Raises:
        ParamError: for a vocabulary below 2, or a window or top below 1.

    Source: dongguanting/ARPO ``vllm_rollout_with_tools.py`` ``_calc_entropy`` (``sum``).

    Example:
        >>> round(window_entropy([[-0.6931, -0.6931]], vocabulary=2, form="mean"), 3)
        1.0
    """
    if vocabulary < 2 or window < 1 or top < 1:
        raise ParamError(f"vocabulary must be >= 2, window and top >= 1; got {vocabulary}, {window}, {top}")
    logs = [np.sort(np.asarray(row, np.float64))[::-1][:top] for row in top_logprobs[:window]]
    if not logs:
        return 0.0
    total = -sum(float(np.exp(row) @ row) for row in logs) / float(np.log(vocabulary))
    scale = {"sum": 1.0, "mean": 1.0 / len(logs), "window_mean": window / len(logs)}[form]
    return float(total * scale)


def recorded_entropy(
    *, vocabulary: int, window: int = 20, top: int = 10, form: WindowForm = "window_mean"
) -> Entropy:
    """Return the entropy that the records tell: `top_logprobs`, else `node_entropy` of the step.

    Args:
        vocabulary: size of the vocabulary.
        window: tokens of a step that count.
        top: probabilities of a token that count.
        form: as of `window_entropy`; `node_entropy` is a mean over tokens and stands for a window.
    """

    def read(index: Index) -> Floats:
        found = np.full(index.batch.n_steps, np.nan)
        mean = index.batch.columns.get("node_entropy_S")
        if mean is not None:
            there = mean.mask(found.size)
            scale = 1.0 if form == "mean" else float(window)
            found[there] = scale * mean.values[there] / np.log(vocabulary)
        column = index.batch.columns.get("top_logprobs_S")
        if column is not None:
            values = column.decoded()
            for s in np.flatnonzero(column.mask(found.size)).tolist():
                found[s] = window_entropy(values[s], vocabulary=vocabulary, window=window, top=top, form=form)
        return found

    return read


@dataclass(frozen=True, slots=True)
class ForkLaw:
    """With what chance a boundary is forked.

    ``chance``: ``clip((base + weight dH) (1 - min(1, penalty l)), 0, 1)``, l the boundaries right before
    on the path that were forked.  ``threshold``: 1 where ``base + weight dH > threshold``, else
    0 (the paper's rule).  ``code``: ``clip(1 - base / (1 - penalty l) + weight dH, 0, 1)`` (AEPO's
    code, whose inequality is the other way round).

    Args:
        base: chance without a rise of entropy.
        weight: of the rise dH.
        penalty: of each boundary in a row that was forked; 0 = ARPO.
        form: ``chance``, ``threshold`` or ``code``.
        threshold: of the ``threshold`` form.

    Example:
        >>> round(ARPO.chance(0.15), 6), round(AEPO.chance(0.3, 2), 6)
        (0.53, 0.504)
    """

    base: float = 0.5
    weight: float = 0.2
    penalty: float = 0.0
    form: Literal["chance", "threshold", "code"] = "chance"
    threshold: float = 0.5

    def __post_init__(self) -> None:
        if not 0 <= self.base <= 1 or self.penalty < 0 or self.form not in ("chance", "threshold", "code"):
            raise ParamError(f"base is in [0, 1], penalty >= 0, form chance, threshold or code; got {self}")

    def chance(self, rise: float, streak: int = 0) -> float:
        """Return the chance of a fork.

        Args:
            rise: dH.
            streak: boundaries right before on this path that were forked.
        """
        kept = 1.0 - min(1.0, self.penalty * streak)
        if self.form == "code":
            raw = 1.0 - self.base / kept + self.weight * rise if kept > 0 else float(self.base == 0)
        else:
            raw = (self.base + self.weight * rise) * kept
        if self.form == "threshold":
            return float(raw > self.threshold)
        return min(1.0, max(0.0, raw))


ARPO = ForkLaw()
AEPO = ForkLaw(penalty=0.05)


def global_share(
    k: int, root_entropy: float, tool_entropy: float | None, *, beta: float = 0.5, code: bool = False
) -> int:
    """Return how many of k rollouts begin at the prompt; the rest are for branches (AEPO's pre-monitoring).

    ``m = k sigmoid(beta (H_root - H_tool))``, rounded and kept in 1 .. k; the authors' code takes the
    whole number above.

    Args:
        k: rollouts of a task.
        root_entropy: normalised entropy on the question, of one probing rollout.
        tool_entropy: mean of it after tool answers; None = no tool was called, then all are global.
        beta: weight.
        code: as the authors' code rounds.

    Example:
        >>> [global_share(16, d, 0.0, code=c) for d in (0.4, -1.2) for c in (False, True)]
        [9, 9, 6, 6]
    """
    if tool_entropy is None:
        return k
    share = k / (1.0 + float(np.exp(-beta * (root_entropy - tool_entropy))))
    return min(k, max(1, int(share) + 1 if code else int(np.floor(share + 0.5))))


def entropy_forks(
    entropy: Entropy, law: ForkLaw = ARPO, *, total: int = 16, copies: int = 1, seed: int = 0
) -> Rule:
    """Return the rule that forks the boundaries before step ``round + 1`` with the law's chance.

    Rollouts are visited in order while their task has fewer than ``total``; a branch is first visited
    at the boundary after the one at which it left.  The draw at a boundary follows from the seed,
    the rollout's id and the step.

    Args:
        entropy: at the beginning of each step; where it is unknown nothing is forked.
        law: chance of a fork.
        total: rollouts of a task (M).
        copies: continuations a fork (Z), as the planner asks.
        seed: of the draws.
    """

    def rule(index: Index, turn: int) -> Ints:
        t, batch = turn + 1, index.batch
        rise = entropy(index)
        streak = streaks(index)
        fresh = fork_step_R(index, fork_parents(index)) == t
        free = total - np.bincount(index.group_R, minlength=index.n_groups)
        found = []
        for r in np.flatnonzero((index.steps_R > t) & ~fresh).tolist():
            s, g = int(batch.step_start_R1[r]) + t, int(index.group_R[r])
            up = float(rise[s] - rise[s - t])
            if free[g] >= copies and unit(seed, batch.ids[r], t) < _known(law, up, int(streak[s])):
                found.append(s)
                free[g] -= copies
        return np.array(found, np.int64)

    return rule


def _known(law: ForkLaw, rise: float, streak: int) -> float:
    return 0.0 if np.isnan(rise) else law.chance(rise, streak)


def streaks(index: Index) -> Ints:
    """Return how many boundaries right before the one before each step were forked, on its path ``[S]``.

    Args:
        index: of branched rollouts.
    """
    forks = Forks(index, "links")
    children = np.bincount(forks.parent_N[forks.parent_N >= 0], minlength=forks.n_nodes)
    forked = (children[forks.parent_N[forks.node_S]] > 1) & (index.position_S > 0)
    found = np.zeros(forked.size, np.int64)
    for t in range(1, int(index.steps_R.max(initial=0))):
        steps = index.batch.step_start_R1[:-1][index.steps_R > t] + t
        found[steps] = np.where(forked[steps - 1], found[steps - 1] + 1, 0)
    return found


class EntropyForks:
    """Grows rollouts by entropy forks, boundary by boundary; then fills up from the prompt.

    Args:
        batch: the first rollouts (N a task); every step has its action.
        entropy: at the beginning of each step (see `recorded_entropy`).
        law: `ARPO` or `AEPO`.
        total: rollouts of a task (M).
        copies: continuations a fork (Z).
        horizon: last step before which something is forked.
        seed: of the draws.
        policy: name of the policy that goes on.
        fill: whether tasks short of M get fresh rollouts from their prompt.

    Attributes:
        batch: the rollouts and all their branches.
        counts: how many continuations ended in which way.
    """

    def __init__(
        self,
        batch: Batch,
        entropy: Entropy,
        law: ForkLaw = ARPO,
        *,
        total: int = 16,
        copies: int = 1,
        horizon: int = 64,
        seed: int = 0,
        policy: str = "actor",
        fill: bool = True,
    ) -> None:
        if total < 1 or copies < 1:
            raise ParamError(f"total and copies must be >= 1, got {total} and {copies}")
        rule = entropy_forks(entropy, law, total=total, copies=copies, seed=seed)
        self._grower = Grower(batch, rule, rounds=horizon, k=copies, policy=policy)
        self._total, self._policy, self._fill, self._filling = total, policy, fill, False

    @property
    def batch(self) -> Batch:
        """The rollouts and all their branches."""
        return self._grower.batch

    @property
    def counts(self) -> Mapping[str, int]:
        """How many continuations ended in which way."""
        return self._grower.counts

    def missing(self) -> dict[Any, int]:
        """Return how many rollouts each task is short of the total; those of none left out."""
        sizes = {group: len(part) for group, part in self.batch.groups()}
        return {group: self._total - n for group, n in sizes.items() if n < self._total}

    def ask(self) -> Sequence[Request]:
        """Return the forks of the next boundary, at the end fresh rollouts; nothing when done."""
        asked = () if self._filling else self._grower.ask()
        if asked or self._filling or not self._fill:
            return asked
        self._filling = True
        first: dict[Any, int] = {}
        for record in self.batch.records():
            first.setdefault(record["group"], int(record.get("start") or 0))
        return [
            Request(
                Place(str(group), "start", start=first[group]),
                n,
                self._policy,
                arm="fresh",
                record=True,
                purpose="fill",
            )
            for group, n in self.missing().items()
        ]

    def tell(self, answers: Sequence[Answer]) -> None:
        """Add what came back to the rollouts."""
        self._grower.tell(answers)
