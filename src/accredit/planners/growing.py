"""Growing trees of rollouts: rules that say where to fork, and a planner that goes on from there."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeAlias

import numpy as np

from accredit.data import Batch
from accredit.errors import ParamError
from accredit.index import Forks, Index, fork_parents, fork_step_R, owner_S, root_R, step_entropy
from accredit.planners.asking import Answer, Place, Request
from accredit.planners.branching import with_branches
from accredit.planners.truth import places_of
from accredit.typing import BoolArray, Floats, Ints

__all__ = ["Grower", "Rule", "entropy_beam", "eptree", "places_before", "random_nodes"]

Rule: TypeAlias = Callable[[Index, int], Ints]
"""From the rollouts there are and the number of the round: the steps to fork before, in order."""


class Grower:
    """Forks rollouts where a rule says, round by round; what comes back are rollouts that may be forked.

    Args:
        batch: the first rollouts; every step has its action, and `start` is the seed of the episode's
            start where that is not 0.
        rule: where to fork.
        rounds: how often the rule is asked.
        k: continuations a fork.
        policy: name of the policy that goes on.
        max_steps: of each continuation.

    Attributes:
        batch: the rollouts and all their branches.
        counts: how many continuations ended in which way.

    Example:
        >>> records = [{"id": "a", "group": "g", "reward": 1, "steps": [{"action": "x"}, {"action": "y"}]}]
        >>> asked = Grower(Batch.from_records(records), random_nodes(1), rounds=1).ask()
        >>> [(request.place.rollout, request.arm) for request in asked]
        [('a', 'round 0')]
    """

    def __init__(
        self,
        batch: Batch,
        rule: Rule,
        *,
        rounds: int = 1,
        k: int = 1,
        policy: str = "actor",
        max_steps: int | None = None,
    ) -> None:
        if rounds < 0 or k < 1:
            raise ParamError(f"rounds must be >= 0 and k >= 1, got {rounds} and {k}")
        self.batch, self.counts = batch, Counter[str]()
        self._rule, self._rounds, self._k = rule, rounds, k
        self._policy, self._max_steps, self._round = policy, max_steps, 0

    def ask(self) -> Sequence[Request]:
        """Return the continuations of the next round; nothing after the last."""
        while self._round < self._rounds:
            index = Index(self.batch)
            arm = f"round {self._round}"
            places = places_before(index, self._rule(index, self._round))
            self._round += 1
            if places:
                return [
                    Request(
                        place,
                        self._k,
                        self._policy,
                        arm=arm,
                        max_steps=self._max_steps,
                        shared=False,
                        record=True,
                        purpose="tree",
                    )
                    for place in places
                ]
        return ()

    def tell(self, answers: Sequence[Answer]) -> None:
        """Add what came back to the rollouts."""
        self.batch = with_branches(self.batch, answers)
        for answer in answers:
            self.counts.update(answer.counts())


def places_before(index: Index, steps: Ints) -> list[Place]:
    """Return the places before some steps, in their order, from the episode's start that they had.

    Args:
        index: of rollouts whose steps carry every action; `start` is the seed of the episode's start.
        steps: step numbers.

    Raises:
        DataError: if an action is missing.
    """
    found = places_of(index.batch, steps, markov=False) if steps.size else []
    return [replace(p, key=f"{p.key}\nstart {p.start}") if p.start else p for p in found]


# -- rules ----------------------------------------------------------------------------------------


def eptree(tokens: int = 2, stop: tuple[str, ...] = ("answer", "conclusion")) -> Rule:
    """Return TreeRL's rule: fork where the sampled token was least likely, in each tree.

    A tree is an initial chain and all that forked from it.  Of its steps those with the least likely
    tokens are taken (for a step without token log-probabilities its `node_entropy` stands for one
    token).  Left out are the first step of a branch, steps that were forked before, and what comes
    after a step whose action or text has a word of ``stop``.

    Args:
        tokens: forks a tree and round (N; with M chains and T rounds ``M (1 + T N)`` leaves).
        stop: words after which nothing is forked, in lower case.

    Source: arXiv 2506.11902, THUDM/TreeRL ``parallel_mcts.py``; first steps that were forked before
    are left out by us.
    """

    def rule(index: Index, turn: int) -> Ints:
        free = _own(index) & ~_begins_a_branch(index) & ~_forked(index) & ~_after(index, stop)
        return _best(-_least_logprob(index), root_R(index)[index.rollout_S], free, tokens)

    return rule


def random_nodes(per_tree: int = 2, seed: int = 0) -> Rule:
    """Return Tree-GRPO's rule: fork random nodes of each tree that have children, each at most once a round.

    Args:
        per_tree: nodes a tree and round.
        seed: of the draw.

    Source: arXiv 2509.21240.
    """

    def rule(index: Index, turn: int) -> Ints:
        forks = Forks(index, "links")
        tree = root_R(index)[index.rollout_S]
        node = tree * forks.n_nodes + forks.parent_N[forks.node_S]
        first = np.unique(node, return_index=True)[1]
        free = np.zeros(tree.size, bool)
        free[first] = True
        rng = np.random.default_rng(np.random.SeedSequence([seed, turn]))
        return _best(rng.random(tree.size), tree, free, per_tree)

    return rule


def entropy_beam(beam: int = 6, penalty: float = 0.05) -> Rule:
    """Return AT2PO's rule: try the most uncertain turns of each task again.

    A turn scores its entropy (see `accredit.index.step_entropy`) minus ``penalty`` for each sibling
    beyond the first.

    Args:
        beam: turns a task and round.
        penalty: nats.

    Source: zzfoutofspace/ATPO ``vllm_rollout_with_tools_tree_offline.py``.
    """

    def rule(index: Index, turn: int) -> Ints:
        forks = Forks(index, "links")
        children = np.bincount(forks.parent_N[forks.parent_N >= 0], minlength=forks.n_nodes)
        siblings = children[forks.parent_N[forks.node_S]] - 1
        score = step_entropy(index)[0] - penalty * np.maximum(siblings - 1, 0)
        return _best(score, index.group_S, _own(index), beam)

    return rule


def _best(score_S: Floats, within_S: Ints, free_S: BoolArray, n: int) -> Ints:
    """Return the n free steps of the highest score of each set, earlier ones first in a tie."""
    steps = np.flatnonzero(free_S)
    order = steps[np.lexsort((steps, -score_S[steps], within_S[steps]))]
    begins = np.searchsorted(within_S[order], within_S[order], side="left")
    return np.sort(order[np.arange(order.size) - begins < n])


def _own(index: Index) -> BoolArray:
    """Return the steps that are no copies of a parent's."""
    found: BoolArray = owner_S(index) == np.arange(index.batch.n_steps)
    return found


