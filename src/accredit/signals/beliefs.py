"""What a model believes the final answer to be before each step: the signal that places `belief_forks`.

Before a step the prefix is ended by a suffix that asks for the answer.  Read out is either the
distribution of the answer's first token, its K likeliest (PROBE-JS of arXiv 2609.11061), or the share of
each of some whole answers.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from accredit.data import Batch, Finding
from accredit.errors import BackendError, DataError, ParamError, suggest
from accredit.planners.beliefs import candidates
from accredit.signals.chat import Tokenizer, tokenizer_of
from accredit.signals.hints import word_of
from accredit.signals.job import run, scoring_units
from accredit.signals.readout import (
    Frame,
    before_steps,
    continuation_logprobs,
    distinct,
    encoded,
    framed,
    group_answers,
)
from accredit.signals.request import CONTEXT, Backend, ProbeRequest, Span, Want
from accredit.typing import Floats, Ints

__all__ = [
    "SUFFIX",
    "Belief",
    "answer_beliefs",
    "asks_belief",
    "belief_asked",
    "boundaries",
    "known_answers",
    "unread",
]

SUFFIX = "\nSo the final answer is"
Belief: TypeAlias = dict[str, float]
Answers: TypeAlias = Callable[[Batch, int], Sequence[str]]
_SETTINGS = ("suffix", "answers", "end", "cap")
_END = "<|im_end|>"
_MARKED = re.compile(r"#\d+$")


def answer_beliefs(
    batch: Batch,
    backend: Backend,
    tokenizer: Tokenizer | None = None,
    *,
    k: int = 20,
    answers: Sequence[str] | Answers | None = None,
    frame: Frame | None = None,
    cap: int | None = 16,
    **job: Any,
) -> Batch:
    """Return the batch with ``belief``: what the model takes for the answer before each step.

    With ``answers=None`` it is ``{token: p}``, the K likeliest first tokens of the answer after the
    suffix: all that a server which shows the likeliest tokens can give.  With answers it is
    ``{answer: p}``, ``p = softmax_a sum_i log p(a_i | prefix, suffix, a_<i)`` over the whole answers,
    which servers that show the log-probability of given tokens alone can give, too.  ``("won",
    "lost")`` behind a suffix that asks for it is a probe of success.

    Read are the boundaries that a fork is chosen among: before step 0 and before at most ``cap`` others.
    A rollout of fewer than three steps has no choice and is not read.

    Args:
        batch: rollouts with token and context ids.
        backend: who is asked: the policy.
        tokenizer: of the model; None: the back end's own.
        k: first tokens kept, at least 2.
        answers: whole answers, for all or ``(batch, rollout)`` to those of one (`known_answers`); None:
            first tokens.
        frame: ``before`` is the suffix (None: `SUFFIX`); ``after`` ends a whole answer.  Where the
            suffix does not end in white space, a space is put before an answer.
        cap: most boundaries of a rollout after its start, at least 2; None: every step is read.
        **job: ``journal``, ``resume`` and ``progress``, as in `probe`.

    Raises:
        ParamError: for k or cap below 2, or fewer than two different answers.
        BackendError: if the back end does not show what is asked for.
        DataError: if there is no step to read before.

    Source: arXiv 2609.11061, PROBE-JS with read length 1; whole answers are ours.
    """
    if k < 2 or (cap is not None and cap < 2):
        raise ParamError(f"k and cap must be at least 2, got {k} and {cap}")
    if answers is not None and not callable(answers) and len(distinct(answers)) < 2:
        raise ParamError(f"a belief is about at least two different answers, got {list(answers)!r:.80}")
    frame, tokenizer = frame or Frame(before=SUFFIX, after=_END), tokenizer or tokenizer_of(backend)
    looked = boundaries(batch, cap)
    asked = {s: framed(ids, frame, tokenizer) for s, ids in before_steps(batch) if s in looked}
    if not asked:
        raise DataError(
            f"none of {len(batch)} rollouts has a step to read an answer before",
            code="ACC753",
            hint="Rollouts need three steps or more, and the ids of their prompts",
        )
    made = {"probe": "belief", **backend.provenance.to_dict(), "context": "readout", "suffix": frame.before}
    if answers is None:
        made |= {"read": "first token", "k": k}
        found = _first_tokens(backend, tokenizer, asked, k, made, **job)
    else:
        made |= {"read": "whole answers", "after": frame.after}
        found = _whole(batch, backend, tokenizer, asked, answers, frame, **job)
    if not found:
        raise DataError("no rollout has two different answers to choose among", code="ACC753")
    table = np.full(batch.n_steps, None)
    for s, belief in found.items():
        table[s] = belief
    done = batch.with_column("belief", table, made)
    return done.annotated((*done.findings, *unread(batch, looked - found.keys())), done.excluded)


def asks_belief(want: Any) -> bool:
    """Return whether what is asked for is about the answer, ``belief``, ``belief:K`` or ``lens``.

    Args:
        want: as `probe` takes it.
    """
    return isinstance(want, str) and want.partition(":")[0].strip() in ("belief", "lens")


def belief_asked(
    batch: Batch,
    backend: Backend,
    want: str = "belief",
    settings: Mapping[str, Any] | None = None,
    **job: Any,
) -> Batch:
    """Return the batch with ``belief`` or ``answer_lens``, asked for in words, as the command line does.

    Args:
        batch: rollouts with token and context ids.
        backend: who is asked.
        want: ``belief``, ``belief:K``, or ``lens`` (see `accredit.signals.lens`).
        settings: ``suffix``, a line that asks for the answer; ``answers``, whole ones (``yes/no``, or
            ``known``: those that `known_answers` finds); ``end``, what ends a whole answer; ``cap``, see
            `answer_beliefs`, 0 reads every step.  The lens has ``suffix`` and ``cap``.
        **job: ``journal``, ``resume`` and ``progress``.

    Raises:
        ParamError: for a K that is none, an unknown setting, and as in `answer_beliefs`.
    """
    name, colon, number = want.strip().partition(":")
    if colon and (name == "lens" or not number.isdecimal()):
        raise ParamError(f"{want!r} does not say a whole number", hint="For example belief:20; lens has none")
    told, known = dict(settings or {}), ("suffix", "cap") if name == "lens" else _SETTINGS
    for unknown in told.keys() - known:
        raise ParamError(f"{name} has no setting {unknown!r}", hint=suggest(unknown, known))
    answers, cap = str(told.get("answers", "")), told.get("cap", 16)
    if isinstance(cap, bool) or not isinstance(cap, int):
        raise ParamError(f"cap is a whole number, got {cap!r}")
    frame = Frame(before=f"\n{told['suffix']}" if "suffix" in told else SUFFIX, after=told.get("end", _END))
    if name == "lens":
        from accredit.signals.lens import answer_lens  # it reads where and how beliefs are read

        return answer_lens(batch, backend, frame=frame, cap=cap or None, **job)
    named = known_answers if answers == "known" else [part.strip() for part in answers.split("/")]
    return answer_beliefs(
        batch,
        backend,
        k=int(number) if colon else 20,
        answers=named if answers else None,
        frame=frame,
        cap=cap or None,
        **job,
    )


def known_answers(batch: Batch, r: int) -> list[str]:
    """Return the right answer where there is one, a rollout's own, and those of its group, each once.

    Args:
        batch: rollouts with ``answer``, and ``gold`` as a field or in ``metadata``.
        r: position of one.
    """
    right = word_of(batch, r, "gold")
    return distinct([*([right] if right else []), *group_answers(batch, r)])


def boundaries(batch: Batch, cap: int | None) -> set[int]:
    """Return the steps before which a belief is worth its price: those that a fork is chosen among.

    Args:
        batch: rollouts.
        cap: most boundaries of a rollout after its start; None: all steps.
    """
    found: set[int] = set()
    for r in range(len(batch)):
        steps = batch.steps_of(r)
        marks = range(1, len(steps)) if cap is None else candidates(len(steps) - 1, cap)
        if cap is None or len(marks) > 1:
            found |= {steps.start + j for j in ((0, *marks) if len(steps) else ())}
    return found


def _first_tokens(
    backend: Backend,
    tokenizer: Tokenizer,
    asked: Mapping[int, Ints],
    k: int,
    made: Mapping[str, Any],
    **job: Any,
) -> dict[int, Belief]:
    if "topk" not in backend.offers:
        raise BackendError(
            f"{backend.provenance.backend} does not show the likeliest tokens",
            code="ACC755",
            hint="Give whole answers (answers=), which need the log-probability of given tokens alone",
        )
    requests = {s: _next_token(prefix, k) for s, prefix in asked.items()}
    unique = list({request.key: request for request in requests.values()}.values())
    shown = dict(run(scoring_units(backend, unique), made, **job))
    rows = {s: (shown[r.key]["topk_ids"][0], shown[r.key]["topk_logprobs"][0]) for s, r in requests.items()}
    names = _names((i for ids, _ in rows.values() for i in ids.tolist()), tokenizer)
    return {
        s: {
            names[i]: p
            for i, p in zip(ids.tolist(), np.exp(logs.astype(np.float64)).tolist(), strict=True)
            if p > 0
        }
        for s, (ids, logs) in rows.items()
    }


def _next_token(prefix: Ints, k: int) -> ProbeRequest:
    """Return the question what follows a prefix; the token that stands there is of no matter."""
    ids = np.append(prefix, prefix[-1])
    return ProbeRequest(ids, (Span(CONTEXT, prefix.size, ids.size),), Want(topk=k), "readout")


def _names(ids: Iterable[int], tokenizer: Tokenizer) -> dict[int, str]:
    """Return the text of each id; where that is no text of one id alone, the id stands behind it."""
    texts = {i: tokenizer.decode(np.array([i], np.int64)) for i in sorted(set(ids))}
    times = Counter(texts.values())
    return {
        i: text if times[text] == 1 and "\ufffd" not in text and not _MARKED.search(text) else f"{text}#{i}"
        for i, text in texts.items()
    }


def _whole(
    batch: Batch,
    backend: Backend,
    tokenizer: Tokenizer,
    asked: Mapping[int, Ints],
    answers: Sequence[str] | Answers,
    frame: Frame,
    **job: Any,
) -> dict[int, Belief]:
    of_rollout = answers if callable(answers) else lambda batch, r: answers
    owner_S = np.repeat(np.arange(len(batch)), np.diff(batch.step_start_R1))
    named = {r: distinct(of_rollout(batch, r)) for r in {int(owner_S[s]) for s in asked}}
    space = "" if frame.before[-1:].isspace() else " "
    steps = [s for s in asked if len(named[int(owner_S[s])]) > 1]
    questions = [
        (asked[s], [encoded(tokenizer, space + answer + frame.after) for answer in named[int(owner_S[s])]])
        for s in steps
    ]
    found = continuation_logprobs(backend, questions, **job)
    return {
        s: _shares(named[int(owner_S[s])], np.array([row.sum(dtype=np.float64) for row in rows]))
        for s, rows in zip(steps, found, strict=True)
    }


def _shares(names: Sequence[str], sums: Floats) -> Belief:
    p = np.exp(sums - np.logaddexp.reduce(sums))
    return {name: float(x) for name, x in zip(names, p, strict=True) if x > 0}


def unread(batch: Batch, steps: set[int]) -> list[Finding]:
    """Return the finding that steps could not be read before; none where there are none.

    Args:
        batch: rollouts.
        steps: of the batch.
    """
    if not steps:
        return []
    first = min(steps)
    r = int(np.searchsorted(batch.step_start_R1, first, "right")) - 1
    text = f"no belief before {len(steps)} steps: their prompts are not known, or there is one answer alone"
    where = f"rollout {batch.ids[r]!r} step {first - int(batch.step_start_R1[r])}"
    hint = "Record the ids of prompts and answers; whole answers need two different ones"
    return [Finding("ACC753", "warning", text, where, hint, count=len(steps))]
