"""Golden files of the outcome methods: grpo, grpo-passk, rloo, reinforce-pp, opo, remax, gpg."""

from __future__ import annotations

import re
from itertools import groupby
from typing import Any

from tests.golden.interface import Call, Golden, GoldenError, adapts, steps, tokens

READ = {"steps": steps, "tokens": tokens}
# verl's and TRL's scores are step rewards plus outcome, whatever they add up to.
REWARDS: dict[str, Any] = {"outcome_in_steps": "no"}
# What the files say of a group of one -> our policy; the first pattern that is found decides.
SINGLETONS = (
    (r"^(0|zero)\b", "zero"),
    (r"raw|baseline 0|mean (is )?0|alpha \* S", "raw"),
)
TRL_SCALE = {"group": "group", True: "group", "batch": "batch", "none": "none", False: "none"}


def _singleton(golden: Golden, default: str) -> str:
    said = golden.get("single_rollout_group", default)
    for pattern, policy in SINGLETONS:
        if isinstance(said, str) and re.search(pattern, said):
            return policy
    raise GoldenError(
        f"param 'single_rollout_group' is {said!r}; known are texts with '0', 'mean 0' or 'raw'"
    )


def _groups_of(golden: Golden) -> None:
    """Check that rollouts come in consecutive groups of `group_size`, as TRL takes them."""
    if "group_size" not in golden.params:
        return
    size = golden.number("group_size")
    blocks = [len(list(rows)) for _, rows in groupby(golden.records, key=lambda record: record["group"])]
    names = len({record["group"] for record in golden.records})
    if any(n != size for n in blocks) or names != len(blocks):
        raise GoldenError(f"param 'group_size' is {size}, but the groups have {sorted(set(blocks))} rollouts")


@adapts("grpo")
def grpo(golden: Golden) -> Call:
    golden.no_effect("convention", "note")
    kinds = {
        "grpo": "verl",
        "verl": "verl",
        "grpo_vectorized": "verl",
        "vectorized": "verl",
        "Dr.GRPO advantage (mean only)": "verl-mean",
        "Dr.GRPO": "verl-mean",
        "dr-grpo": "verl-mean",
        "trl": "trl",
    }
    kind = golden.one_of("variant", kinds, "grpo")
    return Call("grpo", _trl_grpo(golden) if kind == "trl" else _verl_grpo(golden, kind), READ)


def _verl_grpo(golden: Golden, kind: str) -> dict[str, Any]:
    by_std = golden.flag("norm_by_std", default=kind == "verl")
    if by_std and kind == "verl-mean":
        raise GoldenError("param 'variant' says mean only, but 'norm_by_std' is true")
    return REWARDS | {
        "compat": "verl",
        "scale": "group" if by_std else "none",
        "eps": golden.number("epsilon", 1e-6),
        "singleton": _singleton(golden, "raw"),
    }


def _trl_grpo(golden: Golden) -> dict[str, Any]:
    _groups_of(golden)
    found = REWARDS | {
        "compat": "trl",
        "scale": golden.one_of("scale_rewards", TRL_SCALE, "group"),
        "eps": golden.number("epsilon", 1e-4),
        "singleton": _singleton(golden, "zero"),
    }
    several = any(record.get("rewards") for record in golden.records)
    if several:
        ways = {name: name for name in ("sum_then_normalize", "normalize_then_sum")}
        found["combine"] = golden.one_of("multi_objective_aggregation", ways, "sum_then_normalize")
        found["weights"] = _weights(golden)
    else:
        golden.must_be("multi_objective_aggregation", "sum_then_normalize")
    return found


def _weights(golden: Golden) -> dict[str, float] | None:
    given = golden.get("reward_weights", None)
    if given is None or isinstance(given, dict):
        return given
    names = list(dict.fromkeys(name for record in golden.records for name in record.get("rewards") or {}))
    if not isinstance(given, list) or len(given) != len(names):
        raise GoldenError(f"param 'reward_weights' is {given!r} for the rewards {', '.join(names)}")
    return dict(zip(names, given, strict=True))


@adapts("grpo-passk")
def grpo_passk(golden: Golden) -> Call:
    golden.no_effect("convention", "note")
    golden.must_be("k", 1)
    by_std = golden.flag("norm_by_std", default=True)
    kwargs = {
        "scale": "group" if by_std else "none",
        "eps": golden.number("epsilon", 1e-6),
        "singleton": _singleton(golden, "zero"),
    }
    return Call("grpo-passk", REWARDS | kwargs, READ)


@adapts("rloo")
def rloo(golden: Golden) -> Call:
    golden.no_effect("convention", "note")
    kinds = {"rloo": "raw", "verl": "raw", "rloo_vectorized": "zero", "vectorized": "zero", "trl": "zero"}
    singleton = golden.one_of("variant", kinds, "rloo")
    _groups_of(golden)
    kwargs = {
        "singleton": _singleton(golden, singleton),
        "normalise": golden.flag("normalize_advantages", default=False),
        "eps": golden.number("epsilon", 1e-4),
    }
    return Call("rloo", REWARDS | kwargs, READ)


@adapts("reinforce-pp")
def reinforce_pp(golden: Golden) -> Call:
    golden.no_effect("convention", "note")
    kinds = {
        "reinforce_plus_plus": "returns",
        "returns": "returns",
        "reinforce_plus_plus_baseline": "baseline",
        "baseline": "baseline",
    }
    variant = golden.one_of("variant", kinds, "reinforce_plus_plus")
    kwargs: dict[str, Any] = {"variant": variant, "eps": golden.number("epsilon", 1e-8)}
    if variant == "baseline":
        golden.must_be("gamma", 1.0)
        kwargs["singleton"] = _singleton(golden, "raw")
    else:
        kwargs["gamma"] = golden.number("gamma", 1.0)
    return Call("reinforce-pp", REWARDS | kwargs, READ)


@adapts("opo")
def opo(golden: Golden) -> Call:
    golden.no_effect("convention", "note")
    golden.must_be("length", "number of policy tokens")
    return Call("opo", REWARDS | {"singleton": _singleton(golden, "raw")}, READ)


@adapts("remax")
def remax(golden: Golden) -> Call:
    golden.no_effect("convention", "note")
    return Call("remax", REWARDS | {"reward_baselines": golden.get("reward_baselines")}, READ)


@adapts("gpg")
def gpg(golden: Golden) -> Call:
    golden.no_effect("convention", "note")
    golden.must_be("alpha", "batch size / number of nonzero scores")
    kwargs = {"f_norm": golden.number("f_norm", 1.0), "singleton": _singleton(golden, "raw")}
    return Call("gpg", REWARDS | kwargs, READ)
