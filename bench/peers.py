"""verl's own estimators, called, never copied; absent verl is one clear error."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from accredit.typing import Array, BoolArray

__all__ = ["VERSION", "PeerInput", "peer_input", "peers"]

VERSION = "0.9.1"


class PeerInput(NamedTuple):
    """What verl's trainer hands to an estimator: padded tensors and the group of each row."""

    token_level_rewards: Any
    response_mask: Any
    groups: Array


def peers() -> dict[str, dict[str, Callable[[PeerInput], Array]]]:
    """verl's loop and vectorised form of each method, padded float32 in numpy's hands.

    Raises:
        SystemExit: without verl, saying how to get it.
    """
    try:
        from verl.trainer.ppo import core_algos
    except ImportError as error:
        raise SystemExit(f"verl {VERSION} is not installed here ({error}); run: make bench") from None
    logging.getLogger("verl").setLevel(logging.ERROR)
    return {
        "grpo": {
            "loop": _called(core_algos.compute_grpo_outcome_advantage),
            "vectorised": _called(core_algos.compute_grpo_vectorized_outcome_advantage),
        },
        "rloo": {
            "loop": _called(core_algos.compute_rloo_outcome_advantage),
            "vectorised": _called(core_algos.compute_rloo_vectorized_outcome_advantage),
        },
    }


def _called(estimator: Callable[..., tuple[Any, Any]]) -> Callable[[PeerInput], Array]:
    def run(given: PeerInput) -> Array:
        advantages, _ = estimator(given.token_level_rewards, given.response_mask, given.groups)
        found: Array = advantages.numpy()  # shares memory with the tensor
        return found

    return run


def peer_input(reward_R: Array, mask: BoolArray, groups: Array) -> PeerInput:
    """Padded tensors with each row's reward on its last policy token.

    Args:
        reward_R: outcome of each row.
        mask: bool ``[rows, length]``, True at policy tokens; at least one a row.
        groups: group of each row, as verl gets it.
    """
    import torch

    torch.set_num_threads(1)
    rewards = np.zeros(mask.shape, np.float32)
    last = mask.shape[1] - 1 - np.argmax(mask[:, ::-1], axis=1)
    rewards[np.arange(reward_R.size), last] = reward_R
    return PeerInput(torch.from_numpy(rewards), torch.from_numpy(mask.astype(np.float32)), groups)
