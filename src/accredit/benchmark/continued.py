"""Methods that need continuations on recorded rollouts: bought in explored worlds, against exact truth."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from accredit.against import Judge
from accredit.benchmark.purchases import FREE, OFFERS, Bought, Shop
from accredit.benchmark.recorded import REFERENCE, Recorded, RecordedRow
from accredit.benchmark.uncertainty import difference
from accredit.data import Batch
from accredit.engine import assign
from accredit.errors import AccreditError, ParamError
from accredit.index import Index, owner_S
from accredit.methods import get_method
from accredit.oracle import Explored, Table, read_tables, table_truth
from accredit.typing import BoolArray, Floats
from accredit.worlds import Cost

__all__ = ["BUDGETS", "continued"]

BUDGETS = (4, 16, 64)


def continued(
    batch: Batch,
    explored: Explored | str | Path,
    budgets: Sequence[int] = BUDGETS,
    methods: Sequence[str] | str = "all",
    *,
    name: str = "",
    seed: int = 0,
    progress: Callable[[int, int, str], None] | None = None,
) -> Recorded:
    """Return how near the methods that need continuations come to the truth, and what they bought.

    The worlds are tables with the chances of the very policy that played, so that going on in them is
    going on in the world with its policy.  Every method gets its own continuations at each budget K;
    beside them stand methods that need none, on the recorded rollouts alone and with as many
    environment steps spent on more rollouts as `vineppo` takes.

    Args:
        batch: rollouts whose steps carry action and state.
        explored: their worlds, or a file of schema ``accredit.tables/1``.
        budgets: K, each at least 1: continuations a state, trials a state, forks a rollout.
        methods: ids (``"id:name=value"`` too); ``all`` = every method that buys, and the free ones.
        name: of the rollouts, for the page.
        seed: of all chance.
        progress: called with done, total and what comes now.

    Raises:
        DataError: if a rollout was not played in its table.
        ParamError: for a budget below 1, or methods of which none buys.
    """
    worlds = explored if isinstance(explored, Explored) else read_tables(explored)
    asked = sorted(set(budgets))
    if not asked or asked[0] < 1:
        raise ParamError(f"budgets are whole numbers >= 1, got {list(budgets)}")
    chosen = None if methods == "all" else [methods] if isinstance(methods, str) else list(methods)
    shop = Shop(batch, worlds, seed)
    bench = _Bench(shop)
    found = [RecordedRow(REFERENCE, *bench.judge.near(bench.judge.truth_S))]
    for method in FREE:
        found += bench.rows(Bought(method, "", batch, Cost()), 0, chosen)
    jobs = [(o, k) for o in OFFERS if o.wanted(chosen) for k in o.budgets(asked)]
    if not jobs:
        raise ParamError(f"none of {', '.join(chosen or ())} buys continuations")
    for done, (offer, k) in enumerate(sorted(jobs, key=lambda job: job[1])):
        if progress is not None:
            progress(done, len(jobs), f"{', '.join(offer.methods)} at {k}" if k else ", ".join(offer.methods))
        for bought in offer.buy(shop, k):
            found += bench.rows(bought, k, chosen)
    order = sorted(found, key=lambda row: (row.unable != "", -(row.rank.value if row.rank else 0.0)))
    about = {
        "rollouts": name,
        "key": None,
        "kind": "exact",
        **{k: worlds.about[k] for k in ("world", "policy", "memory") if k in worlds.about},
        "budgets": asked,
        "seed": seed,
        "spread": float(bench.judge.truth_S.std()),
        "duels": bench.duels(),
    }
    return Recorded(tuple(order), bench.judge.n_groups, len(batch), batch.n_steps, about)


class _Bench:
    """Measures what was bought, and keeps the rank correlations of each game."""

    def __init__(self, shop: Shop) -> None:
        self.shop = shop
        self.judge = Judge(shop.batch, shop.truth.advantage, np.ones(shop.batch.n_steps, bool))
        self._ranks: dict[tuple[str, int], Floats] = {}

    def rows(self, bought: Bought, k: int, chosen: Sequence[str] | None) -> list[RecordedRow]:
        """Return the numbers of a method on what was bought for it, one row for each way it is wanted.

        Args:
            bought: for it.
            k: budget; 0 = nothing, or once.
            chosen: methods that are wanted; parameters of theirs count; None = all, as they were bought for.
        """
        if chosen is None:
            return [self._told(bought, k)]
        card = get_method(bought.method)[0].card
        own = [name for name in chosen if get_method(name)[0].card.id == card.id]
        return [self._told(replace(bought, method=name) if ":" in name else bought, k) for name in own]

    def _told(self, bought: Bought, k: int) -> RecordedRow:
        return replace(
            self._row(bought, k),
            bought=bought.what,
            continuations=bought.cost.continuations,
            environment_steps=bought.cost.environment_steps,
        )

    def _row(self, bought: Bought, k: int) -> RecordedRow:
        try:
            credit = assign(bought.batch, bought.method, seed=0).steps
        except AccreditError as error:
            return RecordedRow(bought.method, unable=str(error).partition("\n")[0])
        if bought.others:
            return RecordedRow(bought.method, *self._others(bought).near(credit))
        own = credit[: self.shop.batch.n_steps]
        self._ranks[bought.method, k] = np.array([x for x in self.judge.ranks(own) if x is not None])
        return RecordedRow(bought.method, *self.judge.near(own))

    def _others(self, bought: Bought) -> Judge:
        """Return the judge of rollouts that are not the recorded ones: a shared step counts once."""
        batch = _described(bought.batch, self.shop.tables)
        first: BoolArray = owner_S(Index(batch)) == np.arange(batch.n_steps)
        return Judge(batch, table_truth(batch, self.shop.tables).advantage, first)

    def duels(self) -> list[dict[str, Any]]:
        """Return vineppo's rank correlation minus that of each free method, game by game.

        At each budget, the free method with as many steps spent on more rollouts (``k``), and without
        (``free``).
        """
        found: list[dict[str, Any]] = []
        for (method, k), ranks in self._ranks.items():
            for other in FREE if method == "vineppo" else ():
                for spent in (k, 0):
                    if (other, spent) in self._ranks:
                        apart = difference(ranks, self._ranks[other, spent])
                        numbers = {"value": apart.value, "low": apart.low, "high": apart.high}
                        found.append({"k": k, "other": other, "spent": spent > 0, **numbers})
        return found


def _described(batch: Batch, tables: Mapping[str, Table]) -> Batch:
    """Return rollouts with what could be done at each step and how likely, as the recorded ones have it."""
    actions = [str(a) for a in batch.column("action_S").decoded()]
    found = np.full(batch.n_steps, None)
    for r in range(len(batch)):
        table, steps = tables[str(batch.group_names[int(batch.group_R[r])])], batch.steps_of(r)
        at, _ = table.walk([actions[s] for s in steps], [None] * len(steps))
        for s, node in zip(steps, at.tolist(), strict=True):
            chances = table.chances(node)
            logs = np.log(np.maximum(list(chances.values()), 1e-300)).tolist()
            found[s] = {"commands": list(chances), "choice_logprobs": logs}
    return batch.with_column("metadata_S", found)
