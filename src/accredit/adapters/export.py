"""Credit back into the formats that rollouts come from, and into training data for reward models.

Source: verifiers 0.4.0 serialised traces (``nodes[].advantages``); OpenTelemetry GenAI semantic
conventions 0.66b2, event ``gen_ai.evaluation.result``; inspect-ai 0.3 ``EvalLog`` and ``Score``; TRL
1.16 dataset type "stepwise supervision" (prompt, completions, labels).
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import accredit as ac
from accredit.adapters.nodes import check_objects, masked_ids, step_advantages
from accredit.adapters.trees import check_traces, node_credits
from accredit.errors import DataError

__all__ = ["Labelled", "otel_scores", "score_inspect_log", "stepwise_labels", "traces_with_advantages"]


def traces_with_advantages(
    credit: ac.Credit, traces: Iterable[Mapping[str, Any]], *, whole: bool = True
) -> list[dict[str, Any]]:
    """Return serialised verifiers traces with ``advantages`` in every node that has sampled tokens.

    For live ``Trace`` objects see `accredit.adapters.verifiers.write_traces`. A node that several paths of
    the batch pass through gets the mean over them (`accredit.adapters.trees.node_credits` counts them).

    Args:
        credit: of the same traces, by their ids.
        traces: traces as ``Trace.model_dump()`` or a JSON file gives them; they are not changed.
        whole: every credited trace must be among them.

    Raises:
        DataError: if a trace is missing, comes twice, is unknown, or holds other tokens.
    """
    found = [copy.deepcopy(dict(trace)) for trace in traces]
    check_traces(credit, [str(trace["id"]) for trace in found], whole=whole)
    for trace in found:
        by_node = node_credits(credit, trace)
        if by_node is not None:
            for c in by_node:
                trace["nodes"][c.node]["advantages"] = c.advantages
            continue
        nodes = [node for node in trace["nodes"] if any(node.get("mask") or ())]
        name = str(trace["id"])
        held = [masked_ids(node["token_ids"], node["mask"], f"trace {name!r}") for node in nodes]
        for node, values in zip(nodes, step_advantages(credit, name, held), strict=True):
            node["advantages"] = values
    return found


def otel_scores(credit: ac.Credit, *, time_unix_nano: int = 0) -> dict[str, Any]:
    """Return one ``gen_ai.evaluation.result`` event a step, as OTLP JSON logs.

    The event hangs on the step's span (``metadata.span`` of a step, where the reader of spans puts
    it) and on the trace that the rollout's id names; its score is the step's credit.

    Args:
        credit: the result.
        time_unix_nano: of the events.

    Returns:
        ``{"resourceLogs": [...]}``, ready to be posted to a collector.
    """
    events = [
        _event(credit, name, t, step, value, time_unix_nano)
        for name, steps, values in _rollouts(credit)
        for t, (step, value) in enumerate(zip(steps, values, strict=True))
    ]
    scope = {"name": "accredit", "version": str(credit.provenance.get("accredit", ""))}
    return {"resourceLogs": [{"scopeLogs": [{"scope": scope, "logRecords": events}]}]}


def _event(
    credit: ac.Credit, name: str, t: int, step: Mapping[str, Any], value: float, time: int
) -> dict[str, Any]:
    span = (step.get("metadata") or {}).get("span")
    attributes = [
        ("gen_ai.evaluation.name", {"stringValue": f"accredit/{credit.method}"}),
        ("gen_ai.evaluation.score.value", {"doubleValue": value}),
        ("gen_ai.evaluation.score.label", {"stringValue": _label(value)}),
        ("accredit.rollout", {"stringValue": name}),
        ("accredit.step", {"intValue": str(t)}),
    ]
    event: dict[str, Any] = {
        "timeUnixNano": str(time),
        "eventName": "gen_ai.evaluation.result",
        "traceId": name.partition("/")[0],
        "attributes": [{"key": key, "value": held} for key, held in attributes],
    }
    return event | ({"spanId": str(span)} if span else {})


def _label(value: float) -> str:
    return "none" if value == 0 else "helped" if value > 0 else "hurt"


def _rollouts(credit: ac.Credit) -> Iterator[tuple[str, list[Mapping[str, Any]], list[float]]]:
    """Yield id, steps and credit of each rollout, its rows joined."""
    steps: dict[str, list[Mapping[str, Any]]] = {name: [] for name in credit.batch.ids}
    for record in credit.batch.records():
        steps[record["id"]] += record["steps"]
    for name, values in zip(credit.batch.ids, credit.by_rollout(), strict=True):
        yield name, steps[name], [float(v) for v in values]


def score_inspect_log(credit: ac.Credit, log: Any, *, whole: bool = True) -> str:
    """Add a score to every sample of an Inspect log: its value the sum, its metadata the steps.

    Args:
        credit: of the log's samples, with the ids that the reader gives them (``run/sample.epoch``).
        log: ``inspect_ai.log.EvalLog``, read with its samples; write it with ``write_eval_log``.
        whole: every credited sample must be in the log.

    Returns:
        The score's name, ``accredit/<method>``.

    Raises:
        DataError: if a sample is missing or unknown.
    """
    from inspect_ai.scorer import Score

    samples = {f"{log.eval.run_id}/{sample.id}.{sample.epoch}": sample for sample in log.samples or []}
    check_objects(credit, list(samples), whole=whole)
    name = f"accredit/{credit.method}"
    values = dict(zip(credit.batch.ids, credit.by_rollout(), strict=True))
    for rollout, sample in samples.items():
        steps = [float(v) for v in values[rollout]]
        metadata = {"credit": steps, "method": credit.method, "params": _plain(credit.params)}
        sample.scores = (sample.scores or {}) | {name: Score(value=sum(steps), metadata=metadata)}
    return name


def _plain(params: Mapping[str, Any]) -> dict[str, Any]:
    return {k: v if isinstance(v, str | int | float | bool | dict) else repr(v) for k, v in params.items()}


class Labelled(NamedTuple):
    """Training records of a process reward model.

    Args:
        records: ``{"prompt", "completions", "labels", "credit"}``.
        left_out: rollouts whose credit is zero throughout: the method says nothing of their steps.
    """

    records: list[dict[str, Any]]
    left_out: tuple[str, ...]


def stepwise_labels(
    credit: ac.Credit,
    *,
    threshold: float = 0.0,
    completion: str = "action",
    prompt: Callable[[Mapping[str, Any]], str] | None = None,
) -> Labelled:
    """Return rollouts with a label a step: whether its credit is above a threshold.

    The layout is TRL's "stepwise supervision"; ``credit`` keeps the numbers for others.

    Args:
        credit: the result.
        threshold: a step's label is True where its credit is greater.
        completion: field of a step that holds what the policy said: ``action`` or ``text``.
        prompt: gives the prompt of a rollout's first step; None = its state.

    Raises:
        DataError: if a step lacks the text, or a first step its state.

    Example:
        >>> records = [{"id": i, "group": "g", "reward": r, "steps": [{"state": "hall", "action": a}]}
        ...            for i, r, a in (("a", 1, "open"), ("b", 0, "wait"))]
        >>> stepwise_labels(ac.assign(records, "dr-grpo")).records[0]
        {'prompt': 'hall', 'completions': ['open'], 'labels': [True], 'credit': [0.5]}
    """
    found, silent = [], []
    for name, steps, values in _rollouts(credit):
        if not any(values):
            silent.append(name)
            continue
        texts = [_text(name, t, step, completion) for t, step in enumerate(steps)]
        begin = _text(name, 0, steps[0], "state") if prompt is None else prompt(steps[0])
        labels = [value > threshold for value in values]
        found.append({"prompt": begin, "completions": texts, "labels": labels, "credit": values})
    return Labelled(found, tuple(silent))


def _text(name: str, t: int, step: Mapping[str, Any], field: str) -> str:
    value = step.get(field)
    if value is None:
        raise DataError(
            f"rollout {name!r} step {t} has no {field!r}",
            code="ACC401",
            hint="Give `prompt`, or name the field that holds the text: completion='text'",
        )
    return str(value)
