"""Rewards beyond one number a rollout: on tokens, and of several components."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from accredit.index.core import Index
from accredit.index.segments import discounted_sum, segment_sum
from accredit.typing import BoolArray, Floats, Ints

__all__ = ["COMPONENT", "carrier_S", "components_of", "has_score_R", "token_returns", "token_rewards"]

COMPONENT = "rewards."


def carrier_S(index: Index) -> Ints:
    """Return the policy token that carries each step's reward ``[S]``: the step's last one.

    A step without policy tokens hands its reward to the last policy token before it in the
    rollout; where none is before, to the first one after it. So the outcome always sits on the
    rollout's last policy token. Steps of a rollout without policy tokens get -1.

    Args:
        index: of the batch.

    Example:
        >>> from accredit.data import Batch
        >>> steps = [{"n_tokens": 0}, {"n_tokens": 2}, {"n_tokens": 0}, {"n_tokens": 1}]
        >>> carrier_S(Index(Batch.from_records([{"id": "a", "group": "g", "steps": steps}]))).tolist()
        [0, 1, 1, 2]
    """
    first = index.token_start_R1[index.rollout_S]
    found = np.maximum(index.batch.token_start_S1[1:] - 1, first)
    return np.where(index.tokens_R[index.rollout_S] > 0, found, -1)


def token_rewards(index: Index) -> Floats:
    """Return the reward on each policy token ``[T]``: r_t on the token that carries step t.

    The sum over a rollout's tokens is its score S_i, unless it has no policy tokens (or no steps).

    Args:
        index: of the batch; its reward convention says where the outcome is.

    Example:
        >>> from accredit.data import Batch
        >>> steps = [{"n_tokens": 2, "reward": 0.5}, {"n_tokens": 1}]
        >>> batch = Batch.from_records([{"id": "a", "group": "g", "reward": 1, "steps": steps}])
        >>> token_rewards(Index(batch)).tolist()
        [0.0, 0.5, 1.0]
    """
    carrier = carrier_S(index)
    held = carrier >= 0
    return segment_sum(index.reward_S[held], carrier[held], index.batch.n_tokens)


def token_returns(index: Index, gamma: float) -> Floats:
    """Return the discounted return to go of each policy token ``[T]``: ``x_k = r_k + gamma x_{k+1}``.

    Only policy tokens discount. Inside a step the return decays towards the step's last token, so
    the scan runs over steps, not tokens.

    Args:
        index: of the batch.
        gamma: discount a policy token.

    Example:
        >>> from accredit.data import Batch
        >>> steps = [{"n_tokens": 2, "reward": 1}, {"n_tokens": 1}]
        >>> batch = Batch.from_records([{"id": "a", "group": "g", "reward": 4, "steps": steps}])
        >>> token_returns(Index(batch), 0.5).tolist()
        [1.5, 3.0, 4.0]
    """
    reward = token_rewards(index)
    full = np.flatnonzero(index.tokens_S)
    size, last = index.tokens_S[full], index.batch.token_start_S1[full + 1] - 1
    start = np.searchsorted(full, index.batch.step_start_R1)
    at_last = discounted_sum(reward[last], start, gamma ** np.append(size[1:], 0).astype(np.float64))
    found = np.repeat(at_last, size)
    if gamma != 1.0 and found.size:
        decay = gamma ** np.arange(int(size.max()), dtype=np.float64)
        found *= decay[np.repeat(last, size) - np.arange(found.size)]
    first = index.batch.token_start_S1[full][size > 1]
    found[first] += reward[first]  # what an empty first step handed on
    return found


def components_of(index: Index) -> tuple[str, ...]:
    """Return the names of the reward components that the batch has (record field ``rewards``)."""
    found = (
        n.removeprefix(COMPONENT).removesuffix("_R") for n in index.batch.columns if n.startswith(COMPONENT)
    )
    return tuple(sorted(found))


def has_score_R(index: Index, combine: str, among: Iterable[str] | None = None) -> BoolArray:
    """Return which rollouts have a score and are not rejected ``[R]``.

    Args:
        index: of the batch.
        combine: ``outcome`` = the score is ``reward``; otherwise one component is enough.
        among: names of the components in use; None = all.
    """
    if combine == "outcome":
        return index.scored_R
    found = np.zeros(len(index.batch), bool)
    for name in components_of(index) if among is None else among:
        found |= index.batch.column(f"{COMPONENT}{name}_R").mask(len(index.batch))
    return found & ~index.has_status("rejected")
