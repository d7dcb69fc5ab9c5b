"""From a batch to what a model reads: passages by context resets, requests, and what cannot be placed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from accredit.data import Batch
from accredit.errors import DataError
from accredit.signals.request import CONTEXT, Context, Passage, ProbeRequest, Segment, Want
from accredit.typing import Array, BoolArray, Ints

__all__ = ["Placed", "passages_of", "placed", "unique"]


@dataclass(frozen=True, slots=True)
class Placed:
    """Requests of a batch in one context.

    Args:
        requests: one a passage that has policy tokens and can be scored.
        without_context: rollouts that the context has nothing for.
        unpredicted: steps whose first token has nothing before it.
        unknown: steps whose ids are not known, or that follow such a step.
    """

    requests: tuple[ProbeRequest, ...]
    without_context: Ints
    unpredicted: Ints
    unknown: Ints


def passages_of(batch: Batch) -> tuple[list[Passage], Ints]:
    """Return the passages of a batch, and the steps that are in none.

    A passage begins at a rollout's first step and wherever the context was reset (a prompt that does
    not continue the call before it). The ids are the recorded ones; nothing is tokenised.

    Args:
        batch: rollouts with token ids and context ids.

    Returns:
        Passages in the batch's order, and the steps whose ids are not known (or come after such a
        step in the same context).

    Raises:
        DataError: if the batch has no token ids, or no context ids.
    """
    for column, field in (("token_T", "tokens"), ("context_token_C", "prompt_tokens or context_tokens")):
        if not batch.has(column):
            raise DataError(
                f"these rollouts have no {field}: a model can only score ids that were recorded",
                code="ACC753",
                hint="Record the ids that the policy read and wrote; text is never tokenised again",
            )
    reset = batch.column("context_reset_S").values if batch.has("context_reset_S") else None
    known = batch.column("token_T").mask(batch.n_steps)
    passages: list[Passage] = []
    lost: list[int] = []
    for r in range(len(batch)):
        for run in _runs(batch.steps_of(r), reset):
            kept = _known_part(run, known)
            lost += run[len(kept) :]
            passages.append(Passage(r, tuple(_segments(batch, kept))))
    return passages, np.array(lost, np.int64)


def _runs(steps: range, reset: Array | None) -> Iterable[range]:
    """Yield the steps that share a context."""
    cuts = [s for s in steps if s > steps.start and reset is not None and reset[s]]
    edges = [steps.start, *cuts, steps.stop]
    for first, last in pairwise(edges):
        if last > first:
            yield range(first, last)


def _known_part(run: range, known: BoolArray) -> range:
    missing = np.flatnonzero(~known[run.start : run.stop])
    return run[: int(missing[0])] if missing.size else run


def _segments(batch: Batch, steps: range) -> Iterable[Segment]:
    """Yield context and policy ids in turn, as views."""
    context_start, token_start = batch.context_start_S1, batch.token_start_S1
    for s in steps:
        if context_start is not None and context_start[s + 1] > context_start[s]:
            yield Segment(batch.context_token_C[context_start[s] : context_start[s + 1]], CONTEXT)
        yield Segment(batch.token_T[token_start[s] : token_start[s + 1]], s)


def placed(batch: Batch, want: Want, context: Context) -> Placed:
    """Return the requests of a batch in a context.

    Args:
        batch: rollouts with token ids and context ids.
        want: what is asked for.
        context: what stands before the policy tokens; `SAMPLED` is what stood there.

    Raises:
        DataError: if the batch has no ids, or the context changes policy tokens.
    """
    passages, unknown = passages_of(batch)
    requests: list[ProbeRequest] = []
    without: set[int] = set()
    unpredicted: list[int] = []
    for passage in passages:
        edited = context.of(batch, passage)
        if edited is None:
            without.add(passage.rollout)
        elif not _begins_with_context(edited):
            unpredicted += edited.steps
        elif edited.steps:
            requests.append(edited.request(want, context.name))
    return Placed(
        tuple(requests), np.array(sorted(without), np.int64), np.array(unpredicted, np.int64), unknown
    )


def _begins_with_context(passage: Passage) -> bool:
    """Whether no token is the first of the passage (a passage without tokens has none)."""
    first = next((s for s in passage.segments if s.ids.size), None)
    return first is None or first.step == CONTEXT


def unique(requests: Sequence[ProbeRequest]) -> dict[str, list[ProbeRequest]]:
    """Return requests by key: a policy that sees the same prompt again need be asked once.

    Args:
        requests: of any number of contexts.
    """
    found: dict[str, list[ProbeRequest]] = {}
    for request in requests:
        found.setdefault(request.key, []).append(request)
    return found
