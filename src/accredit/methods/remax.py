"""ReMax: the return to go against the reward of a greedy rollout of the same task.

Source: arXiv 2310.10505; verl 0.9.1 ``core_algos.compute_remax_outcome_advantage``.  Differences:
docs/methods/remax.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from accredit.data import Explanation, Member, Parts, Term
from accredit.data.parts import Explainer
from accredit.errors import MissingSignal, ParamError, suggest
from accredit.index import Index
from accredit.index.rewards import components_of
from accredit.methods._outcome import finite_numbers
from accredit.methods._params import mapping, truncated_choice
from accredit.methods._registry import method
from accredit.typing import BoolArray, Floats

__all__ = ["remax"]

COLUMN = "reward_baseline_R"


@dataclass(frozen=True, slots=True)
class Params:
    """Parameters of `remax`."""

    reward_baselines: Mapping[str, float] | None = mapping(
        doc="group -> reward of the greedy rollout; None = the field `reward_baseline` of the records"
    )
    truncated: str = truncated_choice()


def _baseline_R(index: Index, params: Params, counted: BoolArray) -> Floats:
    """Return b_i of each rollout ``[R]``."""
    if params.reward_baselines is None:
        return _recorded(index, counted)
    given = finite_numbers("reward_baselines", params.reward_baselines)
    names, found = index.batch.group_names, np.zeros(len(index.batch.group_names))
    for code in np.unique(index.batch.group_R).tolist():
        name = str(names[code])
        if name not in given:
            raise ParamError(f"reward_baselines has no group {name!r}", hint=suggest(name, given))
        found[code] = given[name]
    return found[index.batch.group_R]


def _recorded(index: Index, counted: BoolArray) -> Floats:
    column = index.batch.columns.get(COLUMN)
    if column is None:
        raise MissingSignal(
            "method 'remax' needs reward_baselines: the reward of one greedy rollout of each group",
            code="ACC401",
            hint="Say reward_baselines={group: reward}, or give `reward_baseline` in the records",
        )
    absent = np.flatnonzero(counted & ~column.mask(len(index.batch)))
    if absent.size:
        r = int(absent[0])
        group = index.batch.group_names[int(index.batch.group_R[r])]
        raise MissingSignal(
            f"rollout {index.batch.ids[r]!r} of group {group!r} has no reward_baseline",
            code="ACC401",
            hint="Give `reward_baseline` in every record of a group, or say reward_baselines={group: reward}",
        )
    return np.asarray(column.values, np.float64)


@method(
    "remax",
    title="Return to go against the reward of a greedy rollout",
    family="outcome",
    params=Params,
    needs={"reward"},
    yields="step",
    cites="arXiv:2310.10505",
    compat={"verl": {}},
)
def remax(index: Index, params: Params) -> Parts:
    """Return to go minus the greedy rollout's reward.

    ``A_{i,t} = sum_{k>=t} r_{i,k} - b_g``: the rewards from step t on, the outcome in the last,
    minus the reward b_g of one greedily decoded rollout of the same task.  With an outcome alone it
    is ``S_i - b_g`` at every step.  No statistics of the group: a group of one is as good as any.

    Args:
        index: of the batch.
        params: see `Params`.

    Returns:
        Step credit ``[S]``, reward units; ``parts``: ``return`` and ``baseline``.

    Raises:
        ParamError: naming the group that ``reward_baselines`` lacks.
        MissingSignal: if there are no baselines at all, or a rollout has none.

    Source: arXiv 2310.10505; verl ``compute_remax_outcome_advantage``.

    Example:
        >>> import accredit as ac
        >>> records = [
        ...     {"id": str(i), "group": "g", "reward": r, "steps": [{}]} for i, r in enumerate([1, 0.5, 0, 0])
        ... ]
        >>> ac.assign(records, "remax", reward_baselines={"g": 0.5}).steps.tolist()
        [0.5, 0.0, -0.5, -0.5]
    """
    counted = index.counted_R(params.truncated)
    baseline = _baseline_R(index, params, counted)
    own = np.where(counted[index.rollout_S], index.return_S(1.0), 0.0)
    taken = np.where(counted, -baseline, 0.0)[index.rollout_S]
    values = own + taken
    return Parts(
        values,
        parts={"return": own, "baseline": taken},
        explain=_explainer(index, counted, own, taken),
        unused=tuple(f"rewards.{name}" for name in components_of(index)),
    )


def _explainer(index: Index, counted: BoolArray, own: Floats, taken: Floats) -> Explainer:
    def explain(s: int) -> Explanation:
        r, (name, t) = int(index.rollout_S[s]), index.place_of(s)
        reward, position = index.reward_S, index.position_S
        if not counted[r]:
            return Explanation("remax", name, t, 0.0, (), ("not counted: exactly 0",))
        later = range(s, int(index.batch.step_start_R1[r + 1]))
        paid = tuple(Member(name, float(reward[k]), int(position[k])) for k in later if reward[k])
        terms = (
            Term("return", float(own[s]), f"sum of the rewards from step {t} on", {}, paid),
            Term("baseline", float(taken[s]), "minus the reward of the greedy rollout"),
        )
        return Explanation("remax", name, t, float(own[s] + taken[s]), terms)

    return explain
