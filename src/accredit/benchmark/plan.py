"""What a run of the benchmark measures: families, settings, task seeds."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from accredit.errors import ParamError, suggest
from accredit.worlds import FAMILIES, Noise, Task, make

__all__ = ["PLAIN", "SCALES", "TASKS", "Scale", "Setting", "applies", "families_of", "scale_of", "task_of"]


SEEDS_A_RUN = 1000  # task seeds of run n begin at n times this: those of different runs do not meet


@dataclass(frozen=True, slots=True)
class Setting:
    """How a task is played.

    Args:
        name: key in results.
        doc: one line.
        success_rate: exact rate of the policy; the nearest one that it can reach.
        group_size: rollouts a group.
        noise: what spoils the rollouts.
        draws: independent batches of each task; above 1, bias, variance and gradients over them are
            measured, and nothing else.
        seeds: task seeds, where it is not the scale's number.
        groups: groups a batch, likewise.
    """

    name: str
    doc: str
    success_rate: float = 0.5
    group_size: int = 8
    noise: Noise = field(default_factory=Noise)
    draws: int = 1
    seeds: int | None = None
    groups: int | None = None


PLAIN = Setting("plain", "half of the rollouts succeed, 8 a group, nothing spoilt")
_SETTINGS = (
    PLAIN,
    Setting("nonce", "every state carries a number that never comes back", noise=Noise(nonce=True)),
    Setting("rare", "one rollout in 20 succeeds", success_rate=0.05),
    Setting("hard", "one rollout in 5 succeeds", success_rate=0.2),
    Setting("easy", "four rollouts in 5 succeed", success_rate=0.8),
    Setting("pairs", "2 rollouts a group", group_size=2),
    Setting("large", "32 rollouts a group", group_size=32),
    Setting("flipped", "one outcome in 10 is recorded wrong", noise=Noise(flip=0.1)),
    Setting("cut", "one rollout in 5 is truncated", noise=Noise(truncate=0.2)),
    Setting("merged", "a fifth of the keys stand for two states", noise=Noise(alias=0.2)),
    Setting("ragged", "1 to 8 rollouts a group", noise=Noise(ragged=True)),
    Setting("copied", "one rollout in 5 is a copy", noise=Noise(duplicate=0.2)),
    Setting("repeated", "40 independent batches of each of 3 tasks", draws=40, seeds=3, groups=8),
)


@dataclass(frozen=True, slots=True)
class Scale:
    """How much is measured.

    Args:
        name: smoke or full.
        seeds: task seeds, the unit of the intervals.
        groups: groups a task and setting.
        settings: how tasks are played.
    """

    name: str
    seeds: int
    groups: int
    settings: tuple[Setting, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as JSON-ready values."""
        return asdict(self)


SCALES: Mapping[str, Scale] = {
    "smoke": Scale("smoke", 12, 8, _SETTINGS[:1]),
    "full": Scale("full", 20, 64, _SETTINGS),
}


# Variants of a family that some method was made for, under a name of their own.
VARIANTS: Mapping[str, tuple[str, Mapping[str, Any]]] = {"team-planner": ("team", {"variant": "planner"})}
TASKS = (*FAMILIES, *VARIANTS)


def task_of(name: str, seed: int) -> Task:
    """Return a task by the name that results use: a family, or a variant of one.

    Args:
        name: one of `TASKS`.
        seed: of the task.

    Example:
        >>> task_of("team-planner", 0).family
        'team'
    """
    family, size = VARIANTS.get(name, (name, {}))
    return make(family, seed=seed, **size)


@functools.cache
def applies(family: str, setting: Setting) -> bool:
    """Return whether a setting changes anything in a family: some have no success rate to set.

    Args:
        family: of `TASKS`.
        setting: any.
    """
    same = dataclasses.replace(PLAIN, name=setting.name, doc=setting.doc, success_rate=setting.success_rate)
    return setting != same or setting == PLAIN or task_of(family, 0).success_N is not None


def scale_of(name: str | Scale) -> Scale:
    """Return a scale by name.

    Raises:
        ParamError: if there is no such scale.

    Example:
        >>> scale_of("smoke").settings[0].name
        'plain'
    """
    if isinstance(name, Scale):
        return name
    if name not in SCALES:
        raise ParamError(f"no scale {name!r}", hint=suggest(name, SCALES))
    return SCALES[name]


def families_of(families: str | Sequence[str]) -> tuple[str, ...]:
    """Return families by name, ``all`` of them or those given, in the order of the catalogue.

    Raises:
        ParamError: for an unknown family.
    """
    if families == "all":
        return TASKS
    asked = families.split(",") if isinstance(families, str) else list(families)
    for name in asked:
        if name not in TASKS:
            raise ParamError(f"no task family {name!r}", hint=suggest(name, TASKS))
    return tuple(name for name in TASKS if name in asked)
