"""From rows of hidden states to one number a token, in torch; the head runs a few rows at a time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from accredit.signals.reductions import row_pieces, rows_at_a_time
from accredit.signals.request import Want

__all__ = ["chosen_logprobs", "reduced_states"]

_HEAD_BYTES, _CACHE_BYTES, _DEVICE_BYTES = 1 << 26, 1 << 21, 1 << 28  # of float32 logits
Head: TypeAlias = Callable[[Any], Any]  # states [n, d] -> logits [n, V], fresh, of any dtype


def reduced_states(
    head: Head, states: Any, chosen: Any, want: Want, temperature: float, vocabulary: int
) -> dict[str, Any]:
    """Return what is wanted of states that predict tokens, by name of the `Scores` field.

    Args:
        head: states to logits; all that is made of them is float32.
        states: ``[n, d]`` BEFORE each token.
        chosen: ``[n]`` ids.
        want: ``logprob``, ``entropy``, ``gradnorm``, ``topk`` and ``logits`` of it are answered.
        temperature: logits are divided by it.
        vocabulary: V.
    """
    import torch

    size, block = _sizes(states, vocabulary)
    parts = [
        part
        for piece in [*row_pieces(len(states), size)] or [slice(0, 0)]
        for part in _blocks(head(states[piece]), chosen[piece], want, temperature, block)
    ]
    return {name: torch.cat([part[name] for part in parts]) for name in parts[0]}


def _blocks(logits: Any, chosen: Any, want: Want, temperature: float, size: int) -> list[dict[str, Any]]:
    pieces = [*row_pieces(len(logits), size)] or [slice(0, 0)]
    return [_reduced(logits[s], chosen[s], want, temperature) for s in pieces]


def _sizes(states: Any, vocabulary: int) -> tuple[int, int]:
    """Rows that the head makes at once, and rows of these that are reduced at once.

    A CPU multiplies many rows best, and goes over them again and again best while they are in its cache.
    """
    if states.device.type == "cpu":
        return rows_at_a_time(vocabulary, _HEAD_BYTES), rows_at_a_time(vocabulary, _CACHE_BYTES)
    size = rows_at_a_time(vocabulary, _DEVICE_BYTES)
    return size, size


def _reduced(logits: Any, chosen: Any, want: Want, temperature: float) -> dict[str, Any]:
    import torch

    found: dict[str, Any] = {}
    logits = logits.float()
    if want.logits:
        found["logits"] = logits[:, list(want.logits)].clone()
    if temperature != 1.0:
        logits = logits.div_(temperature)
    if len(logits):
        logits -= logits.amax(1, keepdim=True)
    mine = logits.gather(1, chosen[:, None])[:, 0]
    weights = logits.exp()
    total = weights.sum(1)
    lse = total.log()
    if want.topk:
        values, ids = logits.topk(min(want.topk, logits.shape[1]), dim=1)
        order = _by_value_then_id(values, ids)
        found["topk_ids"] = ids.gather(1, order).int()
        found["topk_logprobs"] = values.gather(1, order) - lse[:, None]
    if want.logprob:
        found["logprob"] = mine - lse
    if want.gradnorm:
        square = torch.linalg.vecdot(weights, weights) / total**2
        found["gradnorm"] = (1 - 2 * (mine - lse).exp() + square).clamp_(min=0)
    if want.entropy:
        found["entropy"] = (lse - torch.linalg.vecdot(weights, logits) / total).clamp_(min=0)
    return found


def _by_value_then_id(values: Any, ids: Any) -> Any:
    """Order of the top entries: most probable first, ties by id."""
    by_id = ids.argsort(dim=1, stable=True)
    return by_id.gather(1, values.gather(1, by_id).argsort(dim=1, descending=True, stable=True))


def chosen_logprobs(head: Head, states: Any, chosen: Any, temperature: float, vocabulary: int) -> Any:
    """Return log-probabilities ``[n]`` with gradient; logits are made again in the backward pass.

    Args:
        head: states to logits; all that is made of them is float32.
        states: ``[n, d]`` BEFORE each token, with their graph.
        chosen: ``[n]`` ids.
        temperature: logits are divided by it.
        vocabulary: V.
    """
    import torch
    from torch.utils.checkpoint import checkpoint

    def piece(rows: Any, ids: Any) -> Any:
        logits = head(rows).float() / temperature
        return logits.gather(1, ids[:, None])[:, 0] - logits.logsumexp(1)

    pieces = row_pieces(len(states), _sizes(states, vocabulary)[0])
    parts = [checkpoint(piece, states[s], chosen[s], use_reentrant=False) for s in pieces]
    return torch.cat(parts) if parts else states.new_zeros(0, dtype=torch.float32)
