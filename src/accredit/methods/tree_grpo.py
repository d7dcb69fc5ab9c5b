"""Tree-GRPO: a leaf's outcome, scaled in its prompt and in its tree, on the whole path.

Source: arXiv 2509.21240; AMAP-ML/Tree-GRPO @ 90b1709 ``verl/trainer/ppo/core_algos.py`` and
``ray_trainer_ts.py``.  Differences from their code: docs/methods/tree-grpo.md.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from accredit.data import Parts
from accredit.index import GroupStats, Index
from accredit.methods._params import bounded, choice
from accredit.methods._registry import method
from accredit.methods._trees import LEAVES, TreeParams, credited, grown, leaf_mean
from accredit.typing import Floats

__all__ = ["tree_grpo"]


@dataclass(frozen=True, slots=True)
class Params(TreeParams):
    """Parameters of `tree-grpo`."""

    mode: str = choice(
        "tree",
        "tree_inner",
        "tree_2norm",
        doc="sum of both scales; the tree's alone; the tree's of what the prompt's gives",
    )
    eps: float = bounded(1e-6, at_least=0, doc="added to the deviation")
    singleton: str = choice("zero", "raw", doc="one leaf alone: 0, or its score over 1 + eps (authors' code)")
    trees: str = choice(
        "links", "group", doc="without `tree` fields: one tree a rollout that is no fork; or one a task"
    )


@method(
    "tree-grpo",
    title="Outcome against the prompt's leaves and against the tree's, on the whole path",
    family="forks",
    params=Params,
    needs={"reward"},
    yields="step",
    tags={"group", "broadcast", "conserves", "shift_invariant", "scale_invariant"},
    cites="arXiv:2509.21240",
    compat={"code": {"singleton": "raw"}},
)
def tree_grpo(index: Index, params: Params) -> Parts:
    """Outcome advantage between and inside the trees of a prompt.

    ``A_l = (R_l - mean_g R)/(std_g R + eps) + (R_l - mean_t R)/(std_t R + eps)``, g the leaves of the
    prompt, t those of the tree, std unbiased; every step of leaf l's path carries A_l.  A shared step
    is thereby moved by the sum over its leaves.  ``tree_inner`` is the second term; ``tree_2norm``
    scales the first term once more in the tree.  With one tree a prompt it is twice GRPO.

    Args:
        index: of the batch.
        params: see `Params`.

    Returns:
        Step credit ``[S]``; sums to 0 over the leaves of a prompt; exactly 0 where all tie.
        ``parts``: ``prompt`` and ``tree``.

    Source: arXiv 2509.21240; ``core_algos.py``, combined in ``ray_trainer_ts.py``.

    Example:
        >>> import accredit as ac
        >>> records = [
        ...     {"id": str(i), "group": "g", "tree": tree, "reward": r, "steps": [{}]}
        ...     for i, (tree, r) in enumerate([("s", 1), ("s", 0), ("t", 0.5), ("t", 0.5)])
        ... ]
        >>> ac.assign(records, "tree-grpo").steps.round(3).tolist()
        [1.932, -1.932, 0.0, 0.0]
    """
    grove = grown(index, params)
    stats_of = {"prompt": grove.in_prompt, "tree": grove.in_tree}
    if params.mode == "tree_2norm":
        prompt = _scaled(grove.in_prompt, params)
        stats_of["tree"] = GroupStats(prompt, grove.tree_R, grove.in_tree.n, grove.counted_R)
    names = ("prompt", "tree") if params.mode == "tree" else ("tree",)
    parts = {name: grove.of_paths(_scaled(stats_of[name], params)) for name in names}

    def told(name: str, s: int) -> str:
        return _told(stats_of[name], int(index.rollout_S[s]), name, params)

    values = leaf_mean(grove, LEAVES["raw"](grove, 0.0))
    alone = int(grove.in_prompt.alone.sum())
    return credited(grove, "tree-grpo", parts, values, told, fallbacks={"singleton": alone})


def _scaled(stats: GroupStats, params: Params) -> Floats:
    found = stats.standardised(params.eps)
    return (
        np.where(stats.alone, stats.values / (1 + params.eps), found) if params.singleton == "raw" else found
    )


def _told(stats: GroupStats, r: int, name: str, params: Params) -> str:
    own, group = float(stats.values[r]), int(stats.ids[r])
    if stats.alone[r]:
        return f"{own:.6g} alone in its {name}, singleton={params.singleton}"
    spread = f"(std {stats.std()[group]:.6g} + {params.eps:g})"
    return f"({own:.6g} - mean {stats.mean[group]:.6g} of the {name}'s {stats.size[group]:.0f}) / {spread}"
