"""`check_method`: the battery that every method passes, ours and third parties'.

Each check is a claim about a method, chosen by its card: what a tag declares is tested, and what
a method does not promise must be waived by name with the reason.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeAlias

import numpy as np

from accredit.battery_samples import (
    SAMPLES,
    UNCERTAIN,
    Record,
    as_rows,
    changed,
    relabelled,
    uncertain_records,
    with_reward,
)
from accredit.battery_subject import CheckFailed, ParamsFor, Subject
from accredit.data import Batch, MethodCard
from accredit.engine import missing_needs
from accredit.errors import MissingSignal, ParamError
from accredit.typing import Floats

__all__ = ["Check", "CheckFailed", "Subject", "check_method", "checks_for"]

_TOLERANCE = 1e-9


def check_method(
    name: str,
    *,
    params: ParamsFor | None = None,
    waive: Mapping[str, str] | None = None,
    seed: int = 0,
    decorate: Callable[[list[Record]], list[Record]] = list,
) -> list[str]:
    """Run every check that applies to a method; return the names of those it passed.

    Args:
        name: id of a registered method (or alias, or ``"id:name=value"``).
        params: parameters to use, or a function from records to parameters.
        waive: checks that the method does not promise to pass, each with the reason.
        seed: of the made-up rollouts.
        decorate: adds what the method needs beyond the known record fields.

    Raises:
        CheckFailed: naming the check, the place and both numbers.
        ParamError: if ``waive`` names a check that does not exist.

    Example:
        >>> "order of rollouts is irrelevant" in check_method("grpo")
        True
    """
    subject = Subject(name, params or {}, seed, decorate)
    waived = dict(waive or {})
    for known in waived:
        if known not in _CHECKS:
            raise ParamError(f"no check {known!r}; there are: {'; '.join(_CHECKS)}")
    passed = []
    for claim, check in checks_for(subject):
        if claim not in waived:
            check(subject)
            passed.append(claim)
    return passed


Check: TypeAlias = Callable[[Subject], None]
Applies: TypeAlias = Callable[[MethodCard], bool]
_CHECKS: dict[str, tuple[Applies, Check]] = {}


def checks_for(subject: Subject) -> Iterator[tuple[str, Check]]:
    """Yield the claim and the check of all that apply to the subject's card."""
    for claim, (applies, check) in _CHECKS.items():
        if applies(subject.card):
            yield claim, check


def _always(card: MethodCard) -> bool:
    return card.yields != "table"


def _tagged(*tags: str) -> Applies:
    return lambda card: card.yields != "table" and set(tags) <= card.tags


def _claim(text: str, applies: Applies = _always) -> Callable[[Check], Check]:
    def keep(check: Check) -> Check:
        _CHECKS[text] = (applies, check)
        return check

    return keep


def _same(subject: Subject, claim: str, expected: Any, got: Any, where: str = "") -> None:
    a, b = np.asarray(expected, np.float64), np.asarray(got, np.float64)
    if a.shape != b.shape:
        raise CheckFailed(f"{subject.name}: {claim}: {b.shape} instead of {a.shape}", where=where)
    apart = np.abs(a - b) > _TOLERANCE * np.maximum(1.0, np.abs(a))
    if apart.any():
        at = int(np.flatnonzero(apart)[0])
        raise CheckFailed(
            f"{subject.name}: {claim}: expected {a.flat[at]!r}, got {b.flat[at]!r} at {at}", where=where
        )


def _same_by_id(
    subject: Subject, claim: str, expected: Mapping[str, Floats], got: Mapping[str, Floats]
) -> None:
    for name, values in expected.items():
        _same(subject, claim, values, got[name], where=f"rollout {name}")


def _holds(subject: Subject, claim: str, truth: bool, detail: str = "") -> None:
    if not truth:
        raise CheckFailed(f"{subject.name}: {claim}{': ' + detail if detail else ''}")


@_claim("credit is finite float64, one number a step and one a token")
def _shapes(subject: Subject) -> None:
    for kind in SAMPLES:
        credit = (
            subject.run(subject.records(kind), singleton="zero")
            if _has_singleton(subject)
            else subject.run(subject.records(kind))
        )
        text = f"sample {kind}"
        for values, size in (
            (credit.steps, credit.batch.n_steps),
            (credit.tokens, credit.batch.n_tokens),
        ):
            _holds(subject, "shape", values.shape == (size,), f"{text}: {values.shape}")
            _holds(subject, "dtype float64", values.dtype == np.float64, text)
            _holds(subject, "finite", bool(np.isfinite(values).all()), text)


def _has_singleton(subject: Subject) -> bool:
    return any(p.name == "singleton" for p in subject.card.params)


@_claim("parts sum to the credit")
def _parts(subject: Subject) -> None:
    credit = subject.run(subject.records())
    if credit.parts:
        total = np.sum(list(credit.parts.values()), axis=0)
        _same(subject, "parts sum to the credit", credit.result.values, total)


