"""Check one record and sort its fields; nothing is kept unless all of it is sound."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np

from accredit.data.context import Break, Context, context_deltas
from accredit.data.finding import Finding
from accredit.data.records import Step
from accredit.data.values import CHECKS, LARGEST_ID, SCALARS, At, wrong
from accredit.data.vocabulary import (
    ALIASES,
    CONTROL,
    NAMED_SIGNALS,
    ROLLOUT_FIELDS,
    STATUSES,
    STEP_FIELDS,
    TOKEN_FIELDS,
)
from accredit.errors import DataError, kind_of
from accredit.typing import Scalar

__all__ = ["MAX_STEP_TOKENS", "Parsed", "Record", "parse_record"]

Record: TypeAlias = Mapping[str, Any]
Fields: TypeAlias = dict[str, tuple[list[int], list[Any]]]
# A count takes 8 bytes of credit a token without giving one: no memory for a slip of the pen.
MAX_STEP_TOKENS = 1 << 24
_PROMPTS = ("prompt_tokens", "context_tokens")


@dataclass(slots=True)
class Parsed:
    """A checked record: ids, number of tokens of each step, fields by name."""

    id: str
    group: Scalar
    row: Scalar | None
    rollout: dict[str, Any]
    counts: list[int]
    steps: Fields
    context: Context | None = None
    findings: list[Finding] = field(default_factory=list)


def parse_record(record: Record, place: str) -> Parsed:
    """Return the record's checked fields.

    Args:
        record: a native record.
        place: where it stands, for messages.

    Raises:
        DataError: naming the field, what was got and how to mend it.
    """
    if not isinstance(record, Mapping):
        raise DataError(
            f"a record is {kind_of(record)}, not an object",
            code="ACC110",
            where=place,
            hint="Give one JSON object a rollout: id, group, reward, steps",
        )
    found: list[Finding] = []
    name, group = _identity(record, place, found)
    _refuse_unnamed(record, name, place)
    rollout = _rollout_fields(record, name, place, found)
    steps = _step_fields(record.get("steps"), name, place)
    named = _named_signals(steps, (name, place, found)) if NAMED_SIGNALS in steps else []
    counts = _token_counts(steps, named, len(record.get("steps") or ()), name, place)
    steps.pop("n_tokens", None)
    context = _context(steps, counts, name, place, found)
    for key in list(steps):
        _check_step_field(key, steps, counts, (name, place, found))
    row = record.get("row")
    if row is not None and (type(row) not in SCALARS or (type(row) is int and abs(row) > LARGEST_ID)):
        raise wrong("row", row, "a number below 2**63 or a string", name, place)
    return Parsed(name, group, row, rollout, counts, steps, context, found)


def _refuse_unnamed(record: Record, name: str, place: str) -> None:
    for key in record:
        if not isinstance(key, str):
            raise DataError(
                f"a field of rollout {name!r} is named {key!r:.40}, which is no text",
                code="ACC110",
                where=place,
                hint="Name each field by a string",
            )


def _identity(record: Record, place: str, found: list[Finding]) -> tuple[str, Scalar]:
    name = record.get("id")
    if name is None or name == "":
        name = f"#{place}"
        found.append(
            Finding(
                "ACC102",
                "warning",
                "records without an id are named by their place",
                place,
                "Give each rollout an `id`, so that results can be joined back",
            )
        )
    if not isinstance(name, str | int) or isinstance(name, bool):
        raise wrong("id", name, "a string", str(name), place)
    group = record.get("group")
    if group is None:
        found.append(
            Finding(
                "ACC103",
                "warning",
                "records without a group stand alone",
                place,
                "Give the id of the task in `group`: rollouts of one task are compared",
            )
        )
        group = f"(no group) {name}"
    if isinstance(group, np.generic):
        group = group.item()
    if type(group) not in SCALARS:
        raise wrong("group", group, "a string or a number", str(name), place)
    return str(name), group


def _rollout_fields(record: Record, name: str, place: str, found: list[Finding]) -> dict[str, Any]:
    values = {k: v for k, v in record.items() if v is not None and k not in CONTROL and k != "row"}
    status = values.get("status")
    if record.get("truncated") and status in (None, "finished"):
        values["status"] = "truncated"
    elif status is not None and status not in STATUSES:
        raise wrong("status", status, " or ".join(STATUSES), name, place)
    for key in [k for k in values if k in ROLLOUT_FIELDS]:
        kind = ROLLOUT_FIELDS[key].kind
        values[key] = CHECKS[kind](key, [values[key]], (name, place, found))[0]
    _check_reward(values, name, place, found)
    rewards = record.get("rewards")
    if rewards is not None and not isinstance(rewards, Mapping):
        raise wrong("rewards", rewards, "an object of named numbers", name, place)
    for part, value in (rewards or {}).items():
        if value is not None:
            key = f"rewards.{part}"
            values[key] = CHECKS["number"](key, [value], (name, place, found))[0]
    return values


def _check_reward(values: dict[str, Any], name: str, place: str, found: list[Finding]) -> None:
    reward = values.get("reward")
    if reward is not None and not math.isfinite(reward):
        del values["reward"]
        found.append(
            Finding(
                "ACC202",
                "error",
                f"reward of rollout {name!r} is {reward}: read as unscored",
                place,
                "Write null for an unscored rollout, and mend the reward function",
            )
        )


def _step_fields(steps: Any, name: str, place: str) -> Fields:
    fields: Fields = {}
    if steps is None:
        return fields
    if not isinstance(steps, list | tuple):
        raise wrong("steps", steps, "a list of steps", name, place)
    if _alike(steps):
        return _alike_fields(steps)
    for t, step in enumerate(steps):
        if isinstance(step, Step):
            step = step.to_record()
        if not isinstance(step, Mapping):
            raise wrong(f"step {t}", step, "an object", name, place)
        for key, value in step.items():
            if value is None:
                continue
            slot = fields.get(key)
            if slot is None:
                slot = fields[ALIASES.get(key, key)] = fields.get(ALIASES.get(key, key)) or ([], [])
            slot[0].append(t)
            slot[1].append(value)
    return fields


def _alike(steps: Sequence[Any]) -> bool:
    """Whether all steps are dicts of the same keys, as a program writes them."""
    if not steps or type(steps[0]) is not dict:
        return False
    keys = steps[0].keys()
    return not keys & ALIASES.keys() and all(type(s) is dict and s.keys() == keys for s in steps)


def _alike_fields(steps: Sequence[dict[str, Any]]) -> Fields:
    fields: Fields = {}
    for key in steps[0]:
        values = [step[key] for step in steps]
        rows = [t for t, value in enumerate(values) if value is not None]
        if rows:
            fields[key] = (rows, values if len(rows) == len(values) else [values[t] for t in rows])
    return fields


def _named_signals(steps: Fields, at: At) -> list[str]:
    """Put the signals of ``perturbed_logprobs`` beside the other fields; return their names."""
    split: Fields = {}
    for t, value in zip(*steps.pop(NAMED_SIGNALS), strict=True):
        if not isinstance(value, Mapping):
            raise wrong(f"{NAMED_SIGNALS} of step {t}", value, "an object of named lists", at[0], at[1])
        for part, signal in value.items():
            if signal is not None:
                rows, values = split.setdefault(f"{NAMED_SIGNALS}.{part}", ([], []))
                rows.append(t)
                values.append(signal)
    for key, (rows, values) in split.items():
        if key in steps:
            raise wrong(key, values[0], f"given in {NAMED_SIGNALS} or beside it, not both", at[0], at[1])
        steps[key] = (rows, CHECKS["signal"](key, values, at))
    return list(split)


def _token_counts(steps: Fields, named: list[str], n_steps: int, name: str, place: str) -> list[int]:
    counts: list[int | None] = [None] * n_steps
    for key in ("n_tokens", *TOKEN_FIELDS, *named):
        if key not in steps:
            continue
        rows, values = steps[key]
        for i, t in enumerate(rows):
            size = _count(key, values[i], t, name, place)
            if counts[t] is None:
                counts[t] = size
            elif counts[t] != size:
                said = (
                    f"n_tokens of {counts[t]}"
                    if "n_tokens" in steps and t in steps["n_tokens"][0]
                    else f"{counts[t]} tokens"
                )
                raise DataError(
                    f"rollout {name!r} step {t} has {size} {key} for {said}",
                    code="ACC104",
                    where=place,
                    hint=f"Give one value a token, or drop {key} and use a method that does not need it",
                )
    return [c or 0 for c in counts]


def _count(key: str, value: Any, step: int, name: str, place: str) -> int:
    if key == "n_tokens":
        whole = isinstance(value, int | np.integer) and not isinstance(value, bool)
        if not whole or not 0 <= value <= MAX_STEP_TOKENS:
            allowed = f"a whole number from 0 to {MAX_STEP_TOKENS}"
            raise wrong(f"n_tokens of step {step}", value, allowed, name, place)
        return int(value)
    try:
        return len(value)
    except TypeError:
        raise wrong(f"{key} of step {step}", value, "a list of numbers", name, place) from None


def _context(steps: Fields, counts: list[int], name: str, place: str, found: list[Finding]) -> Context | None:
    given = {key: steps.pop(key) for key in _PROMPTS if key in steps}
    if not given:
        return None
    at = (name, place, found)
    checked = {key: (rows, CHECKS["tokens"](key, ids, at)) for key, (rows, ids) in given.items()}
    parts = [dict(zip(*checked.get(key, ((), ())), strict=True)) for key in _PROMPTS]
    answers = [np.zeros(n, np.int64) - 1 for n in counts]
    if "tokens" in steps:
        for t, ids in zip(steps["tokens"][0], steps["tokens"][1], strict=True):
            answers[t] = CHECKS["tokens"]("tokens", [ids], at)[0]
    context = context_deltas(answers, *parts)
    found += [_break_finding(b, name, place) for b in context.breaks]
    return context


def _break_finding(broken: Break, name: str, place: str) -> Finding:
    got = "the end" if broken.got < 0 else str(broken.got)
    text = (
        f"prompt of rollout {name!r} step {broken.step} leaves the call before it at position "
        f"{broken.position}: expected {broken.expected}, got {got}"
    )
    where = f"{place}, step {broken.step}"
    if broken.in_answer:
        hint = "Carry the sampled ids; do not re-tokenise the text of earlier answers"
        return Finding("ACC301", "warning", text, where, hint)
    hint = "Nothing, if the policy sees a fresh or edited context at each step"
    return Finding("ACC302", "info", text, where, hint)


def _check_step_field(key: str, steps: Fields, counts: list[int], at: At) -> None:
    known = STEP_FIELDS.get(key)
    if known is None:
        return
    rows, values = steps[key]
    checked = CHECKS[known.kind](key, values, at)
    steps[key] = (rows, checked)
    if key == "reward" and not all(map(math.isfinite, checked)):
        raise DataError(
            f"a step reward of rollout {at[0]!r} is NaN or infinite",
            code="ACC203",
            where=at[1],
            hint="Write null where a step paid nothing, and mend the reward function",
        )
