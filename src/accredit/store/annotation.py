"""Annotations on disk: what a judge, a verifier, a program or a person says of the steps of a rollout."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import msgspec

from accredit.data import Batch
from accredit.errors import DataError
from accredit.store.encode import encode
from accredit.store.kinds import file_kind, lines_file
from accredit.store.limits import Limits
from accredit.store.lines import is_header, read_objects
from accredit.store.schema import ANNOTATION

__all__ = ["Annotation", "Annotator", "read_annotations", "save_annotations"]


class Annotator(msgspec.Struct, frozen=True, omit_defaults=True):
    """Who or what made an annotation.

    Args:
        kind: what it is.
        name: which one.
        model: model behind it.
        revision: of the model.
        prompt_version: of the prompt.
        parser_version: of the parser of its answers.
        params: decoding parameters.
        sample_index: number among several answers to one request.
        request_hash: of the canonical request.
    """

    kind: Literal["verifier", "environment", "program", "judge", "self", "prm", "human"]
    name: str = ""
    model: str = ""
    revision: str = ""
    prompt_version: str = ""
    parser_version: str = ""
    params: dict[str, Any] = {}
    sample_index: int = 0
    request_hash: str = ""


class Progress(msgspec.Struct, frozen=True, omit_defaults=True):
    """How far along a rollout is: ``n_steps + 1`` values in [0, 1], the first before the first step."""

    values: list[float]
    checks: list[list[bool]] | None = None
    names: list[str] | None = None
    reversible: bool = False


class StepScore(msgspec.Struct, frozen=True, omit_defaults=True):
    """One score of one step, on a scale: prob, pm1, ordinal (of ``levels``), logits ([bad, good])."""

    step: int
    score: float | list[float]
    scale: Literal["prob", "pm1", "ordinal", "logits"]
    levels: int | None = None


class Span(msgspec.Struct, frozen=True, omit_defaults=True):
    """A half-open range of a step's policy tokens with a label."""

    step: int
    start: int
    end: int
    label: str
    claims: list[str] = []
    evidence: list[dict[str, Any]] = []


