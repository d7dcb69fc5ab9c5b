"""`accredit probe` with a fake model: files, tables, exit codes, a job that did not end."""

from __future__ import annotations

import pytest

import accredit as ac
import accredit.signals.rescore as rescore
from accredit.signals import FakeBackend

STEPS = [{"prompt_tokens": [1, 2, 3], "tokens": [4, 5], "logprobs": [-1.0, -2.0]}]
ROWS = [{"id": f"r{i}", "group": "g", "reward": float(i), "steps": STEPS} for i in range(2)]
BARE = [*ROWS, {"id": "bare", "group": "g", "reward": 0.0, "steps": [{"tokens": [1]}]}]


class _Model(FakeBackend):
    """A fake model that can be interrupted."""

    batch_tokens = 1
    interrupted = False

    def score(self, requests):
        yield from super().score(requests)
        if self.interrupted:
            raise KeyboardInterrupt


@pytest.fixture
def model(monkeypatch):
    """What `--model` names in these tests; returns the options that it was given."""
    asked = {}

    def made(name, **options):
        asked.update(options, model=name)
        return _Model(7)

    monkeypatch.setattr("accredit.signals.backend_of", made)
    monkeypatch.setattr(rescore, "backend_of", lambda backend, **options: backend)
    return asked


def test_columns_are_written_and_drift_and_alignment_are_told(accredit, write, model, tmp_path):
    out = tmp_path / "out.parquet"
    done = accredit("probe", write(ROWS), "--model", "m", "--want", "logprob,entropy,hidden", "-o", out)
    assert "2 of 2 steps scored" in done.out
    assert "drift |logprob_T - probe_logprob_T| over 4 tokens of 2 rollouts: mean " in done.out
    assert "shift -1: " in done.out
    batch = ac.read(str(out))
    assert {"probe_logprob_T", "entropy_T", "hidden_T", "logprob_T"} <= set(batch.columns)
    assert not (tmp_path / "out.parquet.probe").exists()
    assert "m" == model["model"]


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("-o", "out.xyz"), 3, "ACC913"),
        (("-o", "out.jsonl", "--context", "outcom"), 2, "Did you mean 'outcome'?"),
        (("-o", "out.jsonl", "--want", "logprobs"), 2, "logprob"),
    ],
)
def test_a_slip_is_told_before_the_model_is_loaded(accredit, write, model, words, code, said):
    """The name of the result was refused after the last token had been scored."""
    done = accredit("probe", write(ROWS), "--model", "m", *words)
    assert (code, True, {}) == (done.code, said in done.err, model)


def test_options_reach_the_model(accredit, write, model, tmp_path):
    accredit("probe", write(ROWS), "--model", "m", "-o", tmp_path / "o.jsonl", "--dtype", "bfloat16",
             "--head-dtype", "model", "--device", "cpu",
             "--temperature", "0.5", "--batch-tokens", "64")  # fmt: skip
    assert {
        "dtype": "bfloat16",
        "head_dtype": "model",
        "temperature": 0.5,
        "batch_tokens": 64,
        "device": "cpu",
        "model": "m",
    } == model


def test_drift_and_unscored_steps_are_findings_and_end_with_1(accredit, write, model, tmp_path):
    done = accredit("probe", write(BARE), "--model", "m", "-o", tmp_path / "o.jsonl", "--json")
    assert 1 == done.code
    told = done.json()
    assert {"ACC751", "ACC758"} <= {f["code"] for f in told["findings"]}
    assert {"all": 3, "scored": 2} == told["steps"]
    assert ["r0", "r1"] == sorted(row["rollout"] for row in told["drift"]["rollouts"])
    assert {"ACC751", "ACC758"} <= {f.code for f in ac.read(str(tmp_path / "o.jsonl")).findings}


def test_no_drift_within_the_tolerance_that_is_given(accredit, write, model, tmp_path):
    args = ("probe", write(ROWS), "--model", "m", "-o", tmp_path / "o.jsonl", "--tolerance", "50", "--json")
    assert "ACC758" not in {f["code"] for f in accredit(*args).json()["findings"]}


def test_an_interrupted_probe_says_how_to_go_on_and_goes_on(accredit, write, model, tmp_path, monkeypatch):
    rows = [{**ROWS[0], "id": f"r{i}", "steps": [{**STEPS[0], "prompt_tokens": [i, 1]}]} for i in range(4)]
    out = tmp_path / "o.jsonl"
    args = ("probe", write(rows), "--model", "m", "-o", out)
    monkeypatch.setattr(_Model, "interrupted", True)
    done = accredit(*args)
    assert 130 == done.code
    assert "--resume goes on from there" in done.err
    assert not out.exists()
    monkeypatch.setattr(_Model, "interrupted", False)
    again = accredit(*args)
    assert 3 == again.code
    assert "ACC757" in again.err
    assert accredit(*args, "--resume").code in (0, 1)
    assert out.exists()
    assert not (tmp_path / "o.jsonl.probe").exists()


@pytest.mark.parametrize(
    ("args", "code", "says"),
    [
        (("-o", "OUT"), 2, "Missing option '--model'"),
        (("--model", "m"), 2, "Missing option"),
        (("--model", "m", "-o", "FILE"), 2, "would replace the rollouts"),
        (("--model", "m", "-o", "OUT", "--want", "logprobs"), 2, "Did you mean 'logprob'"),
        (("--model", "m", "-o", "OUT", "--temperature", "0"), 2, "--temperature"),
    ],
)
def test_usage_errors_name_what_is_meant(accredit, write, model, tmp_path, args, code, says):
    file = write(ROWS)
    names = {"FILE": file, "OUT": str(tmp_path / "o.jsonl")}
    done = accredit("probe", file, *(names.get(a, a) for a in args))
    assert code == done.code
    assert says in done.err


def test_a_model_that_is_not_there_ends_with_4(accredit, write, tmp_path):
    done = accredit("probe", write(ROWS), "--model", "nobody/nothing", "-o", tmp_path / "o.jsonl")
    assert 4 == done.code
    assert "ACC756" in done.err
