"""The outcome methods as plain loops over records: slow, obvious, for comparison."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from hypothesis import strategies as st

from tests.strategies import records

Record = dict[str, Any]
FIELDS = ("reward", "step.reward", "status", "n_tokens")

ragged = records(
    fields=FIELDS,
    always=("reward", "n_tokens"),
    odd_ids=False,
    branches=False,
    rows=False,
    min_rollouts=1,
    max_rollouts=8,
).filter(lambda found: any(record.get("reward") is not None for record in found))
policies = st.fixed_dictionaries(
    {
        "singleton": st.sampled_from(["zero", "raw"]),
        "truncated": st.sampled_from(["keep", "drop"]),
        "incomplete": st.sampled_from(["keep", "drop"]),
    }
)


def run(values: Sequence[float], name: str = "g", lengths: Sequence[int] = ()) -> list[Record]:
    """Records of one group with these outcomes, one step each."""
    sizes = list(lengths) or [1] * len(values)
    return [
        {"id": f"{name}{i}", "group": name, "reward": value, "steps": [{"n_tokens": size}]}
        for i, (value, size) in enumerate(zip(values, sizes, strict=True))
    ]


def score(record: Record) -> float:
    total = 0.0
    for step in record["steps"]:
        total += step.get("reward") or 0.0
    return total + (record.get("reward") or 0.0)


def length(record: Record) -> int:
    return sum(step["n_tokens"] for step in record["steps"])


def counts(record: Record, everyone: list[Record], params: dict[str, Any]) -> bool:
    """Whether a rollout joins the statistics."""
    if record.get("reward") is None or record.get("status") == "rejected":
        return False
    if params["truncated"] == "drop" and record.get("status") == "truncated":
        return False
    if params["incomplete"] == "drop":
        sizes = [sum(r["group"] == g for r in everyone) for g in sorted({r["group"] for r in everyone})]
        commonest = max(sorted(set(sizes)), key=sizes.count)
        return sum(r["group"] == record["group"] for r in everyone) == commonest
    return True


def members(record: Record, everyone: list[Record], params: dict[str, Any]) -> list[float]:
    """Scores of the rollouts of its group that count."""
    same = [r for r in everyone if r["group"] == record["group"]]
    return [score(r) for r in same if counts(r, everyone, params)]


def flat(values: Sequence[float]) -> bool:
    return not values or max(values) - min(values) <= 1e-12 * max(1.0, *(abs(v) for v in values))


def mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)


def std(values: Sequence[float]) -> float:
    """Unbiased deviation, 0 for a tie or too few."""
    if flat(values) or len(values) < 2:
        return 0.0
    m = mean(values)
    return math.sqrt(math.fsum((v - m) ** 2 for v in values) / (len(values) - 1))


def broadcast(everyone: list[Record], per_rollout: list[float]) -> list[float]:
    return [value for record, value in zip(everyone, per_rollout, strict=True) for _ in record["steps"]]
