"""TreeRPO: a node's value against its siblings', in units of their deviation.

Source: arXiv 2506.05183, from the text; differences and guesses: docs/methods/treerpo.md.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from accredit.data import Parts
from accredit.errors import DataError
from accredit.index import GroupStats, Index
from accredit.methods._params import bounded, choice
from accredit.methods._registry import method
from accredit.methods._trees import LEAVES, TreeParams, Values, child_mean, credited, grown, siblings
from accredit.typing import Floats

__all__ = ["treerpo"]


@dataclass(frozen=True, slots=True)
class Params(TreeParams):
    """Parameters of `treerpo`."""

    std: str = choice(
        "population", "bernoulli", doc="deviation of the siblings' values, or sqrt(m (1 - m)) of their mean m"
    )
    eps: float = bounded(1e-6, at_least=0, doc="added to the deviation")


@method(
    "treerpo",
    title="Value of a node among its siblings, standardised",
    family="forks",
    params=Params,
    needs={"reward"},
    yields="step",
    tags={"group", "shift_invariant", "scale_invariant"},
    cites="arXiv:2506.05183",
)
def treerpo(index: Index, params: Params) -> Parts:
    """Sibling-relative credit in a tree.

    ``A_n = (V_n - mean V)/(std V + eps)`` over the children of n's parent, std of the population; V of
    a node the mean of its children's, of a leaf its outcome.  An only child has 0.  Adding a constant
    to all siblings changes nothing below or beside them.

    Args:
        index: of the batch.
        params: see `Params`.

    Returns:
        Step credit ``[S]``; exactly 0 where siblings tie.  ``parts``: ``siblings``.

    Raises:
        DataError: for ``std="bernoulli"`` with outcomes outside [0, 1].

    Source: arXiv 2506.05183.

    Example:
        >>> import accredit as ac
        >>> records = [
        ...     {"id": p, "group": "g", "reward": int(p == "A a"), "steps": [{"node": n} for n in p.split()]}
        ...     for p in ["A a", "A b", "B c", "B d"]
        ... ]
        >>> ac.assign(records, "treerpo").steps.round(3).tolist()
        [1.0, 1.0, 1.0, -1.0, -1.0, 0.0, -1.0, 0.0]
    """
    grove = grown(index, params)
    values = child_mean(grove, LEAVES["raw"](grove, 0.0))
    stats = siblings(grove, values)
    scale = stats.std(ddof=0) if params.std == "population" else _bernoulli(stats, values)
    n_nodes = grove.forks.n_nodes
    below = scale[stats.ids[:n_nodes]] + params.eps
    away = stats.centred[:n_nodes]
    credit = np.divide(away, below, out=np.zeros_like(away), where=away != 0)
    total = values.total_N

    def told(name: str, s: int) -> str:
        n = int(grove.forks.node_S[s])
        p = int(stats.ids[n])
        mean = stats.mean[p] + values.leaves.level_N[p]
        return f"(value {total[n]:.6g} - mean {mean:.6g} of {stats.size[p]:.0f} siblings) / {below[n]:.6g}"

    return credited(grove, "treerpo", {"siblings": grove.of_steps(credit)}, values, told)


def _bernoulli(stats: GroupStats, values: Values) -> Floats:
    mean = stats.mean + values.leaves.level_N
    if mean.size and (mean.min() < -1e-9 or mean.max() > 1 + 1e-9):
        raise DataError(
            f"std='bernoulli' needs outcomes in [0, 1], and a mean is {mean.max():g} or {mean.min():g}",
            hint="Scale the rewards, or say std='population'",
        )
    return np.sqrt(np.clip(mean * (1 - mean), 0.0, None))
