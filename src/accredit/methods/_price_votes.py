"""Who votes for whom in `price`: equal keys, or a kernel on physical features; and the memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import chain
from typing import Any, NamedTuple, Protocol

import numpy as np
from scipy.spatial import cKDTree

from accredit.errors import DataError
from accredit.index import Index, key_column, segment_sum, word_keys
from accredit.index.states import final_state_codes
from accredit.typing import Array, Floats, Ints, Scalar

__all__ = ["Votes", "count_votes", "remember"]

SCHEMA = "accredit.price-memory/1"
_CELLS = 1 << 20  # numbers of the differences that are taken at once


class VoteParams(Protocol):
    """The parameters that decide votes."""

    @property
    def eta(self) -> float: ...
    @property
    def history(self) -> int: ...
    @property
    def kernel_min(self) -> float: ...
    @property
    def own_vote(self) -> bool: ...


class Votes(NamedTuple):
    """Votes of other episodes for the moment before each step.

    Args:
        total_S: sum of votes ``[S]``.
        won_S: sum of votes of successful episodes ``[S]``.
        evidence_S: effective number of votes ``(sum w)^2 / sum w^2`` ``[S]``.
        prior_R: success rate of the other episodes ``[R]``.
        others_R: number of other episodes, remembered ones included ``[R]``.
        end_total_R: votes for the final state ``[R]``; None where it is not known.
        end_won_R: successful ones of them ``[R]``.
    """

    total_S: Floats
    won_S: Floats
    evidence_S: Floats
    prior_R: Floats
    others_R: Floats
    end_total_R: Floats | None = None
    end_won_R: Floats | None = None


class _Pool(NamedTuple):
    """Episodes of this batch, then remembered ones: task, outcome, weight, and their moments."""

    task: Ints
    won: Floats
    weight: Floats
    moment_episode: Ints
    here: int

    @property
    def moment_task(self) -> Ints:
        return self.task[self.moment_episode]


def count_votes(index: Index, success: Floats, params: VoteParams, state: Any) -> Votes:
    """Return the votes for every step (see `Votes`)."""
    past = _remembered(index, state)
    counted = index.scored_R
    task = np.concatenate([index.group_R, np.array([e["task"] for e in past], np.int64)])
    won = np.concatenate([success, np.array([float(e["won"]) for e in past])])
    age = np.array([e["age"] for e in past], np.float64)
    weight = np.concatenate([counted.astype(np.float64), params.eta**age])
    rollout = index.rollout_S
    later = [len(success) + i for i, e in enumerate(past) for _ in e["moments"]]
    pool = _Pool(task, won, weight, np.concatenate([rollout, np.array(later, np.int64)]), len(success))
    prior, others = _priors(pool)
    moments = [m for e in past for m in e["moments"]]
    if index.batch.has("features_S"):
        total, voted, square = _kernel_votes(index, pool, moments, params)
        return Votes(total, voted, _effective(total, square), prior, others)
    return _key_votes(index, pool, moments, params, prior, others)


def _priors(pool: _Pool) -> tuple[Floats, Floats]:
    """Success rate and number of the other episodes of each task, for this batch's rollouts."""
    n = int(pool.task.max(initial=-1)) + 1
    total = segment_sum(pool.weight, pool.task, n)
    wins = segment_sum(pool.weight * pool.won, pool.task, n)
    own = pool.weight[: pool.here]
    mine = pool.task[: pool.here]
    rest = total[mine] - own
    prior = np.where(rest > 0, (wins[mine] - own * pool.won[: pool.here]) / np.where(rest > 0, rest, 1), 0.0)
    counts = segment_sum((pool.weight > 0).astype(np.float64), pool.task, n)
    others: Floats = counts[mine] - (own > 0)
    return prior, others


def _effective(total: Floats, square: Floats) -> Floats:
    return np.divide(total**2, square, out=np.zeros_like(total), where=square > 0)


