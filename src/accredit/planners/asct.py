"""ASCT's plan: a search tree at every state that the actor visited, grown trial by trial.

Source: arXiv 2609.35215; the rules UCT and AgentUCT are those of arXiv 2607.24162.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from accredit.data import Batch, Finding
from accredit.data.chance import prf
from accredit.errors import ParamError, suggest
from accredit.planners.asking import Answer, Outcome, Place, Request
from accredit.planners.truth import places_of
from accredit.typing import Floats

__all__ = ["RULES", "AsctPlanner", "Spent", "Work", "uct_scores"]

RULES = ("uniform", "uct", "agent_uct", "actor_rollout")


def uct_scores(
    mean: Floats, n: Floats, visits: float, c_exp: float = 1.4, c_tok: float = 0.0, work: Floats | float = 0.0
) -> Floats:
    """Return ``mean + c_exp sqrt(log(n(v) + 1) / n(v, a)) - c_tok T(v, a)`` of each action ``[A]``.

    Args:
        mean: utility of the trials through each action ``[A]``.
        n: their number ``[A]``, at least 1.
        visits: trials through the node.
        c_exp: weight of what is little known.
        c_tok: utility of a unit of work.
        work: work still expected after each action ``[A]``.

    Example:
        >>> found = uct_scores(np.array([0.52, 0.61, 0.40]), np.array([4, 5, 3]), 12)
        >>> found.round(4).tolist()
        [1.6411, 1.6127, 1.6945]
    """
    found: Floats = mean + c_exp * np.sqrt(np.log(visits + 1) / n) - c_tok * np.asarray(work)
    return found


class Work:
    """Running means of the work that followed an action at a stage of the episode; 0 where unknown."""

    def __init__(self) -> None:
        self._total: dict[tuple[int, str], float] = {}
        self._n: Counter[tuple[int, str]] = Counter()

    def add(self, stage: int, action: str, work: float) -> None:
        """Take what one trial spent after an action.

        Args:
            stage: steps since the episode began.
            action: taken there.
            work: tokens, or steps where no tokens are generated; what was cached is none.
        """
        self._n[stage, action] += 1
        self._total[stage, action] = self._total.get((stage, action), 0.0) + work

    def expected(self, stage: int, actions: Sequence[str]) -> Floats:
        """Return the mean work after each action ``[A]``."""
        return np.array([self._total.get((stage, a), 0.0) / max(self._n[stage, a], 1) for a in actions])

    def weights(self, stage: int, actions: Sequence[str], c_tok: float) -> Floats:
        """Return chances proportional to ``exp(-c_tok T)`` ``[A]``: cheap actions are drawn more often."""
        expected = c_tok * self.expected(stage, actions)
        weight = np.exp(expected.min(initial=0.0) - expected)
        found: Floats = weight / weight.sum()
        return found


@dataclass(slots=True)
class _Node:
    """An executed prefix: trials through it, their utility, what can be done next."""

    options: tuple[str, ...] | None = None
    over: bool = False
    n: int = 0
    total: float = 0.0


@dataclass(slots=True)
class _Tree:
    """The tree of one visited state."""

    place: Place
    probs: Mapping[str, float]
    budget: int
    rng: np.random.Generator
    nodes: dict[tuple[str, ...], _Node] = field(default_factory=dict)
    trials: list[tuple[str, float]] = field(default_factory=list)
    tries: int = 0
    stopped: bool = False

    def child(self, prefix: tuple[str, ...], action: str) -> _Node:
        return self.nodes.setdefault((*prefix, action), _Node())

    def table(self) -> dict[str, dict[str, float | int | None]]:
        """Return n, mean, p and var of each legal action."""
        found: dict[str, dict[str, float | int | None]] = {}
        for action, p in self.probs.items():
            own = [u for a, u in self.trials if a == action]
            told: dict[str, float | int | None] = {
                "n": len(own),
                "mean": float(np.mean(own)) if own else None,
            }
            found[action] = told | {"p": p, "var": float(np.var(own, ddof=1)) if len(own) > 1 else None}
        return found


@dataclass(slots=True)
class Spent:
    """What the search cost, kept apart from credit.

    Args:
        trials: that counted, cached ends included.
        cached: of them, those that cost nothing.
        utility: sum over the trials.
        steps: environment steps.
        tokens: generated.
    """

    trials: int = 0
    cached: int = 0
    utility: float = 0.0
    steps: int = 0
    tokens: int = 0

    def search(self, beta: float = 1e-4) -> float:
        """Return J_search ``(sum U - beta tokens) / trials``; 0 without trials.

        Args:
            beta: utility of a token.
        """
        return (self.utility - beta * self.tokens) / self.trials if self.trials else 0.0

    def deployed(self, utility: float, uses: int, beta: float = 1e-4) -> float:
        """Return J_deploy ``U_test - beta tokens / N``.

        Args:
            utility: of the trained policy on new tasks.
            uses: N, how often it is used, at least 1.
            beta: utility of a token.
        """
        return utility - beta * self.tokens / uses


class AsctPlanner:
    """Searches every state that was visited, and writes the table that `asct` reads.

    A trial walks down the tree by the rule while every action of a node was tried, takes one that was
    not, and is completed by a policy of the engine; its utility is what was paid from the state on.
    Every action of the state itself is tried once before any is tried again.  Where a trial ends inside
    the tree its end is known, so that it counts and costs nothing.  Trials of different states share a
    round; what a state gets depends on it and ``seed`` alone.

    Args:
        batch: rollouts whose steps carry every action.
        probs: for each step of the batch the legal actions and the actor's chance of each.
        rule: ``uniform`` (the child least visited), ``uct``, ``agent_uct`` (likes cheap actions),
            ``actor_rollout`` (no tree: each action alike often, completed by the actor).
        budget: trials B a state; raised to the number of actions.
        steps: step numbers to search; None = all.
        completion: name of the policy that completes trials; None = ``uniform``, of ``actor_rollout``
            ``actor``.
        c_exp: weight of what is little known, of UCT.
        c_tok: utility of a unit of work, of AgentUCT.
        markov: see `places_of`; equal places are searched once.
        max_steps: of a trial; None = what the world has left.
        deterministic: the same actions always end alike, so that a known end needs no second look.
        seed: of the search.

    Attributes:
        work: what trials spent after each action; a policy that completes trials may weigh by it
            (``WeighedActor(lambda scene: planner.weights(scene.history, scene.actions))``).
        spent: what the search cost.
        findings: budgets that were raised.

    Raises:
        ParamError: for an unknown rule, a budget below 1, or not one mapping a step.
    """

    def __init__(
        self,
        batch: Batch,
        probs: Sequence[Mapping[str, float]],
        rule: str = "uniform",
        budget: int = 12,
        *,
        steps: Sequence[int] | None = None,
        completion: str | None = None,
        c_exp: float = 1.4,
        c_tok: float = 1e-4,
        markov: bool = False,
        max_steps: int | None = None,
        deterministic: bool = True,
        seed: int = 0,
    ) -> None:
        if rule not in RULES:
            raise ParamError(
                f"rule must be one of {', '.join(RULES)}; got {rule!r}", hint=suggest(rule, RULES)
            )
        if budget < 1 or len(probs) != batch.n_steps:
            raise ParamError(
                f"budget must be >= 1 and probs one mapping a step, got {budget} and {len(probs)} "
                f"for {batch.n_steps} steps"
            )
        self._batch, self._rule, self._budget, self._seed = batch, rule, budget, seed
        self._completion = completion or ("actor" if rule == "actor_rollout" else "uniform")
        self._c_exp, self._c_tok = c_exp, c_tok if rule == "agent_uct" else 0.0
        self._max_steps, self._deterministic = max_steps, deterministic
        self.work, self.spent, self.findings = Work(), Spent(), tuple[Finding, ...]()
        self._counts: Counter[str] = Counter()
        self._steps = list(range(batch.n_steps)) if steps is None else list(steps)
        places = places_of(batch, self._steps, markov=markov)
        self._keys = [(place.group, place.key) for place in places]
        self._trees: dict[tuple[str, str], _Tree] = {}
        for s, key, place in zip(self._steps, self._keys, places, strict=True):
            if key not in self._trees:
                self._trees[key] = self._planted(place, probs[s])
        self._note_raised()
        self._asked: list[tuple[_Tree, tuple[str, ...]]] = []

    def weights(self, history: Sequence[str], actions: Sequence[str]) -> Floats:
        """Return the chance of each action while a trial is completed ``[A]``.

        Args:
            history: actions since the episode began.
            actions: legal ones.
        """
        return self.work.weights(len(history), actions, self._c_tok)

    # -- asking -------------------------------------------------------------------------------------

    def ask(self) -> Sequence[Request]:
        """Return the next trial of every tree that has any left; of ``actor_rollout`` all at once."""
        self._asked = []
        open_trees = [tree for tree in self._trees.values() if tree.tries < tree.budget and not tree.stopped]
        if self._rule == "actor_rollout":
            return [request for tree in open_trees for request in self._balanced(tree)]
        found = []
        for tree in open_trees:
            prefix = self._next(tree)
            if prefix is not None:
                found.append(self._request(tree, prefix, 1, f"{self._rule} {tree.tries}"))
        return found

    def _balanced(self, tree: _Tree) -> list[Request]:
        """Return all trials of a state: each action alike often, the first in a random order once more."""
        order = tree.rng.permutation(list(tree.probs)).tolist()
        each, more = divmod(tree.budget, len(order))
        return [
            self._request(tree, (str(action),), each + (i < more), self._rule)
            for i, action in enumerate(order)
        ]

    def _request(self, tree: _Tree, prefix: tuple[str, ...], k: int, arm: str) -> Request:
        self._asked.append((tree, prefix))
        tree.tries += k
        return Request(
            tree.place,
            k,
            self._completion,
            prefix,
            f"{arm} of {self._seed}",
            max_steps=self._max_steps,
            record=True,
            purpose="asct",
        )

    def _next(self, tree: _Tree) -> tuple[str, ...] | None:
        """Return the prefix of the next trial that must be played; known ends are counted on the way."""
        while tree.tries < tree.budget:
            prefix = self._walked(tree)
            node = tree.nodes.get(prefix)
            if node is None or not node.over or not self._deterministic:
                return prefix
            tree.tries += 1
            self.spent.cached += 1
            self._back_up(tree, prefix, node.total / node.n)
        return None

    def _walked(self, tree: _Tree) -> tuple[str, ...]:
        """Return the prefix that the rule leads to: a new edge, or the end of an episode."""
        prefix: tuple[str, ...] = ()
        while True:
            node = tree.nodes[prefix]
            if node.over or not node.options:
                return prefix
            fresh = [a for a in node.options if (*prefix, a) not in tree.nodes]
            stage = tree.place.step + len(prefix)
            if fresh:
                chance = self.work.weights(stage, fresh, self._c_tok)
                return (*prefix, fresh[int(tree.rng.choice(len(fresh), p=chance))])
            prefix = (*prefix, self._selected(tree, prefix, node, stage))

    def _selected(self, tree: _Tree, prefix: tuple[str, ...], node: _Node, stage: int) -> str:
        assert node.options is not None  # the walk goes on from such nodes alone
        children = [tree.nodes[(*prefix, a)] for a in node.options]
        n = np.array([child.n for child in children], np.float64)
        if self._rule == "uniform":
            best = np.flatnonzero(n == n.min())
        else:
            mean = np.array([child.total / max(child.n, 1) for child in children])
            work = self.work.expected(stage, node.options)
            score = uct_scores(mean, np.maximum(n, 1e-9), float(n.sum()), self._c_exp, self._c_tok, work)
            best = np.flatnonzero(score == score.max())
        return node.options[int(best[tree.rng.integers(best.size)])]

    # -- being told ---------------------------------------------------------------------------------

    def tell(self, answers: Sequence[Answer]) -> None:
        """Take the outcomes of the trials that were asked last, in their order."""
        for (tree, prefix), answer in zip(self._asked, answers, strict=True):
            tree.stopped |= answer.partial
            self._counts.update(answer.counts())
            for outcome in answer.outcomes:
                if outcome.is_result:
                    self._learnt(tree, prefix, outcome)

    def _learnt(self, tree: _Tree, prefix: tuple[str, ...], outcome: Outcome) -> None:
        self.spent.steps += outcome.steps
        self.spent.tokens += outcome.tokens
        work = 0.0
        for depth in range(len(outcome.path) - 1, -1, -1):
            visit = outcome.path[depth]
            before = tuple(v.action for v in outcome.path[: depth + 1])
            known = before in tree.nodes and tree.nodes[before].n > 0
            work += 0.0 if known else visit.tokens or 1
            self.work.add(tree.place.step + depth, visit.action, work)
        node = tree.child(prefix[:-1], prefix[-1])
        if len(outcome.path) > len(prefix):
            node.options = outcome.path[len(prefix)].options
        else:
            node.over = True
        self._back_up(tree, prefix, outcome.reward or 0.0)

    def _back_up(self, tree: _Tree, prefix: tuple[str, ...], utility: float) -> None:
        self.spent.trials += 1
        self.spent.utility += utility
        tree.trials.append((prefix[0], utility))
        for depth in range(1, len(prefix) + 1):
            node = tree.nodes[prefix[:depth]]
            node.n += 1
            node.total += utility

    # -- the result ---------------------------------------------------------------------------------

    def filled(self) -> Batch:
        """Return the rollouts with `search` at the steps that were searched.

        Provenance says rule, budget, completion, seed, what it cost and how many trials ended in which way.
        """
        found = np.full(self._batch.n_steps, None)
        for s, key in zip(self._steps, self._keys, strict=True):
            found[s] = self._trees[key].table()
        made = {
            "by": "AsctPlanner",
            "rule": self._rule,
            "budget": self._budget,
            "completion": self._completion,
            "seed": self._seed,
            "trials": self.spent.trials,
            "cached": self.spent.cached,
            "statuses": dict(self._counts),
        }
        return self._batch.with_column("search", found, made)

    def _planted(self, place: Place, probs: Mapping[str, float]) -> _Tree:
        options = tuple(probs)
        rng = np.random.default_rng(prf(self._seed, "asct", place.group, place.key))
        budget = 0 if len(options) < 2 else max(self._budget, len(options))
        tree = _Tree(place, dict(probs), budget, rng)
        tree.nodes[()] = _Node(options)
        return tree

    def _note_raised(self) -> None:
        raised = sum(tree.budget > self._budget for tree in self._trees.values())
        if raised:
            message = f"{raised} states have more than {self._budget} legal actions: each is tried once"
            self.findings = (Finding("ACC523", "info", message, hint="Give a larger budget", count=raised),)