@_claim("the same input gives the same bits, and stays unchanged")
def _deterministic(subject: Subject) -> None:
    records = subject.records()
    first, second = subject.run(records), subject.run(records)
    _holds(subject, "deterministic", first.steps.tobytes() == second.steps.tobytes())
    _holds(subject, "deterministic", first.tokens.tobytes() == second.tokens.tobytes())
    _holds(subject, "input unchanged", first.batch == Batch.from_records(records))


@_claim("order of rollouts is irrelevant")
def _order(subject: Subject) -> None:
    records = subject.records()
    rng = np.random.default_rng(subject.seed)
    shuffled = [records[i] for i in rng.permutation(len(records))]
    _same_by_id(subject, "order of rollouts is irrelevant", subject.by_id(records), subject.by_id(shuffled))


def _local(card: MethodCard) -> bool:
    return _always(card) and "cross_group" not in card.tags


@_claim("a group's credit does not depend on other groups", _local)
def _groups(subject: Subject) -> None:
    records = subject.records()
    whole = subject.by_id(records)
    extra = {"outcome_in_steps": "yes" if Batch.from_records(records).outcome_in_steps else "no"}
    for group in {r["group"] for r in records}:
        part = [r for r in records if r["group"] == group]
        alone = {"singleton": "zero"} if _has_singleton(subject) and len(part) == 1 else {}
        got = subject.by_id(part, **extra, **alone)
        _same_by_id(subject, "a group alone", {k: whole[k] for k in got}, got)


@_claim("names of rollouts, groups and states are irrelevant")
def _renaming(subject: Subject) -> None:
    records = subject.records()
    renamed = relabelled(records)
    expected, got = subject.by_id(records), subject.by_id(renamed)
    new_ids = {old["id"]: new["id"] for old, new in zip(records, renamed, strict=True)}
    for name, values in expected.items():
        _same(subject, "renaming changes nothing", values, got[new_ids[name]], f"rollout {name}")


@_claim("adding a constant to all outcomes changes nothing", _tagged("shift_invariant"))
def _shift(subject: Subject) -> None:
    records = subject.records()
    moved = [with_reward(r, lambda x: x + 3.0) for r in records]
    _same_by_id(subject, "shift", subject.by_id(records), subject.by_id(moved))


@_claim("scaling all rewards scales the credit", _tagged("scale_equivariant"))
def _scale(subject: Subject) -> None:
    records = subject.records()
    moved = [with_reward(r, lambda x: 2.0 * x, steps=True) for r in records]
    expected = {k: 2.0 * v for k, v in subject.by_id(records).items()}
    _same_by_id(subject, "scale", expected, subject.by_id(moved))


@_claim("scaling all rewards changes nothing but what eps does", _tagged("scale_invariant"))
def _scale_free(subject: Subject) -> None:
    records = subject.records()
    moved = [with_reward(r, lambda x: 4.0 * x, steps=True) for r in records]
    before, after = subject.by_id(records), subject.by_id(moved)
    for name, values in before.items():
        close = np.allclose(values, after[name], rtol=1e-3, atol=1e-3)
        _holds(subject, "scaling changes nothing", close, f"rollout {name}")


@_claim("a group whose rollouts all tie gets exactly 0", _tagged("group"))
def _ties(subject: Subject) -> None:
    for reward in (0.7, 1 / 3, 0.1 + 0.2, 0.0, 1.0, 1e6 / 3):
        records = [
            {k: v for k, v in r.items() if k != "reward"} | {"reward": reward} for r in subject.records("tie")
        ]
        credit = subject.run(records)
        _holds(subject, "tie", not credit.steps.any(), f"eight rewards of {reward!r}")


@_claim("a group of one gets 0 by default", _tagged("group"))
def _singleton(subject: Subject) -> None:
    credit = subject.run(subject.records("single"))
    _holds(subject, "a group of one gets 0", not credit.steps.any(), f"{credit.steps[:3]}")


@_claim("rollouts of a group sum to 0", _tagged("conserves"))
def _conserves(subject: Subject) -> None:
    credit = subject.run(subject.records("plain"))
    for _, part in credit.batch.groups():
        first = [credit.by_rollout()[credit.batch.position(name)][0] for name in part.ids]
        _same(subject, "rollouts of a group sum to 0", 0.0, float(np.sum(first)))


def _rewarded(card: MethodCard) -> bool:
    return _always(card) and "no_reward" not in card.tags


@_claim("rewards are irrelevant", _tagged("no_reward"))
def _unrewarded(subject: Subject) -> None:
    records = subject.records()
    bare = [{k: v for k, v in r.items() if k != "reward"} for r in records]
    other = [r | {"reward": float(i % 3) if i % 4 else None} for i, r in enumerate(records)]
    for moved in (bare, other):
        _same_by_id(subject, "rewards are irrelevant", subject.by_id(records), subject.by_id(moved))


