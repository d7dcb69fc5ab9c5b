"""The chat actor against a server on this machine: what it asks, what answers mean, faults and costs."""

from __future__ import annotations

import logging
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from accredit.errors import BackendError, BudgetExceeded, ParamError
from accredit.planners import Place, Request
from accredit.signals.chat_actor import ChatActor, Wording, action_meant
from accredit.signals.client import Client, Limits
from accredit.signals.continuation import Alone, Engine, Player, Replay
from accredit.worlds import TabularWorld, make
from accredit.worlds.acting import Scene
from tests.signals.served import Answer, Server, error, ok, serving

TASK = make("rooms", seed=1)
SCENE = Scene("g", "hall", "A hall.", ("go north", "go south"), ("wait", "look", "go north"))


def chat(path: str, body: Any, text: str | None = None) -> Answer:
    """Answer with one of the possible actions, drawn by the request's seed, in a model's manner."""
    if path != "/v1/chat/completions":
        return error(404, type="not_found_error")
    if text is None:
        told = body["messages"][1]["content"].partition("Possible actions: ")[2].partition("\n")[0]
        options = told.split(", ")
        text = f" {options[body['seed'] % len(options)].capitalize()}."
    usage = {"prompt_tokens": len(body["messages"][1]["content"]), "completion_tokens": len(text)}
    return ok({"choices": [{"message": {"role": "assistant", "content": text}}], "usage": usage})


class Faulty:
    """Fails every fifth request with 500, whoever asks."""

    def __init__(self) -> None:
        self.n = 0

    def __call__(self, path: str, body: Any) -> Answer:
        self.n += 1
        return error(500, type="server_error") if self.n % 5 == 0 else chat(path, body)


def actor_of(server: Server, **options: Any) -> ChatActor:
    """An actor that does not wait between attempts."""
    limits = options.pop("limits", Limits(retries=8))
    actor = ChatActor(server.url, options.pop("model", "org/tiny"), limits=limits, **options)
    actor.server.client = Client(server.url, limits, sleep=lambda seconds: None)
    return actor


def played(actor: ChatActor, k: int = 4) -> list[tuple[str, float | None, list[str], int]]:
    player = Player(Replay(lambda group: TabularWorld(TASK)), {"actor": actor}, slots=8)
    asked = [Request(Place("g", f"start {s}", start=s), k=k, record=True) for s in range(3)]
    return [
        (o.status, o.reward, [visit.action for visit in o.path], o.tokens)
        for answer in Engine(Alone(player), seed=5).run(asked)
        for o in answer.outcomes
    ]


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def test_a_fifth_of_failed_requests_changes_nothing_but_the_cost():
    with serving(chat) as server:
        sound = actor_of(server)
        expected = played(sound)
    with serving(Faulty()) as server:
        shaken = actor_of(server)
        assert played(shaken) == expected
    assert {status for status, *_ in expected} <= {"finished", "truncated"}
    assert sound.usage == shaken.usage
    assert sound.usage.answers == sum(len(path) for _, _, path, _ in expected)
    assert sound.usage.tokens == sum(tokens for *_, tokens in expected)
    assert (sound.client.spent.retries, sound.client.spent.requests) == (0, sound.usage.answers)
    assert shaken.client.spent.retries == shaken.client.spent.requests - shaken.usage.answers > 5


def test_a_request_says_model_decoding_seed_and_prompt():
    with serving(chat) as server:
        actor = actor_of(server, temperature=0.5, max_tokens=9, wording=Wording("Be brief.", history=2))
        actor.act([SCENE, SCENE, SCENE], [rng(1), rng(1), rng(2)])
        bodies = [body for _, body, _ in server.asked]
    user = (
        "A hall.\n\nYour last actions: look, go north\n\nPossible actions: go north, go south\n\n"
        "What do you do next? Reply with one possible action and nothing else."
    )
    assert bodies[0]["messages"] == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": user},
    ]
    assert [(b["model"], b["temperature"], b["max_tokens"]) for b in bodies] == [("org/tiny", 0.5, 9)] * 3
    one, two = (int(rng(seed).integers(2**31)) for seed in (1, 2))
    assert sorted(b["seed"] for b in bodies) == sorted([one, one, two])


def test_a_key_is_sent_and_shown_nowhere(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture):
    monkeypatch.setenv("ACCREDIT_API_KEY", "sk-very-secret")
    caplog.set_level(logging.DEBUG)
    with serving(Faulty()) as server:
        actor = actor_of(server)
        actor.act([SCENE] * 8, [rng(i) for i in range(8)])
        assert all(headers["Authorization"] == "Bearer sk-very-secret" for _, _, headers in server.asked)
        server.respond = lambda path, body: error(
            401, message="sk-very-secret: A hall.", code="sk-very-secret"
        )
        with pytest.raises(BackendError) as refused:
            actor.act([SCENE], [rng()])
    told = caplog.text + str(refused.value) + repr(actor.client) + actor.version
    assert "again in" in caplog.text
    assert not any(secret in told for secret in ("sk-very", "A hall", "Reply with"))


