"""TreeRL: a node's value against its root's and its parent's, over the root of its leaves.

Source: arXiv 2506.11902; THUDM/TreeRL @ f0edbea ``openrlhf/trainer/ppo_utils/tree_node.py`` and
``parallel_mcts.py``.  Differences from their code: docs/methods/treerl.md.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from accredit.data import Parts
from accredit.errors import ParamError
from accredit.index import Index
from accredit.methods._params import choice
from accredit.methods._registry import method
from accredit.methods._trees import (
    CREDITS,
    LEAVES,
    Grove,
    TreeParams,
    Values,
    credited,
    divisor,
    grown,
    leaf_mean,
    to_parent,
    wording,
)
from accredit.typing import Floats

__all__ = ["treerl"]

_MODES = {"state": "diff_both", "adv": "diff_parent", "value": "value"}
_SAME = 1e-8  # differences below it are replaced in the authors' code


@dataclass(frozen=True, slots=True)
class Params(TreeParams):
    """Parameters of `treerl`."""

    parity: str = choice("paper", "code", doc="the paper's formula, or what the authors' code does")
    mode: str = choice(
        "state", "adv", "value", doc="against root and parent; against the parent; the value (code only)"
    )
    reweight: str = choice(
        "sqrt", "uniform", "none", doc="divide by sqrt of the leaves, by the leaves, or not"
    )
    norm: str = choice("token", "step", "none", doc="code: what weighs a node when the tree is centred")


@method(
    "treerl",
    title="Value of a node of the tree against its root and its parent",
    family="forks",
    params=Params,
    needs={"reward"},
    yields="step",
    tags={"group", "shift_invariant", "scale_equivariant"},
    cites="arXiv:2506.11902",
    compat={"code": {"parity": "code"}},
)
def treerl(index: Index, params: Params) -> Parts:
    """Global and local advantage of a node of the tree.

    ``A_n = ((V_n - V_r) + (V_n - V_p)) / sqrt(L_n)``: V the mean outcome of the leaves below, r the
    root, p the parent, L_n the number of leaves below n.  A node is all that lies between two forks.
    In a tree without branches, one node a rollout, it is ``2 (R_i - mean R)``.

    ``parity="code"``: leaves count as ``R_l`` minus the mean of the others; the sums below the nodes
    are centred and divided before the differences are taken, and a difference of 0 is replaced by
    that of the node above on the path.

    Args:
        index: of the batch.
        params: see `Params`.

    Returns:
        Step credit ``[S]``, reward units; exactly 0 in a tree whose outcomes tie.  ``parts``:
        ``global`` and ``local`` (mode state; with parity code ``value`` and ``local``).

    Raises:
        ParamError: for ``mode="value"`` without ``parity="code"``.

    Source: arXiv 2506.11902; ``tree_node.py`` ``normalize_all_steps``, ``compute_weighted_update``.

    Example:
        >>> import accredit as ac
        >>> paths = ["A a", "A b", "B c", "B d"]
        >>> records = [
        ...     {"id": p, "group": "g", "reward": int(p == "A a"), "steps": [{"node": n} for n in p.split()]}
        ...     for p in paths
        ... ]
        >>> ac.assign(records, "treerl").steps.round(4).tolist()
        [0.3536, 1.25, 0.3536, -0.75, -0.3536, -0.25, -0.3536, -0.25]
    """
    grove = grown(index, params)
    if params.parity == "code":
        return _as_code(grove, params)
    if params.mode == "value":
        raise ParamError("mode='value' is of the authors' code", hint="Say parity='code' with it")
    values = leaf_mean(grove, LEAVES["raw"](grove, 0.0))
    scale = divisor(grove.leaves_N, params.reweight)
    parts = {
        name: grove.of_steps(credit(grove, values) / scale) for name, credit in CREDITS[_MODES[params.mode]]
    }
    told = wording(grove, values, lambda n: f" / {scale[n]:.6g}" if scale[n] != 1 else "")
    return credited(grove, "treerl", parts, values, told)


def _as_code(grove: Grove, params: Params) -> Parts:
    forks = grove.forks
    leaves = LEAVES["loo"](grove, 0.0)
    total = forks.sum_below(np.where(grove.counted_R, leaves.x_R, 0.0))
    total = (total - _centre(grove, total, params.norm)) / divisor(_trained(grove), params.reweight)
    values = Values(leaves, total / np.maximum(grove.leaves_N, 1.0))
    parts: dict[str, Floats] = {}
    if params.mode != "adv":
        parts["value"] = grove.of_steps(values.away_N)
    if params.mode != "value":
        parts["local"] = grove.of_steps(_replaced(grove, to_parent(grove, values)))
    return credited(grove, "treerl", parts, values, wording(grove, values))


def _centre(grove: Grove, total: Floats, norm: str) -> Floats:
    """Return ``m L_n`` ``[N]``, m the mean of the sums of a tree, each node of its own weight."""
    forks = grove.forks
    if norm == "none":
        return np.zeros(forks.n_nodes)
    weight = forks.tokens_N if norm == "token" else np.ones(forks.n_nodes)
    tree, n = forks.group_N, forks.index.n_groups
    size = np.bincount(tree, weight * grove.leaves_N, n)
    mean = np.divide(np.bincount(tree, weight * total, n), size, out=np.zeros(n), where=size > 0)
    found: Floats = mean[tree] * grove.leaves_N
    return found


def _trained(grove: Grove) -> Floats:
    """Return the number of leaves below each node that are trained ``[N]``."""
    column = grove.index.batch.columns.get("trainable_R")
    size = len(grove.index.batch)
    kept = grove.counted_R
    if column is not None:
        kept = kept & (column.decoded().astype(bool) | ~column.mask(size))
    return grove.forks.sum_below(kept.astype(np.float64))


def _replaced(grove: Grove, local: Floats) -> Floats:
    """Return differences to the parent; one of 0 is the parent's own, replaced itself before."""
    forks, found = grove.forks, local.copy()
    for nodes in forks.levels[2:]:
        same = nodes[np.abs(found[nodes]) < _SAME]
        found[same] = found[forks.parent_N[same]]
    return found
