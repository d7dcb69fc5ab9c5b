"""SHEAR: the outcome acts where hidden states are far from those of every opposite outcome.

Source: arXiv 2604.23318, Eqs. 1-4 and Algorithm 1, through a public formalisation of the paper; no
authors' code.  Choices: docs/methods/shear.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np

from accredit.data import Finding, Parts
from accredit.errors import DataError, ParamError
from accredit.index import Index, segment_sum
from accredit.methods._params import bounded, choice
from accredit.methods._registry import method
from accredit.methods._reweight import base_credit, column_T, reweighted, rollout_T
from accredit.methods._transport import EXACT, Cloud, Nearest, Solver, nearest, sinkhorn
from accredit.methods._transport_forms import bandwidth, chamfer, cosine, matrix_nearest, mmd_rbf
from accredit.typing import Array, BoolArray, Floats, Ints

__all__ = ["shear"]


@dataclass(frozen=True, slots=True)
class Params:
    """Parameters of `shear`."""

    window: int = bounded(100, at_least=1, doc="tokens of a span")
    stride: int = bounded(25, at_least=1, doc="tokens between the starts of spans, at most window")
    span_scope: str = choice("rollout", "step", doc="spans run through the rollout, or restart at every step")
    distance: str = choice(
        "wasserstein", "chamfer", "mmd_rbf", "cosine", doc="of two spans; cosine of means is a control"
    )
    solver: str = choice("exact", "sinkhorn", doc="of wasserstein; sinkhorn is the paper's, slower here")
    sinkhorn_share: float = bounded(0.05, above=0, doc="entropic scale in median costs of the span pair")
    normalise: str = choice(
        "cross_rollout", "per_rollout", doc="distances over the group's mean norm; or mean weight 1 a rollout"
    )
    floor: float = bounded(0.0, at_least=0, doc="least weight")
    success_threshold: float = bounded(1.0, doc="a reward at or above it is a success")


@method(
    "shear",
    title="The advantage of each token, by how far its hidden states are from the opposite outcome's",
    family="tokens: hidden states",
    params=Params,
    needs={"hidden", "reward"},
    yields="token",
    tags={"reweights", "group"},
    cites="arXiv:2604.23318",
)
def shear(index: Index, params: Params, *, base: str | None = None) -> Parts:
    """Span-level hidden-state advantage reweighting.

    Spans of ``window`` policy tokens start every ``stride`` tokens; each is a uniform cloud of hidden
    states.  ``d_k`` = least exact W_1 (Euclidean) of span k to any span of any rollout of the group
    with the opposite outcome;
    ``omega_t = max over spans k with t of d_k / nbar``, nbar the mean norm of the group's hidden
    states; ``A~_t = A_t omega_t``.  Without an opposite outcome omega is 1: the base as it is.

    Args:
        index: of the batch; ``hidden`` is one vector a policy token.
        params: see `Params`.
        base: method that gives A; None = ``grpo``.

    Returns:
        Token advantages ``[T]``, of the base's sign wherever omega > 0.  Extras: ``omega`` ``[T]``,
        ``pairs``: span pairs solved, and all.

    Raises:
        ParamError: if ``stride`` exceeds ``window``: tokens would be in no span.
        DataError: if a hidden state is not finite.

    Source: arXiv 2604.23318.

    Example:
        >>> import accredit as ac
        >>> records = [
        ...     {"id": "a", "group": "g", "reward": 1, "steps": [{"n_tokens": 2}]},
        ...     {"id": "b", "group": "g", "reward": 0, "steps": [{"n_tokens": 1}]},
        ... ]
        >>> batch = ac.Batch.from_records(records).with_column("hidden_T", [[2.0], [0.0], [1.0]])
        >>> credit = ac.assign(batch, "shear", base="dr-grpo", window=1, stride=1)
        >>> credit.tokens.tolist(), credit.extras["omega"].tolist()
        ([0.5, 0.5, -0.5], [1.0, 1.0, 1.0])
    """
    if params.stride > params.window:
        raise ParamError(f"stride must be at most window ({params.window}), got {params.stride}")
    under = base_credit(index, base)
    hidden = column_T(index, "hidden")
    omega = np.ones(index.batch.n_tokens)
    solved, pairs, alone = 0, 0, 0
    members = index.scored_R & (index.tokens_R > 0)
    won = index.outcome_R >= params.success_threshold
    for g in range(index.n_groups):
        own = np.flatnonzero(members & (index.group_R == g))
        if won[own].all() or not won[own].any():
            alone += own.size
            continue
        found = _group(index, hidden, own, won[own], params, omega)
        solved, pairs = solved + found.solved, pairs + found.pairs
    weighed = _opposed_T(index, members, won)
    if params.normalise == "per_rollout":
        omega = _per_rollout(index, omega, weighed)
    omega[weighed] = np.maximum(omega[weighed], params.floor)

    def text(s: int) -> str:
        own = omega[index.batch.token_start_S1[s] : index.batch.token_start_S1[s + 1]]
        if not own.size:
            return "no policy token"
        return f"weights of its tokens from {own.min():.6g} to {own.max():.6g}, mean {own.mean():.6g}"

    return reweighted(
        index,
        under,
        under.tokens * omega,
        id="shear",
        name="hidden",
        text=text,
        fallbacks={"no_opposite": alone},
        findings=_size_finding(omega, weighed),
        extras={"omega": omega, "pairs": np.array([solved, pairs])},
    )


def _group(index: Index, hidden: Array, own: Ints, won: BoolArray, params: Params, omega: Floats) -> Nearest:
    """Set the weights of one group's tokens in place; return what the distances took."""
    starts = index.token_start_R1
    points = [np.asarray(hidden[starts[r] : starts[r + 1]], np.float64) for r in own.tolist()]
    for r, rows in zip(own.tolist(), points, strict=True):
        if not np.isfinite(rows).all():
            raise DataError(
                f"rollout {index.batch.ids[r]!r} has hidden states that are not finite",
                hint="Rescore it with a wider dtype, or leave it out",
            )
    size = sum(len(rows) for rows in points)
    scale = sum(float(np.linalg.norm(rows, axis=1).sum()) for rows in points) / size
    if scale == 0:
        return Nearest([], [], 0, 0)
    if params.distance != "cosine":  # distances do not see the shift, and sums keep their digits
        centre = sum((rows.sum(axis=0) for rows in points), np.zeros(points[0].shape[1])) / size
        points = [rows - centre for rows in points]
    clouds = [Cloud(rows, *_spans(index, r, params)) for r, rows in zip(own.tolist(), points, strict=True)]
    here, there = (
        [c for c, w in zip(clouds, won.tolist(), strict=True) if w == side] for side in (True, False)
    )
    found = _nearest(here, there, points, params)
    unit = scale if params.distance in ("wasserstein", "chamfer") else 1.0  # the others have no unit
    distances = iter(found.here), iter(found.there)
    for r, cloud, w in zip(own.tolist(), clouds, won.tolist(), strict=True):
        rows = omega[starts[r] : starts[r + 1]]
        rows[:] = 0.0
        for a, b, d in zip(cloud.first.tolist(), cloud.stop.tolist(), next(distances[not w]), strict=True):
            np.maximum(rows[a:b], d / unit, out=rows[a:b])
    return found


