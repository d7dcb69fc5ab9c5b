"""Belief-shift: credit of a tree whose forks stand before the step that moved the model's belief.

Source: arXiv 2609.11061 sections 3-5; no code was released.  Where to fork:
`accredit.planners.beliefs`; choices: docs/methods/belief-shift.md.
"""

from __future__ import annotations

from dataclasses import dataclass

from accredit.data import Parts
from accredit.index import Index
from accredit.methods._registry import method
from accredit.methods._trees import (
    LEAVES,
    TreeParams,
    credited,
    divisor,
    grown,
    leaf_mean,
    siblings,
    to_root,
)

__all__ = ["belief_shift"]


@dataclass(frozen=True, slots=True)
class Params(TreeParams):
    """Parameters of `belief_shift`."""


@method(
    "belief-shift",
    title="Value of a node against its tree and against its siblings",
    family="forks",
    params=Params,
    needs={"reward"},
    yields="step",
    tags={"group", "shift_invariant", "scale_equivariant"},
    cites="arXiv:2609.11061",
)
def belief_shift(index: Index, params: Params) -> Parts:
    """Global plus local advantage of a node.

    ``A_n = [(V_n - V_r) + (V_n - mu_n)] / sqrt(L_n)``, V the mean outcome of the L leaves below, r the
    root, mu the plain mean over n and its siblings.  It differs from `treerl` where siblings have
    unequal numbers of leaves.  Without forks it is ``2 (R - mean R)``.  The signal that placed the
    forks does not enter.

    Args:
        index: of the batch.
        params: see `Params`.

    Returns:
        Step credit ``[S]``, reward units; exactly 0 in a tree whose outcomes tie.  ``parts``:
        ``global`` and ``local``.

    Source: arXiv 2609.11061, tree advantage.

    Example:
        >>> import accredit as ac
        >>> paths = {"A a": 1, "A b": 1, "A c": 0, "B d": 0, "B e": 0, "B f": 0}
        >>> records = [
        ...     {"id": p, "group": "g", "reward": r, "steps": [{"node": n} for n in p.split()]}
        ...     for p, r in paths.items()
        ... ]
        >>> ac.assign(records, "belief-shift").steps[[0, 1, 5, 6, 7]].round(4).tolist()
        [0.3849, 1.0, -1.0, -0.3849, -0.3333]
    """
    grove = grown(index, params)
    values = leaf_mean(grove, LEAVES["raw"](grove, 0.0))
    forks, total = grove.forks, values.total_N
    root = divisor(grove.leaves_N, "sqrt")
    stats = siblings(grove, values)
    local = stats.centred[: forks.n_nodes]
    parts = {
        "global": grove.of_steps(to_root(grove, values) / root),
        "local": grove.of_steps(local / root),
    }

    def told(name: str, s: int) -> str:
        n = int(forks.node_S[s])
        against = {
            "global": f"{total[forks.group_N[n]]:.6g} of the tree",
            "local": f"mean {total[n] - local[n]:.6g} of it and its siblings",
        }
        return f"(value {total[n]:.6g} - {against[name]}) / sqrt({grove.leaves_N[n]:.0f} leaves)"

    return credited(grove, "belief-shift", parts, values, told)