def test_an_answer_that_means_nothing_possible_is_an_illegal_action():
    with serving(lambda path, body: chat(path, body, "I would rather sleep.")) as server:
        actor = actor_of(server)
        assert {status for status, *_ in played(actor, k=1)} == {"illegal"}
    assert actor.unmapped == actor.usage.answers == 3


def test_free_text_is_taken_as_it_stands():
    with serving(lambda path, body: chat(path, body, " print(1) \n")) as server:
        actor = actor_of(server)
        [choice] = actor.act([Scene("g", "k", "A prompt.", None)], [rng()])
        assert "Possible" not in server.asked[0][1]["messages"][1]["content"]
    assert (choice.action, choice.logprob, choice.tokens, actor.unmapped) == ("print(1)", None, 11, 0)


def test_what_the_scene_says_already_is_not_told_again():
    seen = "A hall. You can go north or go south."
    told = Wording().messages(Scene("g", "k", seen, ("go north", "go south")))[1]["content"]
    assert told.startswith(f"{seen}\n\nWhat do you do")
    braces = Wording().messages(Scene("g", "k", "{seen} {0}", ("x",)))[1]["content"]
    assert braces.startswith("{seen} {0}\n\nPossible actions: x\n\n")


@pytest.mark.parametrize(
    "user", ["no scene", "{seen} {other}", "{seen} {", "{}", "{seen[0]}", "{seen:{x}}", "{history}"]
)
def test_wordings_that_cannot_be_filled_are_refused(user: str):
    with pytest.raises(ParamError):
        Wording(user=user)


def test_the_version_changes_with_whatever_changes_choices():
    def version(model: str = "m", **options: Any) -> str:
        return ChatActor("http://localhost:1", model, **options).version

    changed = [
        version(),
        version("n"),
        version(temperature=0.5),
        version(max_tokens=8),
        *(version(wording=w) for w in (Wording("x"), Wording(user="{seen}"), Wording(history=1))),
    ]
    assert len({*changed}) == len(changed)
    assert version() == version()
    one, other = version("/srv/a/tiny.gguf"), version("/srv/b/tiny.gguf")
    assert one != other
    assert one.startswith("chat:tiny.gguf#")
    assert "/srv" not in one


@pytest.mark.parametrize(
    "document",
    [
        [],
        {},
        {"choices": []},
        {"choices": [{}]},
        {"choices": [{"message": {"content": [1]}}]},
        {"choices": [3]},
    ],
)
def test_an_answer_that_is_no_chat_completion_is_an_error(document: Any):
    with serving(lambda path, body: ok(document)) as server, pytest.raises(BackendError, match="no chat"):
        actor_of(server).act([SCENE], [rng()])


def test_an_answer_without_words_or_usage_is_an_empty_action():
    with serving(lambda path, body: ok({"choices": [{"message": {"content": None}}]})) as server:
        [choice] = actor_of(server).act([SCENE], [rng()])
    assert (choice.action, choice.tokens) == ("", 0)


def test_budgets_stop_the_actor():
    with serving(chat) as server:
        few = actor_of(server, limits=Limits(requests=2))
        with pytest.raises(BudgetExceeded, match="requests"):
            few.act([SCENE] * 3, [rng()] * 3)
        short = actor_of(server, limits=Limits(tokens=1, concurrency=1))
        short.act([SCENE], [rng()])
        with pytest.raises(BudgetExceeded, match="prompt tokens"):
            short.act([SCENE], [rng()])
    assert (few.client.spent.requests, short.client.spent.requests) == (2, 1)


@pytest.mark.parametrize("options", [{"temperature": -1.0}, {"temperature": float("inf")}, {"max_tokens": 0}])
def test_settings_that_are_none_are_refused(options: dict[str, Any]):
    with pytest.raises(ParamError):
        ChatActor("http://localhost:1", "m", **options)


words = st.lists(st.sampled_from(["go", "North", "a-b", "x"]), min_size=1, max_size=3).map(" ".join)


@given(st.lists(words, min_size=1, max_size=4, unique_by=str.casefold), st.data())
def test_an_action_is_meant_in_any_case_with_any_punctuation(actions: list[str], data: st.DataObject):
    wanted = data.draw(st.sampled_from(actions))
    dressed = data.draw(st.sampled_from(["{}", "  {}\n", '"{}."', "**{}**!", "`{}`"])).format(wanted)
    assert wanted == action_meant(dressed, actions)
    assert wanted == action_meant(dressed.upper(), actions)
    assert wanted.upper() == action_meant(wanted.upper(), [*actions, wanted.upper()])


def test_two_actions_that_read_alike_are_told_apart_by_their_letters_alone():
    actions = ["take it", "Take it!", "?", "!"]
    assert [action_meant(said, actions) for said in ("take it", "Take it!", "TAKE IT", "?", "??", "")] == [
        "take it",
        "Take it!",
        "TAKE IT",
        "?",
        "??",
        "",
    ]
    assert "..." == action_meant("...", ["?", "go"])  # an answer without words means none
