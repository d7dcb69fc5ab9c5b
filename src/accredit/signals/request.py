"""What a probe is asked, what it answers, and who answers: requests, wants, scores, back ends.

A passage is one flat sequence of segments: context ids, the ids of a step, context ids, ... A request is
the passage laid flat, with the spans of policy tokens in it. Response ids are never re-tokenised:
contexts edit the segments before them.

Position rule: the distribution that produced the token at index p is row p - 1 of the logits, so a
span at index 0 has no predictor and is refused.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, runtime_checkable

import numpy as np

from accredit.errors import DataError, ParamError, suggest
from accredit.typing import Array, Ints

if TYPE_CHECKING:
    from accredit.data import Batch

__all__ = [
    "CONTEXT",
    "SAMPLED",
    "Backend",
    "Context",
    "Distributions",
    "Passage",
    "ProbeRequest",
    "Provenance",
    "Scores",
    "Segment",
    "Span",
    "Want",
]

CONTEXT = -1  # the step of a segment that no policy wrote
_KINDS = ("logprob", "entropy", "gradnorm", "topk", "logits", "hidden", "hidden_at", "hidden_before")


@dataclass(frozen=True, slots=True)
class Span:
    """Policy tokens of one step inside a request.

    Args:
        step: step of the batch.
        start: index of its first token in the request's ids; at least 1.
        stop: one past its last; equal to ``start`` for an empty step.
    """

    step: int
    start: int
    stop: int


@dataclass(frozen=True, slots=True)
class Want:
    """Which numbers a request asks for, each one a policy token.

    Args:
        logprob: log-probability of the chosen token, nats.
        entropy: of the whole next-token distribution, nats.
        gradnorm: squared length of d log p_y / d logits, ``1 - 2 p_y + sum_v p_v^2``.
        topk: how many of the most probable ids, with their log-probabilities.
        logits: ids whose logits (before the temperature) are returned.
        hidden_at: layer of the state AT the token (row p), as in ``hidden_states[layer]``; -1 is the
            last, after the final norm. None: not asked for.
        hidden_before: layer of the state BEFORE it (row p - 1), the one that predicted it.

    Example:
        >>> Want.parse("logprob,topk:4,hidden")
        Want(logprob=True, entropy=False, gradnorm=False, topk=4, logits=(), hidden_at=-1, hidden_before=None)
    """

    logprob: bool = False
    entropy: bool = False
    gradnorm: bool = False
    topk: int = 0
    logits: tuple[int, ...] = ()
    hidden_at: int | None = None
    hidden_before: int | None = None

    @classmethod
    def parse(cls, text: str) -> Want:
        """Return what a list like ``logprob,entropy,topk:8,logits:5/7,hidden,hidden_before:-2`` asks for.

        Args:
            text: names divided by commas; ``hidden`` means ``hidden_at:-1``.

        Raises:
            ParamError: for a name that is unknown, or a number that is not one.
        """
        found: dict[str, Any] = {}
        for item in filter(None, (part.strip() for part in text.split(","))):
            name, _, value = item.partition(":")
            if name not in _KINDS:
                raise ParamError(f"a probe cannot be asked for {name!r}", hint=suggest(name, _KINDS))
            found["hidden_at" if name == "hidden" else name] = _value(name, value, item)
        if not found:
            raise ParamError("nothing is asked for", hint=f"Ask for some of {', '.join(_KINDS)}")
        return cls(**found)

    @property
    def kinds(self) -> frozenset[str]:
        """Names of what is asked for, as `Backend.offers` lists them."""
        layers = {name for name in ("hidden_at", "hidden_before") if getattr(self, name) is not None}
        others = {
            name for name in ("logprob", "entropy", "gradnorm", "topk", "logits") if getattr(self, name)
        }
        return frozenset(layers | others)

    def __str__(self) -> str:
        shown = {"topk": f":{self.topk}", "logits": ":" + "/".join(map(str, self.logits))}
        shown |= {name: f":{getattr(self, name)}" for name in ("hidden_at", "hidden_before")}
        return ",".join(f.name + shown.get(f.name, "") for f in fields(self) if f.name in self.kinds)


def _value(name: str, text: str, item: str) -> Any:
    if name in ("logprob", "entropy", "gradnorm"):
        if text:
            raise ParamError(f"{item!r}: {name} takes no number")
        return True
    try:
        if name == "logits":
            return tuple(int(part) for part in text.split("/"))
        number = int(text) if text or name == "topk" else -1
    except ValueError:
        raise ParamError(f"{item!r} does not say a whole number", hint=f"For example {name}:4") from None
    if name == "topk" and number < 1:
        raise ParamError(f"{item!r}: at least one")
    return number


@dataclass(frozen=True)
class ProbeRequest:
    """One flat id sequence with spans of policy tokens, and what is asked of them.

    Args:
        ids: int64 ``[L]``, context and policy tokens in order.
        spans: ascending, apart; scores have one number a token of these, in their order.
        want: what is asked for.
        context: name of the context that the policy tokens stand in.

    Raises:
        DataError: for a span at index 0 (nothing predicts it), out of order, or past the end.

    Example:
        >>> ProbeRequest(np.arange(9), (Span(0, 4, 6), Span(1, 8, 9)), Want(logprob=True)).positions
        array([4, 5, 8])
    """

    ids: Ints
    spans: tuple[Span, ...]
    want: Want
    context: str = "sampled"

    def __post_init__(self) -> None:
        last = 1
        for span in self.spans:
            if span.start < 1:
                raise DataError(
                    f"step {span.step} begins at index {span.start} of its sequence: nothing predicts it",
                    code="ACC751",
                    hint="Give the ids of the prompt (prompt_tokens or context_tokens) with each step",
                )
            if not last <= span.start <= span.stop <= self.ids.size:
                raise DataError(f"span {span} does not fit {self.ids.size} ids, or overlaps the one before")
            last = span.stop

    @cached_property
    def positions(self) -> Ints:
        """Index of each policy token in ``ids``; row ``positions - 1`` of the logits predicted it."""
        parts = [np.arange(span.start, span.stop) for span in self.spans]
        return np.concatenate(parts) if parts else np.zeros(0, np.int64)

    @cached_property
    def place(self) -> str:
        """Fingerprint of ids and spans: where numbers belong, whatever is asked for."""
        shape = repr([(span.start, span.stop) for span in self.spans]).encode()
        data = np.ascontiguousarray(self.ids, np.int64).tobytes()
        return hashlib.sha256(shape + b"\0" + data).hexdigest()[:32]

    @property
    def key(self) -> str:
        """Place and want: requests with equal keys get equal scores, whatever step or context they are of."""
        return f"{self.place}:{self.want}"


@dataclass(frozen=True)
class Scores:
    """Answer to one request: arrays with one row a policy token, None where not asked for.

    Args:
        key: of the request.
        logprob: float32 ``[T]``, nats.
        entropy: float32 ``[T]``, nats.
        gradnorm: float32 ``[T]``.
        topk_ids: int32 ``[T, k]``, most probable first.
        topk_logprobs: float32 ``[T, k]``.
        logits: float32 ``[T, n]``.
        hidden_at: ``[T, d]``.
        hidden_before: ``[T, d]``.
    """

    key: str
    logprob: Array | None = None
    entropy: Array | None = None
    gradnorm: Array | None = None
    topk_ids: Array | None = None
    topk_logprobs: Array | None = None
    logits: Array | None = None
    hidden_at: Array | None = None
    hidden_before: Array | None = None

    def arrays(self) -> dict[str, Array]:
        """Return the arrays that are there, by field name."""
        named = {f.name: getattr(self, f.name) for f in fields(self) if f.name != "key"}
        return {name: array for name, array in named.items() if array is not None}


@dataclass(frozen=True, slots=True)
class Provenance:
    """Where numbers came from: what two log-probabilities must share to be subtracted.

    Args:
        model: name of the model.
        weights: fingerprint of its weights; "" where it is not known.
        policy_version: training step of the weights; "" where it is not known.
        dtype: of the forward pass.
        head_dtype: of the product that made the logits; "" where it is not known.
        temperature: logits were divided by it.
        mode: ``raw`` (whole softmax) or ``processed`` (after top-p, top-k, penalties).
        backend: name of the back end.
        version: of the back end's library.
        template: fingerprint of the chat template; "" where there is none.
    """

    model: str
    weights: str = ""
    policy_version: str = ""
    dtype: str = ""
    head_dtype: str = ""
    temperature: float = 1.0
    mode: str = "raw"
    backend: str = ""
    version: str = ""
    template: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Return the fields that say something, JSON-ready."""
        return {name: value for name, value in asdict(self).items() if value != ""}


