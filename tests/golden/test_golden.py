"""The golden files pass, and the runner fails on whatever it cannot honour."""

import copy
import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.golden.runner import run_content, run_file

HERE = Path(__file__).parent
FILES = sorted((HERE / "data").glob("*.json"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_golden_values_are_met(path):
    outcome = run_file(path)
    assert "" == outcome.reason
    assert outcome.values > 0


@pytest.fixture
def content():
    return json.loads((HERE / "data" / "grpo-1.json").read_text())


def _fails_with(content, words):
    outcome = run_content("made-up.json", content)
    assert words in outcome.reason
    assert outcome.line().startswith("FAIL made-up.json ")


def test_a_changed_value_fails_with_its_place(content):
    content["expected"]["tokens"][1][0][1] += 1e-3
    _fails_with(content, "tokens[1][0][1]: expected ")


def test_every_single_value_is_compared(content):
    for r, steps in enumerate(content["expected"]["tokens"]):
        for t, tokens in enumerate(steps):
            for k in range(len(tokens)):
                changed = copy.deepcopy(content)
                changed["expected"]["tokens"][r][t][k] += 2e-6
                _fails_with(changed, f"tokens[{r}][{t}][{k}]")


def test_a_difference_within_the_tolerance_passes(content):
    content["expected"]["tokens"][1][0][1] += 0.9e-6
    assert "" == run_content("made-up.json", content).reason


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_an_unknown_param_fails(path):
    content = json.loads(path.read_text())
    content["params"]["new_param"] = 1
    _fails_with(content, "unknown param 'new_param' = 1")


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_an_unknown_expected_key_fails(path):
    content = json.loads(path.read_text())
    content["expected"]["new_key"] = [1.0]
    _fails_with(content, "unknown expected key 'new_key'")


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_missing_rollout_fails(path):
    content = json.loads(path.read_text())
    content["rollouts"].pop()
    assert run_content("made-up.json", content).reason


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_every_expected_key_is_compared(path):
    content = json.loads(path.read_text())
    for key in content["expected"]:
        changed = copy.deepcopy(content)
        values = changed["expected"][key]
        if isinstance(values, float):
            changed["expected"][key] = values + 1.0
            _fails_with(changed, f"{key}: expected ")
            continue
        last = len(values) - 1 if isinstance(values, list) else next(reversed(values))
        values[last] = None
        _fails_with(changed, f"{key}[{last}]: expected " if isinstance(values, list) else f"{key}")


def test_an_unknown_method_fails(content):
    content["method"] = "grpo2"
    _fails_with(content, "unknown method 'grpo2'")


def test_an_unknown_input_fails(content):
    content["turn_values"] = [1.0]
    _fails_with(content, "unknown input 'turn_values'")


def test_a_missing_token_fails(content):
    content["expected"]["tokens"][0][0].pop()
    _fails_with(content, "tokens[0][0]: expected 4 entries, got 5")


@pytest.mark.parametrize("value", [None, float("nan"), "0.0", True])
def test_an_expected_value_that_is_no_number_fails(content, value):
    content["expected"]["tokens"][0][0][0] = value
    _fails_with(content, "tokens[0][0][0]: expected is " if value is None or value != value else "got 0.0")


@pytest.mark.parametrize("expected", [{}, {"tokens": []}])
def test_nothing_expected_fails(content, expected):
    content["expected"] = expected
    assert run_content("made-up.json", content).reason


@pytest.mark.parametrize("key", ["method", "params", "rollouts", "expected", "tolerance"])
def test_an_absent_part_fails(content, key):
    del content[key]
    _fails_with(content, f"has no '{key}'")


def test_a_rollout_that_cannot_be_read_fails(content):
    content["rollouts"][0]["steps"][0]["logprobs"].pop()
    _fails_with(content, "1 rollouts cannot be read")


def test_a_text_param_with_another_meaning_fails(content):
    content["params"]["single_rollout_group"] = "mean of the batch"
    _fails_with(content, "param 'single_rollout_group' is 'mean of the batch'")


def test_a_group_size_that_the_groups_do_not_have_fails():
    content = json.loads((HERE / "data" / "grpo-4.json").read_text())
    content["params"]["group_size"] = 8
    _fails_with(content, "param 'group_size' is 8, but the groups have [4] rollouts")


def test_names_of_files_mean_nothing(content):
    assert run_content("rloo-1.json", content).reason == ""


def _run(*arguments):
    command = [sys.executable, "-m", "tests.golden", *map(str, arguments)]
    return subprocess.run(command, cwd=HERE.parents[1], capture_output=True, text=True)


def test_the_runner_counts_and_exits(tmp_path, content):
    content["expected"]["tokens"][0][0][0] = 7.5
    (tmp_path / "bad.json").write_text(json.dumps(content))
    (tmp_path / "broken.json").write_text("{")
    done = _run(HERE / "data" / "grpo-2.json", tmp_path / "bad.json", tmp_path / "broken.json")
    lines = done.stdout.splitlines()
    assert 1 == done.returncode
    assert lines[0].startswith("PASS grpo-2.json grpo 100 values max diff ")
    assert "FAIL bad.json grpo tokens[0][0][0]: expected 7.5, got 0.0 (tolerance 1e-06)" == lines[1]
    assert lines[2].startswith("FAIL broken.json ? cannot be read: ")
    assert "1 passed, 2 failed" == lines[3]
    assert 0 == _run(HERE / "data" / "grpo-2.json").returncode
    assert 2 == _run().returncode