def _key_votes(
    index: Index, pool: _Pool, moments: list[Any], params: VoteParams, prior: Floats, others: Floats
) -> Votes:
    """Votes where a relation is an equal state key."""
    keys, ends = _key_codes(index, moments)
    node = pool.moment_task * (int(keys.max(initial=0)) + 1) + keys
    codes, node = np.unique(node, return_inverse=True)
    pairs = np.unique(node * pool.task.size + pool.moment_episode)
    at, episode = np.divmod(pairs, pool.task.size)
    weight = pool.weight[episode]
    total: Floats = segment_sum(weight, at, codes.size)
    won: Floats = segment_sum(weight * pool.won[episode], at, codes.size)
    square = segment_sum(weight**2, at, codes.size)
    here = node[: index.batch.n_steps]
    own = 0.0 if params.own_vote else pool.weight[index.rollout_S]
    total_S, square_S = total[here] - own, square[here] - np.square(own)
    won_S = won[here] - own * pool.won[index.rollout_S]
    sums = [np.where(np.abs(x) < 1e-12, 0.0, x) for x in (total_S, won_S, square_S)]
    end_total, end_won = _end_votes(index, pool, codes, keys, ends, (total, won), (at, episode), params)
    return Votes(sums[0], sums[1], _effective(sums[0], sums[2]), prior, others, end_total, end_won)


def _key_codes(index: Index, moments: list[Any]) -> tuple[Ints, Ints]:
    """Codes of the moments of this batch, then of remembered ones; and of final states."""
    codes, ends, _ = final_state_codes(index.batch, index.key)
    if not moments:
        return codes, ends
    name, rest = key_column(index.batch, index.key)
    column = index.batch.column(name)
    words = (*(column.words or ()), *moments)
    keys = word_keys(words, rest if rest is not None else [])
    known = column.mask(index.batch.n_steps)
    split = len(column.words or ())
    fresh = int(keys.max(initial=-1)) + 1 + np.arange(codes.size)
    found = np.where(known, keys[:split][column.values], fresh)
    return np.concatenate([found, keys[split:]]), np.full(len(index.batch), -1, np.int64)


def _end_votes(
    index: Index,
    pool: _Pool,
    codes: Ints,
    keys: Ints,
    ends: Ints,
    sums: tuple[Floats, Floats],
    pairs: tuple[Ints, Ints],
    params: VoteParams,
) -> tuple[Floats | None, Floats | None]:
    """Votes for the final state of each rollout; none where final states are not known."""
    if not (ends >= 0).any():
        return None, None
    wanted = index.group_R * (int(keys.max(initial=0)) + 1) + ends
    at = np.minimum(np.searchsorted(codes, wanted), codes.size - 1)
    there = (codes[at] == wanted) & (ends >= 0)
    visits = pairs[0] * pool.task.size + pairs[1]
    voted = np.isin(at * pool.task.size + np.arange(at.size), visits)
    own = np.where(voted & (not params.own_vote), pool.weight[: pool.here], 0.0)
    total = np.where(there, sums[0][at] - own, 0.0)
    won = np.where(there, sums[1][at] - own * pool.won[: pool.here], 0.0)
    return total, won


def _kernel_votes(
    index: Index, pool: _Pool, moments: list[Any], params: VoteParams
) -> tuple[Floats, Floats, Floats]:
    """Votes where a relation is a Gaussian kernel on standardised features, task by task."""
    features = (
        np.concatenate([index.batch.features_S, np.reshape(moments, (len(moments), -1))])
        if moments
        else (np.asarray(index.batch.features_S))
    )
    n = index.batch.n_steps
    sums = [np.zeros(n), np.zeros(n), np.zeros(n)]
    order = np.argsort(pool.moment_task, kind="stable")
    tasks = np.split(order, np.flatnonzero(np.diff(pool.moment_task[order])) + 1) if order.size else []
    for members in tasks:
        steps = members[members < n]
        if not steps.size:
            continue
        at, who, weight = _related(features[members], pool.moment_episode[members], steps.size, params)
        vote = weight * pool.weight[who]
        keep = np.ones(at.size, bool) if params.own_vote else who != pool.moment_episode[steps[at]]
        for total, value in zip(sums, (vote, vote * pool.won[who], vote**2), strict=True):
            total[steps] = np.bincount(at[keep], value[keep], steps.size)
    return sums[0], sums[1], sums[2]


class _Related(NamedTuple):
    """Pairs of a moment and an episode that is related to it, moments in order, and how closely."""

    moment: Ints
    episode: Ints
    weight: Floats