@runtime_checkable
class Backend(Protocol):
    """A model that scores given ids: deterministic, nothing is sampled, everything detached."""

    @property
    def provenance(self) -> Provenance:
        """Where its numbers come from."""

    @property
    def offers(self) -> frozenset[str]:
        """What can be asked of it: names of `Want.kinds`."""

    def score(self, requests: Sequence[ProbeRequest]) -> Iterator[Scores]:
        """Yield the scores of each request, in any order, each under its request's key.

        The same requests in one call give the same numbers, always. Requests that share the ids
        before their first span are scored apart from each other; the shared part may be computed once.

        Args:
            requests: one job's worth; keys are unique.

        Raises:
            BackendError: if the model does not answer, or cannot give what is asked for.
        """


@runtime_checkable
class Distributions(Backend, Protocol):
    """A back end that shows whole next-token distributions, a few rows at a time."""

    @property
    def vocabulary(self) -> int:
        """Number of ids, V."""

    def rows(self, request: ProbeRequest, size: int) -> Iterator[Array]:
        """Yield log-probabilities ``[<= size, V]`` float32, one row a policy token, in order.

        Args:
            request: its ``want`` does not matter.
            size: rows at a time; memory is that of ``size * V`` numbers.
        """


@dataclass(frozen=True, slots=True)
class Segment:
    """Ids that one side wrote.

    Args:
        ids: int64 ``[n]``.
        step: step of the batch whose policy tokens they are; `CONTEXT` for all else.
    """

    ids: Ints
    step: int = CONTEXT


