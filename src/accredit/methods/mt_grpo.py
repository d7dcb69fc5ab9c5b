"""MT-GRPO: a turn is credited by its own reward, by those of later turns, and by the outcome.

Source: arXiv 2505.11821; SiliangZeng/Multi-Turn-RL-Agent ``mt_grpo_env_trainer.py``
(``_find_result_positions``, ``_assign_advantages``).  The K-turn formula is reconstructed from a
survey of the paper's later version.  Differences from their code: docs/methods/mt-grpo.md.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from accredit.data import Column, Explanation, Finding, Member, Parts, Term
from accredit.errors import DataError, MissingSignal
from accredit.index import (
    GroupStats,
    Index,
    discounted_sum,
    first_seen,
    key_column,
    last_of_row,
    rollout_term,
    segment_sum,
    shifted,
    visit_term,
)
from accredit.methods._params import GroupParams, bounded, choice
from accredit.methods._registry import method
from accredit.typing import BoolArray, Floats, Ints

__all__ = ["mt_grpo"]

ANSWERS = frozenset({"none", "result", "error"})


@dataclass(frozen=True, slots=True)
class Params(GroupParams):
    """Parameters of `mt-grpo`."""

    variant: str = choice(
        "paper",
        "code",
        "outcome",
        "merged",
        doc="K-turn formula; one turn reward a rollout, up to the first tool result; the outcome alone; "
        "turn reward plus outcome",
    )
    alpha: float = bounded(1.0, at_least=0, at_most=1, doc="paper: fading of what comes later, a turn")
    turn_advantage_coef: float = bounded(1.0, at_least=0, doc="code: weight of the turn term")
    align: str = choice("turn", "state", doc="paper: turns are compared by their number, or by their state")
    eps: float = bounded(1e-4, at_least=0, doc="added to the deviation")
    singleton: str = choice("zero", doc="a group of one: credit 0 (the authors' code gives NaN)")


@method(
    "mt-grpo",
    title="Turn rewards and outcome, each against the group",
    family="process",
    params=Params,
    needs={"reward"},
    yields="step",
    tags={"group", "conserves", "shift_invariant", "scale_invariant"},
    cites="arXiv:2505.11821",
    compat={"authors": {"variant": "code"}},
    aliases={"grpo-or": {"variant": "outcome"}, "grpo-mr": {"variant": "merged"}},
)
def mt_grpo(index: Index, params: Params) -> Parts:
    """Turn-level advantages from turn rewards and the outcome.

    ``paper``: ``z_k = (R^I_k - mean R^I_k) / (std R^I_k + eps)`` over the rollouts of the group that
    have a turn k which is not their last, ``z^O`` the same on the outcome, and for turn k of K
    ``A_k = sum_{l=k}^{K-1} alpha^(l-k) z_l + alpha^(K-k) z^O``.
    ``code``: one R^I a rollout; ``z^O + c z^I`` up to the first step that got a tool result, ``z^O``
    after it, and ``z(R^I + R^O)`` on a rollout that got none.
    R^O is ``reward`` alone.  With equal turn rewards and alpha 1 (or c 0) it is `grpo` on ``reward``.

    Args:
        index: of the batch.
        params: see `Params`.

    Returns:
        Step credit ``[S]``; each z sums to 0 over its set; exactly 0 in a group of one.

    Raises:
        MissingSignal: ``code`` without ``tool``, ``align="state"`` without ``state``.

    Source: arXiv 2505.11821; Multi-Turn-RL-Agent ``_assign_advantages``.

    Example:
        >>> from accredit.data import Batch
        >>> batch = Batch.from_records([
        ...     {"id": "a", "group": "g", "reward": 1, "steps": [{"reward": 1}, {}, {}]},
        ...     {"id": "b", "group": "g", "reward": 0, "steps": [{}, {"reward": 1}, {}]},
        ... ])
        >>> mt_grpo(Index(batch), Params(alpha=0.5)).values.round(3).tolist()
        [0.53, -0.354, 0.707, -0.53, 0.354, -0.707]
    """
    if params.variant == "paper":
        return _paper(index, params)
    return _coded(index, params)


@dataclass(frozen=True)
class _Standard:
    """Values ``[m]`` standardised in groups, with what explains them."""

    stats: GroupStats
    eps: float

    @property
    def z(self) -> Floats:
        return self.stats.standardised(self.eps)

    def term(self, index: Index, name: str, r: int, weight: float = 1.0) -> Term:
        return rollout_term(index, name, self.stats, r, weight=weight, eps=self.eps, scale_G=self.stats.std())


def _by_group(index: Index, values_R: Floats, params: Params) -> _Standard:
    counted = index.counted_R(params.truncated, params.incomplete)
    return _Standard(GroupStats(values_R, index.group_R, index.n_groups, counted), params.eps)


def _paper(index: Index, params: Params) -> Parts:
    outcome = _by_group(index, index.outcome_R, params)
    last = _last(index)
    among = _sets(index, params)
    counted = index.counted_R(params.truncated, params.incomplete)[index.rollout_S] & ~last
    stats = GroupStats(index.paid_S, among, int(among.max(initial=-1)) + 1, counted)
    turn = stats.standardised(params.eps)
    start = index.batch.step_start_R1
    from_here = discounted_sum(turn, start, params.alpha)
    later = params.alpha * shifted(from_here, start, np.zeros(len(index.batch)))
    to_go = index.steps_R[index.rollout_S] - 1 - index.position_S
    weight = params.alpha ** to_go.astype(np.float64)
    parts = {"turn": turn, "later": later, "outcome": weight * outcome.z[index.rollout_S]}
    values = turn + later + parts["outcome"]

    def terms(s: int) -> tuple[Term, ...]:
        r = int(index.rollout_S[s])
        own = outcome.term(index, "outcome", r, float(weight[s]))
        if last[s]:
            return (own,)
        now = visit_term(index, "turn", stats, s, eps=params.eps, scale_G=stats.std(), noun="turn reward")
        return now, _later_term(index, params, turn, from_here, s), own

    return _finished(
        index,
        params,
        values,
        parts,
        terms,
        informed=counted & ~stats.flat[among],
        bare=int((counted & ~_rewarded(index)).sum()),
        alone=outcome.stats.alone,
    )


def _later_term(index: Index, params: Params, turn: Floats, from_here: Floats, s: int) -> Term:
    r = int(index.rollout_S[s])
    first, end = int(index.batch.step_start_R1[r]), int(index.batch.step_start_R1[r + 1])
    after = float(from_here[s + 1])
    members = tuple(
        Member(index.batch.ids[r], float(turn[u]), u - first, "turn term") for u in range(s + 1, end - 1)
    )
    text = f"alpha {params.alpha:g} x turn terms from the next turn on {after:.6g}"
    inputs = {"alpha": params.alpha, "next": after}
    return Term("later", params.alpha * after, text, inputs, members)


def _last(index: Index) -> BoolArray:
    found = np.zeros(index.batch.n_steps, bool)
    found[last_of_row(index.batch.step_start_R1)[1]] = True
    return found


def _sets(index: Index, params: Params) -> Ints:
    """Return the set in which each turn is compared ``[S]``."""
    if params.align == "turn":
        return first_seen(index.group_S * (int(index.position_S.max(initial=0)) + 1) + index.position_S)
    if not index.batch.has(key_column(index.batch, index.key)[0]):
        raise MissingSignal(
            "align='state' compares turns of one state, and these rollouts have no `state`",
            code="ACC401",
            hint="Give `state` in the steps, or say align='turn'",
        )
    return index.anchor_S


def _rewarded(index: Index) -> BoolArray:
    """Return which steps have a reward of their own ``[S]``."""
    column = index.batch.columns.get("reward_S")
    n = index.batch.n_steps
    return np.zeros(n, bool) if column is None else column.mask(n)


def _coded(index: Index, params: Params) -> Parts:
    given, turn_reward = _turn_reward(index)
    outcome = _by_group(index, index.outcome_R, params)
    turn = _by_group(index, turn_reward, params)
    merged = _by_group(index, turn_reward + index.outcome_R, params)
    got, until = _reached(index, params)
    weight = {
        "outcome": got.astype(np.float64),
        "turn": params.turn_advantage_coef * until,
        "merged": (~got).astype(np.float64),
    }
    pieces = {"outcome": outcome, "turn": turn, "merged": merged}
    parts = {name: weight[name] * piece.z[index.rollout_S] for name, piece in pieces.items()}
    values = parts["outcome"] + parts["turn"] + parts["merged"]

    def terms(s: int) -> tuple[Term, ...]:
        r = int(index.rollout_S[s])
        used = {name: float(weight[name][s]) for name in pieces if weight[name][s]}
        return tuple(pieces[name].term(index, name, r, w) for name, w in used.items())

    counted = outcome.stats.use > 0
    return _finished(
        index,
        params,
        values,
        parts,
        terms,
        informed=((until > 0) | ~got) & (turn.z != 0)[index.rollout_S],
        bare=int((counted & ~given).sum()) if params.variant != "outcome" else 0,
        alone=outcome.stats.alone,
    )


def _turn_reward(index: Index) -> tuple[BoolArray, Floats]:
    """Return which rollouts have a turn reward, and it: ``turn_reward``, else the sum of steps'."""
    n = len(index.batch)
    given = segment_sum(_rewarded(index), index.rollout_S, n) > 0
    found = segment_sum(index.paid_S, index.rollout_S, n)
    column = index.batch.columns.get("turn_reward_R")
    if column is None:
        return given, found
    there = column.mask(n)
    return given | there, np.where(there, column.values, found)


