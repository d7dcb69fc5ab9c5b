"""The policy that scores commands, with a model made of hashes: prompts, draws, what is learnt."""

from __future__ import annotations

import hashlib
from importlib.resources import files

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import accredit as ac
from accredit.data import Batch
from accredit.signals.commands import COMMANDS, QUESTION, CommandActor, Scores, _predicting_rows
from accredit.worlds.acting import Scene

SEEN = f"Your task: win.\n\nA hall.\n\nNothing.\n\n{COMMANDS}go east, take coin"
SCENE = Scene("g", "s", SEEN, ("go east", "take coin"), ("look", "go west", "open door"))


class Fake(CommandActor):
    """Tokens are bytes; a token's log-prob is a function of the prompt and the tail up to it."""

    def prompt(self, user: str) -> list[int]:
        return list(user.encode())

    def tail(self, command: str) -> list[int]:
        return [*command.encode(), 0]

    def _forward(self, prompt: list[int], tails: list[list[int]]) -> Scores:
        logs = [[-number(prompt, tail[: j + 1]) for j in range(len(tail))] for tail in tails]
        return Scores(prompt, tails, logs, [[1.0] * len(tail) for tail in tails])


class Closed(CommandActor):
    """Knows what it was told, and nothing else."""

    def _forward(self, prompt: list[int], tails: list[list[int]]) -> Scores:
        raise AssertionError("asked the model")

    def prompt(self, user: str) -> list[int]:
        raise AssertionError("asked the model")


def number(*parts: object) -> float:
    """A number in [0, 1/4) that the parts decide."""
    return int.from_bytes(hashlib.sha256(repr(parts).encode()).digest()[:4]) / 2**34


def by_loop(actor: Fake, user: str, commands: tuple[str, ...], temperature: float) -> list[float]:
    """Softmax over commands of the sums of their tokens, one at a time."""
    weights = []
    for command in commands:
        total = 0.0
        for j in range(len(command) + 1):
            total -= number(actor.prompt(user), actor.tail(command)[: j + 1])
        weights.append(np.exp(total / temperature))
    return [weight / sum(weights) for weight in weights]


def test_the_prompt_tells_the_last_commands_before_what_is_possible():
    assert SEEN + QUESTION == Fake().user(SCENE)
    head, _, tail = SEEN.partition(COMMANDS)
    told = f"{head}Your last commands: go west, open door\n\n{COMMANDS}{tail}{QUESTION}"
    assert told == Fake(history=2).user(SCENE)
    assert SEEN + QUESTION == Fake(history=2).user(Scene("g", "s", SEEN, SCENE.actions))


@given(
    st.lists(st.text("abc ", min_size=1, max_size=6), min_size=1, max_size=5, unique=True).map(tuple),
    st.sampled_from([0.3, 1.0, 2.0]),
)
def test_probabilities_are_a_softmax_of_sums(commands: tuple[str, ...], temperature: float):
    actor = Fake(temperature=temperature)
    [found] = actor.probs([Scene("g", "s", "seen", commands)])
    expected = by_loop(actor, "seen" + QUESTION, commands, temperature)
    np.testing.assert_allclose(found, expected, rtol=1e-9)


def test_a_prompt_is_computed_once_and_other_commands_are_another_prompt():
    actor = Fake()
    actor.probs([SCENE, SCENE])
    actor.act([SCENE], [np.random.default_rng(0)])
    actor.scores(actor.user(SCENE), SCENE.actions)
    assert actor.calls == 1
    actor.probs([Scene("g", "s", SEEN, SCENE.actions[:1])])
    assert actor.calls == 2


def test_choices_are_drawn_by_their_probabilities_and_say_what_they_cost():
    actor, rng = Fake(temperature=0.1), np.random.default_rng(7)
    [probs] = actor.probs([SCENE])
    found = [actor.act([SCENE], [rng])[0] for _ in range(2000)]
    share = np.mean([choice.action == "take coin" for choice in found])
    assert abs(share - probs[1]) < 4 * np.sqrt(probs[0] * probs[1] / 2000)
    for choice in found[:20]:
        place = SCENE.actions.index(choice.action)
        assert (choice.logprob, choice.tokens) == (np.log(probs[place]), len(choice.action) + 1)


