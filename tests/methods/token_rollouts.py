"""Rollouts with token signals for property tests, and a slow way to walk through their tokens."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from hypothesis import strategies as st

import accredit as ac
from accredit.typing import BoolArray, Floats

Record = dict[str, Any]
# A base whose advantage is the outcome itself.
RAW = "grpo:scale=none,centre=none,singleton=raw"
# The default base, which is content with groups of one only where it is told so.
BASE = "grpo:singleton=zero"
entropies = st.one_of(st.sampled_from([0.0, 0.25, 1.0, 3.0]), st.floats(0, 8, width=32))


@st.composite
def told(draw: st.DrawFn, rewards: tuple[float, ...] = (0.0, 1.0), max_groups: int = 3) -> list[Record]:
    """Rollouts of several groups: entropies, ids, logprobs; some steps empty, some things not trained."""
    found = []
    for r in range(draw(st.integers(1, 5))):
        steps = [_step(draw) for _ in range(draw(st.integers(1, 3)))]
        record: Record = {"id": f"r{r}", "group": f"g{draw(st.integers(0, max_groups - 1))}", "steps": steps}
        record["reward"] = draw(st.sampled_from([*rewards, *rewards, None]))
        if draw(st.integers(0, 7)) == 0:
            record["trainable"] = False
        if draw(st.integers(0, 9)) == 0:
            record["status"] = "rejected"
        found.append(record)
    if len({r["group"] for r in found}) == len(found) > 1:
        found[1]["group"] = found[0]["group"]  # groups of one alone are refused
    return found if any(r["reward"] is not None for r in found) else [found[0] | {"reward": 1.0}, *found[1:]]


def _step(draw: st.DrawFn) -> Record:
    n = draw(st.integers(0, 3))
    step: Record = {
        "state": draw(st.sampled_from("ab")),
        "tokens": draw(st.lists(st.integers(0, 2), min_size=n, max_size=n)),
        "entropies": draw(st.lists(entropies, min_size=n, max_size=n)),
        "logprobs": draw(st.lists(st.floats(-4, 0, width=32), min_size=n, max_size=n)),
    }
    if draw(st.integers(0, 9)) == 0:
        step["trainable"] = False
    return step


def one(name: str, reward: float, *steps: list[float], group: str = "g", **more: Any) -> Record:
    """A rollout of steps with these entropies."""
    made = [{"entropies": h, "tokens": list(range(len(h)))} for h in steps]
    return {"id": name, "group": group, "reward": reward, "steps": made} | more


class Token:
    """One policy token of a batch, found by walking."""

    def __init__(self, record: Record, step: Record, r: int, s: int, place: int, k: int) -> None:
        self.r, self.s, self.place = r, s, place
        self.group, self.reward = record["group"], record.get("reward")
        self.entropy, self.id = float(np.float32(step["entropies"][k])), step.get("tokens", [None] * 99)[k]
        trained = record.get("trainable", True) and step.get("trainable", True)
        self.counted = trained and record.get("status") != "rejected" and self.reward is not None


def walk(batch: ac.Batch) -> list[Token]:
    """Every policy token, in order."""
    return list(_walk(batch))


def _walk(batch: ac.Batch) -> Iterator[Token]:
    for r, record in enumerate(batch.records()):
        place = 0
        for s, step in zip(batch.steps_of(r), record["steps"], strict=True):
            for k in range(len(step["entropies"])):
                yield Token(record, step, r, s, place, k)
                place += 1


def base_of(batch: ac.Batch, base: str = BASE) -> Floats:
    """Advantage of each token under a base, masks apart."""
    return np.repeat(ac.assign(batch, base).steps, np.diff(batch.token_start_S1))


def untouched(batch: ac.Batch) -> BoolArray:
    """Which tokens keep the base's advantage because they do not count ``[T]``."""
    return np.array([not token.counted for token in walk(batch)], bool)


def before_masks(credit: ac.Credit) -> Floats:
    """The method's values ``[T]`` before tokens that are not trained are set to 0."""
    return np.sum(list(credit.parts.values()), axis=0)
