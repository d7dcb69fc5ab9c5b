"""BPO: the mean outcome of a branch minus that of the other branches from the same state.

Source: arXiv 2607.14171, from the text; guesses: docs/methods/bpo.md.
"""

from __future__ import annotations

from dataclasses import dataclass

from accredit.data import Parts
from accredit.index import Index
from accredit.methods._registry import method
from accredit.methods._trees import LEAVES, TreeParams, credited, grown, leaf_mean, siblings

__all__ = ["bpo"]


@dataclass(frozen=True, slots=True)
class Params(TreeParams):
    """Parameters of `bpo`."""


@method(
    "bpo",
    title="Mean outcome of a branch minus that of its sibling branches",
    family="forks",
    params=Params,
    needs={"reward"},
    yields="step",
    tags={"group", "shift_invariant", "scale_equivariant"},
    cites="arXiv:2607.14171",
)
def bpo(index: Index, params: Params) -> Parts:
    """Branch-relative credit.

    ``A_n = V_n - mean of V over the other children of n's parent``, V the mean outcome of the leaves
    below.  An only child has 0.  In a tree without branches, one node a rollout, it is RLOO.

    Args:
        index: of the batch.
        params: see `Params`.

    Returns:
        Step credit ``[S]``, reward units; sums to 0 over siblings; exactly 0 where they tie.
        ``parts``: ``siblings``.

    Source: arXiv 2607.14171.

    Example:
        >>> import accredit as ac
        >>> records = [
        ...     {"id": p, "group": "g", "reward": int(p == "A a"), "steps": [{"node": n} for n in p.split()]}
        ...     for p in ["A a", "A b", "B c", "B d"]
        ... ]
        >>> ac.assign(records, "bpo").steps.tolist()
        [0.5, 1.0, 0.5, -1.0, -0.5, 0.0, -0.5, 0.0]
    """
    grove = grown(index, params)
    values = leaf_mean(grove, LEAVES["raw"](grove, 0.0))
    stats = siblings(grove, values)
    credit = stats.less_others[: grove.forks.n_nodes]
    total = values.total_N

    def told(name: str, s: int) -> str:
        n = int(grove.forks.node_S[s])
        p = int(stats.ids[n])
        others = f"mean {total[n] - credit[n]:.6g} of the {stats.size[p] - 1:.0f} other branches"
        return f"value {total[n]:.6g} - {others}" if stats.size[p] > 1 else "an only branch"

    return credited(grove, "bpo", {"siblings": grove.of_steps(credit)}, values, told)
