"""Golden files of the methods on process rewards: mt-grpo, prm."""

from __future__ import annotations

from typing import Any

from tests.golden.interface import (
    Call,
    Golden,
    GoldenError,
    adapts,
    rollout_extra,
    step_extra,
    steps,
    token_extra,
    tokens,
)

SAMPLE = "sample (ddof=1)"
MERGED = "turn_reward + reward (weights 1)"


@adapts("mt-grpo")
def mt_grpo(golden: Golden) -> Call:
    golden.no_effect("note")
    golden.must_be("std", SAMPLE)
    golden.must_be("combined_reward", MERGED)
    kwargs: dict[str, Any] = {
        "variant": golden.one_of("variant", {"code": "code", "paper": "paper"}),
        "eps": golden.number("eps", 1e-4),
    }
    for name in ("turn_advantage_coef", "alpha"):
        if name in golden.params:
            kwargs[name] = golden.number(name)
    if "align" in golden.params:
        kwargs["align"] = golden.one_of("align", {"turn": "turn", "state": "state"})
    return Call("mt-grpo", kwargs, {"steps": steps, "tokens": tokens})


# The authors' code of PURE puts one separator token after each step.
PURE = {"temperature": "tau", "verifiable_reward_coef": "verifier_coef"}
PRIME = {
    "reward_model_gamma": "gamma",
    "verifier_gamma": "verifier_gamma",
    "norm_eps": "norm_eps",
    "whiten_eps": "whiten_eps",
    "beta": "beta",
}
NORMS = {"batch_norm": "batch", None: "none", "none": "none"}


@adapts("prm")
def prm(golden: Golden) -> Call:
    golden.no_effect("note")
    rule = golden.one_of("variant", {name: name for name in ("prime", "prime-code", "pure")})
    kwargs = _pure(golden) if rule == "pure" else _prime(golden, rule)
    read = {
        "steps": steps,
        "tokens": tokens,
        "weighted_rewards": step_extra("weighted_rewards"),
        "returns": token_extra("returns"),
        "solution_product": rollout_extra("solution_product"),
        "solution_minimum": rollout_extra("solution_minimum"),
    }
    return Call("prm", {"rule": rule, "outcome_in_steps": "no"} | kwargs, read)


def _pure(golden: Golden) -> dict[str, Any]:
    kwargs: dict[str, Any] = {"source": "scores", "separator": int(golden.number("separator", 1))}
    kwargs |= {ours: golden.number(theirs) for theirs, ours in PURE.items() if theirs in golden.params}
    kwargs["weighted"] = golden.flag("weighted", default=True)
    kwargs["baseline"] = golden.one_of("baseline", {"token": "token", "step": "step"}, "token")
    modes = {mode: mode for mode in ("PRMVR", "PRM", "VR")}
    return kwargs | {"reward_mode": golden.one_of("reward_mode", modes, "PRMVR")}


def _prime(golden: Golden, rule: str) -> dict[str, Any]:
    kwargs: dict[str, Any] = {"source": "logratio"}
    kwargs |= {ours: golden.number(theirs) for theirs, ours in PRIME.items() if theirs in golden.params}
    if rule == "prime-code":
        kwargs["prime_norm"] = golden.one_of("prime_norm", NORMS, "batch_norm")
    granularity = {"token": "token", "whole": "whole"}
    if "granularity" in golden.params:
        kwargs["granularity"] = golden.one_of("granularity", granularity)
    if "prime_granularity" in golden.params:
        kwargs["granularity"] = golden.one_of("prime_granularity", granularity)
    _check_group_sizes(golden)
    return kwargs


def _check_group_sizes(golden: Golden) -> None:
    """The authors' code takes every `n_samples` rollouts as a group; here a group is a group."""
    if "n_samples" not in golden.params:
        return
    size = golden.number("n_samples")
    groups = [record["group"] for record in golden.records]
    odd = {groups.count(group) for group in groups} - {size}
    if odd:
        raise GoldenError(f"n_samples is {size}, and there are groups of {sorted(odd)}")
