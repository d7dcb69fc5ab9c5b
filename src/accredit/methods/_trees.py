"""Credit from trees of rollouts: four slots that the tree methods fill.

(1) leaf transform: what a rollout's outcome counts as; (2) node value: a mean over what lies below a
node; (3) node credit: a node's value against its parent's, its root's or its siblings'; (4) after: a
divisor or a whitening.  A method names its choice of each; ``docs/methods/treerl.md`` has the table.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from accredit.data import Explanation, Finding, Parts, Term
from accredit.index import GroupStats
from accredit.methods._grove import Grove, TreeParams, grown
from accredit.typing import Array, Floats

__all__ = [
    "CREDITS",
    "LEAVES",
    "Grove",
    "Leaves",
    "TreeParams",
    "Values",
    "child_mean",
    "credited",
    "divisor",
    "grown",
    "leaf_mean",
    "siblings",
    "to_parent",
    "to_root",
    "value",
    "wording",
]


# -- slot 1: leaves -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Leaves:
    """What the outcomes count as: ``x + level`` of the rollout's tree.

    Args:
        x_R: ``[R]``; exactly 0 in a tree whose outcomes tie.
        level_N: ``[N]``, one number a tree, which no difference of values sees.
    """

    x_R: Floats
    level_N: Floats


def _leaves(transform: Callable[[Grove, float], Floats]) -> Callable[[Grove, float], Leaves]:
    return lambda grove, eps: Leaves(transform(grove, eps), np.zeros(grove.forks.n_nodes))


def _raw(grove: Grove, eps: float) -> Leaves:
    return Leaves(grove.in_tree.centred, grove.in_tree.mean[grove.forks.group_N])


LEAVES: Mapping[str, Callable[[Grove, float], Leaves]] = {
    "raw": _raw,
    "loo": _leaves(lambda grove, eps: grove.in_tree.less_others),
    "z_tree": _leaves(lambda grove, eps: grove.in_tree.standardised(eps, ddof=0)),
    "z_prompt": _leaves(lambda grove, eps: grove.in_prompt.standardised(eps)),
}


# -- slot 2: values of nodes ----------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Values:
    """Values of nodes: ``away + level`` of the leaves.

    Args:
        leaves: that they are means of.
        away_N: ``[N]``; 0 where no counted rollout passes.
    """

    leaves: Leaves
    away_N: Floats

    @property
    def total_N(self) -> Floats:
        """The values ``[N]``."""
        return self.away_N + self.leaves.level_N


def leaf_mean(grove: Grove, leaves: Leaves) -> Values:
    """Return the mean over the leaves below each node: every leaf weighs the same."""
    return Values(leaves, grove.forks.leaf_mean(leaves.x_R, grove.counted_R)[0])


def child_mean(grove: Grove, leaves: Leaves, weights_N: Floats | None = None) -> Values:
    """Return the mean of the children's values, bottom up: every child weighs the same, or as given.

    Args:
        grove: the trees.
        leaves: what the outcomes count as.
        weights_N: positive weight of each node among its siblings ``[N]``.
    """
    return Values(leaves, grove.forks.child_mean(leaves.x_R, grove.counted_R, weights_N)[0])


# -- slot 3: credit of nodes ----------------------------------------------------------------------


def value(grove: Grove, values: Values) -> Floats:
    """Return v_n ``[N]``."""
    return np.where(grove.leaves_N > 0, values.total_N, 0.0)


def to_parent(grove: Grove, values: Values) -> Floats:
    """Return v_n - v_p ``[N]``; 0 for roots."""
    return np.where(grove.leaves_N > 0, grove.forks.less_parent(values.away_N), 0.0)


def to_root(grove: Grove, values: Values) -> Floats:
    """Return v_n - v_r ``[N]``."""
    away = values.away_N
    return np.where(grove.leaves_N > 0, away - away[grove.forks.group_N], 0.0)


CREDITS: Mapping[str, tuple[tuple[str, Callable[[Grove, Values], Floats]], ...]] = {
    "value": (("value", value),),
    "diff_parent": (("local", to_parent),),
    "diff_root": (("global", to_root),),
    "diff_both": (("global", to_root), ("local", to_parent)),
}


def siblings(grove: Grove, values: Values) -> GroupStats:
    """Return statistics of the values among the children of each parent.

    The first N entries are the nodes; the others are the rollouts, of which those that end in a node
    with children are children of it too.  A group is a parent.

    Args:
        grove: the trees.
        values: of the nodes, without their level.
    """
    forks = grove.forks
    counted = np.concatenate([grove.inner_N & (grove.leaves_N > 0), grove.counted_R])
    parent = np.concatenate([np.maximum(forks.parent_N, 0), forks.leaf_R])
    return GroupStats(np.concatenate([values.away_N, values.leaves.x_R]), parent, forks.n_nodes, counted)


# -- slot 4: after --------------------------------------------------------------------------------


def divisor(leaves_N: Floats, how: str) -> Floats:
    """Return sqrt(L_n), L_n or 1 ``[N]``.

    Args:
        leaves_N: L_n, leaves below each node that count ``[N]``.
        how: ``sqrt``, ``uniform`` or ``none``.
    """
    power = {"sqrt": 0.5, "uniform": 1.0, "none": 0.0}[how]
    found: Floats = np.maximum(leaves_N, 1.0) ** power
    return found


# -- what a method returns ------------------------------------------------------------------------


def credited(
    grove: Grove,
    id: str,
    parts_S: Mapping[str, Floats],
    values: Values,
    told: Callable[[str, int], str],
    *,
    findings: tuple[Finding, ...] = (),
    fallbacks: Mapping[str, int] | None = None,
) -> Parts:
    """Return the parts of a tree method.

    Args:
        grove: the trees.
        id: of the method.
        parts_S: addends of the credit by name ``[S]``.
        values: of the nodes, for the read-outs.
        told: the arithmetic of one addend at one step.
        findings: of the method itself.
        fallbacks: of the method itself.
    """
    index, forks = grove.index, grove.forks
    credit = np.sum(list(parts_S.values()), axis=0)
    total = values.total_N
    extras: dict[str, Array] = {
        "node": forks.node_S,
        "node_value": forks.of_steps(total),
        "leaves": forks.of_steps(grove.leaves_N),
    }

    def explain(s: int) -> Explanation:
        r, n = int(index.rollout_S[s]), int(forks.node_S[s])
        inputs = {"value": float(total[n]), "leaves": float(grove.leaves_N[n])}
        inputs |= {"parent": float(total[forks.parent_N[n]]), "root": float(total[forks.group_N[n]])}
        members = grove.members(s)
        terms = tuple(
            Term(
                name, float(part[s]), told(name, s) if grove.counted_R[r] else "not counted", inputs, members
            )
            for name, part in parts_S.items()
        )
        return Explanation(id, *index.place_of(s), float(credit[s]), terms)

    return Parts(
        credit,
        parts=dict(parts_S),
        informed_S=grove.informed_S,
        fallbacks={**grove.fallbacks, **(fallbacks or {})},
        findings=(*grove.findings(), *findings),
        extras=extras,
        explain=explain,
    )


def wording(
    grove: Grove, values: Values, after: Callable[[int], str] = lambda n: ""
) -> Callable[[str, int], str]:
    """Return how the addends ``value``, ``local`` and ``global`` are told.

    Args:
        grove: the trees.
        values: of the nodes.
        after: what is done to the addend of a node, in words.
    """
    forks, total = grove.forks, values.total_N

    def tell(name: str, s: int) -> str:
        n = int(forks.node_S[s])
        text = f"value {total[n]:.6g} of {grove.leaves_N[n]:.0f} leaves"
        above = {"local": forks.parent_N[n], "global": forks.group_N[n]}.get(name)
        if above is not None:
            whose = "parent" if name == "local" else "root"
            text = f"({text} - {total[above]:.6g} of the {whose}'s {grove.leaves_N[above]:.0f})"
        return text + after(n)

    return tell
