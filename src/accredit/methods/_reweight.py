"""What token reweighters share: the credit under them, token signals, populations, what they return.

A reweighter takes the advantage that a base method gives each policy token and moves it between
tokens.  The base runs on the same index; None means `grpo` with its defaults.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from accredit.data import Explanation, Finding, Parts, Term
from accredit.data.vocabulary import column_of
from accredit.errors import MissingSignal, ParamError
from accredit.index import Index, row_any, row_sum
from accredit.methods._registry import get_method
from accredit.spread import token_mask
from accredit.typing import Array, BoolArray, Floats, Ints

__all__ = [
    "BaseCredit",
    "base_credit",
    "base_terms",
    "column_T",
    "counted_T",
    "reweighted",
    "rollout_T",
    "signal_T",
    "step_mean",
    "step_value",
]


@dataclass(frozen=True)
class BaseCredit:
    """Credit of the method under a reweighter.

    Args:
        name: the base as named by the user.
        tokens: advantage of each policy token ``[T]``, before masks.
        steps: credit of each step ``[S]``.
        parts: all that the base returned.
    """

    name: str
    tokens: Floats
    steps: Floats
    parts: Parts

    @property
    def by_token(self) -> bool:
        """Whether the base itself tells the tokens of a step apart."""
        return self.parts.steps is not None


def base_credit(index: Index, base: str | None) -> BaseCredit:
    """Return the credit of the base method on this index.

    Args:
        index: of the batch; the engine has checked that the base's needs are met.
        base: ``"gigpo"``, ``"gigpo:gamma=0.9"``; None = ``"grpo"``.

    Raises:
        ParamError: if there is no such method, or it has memory, chance or a table.
    """
    name = base or "grpo"
    chosen, implied = get_method(name)
    odd = sorted({"stateful", "stochastic"} & chosen.card.tags)
    if odd or chosen.card.yields == "table":
        raise ParamError(
            f"method {chosen.card.id!r} cannot be a base: it {'is ' + odd[0] if odd else 'yields a table'}"
        )
    more = {"base": None} if "reweights" in chosen.card.tags else {}
    parts = chosen.function(index, chosen.make_params(implied), **more)
    if parts.steps is None:
        return BaseCredit(name, np.repeat(parts.values, index.tokens_S), parts.values, parts)
    return BaseCredit(name, parts.values, parts.steps, parts)


def column_T(index: Index, field: str) -> Array:
    """Return a token column as it is stored, ``[T]`` or ``[T, d]``.

    Args:
        index: of the batch.
        field: record field (``entropies``) or a token column without its letter.

    Raises:
        MissingSignal: naming the first rollout and step that has tokens but no signal.
    """
    name = column_of(field)
    name = name if name.endswith("_T") else f"{field}_T"
    if not index.batch.has(name):
        raise MissingSignal(f"no step has {field}", code="ACC401", hint=f"Give {field} in the steps")
    column = index.batch.column(name)
    lacks = ~column.mask(index.batch.n_steps) & (index.tokens_S > 0)
    if lacks.any():
        raise MissingSignal(
            f"{index.where(int(np.flatnonzero(lacks)[0]))} has no {field}",
            code="ACC401",
            hint=f"Give {field} at every step with tokens (from a rescoring of the same tokens)",
        )
    return column.values


def signal_T(index: Index, field: str) -> Floats:
    """Return a token signal, float64 ``[T]``.

    Args:
        index: of the batch.
        field: record field (``entropies``, ``logprobs``).

    Raises:
        MissingSignal: naming the first rollout and step that has tokens but no signal.
    """
    return np.asarray(column_T(index, field), np.float64)


def rollout_T(index: Index) -> Ints:
    """Return the rollout of each policy token ``[T]``."""
    return np.repeat(np.arange(len(index.batch)), index.tokens_R)


def counted_T(index: Index) -> BoolArray:
    """Return which policy tokens enter statistics ``[T]``: trained ones of scored rollouts, not rejected.

    Where no rollout has a reward at all (a teacher's signal needs none), none is left out for that.
    """
    trained = token_mask(index)
    if not index.batch.has("reward_R") or index.scored_R.all():
        return trained
    return trained & np.repeat(index.scored_R, index.tokens_R)


def step_mean(index: Index, values: Floats, empty: Floats | float = 0.0) -> Floats:
    """Return the mean of token values over each step ``[S]``.

    Args:
        index: of the batch.
        values: ``[T]``.
        empty: what a step without tokens gets, ``[S]`` or one number.
    """
    total = row_sum(values, index.batch.token_start_S1)
    return np.where(index.tokens_S > 0, total / np.maximum(index.tokens_S, 1), empty)


def step_value(index: Index, values: Floats, s: int, empty: float = 0.0) -> float:
    """Return the mean of token values over one step.

    Args:
        index: of the batch.
        values: ``[T]``.
        s: index of the step.
        empty: of a step without tokens.
    """
    part = values[index.batch.token_start_S1[s] : index.batch.token_start_S1[s + 1]]
    return float(part.mean()) if part.size else empty


def reweighted(
    index: Index,
    base: BaseCredit,
    values: Floats,
    *,
    id: str,
    name: str,
    text: Callable[[int], str],
    inputs: Callable[[int], Mapping[str, float]] | None = None,
    fallbacks: Mapping[str, int] | None = None,
    findings: tuple[Finding, ...] = (),
    extras: Mapping[str, Array] | None = None,
) -> Parts:
    """Return the parts of a reweighter: the base, and what the reweighting adds to it.

    Step credit is the mean over the step's policy tokens; a step without tokens keeps the base's.

    Args:
        index: of the batch.
        base: the credit under it.
        values: new advantage of each policy token ``[T]``.
        id: method id.
        name: of the addend ``values - base``.
        text: the arithmetic behind one step's change, in words and numbers; called with the step.
        inputs: the numbers of it by name.
        fallbacks: taken by the reweighter; the base's are joined.
        findings: of the reweighter; the base's are joined.
        extras: read-outs; ``base`` (``[T]``) and ``base_steps`` (``[S]``) are added.
    """
    change = values - base.tokens
    steps = step_mean(index, values, base.steps)
    moved = row_any(change != 0, index.batch.token_start_S1)
    told = base.parts.informed_S

    def explain(s: int) -> Explanation:
        under = step_value(index, base.tokens, s, float(base.steps[s]))
        more = Term(name, float(steps[s]) - under, text(s), inputs(s) if inputs else {})
        return Explanation(id, *index.place_of(s), float(steps[s]), (*base_terms(base, s, under), more))

    return Parts(
        values,
        parts={"base": base.tokens, name: change},
        steps=steps,
        informed_S=moved if told is None else moved | told,
        fallbacks={**base.parts.fallbacks, **(fallbacks or {})},
        findings=(*base.parts.findings, *findings),
        extras={"base": base.tokens, "base_steps": base.steps, **(extras or {})},
        explain=explain,
        unused=base.parts.unused,
    )


def base_terms(base: BaseCredit, s: int, value: float) -> tuple[Term, ...]:
    """Return the base's own terms where they add up to the mean of its tokens, else one for all."""
    if base.parts.explain is not None:
        terms = base.parts.explain(s).terms
        if abs(sum(t.value for t in terms) - value) <= 1e-9 * max(1.0, abs(value)):
            return terms
    return (Term("base", value, f"mean advantage of the step's tokens under {base.name}"),)
