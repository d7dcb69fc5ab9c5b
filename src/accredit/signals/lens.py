"""The final answer read at every layer of a model before each step: LENS-SHIFT's signal.

Each layer's state goes through the final norm and the head (the logit lens), as if the model ended there.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, runtime_checkable

import numpy as np

from accredit.data import Batch
from accredit.errors import BackendError, DataError, ParamError
from accredit.signals.beliefs import SUFFIX, boundaries, unread
from accredit.signals.chat import Tokenizer, tokenizer_of
from accredit.signals.hints import word_of
from accredit.signals.job import Answers, Unit, run
from accredit.signals.readout import Frame, before_steps, encoded, framed
from accredit.signals.request import CONTEXT, Backend, ProbeRequest, Span, Want
from accredit.typing import Array

__all__ = ["Layered", "answer_lens", "layer_logprobs"]

_NORMS = ("norm", "final_layernorm", "final_layer_norm", "ln_f")
_NEAR = 2e-2  # nats a token between the last layer's lens and the back end's own number


@runtime_checkable
class Layered(Protocol):
    """A back end that shows what each of its layers would say."""

    def lens(self, request: ProbeRequest) -> Array:
        """Return the log-probability of the request's tokens at each layer, float32 ``[L, T]``, nats."""


def answer_lens(
    batch: Batch,
    backend: Backend,
    tokenizer: Tokenizer | None = None,
    *,
    frame: Frame | None = None,
    cap: int | None = 16,
    **job: Any,
) -> Batch:
    """Return the batch with ``answer_lens``: how likely each layer takes the own answer before each step.

    ``b_l = sum_i log softmax(W norm(h_l))[a_i]`` over the tokens of the answer that the rollout ended
    with, behind prefix and suffix; layer 0 are the embeddings, the last is the model's own.

    Args:
        batch: rollouts with ids and ``answer``; those without an answer get none.
        backend: a model on this machine.
        tokenizer: of the model; None: the back end's own.
        frame: ``before`` is the suffix (None: that of `answer_beliefs`).
        cap: boundaries read, as in `answer_beliefs`.
        **job: ``journal``, ``resume`` and ``progress``, as in `probe`.

    Raises:
        BackendError: if the back end does not show its layers, or they do not end in its own numbers.
        DataError: if no rollout has both steps to choose among and an answer.

    Source: arXiv 2609.11061, LENS-SHIFT.
    """
    if cap is not None and cap < 2:
        raise ParamError(f"cap must be at least 2, got {cap}")
    frame, tokenizer = frame or Frame(before=SUFFIX), tokenizer or tokenizer_of(backend)
    owner_S = np.repeat(np.arange(len(batch)), np.diff(batch.step_start_R1))
    answers = {r: text for r in range(len(batch)) if (text := word_of(batch, r, "answer"))}
    looked = {s for s in boundaries(batch, cap) if int(owner_S[s]) in answers}
    space = "" if frame.before[-1:].isspace() else " "
    asked: dict[int, ProbeRequest] = {}
    for s, ids in before_steps(batch):
        if s in looked:
            prefix = framed(ids, frame, tokenizer)
            whole = np.concatenate([prefix, encoded(tokenizer, space + answers[int(owner_S[s])])])
            span = Span(CONTEXT, prefix.size, whole.size)
            asked[s] = ProbeRequest(whole, (span,), Want(logprob=True), "readout")
    if not asked:
        raise DataError("no rollout has an answer and three steps or more", code="ACC753")
    made = {"probe": "lens", **backend.provenance.to_dict(), "context": "readout", "suffix": frame.before}
    unique = {request.key: request for request in asked.values()}
    found = dict(run([_unit(backend, request) for request in unique.values()], made, **job))
    rows = {s: found[request.key]["lens"].sum(1, dtype=np.float64) for s, request in asked.items()}
    width = len(next(iter(rows.values())))
    table, there = np.zeros((batch.n_steps, width)), np.zeros(batch.n_steps, bool)
    for s, row in rows.items():
        table[s], there[s] = row, True
    done = batch.with_column("answer_lens", table, made, valid=there)
    return done.annotated((*done.findings, *unread(batch, looked - rows.keys())), done.excluded)


def _unit(backend: Backend, request: ProbeRequest) -> Unit:
    def work() -> Answers:
        return [(request.key, {"lens": layer_logprobs(backend, request)})]

    return Unit((request.key,), request.ids.size, work)


def layer_logprobs(backend: Backend, request: ProbeRequest) -> Array:
    """Return the log-probability of a request's tokens at each layer, float32 ``[L, T]``, nats.

    Args:
        backend: `Layered`, or with a transformers model in ``model``.
        request: ids and spans.

    Raises:
        BackendError: if there are no layers to be seen, or the last one does not say what the back end says.
    """
    if isinstance(backend, Layered):
        return backend.lens(request)
    model = getattr(backend, "model", None)
    if not hasattr(model, "get_output_embeddings"):
        raise BackendError(
            f"{backend.provenance.backend} does not show its layers",
            code="ACC755",
            hint="Read first tokens (answer_beliefs), or give a model on this machine",
        )
    found = _lens(model, request)
    [own] = list(backend.score([request]))
    if own.logprob is None or np.abs(found[-1] - own.logprob).max(initial=0) > _NEAR:
        raise BackendError(
            f"the last layer of {type(model).__name__} does not give its own log-probabilities",
            code="ACC755",
            hint="This architecture does more after its last layer than is known here, or has a temperature",
        )
    return found


def _lens(model: Any, request: ProbeRequest) -> Array:
    import torch

    norms: Sequence[Any] = [getattr(model.base_model, n) for n in _NORMS if hasattr(model.base_model, n)]
    if not norms:
        raise BackendError(f"{type(model).__name__} has no final norm that is known", code="ACC755")
    ids, at = torch.from_numpy(request.ids[None]).to(model.device), request.positions
    chosen = torch.from_numpy(request.ids[at]).to(model.device)
    head = model.get_output_embeddings()
    bias = None if head.bias is None else head.bias.float()
    training = model.training
    model.eval()
    try:
        with torch.inference_mode():
            out = model.base_model(input_ids=ids, use_cache=False, output_hidden_states=True)
            inner = [norms[0](state[:, at - 1]) for state in out.hidden_states[:-1]]
            rows = []
            for state in (*inner, out.last_hidden_state[:, at - 1]):
                logits = torch.nn.functional.linear(state[0].float(), head.weight.float(), bias)
                rows.append(logits.log_softmax(-1).gather(1, chosen[:, None])[:, 0])
    finally:
        model.train(training)
    found: Array = torch.stack(rows).cpu().numpy()
    return found
