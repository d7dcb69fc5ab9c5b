"""``--allow-retokenized`` of every verb that reads rollouts."""

from __future__ import annotations

import json

import pytest

from tests.readers.test_retokenize import TRIMMED, _chat


@pytest.fixture
def texts(write):
    return write([_chat("find", "look", id=f"r{i}", reward=float(i)) for i in range(2)])


@pytest.fixture
def tokenizer(tmp_path):
    TRIMMED.save(str(tmp_path / "tokenizer.json"))
    return tmp_path / "tokenizer.json"


@pytest.mark.parametrize(
    "args",
    [("check",), ("assign", "-m", "grpo"), ("compare", "-m", "grpo", "-m", "rloo"), ("show",), ("plan",)],
    ids=lambda a: a[0],
)
def test_every_verb_takes_it(accredit, texts, tokenizer, args):
    assert accredit(args[0], texts, *args[1:], "--allow-retokenized", tokenizer, "--json").code in (0, 1)
    done = accredit(args[0], texts, *args[1:], "--allow-retokenized", "nowhere.json")
    assert (3, True) == (done.code, "ACC865" in done.err)


def test_a_token_method_runs_that_could_not(accredit, texts, tokenizer):
    assert 3 == accredit("assign", texts, "-m", "reinforce-pp").code
    done = accredit("assign", texts, "-m", "reinforce-pp", "--allow-retokenized", tokenizer)
    assert 0 == done.code
    assert "ACC864" in done.out


def test_convert_writes_the_ids_with_their_mark(accredit, texts, tokenizer, tmp_path):
    out = tmp_path / "out.jsonl"
    assert 0 == accredit("convert", texts, out, "--allow-retokenized", tokenizer).code
    lines = [json.loads(line) for line in out.read_text().splitlines()]
    assert all(line["tokens_inferred"] == 1 for line in lines[1:])
    assert "look" == TRIMMED.decode(lines[1]["steps"][0]["tokens"])
