"""GAE as plain loops over records: slow, obvious, for comparison."""

from __future__ import annotations

from typing import Any

import numpy as np

Record = dict[str, Any]


def ends(record: Record) -> tuple[float, bool]:
    """V after the last step, and whether it is not known."""
    cut = record.get("status") == "truncated"
    if record.get("terminated") is not None:
        cut = (cut and not record["terminated"]) or not record["terminated"]
    known = record.get("final_value")
    return (known or 0.0, known is None) if cut else (0.0, False)


def credited(record: Record, params: Record) -> bool:
    if record.get("status") == "rejected":
        return False
    return params.get("outcome") == "ignore" or record.get("reward") is not None


def step_rewards(record: Record, params: Record) -> list[float]:
    found = [step.get("reward") or 0.0 for step in record["steps"]]
    if params.get("outcome") != "ignore" and found:
        found[-1] += record["reward"]
    return found


def fill(values: list[float | None], rewards: list[float], gamma: float, end: float, how: str) -> list[float]:
    if how == "carry-back":
        after, found = end, []
        for value, reward in zip(reversed(values), reversed(rewards), strict=True):
            after = value if value is not None else reward + gamma * after
            found.append(after)
        return found[::-1]
    known = [(t, v) for t, v in enumerate(values) if v is not None] + [(len(values), end)]
    return [
        v if v is not None else float(np.interp(t, [k for k, _ in known], [v for _, v in known]))
        for t, v in enumerate(values)
    ]


def scan(
    rewards: list[float], values: list[float], end: float, gamma: float, lam: float, *, drop: bool
) -> list[float]:
    after, following, found = 0.0, end, []
    for t in reversed(range(len(values))):
        delta = rewards[t] + gamma * following - values[t]
        if drop and t == len(values) - 1:
            delta = 0.0
        after = delta + gamma * lam * after
        following = values[t]
        found.append(after)
    return found[::-1]


def turns(record: Record, params: Record) -> list[float]:
    """GAE of each step from its `value`."""
    if not credited(record, params):
        return [0.0] * len(record["steps"])
    end, unknown = ends(record)
    rewards = step_rewards(record, params)
    values = [step.get("value") for step in record["steps"]]
    filled = fill(values, rewards, params["gamma"], end, params["missing"])
    drop = unknown and params["truncation"] == "drop"
    return scan(rewards, filled, end, params["gamma"], params["lam"], drop=drop)


def token_rewards(record: Record, params: Record) -> list[float]:
    """Rewards on tokens; a step without any hands its reward back, at the beginning on."""
    sizes = [step["n_tokens"] for step in record["steps"]]
    found = [0.0] * sum(sizes)
    for t, reward in enumerate(step_rewards(record, params)):
        if found:
            found[max(sum(sizes[: t + 1]) - 1, 0)] += reward
    return found


def tokens(record: Record, params: Record) -> list[float]:
    """GAE of each policy token from `token_values`."""
    values = [v for step in record["steps"] for v in step["token_values"]]
    if not credited(record, params):
        return [0.0] * len(values)
    end, unknown = ends(record)
    drop = unknown and params["truncation"] == "drop"
    return scan(token_rewards(record, params), values, end, params["gamma"], params["lam"], drop=drop)
