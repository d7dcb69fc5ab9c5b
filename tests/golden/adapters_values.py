"""Golden files of the methods on value estimates: gae (also the gae-verl files)."""

from __future__ import annotations

from typing import Any

from accredit.data import Credit
from accredit.index import Index
from accredit.spread import token_mask, whiten
from tests.golden.interface import (
    Call,
    Golden,
    GoldenError,
    adapts,
    by_token,
    steps,
    tokens,
)

# The files place step rewards on top of the outcome, whatever they add up to.
REWARDS: dict[str, Any] = {"outcome_in_steps": "no"}
MASKED = "masked over the whole batch, unbiased variance, eps 1e-8 inside rsqrt"
WHITEN = {MASKED: True, True: True, "none": False, None: False, False: False}
# Fields between the policy tokens: context that must not influence anything.
OBSERVED = ("observation_tokens", "observation_values")


@adapts("gae")
def gae(golden: Golden) -> Call:
    golden.no_effect("note", "values", "convention")
    kwargs: dict[str, Any] = dict(REWARDS)
    kwargs["gamma"] = golden.number("gamma", 1.0)
    kwargs["lam"] = golden.number("lam" if "lam" in golden.params else "lambda")
    kwargs["granularity"] = golden.one_of("granularity", {"turn": "turn", "token": "token"}, "token")
    kwargs["whiten"] = golden.one_of("whiten", WHITEN, default=False)
    skip = golden.flag("skip_observation_tokens", default=True)
    kwargs["observation"] = "skip" if skip else "reset"
    golden.must_be("terminal_value", 0.0)
    records = [record | {"steps": _with_context(record["steps"])} for record in _rewarded(golden)]
    read = {
        "steps": steps,
        "tokens": tokens,
        "tokens_whitened": _whitened,
        "returns": _returns,
    }
    return Call("gae", kwargs, read, records)


def _rewarded(golden: Golden) -> list[dict[str, Any]]:
    """The records as `step_rewards` says: without them the steps' rewards do not count."""
    if golden.flag("step_rewards", default=True):
        return [dict(record) for record in golden.records]
    return [
        record | {"steps": [{k: v for k, v in step.items() if k != "reward"} for step in record["steps"]]}
        for record in golden.records
    ]


def _with_context(steps: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Each step's observation, written after it, as the context that the next step adds."""
    before: list[int] = []
    found = []
    for step in steps:
        here = {k: v for k, v in step.items() if k not in OBSERVED}
        if "observation_tokens" in step:
            here["context_tokens"] = before
            before = step["observation_tokens"]
        found.append(here)
    return found


def _returns(credit: Credit) -> Any:
    if not credit.per_token:
        raise GoldenError("returns are read by token")
    return by_token(credit, credit.extras["returns"])


def _whitened(credit: Credit) -> Any:
    return by_token(credit, whiten(credit.tokens, token_mask(Index(credit.batch))))
