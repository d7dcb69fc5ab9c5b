"""TreeMem: an agent's message carries the mean outcome of what was built on it.

Source: arXiv 2605.04811 Eqs. 5-8, from reading notes; guesses: docs/methods/treemem.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from accredit.data import Finding, Parts
from accredit.errors import MissingSignal
from accredit.index import GroupStats, Index, first_seen, segment_sum
from accredit.methods._contrasts import Tried
from accredit.methods._params import bounded, choice, mapping
from accredit.methods._path_draws import drawn_paths
from accredit.methods._registry import method
from accredit.methods._trees import LEAVES, Grove, TreeParams, Values, credited, grown, leaf_mean
from accredit.typing import BoolArray, Floats, Ints

__all__ = ["treemem"]


@dataclass(frozen=True, slots=True)
class Params(TreeParams):
    """Parameters of `treemem`."""

    normalise: str = choice(
        "across_root",
        "siblings",
        "level",
        doc="z over the drawn messages of a level, a contrast with siblings, or z over all of a level",
    )
    sibling: str = choice(
        "loo", "mean", "z", doc="siblings: minus the mean of the others, minus the mean, or its z"
    )
    update_on: str = choice(
        "sampled_path", "all_nodes", doc="one drawn path below each first message is trained, or all messages"
    )
    beta: float = bounded(0.0, at_least=0, doc="price of a first message as long as the history")
    draw: int = bounded(0, at_least=0, doc="number of the draw of paths")
    path: Mapping[str, list[int]] | None = mapping(
        doc="number of a first message -> numbers of the children taken below it; None = drawn"
    )
    eps: float = bounded(1e-8, at_least=0, doc="added to deviations")
    nodes: str = choice("step", "segment", doc="a message is one step, or all that lies between two forks")


@method(
    "treemem",
    title="Mean outcome below an agent's message, against the same agent's other messages",
    family="forks",
    params=Params,
    needs={"reward"},
    yields="step",
    tags={"group", "shift_invariant", "scale_invariant"},
    cites="arXiv:2605.04811",
)
def treemem(index: Index, params: Params) -> Parts:
    """Subtree means as credit of each agent of a pipeline.

    ``c_n = mean of r over the leaves below message n``; messages of depth d are one agent's, a *level*.
    Below each first message one path is drawn, and over the drawn messages of a level ``A = (c - mean
    c) / (std c + eps)``, std of the population; messages not drawn get 0.  ``level`` (and
    ``across_root`` with all messages) standardises over all messages of the level; ``siblings``
    compares the children of one parent: ``c - mean of the others`` is C3.  With one continuation
    everywhere it is GRPO with a population std.  ``beta`` takes ``beta min(1, |memory| / |history|)``
    off the first message, lengths in tokens.

    Args:
        index: of the batch; with ``beta`` the rollouts' `history_tokens`.
        params: see `Params`.

    Returns:
        Step credit ``[S]``; exactly 0 in a level that ties.  ``parts``: ``level`` or ``siblings``.
        Extras ``[S]``: ``drawn``, whether the message is in the update.

    Raises:
        MissingSignal: for ``beta`` without both lengths.
        ParamError: for a ``path`` that is no list of whole numbers.
        DataError: if ``path`` names a child that is not there.

    Source: arXiv 2605.04811 Eqs. 5-8.

    Example:
        >>> import accredit as ac
        >>> records = [
        ...     {"id": p, "group": "h", "reward": int(p == "A a"), "steps": [{"node": n} for n in p.split()]}
        ...     for p in ["A a", "A b", "B c", "B d"]
        ... ]
        >>> ac.assign(records, "treemem", path={"0": [1], "1": [0]}).steps.round(3).tolist()
        [1.0, 0.0, 1.0, 0.0, -1.0, 0.0, -1.0, 0.0]
    """
    grove = grown(index, params)
    values = _priced(grove, leaf_mean(grove, LEAVES["raw"](grove, 0.0)), params.beta)
    messages = grove.inner_N & (grove.leaves_N > 0)
    all_nodes = params.update_on == "all_nodes"
    drawn = messages if all_nodes else drawn_paths(grove, params.draw, params.path)
    if params.normalise == "siblings":
        compared = _among_siblings(grove, values, messages, params)
    else:
        compared = _in_level(grove, values, messages if params.normalise == "level" else drawn, params)
    credit = np.where(drawn, compared.credit_N, 0.0)

    def told(part: str, s: int) -> str:
        n = int(grove.forks.node_S[s])
        text = f"value {values.total_N[n]:.6g} of {grove.leaves_N[n]:.0f} leaves"
        if not drawn[n]:
            return f"{text}; not drawn, so not in the update"
        return f"{text}, against {compared.size_N[n] - 1} other {compared.noun}"

    name = "siblings" if params.normalise == "siblings" else "level"
    parts = {name: grove.of_steps(credit)}
    found = credited(grove, "treemem", parts, values, told, findings=_advice(params))
    return replace(found, extras={**found.extras, "drawn": drawn[grove.forks.node_S]})


@dataclass(frozen=True, slots=True, eq=False)
class _Compared:
    """Credit of messages ``[N]``, and among how many each was compared ``[N]``."""

    credit_N: Floats
    size_N: Ints
    noun: str


def _in_level(grove: Grove, values: Values, among: BoolArray, params: Params) -> _Compared:
    """Standardise over the messages of one depth of a tree."""
    forks = grove.forks
    ids = first_seen(forks.group_N * (int(forks.depth_N.max(initial=0)) + 1) + forks.depth_N)
    stats = GroupStats(values.away_N, ids, forks.n_nodes, among)
    size = stats.size.astype(np.int64)[ids]
    return _Compared(stats.standardised(params.eps, ddof=0), size, "messages of its depth")


def _among_siblings(grove: Grove, values: Values, messages: BoolArray, params: Params) -> _Compared:
    """Compare the children of one parent; an only child has 0."""
    forks = grove.forks
    parent = np.maximum(forks.parent_N, 0)
    size = np.bincount(parent[messages], minlength=forks.n_nodes)[parent]
    if params.sibling == "z":
        stats = GroupStats(values.away_N, parent, forks.n_nodes, messages)
        return _Compared(stats.standardised(params.eps, ddof=0), size, "answers to the same message")
    baseline = "loo" if params.sibling == "loo" else "full_mean"
    tried = Tried(parent, forks.n_nodes, grove.leaves_N, messages, baseline)
    return _Compared(tried.contrast(values.away_N), size, "answers to the same message")


def _advice(params: Params) -> tuple[Finding, ...]:
    if params.normalise != "across_root":
        return ()
    message = "messages are compared across first messages: a later agent is praised for a good one before it"
    hint = "normalise='siblings', update_on='all_nodes' compares in one context and trains every message"
    return (Finding("ACC511", "info", message, hint=hint),)


def _priced(grove: Grove, values: Values, beta: float) -> Values:
    """Return the values, first messages less the price of their length."""
    if not beta:
        return values
    index, forks = grove.index, grove.forks
    column = index.batch.columns.get("history_tokens_R")
    first = np.flatnonzero((index.position_S == 0) & (index.tokens_S >= 0))
    rollouts = index.rollout_S[first]
    told = None if column is None else column.mask(len(index.batch))[rollouts]
    if column is None or told is None or not told.all() or not (index.tokens_S[first] > 0).all():
        raise MissingSignal(
            "beta needs the tokens of each first message and `history_tokens` of each rollout",
            code="ACC401",
            hint="Give both lengths in tokens, or leave beta at 0",
        )
    share = np.minimum(1.0, index.tokens_S[first] / np.maximum(column.values[rollouts], 1))
    node = forks.node_S[first]
    size = np.maximum(np.bincount(node, minlength=forks.n_nodes), 1)
    return Values(values.leaves, values.away_N - beta * segment_sum(share, node, forks.n_nodes) / size)
