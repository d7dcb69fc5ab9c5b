"""`assign`: needs met? -> index -> method -> spread -> Credit."""

from __future__ import annotations

import dataclasses
import platform
from collections.abc import Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import accredit
from accredit.data import Batch, Credit, Explanation, Finding, MethodCard, Parts, Rollout
from accredit.data.likeness import require_alike
from accredit.data.vocabulary import NAMED_SIGNALS, ROLLOUT_FIELDS, STEP_FIELDS, column_of, is_named_signal
from accredit.errors import DataError, MissingSignal, ParamError
from accredit.index import Index, Key, OutcomeInSteps, has_score_R, key_column
from accredit.methods import Method, get_method
from accredit.readers import read
from accredit.spread import Spread, spread_tokens

__all__ = ["Rollouts", "as_batch", "assign", "explain", "missing_needs"]

Rollouts = Batch | str | Path | Iterable[Mapping[str, Any] | Rollout]


def as_batch(rollouts: Rollouts) -> Batch:
    """Return the batch that a user's value means: a Batch, a path, or records."""
    if isinstance(rollouts, Batch):
        return rollouts
    if isinstance(rollouts, str | Path):
        return read(rollouts)
    if not isinstance(rollouts, Iterable):
        raise DataError(
            f"rollouts are a {type(rollouts).__name__}, not a Batch, a path or records",
            hint="Give a Batch, the path of a file, or an iterable of records",
        )
    return read(rollouts)


def assign(
    batch: Rollouts,
    method: str,
    *,
    key: Key | None = None,
    outcome_in_steps: OutcomeInSteps = "auto",
    spread: Spread | str | Mapping[str, Any] | None = None,
    base: str | None = None,
    compat: str | None = None,
    state: Any = None,
    seed: int | None = None,
    strict: bool = False,
    **params: Any,
) -> Credit:
    """Return the credit that a method gives to every step and token of the rollouts.

    Args:
        batch: a Batch, a path, or an iterable of records.
        method: id, alias, or ``"id:name=value,…"``.
        key: which states count as the same: None = exact; a normaliser (``strip-digits``,
            several joined by ``+``), another word column (``text``), nearly equal texts or
            vectors (``similar:0.95``, ``embedding:0.9``), or a callable.
        outcome_in_steps: whether step rewards already contain the outcome: auto, yes, no.
        spread: how step credit becomes token advantages (see `accredit.spread.Spread`).
        base: method under a token reweighter (``"gigpo"`` or ``"gigpo:gamma=0.9"``).
        compat: reproduce another implementation (``"verl"``, ``"trl"`` …; see the method's card).
        state: memory of a stateful method, from an earlier ``Credit.state``.
        seed: of a stochastic method.
        strict: turn fallbacks and findings of this run into errors.
        **params: the method's own parameters.

    Returns:
        The Credit: ``.steps`` float64 ``[S]``, ``.tokens`` float64 ``[T]``, all finite.

    Raises:
        MissingSignal: if the batch lacks a column that the method needs; names what makes it.
        ParamError: for an unknown method or parameter, or a value out of bounds.
        DataError: if every group has one rollout and the method compares rollouts of a group.

    Example:
        >>> records = [
        ...     {"id": "a", "group": "g", "reward": 1, "steps": [{"n_tokens": 2}]},
        ...     {"id": "b", "group": "g", "reward": 0, "steps": [{"n_tokens": 1}]},
        ... ]
        >>> assign(records, "dr-grpo").tokens.tolist()
        [0.5, 0.5, -0.5]
    """
    _check_run(seed, strict)
    found = as_batch(batch)
    chosen, implied = get_method(method)
    checked = chosen.make_params({**implied, **params}, compat)
    how = Spread.of(spread)
    _refuse(found, chosen.card, key, base, {**implied, **params, **chosen.card.compat.get(compat or "", {})})
    index = Index(found, key, outcome_in_steps)
    if seed is None and "stochastic" in chosen.card.tags:
        seed = int(np.random.SeedSequence().generate_state(1)[0])  # told, so that the run can be repeated
    parts = _run(chosen, index, checked, base=base, state=state, seed=seed)
    said = "singleton" in params or "singleton" in (base or "")
    if "reweights" in chosen.card.tags and not said and _all_alone(found) and not parts.values.any():
        raise _nothing_to_compare(found, chosen.card)  # the base gave nothing that could be moved
    _check_parts(chosen.card, parts, found)
    findings = (*parts.findings, *_run_findings(chosen.card, index, checked))
    if strict:
        _raise_strict(chosen.card, findings, parts.fallbacks)
    steps = None if parts.steps is None else parts.steps + 0.0
    parts = dataclasses.replace(parts, findings=findings, values=parts.values + 0.0, steps=steps)  # no -0.0

    def tokens() -> Any:
        spread_T = spread_tokens(index, parts.values, how, per_token=parts.steps is not None)
        return np.add(spread_T, 0.0, out=spread_T)

    again = partial(
        assign,
        method=method,
        key=key,
        outcome_in_steps=outcome_in_steps,
        spread=how,
        base=base,
        compat=compat,
        state=state,
        seed=seed,
        **params,
    )

    in_force = {f.name: getattr(checked, f.name) for f in dataclasses.fields(checked)} | {
        "key": key if key is None or isinstance(key, str) else repr(key),
        "outcome_in_steps": index.outcome_in_steps,
        "spread": dataclasses.asdict(how),
        "base": base,
        "compat": compat,
        "seed": seed,
    }
    return Credit(
        found,
        chosen.card,
        in_force,
        parts,
        tokens,
        uncounted=_uncounted(index, chosen.card, checked),
        provenance=_provenance(found),
        again=again,
    )


