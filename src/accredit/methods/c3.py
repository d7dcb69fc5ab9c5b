"""C3: what an alternative's continuations bring, minus what those of the other alternatives bring.

Source: arXiv 2603.06859 (v2 sections 3-7, A.3); EIT-EAST-Lab/C3 @ 628185b
``c3/credit/c3/provider.py``, ``c3/analysis/metrics.py``.  Differences: docs/methods/c3.md.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from accredit.data import Explanation, Parts
from accredit.index import Index, first_seen, rollout_term
from accredit.methods._contrasts import Contrast, ContrastParams, Tried
from accredit.methods._params import bounded, choice
from accredit.methods._registry import method
from accredit.methods._trees import LEAVES, Grove, TreeParams, grown, leaf_mean

__all__ = ["c3"]


@dataclass(frozen=True, slots=True)
class Params(ContrastParams, TreeParams):
    """Parameters of `c3`."""

    contexts: str = choice(
        "same", "depth", doc="compare in one context; or all messages of a depth and task (no replay)"
    )
    blend: float = bounded(0.0, at_least=0, at_most=1, doc="share of the rollout's own outcome in the credit")
    nodes: str = choice("step", "segment", doc="a message is one step, or all that lies between two forks")


@method(
    "c3",
    title="Mean of an alternative's continuations minus that of the other alternatives",
    family="forks",
    params=Params,
    needs={"reward"},
    yields="step",
    tags={"group", "shift_invariant", "scale_equivariant"},
    cites="arXiv:2603.06859",
)
def c3(index: Index, params: Params) -> Parts:
    """Contextual counterfactual credit.

    In a context with alternatives j = 1..n, ``A_j = Q_j - b_j``, Q_j the mean return of the c_j
    continuations after alternative j.  ``loo``: ``b_j = mean of Q_i, i != j``; ``weighted``: ``b_j =
    (sum_i c_i Q_i - c_j Q_j) / (sum_i c_i - c_j)``; ``full_mean``: the mean of all, which makes A
    (n-1)/n of ``loo``.  In a tree the continuations are the leaves below a message and a context is
    what its siblings share.  With one step a rollout it is RLOO.

    ``value_only``: a critic's Q in place of the mean; ``value_assisted``: ``A = r - (1 - alpha)
    base(r) - alpha base(q)``, r the mean, q the critic's.

    Args:
        index: of the batch; ``value_*`` read `action_value` at the steps.
        params: see `Params`.

    Returns:
        Step credit ``[S]``, reward units; 0 at a step without an alternative; sums to 0 over the
        alternatives of a context (``reward_only``, ``loo``).  ``parts``: ``contrast``, and
        ``outcome`` with ``blend``.  Extras ``[S]``: ``q``, ``count``, ``context`` (-1 = not compared).

    Raises:
        MissingSignal: for ``value_*`` without `action_value`.

    Source: arXiv 2603.06859 v2 Eq. 3; ``C3CreditProvider.compute``.

    Example:
        >>> import accredit as ac
        >>> paths = {"A a": 1, "A b": 0, "B c": 0, "B d": 0}
        >>> records = [
        ...     {"id": p, "group": "g", "reward": r, "steps": [{"node": n} for n in p.split()]}
        ...     for p, r in paths.items()
        ... ]
        >>> ac.assign(records, "c3").steps.tolist()
        [0.5, 1.0, 0.5, -1.0, -0.5, 0.0, -0.5, 0.0]
    """
    grove = grown(index, params)
    found = _messages(grove, params)
    parts = {"contrast": (1 - params.blend) * found.credit_S}
    outcome = None
    if params.blend:
        outcome = grove.in_prompt
        parts["outcome"] = params.blend * outcome.centred[index.rollout_S]
    values = np.sum(list(parts.values()), axis=0)

    def explain(s: int) -> Explanation:
        r = int(index.rollout_S[s])
        terms = [found.term(s, 1 - params.blend)]
        if outcome is not None:
            terms.append(rollout_term(index, "outcome", outcome, r, weight=params.blend))
        return Explanation("c3", *index.place_of(s), float(values[s]), tuple(terms))

    return Parts(
        values,
        parts=parts,
        informed_S=found.informed_S,
        fallbacks=found.fallbacks,
        findings=() if found.informed_S.any() else grove.findings(),
        extras=found.extras,
        explain=explain,
    )


def _messages(grove: Grove, params: Params) -> Contrast:
    """Return the messages of the trees as alternatives, the leaves below as their continuations."""
    index, forks = grove.index, grove.forks
    context = np.maximum(forks.parent_N, 0)
    if params.contexts == "depth":
        context = first_seen(grove.prompt_N * (int(forks.depth_N.max(initial=0)) + 1) + forks.depth_N)
    counted = grove.inner_N & (grove.leaves_N > 0)
    tried = Tried(context, forks.n_nodes, grove.leaves_N, counted, params.baseline)
    mean = leaf_mean(grove, LEAVES["raw"](grove, 0.0)).total_N
    return Contrast(index, params, tried, mean, forks.node_S, grove.counted_R[index.rollout_S])
