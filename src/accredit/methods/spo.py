"""SPO-tree: the value of a segment's end minus that of its beginning, values as means of children.

Source: arXiv 2505.23564; AIFrameResearch/SPO @ b9fc6a2
``src/treetune/episode_generators/tree_episode_generator.py``.  Differences: docs/methods/spo.md.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from accredit.data import Parts
from accredit.errors import DataError
from accredit.index import Index
from accredit.methods._params import bounded, choice
from accredit.methods._registry import method
from accredit.methods._trees import (
    LEAVES,
    Grove,
    TreeParams,
    Values,
    child_mean,
    credited,
    grown,
    siblings,
    to_parent,
    wording,
)
from accredit.typing import Floats

__all__ = ["spo"]


@dataclass(frozen=True, slots=True)
class Params(TreeParams):
    """Parameters of `spo`."""

    normalise: str = choice(
        "none",
        "siblings",
        doc="divide by the deviation of the siblings' values (`grpo` in the authors' code)",
    )
    eps: float = bounded(1e-8, at_least=0, doc="added to that deviation")
    prover: float = bounded(0.0, at_least=0, doc="weight of the best-of-k advantage that is added (PAV)")
    best_of: int = bounded(4, at_least=1, doc="k: tries of which the best counts")
    nodes: str = choice("step", "segment", doc="a node is one step, or all that lies between two forks")


@method(
    "spo",
    title="Value of a segment's end minus that of its beginning",
    family="forks",
    params=Params,
    needs={"reward"},
    yields="step",
    tags={"group", "shift_invariant", "scale_equivariant"},
    cites="arXiv:2505.23564",
    aliases={"spo-tree": {}},
)
def spo(index: Index, params: Params) -> Parts:
    """Segment advantage in a tree.

    ``A_n = V_n - V_p``, V of a node the mean of its children's, V of a leaf its outcome: every child
    weighs the same, however many leaves it has.  The credit along a path sums to the outcome minus
    the root's value.  With ``normalise`` it is divided by the deviation of the siblings' values
    (population).  ``prover`` adds ``w (BoK(V_n) - BoK(V_p))``, ``BoK(v) = 1 - (1 - v)^k``: progress
    of a policy that has k tries.

    Args:
        index: of the batch.
        params: see `Params`.

    Returns:
        Step credit ``[S]``, reward units; exactly 0 in a tree whose outcomes tie.  ``parts``:
        ``local``, and ``prover`` where it has weight.

    Raises:
        DataError: for ``prover`` with outcomes outside [0, 1].

    Source: arXiv 2505.23564; ``tree_episode_generator.py`` ``extract_edges_from_tree``.

    Example:
        >>> import accredit as ac
        >>> records = [
        ...     {"id": p, "group": "g", "reward": int(p == "A a"), "steps": [{"node": n} for n in p.split()]}
        ...     for p in ["A a", "A b", "B c", "B d"]
        ... ]
        >>> ac.assign(records, "spo").steps.tolist()
        [0.25, 0.5, 0.25, -0.5, -0.25, 0.0, -0.25, 0.0]
    """
    grove = grown(index, params)
    values = child_mean(grove, LEAVES["raw"](grove, 0.0))
    local, after = to_parent(grove, values), ""
    if params.normalise == "siblings":
        stats = siblings(grove, values)
        scale = stats.std(ddof=0)[stats.ids[: local.size]] + params.eps
        local = np.divide(local, scale, out=np.zeros_like(local), where=local != 0)
        after = " / (std of the siblings + eps)"
    parts = {"local": grove.of_steps(local)}
    if params.prover:
        parts["prover"] = params.prover * grove.of_steps(_best_of(grove, values, params.best_of))
    plain = wording(grove, values, lambda n: after)

    def told(name: str, s: int) -> str:
        if name == "local":
            return plain(name, s)
        text = plain("local", s).removesuffix(after)
        return f"{params.prover:g} x the same of 1 - (1 - v)^{params.best_of}: {text}"

    return credited(grove, "spo", parts, values, told)


def _best_of(grove: Grove, values: Values, k: int) -> Floats:
    """Return BoK(V_n) - BoK(V_p) ``[N]``."""
    inside = grove.outcome_R[grove.counted_R]
    if inside.size and (inside.min() < 0 or inside.max() > 1):
        raise DataError(
            f"prover needs outcomes in [0, 1], got {inside.min():g} to {inside.max():g}",
            hint="Scale the rewards, or leave prover at 0",
        )
    best = 1.0 - (1.0 - values.total_N) ** k
    return np.where(grove.leaves_N > 0, grove.forks.less_parent(best), 0.0)
