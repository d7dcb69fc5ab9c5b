"""Scores into columns: every step gets all its tokens' numbers, or is marked as missing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from accredit.data import Batch
from accredit.signals.contexts import NAMES, field_of
from accredit.signals.request import ProbeRequest
from accredit.typing import Array

__all__ = ["Filler", "column_name", "free_name"]

_SAMPLED = {"hidden_at": "hidden"}
_NAMED = {"logprob": "logprobs", "entropy": "entropies", "hidden_at": "hidden"}


class Filler:
    """Columns that fill up as scores come.

    Args:
        batch: whose tokens they are of.
    """

    def __init__(self, batch: Batch) -> None:
        self.batch = batch
        self.scored_S = np.zeros(batch.n_steps, bool)
        self.not_finite = 0
        self._arrays: dict[str, Array] = {}

    def add(self, request: ProbeRequest, arrays: Mapping[str, Array]) -> None:
        """Put the numbers of a request's tokens in place; a step with one that is not finite stays missing.

        Args:
            request: its spans say which steps.
            arrays: ``[T]`` or ``[T, d]`` by name; the same names every time.
        """
        start, at = self.batch.token_start_S1, 0
        for span in request.spans:
            n = span.stop - span.start
            parts = {name: values[at : at + n] for name, values in arrays.items()}
            at += n
            if not all(np.isfinite(part).all() for part in parts.values()):
                self.not_finite += 1
                continue
            for name, part in parts.items():
                self._array(name, part)[start[span.step] : start[span.step + 1]] = part
            self.scored_S[span.step] = True

    def _array(self, name: str, like: Array) -> Array:
        if name not in self._arrays:
            self._arrays[name] = np.zeros((self.batch.n_tokens, *like.shape[1:]), like.dtype)
        return self._arrays[name]

    def filled(self, columns: Mapping[str, tuple[str, Mapping[str, Any]]]) -> Batch:
        """Return the batch with the columns.

        Args:
            columns: column and provenance by name of the array.
        """
        valid = None if self.scored_S.all() else self.scored_S
        found = self.batch
        for name, (column, made) in columns.items():
            if name in self._arrays:
                found = found.with_column(column, self._arrays[name], made, valid=valid)
        return found


def column_name(kind: str, context: str) -> str:
    """Return the column of a kind of number in a context.

    Args:
        kind: name of a `Scores` field.
        context: ``sampled``, a named context, or a name of your own.

    Example:
        >>> [column_name("logprob", c) for c in ("sampled", "outcome", "typos", "mine")]
        ['logprob_T', 'logprobs_hindsight_T', 'perturbed_logprobs.typos_T', 'logprobs_mine_T']
        >>> column_name("hidden_at", "sampled"), column_name("entropy", "outcome")
        ('hidden_T', 'entropies_outcome_T')
    """
    if context == "sampled":
        return f"{_SAMPLED.get(kind, kind)}_T"
    if kind == "logprob" and context.removeprefix("shuffled:") in NAMES:
        return f"{field_of(context)}_T"
    return f"{_NAMED.get(kind, kind)}_{context}_T"


def free_name(batch: Batch, column: str) -> str:
    """Return the column's name where it is free or a probe's own; else with ``probe_`` before it.

    What a sampler recorded is never replaced.

    Example:
        >>> batch = Batch.from_records([{"id": "a", "reward": 1, "steps": [{"logprobs": [-1.0]}]}])
        >>> free_name(batch, "logprob_T"), free_name(batch, "entropy_T")
        ('probe_logprob_T', 'entropy_T')
    """
    if not batch.has(column) or "probe" in batch.column(column).provenance:
        return column
    return f"probe_{column}"