def _reached(index: Index, params: Params) -> tuple[BoolArray, Floats]:
    """Return the steps of rollouts with a tool result, and of them those up to the first one."""
    n = index.batch.n_steps
    if params.variant != "code":
        return np.full(n, params.variant == "outcome"), np.zeros(n)
    result = _is_answer(_tool(index), "result", n)
    so_far = segment_sum(result, index.rollout_S, len(index.batch))
    done_before: Ints = np.cumsum(result) - result
    before_R = np.concatenate([[0], np.cumsum(so_far)])[:-1]
    got = (so_far > 0)[index.rollout_S]
    until = got & (done_before - before_R[index.rollout_S] == 0)
    return got, until.astype(np.float64)


def _tool(index: Index) -> Column:
    column = index.batch.columns.get("tool_S")
    if column is None or not column.mask(index.batch.n_steps).any():
        raise MissingSignal(
            "variant 'code' needs `tool`, what the environment answered after a step",
            code="ACC401",
            hint="Give `tool`: none, result or error, in the steps; or say variant='paper'",
        )
    if column.words is None:
        raise DataError(
            "`tool` must be a word: none, result or error",
            code="ACC110",
            hint="Write `result` where the call succeeded, `error` where it failed",
        )
    return column


def _is_answer(column: Column, word: str, n: int) -> BoolArray:
    words = column.words or ()
    code = words.index(word) if word in words else -1
    found: BoolArray = (column.values == code) & column.mask(n)
    return found


