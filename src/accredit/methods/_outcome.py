"""The score of a rollout: its outcome, or several rewards combined; shared by the outcome methods."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from accredit.data.values import is_number
from accredit.errors import MissingSignal, ParamError, suggest
from accredit.index import Index, has_score_R
from accredit.index.rewards import COMPONENT, components_of
from accredit.methods._params import GroupParams, choice, mapping
from accredit.typing import BoolArray, Floats

__all__ = ["Component", "ScoreParams", "Scores", "components", "finite_numbers", "scores_of", "summed"]


@dataclass(frozen=True, slots=True)
class ScoreParams(GroupParams):
    """What every outcome method takes as the score of a rollout."""

    combine: str = choice(
        "outcome", "sum_then_normalize", doc="the score: reward plus step rewards; or the weighted rewards"
    )
    weights: Mapping[str, float] | None = mapping(
        doc="weight of each of several rewards; those not named are left out; None = 1 each"
    )
    gates: Mapping[str, float] | None = mapping(
        doc="reward -> threshold: a rollout whose reward is not above it scores 0"
    )


@dataclass(frozen=True, slots=True)
class Component:
    """One of several rewards: its values ``[R]`` (0 where absent), where it is present, its weight."""

    name: str
    values: Floats
    present: BoolArray
    weight: float


@dataclass(frozen=True, slots=True)
class Scores:
    """Scores of rollouts.

    Args:
        total: S_i ``[R]``, reward units; 0 where there is none.
        counted: rollouts that join the statistics ``[R]``.
        addends: what the score is made of, by name ``[R]``; sums to ``total``. Empty = one piece.
        fallbacks: how many of several rewards are absent on rollouts that count.
        unused: reward fields that the batch has and that do not count.
    """

    total: Floats
    counted: BoolArray
    addends: Mapping[str, Floats] = field(default_factory=dict)
    fallbacks: Mapping[str, int] = field(default_factory=dict)
    unused: tuple[str, ...] = ()


def scores_of(index: Index, params: ScoreParams) -> Scores:
    """Return the score of each rollout as ``combine``, ``weights`` and ``gates`` say.

    ``S_i = reward_i + sum_t r_it`` (outcome), or ``S_i = sum_k w_k r_ik`` over the rewards that
    rollout i has; a rollout without any is unscored.

    Args:
        index: of the batch.
        params: see `ScoreParams`.

    Raises:
        MissingSignal: if the batch lacks the reward that is asked for.
        ParamError: for a weight or gate of a reward that the batch lacks.
    """
    if params.combine != "outcome":
        return summed(index, params, components(index, params))
    for name, value in (("weights", params.weights), ("gates", params.gates)):
        if value is not None:
            raise ParamError(f"{name} is for several rewards; say combine='sum_then_normalize' with it")
    if not index.batch.has("reward_R"):
        raise MissingSignal(
            "the rollouts have no `reward`, only several `rewards`",
            code="ACC401",
            hint="Give `reward`, or say combine='sum_then_normalize'",
        )
    unused = tuple(f"rewards.{name}" for name in components_of(index))
    return Scores(index.score_R, index.counted_R(params.truncated, params.incomplete), unused=unused)


def components(index: Index, params: ScoreParams) -> list[Component]:
    """Return the rewards in use; a rollout that fails a gate has 0 in all of them.

    Args:
        index: of the batch.
        params: weights and gates.

    Raises:
        MissingSignal: if the batch has no ``rewards``.
        ParamError: for a weight or gate of a reward that the batch lacks.
    """
    names = components_of(index)
    if not names:
        raise MissingSignal(
            f"combine={params.combine!r} needs `rewards`, which these rollouts lack",
            code="ACC401",
            hint="Give an object of named numbers in `rewards`, or say combine='outcome'",
        )
    given = dict.fromkeys(names, 1.0) if params.weights is None else params.weights
    weights = _numbers("weights", given, names)
    if not weights:
        raise ParamError("weights names no reward", hint=f"There are: {', '.join(names)}")
    gated = _gated(index, _numbers("gates", params.gates or {}, names))
    found = []
    for name, weight in weights.items():
        column = index.batch.column(f"{COMPONENT}{name}_R")
        present = column.mask(len(index.batch))
        found.append(Component(name, np.where(present & ~gated, column.values, 0.0), present, weight))
    return found


def _numbers(param: str, given: Mapping[str, Any], names: tuple[str, ...]) -> dict[str, float]:
    for name in given:
        if name not in names:
            raise ParamError(
                f"{param} names the reward {name!r}, which is not there", hint=suggest(name, names)
            )
    checked = finite_numbers(param, given)
    return {name: checked[name] for name in names if name in checked}


def finite_numbers(param: str, given: Mapping[Any, Any]) -> dict[str, float]:
    """Return a mapping parameter with names as strings and values as numbers.

    Args:
        param: its name.
        given: what the caller gave.

    Raises:
        ParamError: naming the entry that is no finite number.
    """
    for name, value in given.items():
        if not is_number(value):
            raise ParamError(f"{param} of {name!r} must be a finite number, got {value!r}")
    return {str(name): float(value) for name, value in given.items()}


def _gated(index: Index, gates: Mapping[str, float]) -> BoolArray:
    """Return the rollouts that fail a gate ``[R]``; an absent reward fails none."""
    found = np.zeros(len(index.batch), bool)
    for name, threshold in gates.items():
        column = index.batch.column(f"{COMPONENT}{name}_R")
        found |= column.mask(found.size) & ~(column.values > threshold)
    return found


def summed(index: Index, params: ScoreParams, parts: list[Component]) -> Scores:
    """Return scores that are the weighted sum of components; a rollout that has none of them does not count.

    Args:
        index: of the batch.
        params: policies for odd rollouts.
        parts: the components in use.
    """
    used = {part.name: part.weight * part.values for part in parts}
    scored = has_score_R(index, params.combine, used)
    counted = index.counted_R(params.truncated, params.incomplete, scored)
    absent = sum(int((counted & ~part.present).sum()) for part in parts)
    unused = [f"rewards.{name}" for name in components_of(index) if name not in used]
    fields = {"reward": "reward_R", "steps[].reward": "reward_S"}
    unused += [name for name, column in fields.items() if index.batch.has(column)]
    total: Floats = np.sum(list(used.values()), axis=0)
    return Scores(total, counted, used, {"reward_absent": absent}, tuple(unused))
