"""Golden files of the methods on shared states: gigpo (verl-agent, ROLL) and hgpo."""

from __future__ import annotations

from typing import Any

from tests.golden.interface import Call, Golden, adapts, step_extra, steps

MODES = {"mean_norm": "mean_norm", "mean_std_norm": "mean_std_norm"}
READ = {
    "steps": steps,
    "returns": step_extra("returns"),
    "episode_part": step_extra("episode_part"),
    "step_part": step_extra("step_part"),
    "step_group": step_extra("step_group"),
}
# Both sources add the outcome to the last step's reward, whatever the step rewards add up to.
REWARDS: dict[str, Any] = {"outcome_in_steps": "no"}


@adapts("gigpo")
def gigpo(golden: Golden) -> Call:
    golden.no_effect("convention", "note")
    variant = golden.one_of("variant", {"verl-agent": "verl-agent", "roll": "roll"}, "verl-agent")
    kwargs = REWARDS | {
        "compat": variant,
        "gamma": golden.number("gamma"),
        "step_weight": golden.number("step_weight", 1.0),
        "eps": golden.number("epsilon", 1e-6),
    }
    return Call("gigpo", kwargs | (_roll(golden) if variant == "roll" else _verl_agent(golden)), READ)


def _verl_agent(golden: Golden) -> dict[str, Any]:
    golden.must_be(
        "similarity_engine",
        "difflib.SequenceMatcher(None, new_state, cluster_representative).ratio() with its default autojunk",
    )
    similarity = golden.get("similarity", None)
    return {
        "mode": golden.one_of("mode", MODES),
        "episode_stats": golden.one_of("episode_stats_over", {"steps": "steps", "rollouts": "rollouts"}),
        "similarity": None if similarity is None else golden.number("similarity"),
    }


def _roll(golden: Golden) -> dict[str, Any]:
    golden.must_be("zero_std", "advantage 0 when the group has one member or std <= 1e-6")
    return {
        "mode": golden.one_of("method", {"mean": "mean_norm", "mean_std": "mean_std_norm"}),
        "episode_weight": golden.number("episode_weight", 1.0),
        "pool_across_groups": golden.flag("step_groups_pool_across_tasks", default=True),
        "episode_stats": golden.one_of("episode_stats_over", {"steps": "steps"}, "steps"),
    }


@adapts("hgpo")
def hgpo(golden: Golden) -> Call:
    golden.no_effect("convention", "note")
    golden.must_be("std", "population (ddof 0) for history groups, unbiased for the base group")
    kwargs = REWARDS | {
        "compat": "code",
        "gamma": golden.number("gamma"),
        "history_length": golden.number("history_length"),
        "mode": golden.one_of("mode", MODES),
        "length_weight_alpha": golden.number("length_weight_alpha", 1.0),
        "base_group": golden.flag("base_group", default=False),
        "eps": golden.number("epsilon", 1e-6),
    }
    return Call("hgpo", kwargs, {"steps": steps, "returns": step_extra("returns")})
