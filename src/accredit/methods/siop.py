"""SIOP: a turn's credit is what it adds to the support for answers that the rollouts agree on.

Source: arXiv 2605.04984; dl-m9/SIOP @ a871ef9 ``siop_process_reward.compute_siop_process_rewards``
and ``core_algos.compute_siop_turn_level_advantage``.  Choices: docs/methods/siop.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from accredit.data import Explanation, Parts, Term
from accredit.errors import MissingSignal
from accredit.index import GroupStats, Index, discounted_sum, last_of_row, rollout_term, segment_sum
from accredit.methods._answers import Answers, answers_of, reliability, support_change
from accredit.methods._params import bounded, choice, flag
from accredit.methods._registry import method
from accredit.typing import Array, BoolArray, Floats

__all__ = ["siop"]

SCORED = ("turn", "broadcast", "gold")  # variants that read `ref_logprobs`
FLOOR = 1e-6  # a pool that spreads less is not scaled


@dataclass(frozen=True, slots=True)
class Params:
    """Parameters of `siop`."""

    variant: str = choice(
        "turn",
        "broadcast",
        "majority",
        "frequency",
        "gold",
        doc="credit a turn; its rewards summed over the rollout; being in the largest cluster (TTRL); "
        "share of the cluster (EMPO); support of a gold answer",
    )
    lam: float = bounded(0.5, at_least=0, at_most=1, doc="1 - lam scales the reward of the last turn")
    eta: float | None = bounded(
        None, at_least=0, doc="weight of the evidence; None = 1 if `evidence` is there, else 0"
    )
    num_refs: int = bounded(3, at_least=1, doc="references of a cluster that count")
    epsilon: float = bounded(1e-8, above=0, doc="added to the support before its logarithm")
    gamma: float = bounded(1.0, at_least=0, at_most=1, doc="discount of what later turns get")
    norm_by_std: bool = flag(default=True, doc="divide by the deviation of the group's turns")
    eps: float = bounded(1e-6, at_least=0, doc="added to the deviation")


class _Rewards(NamedTuple):
    """Rewards of turns: change of support and terminal part ``[S]``, and who has them ``[R]``."""

    support: Floats
    terminal: Floats
    rewarded: BoolArray
    unmeasured: BoolArray


@method(
    "siop",
    title="What a turn adds to the support for the rollout's own answer, by how reliable that answer is",
    family="process",
    params=Params,
    needs={"answer"},
    yields="step",
    tags={"group", "no_reward"},
    cites="arXiv:2605.04984",
)
def siop(index: Index, params: Params) -> Parts:
    """Self-induced outcome potential: no verifier, no reward.

    The final answers of a group are clustered by meaning; cluster c of m_c of the answers has
    ``q_c ∝ m_c exp(eta r_c)``, r_c its mean evidence.  p_t is the likelihood of the references of
    the rollout's cluster after turn t:
    ``r_t = q [log(p_t + epsilon) - log(p_{t-1} + epsilon)]``, the last turn ``+ (1 - lam) q``; a
    rollout of one turn has ``(1 - lam) q`` alone.
    ``A_t = (r_t - mean) / (std + eps) + gamma A_{t+1}``, mean and unbiased std over all turns of the
    group, those of rollouts without an answer as 0.

    Args:
        index: of the batch.  Rollouts carry ``answer`` (empty or null = none), ``answer_cluster``,
            ``evidence`` (a list) and ``ref_logprobs``: ``{"baseline": refs, "after_step": [refs]}``,
            refs a list of ``[weight, mean log-prob]``.
        params: see `Params`.

    Returns:
        Step credit ``[S]``; before discounting it sums to 0 over the group's turns.  Extras: ``q``,
        ``reference`` (rollout whose answer is the cluster's first, -1 = none), ``rewarded`` ``[R]``,
        ``turn_reward`` ``[S]``.

    Raises:
        MissingSignal: if the variant needs ``ref_logprobs`` and no rollout has it.
        DataError: if ``evidence`` or ``ref_logprobs`` of a rollout has another form.

    Source: arXiv 2605.04984; dl-m9/SIOP ``compute_siop_process_rewards``.

    Example:
        >>> import accredit as ac
        >>> records = [
        ...     {"id": str(i), "group": "g", "answer": a, "steps": [{}]} for i, a in enumerate("aab")
        ... ]
        >>> ac.assign(records, "siop", variant="majority").steps.round(3).tolist()
        [0.577, 0.577, -1.155]
    """
    answers = answers_of(index)
    if params.variant in SCORED and not index.batch.has("ref_logprobs_R"):
        raise MissingSignal(
            f"siop:variant={params.variant} needs ref_logprobs, which these rollouts lack",
            code="ACC401",
            hint="Give ref_logprobs in the rollouts: log-probs of the cluster's answers after each turn; "
            "variants majority and frequency need none",
        )
    q = _gold(index, answers) if params.variant == "gold" else reliability(index, answers, params.eta)
    extras: dict[str, Array] = {"q": q, "reference": answers.reference_R}
    fallbacks = {"exact_match": answers.by_text}
    if params.variant not in SCORED:
        score = _majority(answers) if params.variant == "majority" else answers.share_R
        return _broadcast(index, params, score, answers.use_R, extras, fallbacks)
    rewards = _rewards(index, answers, q, params)
    extras |= {"rewarded": rewards.rewarded, "turn_reward": rewards.support + rewards.terminal}
    fallbacks |= {"unmeasured": int(rewards.unmeasured.sum())}
    counted = answers.use_R & ~rewards.unmeasured
    if params.variant == "broadcast":
        score = segment_sum(extras["turn_reward"], index.rollout_S, len(index.batch))
        return _broadcast(index, params, score, counted, extras, fallbacks)
    return _by_turn(index, params, rewards, counted, extras, fallbacks)


def _gold(index: Index, answers: Answers) -> Floats:
    """Return 1 for the rollouts of groups that have a gold answer: some log-probs of it ``[R]``."""
    given = index.batch.column("ref_logprobs_R").mask(len(index.batch))
    has = np.zeros(index.n_groups, bool)
    has[index.group_R[given & answers.use_R]] = True
    return np.where(answers.use_R & has[index.group_R], 1.0, 0.0)


def _rewards(index: Index, answers: Answers, q: Floats, params: Params) -> _Rewards:
    due = (q > 0) & answers.use_R
    change, measured = support_change(index, due & (index.steps_R > 1), params.num_refs, params.epsilon)
    rewarded = due & (measured | (index.steps_R == 1))
    worth = q * rewarded
    terminal = np.zeros(index.batch.n_steps)
    rows, last = last_of_row(index.batch.step_start_R1)
    terminal[last] = (1.0 - params.lam) * worth[rows]
    return _Rewards(
        worth[index.rollout_S] * change, terminal, rewarded, due & ~rewarded & (index.steps_R > 0)
    )


def _majority(answers: Answers) -> Floats:
    """Return 1 for the rollouts of each group's largest cluster ``[R]``, in a tie the first one."""
    best: dict[int, int] = {}
    for c, size in enumerate(answers.size_C.tolist()):
        group = int(answers.group_C[c])
        if group not in best or size > answers.size_C[best[group]]:
            best[group] = c
    largest = np.fromiter(best.values(), np.int64, len(best))
    return np.isin(answers.cluster_R, largest).astype(np.float64)


def _broadcast(
    index: Index,
    params: Params,
    score: Floats,
    counted: BoolArray,
    extras: Mapping[str, Array],
    fallbacks: Mapping[str, int],
) -> Parts:
    """Return the score of each rollout against its group, for all of its steps."""
    stats = GroupStats(score, index.group_R, index.n_groups, counted)
    scaled = stats.standardised(params.eps) if params.norm_by_std else stats.centred
    values = scaled[index.rollout_S]

    def explain(s: int) -> Explanation:
        r = int(index.rollout_S[s])
        eps, scale = (params.eps, stats.std()) if params.norm_by_std else (None, None)
        term = rollout_term(index, params.variant, stats, r, eps=eps, scale_G=scale)
        return Explanation("siop", *index.place_of(s), float(values[s]), (term,))

    return Parts(values, parts={params.variant: values}, fallbacks=fallbacks, extras=extras, explain=explain)


def _by_turn(
    index: Index,
    params: Params,
    rewards: _Rewards,
    counted: BoolArray,
    extras: Mapping[str, Array],
    fallbacks: Mapping[str, int],
) -> Parts:
    """Return the rewards of turns against all turns of the group, and what later turns get."""
    pool = GroupStats(extras["turn_reward"], index.group_S, index.n_groups, counted[index.rollout_S])
    std = pool.std()
    scale = np.where(std < FLOOR, 1.0, std) + params.eps if params.norm_by_std else np.ones_like(std)

    def to_go(stats: GroupStats) -> Floats:
        scaled = stats.centred / scale[stats.ids]
        return discounted_sum(scaled, index.batch.step_start_R1, params.gamma)

    parts = {
        name: to_go(GroupStats(values, pool.ids, pool.n, pool.counted))
        for name, values in (("support", rewards.support), ("terminal", rewards.terminal))
    }
    values = to_go(pool)

    def explain(s: int) -> Explanation:
        r, group = int(index.rollout_S[s]), int(index.group_S[s])
        text = f"sum over this and later turns of (reward - mean) / {scale[group]:.6g}"
        terms = []
        for name, own in (("support", rewards.support), ("terminal", rewards.terminal)):
            inputs = {"reward": float(own[s]), "q": float(extras["q"][r]), "std": float(std[group])}
            note = f"{name} {own[s]:.6g} at this turn; {text}"
            terms.append(Term(name, float(parts[name][s]), note, inputs))
        return Explanation("siop", *index.place_of(s), float(values[s]), tuple(terms))

    told = rewards.rewarded & (index.steps_R > 1)
    return Parts(
        values,
        parts=parts,
        informed_S=told[index.rollout_S],
        fallbacks=fallbacks,
        extras=extras,
        explain=explain,
    )