def _nearest(here: list[Cloud], there: list[Cloud], points: list[Floats], params: Params) -> Nearest:
    if params.distance == "wasserstein":
        if params.solver == "exact":
            return nearest(here, there, EXACT)
        entropic = partial(sinkhorn, share=params.sinkhorn_share)
        return nearest(here, there, Solver(entropic, lambda n, m: True))
    if params.distance == "mmd_rbf":
        return matrix_nearest(here, there, partial(mmd_rbf, width=bandwidth(points)))
    return matrix_nearest(here, there, chamfer if params.distance == "chamfer" else cosine)


def _spans(index: Index, r: int, params: Params) -> tuple[Ints, Ints]:
    """Return first and one past the last token of each span of a rollout, from the rollout's first token."""
    start = index.token_start_R1[r]
    if params.span_scope == "rollout":
        bounds = np.array([0, index.token_start_R1[r + 1] - start])
    else:
        steps = index.batch.step_start_R1
        bounds = index.batch.token_start_S1[steps[r] : steps[r + 1] + 1] - start
    first, stop = [], []
    for a, b in zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True):
        if b > a:
            more = -(-max(0, b - a - params.window) // params.stride)
            starts = a + params.stride * np.arange(more + 1)
            first.append(starts)
            stop.append(np.minimum(starts + params.window, b))
    return np.concatenate(first), np.concatenate(stop)


def _opposed_T(index: Index, members: BoolArray, won: BoolArray) -> BoolArray:
    """Return the tokens of rollouts that have an opposite one in their group ``[T]``."""
    sides = [segment_sum(members & side, index.group_R, index.n_groups) > 0 for side in (won, ~won)]
    return np.repeat(members & (sides[0] & sides[1])[index.group_R], index.tokens_R)


def _per_rollout(index: Index, omega: Floats, weighed: BoolArray) -> Floats:
    """Return weights over their rollout's mean; a rollout of weights 0 keeps them."""
    total = segment_sum(omega, rollout_T(index), len(index.batch))
    mean = np.repeat(total / np.maximum(index.tokens_R, 1), index.tokens_R)
    return np.divide(omega, mean, out=omega.copy(), where=weighed & (mean > 0))


def _size_finding(omega: Floats, weighed: BoolArray) -> tuple[Finding, ...]:
    if not weighed.any():
        return ()
    mean = float(omega[weighed].mean())
    return (
        Finding(
            "ACC436",
            "info",
            f"token weights have mean {mean:.3g} where both outcomes occur: updates change in size as much",
            hint="Say normalise='per_rollout' to move advantage within rollouts only",
            count=int(weighed.sum()),
        ),
    )
