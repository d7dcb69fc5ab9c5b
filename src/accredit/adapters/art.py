"""ART: tokenized results in, results with the credit of their steps out.

ART multiplies one number into every assistant token of a `TokenizedResult`.  A trajectory whose steps
have different credit therefore becomes several results, each with the assistant mask of the steps of
one credit; ART's own weights and packing then do the rest.  ART divides by the mean absolute
advantage of a pack afterwards.

Source: openpipe-art 0.5.18 ``art.Trajectory.reward``, ``art.TrajectoryGroup``,
``art.preprocessing.tokenize.TokenizedResult`` (advantage, token_ids, assistant_mask, logprobs,
trajectory), ``art.preprocessing.pack.packed_tensors_from_tokenized_results``.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import accredit as ac
from accredit.adapters.padded import PaddedRows, padded_credit
from accredit.errors import DataError, ParamError

__all__ = ["assign_results"]


def assign_results(
    groups: Sequence[Any],
    results: Sequence[Any],
    method: str,
    *,
    state: Callable[[Any, int], Any] | None = None,
    echo: ac.Batch | None = None,
    **options: Any,
) -> tuple[list[Any], ac.Credit]:
    """Return tokenized results that carry the credit of their steps, and the credit.

    Several results of one trajectory (its additional histories) are rows of one rollout.

    Args:
        groups: ``art.TrajectoryGroup`` objects.
        results: of ``tokenize_trajectory_groups(…, drop_zero_advantage_trajectories=False)``: a
            trajectory that was dropped is missing from its group's mean.
        method: a method that yields credit of steps.
        state: gives the state key before step t of a result, ``state(result, t)``.
        echo: the rollouts as sampled, ids ``"group/trajectory"``.
        **options: of `accredit.assign`.

    Raises:
        DataError: if a trajectory has no result, or a result no trajectory, or tokens differ.
        ParamError: if the method's credit differs inside a step.
    """
    places = _places(groups)
    rows = _rows(results, places, state)
    found = padded_credit(rows, method, echo=echo, **options)
    if found.credit.per_token:
        raise ParamError(
            f"ART takes one number a result, {method!r} gives one a token",
            hint="Choose a method that yields credit of steps",
        )
    missing = set(places.values()) - {(r, i) for r, i in _keys(results, places)}
    if missing:
        group, i = min(missing)
        raise DataError(
            f"trajectory {group}/{i} has no tokenized result",
            code="ACC872",
            hint="Tokenize with drop_zero_advantage_trajectories=False",
        )
    parts = [_split(result, row) for result, row in zip(results, found.advantages, strict=True)]
    return [part for own in parts for part in own], found.credit


def _places(groups: Sequence[Any]) -> dict[int, tuple[int, int]]:
    return {
        id(trajectory): (g, i)
        for g, group in enumerate(groups)
        for i, trajectory in enumerate(group.trajectories)
    }


def _keys(results: Sequence[Any], places: dict[int, tuple[int, int]]) -> list[tuple[int, int]]:
    for n, result in enumerate(results):
        if id(result.trajectory) not in places:
            raise DataError(f"result {n} belongs to no trajectory of the groups", code="ACC873")
    return [places[id(result.trajectory)] for result in results]


def _rows(
    results: Sequence[Any], places: dict[int, tuple[int, int]], state: Callable[[Any, int], Any] | None
) -> PaddedRows:
    width = max((len(r.token_ids) for r in results), default=0)
    mask = np.zeros((len(results), width), np.int64)
    tokens = np.zeros_like(mask)
    logprobs = np.zeros(mask.shape)
    for b, result in enumerate(results):
        n = len(result.token_ids)
        if len(result.assistant_mask) != n:
            raise DataError(
                f"result {b} has {n} tokens, {len(result.assistant_mask)} in its mask", code="ACC871"
            )
        mask[b, :n], tokens[b, :n], logprobs[b, :n] = result.assistant_mask, result.token_ids, result.logprobs
    keys = _keys(results, places)
    known = not any(math.isnan(v) for v in logprobs[mask > 0])
    return PaddedRows(
        rewards=[float(r.trajectory.reward) for r in results],
        mask=mask,
        group=[f"group {g}" for g, _ in keys],
        rollout=[f"{g}/{i}" for g, i in keys],
        tokens=tokens,
        logprobs=logprobs if known else None,
        states=None if state is None else [_states(r, m, state) for r, m in zip(results, mask, strict=True)],
        prompt_in_rows=True,
    )


def _states(result: Any, mask: Any, state: Callable[[Any, int], Any]) -> list[Any]:
    runs = int((np.diff(mask, prepend=0) == 1).sum())
    return [state(result, t) for t in range(max(runs, 1))]


def _split(result: Any, advantages: Any) -> list[Any]:
    """Return the result once for each different advantage, each with the mask of its tokens."""
    mask = np.asarray(result.assistant_mask)
    own = advantages[: mask.size]
    found = []
    for value in np.unique(own[mask > 0]):
        part = np.where((mask > 0) & (own == value), mask, 0)
        found.append(
            dataclasses.replace(result, advantage=float(value), assistant_mask=[int(m) for m in part])
        )
    return found
