"""TreePS: a node's value minus its parent's, standardised over the nodes of the prompt.

Source: arXiv 2601.06922, from the text; guesses: docs/methods/treeps.md.
"""

from __future__ import annotations

from dataclasses import dataclass

from accredit.data import Parts
from accredit.index import GroupStats, Index
from accredit.methods._params import bounded
from accredit.methods._registry import method
from accredit.methods._trees import LEAVES, TreeParams, credited, grown, leaf_mean, to_parent, wording

__all__ = ["treeps"]


@dataclass(frozen=True, slots=True)
class Params(TreeParams):
    """Parameters of `treeps`."""

    eps: float = bounded(1e-6, at_least=0, doc="added to the deviation")


@method(
    "treeps",
    title="Value of a node minus its parent's, standardised over the prompt's nodes",
    family="forks",
    params=Params,
    needs={"reward"},
    yields="step",
    tags={"group", "shift_invariant", "scale_invariant"},
    cites="arXiv:2601.06922",
)
def treeps(index: Index, params: Params) -> Parts:
    """Normalised process credit in a tree.

    ``d_n = V_n - V_p``, V the mean outcome of the leaves below; ``A_n = (d_n - mean d)/(std d + eps)``
    over the nodes of the prompt, each once, roots left out, std unbiased.

    Args:
        index: of the batch.
        params: see `Params`.

    Returns:
        Step credit ``[S]``; exactly 0 where all outcomes of a prompt tie.  ``parts``: ``local``.

    Source: arXiv 2601.06922.

    Example:
        >>> import accredit as ac
        >>> records = [
        ...     {"id": p, "group": "g", "reward": int(p == "A a"), "steps": [{"node": n} for n in p.split()]}
        ...     for p in ["A a", "A b", "B c", "B d"]
        ... ]
        >>> ac.assign(records, "treeps").steps.round(3).tolist()
        [0.707, 1.414, 0.707, -1.414, -0.707, 0.0, -0.707, 0.0]
    """
    grove = grown(index, params)
    values = leaf_mean(grove, LEAVES["raw"](grove, 0.0))
    prompt_N = grove.prompt_N
    among = grove.inner_N & (grove.leaves_N > 0)
    stats = GroupStats(to_parent(grove, values), prompt_N, index.n_groups, among)
    scale = stats.std() + params.eps

    def after(n: int) -> str:
        g = int(prompt_N[n])
        return f", minus the nodes' mean {stats.mean[g]:.6g}, / {scale[g]:.6g}"

    parts = {"local": grove.of_steps(stats.standardised(params.eps))}
    return credited(grove, "treeps", parts, values, wording(grove, values, after))
