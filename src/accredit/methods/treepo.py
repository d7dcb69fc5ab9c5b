"""TreePO: a leaf against the means of all its ancestors; progress; values among siblings.

Source: arXiv 2508.17445; multimodal-art-projection/TreePO @ f055523
``verl/trainer/ppo/core_algos.py``.  Differences from their code: docs/methods/treepo.md.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from accredit.data import Parts
from accredit.index import Index, flat_groups
from accredit.methods._params import bounded, choice, flag
from accredit.methods._registry import method
from accredit.methods._trees import (
    LEAVES,
    Grove,
    Leaves,
    TreeParams,
    Values,
    child_mean,
    credited,
    grown,
    leaf_mean,
    siblings,
    wording,
)
from accredit.spread import Whitening
from accredit.typing import BoolArray, Floats

__all__ = ["treepo"]


@dataclass(frozen=True, slots=True)
class Params(TreeParams):
    """Parameters of `treepo`."""

    variant: str = choice(
        "treepo",
        "progress",
        "sibling_norm",
        doc="the leaf against its ancestors; what a segment adds to that; what it adds to its rank",
    )
    weights: str = choice("average", "group_size", doc="treepo: ancestors weigh the same, or by their leaves")
    skip_flat: bool = flag(default=False, doc="treepo: ancestors whose leaves tie are left out, the root too")
    eta: float = bounded(
        -1.0,
        at_most=1,
        doc="progress: the parent's value counts eta^(segments to the leaf + 1); <= 0: in full",
    )
    whiten: bool = flag(default=True, doc="credit is whitened over the batch's policy tokens")
    eps: float = bounded(1e-8, at_least=0, doc="added to their variance, and to the siblings' deviation")
    nodes: str = choice("step", "segment", doc="a node is one step, or all that lies between two forks")


@method(
    "treepo",
    title="Outcome against the means of all ancestors, whitened over the batch",
    family="forks",
    params=Params,
    needs={"reward"},
    yields="step",
    tags={"cross_group", "group", "shift_invariant", "scale_invariant"},
    cites="arXiv:2508.17445",
    aliases={
        "treepo-progress": {"variant": "progress"},
        "treepo-sibling-norm": {"variant": "sibling_norm"},
    },
)
def treepo(index: Index, params: Params) -> Parts:
    """Credit of a leaf against the nodes that its segments start in.

    ``treepo``: ``A_l = sum_a w_a (x_l - V_a) / sum_a w_a`` over the ancestors a of leaf l that hold
    more than one leaf, the root always; V_a the mean outcome below a; the same for all steps of l.
    ``progress``: ``x'_l = sum_a L_a (x_l - V_a) / sum_a L_a`` over all ancestors and the leaf itself;
    V' the mean of the children's; credit ``V'_n - V'_p``, V' of the root 0.  ``sibling_norm``: values
    as means of the children's, standardised among siblings; credit is the difference to the parent's.
    The first two are whitened: ``(A - mean) / sqrt(var + eps)`` over policy tokens, var unbiased.

    Args:
        index: of the batch.
        params: see `Params`.

    Returns:
        Step credit ``[S]``.  Before whitening exactly 0 in a tree whose outcomes tie.  ``parts``:
        ``ancestors``, ``progress`` or ``siblings``.

    Source: arXiv 2508.17445; ``compute_tree_reinforce_plus_plus_baseline_outcome_advantage``.

    Example:
        >>> import accredit as ac
        >>> records = [
        ...     {"id": p, "group": "g", "reward": int(p == "A a"), "steps": [{"node": n} for n in p.split()]}
        ...     for p in ["A a", "A b", "B c", "B d"]
        ... ]
        >>> ac.assign(records, "treepo", whiten=False).steps.tolist()
        [0.625, 0.625, -0.375, -0.375, -0.125, -0.125, -0.125, -0.125]
    """
    grove = grown(index, params)
    plain, values, told = _VARIANTS[params.variant](grove, params)
    name = _NAMES[params.variant]
    if params.variant == "sibling_norm" or not params.whiten:
        return credited(grove, "treepo", {name: plain}, values, told)
    stats, by_steps = _whitening(grove, plain)
    counted_S = grove.counted_R[index.rollout_S]
    white = np.where(counted_S, stats.of(plain, counted_S, params.eps), 0.0)
    scale = float(np.sqrt(stats.var + params.eps))

    def whitened(name: str, s: int) -> str:
        return f"({told(name, s)} - mean {stats.mean:.6g} of {stats.n}) / {scale:.6g}"

    return credited(grove, "treepo", {name: white}, values, whitened, fallbacks={"no_tokens": by_steps})


def _whitening(grove: Grove, plain: Floats) -> tuple[Whitening, int]:
    """Return the statistics over policy tokens, over steps where there are none; and 1 in that case."""
    index = grove.index
    counted_S = grove.counted_R[index.rollout_S]
    if not index.batch.n_tokens:
        return Whitening.over(plain, counted_S), int(plain.size > 0)
    return Whitening.over(np.repeat(plain, index.tokens_S), np.repeat(counted_S, index.tokens_S)), 0


_Variant = tuple[Floats, Values, Callable[[str, int], str]]


def _against_ancestors(grove: Grove, params: Params) -> _Variant:
    values = leaf_mean(grove, LEAVES["raw"](grove, 0.0))
    use = (grove.leaves_N > 1) | ~grove.inner_N
    if params.skip_flat:
        use &= ~_flat(grove, values.leaves)
    weight = np.where(use, grove.leaves_N if params.weights == "group_size" else 1.0, 0.0)
    away_R, size_R = _from_ancestors(grove, values, weight)
    credit = np.divide(away_R, size_R, out=np.zeros_like(away_R), where=size_R > 0)
    found: Floats = grove.of_paths(credit)

    def told(name: str, s: int) -> str:
        r = int(grove.index.rollout_S[s])
        return f"mean {found[s]:.6g} of outcome {grove.outcome_R[r]:.6g} - value over ancestors"

    return found, values, told


def _progress(grove: Grove, params: Params) -> _Variant:
    forks = grove.forks
    plain = leaf_mean(grove, LEAVES["raw"](grove, 0.0))
    away_R, size_R = _from_ancestors(grove, plain, grove.leaves_N)
    leaves = Leaves(away_R / (size_R + 1.0), np.zeros(forks.n_nodes))
    values = child_mean(grove, leaves)
    values = Values(leaves, np.where(grove.inner_N, values.away_N, 0.0))
    above = np.where(grove.inner_N, values.away_N[forks.parent_N], 0.0)[forks.node_S]
    if params.eta > 0:
        left = forks.depth_N[forks.leaf_R][grove.index.rollout_S] - forks.depth_N[forks.node_S]
        above = above * params.eta ** (left + 1.0)
    counted_S = grove.counted_R[grove.index.rollout_S]
    found = np.where(counted_S, values.away_N[forks.node_S] - above, 0.0)

    def told(name: str, s: int) -> str:
        return f"(progress {values.away_N[forks.node_S[s]]:.6g} - {above[s]:.6g} of the parent)"

    return found, values, told


def _among_siblings(grove: Grove, params: Params) -> _Variant:
    n_nodes = grove.forks.n_nodes
    plain = child_mean(grove, LEAVES["raw"](grove, 0.0))
    stats = siblings(grove, plain)
    ranks = np.where(
        stats.alone, np.append(plain.total_N, grove.outcome_R), stats.standardised(params.eps, 0)
    )
    zero = Leaves(np.where(grove.counted_R, ranks[n_nodes:], 0.0), np.zeros(n_nodes))
    values = Values(zero, np.where(grove.inner_N, ranks[:n_nodes], 0.0))
    return grove.of_steps(grove.forks.less_parent(values.away_N)), values, _local(grove, values)


def _local(grove: Grove, values: Values) -> Callable[[str, int], str]:
    plain = wording(grove, values)
    return lambda name, s: plain("local", s)


_VARIANTS = {"treepo": _against_ancestors, "progress": _progress, "sibling_norm": _among_siblings}
_NAMES = {"treepo": "ancestors", "progress": "progress", "sibling_norm": "siblings"}


def _from_ancestors(grove: Grove, values: Values, weight: Floats) -> tuple[Floats, Floats]:
    """Return sum_a w_a (x_l - V_a) and sum_a w_a over the ancestors of each leaf ``[R]``.

    The ancestors are the nodes above the one that the rollout ends in.
    """
    forks = grove.forks
    size, away = weight.copy(), weight * values.away_N
    for nodes in forks.levels[1:]:
        size[nodes] += size[forks.parent_N[nodes]]
        away[nodes] += away[forks.parent_N[nodes]]
    above = forks.parent_N[forks.leaf_R]
    known = grove.counted_R & (above >= 0)
    size_R = np.where(known, size[above], 0.0)
    return np.where(known, size_R * values.leaves.x_R - away[above], 0.0), size_R


def _flat(grove: Grove, leaves: Leaves) -> BoolArray:
    """Return which nodes have leaves that tie ``[N]``."""
    forks = grove.forks
    entered = np.flatnonzero(forks.enters_S)
    rows = np.concatenate([grove.index.rollout_S[entered], np.arange(leaves.x_R.size)])
    nodes = np.concatenate([forks.node_S[entered], grove.tree_R])
    return flat_groups(leaves.x_R[rows], nodes, forks.n_nodes, grove.counted_R[rows])
