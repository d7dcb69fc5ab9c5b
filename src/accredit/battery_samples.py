"""Made-up rollouts for the battery: every odd case that real data has, from a seed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np

from accredit.errors import ParamError

__all__ = [
    "SAMPLES",
    "UNCERTAIN",
    "Record",
    "as_rows",
    "changed",
    "relabelled",
    "sample_records",
    "uncertain_records",
    "with_reward",
]

Record: TypeAlias = dict[str, Any]

# group sizes of each kind of sample
SAMPLES: dict[str, tuple[int, ...]] = {
    "plain": (4, 4, 4),
    "mixed": (4, 1, 6, 3),
    "tie": (8,),
    "single": (1,),
    "two": (2,),
    "ragged": (7, 2, 1, 5),
    "fail": (5, 4),
    "odd": (4, 4),
}
_STATES = ("hall", "kitchen", "cellar", "attic", "garden")
_ACTIONS = ("north", "take", "open")


def sample_records(kind: str = "mixed", seed: int = 0) -> list[Record]:
    """Return records of one kind, the same for the same seed.

    Args:
        kind: ``plain`` (three groups of four, every step with tokens), ``mixed`` and ``ragged``
            (odd group sizes, empty steps, a group of one), ``tie`` (eight equal outcomes),
            ``single`` (one rollout), ``two``, ``fail`` (all outcomes 0), ``odd`` (truncated,
            unscored, rejected and stepless rollouts, self-loops).
        seed: of the generator.
    """
    if kind not in SAMPLES:
        raise ParamError(f"no sample {kind!r}; there are: {', '.join(SAMPLES)}")
    rng = np.random.default_rng([seed, list(SAMPLES).index(kind)])
    found = [_rollout(rng, kind, g, i) for g, size in enumerate(SAMPLES[kind]) for i in range(size)]
    return _made_odd(found) if kind == "odd" else found


def _rollout(rng: np.random.Generator, kind: str, group: int, number: int) -> Record:
    fewest = 1
    n_steps = int(rng.integers(fewest, 6))
    steps = [_step(rng, empty_allowed=kind not in ("plain", "tie")) for _ in range(n_steps)]
    reward = float(np.round(rng.choice([0.0, 1.0, 0.5, 0.25]) + (number == 0), 4))
    if kind == "fail":
        reward = 0.0
    if kind == "tie":
        reward = 1.0
    return {
        "id": f"{kind}-g{group}-r{number}",
        "group": f"g{group}",
        "reward": reward,
        "steps": steps,
        "final_state": str(rng.choice(_STATES)),
        "final_value": 0.5,
    }


def _step(rng: np.random.Generator, *, empty_allowed: bool) -> Record:
    n = int(rng.integers(0 if empty_allowed else 1, 5))
    return {
        "state": str(rng.choice(_STATES)),
        "action": str(rng.choice(_ACTIONS)),
        "tokens": rng.integers(0, 500, n).tolist(),
        "logprobs": np.round(-rng.exponential(1.0, n), 4).tolist(),
        "entropies": np.round(rng.exponential(1.0, n), 4).tolist(),
        "value": float(np.round(rng.random(), 4)),
        "token_values": np.round(rng.random(n), 4).tolist(),
        "prm_logratio": np.round(rng.normal(0, 0.3, n), 4).tolist(),
    }


def _made_odd(records: list[Record]) -> list[Record]:
    records[0] = records[0] | {"status": "truncated"}
    records[1] = records[1] | {"reward": None}
    records[2] = records[2] | {"status": "rejected"}
    records[5] = records[5] | {"steps": []}
    loop = [step | {"state": "hall"} for step in records[6]["steps"]]
    records[6] = records[6] | {"steps": loop + loop}
    return records


def relabelled(records: list[Record]) -> list[Record]:
    """Return the records with rollout ids, groups and states renamed one to one."""
    return [
        record
        | {
            "id": f"new {record['id']}",
            "group": f"task of {record['group']}",
            "final_state": f"<{record['final_state']}>",
            "steps": [s | {"state": f"<{s['state']}>"} for s in record["steps"]],
        }
        for record in records
    ]


# tag: (its claim, the rollout that shows it, whether its credit rises or falls with entropy)
UNCERTAIN: dict[str, tuple[str, str, int]] = {
    "amplifies_uncertain_successes": ("uncertain decisions of successes are credited more", "success", 1),
    "attenuates_uncertain_successes": ("uncertain decisions of successes are credited less", "success", -1),
    "amplifies_uncertain_failures": ("uncertain decisions of failures are blamed more", "failure", -1),
    "attenuates_uncertain_failures": ("uncertain decisions of failures are blamed less", "failure", 1),
}


def uncertain_records() -> list[Record]:
    """Return two successes and two failures; one of each is ever more uncertain, step by step."""
    rising, level = (0.1, 1.0, 3.0), (1.0, 1.0, 1.0)
    rows = (("success", 1.0, rising), ("plain success", 1.0, level), ("failure", 0.0, rising))
    return [
        {"id": name, "group": "g", "reward": reward, "steps": [_decision(h) for h in entropies]}
        for name, reward, entropies in (*rows, ("plain failure", 0.0, level))
    ]


def _decision(entropy: float) -> Record:
    signals = {"logprobs": [-0.5], "entropies": [entropy], "token_values": [0.5], "prm_logratio": [0.1]}
    return {"state": "hall", "action": "take", "tokens": [1], "value": 0.5} | signals


def with_reward(record: Record, change: Callable[[float], float], *, steps: bool = False) -> Record:
    """Return the record with its reward changed, and with ``steps`` those of its steps too."""
    found = dict(record)
    if found.get("reward") is not None:
        found["reward"] = change(found["reward"])
    if steps:
        found["steps"] = [
            s | {"reward": change(s["reward"])} if s.get("reward") is not None else s for s in record["steps"]
        ]
    return found


def changed(record: Record, name: str, **changes: Any) -> Record:
    """Return the record under another id, with some fields changed."""
    return record | {"id": name} | changes


def as_rows(record: Record) -> list[Record]:
    """Return the record as one row a step."""
    if len(record["steps"]) < 2:
        return [record]
    return [record | {"row": t, "steps": [step]} for t, step in enumerate(record["steps"])]
