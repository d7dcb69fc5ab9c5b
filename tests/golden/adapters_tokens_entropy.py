"""Golden files of the token methods on entropy: eapo, entropy-top, gtpo, gtpo-conflict, lambda-grpo."""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from accredit import assign
from accredit.data import Credit
from tests.golden.interface import (
    Call,
    Golden,
    GoldenError,
    Reader,
    adapts,
    by_rollout,
    by_step,
    by_token,
    steps,
    token_extra,
    tokens,
)

# Their outcome counts once, where the last step's reward repeats it.
BASE = re.compile(r"^grpo: \(r-mean\)/\(std_ddof1\+(\d+(?:\.\d+)?(?:e-?\d+)?)\)$")


def _base(golden: Golden) -> str:
    said = golden.get("base", "grpo: (r-mean)/(std_ddof1+1e-4)")
    found = BASE.match(said) if isinstance(said, str) else None
    if found is None:
        raise GoldenError(f"param 'base' is {said!r}; known is grpo: (r-mean)/(std_ddof1+eps)")
    return f"grpo:eps={float(found[1])!r}"


def _quantiles(golden: Golden) -> tuple[float, float]:
    said = golden.get("quantiles", [0.1, 0.9])
    if not (isinstance(said, list) and len(said) == 2 and all(isinstance(q, int | float) for q in said)):
        raise GoldenError(f"param 'quantiles' must be two numbers, got {said!r}")
    return said[0], said[1]


@adapts("eapo")
def eapo(golden: Golden) -> Call:
    golden.no_effect("convention", "note")
    low, high = _quantiles(golden)
    kwargs = {
        "base": _base(golden),
        "kappa": golden.number("kappa"),
        "q_low": low,
        "q_high": high,
        "eps": golden.number("norm_eps", 1e-8),
        "population": golden.one_of("population", {"batch": "batch", "group": "group"}, "batch"),
    }
    read = {"steps": steps, "tokens": tokens, "normalized_entropy": token_extra("normalized_entropy")}
    return Call("eapo", kwargs, read)


@adapts("entropy-top")
def entropy_top(golden: Golden) -> Call:
    golden.no_effect("convention", "note")
    kinds = {name: name for name in ("batch", "group", "rollout")}
    kwargs: dict[str, Any] = {
        "base": _base(golden),
        "ratio": golden.number("top_ratio", 0.2),
        "population": golden.one_of("population", kinds, "batch"),
    }

    def trl_mask(credit: Credit) -> Any:
        again = assign(credit.batch, "entropy-top", compat="trl", **kwargs)
        return by_token(credit, again.extras["mask"])

    return Call("entropy-top", kwargs, {"tokens": tokens, "mask": token_extra("mask"), "trl_mask": trl_mask})


@adapts("gtpo")
def gtpo(golden: Golden) -> Call:
    golden.no_effect("convention", "note")
    golden.must_be("std", "sqrt(population var + eps)")
    kwargs = {
        "alpha_1": golden.number("alpha_1", 1.0),
        "alpha_2": golden.number("alpha_2", 0.1),
        "reward_threshold": golden.number("reward_threshold", 0.5),
        "eps": golden.number("eps", 1e-8),
    }
    return Call("gtpo", kwargs, {"steps": steps, "tokens": tokens, "shaped": token_extra("shaped")})


@adapts("gtpo-conflict")
def gtpo_conflict(golden: Golden) -> Call:
    golden.no_effect("convention", "note")
    golden.number("pad_id", 999)  # rows here are not padded
    kwargs = {
        "base": _base(golden),
        "w_pos": golden.number("w_pos", 2.0),
        "w_neg": golden.number("w_neg", 0.0),
    }
    read: dict[str, Reader] = {"tokens": tokens, "weight": token_extra("weight")}
    for name, nested in (("conflict", by_token), ("n_conflict", by_rollout)):
        read[name] = _as_the_code(name, nested, kwargs)
    return Call("gtpo-conflict", kwargs, read)


def _as_the_code(name: str, nested: Any, kwargs: dict[str, Any]) -> Reader:
    """Reader of what the authors' code makes of the conflict mask."""
    return lambda credit: nested(
        credit, assign(credit.batch, "gtpo-conflict", compat="code", **kwargs).extras[name]
    )


@adapts("lambda-grpo")
def lambda_grpo(golden: Golden) -> Call:
    golden.no_effect("convention", "note")
    golden.must_be("std", "population, floor 1e-8")
    golden.must_be("h_floor", 1e-6)
    kwargs = {
        "base": _base(golden),
        "lam": golden.number("lam", 0.0),
        "r": golden.number("r", 1 / 9),
    }
    return Call("lambda-grpo", kwargs, {"tokens": tokens, "steps": _factors})


def _factors(credit: Credit) -> Any:
    rows = np.repeat(np.arange(len(credit.batch)), np.diff(credit.batch.step_start_R1))
    return by_step(credit, credit.extras["factor"][rows])
