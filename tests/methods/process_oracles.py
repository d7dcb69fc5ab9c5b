"""The rules of prm as plain loops over records: slow, obvious, for comparison."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable
from typing import Any

Record = dict[str, Any]


def counts(record: Record) -> bool:
    return record.get("reward") is not None and record.get("status") != "rejected"


def others(record: Record, everyone: list[Record]) -> list[Record]:
    same = [r for r in everyone if r["group"] == record["group"] and counts(r)]
    return [r for r in same if r["id"] != record["id"]]


def sums_to_go(values: list[float], gamma: float = 1.0) -> list[float]:
    found: list[float] = []
    for value in reversed(values):
        found.append(value + gamma * (found[-1] if found else 0.0))
    return found[::-1]


def against_others(record: Record, everyone: list[Record]) -> float:
    rest = [r["reward"] for r in others(record, everyone)]
    return record["reward"] - statistics.fmean(rest) if rest and counts(record) else 0.0


def standardised(value: float, values: list[float], eps: float) -> float:
    if len(values) < 2 or max(values) - min(values) <= 1e-12 * max(1.0, *map(abs, values)):
        return 0.0
    return (value - statistics.fmean(values)) / (statistics.stdev(values) + eps)


def pooled(
    everyone: list[Record], score: Callable[[Record], float | None], weight: float, eps: float
) -> list[list[float]]:
    found = []
    for record in everyone:
        same = [r for r in everyone if r["group"] == record["group"] and counts(r)]
        pool = [score(s) for r in same for s in r["steps"]]
        known = [p for p in pool if p is not None]
        own = [score(s) for s in record["steps"]]
        if not counts(record):
            own = [None] * len(own)
        rewards = [0.0 if p is None else standardised(p, known, eps) for p in own]
        outcome = standardised(record["reward"], [r["reward"] for r in same], eps) if counts(record) else 0.0
        found.append([g + weight * outcome for g in sums_to_go(rewards)])
    return found


def good(step: Record) -> float | None:
    """p' in [-1, 1]."""
    if step.get("prm_logits") is None:
        return None
    bad, well = step["prm_logits"]
    top = max(bad, well)
    a, b = math.exp(well - top), math.exp(bad - top)
    return (a - b) / (a + b)


def weighted(record: Record, tau: float, *, weigh: bool) -> list[float]:
    known = [p for p in map(good, record["steps"]) if p is not None]
    if not known:
        return [0.0] * len(record["steps"])
    least = min(known)
    total = sum(math.exp(-(p - least) / tau) if weigh else 1.0 for p in known)
    found = []
    for step in record["steps"]:
        p = good(step)
        share = 0.0 if p is None else (math.exp(-(p - least) / tau) if weigh else 1.0) / total
        found.append(0.0 if p is None else share * p)
    return found


def pure(everyone: list[Record], params: Record) -> list[list[float]]:
    found = []
    for record in everyone:
        if not counts(record):
            found.append([0.0] * len(record["steps"]))
            continue
        own = weighted(record, params["tau"], weigh=params["weighted"])
        scored = [r for r in others(record, everyone) if any(good(s) is not None for s in r["steps"])]
        price = 0.0
        if params["baseline"] == "step" and scored:
            price = statistics.fmean(_total(r, params) / _scored_steps(r) for r in scored)
        elif scored:
            length = sum(_units(r, params, everyone) for r in scored)
            price = sum(_total(r, params) for r in scored) / length if length else 0.0
        rewards = []
        for step, reward in zip(record["steps"], own, strict=True):
            unit = 1.0 if params["baseline"] == "step" else _unit(step, record, params, everyone)
            rewards.append(reward - unit * price if good(step) is not None and scored else 0.0)
        outcome = params["verifier_coef"] * against_others(record, everyone)
        found.append([g + outcome for g in sums_to_go(rewards)])
    return found


def _total(record: Record, params: Record) -> float:
    return sum(weighted(record, params["tau"], weigh=params["weighted"]))


def _scored_steps(record: Record) -> int:
    return sum(good(s) is not None for s in record["steps"])


def _unit(step: Record, record: Record, params: Record, everyone: list[Record]) -> float:
    same = [s for r in everyone if r["group"] == record["group"] for s in r["steps"]]
    bare = not any(s["n_tokens"] + params["separator"] for s in same)
    return 1.0 if bare else float(step["n_tokens"] + params["separator"])


def _units(record: Record, params: Record, everyone: list[Record]) -> float:
    return sum(_unit(s, record, params, everyone) for s in record["steps"] if good(s) is not None)


def tokens_of(record: Record) -> list[float | None]:
    """Log ratio of each policy token; None where the step has none."""
    found: list[float | None] = []
    for step in record["steps"]:
        ratios = step.get("prm_logratio")
        found += [None] * step["n_tokens"] if ratios is None else ratios
    return found


def prime(everyone: list[Record], beta: float, gamma: float) -> list[list[float]]:
    found = []
    for record in everyone:
        own = tokens_of(record)
        if not counts(record):
            found.append([0.0] * len(own))
            continue
        means = [_mean(r) for r in others(record, everyone) if _mean(r) is not None]
        base = beta * statistics.fmean(means) if means else None
        centred = [0.0 if x is None or base is None else beta * x - base for x in own]
        outcome = against_others(record, everyone)
        found.append([g + outcome for g in sums_to_go(centred, gamma)])
    return found


def _mean(record: Record) -> float | None:
    known = [x for x in tokens_of(record) if x is not None]
    return statistics.fmean(known) if known else None


def prime_code_returns(everyone: list[Record], gamma: float, fade: float, *, norm: bool) -> list[list[float]]:
    """Returns before whitening; every group must have two rollouts that count, with tokens."""
    ratios = {r["id"]: [x or 0.0 for x in tokens_of(r)] for r in everyone}
    if norm:
        top = max(abs(x) for values in ratios.values() for x in sums_to_go(values))
        ratios = {name: [x / (top + 1e-6) for x in values] for name, values in ratios.items()}
    found = []
    for record in everyone:
        k = len(others(record, everyone)) + 1
        everyone_here = [record, *others(record, everyone)]
        total = sum(statistics.fmean(ratios[r["id"]]) for r in everyone_here)
        own = [x * k / (k - 1) - total / (k - 1) for x in ratios[record["id"]]]
        outcome = [0.0] * (len(own) - 1) + [
            record["reward"] * k / (k - 1) - sum(r["reward"] for r in everyone_here) / (k - 1)
        ]
        process = sums_to_go(own, gamma)
        found.append([a + b for a, b in zip(process, sums_to_go(outcome, fade), strict=True)])
    return found
