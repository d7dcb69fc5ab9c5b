"""AT2PO: the value of a turn in a tree of turns, uncertain children weighing more.

Source: AT2PO (agentic turn-based tree search); zzfoutofspace/ATPO @ 98e60f6
``vllm_rollout_with_tools_tree_offline.py``.  Differences from their code: docs/methods/at2po.md.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from accredit.data import Parts
from accredit.errors import MissingSignal
from accredit.index import Index, segment_sum, step_entropy
from accredit.methods._params import bounded, choice, flag
from accredit.methods._registry import method
from accredit.methods._trees import (
    CREDITS,
    LEAVES,
    Grove,
    Leaves,
    TreeParams,
    Values,
    child_mean,
    credited,
    grown,
    leaf_mean,
    wording,
)

__all__ = ["at2po"]


@dataclass(frozen=True, slots=True)
class Params(TreeParams):
    """Parameters of `at2po`."""

    leaf_norm: bool = flag(default=True, doc="outcomes are standardised in the tree (population)")
    eps: float = bounded(1e-6, at_least=0, doc="added to that deviation")
    node_value: str = choice(
        "child_softmax",
        "child_mean",
        "leaf_mean",
        doc="mean of the children by softmax of their entropies; plain; or of the leaves",
    )
    node_adv: str = choice(
        "value",
        "diff_parent",
        "diff_root",
        "diff_both",
        doc="the value itself, or against parent, root, both",
    )
    nodes: str = choice("step", "segment", doc="a node is one step, or all that lies between two forks")


@method(
    "at2po",
    title="Value of a turn in a tree of turns, uncertain children weighing more",
    family="forks",
    params=Params,
    needs={"reward", "node_entropy|logprobs"},
    yields="step",
    tags={"group", "shift_invariant", "scale_invariant"},
    cites="AT2PO, 2026",
)
def at2po(index: Index, params: Params) -> Parts:
    """Turn credit in a tree.

    Leaves count as ``x_l = (R_l - mean_t R)/(std_t R + eps)``, population, t the tree.  The value of a
    node is the mean of its children's with weights ``exp(H_c) / sum exp(H)``, H_c the mean negative
    log-probability of the tokens of turn c; the credit of a turn is its node's value.  With ``diff_parent``
    and the like it is a difference.  Where the entropy of a turn goes with its value, the weighted
    mean is biased.

    Args:
        index: of the batch.
        params: see `Params`.

    Returns:
        Step credit ``[S]``; exactly 0 in a tree whose outcomes tie.  ``parts``: ``value``, or ``local``
        and ``global``.

    Raises:
        MissingSignal: for ``child_softmax`` where no step has an entropy.

    Source: ``ToolTreeNode.compute_value_from_children`` and the block after it.

    Example:
        >>> import accredit as ac
        >>> entropy = {"A": 0.0, "B": 0.0, "a": 0.0, "b": 1.0, "c": 0.0, "d": 0.0}
        >>> records = [
        ...     {"id": p, "group": "g", "reward": int(p == "A a"),
        ...      "steps": [{"node": n, "node_entropy": entropy[n]} for n in p.split()]}
        ...     for p in ["A a", "A b", "B c", "B d"]
        ... ]
        >>> ac.assign(records, "at2po").steps.round(3).tolist()
        [0.044, 1.732, 0.044, -0.577, -0.577, -0.577, -0.577, -0.577]
    """
    grove = grown(index, params)
    leaves = LEAVES["z_tree" if params.leaf_norm else "raw"](grove, params.eps)
    values, lacking = _values(grove, leaves, params)
    parts = {name: grove.of_steps(credit(grove, values)) for name, credit in CREDITS[params.node_adv]}
    fallbacks = {"no_entropy": lacking}
    return credited(grove, "at2po", parts, values, wording(grove, values), fallbacks=fallbacks)


def _values(grove: Grove, leaves: Leaves, params: Params) -> tuple[Values, int]:
    if params.node_value == "leaf_mean":
        return leaf_mean(grove, leaves), 0
    if params.node_value == "child_mean":
        return child_mean(grove, leaves), 0
    entropy, lacking = step_entropy(grove.index)
    if lacking and not entropy.any():
        raise MissingSignal(
            "no step has an entropy",
            code="ACC401",
            hint="Give `logprobs` or `node_entropy`, or say node_value='child_mean'",
        )
    forks = grove.forks
    size = np.maximum(segment_sum(np.ones(entropy.size), forks.node_S, forks.n_nodes), 1)
    mean = segment_sum(entropy, forks.node_S, forks.n_nodes) / size
    top = np.full(forks.index.n_groups, -np.inf)
    np.maximum.at(top, forks.group_N, mean)
    weights = np.exp(np.maximum(mean - top[forks.group_N], -700.0))
    return child_mean(grove, leaves, weights), lacking
