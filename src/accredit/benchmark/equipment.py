"""What a method is given in the benchmark, and what that would cost: signals and their errors, parameters."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import numpy as np

from accredit.data import Batch, MethodCard
from accredit.methods import catalog, get_method
from accredit.worlds import Sample, Signals, evaluate

__all__ = ["REFERENCES", "SIGNALS", "Entry", "cost_of", "entries", "equipped", "offered", "wants_signals"]

VALUE_ERROR = 0.1  # reward units: deviation of the critic that td and gae are given
PRM_ERROR = 0.1  # of the chance of success that a process reward model gives
ANNOTATOR_ERROR = 0.1  # rate at which the annotator of critical steps is wrong

SIGNALS = Signals(
    value=VALUE_ERROR,
    hindsight=True,
    annotator=ANNOTATOR_ERROR,
    prm=PRM_ERROR,
    features=True,
)

# Not methods: what every table is read against.
REFERENCES = ("truth", "truth-by-key", "random")


@dataclass(frozen=True, slots=True)
class Entry:
    """One line of the benchmark.

    Args:
        label: its name in results.
        method: what `assign` is told; "" for a reference.
        params: parameters.
    """

    label: str
    method: str = ""
    params: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))


# Where a method's defaults do not fit tables: prm is given probabilities, so that PURE's rule applies.
_PARAMS: Mapping[str, Mapping[str, Any]] = {"prm": {"source": "scores"}}

# Cost counters of a signal, from the batch: what a user would pay for the column.
_COSTS: Mapping[str, Callable[[Batch], dict[str, int]]] = {
    "value_S": lambda b: {"annotator_calls": b.n_steps},
    "logprobs_hindsight_T": lambda b: {"scored_tokens": b.n_tokens},
    "prm_prob_S": lambda b: {"judge_calls": b.n_steps},
    "critical_S": lambda b: {"judge_calls": len(b)},
    "reward_baseline_R": lambda b: {"continuations": b.n_groups},
}

# Which of the offered columns each need is met by; the first that is there is paid for.
_COLUMNS: Mapping[str, tuple[str, ...]] = {
    "value": ("value_S",),
    "token_values": ("value_S",),
    "logprobs_hindsight": ("logprobs_hindsight_T",),
    "prm_prob": ("prm_prob_S",),
    "critical": ("critical_S",),
    "reward_baseline": ("reward_baseline_R",),
}
# Needs that a card cannot name, since a parameter meets them too.
_BEYOND_CARD: Mapping[str, tuple[str, ...]] = {"remax": ("reward_baseline",)}


def entries(methods: str | list[str] | tuple[str, ...]) -> list[Entry]:
    """Return what is run: the references, then methods by id, each with the benchmark's parameters.

    Args:
        methods: ``all``, or ids (``"id:name=value"`` too); grpo is always among them.

    Raises:
        ParamError: for an unknown method.
    """
    if methods == "all":
        names = [card.id for card in catalog() if card.yields != "table"]
    else:
        names = list(methods.split(",")) if isinstance(methods, str) else list(methods)
    names = ["grpo", *dict.fromkeys(n for n in names if n not in ("grpo", *REFERENCES))]
    found = [Entry(label) for label in REFERENCES]
    for name in names:
        card = get_method(name)[0].card
        found.append(Entry(name, name, _PARAMS.get(card.id, {}) if name == card.id else {}))
    return found


def equipped(sample: Sample) -> Batch:
    """Return a sample's batch with what only tables can tell: the greedy policy's exact return.

    Args:
        sample: with `SIGNALS` supplied.
    """
    task = sample.task
    greedy = greedy_of(sample)
    outcomes = [task.payoffs[role] for role in task.payoffs] or [task.outcome_N]
    value_of_role = [float(task.start_N @ evaluate(task, greedy, end).V[0]) for end in outcomes]
    baseline = np.array(value_of_role)[sample.flat.role_R]
    return sample.batch.with_column("reward_baseline_R", baseline, {"by": "exact, greedy policy"})


def greedy_of(sample: Sample) -> Any:
    """Return the greedy policy: in each state the likeliest allowed action ``[N, A]``."""
    probs = sample.policy.probs_NA
    greedy = np.zeros_like(probs)
    rows = np.flatnonzero(sample.task.live_N)
    greedy[rows, probs[rows].argmax(1)] = 1.0
    return greedy


def offered(batch: Batch) -> list[str]:
    """Return the columns of a batch that are signals with a cost."""
    return [name for name in _COSTS if batch.has(name)]


def _needs(card: MethodCard) -> list[list[str]]:
    """Return the fields that meet each need of a method."""
    alternatives = [need.split("|") for need in card.needs]
    return alternatives + [[need] for need in _BEYOND_CARD.get(card.id, ())]


def wants_signals(card: MethodCard) -> bool:
    """Return whether a method reads any of the signals that are offered.

    Args:
        card: of the method.

    Example:
        >>> from accredit.methods import get_method
        >>> wants_signals(get_method("grpo")[0].card), wants_signals(get_method("td")[0].card)
        (False, True)
    """
    return any(field in _COLUMNS for fields in _needs(card) for field in fields)


def cost_of(card: MethodCard, batch: Batch) -> dict[str, int]:
    """Return what a method's signals would have cost on a batch, by counter.

    Args:
        card: of the method.
        batch: with the signals.

    Example:
        >>> from accredit.methods import get_method
        >>> cost_of(get_method("grpo")[0].card, Batch.from_records([]))
        {}
    """
    total: dict[str, int] = {}
    for fields in _needs(card):
        columns = [c for f in fields for c in _COLUMNS.get(f, ()) if batch.has(c)]
        for name, n in _COSTS[columns[0]](batch).items() if columns else ():
            total[name] = total.get(name, 0) + n
    return total
