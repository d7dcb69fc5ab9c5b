"""Golden params of the outcome methods: each value is honoured, or the file fails."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.golden.runner import run_content

DATA = Path(__file__).parent / "data"


def load(name: str, **params: Any) -> dict[str, Any]:
    content = json.loads((DATA / f"{name}.json").read_text())
    content["params"] |= params
    return content


def change(content: dict[str, Any], rule: Callable[[float, int], float]) -> dict[str, Any]:
    """Return the content with every expected value v of rollout r replaced by rule(v, r)."""

    def walk(value: Any, r: int) -> Any:
        return [walk(v, r) for v in value] if isinstance(value, list) else rule(value, r)

    changed = copy.deepcopy(content)
    for key, rows in content["expected"].items():
        changed["expected"][key] = [walk(row, r) for r, row in enumerate(rows)]
    return changed


def scores(content: dict[str, Any]) -> np.ndarray:
    return np.array([r["reward"] + sum(s["reward"] for s in r["steps"]) for r in content["rollouts"]], float)


def groups(content: dict[str, Any]) -> list[np.ndarray]:
    names = np.array([r["group"] for r in content["rollouts"]])
    return [names == names[r] for r in range(names.size)]


def sizes(content: dict[str, Any]) -> list[int]:
    return [int(same.sum()) for same in groups(content)]


def passes(content: dict[str, Any]) -> None:
    assert "" == run_content("made-up.json", content).reason


def fails(content: dict[str, Any], words: str) -> None:
    assert words in run_content("made-up.json", content).reason


@pytest.mark.parametrize("name", ["grpo-1", "grpo-3", "grpo-5"])
def test_epsilon_is_honoured(name: str) -> None:
    content = load(name)
    eps, s, same = content["params"]["epsilon"], scores(content), groups(content)

    def rule(value: float, r: int) -> float:
        own = s[same[r]] if name != "grpo-5" else s
        sd = own.std(ddof=1) if own.size > 1 else 1.0
        return value * (sd + eps) / (sd + 0.25)

    passes(change(load(name, epsilon=0.25), rule))
    fails(load(name, epsilon=0.25), "expected")


@pytest.mark.parametrize("name", ["grpo-1", "grpo-3"])
def test_norm_by_std_is_honoured(name: str) -> None:
    content = load(name, norm_by_std=False)
    s, same = scores(content), groups(content)
    passes(change(content, lambda _, r: s[r] - s[same[r]].mean() if same[r].sum() > 1 else s[r]))


@pytest.mark.parametrize("word", ["none", False])
def test_scale_rewards_none_is_honoured(word: Any) -> None:
    content = load("grpo-4", scale_rewards=word)
    s, same = scores(content), groups(content)
    passes(change(content, lambda _, r: s[r] - s[same[r]].mean()))


def test_normalize_advantages_is_honoured() -> None:
    fails(load("rloo-3", normalize_advantages=True), "expected")
    fails(load("rloo-4", normalize_advantages=False), "expected")


@pytest.mark.parametrize(
    ("name", "text", "factor"),
    [
        ("rloo-1", "0 (verl rloo_vectorized)", 0.0),
        ("rloo-1", "zero", 0.0),
        ("grpo-1", "0", 0.0),
        ("grpo-1", "raw score", 1.0),
        ("opo-1", "zero", 0.0),
        ("gpg-1", "alpha * S", 1.0),
    ],
)
def test_a_text_on_groups_of_one_is_honoured(name: str, text: str, factor: float) -> None:
    content = load(name, single_rollout_group=text)
    size = sizes(content)
    assert 1 in size
    passes(change(content, lambda value, r: value * factor if size[r] == 1 else value))


@pytest.mark.parametrize("f_norm", [2.0, 0.5])
def test_f_norm_is_honoured(f_norm: float) -> None:
    passes(change(load("gpg-1", f_norm=f_norm), lambda value, _: value / f_norm))


def test_gamma_is_honoured() -> None:
    fails(load("reinforce-pp-1", gamma=0.9), "expected")
    fails(load("reinforce-pp-2", gamma=1.0), "expected")
    fails(load("reinforce-pp-3", gamma=0.9), "param 'gamma' is 0.9; we do 1.0")


def test_baselines_are_honoured() -> None:
    content = load("remax-1")
    moved = {group: value + 1 for group, value in content["params"]["reward_baselines"].items()}
    passes(change(load("remax-1", reward_baselines=moved), lambda value, _: value - 1))
    fails(load("remax-1", reward_baselines={"g0": 0.5}), "reward_baselines has no group")


def test_several_rewards_of_trl_are_honoured() -> None:
    content = load("grpo-4", reward_weights=[2.0, 0.0])
    for record in content["rollouts"]:
        record["rewards"] = {"right": record["reward"] / 2, "style": 7.0}
    passes(content)
    fails(content | {"params": content["params"] | {"reward_weights": [1.0]}}, "'reward_weights' is [1.0]")
    content["params"]["multi_objective_aggregation"] = "normalize_then_sum"
    fails(content, "expected")


@pytest.mark.parametrize(
    ("name", "params", "words"),
    [
        ("grpo-1", {"variant": "new"}, "param 'variant' is 'new'"),
        ("grpo-1", {"norm_by_std": "yes"}, "'norm_by_std' must be true or false"),
        ("grpo-1", {"epsilon": "small"}, "'epsilon' must be a number"),
        ("grpo-2", {"norm_by_std": True}, "says mean only"),
        ("grpo-4", {"scale_rewards": "rollout"}, "param 'scale_rewards' is 'rollout'"),
        ("grpo-4", {"multi_objective_aggregation": "normalize_then_sum"}, "'multi_objective_aggregation'"),
        ("grpo-passk-1", {"k": 4}, "param 'k' is 4; we do 1"),
        ("rloo-3", {"group_size": 8}, "param 'group_size' is 8"),
        ("rloo-1", {"single_rollout_group": 1}, "param 'single_rollout_group' is 1"),
        ("opo-1", {"length": "characters"}, "param 'length' is 'characters'"),
        ("gpg-1", {"alpha": 2.0}, "param 'alpha' is 2.0"),
        ("gpg-1", {"convention": 3}, "param 'convention' should be a text"),
    ],
)
def test_a_value_that_we_do_not_honour_fails(name: str, params: dict[str, Any], words: str) -> None:
    fails(load(name, **params), words)
