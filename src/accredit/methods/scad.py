"""SCAD: planners by sibling subtasks on a prefix tree, workers protected and taught.

Source: arXiv 2610.03372, reconstructed from the abstract and summaries; choices:
docs/methods/scad.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from accredit.data import Explanation, Finding, Member, Parts, Term
from accredit.index import GroupStats, Index, first_seen
from accredit.methods._graph import grpo_part, grpo_term, kept_term
from accredit.methods._params import bounded, choice, text
from accredit.methods._registry import method
from accredit.methods._reweight import step_mean
from accredit.typing import BoolArray, Floats, Ints

__all__ = ["scad"]


@dataclass(frozen=True, slots=True)
class Params:
    """Parameters of `scad`."""

    planner: str = text("planner", doc="role that chooses subtasks")
    worker: str = text("worker", doc="role that executes them")
    tree_weight: float = bounded(1.0, at_least=0, doc="weight of the tree credit")
    kappa: float = bounded(1.0, at_least=0, doc="shrinkage of the baseline, in rollouts")
    prior: str = choice("group", "parent", doc="what the baseline shrinks to")
    tree_scale: str = choice("std", "raw", doc="tree credit in group deviations, or reward units")
    teacher_weight: float = bounded(1.0, at_least=0, doc="weight eta of the teacher's signal")
    teacher_clip: float = bounded(5.0, above=0, doc="bound on its log-ratio, nats")
    eps: float = bounded(1e-6, at_least=0, doc="added to the deviation")


class _Tree(NamedTuple):
    """Planner steps on the prefix tree: their history node, edge, value and baseline."""

    steps: Ints
    node: Ints
    edge: Ints
    q: Floats
    baseline: Floats
    siblings: BoolArray


@method(
    "scad",
    title="Planner credit against sibling subtasks; workers keep what is positive, plus a teacher",
    family="shared states",
    params=Params,
    needs={"reward", "agent", "action"},
    yields="token",
    tags={"group"},
    cites="arXiv:2610.03372",
)
def scad(index: Index, params: Params) -> Parts:
    """Structured credit assignment and distillation.

    Planner step l with history h (the subtask-report pairs so far) and subtask u:
    ``A_grpo + weight C(h, u)``, ``C = Q(h, u) - B(h)``: Q the mean score of the rollouts through
    (h, u), ``B = (sum of scores through h + kappa prior)/(n(h) + kappa)``; 0 where one subtask was
    tried.  Worker token j: ``max(A_grpo, 0) + eta clip(log p_teacher - log p)``.  Other roles:
    GRPO.

    Args:
        index: of the batch; planner steps may carry ``report``, worker tokens
            ``logprobs_teacher``.
        params: see `Params`.

    Returns:
        Token advantages ``[T]`` and step credit ``[S]`` (workers: mean teacher signal).  Extras:
        ``tree_credit`` ``[S]``.

    Source: arXiv 2610.03372, reconstructed.
    """
    outcome, episode = grpo_part(index)
    role = _roles(index)
    tree = _tree(index, role == params.planner, params)
    credit = _tree_credit(index, tree, episode, params)
    worker = role == params.worker
    base = np.where(worker, np.maximum(outcome, 0.0), outcome)
    signal, findings = _teacher(index, worker, params)
    mean_signal = step_mean(index, signal)
    steps = base + credit + mean_signal
    step_T = index.step_T
    parts = {"episode": base[step_T], "tree": credit[step_T], "teacher": signal}

    def explain(s: int) -> Explanation:
        terms = [kept_term(grpo_term(index, episode, s), float(base[s]), "a worker")]
        if role[s] == params.planner:
            terms.append(_tree_term(index, tree, s, float(credit[s]), params))
        if worker[s]:
            text_ = "mean over its tokens of the clipped log-ratio of teacher and student"
            terms.append(Term("teacher", float(mean_signal[s]), text_))
        return Explanation("scad", *index.place_of(s), float(steps[s]), tuple(terms))

    return Parts(
        sum(parts.values(), np.zeros(step_T.size)),
        parts=parts,
        steps=steps,
        informed_S=(credit != 0) | (mean_signal != 0),
        findings=findings,
        extras={"tree_credit": credit},
        explain=explain,
    )


def _roles(index: Index) -> np.ndarray[tuple[int], np.dtype[np.object_]]:
    """Role of each step ``[S]`` (object array of words, None where not given)."""
    batch = index.batch
    found = np.full(batch.n_steps, None, object)
    if batch.has("agent_R"):
        column = batch.column("agent_R")
        given = column.mask(len(batch))[index.rollout_S]
        found[given] = column.decoded()[index.rollout_S][given]
    if batch.has("agent_S"):
        own = batch.column("agent_S")
        given = own.mask(batch.n_steps)
        found[given] = own.decoded()[given]
    return found


def _codes(index: Index, column_name: str, steps: Ints) -> Ints:
    """Codes of a word column at some steps; a missing word is a code of its own."""
    if not index.batch.has(column_name):
        return np.arange(steps.size) + 1
    column = index.batch.column(column_name)
    given = column.mask(index.batch.n_steps)[steps]
    return np.where(given, column.values[steps], len(column.words or ()) + np.arange(steps.size))


def _tree(index: Index, plans: BoolArray, params: Params) -> _Tree:
    steps = np.flatnonzero(plans & index.scored_R[index.rollout_S])
    rollout = index.rollout_S[steps]
    head = np.searchsorted(rollout, rollout, side="left")
    level = np.arange(steps.size) - head
    action, report = _codes(index, "action_S", steps), _codes(index, "report_S", steps)
    node, edge = np.zeros(steps.size, np.int64), np.zeros(steps.size, np.int64)
    history = index.group_R.copy()
    offset_node = offset_edge = 0
    for depth in range(int(level.max(initial=-1)) + 1):
        at = np.flatnonzero(level == depth)
        local = first_seen(history[rollout[at]])
        node[at] = offset_node + local
        choice_ = first_seen(local * (int(action.max()) + 1) + action[at])
        edge[at] = offset_edge + choice_
        history[rollout[at]] = first_seen(choice_ * (int(report.max()) + 1) + report[at])
        offset_node, offset_edge = int(node[at].max()) + 1, int(edge[at].max()) + 1
    return _values(index, steps, rollout, level, node, edge, params)


def _values(
    index: Index, steps: Ints, rollout: Ints, level: Ints, node: Ints, edge: Ints, params: Params
) -> _Tree:
    score = index.score_R[rollout]
    q = _mean(score, edge)
    n = int(node.max(initial=-1)) + 1
    total, count = np.bincount(node, score, n), np.bincount(node, minlength=n)
    scored = index.scored_R
    size = np.bincount(index.group_R, scored, index.n_groups)
    mean = np.bincount(index.group_R, np.where(scored, index.score_R, 0.0), index.n_groups)
    prior_of = (mean / np.maximum(size, 1))[index.group_R[rollout]]
    baseline = np.zeros(steps.size)
    for depth in range(int(level.max(initial=-1)) + 1):
        at = np.flatnonzero(level == depth)
        prior = prior_of[at] if depth == 0 or params.prior == "group" else baseline[at - 1]
        weight = count[node[at]] + params.kappa
        baseline[at] = (total[node[at]] + params.kappa * prior) / weight
    pairs = np.unique(node * (int(edge.max(initial=0)) + 1) + edge)
    choices = np.bincount(pairs // (int(edge.max(initial=0)) + 1), minlength=n)
    return _Tree(steps, node, edge, q, baseline, choices[node] >= 2)


def _mean(values: Floats, ids: Ints) -> Floats:
    found: Floats = (np.bincount(ids, values) / np.maximum(np.bincount(ids), 1))[ids]
    return found


def _tree_credit(index: Index, tree: _Tree, episode: GroupStats, params: Params) -> Floats:
    """Weighted tree credit of each step ``[S]``; 0 off the planner's steps."""
    raw = tree.q - tree.baseline
    raw = np.where(tree.siblings & (np.abs(raw) > 1e-12), raw, 0.0)
    std = episode.std()[index.group_R[index.rollout_S[tree.steps]]]
    if params.tree_scale == "std":
        raw = np.where(std > 0, raw / (std + params.eps), 0.0)
    found = np.zeros(index.batch.n_steps)
    found[tree.steps] = params.tree_weight * np.where(std > 0, raw, 0.0)
    return found


