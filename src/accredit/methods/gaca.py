"""GACA: episode and step parts of GiGPO mixed by the surprise of the sampled response.

Source: arXiv 2609.12424, reconstructed; choices are listed in docs/methods/gaca.md.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from accredit.data import Explanation, Parts, Term
from accredit.index import GroupStats, Index, rollout_term, visit_term
from accredit.methods._hindsight import step_means
from accredit.methods._params import bounded, choice
from accredit.methods._registry import method
from accredit.methods.gigpo import (
    StateGroupParams,
    episode_advantage,
    episode_stats,
    missing_states,
    normalised,
)
from accredit.typing import Array, Floats

__all__ = ["fit_mixture", "gaca"]


@dataclass(frozen=True, slots=True)
class Params(StateGroupParams):
    """Parameters of `gaca`."""

    mode: str = choice("mean_std_norm", "mean_norm", doc="as in gigpo")
    kappa: float = bounded(0.5, at_least=0, below=1, doc="modulation strength; 0 = fixed mixing")
    mixture: float = bounded(0.5, above=0, below=1, doc="base weight b of the step part")
    step_weight: float = bounded(1.0, at_least=0, doc="weight w of the step part")
    slope: float = bounded(1.0, at_least=0, doc="map=sigmoid: steepness")
    map: str = choice("tanh", "sigmoid", "rank", doc="from surprise to mixture")
    lone_states: str = choice(
        "fixed", "mix", doc="a state visited once: the base mixture, or the modulated one"
    )


@method(
    "gaca",
    title="Episode and step advantages mixed by the response's surprise",
    family="shared states",
    params=Params,
    needs={"reward", "state", "logprobs"},
    yields="step",
    tags={"group", "state_local"},
    cites="arXiv:2609.12424",
)
def gaca(index: Index, params: Params) -> Parts:
    """Granularity-adaptive mixture of GiGPO's two parts.

    ``n_t`` = mean token NLL of the step, ``z_t`` its z-score within the rollout,
    ``m_t = kappa tanh(z_t)``, ``omega_t = min(b (1 + m_t), 1)``;
    ``A_t = 2 [(1 - omega_t) E + omega_t w P_t]``.  ``kappa=0`` with b = 0.5 is GiGPO
    (``mean_std_norm``).

    Args:
        index: of the batch; ``logprobs`` per policy token.
        params: see `Params`.

    Returns:
        Step credit ``[S]``.  Extras: ``nll`` (nats), ``surprise`` (z), ``omega`` ``[S]``.

    Raises:
        MissingSignal: a step with tokens has no log-probs.

    Source: arXiv 2609.12424, reconstructed.
    """
    counted = index.counted_R(params.truncated, params.incomplete)
    episode = episode_stats(index, counted, "rollouts")
    per_rollout = episode_advantage(episode, params)
    visits = GroupStats(
        index.return_S(params.gamma), index.anchor_S, index.n_anchors, counted[index.rollout_S]
    )
    step = normalised(visits, params)
    nll = -step_means(index, "logprob_T", "logprobs")
    surprise = _surprise(index, nll)
    omega, factor = _mixture(index, surprise, nll, visits, params)
    parts = {
        "episode": factor * (1.0 - omega) * per_rollout[index.rollout_S],
        "step": factor * omega * params.step_weight * step,
    }
    credit = parts["episode"] + parts["step"]

    def explain(s: int) -> Explanation:
        eps = None if params.mode == "mean_norm" else params.eps
        r = int(index.rollout_S[s])
        e_weight = factor * (1.0 - float(omega[s]))
        p_weight = factor * float(omega[s]) * params.step_weight
        scales = (None, None) if eps is None else (episode.std(), visits.std())
        first = rollout_term(index, "episode", episode, r, weight=e_weight, eps=eps, scale_G=scales[0])
        first = Term("episode", float(parts["episode"][s]), first.formula, first.inputs, first.members)
        second = visit_term(index, "step", visits, s, weight=p_weight, eps=eps, scale_G=scales[1])
        note = f"NLL {nll[s]:.4g} nats a token, surprise {surprise[s]:+.4g}, omega {omega[s]:.4g}"
        return Explanation("gaca", *index.place_of(s), float(credit[s]), (first, second), (note,))

    return Parts(
        credit,
        parts=parts,
        informed_S=step != 0,
        fallbacks={"singleton": int(episode.alone.sum()), "missing_state": missing_states(index)},
        extras={"nll": nll, "surprise": surprise, "omega": omega},
        explain=explain,
    )


def _surprise(index: Index, nll: Floats) -> Floats:
    """Z-score of each step's NLL within its rollout ``[S]``; 0 for empty steps."""
    stats = GroupStats(nll, index.rollout_S, len(index.batch), index.tokens_S > 0)
    return stats.standardised(1e-6, ddof=0)