class Annotation(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """One annotator's view of one rollout (schema ``accredit.annotation/1``); see docs/schemas.md.

    Args:
        rollout: rollout id.
        n_steps: number of steps that the annotator saw.
        annotator: who made it.
        status: ok, failed, skipped or partial; ``missing`` is required where partial.
        group: group of the rollout.
        schema: name and version of this schema.
        error: why it failed.
        saw_outcome: whether the annotator knew success or failure.
        graph: nodes and edges.
        graph_ref: name of a graph that the group shares.
        events: what happened to nodes at steps.
        verdicts: whole-rollout judgements of nodes.
        errors: mistakes by class and step.
        progress: how far along the rollout was.
        step_scores: one score a step.
        spans: labelled token ranges.
        reset: nodes that go back to unestablished.
        missing: steps that could not be judged.
    """

    rollout: str
    n_steps: int
    annotator: Annotator
    status: Literal["ok", "failed", "skipped", "partial"] = "ok"
    group: str | int | float | bool | None = None
    schema: str = ANNOTATION
    error: str = ""
    saw_outcome: bool | None = None
    graph: dict[str, Any] | None = None
    graph_ref: str = ""
    events: list[dict[str, Any]] = []
    verdicts: list[dict[str, Any]] = []
    errors: list[dict[str, Any]] = []
    progress: Progress | None = None
    step_scores: list[StepScore] = []
    spans: list[Span] = []
    reset: list[dict[str, Any]] = []
    missing: list[int] | None = None


def read_annotations(
    path: str | Path, batch: Batch | None = None, *, limits: Limits | None = None
) -> list[Annotation]:
    """Return the annotations of a file, each checked against its schema and its rollout.

    Args:
        path: JSON Lines, one record a rollout and annotator.
        batch: the rollouts; if given, ids and numbers of steps must be theirs.
        limits: bounds of the reading.

    Raises:
        VersionError: if a record has a newer schema.
        DataError: naming the line and what is wrong in it.
    """
    found: list[Annotation] = []
    for place, fields in read_objects(path, ANNOTATION, limits or Limits()):
        if not found and is_header(fields):
            continue
        try:
            record = msgspec.convert(fields, Annotation)
        except msgspec.ValidationError as error:
            raise _wrong(f"not a record of {ANNOTATION}: {error}", place) from error
        _check(record, place)
        if batch is not None:
            _check_rollout(record, batch, place)
        found.append(record)
    return found


def _check(record: Annotation, place: str) -> None:
    n = record.n_steps
    if n < 0:
        raise _wrong(f"n_steps is {n}", place)
    if record.status == "partial" and record.missing is None:
        raise _wrong("status is partial, and `missing` does not say which steps are", place)
    for name, step in _steps_named(record):
        if type(step) is not int or not 0 <= step < n:
            raise _wrong(f"{name} speak of step {step!r}, and the rollout has {n}", place)
    for span in record.spans:
        if not 0 <= span.start <= span.end:
            raise _wrong(f"a span of step {span.step} is [{span.start}, {span.end})", place)
    if record.progress is not None:
        _check_progress(record.progress, n, place)
    for score in record.step_scores:
        _check_score(score, place)


def _steps_named(record: Annotation) -> list[tuple[str, Any]]:
    objects = {"events": record.events, "errors": record.errors, "reset": record.reset}
    found: list[tuple[str, Any]] = [(k, item.get("step")) for k, items in objects.items() for item in items]
    found += [("step_scores", s.step) for s in record.step_scores] + [("spans", s.step) for s in record.spans]
    found += [("missing", step) for step in record.missing or ()]
    return found + [("verdicts", step) for v in record.verdicts for step in v.get("cites") or ()]


def _check_progress(progress: Progress, n_steps: int, place: str) -> None:
    if len(progress.values) != n_steps + 1:
        raise _wrong(
            f"progress has {len(progress.values)} values for {n_steps} steps, not {n_steps + 1}", place
        )
    if not all(0 <= v <= 1 for v in progress.values):
        raise _wrong("progress leaves [0, 1]", place)
    if progress.checks is not None and len(progress.checks) != n_steps + 1:
        raise _wrong(f"progress has {len(progress.checks)} rows of checks, not {n_steps + 1}", place)


def _check_score(score: StepScore, place: str) -> None:
    value = score.score
    if score.scale == "logits":
        fits = isinstance(value, list) and len(value) == 2
    elif isinstance(value, list):
        fits = False
    elif score.scale == "ordinal":
        fits = score.levels is not None and score.levels > 1 and 0 <= value <= score.levels - 1
    else:
        fits = (0 if score.scale == "prob" else -1) <= value <= 1
    if not fits:
        raise _wrong(f"score {value} of step {score.step} does not fit scale {score.scale}", place)


def _check_rollout(record: Annotation, batch: Batch, place: str) -> None:
    r = batch.rollout_of.get(record.rollout)
    if r is None:
        raise _wrong(f"rollout {record.rollout!r} is not among the rollouts", place)
    steps = len(batch.steps_of(r))
    if steps != record.n_steps:
        raise _wrong(
            f"the annotator saw {record.n_steps} steps of {record.rollout!r}, which has {steps}", place
        )


def _wrong(message: str, place: str) -> DataError:
    hint = "See the schema of annotations: docs/schemas.md"
    return DataError(message, code="ACC917", where=place, hint=hint)


def save_annotations(annotations: list[Annotation], path: str | Path) -> Path:
    """Write annotations, one a line; the file appears whole or not at all.

    Args:
        annotations: the records.
        path: ends in ``.jsonl``, ``.jsonl.gz`` or ``.jsonl.zst``.

    Raises:
        StoreError: if it cannot be written.
    """
    if file_kind(path) == "parquet":
        raise DataError("annotations are JSON Lines", code="ACC913", hint="End the name in .jsonl")
    with lines_file(path) as out:
        for record in annotations:
            out.write(encode(msgspec.to_builtins(record) | {"schema": record.schema}) + b"\n")
    return Path(path)
