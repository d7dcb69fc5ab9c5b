"""SCAPO: tokens whose probability hangs on irrelevant wording of the prompt lose a little advantage.

Source: arXiv 2609.40360, Eqs. 1 and 5-11.  Choices: docs/methods/scapo.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from accredit.data import Finding, Parts
from accredit.data.vocabulary import is_named_signal
from accredit.errors import MissingSignal
from accredit.index import GroupStats, Index, segment_sum
from accredit.index.groups import FLAT
from accredit.methods._params import bounded, choice, flag
from accredit.methods._registry import method
from accredit.methods._reweight import (
    BaseCredit,
    base_credit,
    counted_T,
    reweighted,
    signal_T,
)
from accredit.typing import Array, BoolArray, Floats, Ints

__all__ = ["scapo"]

_PIECE = 1 << 12  # tokens of small populations that are worked on at once


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
    plain = signal_T(index, "logprobs")
    altered = [_Alteration.of(index, n) for n in sorted(index.batch.columns) if is_named_signal(n)]
    counted = counted_T(index)
    u, drift = np.zeros(index.batch.n_tokens), np.zeros(index.batch.n_tokens)
    for block in _blocks(index, params.population):
        if not isinstance(block.tokens, slice) or not counted[block.tokens].all():
            block = block.only(counted)
        u[block.tokens], drift[block.tokens] = _stability(plain, altered, block, params.eps)
    tied = _tied_R(index)
    used = SIGNS[params.correction](u)
    if params.clip_u is not None:
        np.clip(used, -params.clip_u, params.clip_u, out=used)
    if params.skip_zero_variance:
        used[np.repeat(tied, index.tokens_R)] = 0.0
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
        findings=_findings(index, under, change, tied),
        extras={"stability": u, "drift": drift},
    )


class _Alteration(NamedTuple):
    """Log-probs under one altered prompt ``[T]``, and the rollouts whose group was scored ``[R]``."""

    logprobs: Array
    given_R: BoolArray

    @classmethod
    def of(cls, index: Index, name: str) -> _Alteration:
        """Return the alteration of a column.

        Raises:
            MissingSignal: naming a step that lacks it where another of its group has it.
        """
        column = index.batch.column(name)
        has = column.mask(index.batch.n_steps)
        spoken = index.tokens_S > 0
        some = segment_sum(has & spoken, index.group_S, index.n_groups) > 0
        lacks = ~has & spoken & some[index.group_S]
        if lacks.any():
            raise MissingSignal(
                f"{index.where(int(np.flatnonzero(lacks)[0]))} has no {name.removesuffix('_T')}, "
                "which others of its group have",
                code="ACC401",
                hint="Score every step of a group under an altered prompt, with full support, or none",
            )
        return cls(column.values, some[index.group_R])


class _Runs(NamedTuple):
    """Populations that follow each other: first token and size of each, and the one of each token.

    ``of`` is None where there is one: its numbers then go with any token as they are.
    """

    first: Ints
    size: Ints
    of: Ints | None

    @classmethod
    def along(cls, codes: Ints, sizes: Ints) -> _Runs:
        """Return the runs of equal codes among rollouts of so many tokens."""
        codes, sizes = codes[sizes > 0], sizes[sizes > 0]
        heads = np.flatnonzero(np.diff(codes, prepend=-1))
        first = (np.cumsum(sizes) - sizes)[heads]
        size = np.diff(first, append=sizes.sum())
        return cls(first, size, None if size.size == 1 else np.repeat(np.arange(size.size), size))

    def sum(self, values: Floats) -> Floats:
        """Return the sum of each run."""
        return values.sum(keepdims=True) if self.of is None else segment_sum(values, self.of, self.size.size)

    def over(self, numbers: Floats) -> Floats:
        """Return a number of each run for each of its tokens."""
        return numbers if self.of is None else np.repeat(numbers, self.size)


class _Block(NamedTuple):
    """Whole populations: which tokens; and their rollouts, populations in order.

    Args:
        tokens: of the batch.
        rows: rollouts.
        sizes: tokens of each rollout among ``tokens``.
        codes: population of each rollout.
    """

    tokens: slice | Ints
    rows: Ints
    sizes: Ints
    codes: Ints

    def only(self, keep_T: BoolArray) -> _Block:
        """Return the block without the tokens that do not count."""
        tokens = np.arange(keep_T.size)[self.tokens]
        keep = keep_T[tokens]
        row = np.repeat(np.arange(self.rows.size), self.sizes)[keep]
        return self._replace(tokens=tokens[keep], sizes=np.bincount(row, minlength=self.rows.size))


def _blocks(index: Index, population: str) -> Iterator[_Block]:
    """Yield the tokens of whole populations: a large one alone, small ones together."""
    codes = {
        "group": index.group_R,
        "rollout": np.arange(len(index.batch)),
        "batch": np.zeros(len(index.batch), np.int64),
    }[population]
    order = np.argsort(codes, kind="stable")
    sizes = index.tokens_R[order]
    whole = np.flatnonzero(np.diff(codes[order], append=-1)) + 1  # ends of populations
    ends = np.cumsum(sizes)[whole - 1] if whole.size else whole
    a = done = 0
    while a < order.size:
        b = int(whole[min(int(np.searchsorted(ends, done + _PIECE)), whole.size - 1)])
        rows, counts = order[a:b], sizes[a:b]
        first = index.token_start_R1[rows]
        if np.all(np.diff(rows) == 1):
            tokens: slice | Ints = slice(int(first[0]), int(index.token_start_R1[rows[-1] + 1]))
        else:
            tokens = np.repeat(first - np.cumsum(counts) + counts, counts) + np.arange(counts.sum())
        yield _Block(tokens, rows, counts, codes[rows])
        a, done = b, done + int(counts.sum())


def _stability(plain: Floats, altered: list[_Alteration], block: _Block, eps: float) -> tuple[Floats, Floats]:
    """Return u and the mean drift of a block's tokens."""
    runs, own = _Runs.along(block.codes, block.sizes), plain[block.tokens]
    total, drift, given = np.zeros(own.size), np.zeros(own.size), np.zeros(block.rows.size)
    for each in altered:
        there = each.given_R[block.rows]
        if not there.any():
            continue
        d = _drift(own, each.logprobs[block.tokens])
        if there.all():
            total -= _zscore(d, runs, eps)
            drift += d
        else:
            inside = np.repeat(there, block.sizes)
            some = _Runs.along(block.codes, np.where(there, block.sizes, 0))
            total[inside] -= _zscore(d[inside], some, eps)
            drift[inside] += d[inside]
        given += there
    many = np.repeat(np.maximum(given, 1.0), block.sizes)
    return _zscore(total / many, runs, eps), drift / many


