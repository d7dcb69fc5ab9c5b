"""The recording script, with the real model in real games (examples/textworld/record.py)."""

from __future__ import annotations

import gzip
import json
import math
import subprocess
import sys
from importlib.resources import files
from pathlib import Path

import pytest

from accredit.signals.commands import CommandActor

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "examples" / "textworld" / "record.py"
CACHE = ROOT / ".cache" / "accredit"
FILES = {0: "textworld.jsonl.gz", 2: "textworld-history.jsonl.gz"}
GAMES, ROLLOUTS = 2, 2
STEP = {
    "state": str,
    "text": str,
    "observation": str,
    "action": str,
    "tokens": list,
    "logprobs": list,
    "entropies": list,
    "prompt_tokens": list,
    "choice_logprob": float,
    "choice_entropy": float,
    "n_choices": int,
    "intermediate_reward": int,
    "metadata": dict,
}


def _record(out: Path, history: int) -> Path:
    small = ["--games", str(GAMES), "--rollouts", str(ROLLOUTS), "--history", str(history)]
    command = [sys.executable, str(SCRIPT), "--out", str(out), "--cache", str(CACHE), *small]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    return out / FILES[history]


def _lines(data: bytes) -> list[dict]:
    def no_constant(name: str) -> None:
        pytest.fail(f"{name} is not JSON")

    return [json.loads(line, parse_constant=no_constant) for line in gzip.decompress(data).splitlines()]


@pytest.fixture(scope="module", params=[0, 2], ids=["markov", "history"])
def recorded(request, tmp_path_factory) -> tuple[int, Path]:
    return request.param, _record(tmp_path_factory.mktemp("recorded"), request.param)


def test_a_record_has_the_fields_of_the_native_schema(recorded):
    history, path = recorded
    header, *records = _lines(path.read_bytes())

    assert header["schema"] == "accredit.rollouts/1"
    assert (header["metadata"]["history"], header["metadata"]["horizon"]) == (history, 20)
    assert len({record["id"] for record in records}) == GAMES * ROLLOUTS == len(records)
    assert {record["group"] for record in records} == set(header["metadata"]["games"])
    for record in records:
        end = record["final_state"].rpartition(" | ")[2]
        assert record["reward"] == (1.0 if end == "won" else 0.0)
        assert record["status"] == ("truncated" if end == "open" else "finished")
        assert len(record["steps"]) == 20 or record["status"] == "finished"
        assert record["metadata"].keys() == {"game", "tw_make", "seed", "objective", "oracle_steps"}


def test_a_step_has_one_number_a_token_and_a_policy_over_its_commands(recorded):
    _, path = recorded
    steps = [step for record in _lines(path.read_bytes())[1:] for step in record["steps"]]

    for step in steps:
        assert {name: type(value) for name, value in step.items()} == STEP
        assert len(step["tokens"]) == len(step["logprobs"]) == len(step["entropies"])
        policy = dict(zip(*step["metadata"].values(), strict=True))
        assert step["n_choices"] == len(policy)
        assert step["choice_logprob"] == policy[step["action"]]
        assert math.fsum(map(math.exp, policy.values())) == pytest.approx(1, abs=1e-5)
        assert all(max(step["logprobs"]) <= 0 <= x for x in step["entropies"])


def test_the_prompt_remembers_the_last_two_commands_or_none(recorded):
    history, path = recorded
    for record in _lines(path.read_bytes())[1:]:
        actions = [step["action"] for step in record["steps"]]
        for here, step in enumerate(record["steps"]):
            past = actions[max(0, here - history) : here]
            line = f"Your last commands: {', '.join(past)}\n"
            assert (line in step["text"]) == bool(past)
            assert ("last commands" in step["text"]) == bool(past)


def test_recording_twice_gives_the_same_bytes(recorded, tmp_path):
    history, path = recorded
    assert path.read_bytes() == _record(tmp_path, history).read_bytes()


def test_the_bundled_rollouts_are_what_the_script_records(recorded):
    """Choices and texts are equal; numbers of another processor may differ in the noise of fp32."""
    history, path = recorded
    new = _lines(path.read_bytes())[1:]
    old = {
        record["id"]: record
        for record in _lines((files("accredit") / "samples" / FILES[history]).read_bytes())[1:]
    }
    same = ("state", "text", "observation", "action", "tokens", "prompt_tokens", "n_choices")
    for record in new:
        bundled = old[record["id"]]
        assert [record[k] for k in ("reward", "status", "metadata")] == [
            bundled[k] for k in ("reward", "status", "metadata")
        ]
        for got, expected in zip(record["steps"], bundled["steps"], strict=True):
            assert [got[k] for k in same] == [expected[k] for k in same]
            for name in ("logprobs", "entropies", "choice_logprob"):
                assert got[name] == pytest.approx(expected[name], abs=2e-4)


def test_packed_scores_equal_plain_forwards(recorded, monkeypatch):
    """One forward a command, without packing and mask, gives the recorded numbers within 2e-4."""
    import torch

    monkeypatch.setenv("ACCREDIT_CACHE", str(CACHE))
    actor = CommandActor()
    model, _, _ = actor.loaded()
    _, path = recorded
    steps = [record["steps"][here] for record in _lines(path.read_bytes())[1:] for here in (0, 2)]
    for step in steps:
        sums = []
        for command in step["metadata"]["commands"]:
            tail = actor.tail(command)
            with torch.no_grad():
                logits = model(torch.tensor([step["prompt_tokens"] + tail])).logits[0]
            log = logits[-len(tail) - 1 : -1].double().log_softmax(-1)
            chosen = log.gather(1, torch.tensor(tail)[:, None])[:, 0]
            sums.append(float(chosen.sum()))
            if command == step["action"]:
                assert step["tokens"] == tail
                assert chosen.tolist() == pytest.approx(step["logprobs"], abs=2e-4)
                entropy = -(log.exp() * log).sum(-1)
                assert entropy.tolist() == pytest.approx(step["entropies"], abs=2e-4)
        policy = torch.tensor(sums, dtype=torch.float64).div(2).log_softmax(0)
        assert policy.tolist() == pytest.approx(step["metadata"]["choice_logprobs"], abs=2e-4)
