"""Reasoning with a label a step: PRM800K, Math-Shepherd, ProcessBench, TRL's stepwise supervision.

A step is a step of the reasoning. Its label is the signal ``label_S``, as the data set has it: -1, 0, 1 in
PRM800K; 1 and 0 (``+`` and ``-``, true and false) elsewhere. A label is no reward: make it one by
``with_column("reward_S", ...)`` if you mean so. Group: equal problems. State: hash of the whole prefix.

PRM800K: the step that was chosen, else what a human wrote, else the first completion; the rated siblings are
in the step's metadata; unscored, since the file does not say whether the answer is right. Math-Shepherd: the
label of the last step is the outcome, since the answer stands in it. ProcessBench: ``final_answer_correct``
is the outcome, ``label`` the first wrong step (``mistake_step_R``; steps after it have no label).
Missing: tokens, step rewards, environment states.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from accredit.data import Rollout
from accredit.readers.chat import Message, Transcript
from accredit.readers.foreign import (
    Origin,
    from_records,
    list_of,
    mapping_of,
    need,
    number_of,
    rest_of,
    reward_of,
    task_group,
    text_of,
    top_keys,
)
from accredit.readers.formats import Format, Head, register

__all__ = ["MATH_SHEPHERD", "PRM800K", "PROCESSBENCH", "STEPWISE"]

_MARK = "ки"
_SIGNS = {"+": 1.0, "-": 0.0}
_FIRST = re.compile(r"Step 1\s*:")


def _reasoning(
    problem: str,
    texts: Sequence[str | None],
    labels: Sequence[float | None],
    origin: Origin,
    **step_fields: Sequence[Any],
) -> tuple[Transcript, str | None]:
    """Return steps with labels, and the group of the problem; a label that is absent stays so."""
    talk = Transcript(origin, rule="prefix")
    talk.observe(problem)
    for t, (text, label) in enumerate(zip(texts, labels, strict=True)):
        fields = {name: values[t] for name, values in step_fields.items()}
        extra = {} if label is None else {"label": label}
        talk.act(Message("assistant", text or ""), extra=extra, **fields)
    return talk, task_group(origin, problem)


# -- PRM800K ----------------------------------------------------------------------------------


def _prm_score(head: Head) -> int:
    keys = top_keys(head)
    return 3 if {"question", "label", "labeler"} <= keys else 0


def _prm_rollouts(value: Any, origin: Origin) -> Iterator[Rollout]:
    label = need(value, "label", dict, origin)
    question = mapping_of(value.get("question"))
    entries = [mapping_of(entry) for entry in need(label, "steps", list, origin)]
    taken = [_taken(entry) for entry in entries]
    talk, group = _reasoning(
        text_of(question.get("problem")),
        [text_of(completion.get("text")) for completion in taken],
        [number_of(completion.get("rating")) for completion in taken],
        origin,
        metadata=[dict(entry) or None for entry in entries],
    )
    yield talk.rollout(
        id=origin.name,
        group=group,
        metadata={**(rest_of(value, "label") or {}), "label": rest_of(label, "steps")},
    )


def _taken(entry: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the completion that the solution went on with."""
    completions, chosen = list_of(entry.get("completions")), entry.get("chosen_completion")
    if type(chosen) is int and 0 <= chosen < len(completions):
        return mapping_of(completions[chosen])
    human = entry.get("human_completion")
    if human:
        return human if isinstance(human, Mapping) else {"text": text_of(human)}
    return mapping_of(completions[0]) if completions else {}


# -- Math-Shepherd ----------------------------------------------------------------------------


def _shepherd_score(head: Head) -> int:
    marked = _MARK.encode() in head.text or b"\\u043a\\u0438" in head.text
    keys = top_keys(head)
    return 3 if {"input", "label"} <= keys and (marked or _MARK in _first_input(head)) else 0


def _first_input(head: Head) -> str:
    return text_of(mapping_of(head.first).get("input"))


def _shepherd_rollouts(value: Any, origin: Origin) -> Iterator[Rollout]:
    marked, signed = need(value, "input", str, origin), need(value, "label", str, origin)
    *texts, _ = marked.split(_MARK)
    labels = _signs(texts, signed, origin)
    start = _FIRST.search(texts[0]) if texts else None
    cut = start.start() if start else 0
    problem = texts[0][:cut] if texts else marked
    said = [text[cut:] if t == 0 else text for t, text in enumerate(texts)]
    talk, group = _reasoning(problem.strip(), [text.strip() for text in said], labels, origin)
    yield talk.rollout(
        id=origin.name,
        group=group,
        reward=labels[-1] if labels else None,
        metadata=rest_of(value, "input", "label"),
    )


def _signs(texts: Sequence[str], signed: str, origin: Origin) -> list[float]:
    """Return the sign that stands in the label in place of each mark of the input."""
    at, found = 0, []
    for t, text in enumerate(texts):
        at += len(text)
        sign = signed[at : at + 1]
        if signed[at - len(text) : at] != text or sign not in _SIGNS or not sign:
            raise origin.wrong(
                f"the label after step {t}", signed[at - 10 : at + 10], "the input, signed + or -"
            )
        found.append(_SIGNS[sign])
        at += 1
    return found


# -- ProcessBench -----------------------------------------------------------------------------


def _bench_score(head: Head) -> int:
    return 3 if {"problem", "steps", "label"} <= top_keys(head) else 0


def _bench_rollouts(value: Any, origin: Origin) -> Iterator[Rollout]:
    texts = need(value, "steps", list, origin)
    wrong = value.get("label")
    if type(wrong) is not int or not -1 <= wrong < len(texts):
        raise origin.wrong("label", wrong, f"-1 or the number of a step below {len(texts)}")
    known = len(texts) if wrong < 0 else wrong
    labels = [1.0 if t < known else 0.0 if t == wrong else None for t in range(len(texts))]
    talk, group = _reasoning(text_of(value.get("problem")), [text_of(t) for t in texts], labels, origin)
    yield talk.rollout(
        id=text_of(value.get("id")) or origin.name,
        group=group,
        reward=reward_of(value.get("final_answer_correct")),
        metadata=rest_of(value, "id", "problem", "steps", "label"),
        extra={} if wrong < 0 else {"mistake_step": wrong},
    )


# -- stepwise supervision ---------------------------------------------------------------------


def _stepwise_score(head: Head) -> int:
    return 3 if {"prompt", "completions", "labels"} <= top_keys(head) else 0


def _stepwise_rollouts(value: Any, origin: Origin) -> Iterator[Rollout]:
    texts = need(value, "completions", list, origin)
    labels = need(value, "labels", list, origin)
    if len(texts) != len(labels):
        raise origin.wrong("labels", f"{len(labels)} labels", f"one a completion, {len(texts)}")
    talk, group = _reasoning(
        text_of(value.get("prompt")), [text_of(t) for t in texts], [reward_of(v) for v in labels], origin
    )
    yield talk.rollout(
        id=origin.name, group=group, metadata=rest_of(value, "prompt", "completions", "labels")
    )


PRM800K = register(Format("prm800k", "PRM800K step ratings", _prm_score, from_records(_prm_rollouts)))
MATH_SHEPHERD = register(
    Format("math-shepherd", "Math-Shepherd step signs", _shepherd_score, from_records(_shepherd_rollouts))
)
PROCESSBENCH = register(
    Format("processbench", "ProcessBench first wrong steps", _bench_score, from_records(_bench_rollouts))
)
STEPWISE = register(
    Format("stepwise", "stepwise supervision", _stepwise_score, from_records(_stepwise_rollouts))
)
