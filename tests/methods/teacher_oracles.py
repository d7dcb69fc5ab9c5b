"""Plain loops for the methods with a teacher, and records to try them on."""

from __future__ import annotations

import math
from typing import Any

from hypothesis import strategies as st

Record = dict[str, Any]
STATES = ("hall", "cave")
logs = st.integers(-30, 0).map(lambda x: x / 10)


@st.composite
def taught(draw: st.DrawFn, min_rollouts: int = 2, **more: st.SearchStrategy[Any]) -> list[Record]:
    """Rollouts of up to two groups; steps have 0 to 3 tokens and, some of them, a teacher.

    Args:
        min_rollouts: at least so many.
        **more: further token signals of taught steps.
    """
    found = []
    for r in range(draw(st.integers(min_rollouts, 6))):
        group = draw(st.sampled_from(["g", "h"]))
        steps = [_step(draw, more) for _ in range(draw(st.integers(1, 3)))]
        reward = float(draw(st.sampled_from([0, 0, 1, 2])))
        found.append({"id": f"r{r}", "group": group, "reward": reward, "steps": steps})
    groups = [record["group"] for record in found]
    return [
        *found,
        *({**found[0], "id": f"twin of {g}", "group": g} for g in set(groups) if groups.count(g) < 2),
    ]


def _step(draw: st.DrawFn, more: dict[str, st.SearchStrategy[Any]]) -> Record:
    n = draw(st.integers(0, 3))
    step: Record = {"state": draw(st.sampled_from(STATES)), "logprobs": _list(draw, logs, n)}
    if draw(st.integers(0, 3)):
        step["logprobs_teacher"] = _list(draw, logs, n)
        step |= {name: _list(draw, values, n) for name, values in more.items()}
    return step


def _list(draw: st.DrawFn, values: st.SearchStrategy[Any], n: int) -> list[Any]:
    return draw(st.lists(values, min_size=n, max_size=n))


def gaps(step: Record) -> list[float]:
    """Teacher minus student, token by token; 0 without a teacher."""
    teacher = step.get("logprobs_teacher", step["logprobs"])
    return [t - s for t, s in zip(teacher, step["logprobs"], strict=True)]


def mean(values: list[float]) -> float:
    return sum(values) / len(values) if values else 0.0


def sign(x: float) -> float:
    return (x > 0) - (x < 0)


def clip(x: float, low: float, high: float) -> float:
    return min(max(x, low), high)


def slow_rlsd(records: list[Record], lam: float, eps: float) -> list[float]:
    found = []
    for record in records:
        group = [r["reward"] for r in records if r["group"] == record["group"]]
        m = mean(group)
        std = math.sqrt(sum((x - m) ** 2 for x in group) / (len(group) - 1))
        a = (record["reward"] - m) / (std + 1e-6) if std > 0 else 0.0
        for step in record["steps"]:
            for d in gaps(step):
                w = clip(math.exp(sign(a) * d), 1 - eps, 1 + eps)
                found.append(a * ((1 - lam) + lam * w))
    return found


def lower_median(values: list[float]) -> float:
    return sorted(values)[(len(values) - 1) // 2]


def sample_std(values: list[float]) -> float:
    m = mean(values)
    return math.sqrt(sum((x - m) ** 2 for x in values) / (len(values) - 1)) if len(values) > 1 else 0.0


def slow_uniopsd(
    records: list[Record],
    rho: float,
    *,
    u: float = 0.5,
    lam: float = 0.5,
    eps_w: float = 0.2,
    gamma: float = 0.95,
) -> dict[str, list[float]]:
    """The card's ten steps, row by row."""
    eps = 1e-6
    rows = []
    for record in records:
        n = len(record["steps"])
        for t, step in enumerate(record["steps"]):
            d = gaps(step)
            rows.append(
                {
                    "g": record["group"],
                    "at": (record["group"], step["state"]),
                    "e": record["reward"],
                    "R": record["reward"] * gamma ** (n - 1 - t),
                    "d": d,
                    "dbar": mean(d),
                    "v": mean([(x - mean(d)) ** 2 for x in d]),
                    "T": sum(map(abs, d)) > 0,
                }
            )
    for row in rows:
        group = [r for r in rows if r["g"] == row["g"]]
        visits = [r for r in rows if r["at"] == row["at"]]
        row["AE"] = row["e"] - mean([r["e"] for r in group]) if len(group) > 1 else 0.0
        row["AS"] = row["R"] - mean([r["R"] for r in visits])
        row["dk"] = row["dbar"] - mean([r["dbar"] for r in visits])
        returns = [r["R"] for r in visits]
        row["E"] = len(visits) > 1 and max(returns) - min(returns) > 1e-9
        row["pS"] = len(visits) / max(sample_std(returns) ** 2, eps) if row["E"] else 0.0
    T = [r for r in rows if r["T"]]
    spread = sample_std([r["dk"] for r in T])
    s = sample_std([r["AS"] for r in T]) / (spread + eps) if len(T) > 1 and spread > eps else 0.0
    for row in rows:
        row["AT"] = s * row["dk"]
        row["pT"] = 1 / max(s * s * row["v"] / len(row["d"]), eps) if row["T"] else 0.0
    B = [r for r in rows if r["E"] and r["T"]]
    among = {"pS": B or [r for r in rows if r["E"]], "pT": B or T}
    middle = {k: lower_median([r[k] for r in v]) if v else 1.0 for k, v in among.items()}
    q = min(rho**2, u * (1 - 1e-6))
    below = u * u - 2 * u * q + q
    cbar = clip(u * (u - q) / below, 0, 1) if below > 0 else 1.0
    out: dict[str, list[float]] = {"c": [], "F": [], "tokens": []}
    for row in rows:
        zS, zT = row["pS"] / max(middle["pS"], eps), row["pT"] / max(middle["pT"], eps)
        c = 1.0
        if cbar < 1 - 1e-6 and row["T"]:
            a = cbar / (1 - cbar)
            c = a * zS / (a * zS + zT) if row["E"] else cbar
        F = c * row["AS"] + (1 - c) * row["AT"]
        F = 0.0 if abs(F) < 1e-12 else F
        out["c"].append(c)
        out["F"].append(F)
        for d in row["d"]:
            w = clip(math.exp(sign(F) * d), 1 - eps_w, 1 + eps_w)
            out["tokens"].append(row["AE"] + F * ((1 - lam) + lam * w))
    return out
