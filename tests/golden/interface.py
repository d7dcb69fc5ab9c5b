"""How a golden file becomes a call of `accredit.assign`: one adapter a golden method.

An adapter takes the file's `Golden` (params, records, other inputs) and returns a `Call`.  It must
use every param: take it as an argument of the method, check that its value is what we do, or name it
as a text without effect.  Whatever it leaves over makes the file fail, and so does every key of
`expected` that the call does not say how to read.

    @adapts("rloo")
    def rloo(golden: Golden) -> Call:
        golden.no_effect("convention", "note")
        kwargs = {"eps": golden.number("epsilon", 1e-4)}
        golden.must_be("whiten", "none")
        return Call("rloo", kwargs, {"tokens": tokens, "steps": steps, "returns": step_extra("returns")})
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from accredit.data import Credit

Reader: TypeAlias = Callable[[Credit], Any]

STANDARD = frozenset(
    {"method", "source", "source_kind", "note", "params", "rollouts", "expected", "tolerance"}
)
ABSENT = object()


class GoldenError(Exception):
    """The file cannot be honoured; the message says why."""


@dataclass(frozen=True)
class Call:
    """One call of `assign`, and how to read each key of `expected` from its Credit.

    Args:
        method: id or alias.
        kwargs: keyword arguments of `assign`.
        read: key of `expected` -> reader. Extra readers do no harm; a missing one fails the file.
        records: the rollouts to pass, where they differ from the file's.
    """

    method: str
    kwargs: Mapping[str, Any]
    read: Mapping[str, Reader]
    records: Sequence[Mapping[str, Any]] | None = None


@dataclass
class Golden:
    """The content of a golden file, which keeps account of what an adapter used."""

    method: str
    params: Mapping[str, Any]
    records: Sequence[Mapping[str, Any]]
    inputs: Mapping[str, Any] = field(default_factory=dict)
    used: set[str] = field(default_factory=set)

    def get(self, name: str, default: Any = ABSENT) -> Any:
        """Return a param, as it stands."""
        self.used.add(name)
        value = self.params.get(name, default)
        if value is ABSENT:
            raise GoldenError(f"param {name!r} is missing")
        return value

    def number(self, name: str, default: Any = ABSENT) -> float:
        """Return a param that is a number."""
        value = self.get(name, default)
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise GoldenError(f"param {name!r} must be a number, got {value!r}")
        return value

    def flag(self, name: str, *, default: Any = ABSENT) -> bool:
        """Return a param that is true or false."""
        value = self.get(name, default)
        if not isinstance(value, bool):
            raise GoldenError(f"param {name!r} must be true or false, got {value!r}")
        return value

    def one_of(self, name: str, meanings: Mapping[Any, Any], default: Any = ABSENT) -> Any:
        """Return what a param's value means; a value without a meaning fails the file."""
        value = self.get(name, default)
        known = isinstance(value, str | int | float | bool | None) and value in meanings
        if not known:
            raise GoldenError(f"param {name!r} is {value!r}; known are {', '.join(map(repr, meanings))}")
        return meanings[value]

    def must_be(self, name: str, *allowed: Any) -> None:
        """Accept a param that we do not turn, if it is absent or says what we do."""
        value = self.get(name, allowed[0])
        if value not in allowed:
            raise GoldenError(f"param {name!r} is {value!r}; we do {' or '.join(map(repr, allowed))}")

    def no_effect(self, *names: str) -> None:
        """Name params that are texts for people."""
        for name in names:
            if not isinstance(self.get(name, ""), str):
                raise GoldenError(f"param {name!r} should be a text, got {self.params[name]!r}")

    def input(self, name: str) -> Any:
        """Return an input of the file besides the rollouts."""
        self.used.add(f"input {name}")
        if name not in self.inputs:
            raise GoldenError(f"input {name!r} is missing")
        return self.inputs[name]

    def left_over(self) -> list[str]:
        """Return the params and inputs that the adapter did not use, as sentences."""
        params = [f"unknown param {n!r} = {v!r}" for n, v in self.params.items() if n not in self.used]
        inputs = [f"unknown input {n!r}" for n in self.inputs if f"input {n}" not in self.used]
        return params + inputs


Adapter: TypeAlias = Callable[[Golden], Call]
ADAPTERS: dict[str, Adapter] = {}


def adapts(*methods: str) -> Callable[[Adapter], Adapter]:
    """Register an adapter for the golden files of these methods."""

    def register(adapter: Adapter) -> Adapter:
        for name in methods:
            if name in ADAPTERS:
                raise ValueError(f"golden method {name!r} has two adapters")
            ADAPTERS[name] = adapter
        return adapter

    return register


# -- readers: arrays as nested lists, rollout by rollout ------------------------------------------


def steps(credit: Credit) -> Any:
    """Credit of each step: ``[rollout][step]``."""
    return _nested(credit.steps, credit.batch.step_start_R1)


def tokens(credit: Credit) -> Any:
    """Advantage of each policy token: ``[rollout][step][token]``."""
    return by_token(credit, credit.tokens)


def step_extra(name: str) -> Reader:
    """Reader of ``credit.extras[name]``, one value a step."""
    return lambda credit: by_step(credit, _named(credit.extras, name, "extras"))


def token_extra(name: str) -> Reader:
    """Reader of ``credit.extras[name]``, one value a policy token."""
    return lambda credit: by_token(credit, _named(credit.extras, name, "extras"))


def rollout_extra(name: str) -> Reader:
    """Reader of ``credit.extras[name]``, one value a rollout."""
    return lambda credit: by_rollout(credit, _named(credit.extras, name, "extras"))


def step_part(name: str) -> Reader:
    """Reader of ``credit.parts[name]``, one value a step."""
    return lambda credit: by_step(credit, _named(credit.parts, name, "parts"))


def token_part(name: str) -> Reader:
    """Reader of ``credit.parts[name]``, one value a policy token."""
    return lambda credit: by_token(credit, _named(credit.parts, name, "parts"))


def by_rollout(credit: Credit, values: Any) -> Any:
    """Return ``[R]`` values as a list."""
    _sized("rollouts", values, len(credit.batch))
    return values.tolist()


def by_step(credit: Credit, values: Any) -> Any:
    """Return ``[S]`` values as ``[rollout][step]``."""
    _sized("steps", values, credit.batch.n_steps)
    return _nested(values, credit.batch.step_start_R1)


def by_token(credit: Credit, values: Any) -> Any:
    """Return ``[T]`` values as ``[rollout][step][token]``."""
    _sized("policy tokens", values, credit.batch.n_tokens)
    return _nested(_nested(values, credit.batch.token_start_S1), credit.batch.step_start_R1)


def _nested(values: Any, start: Any) -> list[Any]:
    flat = values if isinstance(values, list) else values.tolist()
    return [flat[a:b] for a, b in zip(start.tolist()[:-1], start.tolist()[1:], strict=True)]


def _named(table: Mapping[str, Any], name: str, where: str) -> Any:
    if name not in table:
        raise GoldenError(f"the credit has no {name!r} in its {where}: {_listed(table)}")
    return table[name]


def _sized(noun: str, values: Any, size: int) -> None:
    if values.shape[0] != size:
        raise GoldenError(f"{values.shape[0]} values for {size} {noun}")


def _listed(names: Iterable[str]) -> str:
    return ", ".join(sorted(names)) or "nothing"
