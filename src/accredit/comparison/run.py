"""`compare` and `runnable`: methods run one after another on the same rollouts."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from accredit.against import TruthLike, against_truth, truth_of
from accredit.agreement import rms
from accredit.comparison.measured import measured
from accredit.comparison.pairs import pairs_of, rollout_of_step
from accredit.comparison.records import Comparison, MethodRow, Unable
from accredit.data import Batch, Credit, MethodCard
from accredit.engine import Rollouts, as_batch, assign, missing_needs
from accredit.errors import DataError, ParamError, suggest
from accredit.index import Key, OutcomeInSteps
from accredit.methods import catalog, contradictions, get_method

__all__ = ["compare", "runnable"]

Progress: TypeAlias = Callable[[int, int, str], None]
# `assign`'s own keywords; what else is shared goes to the methods that have such a parameter.
_ASSIGN = frozenset({"spread", "strict", "base", "compat"})


def compare(
    rollouts: Rollouts,
    methods: Sequence[str | Credit],
    *,
    key: Key | None = None,
    outcome_in_steps: OutcomeInSteps = "auto",
    truth: TruthLike | None = None,
    n_boot: int = 1000,
    seed: int = 0,
    progress: Progress | None = None,
    **shared: Any,
) -> Comparison:
    """Return what each method gives to the same rollouts, and how far they agree.

    Rank correlations are over steps, with 95 % percentile intervals of a bootstrap over groups.

    Args:
        rollouts: a Batch, a path, or an iterable of records.
        methods: ids, ``"id:name=value,…"``, or Credits over the same batch; first = baseline.
        key: which states count as the same (see `assign`).
        outcome_in_steps: whether step rewards already contain the outcome.
        truth: true advantages (a Truth, or a file of schema ``accredit.truth/1``): each method is
            measured against them, and the reference's own reliability is told.
        n_boot: resamples behind the intervals; 0 = no intervals.
        seed: of the resamples and of stochastic methods.
        progress: called with methods done, methods in all, and what comes now.
        **shared: parameters and keywords of `assign` for all methods that have them.

    Returns:
        The Comparison; a method that cannot run on these rollouts is in ``unable`` with its reason.

    Raises:
        ParamError: no or unknown methods, or a parameter that none of them has.
        DataError: rollouts or a truth that cannot be read, or a Credit over other rollouts.

    Example:
        >>> records = [
        ...     {"id": "a", "group": "g", "reward": 1, "steps": [{"state": "s"}, {"state": "t"}]},
        ...     {"id": "b", "group": "g", "reward": 0, "steps": [{"state": "s"}]},
        ... ]
        >>> found = compare(records, ["grpo", "dr-grpo"], n_boot=0)
        >>> [row.label for row in found.rows], found.pairs[0].spearman.value
        (['grpo', 'dr-grpo'], 1.0)
    """
    _check(methods, n_boot, shared)
    batch = as_batch(rollouts)
    table = None if truth is None else truth_of(batch, truth)  # refused before the methods run
    given = {"key": key, "outcome_in_steps": outcome_in_steps, "seed": seed}
    credits: dict[str, Credit] = {}
    rows: list[MethodRow] = []
    unable: list[Unable] = []
    for done, what in enumerate(methods):
        label = _label(what, credits)
        if progress is not None:
            progress(done, len(methods), label)
        begin = time.perf_counter()
        try:
            credit = _credit_of(batch, what, given, shared)
        except DataError as error:
            unable.append(Unable(label, str(error), error.code))
            continue
        seconds = None if isinstance(what, Credit) else round(time.perf_counter() - begin, 4)
        credits[label] = credit
        rows.append(_row(label, credit, seconds))
    if progress is not None and len(credits) > 1:
        progress(len(methods), len(methods), "agreement")
    pairs = pairs_of(batch, credits, n_boot, seed)
    against = None if table is None else against_truth(batch, credits, table, n_boot, seed)
    cards = {label: credit.card for label, credit in credits.items()}
    notes = (*contradictions(cards), *measured(cards))
    return Comparison(batch, credits, tuple(rows), tuple(unable), pairs, n_boot, against, notes)


def _check(methods: Sequence[str | Credit], n_boot: int, shared: Mapping[str, Any]) -> None:
    if isinstance(methods, str | Credit) or not methods:
        raise ParamError(
            "compare needs a list of methods",
            code="ACC831",
            hint="For example compare(batch, ['grpo', 'gigpo'])",
        )
    for what in methods:
        if not isinstance(what, str | Credit):
            raise ParamError(
                f"compare takes names of methods and Credits, got {what!r}",
                code="ACC831",
                hint="For example compare(batch, ['grpo', 'gigpo'])",
            )
    if n_boot < 0:
        raise ParamError(f"n_boot must be 0 or more, got {n_boot}", code="ACC831")
    cards = [get_method(m)[0].card for m in methods if isinstance(m, str)]
    known = {p.name for card in cards for p in card.params} | _ASSIGN
    for name in shared:
        if name not in known:
            raise ParamError(f"none of the methods has a parameter {name!r}", hint=suggest(name, known))


def _label(what: str | Credit, taken: Iterable[str]) -> str:
    """Return a name that is not taken yet."""
    name = what if isinstance(what, str) else _name(what)
    same = sum(label == name or label.startswith(f"{name} (") for label in taken)
    return f"{name} ({same + 1})" if same else name


def _name(credit: Credit) -> str:
    defaults = {p.name: p.default for p in credit.card.params}
    changed = [f"{k}={v}" for k, v in credit.params.items() if k in defaults and defaults[k] != v]
    return credit.method + (":" + ",".join(changed) if changed else "")


def _credit_of(
    batch: Batch, what: str | Credit, given: Mapping[str, Any], shared: Mapping[str, Any]
) -> Credit:
    if isinstance(what, Credit):
        same = what.batch is batch or (
            what.batch.ids == batch.ids and np.array_equal(what.batch.step_start_R1, batch.step_start_R1)
        )
        if not same:
            raise ParamError(
                f"the {what.method} credit is over other rollouts than those compared", code="ACC832"
            )
        credit = what
    else:
        credit = assign(batch, what, **given, **_meant(get_method(what)[0].card, shared))
    if credit.card.yields == "table":
        raise DataError(f"method {credit.method!r} gives a table, not a credit of steps", code="ACC833")
    return credit


def _meant(card: MethodCard, shared: Mapping[str, Any]) -> dict[str, Any]:
    """Return what of the shared keywords is for this method."""
    own = {p.name for p in card.params} | {"spread", "strict"}
    if "reweights" in card.tags:
        own.add("base")
    if shared.get("compat") in card.compat:
        own.add("compat")
    return {name: value for name, value in shared.items() if name in own}


def _row(label: str, credit: Credit, seconds: float | None) -> MethodRow:
    steps = credit.steps
    top = float(np.abs(steps).max(initial=0.0)) or 1.0
    scaled = steps / top  # large credit must not overflow in a sum
    rollout_S = rollout_of_step(credit.batch)
    count = np.maximum(np.bincount(rollout_S, minlength=len(credit.batch)), 1)
    mean_R = np.bincount(rollout_S, scaled, len(credit.batch)) / count
    return MethodRow(
        label,
        credit.method,
        float((steps != 0).mean()) if steps.size else 0.0,
        credit.coverage,
        top * float(np.abs(scaled).mean()) if steps.size else 0.0,
        _share(rms(scaled - mean_R[rollout_S]), rms(scaled)),
        seconds,
        dict(credit.params),
        credit.fallbacks,
        {reason: len(ids) for reason, ids in credit.uncounted.items()},
    )


def _share(part: float, whole: float) -> float:
    """``part / whole``; exactly 0 where the part is rounding error."""
    return min(1.0, part / whole) if part > 1e-12 * whole else 0.0


def runnable(rollouts: Rollouts, key: Key | None = None) -> dict[str, list[str]]:
    """Return each method's unmet needs on these rollouts, by id; an empty list = it can run.

    Args:
        rollouts: a Batch, a path, or an iterable of records.
        key: which states count as the same, as in `assign`: one that names a column takes it as the state.

    Example:
        >>> runnable([{"id": "a", "group": "g", "reward": 1, "steps": [{"action": "go"}]}])["grpo"]
        []
    """
    batch = as_batch(rollouts)
    return {card.id: missing_needs(batch, card, key) for card in catalog()}