def _drift(own: Floats, other: Array) -> Floats:
    """Return ``2 tanh(|log p0 - log pk| / 2)``."""
    found = own - other
    np.abs(found, out=found)
    found *= 0.5
    np.tanh(found, out=found)
    found *= 2.0
    return found


def _zscore(values: Floats, runs: _Runs, eps: float) -> Floats:
    """Return values standardised in each run, by population deviation; 0 where they tie."""
    if not values.size:
        return values
    high, low = np.maximum.reduceat(values, runs.first), np.minimum.reduceat(values, runs.first)
    flat = high - low <= FLAT * np.maximum(1.0, np.maximum(np.abs(high), np.abs(low)))
    centred = values - runs.over(runs.sum(values) / runs.size)
    scale = np.sqrt(runs.sum(centred * centred) / runs.size) + eps
    centred *= runs.over(np.divide(1.0, scale, out=np.zeros_like(scale), where=~flat & (scale > 0)))
    return centred


def _tied_R(index: Index) -> BoolArray:
    """Return the rollouts of groups whose outcomes tie ``[R]``."""
    flat = GroupStats(index.score_R, index.group_R, index.n_groups, index.scored_R).flat
    return flat[index.group_R]


def _findings(index: Index, under: BaseCredit, change: Floats, tied: BoolArray) -> tuple[Finding, ...]:
    moved, base = (_largest(index, values) for values in (change, under.tokens))
    alone = np.zeros(index.n_groups, bool)
    alone[index.group_R[tied]] = True
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


def _largest(index: Index, values: Floats) -> Floats:
    """Return the largest size of a value in each group ``[G]``."""
    found = np.zeros(index.n_groups)
    rows = np.flatnonzero(index.tokens_R)
    if rows.size:
        top = np.maximum.reduceat(np.abs(values), index.token_start_R1[rows])
        np.maximum.at(found, index.group_R[rows], top)
    return found
