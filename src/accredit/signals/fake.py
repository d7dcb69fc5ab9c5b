"""A tiny seeded language model with exact distributions: what probes are tested on, without torch.

``h_p = tanh(A h_(p-1) + E[x_p])``, ``z_p = W h_p``: the state after a token depends on every token before
it, so a shifted row, a wrong prefix or a token tokenised anew changes the numbers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property

import numpy as np

from accredit.errors import BackendError
from accredit.signals.reductions import joined, log_softmax, reduced, row_pieces, rows_at_a_time
from accredit.signals.request import ProbeRequest, Provenance, Scores, Want
from accredit.typing import Array, Ints

__all__ = ["FakeBackend"]

_OFFERS = frozenset({"logprob", "entropy", "gradnorm", "topk", "logits", "hidden_at", "hidden_before"})


class FakeBackend:
    """A seeded recurrent model.

    Args:
        vocabulary: number of ids; ids of requests are taken modulo it for the input alone.
        width: length of the hidden state.
        seed: of the weights.
        temperature: logits are divided by it.
        sharpness: scale of the logits; larger means more certain.

    Example:
        >>> from accredit.signals.request import Span
        >>> ask = ProbeRequest(np.array([3, 1, 4]), (Span(0, 2, 3),), Want(logprob=True, entropy=True))
        >>> [score] = FakeBackend(vocabulary=5).score([ask])
        >>> bool(score.logprob[0] < 0 < score.entropy[0] <= np.log(5))
        True
    """

    offers = _OFFERS

    def __init__(
        self,
        vocabulary: int = 11,
        width: int = 4,
        seed: int = 0,
        temperature: float = 1.0,
        sharpness: float = 2.0,
    ) -> None:
        rng = np.random.default_rng(seed)
        self.vocabulary = vocabulary
        self.temperature = temperature
        self.carry = rng.normal(size=(width, width)) / np.sqrt(width)
        self.embedding = rng.normal(size=(min(vocabulary, 1024), width))
        self.head = (sharpness * rng.standard_normal((vocabulary, width), np.float32)).astype(np.float32)
        self._name = f"fake-{vocabulary}x{width}-{seed}-{sharpness:g}"

    @cached_property
    def provenance(self) -> Provenance:
        """Name and seed; float32 as the logits are."""
        return Provenance(
            model=self._name,
            weights=self._name,
            dtype="float32",
            temperature=self.temperature,
            backend="fake",
            version="1",
        )

    def states(self, ids: Ints) -> Array:
        """Return the state after each token, float32 ``[L, width]``."""
        found = np.empty((ids.size, self.carry.shape[0]))
        state = np.zeros(self.carry.shape[0])
        inputs = self.embedding[ids % len(self.embedding)]
        for p in range(ids.size):
            state = np.tanh(self.carry @ state + inputs[p])
            found[p] = state
        return found.astype(np.float32)

    def score(self, requests: Sequence[ProbeRequest]) -> Iterator[Scores]:
        """Yield the scores of each request (see `Backend.score`)."""
        for request in requests:
            if request.positions.size and int(request.ids[request.positions].max()) >= self.vocabulary:
                raise BackendError("a policy token is not in the fake model's vocabulary", code="ACC755")
            states, at = self.states(request.ids), request.positions
            found = self._reduced(states[at - 1], request.ids[at], request.want)
            if request.want.hidden_at is not None:
                found["hidden_at"] = states[at]
            if request.want.hidden_before is not None:
                found["hidden_before"] = states[at - 1]
            yield Scores(request.key, **found)

    def lens(self, request: ProbeRequest) -> Array:
        """Return the log-probability of the request's tokens by the embedding before each, and by the state.

        Args:
            request: its ``want`` does not matter.
        """
        before, chosen = request.positions - 1, request.ids[request.positions]
        layers = (self.embedding[request.ids % len(self.embedding)][before], self.states(request.ids)[before])
        logs = [log_softmax(layer.astype(np.float32) @ self.head.T) for layer in layers]
        return np.stack([log[np.arange(chosen.size), chosen] for log in logs])

    def _reduced(self, before: Array, chosen: Ints, want: Want) -> dict[str, Array]:
        pieces = [*row_pieces(len(before), rows_at_a_time(self.vocabulary))] or [slice(0, 0)]
        return joined(reduced(before[s] @ self.head.T, chosen[s], want, self.temperature) for s in pieces)

    def rows(self, request: ProbeRequest, size: int) -> Iterator[Array]:
        """Yield log-probabilities of some rows at a time (see `Distributions.rows`)."""
        before = self.states(request.ids)[request.positions - 1]
        for piece in row_pieces(len(before), size):
            logits = before[piece] @ self.head.T
            yield log_softmax(logits / np.float32(self.temperature))
