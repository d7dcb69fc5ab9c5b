"""Cells of the token benchmark: one `toklm` task under one success rate, every trial on the same rollouts."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType

import numpy as np

from accredit.benchmark.cells import credit_of
from accredit.benchmark.equipment import PRM_ERROR, VALUE_ERROR, Entry, entries
from accredit.benchmark.journal import Cell, Place
from accredit.benchmark.scoring import Scorer
from accredit.benchmark.token_signals import Known, controlled, supplied
from accredit.data import Batch
from accredit.errors import DataError
from accredit.methods import catalog
from accredit.metrics import gradient_quality, pearson_within, sign_accuracy, spearman_within
from accredit.typing import BoolArray, Floats, Ints
from accredit.worlds import Signals, make, sample

__all__ = ["TOKEN_MEASURES", "Rollouts", "Trial", "token_cells", "trials"]

LARGE = 0.1  # reward units: the true advantage of a token whose sign is looked at

# What is measured of each credit, and what that means.
TOKEN_MEASURES: Mapping[str, str] = MappingProxyType(
    {
        "spearman": "Spearman with the true advantages inside a rollout",
        "spearman_group": "the same, the tokens of a group pooled",
        "pearson": "Pearson inside a rollout",
        "pearson_group": "the same, the tokens of a group pooled",
        "spearman_success": "Spearman inside a successful rollout",
        "spearman_failure": "Spearman inside a failed rollout",
        "pearson_success": "Pearson inside a successful rollout",
        "pearson_failure": "Pearson inside a failed rollout",
        "sign": "share of tokens with |A| > 0.1 whose credit has the true sign (0 counts one half)",
        "sign_success": "the same in successful rollouts",
        "sign_failure": "the same in failed rollouts",
        "gradient": "cosine of the policy gradient of the batch with the exact one",
        "gradient_success": "the same, tokens of failed rollouts left out",
        "gradient_failure": "the same, tokens of successful rollouts left out",
    }
)


@dataclass(frozen=True, slots=True)
class Trial:
    """One line of the token benchmark.

    Args:
        entry: a method with its parameters, or a reference.
        control: signal that is put in the place of the right one (`token_signals.CONTROLS`); "" = none.
        kind: ``reference``, ``method``, ``variant`` or ``control``.
        note: what is special about it.
    """

    entry: Entry
    control: str = ""
    kind: str = "method"
    note: str = ""


# Defaults that do not fit strings of a dozen tokens.
_PARAMS: Mapping[str, Mapping[str, object]] = {
    "pepo": {"window": 5},
    "shear": {"window": 4, "stride": 2},
}

# Label, method, parameters, control, kind, note.
_MORE: tuple[tuple[str, str, dict[str, object], str, str, str], ...] = (
    ("hapo, base gigpo", "hapo", {"base": "gigpo"}, "", "variant", "over gigpo"),
    ("hapo, base crbc", "hapo", {"base": "crbc"}, "", "variant", "over crbc"),
    ("eapo, base gigpo", "eapo", {"base": "gigpo"}, "", "variant", "over gigpo"),
    ("eapo, base crbc", "eapo", {"base": "crbc"}, "", "variant", "over crbc"),
    ("rlsd, base gigpo", "rlsd", {"base": "gigpo"}, "", "variant", "over gigpo"),
    ("rlsd, base crbc", "rlsd", {"base": "crbc"}, "", "variant", "over crbc"),
    (
        "scapo, harmless wording",
        "scapo",
        {},
        "harmless",
        "variant",
        "the wording moves the policy where the choice matters least",
    ),
    (
        "scapo, shuffled drift",
        "scapo",
        {},
        "shuffled drift",
        "control",
        "drift dealt out anew in each rollout",
    ),
    (
        "scapo, counterfactual prompt",
        "scapo",
        {},
        "counterfactual",
        "control",
        "the altered prompt asks for a string that breaks the rule",
    ),
    (
        "shear, cosine",
        "shear",
        {"distance": "cosine"},
        "",
        "control",
        "cosine of span means, not Wasserstein",
    ),
    ("hapo, surprisal", "hapo", {}, "surprisal", "control", "-log p of the token, not entropy"),
    ("eapo, surprisal", "eapo", {}, "surprisal", "control", "-log p of the token, not entropy"),
    ("opsd, static skill", "opsd", {}, "skill", "control", "a teacher that knows nothing of the outcome"),
    ("rlsd, static skill", "rlsd", {}, "skill", "control", "a teacher that knows nothing of the outcome"),
    ("verpo, static skill", "verpo", {}, "skill", "control", "evidence that says nothing of the outcome"),
    (
        "rlsd, shuffled teacher",
        "rlsd",
        {},
        "shuffled teacher",
        "control",
        "the teacher's log-ratios dealt out anew in each rollout",
    ),
)


def trials(methods: str | list[str] = "all") -> list[Trial]:
    """Return what is measured: references, grpo, token methods, their variants and negative controls.

    Args:
        methods: ``all``, or ids; variants and controls of these come along.

    Raises:
        ParamError: for an unknown method.
    """
    cards = [c.id for c in catalog() if c.yields == "token" or "reweights" in c.tags]
    asked = entries([*cards, "siop", "gigpo", "crbc", "grpo-s"] if methods == "all" else methods)
    named = {e.method for e in asked}
    found = [
        Trial(Entry(e.label, e.method, {**e.params, **_PARAMS.get(e.method, {})}), kind=_kind(e))
        for e in asked
        if e.label != "truth-by-key"  # a prefix is its own key
    ]
    found.insert(2, Trial(Entry("entropy"), kind="reference"))
    return found + [
        Trial(Entry(label, method, {**_PARAMS.get(method, {}), **params}), control, kind, note)
        for label, method, params, control, kind, note in _MORE
        if method in named
    ]


def _kind(entry: Entry) -> str:
    return "method" if entry.method else "reference"


@dataclass(frozen=True, eq=False)
class Rollouts:
    """Rollouts of one task with signals and controls, ready to score credits of tokens.

    Args:
        rule: of `toklm`.
        success_rate: exact, of the policy.
        seed: of the task.
        groups: number of groups of 8.
    """

    rule: str
    success_rate: float
    seed: int
    groups: int

    def place(self, label: str) -> Place:
        """Return where a trial's numbers belong.

        Args:
            label: of the trial.
        """
        return Place(f"toklm {self.rule}", f"{self.success_rate:g}", self.seed, label)

    @cached_property
    def known(self) -> Known:
        """What the tables say."""
        task = make("toklm", seed=self.seed, rule=self.rule)
        signals = Signals(value=VALUE_ERROR, prm=PRM_ERROR)
        return Known(
            sample(task, groups=self.groups, success_rate=self.success_rate, seed=self.seed, signals=signals)
        )

    @cached_property
    def batch(self) -> Batch:
        """The rollouts with every signal."""
        return supplied(self.known)

    @cached_property
    def scorer(self) -> Scorer:
        """Of the rollouts as they are."""
        return Scorer(self.known.sample, self.batch)

    def credit(self, trial: Trial) -> Floats:
        """Return the credit of each token ``[T]``.

        Args:
            trial: any.

        Raises:
            DataError: if the method cannot run on them.
        """
        if trial.entry.label == "entropy":
            return np.asarray(self.batch.column("entropy_T").values, np.float64)
        batch = controlled(self.batch, self.known, trial.control)
        return credit_of(Scorer(self.known.sample, batch), trial.entry, self.seed)

    @cached_property
    def won_T(self) -> BoolArray:
        """Whether each token's rollout succeeded."""
        found: BoolArray = self.known.value_N[self.known.ends_R] > 0.5
        return found[self.known.sample.flat.rollout_D]

    def score(self, credit_T: Floats) -> dict[str, float]:
        """Return `TOKEN_MEASURES` as far as they are defined.

        Args:
            credit_T: credit of each token.
        """
        truth, rollout = self.scorer.truth_D, self.known.sample.flat.rollout_D
        group = np.asarray(self.batch.group_R, np.int64)[rollout]
        large = np.abs(truth) > LARGE
        found: dict[str, float | None] = {
            "spearman_group": spearman_within(credit_T, truth, group),
            "pearson_group": pearson_within(credit_T, truth, group),
        }
        everywhere = np.ones(truth.size, bool)
        for name, kept in (("", everywhere), ("_success", self.won_T), ("_failure", ~self.won_T)):
            own = credit_T[kept], truth[kept], _dense(rollout[kept])
            found["spearman" + name] = spearman_within(*own)
            found["pearson" + name] = pearson_within(*own)
            found["sign" + name] = sign_accuracy(credit_T, truth, keep_S=large & kept, above=0.0)
            found["gradient" + name] = self._gradient(np.where(kept, credit_T, 0.0))
        return {name: float(value) for name, value in found.items() if value is not None}

    def _gradient(self, credit_T: Floats) -> float | None:
        quality = gradient_quality(self.scorer.gradient(credit_T)[None], self.scorer.exact_gradient)
        return None if quality is None else quality.mean_cosine


def _dense(codes: Ints) -> Ints:
    found: Ints = np.unique(codes, return_inverse=True)[1]
    return found


def token_cells(rollouts: Rollouts, asked: Iterable[Trial]) -> list[Cell]:
    """Return one cell a trial; a method that cannot run says why.

    Args:
        rollouts: of one task.
        asked: what is measured.
    """
    return [_cell(rollouts, trial) for trial in asked]


def _cell(rollouts: Rollouts, trial: Trial) -> Cell:
    place = rollouts.place(trial.entry.label)
    begin = time.perf_counter()
    try:
        credit_T = rollouts.credit(trial)
    except DataError as error:
        return Cell(place, unable=error.message, code=error.code)
    seconds = round(time.perf_counter() - begin, 6)
    rounded = {name: float(f"{value:.12g}") for name, value in rollouts.score(credit_T).items()}
    return Cell(place, rounded, seconds=seconds)
