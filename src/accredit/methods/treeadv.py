"""TreeAdv: a segment carries the mean advantage of the rollouts that pass through it.

Source: arXiv 2601.03703, from the text; guesses: docs/methods/treeadv.md.
"""

from __future__ import annotations

from dataclasses import dataclass

from accredit.data import Parts
from accredit.index import Index
from accredit.methods._params import bounded
from accredit.methods._registry import method
from accredit.methods._trees import LEAVES, TreeParams, credited, grown, leaf_mean, value, wording

__all__ = ["treeadv"]


@dataclass(frozen=True, slots=True)
class Params(TreeParams):
    """Parameters of `treeadv`."""

    eps: float = bounded(1e-6, at_least=0, doc="added to the deviation")


@method(
    "treeadv",
    title="Mean GRPO advantage of the rollouts through a segment",
    family="forks",
    params=Params,
    needs={"reward"},
    yields="step",
    tags={"group", "conserves", "shift_invariant", "scale_invariant"},
    cites="arXiv:2601.03703",
)
def treeadv(index: Index, params: Params) -> Parts:
    """Redistributed group-relative advantage.

    ``A_n = mean over leaves l below n of (R_l - mean_g R)/(std_g R + eps)``, std unbiased over the
    prompt's leaves.  Where no step is shared it is GRPO.

    Args:
        index: of the batch.
        params: see `Params`.

    Returns:
        Step credit ``[S]``; exactly 0 where all outcomes of a prompt tie.  ``parts``: ``value``.

    Source: arXiv 2601.03703.

    Example:
        >>> import accredit as ac
        >>> records = [
        ...     {"id": p, "group": "g", "reward": int(p == "A a"), "steps": [{"node": n} for n in p.split()]}
        ...     for p in ["A a", "A b", "B c", "B d"]
        ... ]
        >>> ac.assign(records, "treeadv").steps.round(3).tolist()
        [0.5, 1.5, 0.5, -0.5, -0.5, -0.5, -0.5, -0.5]
    """
    grove = grown(index, params)
    values = leaf_mean(grove, LEAVES["z_prompt"](grove, params.eps))
    parts = {"value": grove.of_steps(value(grove, values))}
    return credited(grove, "treeadv", parts, values, wording(grove, values))