def _check_run(seed: object, strict: object) -> None:
    whole = isinstance(seed, int | np.integer) and not isinstance(seed, bool)
    if seed is not None and not (whole and seed >= 0):  # type: ignore[operator]
        raise ParamError(f"seed must be a whole number >= 0 or None, got {seed!r}")
    if not isinstance(strict, bool | np.bool_):
        raise ParamError(f"strict must be true or false, got {strict!r}")


def _run(
    chosen: Method, index: Index, params: Any, *, base: str | None, state: Any, seed: int | None
) -> Parts:
    extra: dict[str, Any] = {}
    if "stateful" in chosen.card.tags:
        extra["state"] = state
    if "stochastic" in chosen.card.tags:
        extra["rng"] = np.random.default_rng(seed)
    if "reweights" in chosen.card.tags:
        extra["base"] = base
    return chosen.function(index, params, **extra)


def _refuse(
    batch: Batch, card: MethodCard, key: Key | None, base: str | None, given: Mapping[str, Any]
) -> None:
    if base is not None and "reweights" not in card.tags:
        raise ParamError(f"method {card.id!r} takes no base method")
    _refuse_too_large(batch)
    _refuse_unmet(batch, card, key)
    _refuse_inferred(batch, card)
    _refuse_unlike(batch, card)
    if "reweights" in card.tags:
        under = get_method(base or "grpo")[0].card
        _refuse_unmet(batch, under, key)
        _refuse_inferred(batch, under)
        _refuse_unlike(batch, under)
    if "group" in card.tags and "singleton" not in given and _all_alone(batch):
        raise _nothing_to_compare(batch, card)


def _refuse_too_large(batch: Batch) -> None:
    """Refuse rewards whose sums are infinite: returns and means of them would count as unknown, or as 0."""
    paid = [c for name, c in batch.columns.items() if name in _PAID or name.startswith("rewards.")]
    with np.errstate(over="ignore"):
        total = sum(float(np.abs(column.values).sum()) for column in paid)
    if not np.isfinite(total):
        raise DataError(
            "the rewards are too large to be added in float64",
            hint="Scale them down, or give null where a rollout has no reward",
        )


