"""Golden files of the methods on process rewards: mt-grpo, prm."""

from __future__ import annotations

from typing import Any

from tests.golden.interface import Call, Golden, adapts, steps, tokens

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