def _finished(
    index: Index,
    params: Params,
    values: Floats,
    parts: Mapping[str, Floats],
    terms: Callable[[int], tuple[Term, ...]],
    *,
    informed: BoolArray,
    bare: int,
    alone: BoolArray,
) -> Parts:
    def explain(s: int) -> Explanation:
        return Explanation("mt-grpo", *index.place_of(s), float(values[s]), terms(s))

    return Parts(
        values,
        parts=parts,
        informed_S=informed,
        fallbacks={"singleton": int(alone.sum()), "no_turn_reward": bare},
        findings=_findings(index, params),
        explain=explain,
    )


def _findings(index: Index, params: Params) -> tuple[Finding, ...]:
    if params.variant == "code":
        return _odd_answers(_tool(index), index.batch.n_steps)
    unused = np.flatnonzero(_last(index) & (index.paid_S != 0))
    if params.variant != "paper" or index.outcome_in_steps or not unused.size:
        return ()
    return (
        Finding(
            "ACC422",
            "info",
            f"{unused.size} rollouts have a reward on their last turn, which is not used",
            f"rollout {index.batch.ids[int(index.rollout_S[unused[0]])]!r}",
            "Give it to the turn that earned it, or add it to `reward`",
            int(unused.size),
        ),
    )


def _odd_answers(column: Column, n: int) -> tuple[Finding, ...]:
    codes = np.unique(column.values[column.mask(n)]).tolist()
    odd = sorted({str((column.words or ())[c]) for c in codes} - ANSWERS)
    if not odd:
        return ()
    return (
        Finding(
            "ACC427",
            "warning",
            f"`tool` is {', '.join(map(repr, odd[:5]))} in some steps: read as no result",
            hint="Write `result` where the call succeeded, `error` where it failed",
            count=len(odd),
        ),
    )