_PAID = ("reward_R", "reward_S")


def _all_alone(batch: Batch) -> bool:
    return len(batch) > 1 and int(np.bincount(batch.group_R).max()) < 2


def _nothing_to_compare(batch: Batch, card: MethodCard) -> DataError:
    return DataError(
        f"every one of the {len(batch)} groups has one rollout, so {card.id!r} has nothing to "
        "compare: the group column is probably wrong",
        code="ACC111",
        hint=f"Give rollouts of one task the same `group`, or {_alone(card)}",
    )


def _refuse_unmet(batch: Batch, card: MethodCard, key: Key | None) -> None:
    absent = missing_needs(batch, card, key)
    if absent:
        raise MissingSignal(
            f"method {card.id!r} needs {_spoken(absent)}, which these rollouts lack",
            code="ACC401",
            hint=" ".join(_how_to_get(need) for need in absent),
        )


def _refuse_inferred(batch: Batch, card: MethodCard) -> None:
    """Refuse ids made from text where a sampler's log-probabilities meet others: they are of other ids."""
    compared = sorted(need for need in card.needs if "logprob" in need)
    rescored = batch.has("logprob_T") and batch.column("logprob_T").provenance
    if len(compared) < 2 or not batch.has("tokens_inferred_R") or rescored:
        return
    raise DataError(
        f"method {card.id!r} compares {' with '.join(compared)}, and token ids of these rollouts were made "
        "from text: they are not those that the sampler's log-probabilities belong to",
        code="ACC404",
        hint="Read without --allow-retokenized, or record token ids while sampling",
    )


def _refuse_unlike(batch: Batch, card: MethodCard) -> None:
    """Refuse log-probabilities that were made differently, where a method takes their difference."""
    fields = [field for need in sorted(card.needs) for field in need.split("|") if "logprob" in field]
    names = [name for field in fields for name in _columns_of(batch, field) if batch.has(name)]
    for name in names[1:]:
        one, other = batch.column(names[0]).provenance, batch.column(name).provenance
        require_alike(names[0], one, name, other, allow=("weights", "model"))


def _columns_of(batch: Batch, field: str) -> list[str]:
    if field == NAMED_SIGNALS:
        return [name for name in sorted(batch.columns) if is_named_signal(name)]
    return [column_of(field)]


def _spoken(needs: list[str]) -> str:
    return " and ".join(need.replace("|", " or ") for need in needs)


def _alone(card: MethodCard) -> str:
    if any(spec.name == "singleton" for spec in card.params):
        return "say singleton='zero' or 'raw'"
    if "reweights" in card.tags:
        return "name a base that compares no rollouts, as base='grpo:singleton=raw'"
    return "assign each group by itself"


def missing_needs(batch: Batch, card: MethodCard, key: Key | None = None) -> list[str]:
    """Return the needs of a method that a batch does not meet, as the card words them.

    Args:
        batch: the rollouts.
        card: of the method.
        key: state key; one that names another column takes it as the state.

    Raises:
        ParamError: if states are needed and the key is neither a normaliser nor a column.
    """
    return [n for n in sorted(card.needs) if not any(_there(batch, f, key) for f in n.split("|"))]


def _there(batch: Batch, field: str, key: Key | None) -> bool:
    if field == "state":
        return batch.has(key_column(batch, key)[0])
    if field == "n_tokens":
        # Counts live in the offsets, they are no column; a slice without steps lacks nothing.
        return batch.n_tokens > 0 or not batch.n_steps
    if field == "rewards":
        return any(name.startswith("rewards.") for name in batch.columns)
    if field == NAMED_SIGNALS:
        return any(is_named_signal(name) for name in batch.columns)
    columns = [t[field].column for t in (ROLLOUT_FIELDS, STEP_FIELDS) if field in t]
    if field == "reward":
        columns = ["reward_R"]
    elif field == "step_reward":
        columns = ["reward_S"]
    return any(batch.has(name) for name in columns or [f"{field}_S", f"{field}_T", f"{field}_R"])