@pytest.mark.parametrize(("name", "history"), [("textworld", 0), ("textworld-history", 2)])
def test_what_rollouts_recorded_is_not_asked_again(name: str, history: int):
    """Scenes of the bundled games, told by their recorded actions, find what was recorded there."""
    batch = ac.read(files("accredit") / "samples" / f"{name}.jsonl.gz")
    actor = Closed(history=history)
    assert actor.learn(batch) == {"textworld": 146, "textworld-history": 479}[name]
    assert actor.learn(batch) == 0
    for record in list(batch.records())[::37]:
        task = f"Your task: {record['metadata']['objective']}\n\n"
        actions = [step["action"] for step in record["steps"]]
        for t, step in enumerate(record["steps"]):
            last = f"Your last commands: {', '.join(actions[max(0, t - history) : t])}\n\n"
            scene = Scene(
                record["group"],
                step["state"],
                task + step["text"].replace(last, ""),
                tuple(step["metadata"]["commands"]),
                tuple(actions[:t]),
            )
            [probs] = actor.probs([scene])
            logs = step["metadata"]["choice_logprobs"]
            np.testing.assert_allclose(np.log(probs), logs, atol=2e-6)


def recorded(actor: Fake, off: float) -> Batch:
    """A rollout whose recorded choices are the actor's own, ``off`` nats away in the first."""
    user = actor.user(SCENE)
    probs = np.array(by_loop(actor, user, SCENE.actions, 2.0))
    logs = np.log(probs) + np.array([off, 0.0])
    logs -= np.logaddexp.reduce(logs)
    step = {
        "action": "go east",
        "text": user.removeprefix("Your task: win.\n\n").removesuffix(QUESTION),
        "metadata": {"commands": list(SCENE.actions), "choice_logprobs": logs.tolist()},
    }
    return Batch.from_records([{"id": "a", "reward": 0, "metadata": {"objective": "win."}, "steps": [step]}])


@pytest.mark.parametrize("off", [0.0, 0.3, -2.0])
def test_drift_is_the_largest_difference_to_what_was_recorded(off: float):
    actor = Fake()
    assert actor.learn(recorded(actor, off)) == 1
    expected = np.abs(
        np.log(by_loop(actor, actor.user(SCENE), SCENE.actions, 2.0))
        - next(iter(recorded(actor, off).records()))["steps"][0]["metadata"]["choice_logprobs"]
    ).max()
    assert actor.drift() == pytest.approx(expected, abs=1e-9)


def test_what_the_model_computed_itself_is_no_record():
    """Drift of nothing recorded was once 0: prompts that were played counted as recorded ones."""
    actor = Fake()
    actor.probs([SCENE])
    assert actor.drift() is None


def test_rollouts_without_choices_teach_nothing():
    plain = [{"id": "a", "reward": 1, "steps": [{"action": "x"}]}]
    told = [
        {
            "id": "a",
            "reward": 1,
            "metadata": {},
            "steps": [{"action": "x", "text": "t", "metadata": {"n": 1}}],
        }
    ]
    assert [Closed().learn(Batch.from_records(records)) for records in (plain, told)] == [0, 0]


def test_the_version_says_model_temperature_and_memory():
    made = [Fake(), Fake("other"), Fake(temperature=1.0), Fake(history=1)]
    assert len({actor.version for actor in made}) == 4


@given(st.integers(1, 5), st.lists(st.integers(1, 4), min_size=1, max_size=4))
def test_each_token_is_predicted_by_the_one_before_it(start: int, lengths: list[int]):
    """Row r of the packed sequence predicts the next token of its own tail; a first one, the prompt's end."""
    packed = [("prompt", i) for i in range(start)]
    packed += [(c, j) for c, n in enumerate(lengths) for j in range(n)]
    before = [packed.index((c, j - 1)) if j else start - 1 for c, n in enumerate(lengths) for j in range(n)]
    assert before == _predicting_rows(start, [[0] * n for n in lengths])
