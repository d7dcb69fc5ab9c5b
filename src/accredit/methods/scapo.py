"""SCAPO: tokens whose probability hangs on irrelevant wording of the prompt lose a little advantage.

Source: arXiv 2609.40360, Eqs. 1 and 5-11.  Choices: docs/methods/scapo.md.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from accredit.data import Finding, Parts
from accredit.data.vocabulary import is_named_signal
from accredit.errors import MissingSignal
from accredit.index import GroupStats, Index, segment_sum
from accredit.methods._params import bounded, choice, flag
from accredit.methods._registry import method
from accredit.methods._reweight import (
    BaseCredit,
    base_credit,
    counted_T,
    group_T,
    population_T,
    reweighted,
    signal_T,
)
from accredit.typing import BoolArray, Floats

__all__ = ["scapo"]


@dataclass(frozen=True, slots=True)
class Params:
    """Parameters of `scapo`."""

    lam: float = bounded(
        0.01, at_least=0, doc="weight of the token term; 0 after the first steps of training"
    )
    correction: str = choice(
        "negative", "all", "positive", doc="which sign of the standardised stability counts"
    )
    population: str = choice("group", "rollout", "batch", doc="tokens that are standardised together")
    skip_zero_variance: bool = flag(
        default=False, doc="leave groups whose outcomes tie alone; the paper does not"
    )
    clip_u: float | None = bounded(
        None, above=0, doc="bound on the standardised stability; the paper has none"
    )
    eps: float = bounded(1e-8, at_least=0, doc="added to the deviation")


SIGNS: dict[str, Callable[[Floats], Floats]] = {
    "negative": lambda u: np.minimum(u, 0.0),
    "all": lambda u: u,
    "positive": lambda u: np.maximum(u, 0.0),
}


@method(
    "scapo",
    title="Advantage less what hangs on irrelevant wording: tokens that drift under altered prompts",
    family="tokens: teachers",
    params=Params,
    needs={"logprobs", "perturbed_logprobs"},
    yields="token",
    tags={"reweights"},
    cites="arXiv:2609.40360",
)
def scapo(index: Index, params: Params, *, base: str | None = None) -> Parts:
    """Semifactual credit: ``A~_t = A_t + lam min(u_t, 0)``.

    Drift of a token under alteration k of the prompt that leaves the answer as it is:
    ``d^k = |p0 - pk| / ((p0 + pk) / 2) = 2 tanh(|log p0 - log pk| / 2)``;
    ``u = zscore(mean over k of zscore(-d^k))`` over the group's tokens, population deviation.
    With ``lam=0`` it is the base.

    Args:
        index: of the batch; every ``perturbed_logprobs.NAME`` is one alteration, absent for whole
            groups at most.
        params: see `Params`.
        base: method that gives A; None = ``grpo``.

    Returns:
        Token advantages ``[T]``, never above the base's.  Extras: ``stability`` (u, of mean 0 and
        mean square at most 1 in each population), ``drift`` (mean over k) ``[T]``.

    Raises:
        MissingSignal: if a step with tokens lacks ``logprobs``, or has not the alterations that
            the rest of its group has.

    Source: arXiv 2609.40360.

    Example:
        >>> import accredit as ac
        >>> def step(*drifted):
        ...     return {"logprobs": [-1.0, -1.0], "perturbed_logprobs": {"typos": list(drifted)}}
        >>> records = [
        ...     {"id": "a", "group": "g", "reward": 1, "steps": [step(-1.0, -3.0)]},
        ...     {"id": "b", "group": "g", "reward": 0, "steps": [step(-1.0, -1.0)]},
        ... ]
        >>> ac.assign(records, "scapo", base="dr-grpo").tokens.round(4).tolist()
        [0.5, 0.4827, -0.5, -0.5]
    """
    under = base_credit(index, base)
    counted = counted_T(index)
    ids, n = population_T(index, params.population)
    drift, given = np.zeros(index.batch.n_tokens), np.zeros(index.batch.n_tokens)
    stability = np.zeros(index.batch.n_tokens)
    plain = signal_T(index, "logprobs")
    for name in sorted(name for name in index.batch.columns if is_named_signal(name)):
        there = _given_T(index, name)
        d = 2.0 * np.tanh(0.5 * np.abs(plain - index.batch.column(name).values)) * there
        stability += GroupStats(-d, ids, n, counted & there).standardised(params.eps, ddof=0)
        drift += d
        given += there
    given = np.maximum(given, 1.0)
    drift /= given
    u = GroupStats(stability / given, ids, n, counted).standardised(params.eps, ddof=0)
    used = SIGNS[params.correction](u)
    if params.clip_u is not None:
        used = np.clip(used, -params.clip_u, params.clip_u)
    tied = _tied_T(index)
    if params.skip_zero_variance:
        used = np.where(tied, 0.0, used)
    change = params.lam * used

    def text(s: int) -> str:
        own = slice(index.batch.token_start_S1[s], index.batch.token_start_S1[s + 1])
        if not index.tokens_S[s]:
            return "no policy token"
        return (
            f"{params.lam:g} x mean {used[own].mean():.6g} of the {params.correction} stability; "
            f"mean drift {drift[own].mean():.6g}"
        )

    return reweighted(
        index,
        under,
        under.tokens + change,
        id="scapo",
        name="semifactual",
        text=text,
        findings=_findings(index, under, change, counted, tied),
        extras={"stability": u, "drift": drift},
    )


def _given_T(index: Index, name: str) -> BoolArray:
    """Return the tokens that an alteration was scored for ``[T]``: whole groups.

    Raises:
        MissingSignal: naming a step that lacks it where another of its group has it.
    """
    has = index.batch.column(name).mask(index.batch.n_steps)
    spoken = index.tokens_S > 0
    some = segment_sum(has & spoken, index.group_S, index.n_groups) > 0
    lacks = ~has & spoken & some[index.group_S]
    if lacks.any():
        s = int(np.flatnonzero(lacks)[0])
        field = name.removesuffix("_T")
        raise MissingSignal(
            f"rollout {index.batch.ids[int(index.rollout_S[s])]!r} step {int(index.position_S[s])} has no "
            f"{field}, which others of its group have",
            code="ACC401",
            hint="Score every step of a group under an altered prompt, with full support, or none",
        )
    return np.repeat(some[index.group_S], index.tokens_S)


def _tied_T(index: Index) -> BoolArray:
    """Return the tokens of groups whose outcomes tie ``[T]``."""
    flat = GroupStats(index.score_R, index.group_R, index.n_groups, index.scored_R).flat
    return np.repeat(flat[index.group_R], index.tokens_R)


def _findings(
    index: Index, under: BaseCredit, change: Floats, counted: BoolArray, tied: BoolArray
) -> tuple[Finding, ...]:
    groups = group_T(index)
    moved, base = np.zeros(index.n_groups), np.zeros(index.n_groups)
    np.maximum.at(moved, groups[counted], np.abs(change[counted]))
    np.maximum.at(base, groups[counted], np.abs(under.tokens[counted]))
    alone = np.zeros(index.n_groups, bool)
    alone[groups[tied]] = True
    found = []
    if large := int(((moved > base) & ~alone).sum()):
        found.append(
            Finding(
                "ACC437",
                "warning",
                f"in {large} groups the largest token term exceeds every advantage",
                hint="Set clip_u, or a smaller lam",
                count=large,
            )
        )
    if only := int(((moved > 0) & alone).sum()):
        found.append(
            Finding(
                "ACC438",
                "info",
                f"{only} groups whose outcomes tie are credited by the token term alone",
                hint="Say skip_zero_variance=True to leave them alone",
                count=only,
            )
        )
    return tuple(found)