def _related(features: Array, episode: Ints, n: int, params: VoteParams) -> _Related:
    """Return the relations of the first n moments, n at least 1."""
    spread = features.std(axis=0)
    scaled = (features - features.mean(axis=0)) / np.where(spread > 0, spread, 1.0)
    tree = cKDTree(scaled)
    width = _bandwidth(tree, scaled)
    radius = width * np.sqrt(2 * np.log(1 / params.kernel_min))
    limit = radius * (1 + 1e-12) + 1e-12
    size = max(1, _CELLS // max(1, scaled.size))
    pieces = [np.arange(a, min(a + size, n)) for a in range(0, n, size)]
    found = [_nearby(tree, scaled, episode, here, width, limit) for here in pieces]
    return _Related(*(np.concatenate(part) for part in zip(*found, strict=True)))


def _nearby(tree: cKDTree, scaled: Array, episode: Ints, here: Ints, width: float, limit: float) -> _Related:
    """Return the relations of some moments."""
    near = tree.query_ball_point(scaled[here], limit)
    at = np.repeat(here, [len(others) for others in near])
    other = np.fromiter(chain.from_iterable(near), np.int64, at.size)
    square = np.sum((scaled[other] - scaled[at]) ** 2, axis=1)
    weight = np.exp(-square / (2 * width**2)) if width > 0 else np.ones(at.size)
    episodes = int(episode.max()) + 1
    pairs, place = np.unique(at * episodes + episode[other], return_inverse=True)
    best = np.zeros(pairs.size)
    np.maximum.at(best, place, weight)
    return _Related(pairs // episodes, pairs % episodes, best)


def _bandwidth(tree: cKDTree, scaled: Array) -> float:
    """Median distance to the 5th neighbour; with fewer than 6 moments the median distance."""
    if scaled.shape[0] >= 6:
        return float(np.median(tree.query(scaled, k=6)[0][:, 5]))
    apart = np.sqrt(np.sum((scaled[:, None] - scaled) ** 2, axis=2))
    pairs = apart[np.triu_indices(scaled.shape[0], 1)]
    return float(np.median(pairs)) if pairs.size else 0.0


# -- memory ---------------------------------------------------------------------------------------------


def _remembered(index: Index, state: Any) -> list[dict[str, Any]]:
    """Remembered episodes of the tasks in this batch, one update older."""
    if state is None:
        return []
    if not isinstance(state, Mapping) or state.get("schema") != SCHEMA:
        raise DataError(
            "price: the given state is not its memory", hint="Pass Credit.state of an earlier call"
        )
    names = {name: g for g, name in enumerate(_task_names(index))}
    found = []
    for task, episodes in state["tasks"].items():
        if task in names:
            found += [{**e, "task": names[task], "age": e["age"] + 1} for e in episodes]
    return found


def _task_names(index: Index) -> list[str]:
    """Name of each group, by its dense code."""
    _, first = np.unique(index.group_R, return_index=True)
    return [str(index.batch.group_names[int(index.batch.group_R[r])]) for r in first.tolist()]


def remember(index: Index, success: Floats, params: VoteParams, state: Any) -> dict[str, Any]:
    """Return the memory after this batch: JSON-ready, the latest episodes of each task."""
    tasks: dict[str, list[dict[str, Any]]] = {}
    for task, episodes in (state or {"tasks": {}})["tasks"].items():
        tasks[task] = [{**e, "age": e["age"] + 1} for e in episodes]
    names = _task_names(index)
    moments = _moments(index)
    for r in _latest(index, params.history).tolist():
        kept = tasks.setdefault(names[int(index.group_R[r])], [])
        kept.append({"won": bool(success[r] > 0), "age": 0, "moments": moments(r)})
    for kept in tasks.values():
        del kept[: max(0, len(kept) - params.history)]
    return {"schema": SCHEMA, "tasks": tasks}


def _latest(index: Index, history: int) -> Ints:
    """Return the last scored rollouts of each task, in order."""
    scored = np.flatnonzero(index.scored_R)
    order = np.argsort(index.group_R[scored], kind="stable")
    group = index.group_R[scored][order]
    end = np.searchsorted(group, group, side="right")
    late = end - np.arange(group.size) <= history
    return np.sort(scored[order][late])


def _moments(index: Index) -> Callable[[int], list[Scalar | list[float]]]:
    """Return what gives a rollout's moments: feature vectors, or state keys (none where missing)."""
    start = index.batch.step_start_R1.tolist()
    if index.batch.has("features_S"):
        rows: list[Scalar | list[float]] = index.batch.features_S.tolist()
        return lambda r: rows[start[r] : start[r + 1]]
    column = index.batch.column(key_column(index.batch, index.key)[0])
    words, known = column.decoded().tolist(), column.mask(index.batch.n_steps).tolist()
    return lambda r: [words[s] for s in range(start[r], start[r + 1]) if known[s]]
