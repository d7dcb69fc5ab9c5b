"""C3 on recorded alternatives: each step one alternative, with the continuations that followed it.

Source: arXiv 2603.06859; EIT-EAST-Lab/C3 @ 628185b ``c3/analysis/metrics.py``
``_credit_from_barR``.  Differences: docs/methods/c3-bucket.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from accredit.data import Explanation, Parts
from accredit.index import Index
from accredit.index.samples import outcomes_of
from accredit.methods._contrasts import Contrast, ContrastParams, Tried
from accredit.methods._params import choice
from accredit.methods._registry import method

__all__ = ["c3_bucket"]


@dataclass(frozen=True, slots=True)
class Params(ContrastParams):
    """Parameters of `c3_bucket`."""

    baseline: str = choice(
        "weighted", "loo", "full_mean", doc="mean of the others by continuations, plainly, or of all"
    )


@method(
    "c3-bucket",
    title="Mean of an alternative's recorded continuations minus that of the others",
    family="forks",
    params=Params,
    needs={"state", "continuations"},
    yields="step",
    tags={"state_local", "no_reward"},
    cites="arXiv:2603.06859",
)
def c3_bucket(index: Index, params: Params) -> Parts:
    """Contextual counterfactual credit where a record lists the alternatives of a context.

    The steps of one state and task are the alternatives of a context; `continuations` of a step are
    the returns *after* its action.  ``A_j = Q_j - b_j`` as in `c3`; by default ``b_j = (sum_i c_i Q_i
    - c_j Q_j) / (sum_i c_i - c_j)``.  A continuation without a reward was cut before it got any: 0.

    Args:
        index: of the batch; ``value_*`` read `action_value` at the steps.
        params: see `Params`.

    Returns:
        Step credit ``[S]``, reward units; 0 for an only alternative and for one without
        continuations.  ``parts``: ``contrast``.  Extras ``[S]``: ``q``, ``count``, ``context`` (-1 =
        not compared).

    Raises:
        MissingSignal: for ``value_*`` without `action_value`.
        DataError: if `continuations` is no list of rewards, or of objects with a `reward`.

    Source: ``c3/analysis/metrics.py`` ``_credit_from_barR``.

    Example:
        >>> import accredit as ac
        >>> steps = [
        ...     {"state": "h", "action": str(j), "continuations": [{"reward": r} for r in rewards]}
        ...     for j, rewards in enumerate([[1, 1, 0, 1], [0, 1, 0, 0], [1, 0, 1, 0], [0, 0, 0, 0]])
        ... ]
        >>> ac.assign([{"id": "h", "group": "g", "steps": steps}], "c3-bucket").steps.round(4).tolist()
        [0.5, -0.1667, 0.1667, -0.5]
    """
    column = index.batch.column("continuations_S")
    there = column.mask(index.batch.n_steps)
    listed = column.decoded().tolist()
    told = [_rewards(listed[s], index.where(s)) if there[s] else () for s in range(there.size)]
    counts = np.array([len(r) for r in told], np.float64)
    mean = np.array([sum(r) / len(r) if r else 0.0 for r in told], np.float64)
    kept = ~index.has_status("rejected")[index.rollout_S]
    tried = Tried(index.anchor_S, index.n_anchors, counts, (counts > 0) & kept, params.baseline)
    found = Contrast(index, params, tried, mean, np.arange(counts.size), kept)

    def explain(s: int) -> Explanation:
        term = found.term(s)
        return Explanation("c3-bucket", *index.place_of(s), term.value, (term,))

    return Parts(
        found.credit_S,
        parts={"contrast": found.credit_S},
        informed_S=found.informed_S,
        fallbacks=found.fallbacks,
        extras=found.extras,
        explain=explain,
    )


def _rewards(listed: Any, where: str) -> tuple[float, ...]:
    if not isinstance(listed, list):
        return outcomes_of(listed, where=where)
    lacks = [isinstance(one, Mapping) and one.get("reward") is None for one in listed]
    return outcomes_of([0.0 if lack else one for one, lack in zip(listed, lacks, strict=True)], where=where)
