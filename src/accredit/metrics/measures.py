"""All measures of one credit at once, and what each of them means."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from accredit.metrics.influence import context_variance
from accredit.metrics.places import auroc, first_error, pivot_distance, top_hit
from accredit.metrics.ranks import across_alternatives, kendall_within, spearman_within
from accredit.metrics.sizes import affine_nmse, mse, nmse, scale_of, sign_accuracy
from accredit.metrics.structure import signal_coverage, telescoping_residual
from accredit.typing import BoolArray, Floats, Ints

__all__ = ["CRITICAL", "MEASURES", "Facts", "Measure", "measure"]


@dataclass(frozen=True, slots=True)
class Measure:
    """What a number means.

    Args:
        name: key in results.
        title: heading of its column.
        doc: one line.
        better: ``low``, ``high``, or "" where neither is better.
        null: what no credit at all scores; None where it depends on the data.
    """

    name: str
    title: str
    doc: str
    better: str
    null: float | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Facts:
    """What is known to be true of some steps, in one order: rollout by rollout, first step first.

    Args:
        truth_S: true advantage ``[S]``, reward units.
        rollout_S: dense rollout code ``[S]``.
        group_S: dense group code ``[S]``.
        success_S: whether the step's rollout succeeded ``[S]``; None = unknown.
        spread_S: criticality ``max_a Q - min_a Q`` ``[S]``; None = unknown.
        state_S: dense code of the full state (with its group) ``[S]``; None = unknown.
        action_S: dense action code ``[S]``; None = unknown.
        return_R: what each rollout earned ``[R]``; None where steps are missing.
        baseline_R: what it was expected to earn at its start ``[R]``; likewise.
    """

    truth_S: Floats
    rollout_S: Ints
    group_S: Ints
    success_S: BoolArray | None = None
    spread_S: Floats | None = None
    state_S: Ints | None = None
    action_S: Ints | None = None
    return_R: Floats | None = None
    baseline_R: Floats | None = None


CRITICAL = 0.1  # reward units of spread above which a state is critical

_ROWS = (
    Measure("nmse", "NMSE", "squared error after the best scale, over that of no credit", "low", 1.0),
    Measure("affine_nmse", "affine NMSE", "the same, scale and shift chosen by each group", "low"),
    Measure("mse", "MSE", "mean squared error without any rescaling, reward units squared", "low"),
    Measure("tau", "tau", "Kendall's tau-b within a rollout", "high", 0.0),
    Measure("spearman", "Spearman", "Spearman's rho within a rollout", "high", 0.0),
    Measure("alternatives", "alternatives", "Spearman across the actions tried at a state", "high", 0.0),
    Measure("alternatives_pooled", "pooled", "the same, all states pooled", "high", 0.0),
    Measure("sign", "sign", "share of the steps that matter with the true sign", "high", 0.5),
    Measure("sign_weighted", "weighted sign", "the same, steps weighed by |truth|", "high", 0.5),
    Measure("sign_success", "sign, successes", "the same in successful rollouts", "high", 0.5),
    Measure("sign_failure", "sign, failures", "the same in failed rollouts", "high", 0.5),
    Measure(
        "useful", "useful in failure", "good steps of failed rollouts that get credit above 0", "high", 0.5
    ),
    Measure("auroc", "AUROC", "chance that a critical step has more |credit| than another", "high", 0.5),
    Measure("top", "top hit", "how often the largest |credit| is at a critical step", "high"),
    Measure(
        "first_error", "first error", "how often the first negative credit is the first harm", "high", 0.0
    ),
    Measure("pivot", "pivot distance", "steps from the largest |credit| to the most critical step", "low"),
    Measure(
        "gradient", "gradient cosine", "E cos of one batch's policy gradient with the exact one", "high", 0.0
    ),
    Measure(
        "cosine_of_mean", "cosine of the mean", "cos(E gradient, exact): 1 = only noise is wrong", "high", 0.0
    ),
    Measure("snr", "SNR", "10 log10(|g|^2 / E|c ghat - g|^2) of the gradient, dB", "high"),
    Measure("bias2", "bias", "squared bias of a (state, action)'s credit, over Var(truth)", "low"),
    Measure(
        "variance", "variance", "variance of a (state, action)'s credit over batches, over Var(truth)", "low"
    ),
    Measure(
        "within",
        "within a context",
        "variance of credit over what was tried in one state, over Var(truth), after the best scale",
        "",
        0.0,
    ),
    Measure(
        "influence",
        "influence",
        "I(action; next agent's action), nats: of the task, with the truth alone",
        "",
    ),
    Measure("telescoping", "telescoping", "mean |sum of credit - (return - expected return)|", ""),
    Measure("coverage", "signal", "share of steps with credit other than 0", "", 0.0),
)
MEASURES: Mapping[str, Measure] = {row.name: row for row in _ROWS}


def measure(credit_S: Floats, facts: Facts) -> dict[str, float]:
    """Return every measure that is defined on these steps, by name (see `MEASURES`).

    Args:
        credit_S: what a method gave ``[S]``.
        facts: what is true of the same steps.

    Example:
        >>> import numpy as np
        >>> t = np.array([1.0, -1.0])
        >>> found = measure(2 * t, Facts(t, np.zeros(2, int), np.zeros(2, int)))
        >>> found["nmse"], found["tau"], found["sign"], "auroc" in found
        (0.0, 1.0, 1.0, False)
    """
    t, rollout_S = facts.truth_S, facts.rollout_S
    found: dict[str, float | None] = {
        "nmse": nmse(credit_S, t),
        "affine_nmse": affine_nmse(credit_S, t, facts.group_S),
        "mse": mse(credit_S, t),
        "tau": kendall_within(credit_S, t, rollout_S),
        "spearman": spearman_within(credit_S, t, rollout_S),
        "sign": sign_accuracy(credit_S, t),
        "sign_weighted": sign_accuracy(credit_S, t, weighted=True),
        "first_error": first_error(credit_S, t, rollout_S),
        "coverage": signal_coverage(credit_S),
    }
    for part in _PARTS:
        found |= part(credit_S, facts)
    return {name: float(found[name]) for name in MEASURES if found.get(name) is not None}  # type: ignore[arg-type]


def _by_outcome(credit_S: Floats, facts: Facts) -> dict[str, float | None]:
    won = facts.success_S
    if won is None:
        return {}
    return {
        "sign_success": sign_accuracy(credit_S, facts.truth_S, keep_S=won),
        "sign_failure": sign_accuracy(credit_S, facts.truth_S, keep_S=~won),
        "useful": sign_accuracy(credit_S, facts.truth_S, keep_S=~won & (facts.truth_S > 0)),
    }


def _of_critical(credit_S: Floats, facts: Facts) -> dict[str, float | None]:
    if facts.spread_S is None:
        return {}
    critical = facts.spread_S > CRITICAL
    return {
        "auroc": auroc(credit_S, critical, facts.rollout_S),
        "top": top_hit(credit_S, critical, facts.rollout_S),
        "pivot": pivot_distance(credit_S, facts.spread_S, facts.rollout_S),
    }


def _of_alternatives(credit_S: Floats, facts: Facts) -> dict[str, float | None]:
    if facts.state_S is None or facts.action_S is None:
        return {}
    scaled = scale_of(credit_S, facts.truth_S) * credit_S
    spread, whole = (
        context_variance(scaled, facts.state_S),
        float(np.var(facts.truth_S)) if scaled.size else 0.0,
    )
    within = None if spread is None or not whole else spread / whole
    found = across_alternatives(credit_S, facts.truth_S, facts.state_S, facts.action_S)
    if found is None:
        return {"within": within}
    return {"within": within, "alternatives": found.per_state, "alternatives_pooled": found.pooled}


def _of_sums(credit_S: Floats, facts: Facts) -> dict[str, float | None]:
    if facts.return_R is None or facts.baseline_R is None:
        return {}
    return {"telescoping": telescoping_residual(credit_S, facts.rollout_S, facts.return_R, facts.baseline_R)}


_PARTS: tuple[Callable[[Floats, Facts], dict[str, float | None]], ...] = (
    _by_outcome,
    _of_critical,
    _of_alternatives,
    _of_sums,
)
