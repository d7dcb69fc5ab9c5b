"""``accredit probe`` with a server that scores, and with named contexts."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import accredit as ac
from accredit.index import Index
from accredit.planners.beliefs import belief_forks, probe_js
from accredit.signals.request import ProbeRequest, Span, Want
from tests.signals.served import MODEL, error, ok, serving, vllm

CHAT = "<|im_start|>user\nq<|im_end|>\n<|im_start|>assistant\n"
WORDS = {"<|im_start|>": 1, "<|im_end|>": 2}


@pytest.fixture(autouse=True)
def _no_key(monkeypatch):
    monkeypatch.delenv("ACCREDIT_API_KEY", raising=False)
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)


def _encode(text: str) -> list[int]:
    """A tokenizer of 50 ids: two special ones, and letters by their code."""
    for word, i in WORDS.items():
        text = text.replace(word, chr(i))
    return [ord(c) if ord(c) < 3 else 3 + ord(c) % 47 for c in text]


def _served(path, body):
    """vLLM, with a tokenizer whose texts are known: it decodes what it has encoded."""
    if path == "/tokenize":
        ids = _encode(body["prompt"])
        _served.known[tuple(ids)] = body["prompt"]
        return ok({"tokens": ids})
    if path == "/detokenize":
        return ok({"prompt": _served.known[tuple(body["tokens"])]})
    return vllm(path, body)


_served.known = {tuple(_encode("user\nq")): "user\nq", tuple(_encode("assistant\n")): "assistant\n"}


def _rollouts():
    step = {
        "prompt_tokens": _encode(CHAT),
        "tokens": [7, 9, 2],
        "action": "go",
        "logprobs": [-1.0, -2.0, -3.0],
    }
    return [
        {"id": name, "group": "g", "reward": reward, "steps": [step]}
        for name, reward in (("a", 0.0), ("b", 1.0))
    ]


def _by_hand(prompt: list[int]) -> np.ndarray:
    ids = np.array([*prompt, 7, 9, 2])
    ask = ProbeRequest(ids, (Span(0, len(prompt), ids.size),), Want(logprob=True))
    return next(iter(MODEL.score([ask]))).logprob


def test_a_server_scores_the_recorded_tokens(accredit, write, tmp_path):
    out = tmp_path / "scored.jsonl"
    with serving(_served) as server:
        done = accredit("probe", write(_rollouts()), "--from-endpoint", server.url, "-o", out)
    assert 1 == done.code, done.err  # it is far from what was recorded
    found = ac.read(str(out))
    np.testing.assert_allclose(np.tile(_by_hand(_encode(CHAT)), 2), found.probe_logprob_T, rtol=1e-5)
    assert [-1.0, -2.0, -3.0] * 2 == found.logprob_T.tolist()
    assert "endpoint:vllm" == found.column("probe_logprob_T").provenance["backend"]


def test_a_named_context_is_told_and_scored_beside_the_plain_one(accredit, write, tmp_path):
    out = tmp_path / "scored.jsonl"
    with serving(_served) as server:
        args = ("--from-endpoint", server.url, "--context", "peer", "--paired", "--set", "success=1")
        done = accredit("probe", write(_rollouts()), *args, "-o", out, "--json")
    assert 1 == done.code, done.err  # it is far from what was recorded
    found = ac.read(str(out))
    told = "A successful attempt at this task took these actions:\n1. go\n\nq"
    prompt = _encode(CHAT.replace("q", told, 1))
    np.testing.assert_allclose(_by_hand(prompt), found.logprobs_teacher_T[:3], rtol=1e-5)
    np.testing.assert_array_equal(found.logprob_T[3:], found.logprobs_teacher_T[3:])
    assert [-1.0, -2.0, -3.0] * 2 == found.sampler_logprobs_T.tolist()
    assert {"ACC758", "ACC764"} == {f["code"] for f in done.json()["findings"]}
    assert "sampler_logprobs_T" == done.json()["drift"]["recorded"]
    assert not list(tmp_path.glob("*.probe*"))


def test_several_contexts_share_the_plain_one(accredit, write, tmp_path):
    out = tmp_path / "scored.jsonl"
    with serving(_served) as server:
        args = ("--from-endpoint", server.url, "--context", "peer,outcome", "--paired", "-o", out)
        assert 1 == accredit("probe", write(_rollouts()), *args).code
    found = ac.read(str(out))
    assert {"peer", "outcome"} == {
        found.column(f"{name}_T").provenance["context"] for name in ("logprobs_teacher", "logprobs_hindsight")
    }
    # The plain prompt that both share, the failure's with a peer, and two outcomes.
    assert 4 == len(server.completions())
    assert not list(tmp_path.glob("*.probe*"))


def test_what_a_server_does_not_give_is_refused_with_the_reason(accredit, write, tmp_path):
    with serving(_served) as server:
        args = ("probe", write(_rollouts()), "--from-endpoint", server.url, "-o", tmp_path / "x.jsonl")
        done = accredit(*args, "--want", "entropy")
        assert 4 == done.code
        assert "entropy_bounds" in done.err
        assert 2 == accredit(*args, "--temperature", "0.7").code
        assert 2 == accredit(*args, "--context", "outcom").code
        assert 2 == accredit(*args, "--context", "peer,outcome").code  # not without --paired
        assert 2 == accredit(*args, "--context", "peer", "--set", "sucess=1").code


def test_a_budget_stops_the_job_and_another_goes_on(accredit, write, tmp_path):
    out = tmp_path / "scored.jsonl"
    made = _rollouts()
    made[1]["steps"][0] = {**made[1]["steps"][0], "prompt_tokens": _encode(CHAT) * 500}
    with serving(lambda path, body: vllm(path, body, longest=50_000)) as server:
        args = ("probe", write(made), "--from-endpoint", server.url, "-o", out, "--concurrency", 1)
        done = accredit(*args, "--max-tokens", "100")
        assert 4 == done.code
        assert "budget of 100 tokens" in done.err
        assert not out.exists()
        before = len(server.completions())
        assert 1 == accredit(*args, "--resume").code
        assert 1 == len(server.completions()) - before  # the first one was kept
    assert 6 == ac.read(str(out)).n_tokens


def test_a_server_that_is_not_well_is_exit_code_4_and_shows_no_key(accredit, write, tmp_path, monkeypatch):
    monkeypatch.setenv("ACCREDIT_API_KEY", "sk-secret-9876")
    with serving(lambda path, body: error(401, message="bad key sk-secret-9876")) as server:
        done = accredit(
            "probe", write(_rollouts()), "--from-endpoint", server.url, "-o", tmp_path / "x.jsonl"
        )
    assert 4 == done.code
    assert "ACCREDIT_API_KEY" in done.err
    assert "sk-secret" not in done.err + done.out


def test_a_belief_is_read_before_each_step_and_forks_are_chosen_by_it(accredit, write, tmp_path):
    """A server of 50 ids; `belief-shift` plans with what it wrote."""
    steps = [{"prompt_tokens": [*_encode(CHAT), 7 + t], "tokens": [7, 9], "action": f"{t}"} for t in range(4)]
    records = [{"id": name, "group": "g", "reward": 0.0, "steps": steps} for name in "ab"]

    def served(path, body):
        return ok({"prompt": f"<{body['tokens'][0]}>"}) if "detok" in path else _served(path, body)

    out = tmp_path / "read.jsonl"
    with serving(served) as server:
        args = ("probe", write(records), "--from-endpoint", server.url, "-o", out, "--want", "belief:3")
        done = accredit(*args, "--set", "suffix=So it is", "--json")
        assert 0 == done.code, done.err
        assert 2 == accredit(*args, "--set", "sufix=x").code
        assert 2 == accredit(*args, "--context", "outcome").code
        assert 2 == accredit(*args, "--paired").code
    assert ["belief_S"] == list(done.json()["columns"])
    assert {"all": 8, "scored": 8} == done.json()["steps"]
    found = ac.read(str(out))
    ids = np.array([*_encode(CHAT), 7, *_encode("\nSo it is"), 0])
    ask = ProbeRequest(ids, (Span(0, ids.size - 1, ids.size),), Want(topk=3))
    [scores] = MODEL.score([ask])
    expected = {
        f"<{i}>": float(np.exp(x)) for i, x in zip(scores.topk_ids[0], scores.topk_logprobs[0], strict=True)
    }
    assert expected == pytest.approx(found.belief_S[0], rel=1e-5)
    shifts = [probe_js(a, b) for a, b in itertools.pairwise(found.belief_S[:4])]
    assert [int(np.argmax(shifts))] * 2 == Index(found).position_S[belief_forks()(Index(found), 0)].tolist()
