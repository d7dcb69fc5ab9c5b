"""The truth of recorded rollouts: exact where the world can be explored, else by continuations."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from accredit.data import Batch
from accredit.errors import DataError, ParamError, ProbeError
from accredit.oracle.named import actor_named, check_endpoint, world_named
from accredit.oracle.tables import Explored
from accredit.oracle.tabulated import Table, table_truth, tabulate
from accredit.planners.truth import Estimates, TruthPlanner, nexts_of, places_of
from accredit.signals.chat_actor import ChatActor
from accredit.signals.client import Limits
from accredit.signals.commands import CommandActor
from accredit.signals.continuation import Alone, Budget, Engine, Player, Replay, Workers, check_fidelity
from accredit.signals.continuation import Progress as Spending
from accredit.signals.continuation.engine import Crew
from accredit.store import Truth, save_truth
from accredit.store.kinds import file_kind
from accredit.typing import Ints
from accredit.worlds import World
from accredit.worlds.acting import Actor, Weighing
from accredit.worlds.truth import truth_rows

__all__ = ["TruthReport", "check_target", "truth"]

_LARGEST_DRIFT = 0.05  # nats between what a policy says and what it recorded of its choices


@dataclass(frozen=True, slots=True, eq=False)
class TruthReport:
    """Truth of rollouts, and what is known of it.

    Args:
        truth: one row a step, as `compare(truth=...)` takes it.
        kind: ``exact`` or ``monte_carlo``.
        groups: of exact truth, states and value of each group's start: ``{group: {…}}``.
        estimates: of Monte-Carlo truth.
        spent: continuations, environment steps and tokens, by counter.
        drift: largest difference to the recorded log-probs of choices, nats; None = none recorded.
        explored: of exact truth, the worlds as tables (`save_tables`), to be continued without the model.
    """

    truth: Truth
    kind: str
    groups: Mapping[str, Mapping[str, float]]
    estimates: Estimates | None
    spent: Mapping[str, int]
    drift: float | None
    explored: Explored | None = None

    def verdict(self) -> str:
        """Return whether these numbers may be called truth, in one sentence."""
        if self.estimates is None:
            return "Exact: values by backward induction over all states that can be reached."
        return self.estimates.verdict()

    def save(self, path: str | Path) -> Path:
        """Write the rows (schema ``accredit.truth/1``) for `compare(truth=...)`.

        Args:
            path: ends in ``.parquet``, ``.jsonl``, ``.jsonl.gz`` or ``.jsonl.zst``.
        """
        return save_truth(self.truth, path)

    def to_dict(self) -> dict[str, Any]:
        """Return what is known, without the rows, JSON-ready."""
        found = self.estimates
        return {
            "kind": self.kind,
            "steps": len(self.truth.step),
            "groups": {name: dict(row) for name, row in self.groups.items()},
            "spent": dict(self.spent),
            "drift": self.drift,
            "reliability": None if found is None else found.reliability,
            "ceiling": None if found is None else found.ceiling,
            "verdict": self.verdict(),
        }


def check_target(path: str | Path) -> None:
    """Refuse a name that `TruthReport.save` could not write to, before anything is bought.

    Raises:
        StoreError: if the name does not say the kind of file.
    """
    file_kind(Path(path))


def truth(
    batch: Batch,
    world: str | Callable[[str], World],
    policy: str | Actor,
    *,
    memory: int = 0,
    temperature: float | None = None,
    endpoint: str | None = None,
    limits: Limits | None = None,
    continuations: int | None = None,
    steps: Sequence[int] | Ints | None = None,
    horizon: int | None = None,
    seed: int = 0,
    journal: str | None = None,
    budget: Budget | None = None,
    workers: int = 1,
    progress: Callable[[int, int, str], None] | None = None,
) -> TruthReport:
    """Return what the credit of recorded steps should be, under the policy that played them.

    Exact: each group's world is explored and solved (`tabulate`).  By continuations: V from the state
    before a step and Q after its action, each the mean of fresh continuations, with standard errors.

    Args:
        batch: rollouts whose steps carry every action.
        world: makes a group's world, or its name (see `world_named`).
        policy: the policy that played the rollouts, or its name (see `actor_named`).
        memory: last actions that the policy depends on beside what it sees.
        temperature: of a model named as policy; None: see `actor_named`.
        endpoint: URL of the server of a policy ``chat:MODEL``.
        limits: what that server may be asked.
        continuations: of each side of each step; None = exact.
        steps: of Monte-Carlo truth, step numbers; default all.
        horizon: steps of an episode; default the world's own.
        seed: of the continuations.
        journal: file that keeps continuations; with it a killed run goes on.
        budget: hard limits of the continuations.
        workers: processes that play; models play in this one alone.
        progress: called with done, total and what comes now.

    Raises:
        ProbeError: if the policy is not the one that played these rollouts, or the world cannot be explored.
        DataError: if a rollout was not played in this world.
    """
    make = world_named(world, batch, horizon=horizon) if isinstance(world, str) else world
    name = world if isinstance(world, str) else getattr(world, "__qualname__", "world")
    check_endpoint(policy, endpoint)
    actor = policy
    if isinstance(actor, str):
        server: dict[str, Any] = {"endpoint": endpoint, "limits": limits}
        actor = actor_named(actor, batch, name, temperature=temperature, memory=memory, **server)
    about = {"world": name, "policy": actor.version, "memory": memory, "seed": seed}
    drift = _drift(actor)
    if continuations is None:
        if steps is not None or budget is not None or journal is not None or workers != 1:
            raise ParamError("steps, journal, budget and workers belong to continuations, not to exact truth")
        return _exact(batch, make, actor, memory, horizon, about, progress, drift)
    restorer = Replay(make)
    looked = np.arange(batch.n_steps) if steps is None else np.asarray(steps, np.int64)
    markov = memory == 0 and batch.has("state_S")
    check_fidelity(restorer, places_of(batch, looked, markov=markov), nexts_of(batch, looked)).refuse()
    crew = _crew(make, actor, restorer, workers)
    planner = TruthPlanner(batch, looked, continuations, markov=markov, horizon=horizon)
    telling = _told(progress)
    with Engine(crew, journal=journal, budget=budget, seed=seed, world=name, progress=telling) as engine:
        found = engine.drive(planner).estimates()
        spent = {**engine.ledger.physical.to_dict(), **_lost(engine.ledger.status), **_asked(actor)}
    rows = _rows(batch, found, {**about, "kind": "monte_carlo", "continuations": continuations})
    return TruthReport(rows, "monte_carlo", {}, found, spent, drift)


def _exact(
    batch: Batch,
    make: Callable[[str], World],
    actor: Actor,
    memory: int,
    horizon: int | None,
    about: Mapping[str, Any],
    progress: Callable[[int, int, str], None] | None,
    drift: float | None,
) -> TruthReport:
    if not isinstance(actor, Weighing):
        raise ProbeError("exact truth needs a policy that gives probabilities", hint="Say continuations=")
    groups = list(dict.fromkeys(str(batch.group_names[int(g)]) for g in batch.group_R))
    tables: dict[str, Table] = {}
    for i, group in enumerate(groups):
        if progress is not None:
            progress(i, len(groups), group)
        tables[group] = tabulate(make(group), actor, group, memory=memory, horizon=horizon)
    found = table_truth(batch, tables)
    told = {g: {"states": t.states, "nodes": t.task.n_states, "value": t.value} for g, t in tables.items()}
    rows = truth_rows(batch, found, {**about, "kind": "exact"})
    return TruthReport(rows, "exact", told, None, {}, drift, Explored(tables, {**about, "kind": "exact"}))


def _drift(actor: Actor) -> float | None:
    """Return how far a model is from what was recorded of it; None where nothing was.

    Raises:
        ProbeError: if it is another policy.
    """
    drift = actor.drift() if isinstance(actor, CommandActor) else None
    if drift is not None and drift > _LARGEST_DRIFT:
        raise ProbeError(
            f"another policy played: log-probs of recorded choices differ by {drift:.3g} nats",
            hint="Check model, temperature and memory",
        )
    return drift


def _crew(make: Callable[[str], World], actor: Actor, restorer: Replay, workers: int) -> Crew:
    if workers == 1:
        return Alone(Player(restorer, {"actor": actor}, slots=32))
    if isinstance(actor, ChatActor | CommandActor) or "torch" in sys.modules:
        raise ParamError(
            f"{workers} workers: a model plays in one process, and with torch loaded none can be forked",
            hint="A chat model is asked several times at once by its limits' concurrency",
        )
    return Workers(lambda: Player(Replay(make), {"actor": actor}, slots=32), workers)


def _asked(actor: Actor) -> dict[str, int]:
    """Return what a chat model cost beside what it generated, and how often it meant nothing possible."""
    if not isinstance(actor, ChatActor):
        return {}
    read = {"requests": actor.client.spent.requests, "prompt_tokens": actor.usage.prompt_tokens}
    return {**read, "unmapped_answers": actor.unmapped}


def _lost(status: Mapping[str, int]) -> dict[str, int]:
    """Return the numbers of continuations that gave no result."""
    return {name: n for name, n in status.items() if name in ("failed_restore", "infra_error")}


def _told(progress: Callable[[int, int, str], None] | None) -> Callable[[Spending], None] | None:
    if progress is None:
        return None

    def tell(now: Spending) -> None:
        left = "" if now.left is None else f", {now.left:.0f} s left"
        progress(now.done, now.total, f"{now.rate:.0f} continuations a second{left}")

    return tell


def _rows(batch: Batch, found: Estimates, about: Mapping[str, Any]) -> Truth:
    if not found.steps.size:
        raise DataError("no step got continuations on both sides", hint="Raise the budget")
    rollout = np.repeat(np.arange(len(batch)), np.diff(batch.step_start_R1))[found.steps]
    place = found.steps - batch.step_start_R1[rollout]
    numbers = {"value": found.value, "q": found.q, "advantage": found.advantage, "se": found.se}
    return Truth(
        tuple(batch.ids[r] for r in rollout.tolist()),
        tuple(place.tolist()),
        numbers,
        dict.fromkeys(numbers, np.ones(found.steps.size, bool)),
        tuple(found.k.min(1).tolist()),
        ("monte_carlo",) * found.steps.size,
        {**about, "reliability": found.reliability, "verdict": found.verdict()},
    )
