"""UniOPSD: hindsight from a successful peer mixed into GiGPO, as far as history and precision allow.

Source: Zenghuang-Fu/Uniopsd @ 09913ab7f9f3 ``verl/trainer/ppo/rlsd_utils.py``; paper and code agree.
Choices and differences: docs/methods/uniopsd.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from accredit.data import Explanation, Finding, Parts, Term
from accredit.data.parts import Explainer
from accredit.errors import ParamError
from accredit.index import GroupStats, Index, rollout_term, visit_term
from accredit.methods._params import GroupParams, bounded, choice, pair
from accredit.methods._peer_fusion import Estimates, History, Mix, estimates, measured, mixed, updated
from accredit.methods._registry import method
from accredit.methods._reweight import counted_T, step_mean
from accredit.methods._teacher import Gap, lost_finding, lost_prefix, sampled_gap
from accredit.methods.gigpo import episode_stats, missing_states
from accredit.methods.rlsd import signed_factor
from accredit.typing import Floats

__all__ = ["uniopsd"]

_GAP_MOST = 2.0  # nats, of form=add


@dataclass(frozen=True, slots=True)
class Params(GroupParams):
    """Parameters of `uniopsd`."""

    rho_hat: float | str | None = bounded(
        None, at_least=0, at_most=1, names=("batch",), doc="trusted correlation; batch = measured on this one"
    )
    history: tuple[float, float] | None = pair(doc="(average correlation, rows) of earlier batches")
    u: float = bounded(0.5, above=0, below=1, doc="trust in the own estimate before anything is known")
    beta: float = bounded(0.9, at_least=0, below=1, doc="weight of the past in the average correlation")
    z0: float = bounded(2.33, at_least=0, doc="standard errors taken off the average correlation")
    lam: float = bounded(0.5, at_least=0, at_most=1, doc="share of the step term that tokens move (lambda_0)")
    update: int = bounded(0, at_least=0, doc="updates done so far, for the decay of lam")
    decay: int = bounded(100, at_least=1, doc="updates until lam is 0")
    eps_w: float = bounded(0.2, at_least=0, below=1, doc="the token factor stays within 1 -/+ eps_w")
    gamma: float = bounded(0.95, at_least=0, at_most=1, doc="discount of step rewards")
    omega: float = bounded(1.0, at_least=0, doc="weight of the step term")
    eps: float = bounded(1e-6, above=0, doc="floor of deviations, variances and medians")
    form: str = choice(
        "fusion",
        "decoupled",
        "mult",
        "add",
        "hybrid",
        doc="how the peer enters: step and token, or token only",
    )
    c_mode: str = choice("corr", "invvar", "invvar_raw", "const", doc="what weighs the two step estimates")
    baseline: str = choice("rows", "rollouts", doc="the episode mean counts each step, or each rollout")


@method(
    "uniopsd",
    title="GiGPO with a successful peer's hindsight mixed in, step by step and token by token",
    family="tokens: teachers",
    params=Params,
    needs={"reward", "state", "logprobs", "logprobs_teacher"},
    yields="token",
    tags={"group", "cross_group", "state_local", "stateful"},
    cites="github:Zenghuang-Fu/Uniopsd",
    compat={"code": {"singleton": "raw"}},
)
def uniopsd(index: Index, params: Params, *, state: Any = None) -> Parts:
    """Fusion of environment and peer at the step, bounded refinement at the token.

    ``A_{k,t} = A^E_k + F_k [(1 - lam) + lam w_{k,t}]``, ``F_k = c_k A^S_k + (1 - c_k) A^T_k``,
    ``w = clip(exp(sign(F) d), 1 - eps_w, 1 + eps_w)``.  A^E: outcome against the group's rows; A^S:
    return-to-go against the other visits of the state; A^T: mean gap d of the step's tokens against
    the same visits, scaled to A^S.  c follows the precision of both and the correlation that earlier
    batches showed.  With ``rho_hat=0`` c is 1, and with ``lam=0`` besides it is
    ``gigpo:episode_stats=steps``.  Untaught rows get A^E + A^S.

    Args:
        index: of the batch; ``logprobs_teacher`` only where a peer was shown.
        params: see `Params`.
        state: history from an earlier ``Credit.state``: (average correlation, rows); None at first.

    Returns:
        Token credit ``[T]``, and the history for the next batch.  Extras: ``fused`` F,
        ``episode_part`` A^E, ``step_part`` A^S, ``peer_part`` A^T, ``c``, ``z_step``, ``z_peer``,
        ``has_step``, ``has_peer`` ``[S]``, ``gap`` d and ``factor`` w ``[T]``; ``scale``,
        ``rho_hat`` ``[1]``.

    Raises:
        MissingSignal: a step that a teacher rescored has no ``logprobs``.
        ParamError: both ``history`` and ``state``, or a history that is none.

    Source: Uniopsd ``compute_opsd_step_tier``, ``compute_rlsd_token_advantage``.
    """
    counted = index.counted_R(params.truncated, params.incomplete)
    gap = sampled_gap(index)
    found = estimates(
        index, gap, counted[index.rollout_S], gamma=params.gamma, omega=params.omega, eps=params.eps
    )
    before, now = _before(params, state), measured(found)
    rho = _trusted(params, before, now)
    mix = mixed(found, rho, params.u, params.c_mode, params.eps)
    if params.form != "fusion":
        mix = Mix(np.ones_like(mix.c), 1.0, mix.own_z, mix.peer_z)
    stats = episode_stats(index, counted, "steps" if params.baseline == "rows" else "rollouts")
    episode = _episode(index, stats, params)
    step_parts = {"episode": episode, "step": mix.c * found.own, "peer": (1.0 - mix.c) * found.peer}
    fused = step_parts["step"] + step_parts["peer"]
    moved, factor = _token_part(index, params, gap, episode, fused)
    parts = {name: np.repeat(part, index.tokens_S) for name, part in step_parts.items()} | {"tokens": moved}
    moved_S = step_mean(index, moved)
    values = np.repeat(episode + fused, index.tokens_S)
    values += moved
    lost = lost_prefix(index)
    return Parts(
        values,
        parts=parts,
        steps=episode + fused + moved_S,
        informed_S=(found.own != 0) | found.has_peer,
        fallbacks={"singleton": int(stats.alone.sum()), "missing_state": missing_states(index), **lost},
        findings=(*_history_finding(params, before, now), *lost_finding(lost)),
        extras={
            "fused": fused,
            "episode_part": episode,
            "step_part": found.own,
            "peer_part": found.peer,
            "c": mix.c,
            "z_step": mix.own_z,
            "z_peer": mix.peer_z,
            "has_step": found.has_own.astype(np.float64),
            "has_peer": found.has_peer.astype(np.float64),
            "gap": gap.values,
            "factor": factor,
            "scale": np.array([found.scale]),
            "rho_hat": np.array([rho]),
        },
        explain=_explainer(index, params, stats, found, mix, step_parts, moved_S),
        state=_told(updated(before, now, params.beta)),
    )


def _before(params: Params, state: Any) -> History | None:
    if params.history is not None and state is not None:
        raise ParamError("history and state are the same thing: give one of them")
    return History.of(state if params.history is None else params.history)


def _told(history: History | None) -> tuple[float, float] | None:
    return None if history is None else (history.rho, history.rows)


def _trusted(params: Params, before: History | None, now: History | None) -> float:
    """Return the correlation that counts in this batch."""
    if params.rho_hat == "batch":
        return 0.0 if now is None else max(0.0, now.rho - params.z0 / float(np.sqrt(now.rows)))
    if params.rho_hat is not None:
        return float(params.rho_hat)
    return 0.0 if before is None else before.bound(params.z0, params.beta)


def _episode(index: Index, stats: GroupStats, params: Params) -> Floats:
    """Return A^E of each step ``[S]``."""
    found = stats.centred
    if params.singleton == "raw":
        found = np.where(stats.alone, stats.values, found)
    return found if params.baseline == "rows" else found[index.rollout_S]


def _token_part(
    index: Index, params: Params, gap: Gap, episode: Floats, fused: Floats
) -> tuple[Floats, Floats]:
    """Return what tokens add to their step's credit ``[T]``, and the factor w ``[T]``."""
    lam = params.lam * max(0.0, 1.0 - params.update / params.decay)
    whole = params.form in ("mult", "add", "hybrid")
    scaled = np.repeat(episode + fused if whole else fused, index.tokens_S)
    factor = signed_factor(scaled, gap.values, params.eps_w)
    moved = factor - 1.0
    moved *= scaled
    moved *= lam
    if params.form in ("add", "hybrid"):
        counted = counted_T(index)
        mean = float(gap.values[counted].mean()) if counted.any() else 0.0
        added = np.where(counted, lam * np.clip(gap.values - mean, -_GAP_MOST, _GAP_MOST), 0.0)
        moved = added if params.form == "add" else np.where(scaled != 0, moved, added)
    return moved, factor


