"""What a comparison holds: numbers of each method, agreement of each pair, who could not run."""

from __future__ import annotations

import html
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from accredit.agreement import Estimate
from accredit.data import Batch, Credit

if TYPE_CHECKING:
    from accredit.against import Against

__all__ = ["Comparison", "Disagreement", "MethodRow", "Pair", "Unable"]


@dataclass(frozen=True, slots=True)
class MethodRow:
    """What one method gave.

    Args:
        label: its name in this comparison.
        method: method id.
        nonzero: share of steps with credit other than 0.
        coverage: shares of steps and groups with information beyond the outcome broadcast.
        mean_abs: mean |credit| of a step, in the method's own unit.
        within: root mean square of credit minus its rollout's mean, over that of credit: 0 where
            every step of a rollout gets the same number, 1 where rollouts differ only inside.
        seconds: time of the assignment; None for a Credit that was given.
        params: parameters in force.
        fallbacks: how often each was taken.
        uncounted: number of rollouts without credit or outside the statistics, by reason.
    """

    label: str
    method: str
    nonzero: float
    coverage: Mapping[str, float]
    mean_abs: float
    within: float
    seconds: float | None
    params: Mapping[str, Any]
    fallbacks: Mapping[str, int]
    uncounted: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Unable:
    """A method that could not run on these rollouts, and why."""

    label: str
    reason: str
    code: str = ""


@dataclass(frozen=True, slots=True)
class Disagreement:
    """One step on which two methods differ most, after each is divided by its root mean square.

    Args:
        rollout: rollout id.
        step: 0-based step.
        group: group id.
        first: credit of the first method, in its own unit.
        second: credit of the second.
        gap: |first / rms - second / rms|.
        action: what was done, shortened; "" where it is not recorded.
        state: text or state before it, shortened.
    """

    rollout: str
    step: int
    group: str
    first: float
    second: float
    gap: float
    action: str
    state: str


@dataclass(frozen=True, slots=True)
class Pair:
    """Agreement of two methods on the steps of the rollouts that both counted.

    Args:
        first: label.
        second: label.
        n_steps: steps compared.
        n_groups: groups compared, the unit of the intervals.
        spearman: rank correlation; None where one method gives all steps the same number.
        kendall: tau-b, likewise.
        quadrants: number of steps by the signs of both credits (``++ +- -+ --``, ``one zero``,
            ``both zero``).
        flips: steps on which the signs are opposite.
        worst: the largest disagreements; steps of one rollout with equal credits stand for each other.
    """

    first: str
    second: str
    n_steps: int
    n_groups: int
    spearman: Estimate | None
    kendall: Estimate | None
    quadrants: Mapping[str, int]
    flips: int
    worst: tuple[Disagreement, ...]


@dataclass(frozen=True, eq=False)
class Comparison:
    """Methods side by side on one batch; the first is the baseline.

    Args:
        batch: the rollouts.
        credits: result of each method that ran, by label.
        rows: numbers of each method that ran, in the order given.
        unable: methods that could not run.
        pairs: agreement of each two methods.
        n_boot: resamples behind the intervals.
        against: each method against a truth; None where none was given.
        notes: what a reader should know of the methods together: rules that contradict each other.
    """

    batch: Batch
    credits: Mapping[str, Credit]
    rows: tuple[MethodRow, ...]
    unable: tuple[Unable, ...]
    pairs: tuple[Pair, ...]
    n_boot: int
    against: Against | None = None
    notes: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return the comparison as JSON-ready fields."""
        return {
            "schema": "accredit.comparison/1",
            "rollouts": len(self.batch),
            "excluded": len(self.batch.excluded),
            "groups": self.batch.n_groups,
            "steps": self.batch.n_steps,
            "n_boot": self.n_boot,
            "methods": [asdict(row) for row in self.rows],
            "unable": [asdict(row) for row in self.unable],
            "pairs": [asdict(pair) for pair in self.pairs],
            "truth": None if self.against is None else asdict(self.against),
            "notes": list(self.notes),
        }

    def __repr__(self) -> str:
        from accredit.views.comparison_tables import comparison_text  # pictures come last

        return comparison_text(self.to_dict())

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(repr(self))}</pre>"