def _begins_a_branch(index: Index) -> BoolArray:
    first = fork_step_R(index, fork_parents(index))
    found: BoolArray = index.position_S == first[index.rollout_S]
    return found


def _forked(index: Index) -> BoolArray:
    """Return the steps before which some branch left."""
    parent = fork_parents(index)
    branch = np.flatnonzero(parent >= 0)
    at = index.batch.step_start_R1[parent[branch]] + fork_step_R(index, parent)[branch]
    at = at[at < index.batch.step_start_R1[parent[branch] + 1]]
    found = np.zeros(index.batch.n_steps, bool)
    found[owner_S(index)[at]] = True
    return found


def _after(index: Index, stop: tuple[str, ...]) -> BoolArray:
    """Return the steps after one whose action or text has one of the words."""
    said = np.zeros(index.batch.n_steps, bool)
    for name in ("action_S", "text_S"):
        column = index.batch.columns.get(name)
        if column is not None and column.words:
            has = np.array([any(word in str(w).lower() for word in stop) for w in column.words])
            said |= has[column.values] & column.mask(said.size)
    before = np.cumsum(said) - said
    first = before[index.batch.step_start_R1[:-1][index.rollout_S]]
    found: BoolArray = before > first
    return found


def _least_logprob(index: Index) -> Floats:
    """Return the log-probability of each step's least likely token; minus its entropy without tokens."""
    found = -step_entropy(index)[0]
    if index.batch.has("logprob_T"):
        logprobs = np.asarray(index.batch.logprob_T, np.float64)
        told = index.batch.column("logprob_T").mask(found.size) & (index.tokens_S > 0)
        found[told] = np.inf
        np.minimum.at(found, index.step_T[told[index.step_T]], logprobs[told[index.step_T]])
    return found