def _history_finding(params: Params, before: History | None, now: History | None) -> tuple[Finding, ...]:
    """Tell what this batch shows where no history says how far the peer can be trusted."""
    if params.rho_hat is not None or before is not None or params.form != "fusion":
        return ()
    told = "it cannot be measured on this batch"
    if now is not None:
        told = f"on this batch it is {now.rho:.3g}{_interval(now)} over {now.rows:.0f} rows"
    return (
        Finding(
            "ACC433",
            "info",
            f"no history of the correlation between returns and the peer's hindsight, so the peer does not "
            f"move steps; {told}",
            hint="Pass credit.state as history= with the next batch, or say rho_hat='batch' if there is none",
        ),
    )


def _interval(now: History) -> str:
    if now.rows <= 3 or abs(now.rho) >= 1:
        return ""
    half = 1.96 / np.sqrt(now.rows - 3)
    low, high = np.tanh(np.arctanh(now.rho) - half), np.tanh(np.arctanh(now.rho) + half)
    return f" (95 %: {low:.3g} to {high:.3g})"


def _explainer(
    index: Index,
    params: Params,
    stats: GroupStats,
    found: Estimates,
    mix: Mix,
    step_parts: Mapping[str, Floats],
    moved: Floats,
) -> Explainer:
    def explain(s: int) -> Explanation:
        c = float(mix.c[s])
        own = visit_term(index, "step", found.visits, s, weight=params.omega * c)
        text = f"{1 - c:.4g} x {found.peer[s]:.6g} (gap against the visits x scale {found.scale:.4g})"
        terms = (
            _episode_term(index, params, stats, s, float(step_parts["episode"][s])),
            own,
            Term("peer", float(step_parts["peer"][s]), text, {"c": c, "scale": found.scale}),
            Term(
                "tokens",
                float(moved[s]),
                f"mean of what the token factors add over {index.tokens_S[s]} tokens",
            ),
        )
        total = sum(term.value for term in terms)
        return Explanation("uniopsd", *index.place_of(s), total, terms)

    return explain


def _episode_term(index: Index, params: Params, stats: GroupStats, s: int, value: float) -> Term:
    r = int(index.rollout_S[s])
    at = s if params.baseline == "rows" else r
    if stats.alone[at]:
        return Term(
            "episode", value, f"score {stats.values[at]:.6g} of one row, singleton={params.singleton}"
        )
    if params.baseline == "rows":
        return visit_term(index, "episode", stats, s, noun="score")
    return rollout_term(index, "episode", stats, r)