@_claim("unscored and rejected rollouts get 0 and join no statistics", _rewarded)
def _unscored(subject: Subject) -> None:
    records = subject.records("plain")
    odd = [changed(records[0], "odd-1", reward=None), changed(records[1], "odd-2", status="rejected")]
    got = subject.by_id([*records, *odd])
    _same_by_id(subject, "siblings of an unscored rollout", subject.by_id(records), got)
    for name in ("odd-1", "odd-2"):
        _holds(subject, f"{name} gets 0", not got[name].any())


@_claim("no credit reaches a token that is not trained")
def _mask(subject: Subject) -> None:
    records = subject.records("plain")
    held = [r | {"trainable": i % 2 == 0} for i, r in enumerate(records)]
    credit = subject.run(held)
    _same_by_id(
        subject, "step credit is that of trained rollouts", subject.by_id(records), subject.by_id(held)
    )
    for i, parts in enumerate(credit.tokens_by_rollout()):
        if i % 2:
            _holds(subject, "masked tokens are 0", not any(p.any() for p in parts))


@_claim("one rollout in several rows counts once")
def _rows(subject: Subject) -> None:
    records = subject.records("plain")
    split = [row for r in records for row in as_rows(r)]
    _same_by_id(subject, "rows of one rollout", subject.by_id(records), subject.by_id(split))


@_claim("explain adds up to the credit")
def _explains(subject: Subject) -> None:
    credit = subject.run(subject.records())
    for r, name in enumerate(credit.batch.ids):
        for t, value in enumerate(credit.by_rollout()[r]):
            found = credit.explain(name, t)
            _same(subject, "explain gives the credit", value, found.value, f"{name} step {t}")
            if found.terms:
                total = sum(term.value for term in found.terms)
                _same(subject, "terms add up", value, total, f"{name} step {t}")


@_claim("a parameter out of bounds is refused by name")
def _bounds(subject: Subject) -> None:
    records = subject.records("plain")
    for spec in subject.card.params:
        free = spec.bounds == "a name"
        for value in (object(), "" if free else "no such choice", float("nan")):
            _refuses(subject, records, {spec.name: value}, spec.name)
    _refuses(subject, records, {"no_such_parameter": 1}, "no_such_parameter")


def _refuses(subject: Subject, records: list[Record], extra: Mapping[str, Any], name: str) -> None:
    try:
        subject.run(records, **extra)
    except ParamError as error:
        _holds(subject, "the message names the parameter", name in str(error), str(error))
    else:
        raise CheckFailed(f"{subject.name}: {name}={extra[name]!r} was accepted")


@_claim("an unmet need is named")
def _needs(subject: Subject) -> None:
    bare = [{"id": f"r{i}", "group": "g", "steps": [{}]} for i in range(2)]
    if not missing_needs(Batch.from_records(bare), subject.card):
        return
    try:
        subject.run(bare)
    except MissingSignal as error:
        named = all(n.split("|")[0] in str(error) for n in subject.card.needs)
        _holds(subject, "every unmet need is named", named, str(error))
    else:
        raise CheckFailed(f"{subject.name}: ran without {sorted(subject.card.needs)}")


@_claim("coverage is a share and fallbacks are counts")
def _reports(subject: Subject) -> None:
    credit = subject.run(subject.records())
    for name, share in credit.coverage.items():
        _holds(subject, f"coverage {name} in [0, 1]", 0.0 <= share <= 1.0, str(share))
    for name, count in credit.fallbacks.items():
        _holds(subject, f"fallback {name} is a count", type(count) is int and count >= 0)


@_claim("memory carried over equals one unbroken run", _tagged("stateful"))
def _resumes(subject: Subject) -> None:
    records = subject.records("plain")
    groups = sorted({r["group"] for r in records})
    first = [r for r in records if r["group"] == groups[0]]
    rest = [r for r in records if r["group"] != groups[0]]
    state = subject.run(first).state
    resumed, unbroken = subject.run(rest, state=state), subject.run([*first, *rest])
    got = dict(zip(resumed.batch.ids, resumed.by_rollout(), strict=True))
    whole = dict(zip(unbroken.batch.ids, unbroken.by_rollout(), strict=True))
    _same_by_id(subject, "resumed equals unbroken", {k: whole[k] for k in got}, got)


def _uncertain(tag: str) -> Check:
    def check(subject: Subject) -> None:
        credit = subject.run(subject.decorate(uncertain_records()))
        name, sign = UNCERTAIN[tag][1:]
        steps = sign * np.diff(credit.by_rollout()[credit.batch.position(name)])
        holds = bool((steps >= -_TOLERANCE).all() and (steps > _TOLERANCE).any())
        _holds(subject, tag, holds, f"steps of growing entropy in a {name}: {steps}")

    return check


for _tag, (_text, *_) in UNCERTAIN.items():
    _CHECKS[_text] = (_tagged(_tag), _uncertain(_tag))