@dataclass(frozen=True, slots=True)
class Passage:
    """Segments that follow each other in the policy's own context: a rollout, or a call of its own.

    Args:
        rollout: position in the batch.
        segments: in order; concatenated they are what the model read and wrote.
    """

    rollout: int
    segments: tuple[Segment, ...]

    @property
    def steps(self) -> tuple[int, ...]:
        """Steps whose policy tokens it holds."""
        return tuple(s.step for s in self.segments if s.step != CONTEXT)

    def request(self, want: Want, context: str = "sampled") -> ProbeRequest:
        """Return the passage laid flat.

        Args:
            want: what is asked for.
            context: name of the context.

        Raises:
            DataError: if a policy token has nothing before it.
        """
        ends = np.cumsum([0, *(s.ids.size for s in self.segments)]).tolist()
        spans = [
            Span(s.step, a, b)
            for s, a, b in zip(self.segments, ends, ends[1:], strict=False)
            if s.step != CONTEXT
        ]
        ids = np.concatenate([s.ids for s in self.segments]) if self.segments else np.zeros(0, np.int64)
        return ProbeRequest(ids.astype(np.int64, copy=False), tuple(spans), want, context)


Edit: TypeAlias = Callable[["Batch", Passage], Passage | None]


@dataclass(frozen=True, slots=True)
class Context:
    """A named way to change what stands before the policy tokens.

    Args:
        name: goes into column names and provenance.
        edit: ``(batch, passage) -> passage`` with other context segments and the same policy segments
            (checked); None where the rollout has no such context.
        describe: JSON-ready parameters, part of the fingerprint of a job.
    """

    name: str
    edit: Edit
    describe: Mapping[str, Any] | None = None

    def of(self, batch: Batch, passage: Passage) -> Passage | None:
        """Return the passage in this context.

        Raises:
            DataError: if the edit changed a policy token or left a step out.
        """
        found = self.edit(batch, passage)
        if found is not None and not _same_response(passage, found):
            name = batch.ids[passage.rollout]
            raise DataError(f"context {self.name!r} changed policy tokens of rollout {name!r}", code="ACC752")
        return found


def _same_response(before: Passage, after: Passage) -> bool:
    mine = [s for s in before.segments if s.step != CONTEXT]
    other = [s for s in after.segments if s.step != CONTEXT]
    return before.steps == after.steps and all(
        np.array_equal(a.ids, b.ids) for a, b in zip(mine, other, strict=True)
    )


SAMPLED = Context("sampled", lambda batch, passage: passage)