def _mixture(
    index: Index, surprise: Floats, nll: Floats, visits: GroupStats, params: Params
) -> tuple[Floats, float]:
    """Return omega of each step ``[S]`` and the factor before the bracket."""
    lone = (visits.size[visits.ids] < 2) & (params.lone_states == "fixed")
    if params.map == "sigmoid":
        free = 1.0 / (1.0 + np.exp(-params.slope * surprise))
        return np.where(lone, params.mixture, free), 1.0
    shape = _ranks(index, nll) if params.map == "rank" else np.tanh(surprise)
    lean = np.where(lone, 0.0, params.kappa * shape)
    return np.minimum(params.mixture * (1.0 + lean), 1.0), 2.0


def _ranks(index: Index, nll: Floats) -> Floats:
    """Rank of each step's NLL within its rollout, from -1 (least) to 1; mean rank for ties."""
    found = np.zeros(nll.size)
    some = np.flatnonzero(index.tokens_S > 0)
    rollout = index.rollout_S[some]
    order = some[np.lexsort((nll[some], rollout))]
    row = index.rollout_S[order]
    head = np.searchsorted(row, row, side="left")
    rank = (np.arange(order.size) - head).astype(np.float64)
    tie = np.cumsum(
        np.concatenate([[True], (nll[order][1:] != nll[order][:-1]) | (row[1:] != row[:-1])])[: order.size]
    )
    mean = np.bincount(tie, rank) / np.maximum(np.bincount(tie), 1)
    count = np.bincount(row, minlength=len(index.batch))[row]
    found[order] = np.where(count > 1, 2.0 * mean[tie] / np.maximum(count - 1, 1) - 1.0, 0.0)
    return found


def fit_mixture(surprise: Floats, episode: Floats, step: Floats, truth: Floats, bins: int = 10) -> Array:
    """Return the best weight of the step part by surprise, where the true advantage is known.

    In each bin of surprise the weight that minimises the mean squared error of
    ``(1 - omega) E + omega P`` against the truth: ``(e_E^2 - e_E e_P) / (e_E - e_P)^2``.

    Args:
        surprise: z-scores ``[n]``.
        episode: episode part E ``[n]``, on the truth's scale.
        step: step part P ``[n]``, on the truth's scale.
        truth: true advantage ``[n]``.
        bins: number of equally filled bins.

    Returns:
        ``[bins, 3]``: mean surprise, best omega (NaN-free: 0.5 where E and P agree), count.
    """
    order = np.array_split(np.argsort(surprise, kind="stable"), bins)
    rows = []
    for part in order:
        e, p = episode[part] - truth[part], step[part] - truth[part]
        apart = float(np.mean((e - p) ** 2)) if part.size else 0.0
        best = float(np.mean(e * e - e * p)) / apart if apart > 0 else 0.5
        rows.append((float(surprise[part].mean()) if part.size else 0.0, best, float(part.size)))
    return np.array(rows)
