"""DCSD: direction from the student's belief in the answer, size from what hidden states add.

Source: "Decoupled Credit Self-Distillation" (2026), sections 3, C and E; no code.  Choices:
docs/methods/dcsd.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import chain, pairwise
from types import NoneType
from typing import Any, NamedTuple

import numpy as np

from accredit.data import Parts
from accredit.errors import DataError, MissingSignal
from accredit.index import Index, row_any, row_of, row_sum, segment_extremes, segment_sum
from accredit.methods._params import bounded, choice
from accredit.methods._registry import method
from accredit.methods._reweight import base_credit, column_T, reweighted
from accredit.methods._volume import boundaries, logdet_gains, projected
from accredit.typing import Array, BoolArray, Floats, Ints

__all__ = ["dcsd"]

_PIECE = 1 << 14  # tokens of rollouts whose volumes are taken together


@dataclass(frozen=True, slots=True)
class Params:
    """Parameters of `dcsd`."""

    partition: str = choice(
        "auto", "own", "induced", doc="steps of the rollout, or induced; auto = own where there are several"
    )
    direction: str = choice(
        "margin", "outcome", doc="by the margin of the gold answer, else by the outcome; or by that alone"
    )
    tau_plus: float = bounded(5.0, above=0, doc="rise of the margin that overrides the outcome, nats")
    tau_minus: float = bounded(-3.0, below=0, doc="fall of the margin that overrides the outcome, nats")
    beta: float | None = bounded(
        None, above=0, below=math.inf, doc="weight of a state in the volume; None = 1 / mean |h|^2"
    )
    project: int | None = bounded(
        None, at_least=1, whole=True, doc="dimensions that the volume is measured in; None = all"
    )
    eps_w: float = bounded(0.2, at_least=0, below=1, doc="a token's weight in its step is 1 +- eps_w")


class _Segments(NamedTuple):
    """Steps with tokens as the method sees them: which these are, rollouts, boundaries for the readout.

    Args:
        start_N1: offsets of their tokens.
        rollout_N: rollout of each segment ``[N]``.
        place_N: number of each segment among all of its rollout, empty ones included ``[N]``.
        count_R: segments of each rollout, empty ones included ``[R]``.
    """

    start_N1: Ints
    rollout_N: Ints
    place_N: Ints
    count_R: Ints

    def each(self, values_N: Array) -> Array:
        """Return a number of each segment for each of its tokens ``[T]``."""
        return np.repeat(values_N, np.diff(self.start_N1))

    def of(self, token: int) -> int:
        """Return the segment of a token."""
        return int(np.searchsorted(self.start_N1, token, side="right")) - 1


@method(
    "dcsd",
    title="Sign by the student's belief in the answer, size by what hidden states add, shares by a teacher",
    family="tokens: hidden states",
    params=Params,
    needs={"hidden"},
    yields="token",
    tags={"reweights"},
    cites="DCSD 2026",
)
def dcsd(index: Index, params: Params, *, base: str | None = None) -> Parts:
    """Decoupled credit self-distillation: ``A_t = sigma_k kappa |A_tau| alpha_k q_t``.

    For step k of K, with A_tau the rollout's advantage:
    ``sigma_k`` = sign of ``M_{k+1} - M_k`` where that is >= tau_plus or <= tau_minus, else of A_tau;
    ``M = l(gold) - logsumexp l(others)``, l the log-prob of each candidate answer at the boundary.
    ``alpha_k = dF_k / max_j dF_j``, dF_k what the step's hidden states add to
    ``F = 0.5 logdet(I + beta sum h h^T)``.
    ``q_t`` = share of ``clip(exp(sigma_k (log pi_T - log pi)), 1 - eps_w, 1 + eps_w)`` in the step;
    ``kappa`` = policy tokens / K.  Without a privileged teacher q is uniform.

    Args:
        index: of the batch; ``hidden`` a policy token, ``candidate_logprobs`` a rollout: one list a
            boundary (steps + 1), gold first; perhaps ``logprobs_teacher`` and ``logprobs``.
        params: see `Params`.
        base: method that gives A_tau (the mean over the rollout's tokens); None = ``grpo``.

    Returns:
        Token advantages ``[T]``; those of a step sum to ``sigma kappa |A_tau| alpha`` whatever the
        teacher says.  Extras ``[T]``: ``segment`` (number of the step in its rollout), ``sigma``,
        ``alpha``, ``share`` (q), ``gain`` (nats).

    Raises:
        MissingSignal: if a rollout whose advantage is not 0 lacks ``candidate_logprobs`` and
            ``direction`` is ``margin``.
        DataError: if they have another form, or a hidden state is not finite.

    Source: DCSD 2026, section 3.

    Example:
        >>> import accredit as ac
        >>> records = [
        ...     {"id": i, "group": "g", "reward": r, "candidate_logprobs": [[-3.0, -1.0], [0.0, -9.0]],
        ...      "steps": [{"hidden": [[1.0, 0.0], [1.0, 0.0]]}]}
        ...     for i, r in (("a", 1), ("b", 0))
        ... ]
        >>> ac.assign(records, "dcsd", base="dr-grpo").tokens.tolist()
        [0.5, 0.5, 0.5, 0.5]
    """
    under = base_credit(index, base)
    hidden = column_T(index, "hidden")
    gain, segments = _gains(index, hidden, params), _segments(index, hidden, params)
    of_N = segments.rollout_N
    outcome_R = row_sum(under.tokens, index.token_start_R1) / np.maximum(index.tokens_R, 1)
    alpha = _relative(row_sum(gain, segments.start_N1), of_N, len(index.batch))
    sigma, unclear = _direction(index, segments, outcome_R, params)
    share, untaught = _shares(index, segments, sigma, params.eps_w)
    spoken_R = np.bincount(of_N, minlength=len(index.batch))
    kappa_R = index.tokens_R / np.maximum(spoken_R, 1)
    values = segments.each(sigma * kappa_R[of_N] * np.abs(outcome_R[of_N]) * alpha)
    values *= share

    def text(s: int) -> str:
        first = index.batch.token_start_S1[s]
        if not index.tokens_S[s]:
            return "no policy token"
        k, r = segments.of(first), int(index.rollout_S[s])
        more = segments.of(index.batch.token_start_S1[s + 1] - 1) - k
        return (  # the term is this less the base
            f"sigma {sigma[k]:+.0f} x kappa {kappa_R[r]:.6g} x |A_tau| {abs(outcome_R[r]):.6g} x alpha "
            f"{alpha[k]:.6g}, shared by its tokens{f'; {more} more steps in it' if more else ''}"
        )

    return reweighted(
        index,
        under,
        values,
        id="dcsd",
        name="decoupled",
        text=text,
        fallbacks={"unclear_margin": unclear, "no_teacher": untaught},
        extras={
            "segment": segments.each(segments.place_N),
            "sigma": segments.each(sigma),
            "alpha": segments.each(alpha),
            "share": share,
            "gain": gain,
        },
    )


def _gains(index: Index, hidden: Array, params: Params) -> Floats:
    """Return what each token adds to the volume of its rollout ``[T]``, nats."""
    start_R1 = index.token_start_R1
    gain = np.zeros(index.batch.n_tokens)
    cuts = np.append(np.searchsorted(start_R1, np.arange(0, gain.size, _PIECE)), len(index.batch))
    for a, b in pairwise(np.unique(cuts).tolist()):
        start, at = start_R1[a : b + 1] - start_R1[a], slice(int(start_R1[a]), int(start_R1[b]))
        rows = np.asarray(hidden[at], np.float64)
        size = row_sum(np.einsum("ij,ij->i", rows, rows), start) / np.maximum(np.diff(start), 1)
        if not np.isfinite(size).all():
            r = a + int(np.argmin(np.isfinite(size)))
            raise DataError(f"rollout {index.batch.ids[r]!r} has hidden states that are not finite")
        one = np.divide(1.0, size, out=np.zeros_like(size), where=size > 0)
        beta = one if params.beta is None else np.where(size > 0, params.beta, 0.0)
        gain[at] = logdet_gains(projected(rows, params.project), beta, start)
    return gain


def _segments(index: Index, hidden: Array, params: Params) -> _Segments:
    """Return the steps: the rollout's own, or those that its hidden states induce."""
    new = np.zeros(index.batch.n_tokens, bool)  # first tokens of segments
    new[index.batch.token_start_S1[:-1][index.tokens_S > 0]] = True
    count, induced = index.steps_R.copy(), np.zeros(len(index.batch), bool)
    ends = _ends(index)
    if params.partition != "own":
        induced = (index.tokens_R > 0) & ((params.partition == "induced") | (index.steps_R == 1))
    for r in np.flatnonzero(induced).tolist():
        at = slice(int(index.token_start_R1[r]), int(index.token_start_R1[r + 1]))
        cuts = boundaries(np.asarray(hidden[at], np.float64), None if ends is None else ends[at])
        new[at] = False
        new[at.start + np.concatenate([[0], cuts])] = True
        count[r] = cuts.size + 1
    first = np.flatnonzero(new)
    rollout_N = np.searchsorted(index.token_start_R1, first, side="right") - 1
    own = index.position_S[np.searchsorted(index.batch.token_start_S1, first, side="right") - 1]
    nth = np.arange(first.size) - np.searchsorted(first, index.token_start_R1)[rollout_N]
    place = np.where(induced[rollout_N], nth, own)
    return _Segments(np.append(first, new.size), rollout_N, place, count)


def _ends(index: Index) -> BoolArray | None:
    if not index.batch.has("sentence_end_T"):
        return None
    return np.asarray(column_T(index, "sentence_end") != 0)


def _relative(gain_N: Floats, rollout_N: Ints, rollouts: int) -> Floats:
    """Return each step's gain over the largest of its rollout ``[N]``; 0 where all are 0."""
    top = np.zeros(rollouts)
    np.maximum.at(top, rollout_N, gain_N)
    largest = top[rollout_N]
    return np.divide(gain_N, largest, out=np.zeros_like(gain_N), where=largest > 0)


def _direction(index: Index, segments: _Segments, outcome_R: Floats, params: Params) -> tuple[Floats, int]:
    """Return the sign of each step ``[N]``, and how many steps have no clear margin."""
    sigma = np.sign(outcome_R)[segments.rollout_N]
    if params.direction == "outcome":
        return sigma, 0
    due = outcome_R[segments.rollout_N] != 0
    rollouts = np.flatnonzero(outcome_R)
    margin = _margins(index, rollouts, segments.count_R)
    boundaries_R = np.zeros(len(index.batch), np.int64)
    boundaries_R[rollouts] = segments.count_R[rollouts] + 1
    place = (np.cumsum(boundaries_R) - boundaries_R)[segments.rollout_N[due]] + segments.place_N[due]
    change, known = np.zeros(sigma.size), np.zeros(sigma.size, bool)
    known[due] = np.isfinite(margin[place]) & np.isfinite(margin[place + 1])
    filled = np.where(np.isfinite(margin), margin, 0.0)
    change[due] = filled[place + 1] - filled[place]
    over = known & ((change >= params.tau_plus) | (change <= params.tau_minus))
    return np.where(over, np.sign(change), sigma), int((due & ~known).sum())


def _margins(index: Index, rollouts: Ints, count_R: Ints) -> Floats:
    """Return the margin of the gold answer at each boundary of some rollouts; NaN where there is none.

    ``l(gold) - logsumexp l(others)``, of rollouts and boundaries in order.
    """
    told: list[float | None] = []
    sizes: list[int] = []
    for r in rollouts.tolist():
        table = _table(index, r, int(count_R[r]))
        told += chain.from_iterable(table)
        sizes += map(len, table)
    start = np.concatenate([[0], np.cumsum(sizes, dtype=np.int64)])
    row, n, scores = row_of(start), len(sizes), np.array(told, np.float64)  # None becomes NaN
    clear = (np.diff(start) > 1) & ~row_any(~np.isfinite(scores), start)
    gold = np.zeros(n)
    gold[clear] = scores[start[:-1][clear]]
    scores[~clear[row]] = 0.0
    scores[start[:-1][np.diff(start) > 0]] = -np.inf
    top = np.where(clear, segment_extremes(scores, row, n)[1], 0.0)
    total = segment_sum(np.exp(scores - top[row]), row, n)
    found = np.full(n, np.nan)
    found[clear] = (gold - top)[clear] - np.log(total[clear])
    return found


def _table(index: Index, r: int, steps: int) -> list[list[float | None]]:
    """Return the log-probs of the candidate answers of a rollout, one list a boundary."""
    column = index.batch.columns.get("candidate_logprobs_R")
    name = index.batch.ids[r]
    if column is None or not column.given(r):
        raise MissingSignal(
            f"rollout {name!r} has no candidate_logprobs: log-probs of the gold answer and its competitors",
            code="ACC401",
            hint=f"Give one list a boundary (here {steps + 1}), gold first; or say direction='outcome'",
        )
    table = column.item(r)
    if not isinstance(table, list) or len(table) != steps + 1 or not _are_rows(table):
        raise DataError(
            f"rollout {name!r} has candidate_logprobs of another form",
            code="ACC401",
            hint=f"Give {steps + 1} lists, one a boundary of its {steps} steps, gold first",
        )
    return table


def _are_rows(table: list[Any]) -> bool:
    if not all(isinstance(row, list) for row in table):
        return False
    kinds = set(map(type, chain.from_iterable(table)))
    return all(issubclass(kind, int | float | NoneType) for kind in kinds)


def _shares(index: Index, segments: _Segments, sigma: Floats, eps_w: float) -> tuple[Floats, int]:
    """Return each token's share of its step ``[T]``, and how many steps have no privileged score."""
    columns = [index.batch.columns.get(name) for name in ("logprobs_teacher_T", "logprob_T")]
    known = np.ones(index.batch.n_steps, bool)
    for column in columns:
        known &= column is not None and column.mask(index.batch.n_steps)
    untaught = int((~known & (index.tokens_S > 0)).sum())
    if not known.any():
        return segments.each(1.0 / np.diff(segments.start_N1)), untaught
    teacher, own = (column.values for column in columns if column is not None)
    weight = np.subtract(teacher, own, dtype=np.float64)
    weight[~np.repeat(known, index.tokens_S)] = 0.0
    weight *= segments.each(sigma)
    np.clip(weight, math.log1p(-eps_w), math.log1p(eps_w), out=weight)
    np.exp(weight, out=weight)
    weight /= segments.each(row_sum(weight, segments.start_N1))
    return weight, untaught
