"""Numbers that are there already as a back end: recorded in a batch, or made by an earlier probe."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from accredit.data import Batch
from accredit.errors import BackendError, DataError
from accredit.signals.passages import passages_of
from accredit.signals.request import CONTEXT, SAMPLED, ProbeRequest, Provenance, Scores, Want
from accredit.typing import Array

__all__ = ["Precomputed"]

_COLUMNS = {
    "logprob": "logprob_T",
    "entropy": "entropy_T",
    "gradnorm": "gradnorm_T",
    "hidden_at": "hidden_T",
    "hidden_before": "hidden_before_T",
}


class Precomputed:
    """A batch's own columns, found by ids: the same prompt and response give the recorded numbers.

    Where rollouts hold one request several times, the first one's numbers are returned.

    Args:
        batch: rollouts with ids and numbers.
        columns: which column holds what; default: the usual names, where they are there.

    Raises:
        DataError: if it holds none of them, or has no ids.
    """

    def __init__(self, batch: Batch, columns: Mapping[str, str] | None = None) -> None:
        given = columns or {kind: name for kind, name in _COLUMNS.items() if batch.has(name)}
        if not given:
            raise DataError("this batch holds no numbers of a model", code="ACC753", hint="Record logprobs")
        self._batch = batch
        self._columns = {kind: batch.column(name) for kind, name in given.items()}
        self._steps: dict[str, tuple[int, ...]] = {}
        for passage in passages_of(batch)[0]:
            if passage.steps and passage.segments[0].step == CONTEXT:
                self._steps.setdefault(passage.request(Want(), SAMPLED.name).place, passage.steps)

    @property
    def offers(self) -> frozenset[str]:
        """What the batch holds."""
        return frozenset(self._columns)

    @property
    def provenance(self) -> Provenance:
        """What the first column says of itself; a recorded one says nothing."""
        said = next(iter(self._columns.values())).provenance
        known = {name: said[name] for name in Provenance.__dataclass_fields__ if name in said}
        return Provenance(**({"model": "recorded", "backend": "recorded"} | known))

    def score(self, requests: Sequence[ProbeRequest]) -> Iterator[Scores]:
        """Yield the recorded numbers of each request (see `Backend.score`)."""
        for request in requests:
            steps = self._steps.get(request.place)
            if steps is None:
                raise BackendError(
                    "a request is not among the recorded ones",
                    code="ACC755",
                    hint="Give the batch that these rollouts came from; another context needs a model",
                )
            yield Scores(request.key, **{kind: self._values(kind, steps) for kind in request.want.kinds})

    def _values(self, kind: str, steps: Sequence[int]) -> Array:
        if kind not in self._columns:
            raise BackendError(f"{kind} was not recorded", code="ACC755", hint="Ask a model: --model")
        column, start = self._columns[kind], self._batch.token_start_S1
        if not column.mask(self._batch.n_steps)[list(steps)].all():
            raise BackendError(f"{kind} was not recorded for every step of a request", code="ACC755")
        return np.concatenate([column.values[start[s] : start[s + 1]] for s in steps])
