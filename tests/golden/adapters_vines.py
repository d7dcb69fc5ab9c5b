"""Golden files of vineppo."""

from __future__ import annotations

from tests.golden.interface import Call, Golden, adapts, steps, tokens


@adapts("vineppo")
def vineppo(golden: Golden) -> Call:
    golden.no_effect("note", "convention")
    golden.number("K")  # the lists say how many there are
    golden.must_be("gamma", 1.0)
    most = golden.get("max_step_for_value_estimation", None)
    kwargs = {
        "unfinished_reward": golden.number("truncated_reward", 0.0),
        "max_step": None if most is None else golden.number("max_step_for_value_estimation"),
        "missing": "fill",
        "on_empty": "zero",
        "outcome_in_steps": "no",
    }
    return Call("vineppo", kwargs, {"steps": steps, "tokens": tokens})
