"""What continuations buy on recorded rollouts whose worlds were explored, by method and budget."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, TypeVar

import numpy as np

from accredit.benchmark.informed import best_segments, largest_loss, rise_of_entropy
from accredit.data import Batch
from accredit.index import Index
from accredit.methods import get_method
from accredit.oracle import Explored, player_of, table_truth
from accredit.planners import Answer, Place, Planner, Request, with_branches
from accredit.planners.asct import AsctPlanner
from accredit.planners.cutting import SegmentValues, length_steps, spo_tree
from accredit.planners.entropy_forks import ARPO, EntropyForks
from accredit.planners.growing import Grower, Rule, entropy_beam, eptree, random_nodes
from accredit.planners.ibpo import IbpoPlanner, Reviser, nearest_repair
from accredit.planners.prover import Judge as Pointer
from accredit.planners.prover import ProverPlanner, random_segments
from accredit.planners.truth import places_of
from accredit.planners.vineppo import VinePlanner, listed
from accredit.signals.continuation import Alone, Engine
from accredit.typing import Ints
from accredit.worlds import Cost, StepTruth

__all__ = ["FREE", "OFFERS", "Bought", "Offer", "Shop"]

FREE = ("graft", "crbc", "gigpo", "grpo")  # what more rollouts are spent on, at the price of vineppo
_ROLLOUT = ("id", "group", "reward", "status", "final_state", "start")
_STEP = ("state", "action", "reward")
_SEGMENT = 4  # steps of a segment of SPO-tree: three of them are an episode of mean length
P = TypeVar("P", bound=Planner)


@dataclass(frozen=True, slots=True, eq=False)
class Bought:
    """Rollouts with what a method needs.

    Args:
        method: as `assign` is told.
        what: was bought, in words.
        batch: the recorded rollouts first, or others.
        cost: continuations and environment steps.
        others: whether the rollouts are not the recorded ones.
    """

    method: str
    what: str
    batch: Batch
    cost: Cost
    others: bool = False


class Shop:
    """Sells continuations of recorded rollouts, played by the policy of the tables.

    Args:
        batch: the rollouts; every step has its action and its state.
        explored: their worlds.
        seed: of all chance.

    Raises:
        DataError: if a rollout was not played in its table.
    """

    def __init__(self, batch: Batch, explored: Explored, seed: int = 0) -> None:
        self.batch, self.tables, self.seed = batch, explored.tables, seed
        self.index = Index(batch)
        self.truth: StepTruth = table_truth(batch, explored.tables)
        self.markov = all(table.memory == 0 for table in explored.tables.values())
        self._version = str(explored.about.get("policy", "tables"))
        self._vines: dict[int, tuple[Batch, Cost]] = {}

    @cached_property
    def groups(self) -> list[str]:
        """Games, in order."""
        return [str(name) for name in self.batch.group_names]

    @cached_property
    def chances(self) -> list[dict[str, float]]:
        """How likely the policy takes each action that is possible before each step ``[S]``."""
        return [self.tables[group].chances(node) for group, node in self.nodes]

    @cached_property
    def nodes(self) -> list[tuple[str, int]]:
        """Game and node before each step ``[S]``."""
        found: list[tuple[str, int]] = []
        actions = self.actions
        for r in range(len(self.batch)):
            group = self.groups[int(self.batch.group_R[r])]
            own = [actions[s] for s in self.batch.steps_of(r)]
            at, _ = self.tables[group].walk(own, [None] * len(own))
            found += [(group, n) for n in at.tolist()]
        return found

    @cached_property
    def actions(self) -> list[str]:
        """Action of each step ``[S]``."""
        return [str(a) for a in self.batch.column("action_S").decoded()]

    @cached_property
    def lean(self) -> Batch:
        """The rollouts without texts and tokens, as forks are: a step is one choice.

        Its entropy is minus the log-probability that it was drawn with.
        """
        told = iter(-np.log(row[a]) for row, a in zip(self.chances, self.actions, strict=True))
        found = []
        for record in self.batch.records():
            steps = [_only(step, _STEP) | {"node_entropy": float(next(told))} for step in record["steps"]]
            found.append(_only(record, _ROLLOUT) | {"steps": steps})
        return Batch.from_records(found)

    def drive(self, planner: P) -> tuple[P, Cost]:
        """Return a planner that was given all it asked for, and what that cost."""
        engine = self._engine()
        return engine.drive(planner), engine.ledger.physical

    def answers(self, requests: Sequence[Request]) -> tuple[list[Answer], Cost]:
        """Return the answers to requests, and what they cost."""
        engine = self._engine()
        return engine.run(requests), engine.ledger.physical

    def vine(self, k: int) -> tuple[Batch, Cost]:
        """Return the rollouts with k continuations from each state, and what they cost; bought once."""
        if k not in self._vines:
            planner, cost = self.drive(VinePlanner(self.batch, k, markov=self.markov))
            self._vines = {k: (planner.filled(), cost)}
        return self._vines[k]

    def _engine(self) -> Engine:
        return Engine(Alone(player_of(self.tables, self._version)), seed=self.seed)


def _only(record: Mapping[str, Any], names: Sequence[str]) -> dict[str, Any]:
    return {name: record[name] for name in names if name in record}


@dataclass(frozen=True, slots=True)
class Offer:
    """What some methods buy.

    Args:
        methods: ids.
        buy: from shop and budget K to what each method gets.
        most: largest K that it is bought at; None = any.
        once: bought once, whatever K.
    """

    methods: tuple[str, ...]
    buy: Callable[[Shop, int], Iterator[Bought]]
    most: int | None = None
    once: bool = False

    def budgets(self, asked: Sequence[int]) -> list[int]:
        """Return the K that it is bought at.

        Args:
            asked: in rising order.
        """
        return [0] if self.once else [k for k in asked if self.most is None or k <= self.most]

    def wanted(self, methods: Sequence[str] | None) -> bool:
        """Return whether one of its methods is wanted.

        Args:
            methods: as `assign` is told; None = all.
        """
        return methods is None or any(get_method(name)[0].card.id in self.methods for name in methods)


# -- values of states and actions -------------------------------------------------------------------


def _vine(shop: Shop, k: int) -> Iterator[Bought]:
    batch, cost = shop.vine(k)
    yield Bought("vineppo", f"{k} from each state", batch, cost)


def _chain(shop: Shop, k: int) -> Iterator[Bought]:
    planner, cost = shop.drive(SegmentValues(shop.batch, k))
    yield Bought("spo-chain", f"{k} at each cut point", planner.filled(), cost)


def _bucket(shop: Shop, k: int) -> Iterator[Bought]:
    """Each recorded action is an alternative in its state; equal ones at one step share continuations."""
    places = places_of(shop.batch, np.arange(shop.batch.n_steps), markov=shop.markov)
    keys = [(p.group, p.key, a) for p, a in zip(places, shop.actions, strict=True)]
    asked = {
        key: Request(p, k, forced=(key[2],), arm=f"after {key[2]}")
        for key, p in zip(keys, places, strict=True)
    }
    answers, cost = shop.answers(list(asked.values()))
    told = {key: listed(answer) for key, answer in zip(asked, answers, strict=True)}
    column = np.full(len(keys), None)
    for s, key in enumerate(keys):
        column[s] = told[key]
    yield Bought("c3-bucket", f"{k} after each action", shop.batch.with_column("continuations", column), cost)


_RULES = {
    "actor_rollout": "actions alike often, the policy goes on",
    "uniform": "a tree grown evenly, random play goes on",
}


def _search(shop: Shop, k: int) -> Iterator[Bought]:
    for rule, words in _RULES.items():
        found = AsctPlanner(shop.batch, shop.chances, rule, k, markov=shop.markov, seed=shop.seed)
        planner, cost = shop.drive(found)
        yield Bought("asct", f"{k} trials a state: {words}", planner.filled(), cost)


# -- one segment, one correction, one greedy rollout ------------------------------------------------


def _segments(shop: Shop, k: int) -> Iterator[Bought]:
    judges: Mapping[str, Pointer] = {
        "a random segment": random_segments(shop.seed),
        "the segment that gains most (a judge that knows the truth)": best_segments(shop.truth.value),
    }
    for words, judge in judges.items():
        planner, cost = shop.drive(ProverPlanner(shop.batch, judge, k, markov=shop.markov))
        games = planner.verdicts().proposed
        yield Bought("prover", f"{k} before and after {words}, in {games} games", planner.filled(), cost)


def _revisions(shop: Shop, k: int) -> Iterator[Bought]:
    known = largest_loss(shop.truth.advantage, shop.nodes, shop.tables)
    revisers: Mapping[str, Reviser] = {
        "where the nearest success differs": nearest_repair,
        "the largest loss taken back (a reviser that knows the truth)": known,
    }
    for words, reviser in revisers.items():
        found = IbpoPlanner(shop.batch, reviser, k, policy="actor", markov=shop.markov)
        planner, cost = shop.drive(found)
        yield Bought("ibpo", f"{k} of each failure, from {words}", planner.filled(), cost)


def _greedy(shop: Shop, k: int) -> Iterator[Bought]:
    asked = [Request(Place(group, "start"), 1, "greedy") for group in shop.groups]
    answers, cost = shop.answers(asked)
    reward = np.array([answer.mean for answer in answers], np.float64)[shop.batch.group_R]
    yield Bought(
        "remax", "a greedy rollout a game", shop.batch.with_column("reward_baseline_R", reward), cost
    )


# -- forks of the recorded rollouts -----------------------------------------------------------------


def _forked(method: str, rule: Callable[[Shop], Rule], words: str) -> Callable[[Shop, int], Iterator[Bought]]:
    """Return the offer of k forks a rollout where a rule says, two a round, so that an odd k is one more."""

    def buy(shop: Shop, k: int) -> Iterator[Bought]:
        rounds = (k + 1) // 2
        grower, cost = shop.drive(Grower(shop.lean, rule(shop), rounds=rounds))
        yield Bought(method, f"{2 * rounds} forks a rollout, {words}", grower.batch, cost)

    return buy


def _beam(shop: Shop) -> Rule:
    return entropy_beam(round(2 * len(shop.batch) / len(shop.groups)))


def _rising(shop: Shop, k: int) -> Iterator[Bought]:
    size = round(len(shop.batch) / len(shop.groups))
    entropy = rise_of_entropy(shop.tables)
    planner, cost = shop.drive(
        EntropyForks(shop.lean, entropy, ARPO, total=size * (1 + k), seed=shop.seed, fill=False)
    )
    yield Bought(
        "arpo:attribution=hard", f"at most {k} forks a rollout, where entropy rose", planner.batch, cost
    )


_EVERYWHERE = ("c3", "spo", "bpo", "treerpo", "treeps", "treeadv", "treepo", "treerl", "treemem")


def _everywhere(shop: Shop, k: int) -> Iterator[Bought]:
    def rule(index: Index, turn: int) -> Ints:
        return np.arange(index.batch.n_steps)

    grower, cost = shop.drive(Grower(shop.lean, rule, rounds=1, k=k))
    for method in _EVERYWHERE:
        yield Bought(method, f"{k} forks before each step", grower.batch, cost)


# -- rollouts -----------------------------------------------------------------------------------------


def _more(shop: Shop, k: int) -> Iterator[Bought]:
    """As many environment steps as vineppo takes, spent on whole rollouts."""
    each = shop.vine(k)[1].environment_steps / (shop.batch.n_steps / len(shop.batch))
    n = max(round(each / len(shop.groups)), 1)
    answers, cost = shop.answers(
        [Request(Place(group, "start"), n, arm="more", record=True) for group in shop.groups]
    )
    whole = with_branches(shop.lean, answers)
    for method in FREE:
        yield Bought(method, f"{n} more rollouts a game", whole, cost)


def _trees(shop: Shop, k: int) -> Iterator[Bought]:
    for sizes in ((4, 2, 2), (6, 6, 6)):
        planner, cost = shop.drive(
            spo_tree(dict.fromkeys(shop.groups, 0), sizes, cuts=partial(length_steps, tokens=_SEGMENT))
        )
        assert planner.batch is not None
        words = "-".join(map(str, sizes))
        yield Bought(
            "spo:nodes=segment",
            f"trees of its own, {words}, segments of {_SEGMENT} steps",
            planner.batch,
            cost,
            others=True,
        )


OFFERS = (
    Offer(("vineppo",), _vine),
    Offer(FREE, _more),
    Offer(("spo-chain",), _chain),
    Offer(("c3-bucket",), _bucket),
    Offer(("asct",), _search),
    Offer(("prover",), _segments),
    Offer(("ibpo",), _revisions),
    Offer(("remax",), _greedy, once=True),
    Offer(("treerl",), _forked("treerl", lambda shop: eptree(2), "at its least likely actions"), most=16),
    Offer(
        ("tree-grpo",), _forked("tree-grpo", lambda shop: random_nodes(2, shop.seed), "at random"), most=16
    ),
    Offer(("at2po",), _forked("at2po", _beam, "at the least likely actions of a game"), most=16),
    Offer(("arpo",), _rising, most=4),
    Offer(_EVERYWHERE, _everywhere, most=4),
    Offer(("spo",), _trees, once=True),
)