def _teacher(index: Index, worker: BoolArray, params: Params) -> tuple[Floats, tuple[Finding, ...]]:
    """Weighted teacher signal of each token ``[T]``; 0 off the workers' tokens."""
    batch = index.batch
    if not (batch.has("logprobs_teacher_T") and batch.has("logprob_T")):
        missing = Finding(
            "ACC416",
            "warning",
            "no teacher log-probs: workers of failed rollouts get nothing",
            hint="Give logprobs_teacher and logprobs at the workers' tokens (by rescoring the same tokens)",
        )
        return np.zeros(batch.n_tokens), (missing,)
    teacher, student = batch.column("logprobs_teacher_T"), batch.column("logprob_T")
    known = teacher.mask(batch.n_steps) & student.mask(batch.n_steps) & worker
    known &= index.scored_R[index.rollout_S]
    gap = teacher.values.astype(np.float64) - student.values.astype(np.float64)
    signal = params.teacher_weight * np.clip(gap, -params.teacher_clip, params.teacher_clip)
    return np.where(known[index.step_T], signal, 0.0), ()


def _tree_term(index: Index, tree: _Tree, s: int, value: float, params: Params) -> Term:
    at = np.flatnonzero(tree.steps == s)
    if not at.size:
        return Term("tree", value, "rollout not counted")
    i = int(at[0])
    same = np.flatnonzero(tree.node == tree.node[i])
    members = tuple(
        Member(
            index.batch.ids[int(index.rollout_S[tree.steps[j]])],
            float(index.score_R[index.rollout_S[tree.steps[j]]]),
            int(index.position_S[tree.steps[j]]),
            "same subtask" if tree.edge[j] == tree.edge[i] else "other subtask",
        )
        for j in same.tolist()
    )
    formula = f"{params.tree_weight:g} x (Q {tree.q[i]:.6g} - B {tree.baseline[i]:.6g})"
    if params.tree_scale == "std":
        formula += " / (group std + eps)"
    if not tree.siblings[i]:
        formula += " [one subtask tried here: 0]"
    inputs = {"Q": float(tree.q[i]), "B": float(tree.baseline[i])}
    return Term("tree", value, formula, inputs, members)