def _how_to_get(need: str) -> str:
    table = {**STEP_FIELDS, **ROLLOUT_FIELDS}  # a need that both have means the rollout's
    known = [table[f] for f in need.split("|") if f in table]
    made = " or ".join(f"{f.name} ({f.meaning}) from {f.probe}" for f in known if f.probe)
    fields = " or ".join(f"`{f}`" for f in need.split("|"))
    return f"Give {fields} in the records" + (f": {made}." if made else ".")


def _check_parts(card: MethodCard, parts: Parts, batch: Batch) -> None:
    if card.yields == "table":
        return
    # A method with a granularity yields tokens on its card and, on request, steps alone.
    assert parts.steps is None or card.yields == "token", card.id
    assert parts.steps is None or parts.steps.shape == (batch.n_steps,), card.id
    size = batch.n_steps if parts.steps is None else batch.n_tokens
    assert parts.values.shape == (size,), (card.id, parts.values.shape, size)
    if not np.isfinite(parts.values).all():
        raise DataError(
            f"method {card.id!r} returned values that are not finite",
            hint="The rewards or signals are too large for float64; scale them down",
        )


def _run_findings(card: MethodCard, index: Index, params: Any) -> tuple[Finding, ...]:
    found = []
    if index.outcome_in_steps:
        found.append(
            Finding(
                "ACC210",
                "info",
                "step rewards add up to the outcome in every scored rollout that has them, so it is not "
                "added again",
                hint="Say outcome_in_steps='no' if step rewards come on top of the outcome",
            )
        )
    return tuple(found)


def _raise_strict(card: MethodCard, findings: tuple[Finding, ...], fallbacks: Mapping[str, int]) -> None:
    taken = {name: n for name, n in fallbacks.items() if n}
    if taken:
        shown = ", ".join(f"{name} {n} times" for name, n in taken.items())
        raise DataError(f"strict: {card.id} took fallbacks: {shown}", code="ACC402")
    for finding in findings:
        if finding.severity != "info":
            raise DataError(f"strict: {finding.message}", code=finding.code, hint=finding.hint)


def _uncounted(index: Index, card: MethodCard, params: Any) -> dict[str, tuple[str, ...]]:
    ids = index.batch.ids
    rejected = index.has_status("rejected")
    scored = has_score_R(index, getattr(params, "combine", "outcome"), getattr(params, "weights", None))
    if "no_reward" in card.tags:
        scored = ~rejected
    reasons = {"rejected": rejected, "unscored": ~scored & ~rejected}
    if getattr(params, "truncated", "keep") == "drop":
        reasons["truncated"] = index.has_status("truncated") & scored
    if getattr(params, "incomplete", "keep") == "drop":
        reasons["incomplete"] = scored & ~index.counted_R(incomplete="drop", scored=scored)
    return {
        reason: tuple(ids[r] for r in np.flatnonzero(mask).tolist())
        for reason, mask in reasons.items()
        if mask.any()
    }


def _provenance(batch: Batch) -> dict[str, Any]:
    return {
        "accredit": accredit.__version__,
        "numpy": np.__version__,
        "python": platform.python_version(),
        "source": dict(batch.provenance),
    }


def explain(credit: Credit, rollout: str, step: int) -> Explanation:
    """Return the comparison set and the arithmetic behind one step's credit.

    Args:
        credit: from `assign`.
        rollout: rollout id.
        step: 0-based step.

    Returns:
        Terms that add up to the step's credit, each with its formula and the rollouts or visits compared.

    Raises:
        DataError: if there is no such rollout or step, or the method gives a table instead.

    Example:
        >>> records = [{"id": i, "group": "g", "reward": r, "steps": [{}]} for i, r in (("a", 1), ("b", 0))]
        >>> explain(assign(records, "dr-grpo"), "a", 0).terms[0].formula
        '(score 1 - mean 0.5 of 2)'
    """
    return credit.explain(rollout, step)
