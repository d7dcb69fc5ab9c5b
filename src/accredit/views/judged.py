"""What a report shows of a truth: each method against it, and the true advantage of each step."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from accredit.against import CLEAR, advantages, against_truth, errors, left_out, truth_of
from accredit.typing import Array, BoolArray, Floats
from accredit.views.against_tables import best_first, truth_lines
from accredit.views.colour import domain
from accredit.views.contrast import RESAMPLES, worst
from accredit.views.plain import one_line, shorten
from accredit.views.sheet import LARGEST

if TYPE_CHECKING:
    from accredit.against import TruthLike
    from accredit.views.sheet import Sheet

__all__ = ["Judged", "judged", "truth_arrays", "truth_head"]

_MEASURES = ("rank", "sign", "cosine", "bias", "nmse", "tau")
_LONGEST = 400  # characters of a sentence that a truth file brings
_NORMAL = 1.959964  # two-sided 95 %


@dataclass(frozen=True, slots=True, eq=False)
class Judged:
    """Methods against a truth, over all rollouts of a report, and the truth of each step.

    Args:
        against: ``Comparison.to_dict()["truth"]`` of the same methods.
        advantage_S: true advantage, batch order ``[S]``, reward units.
        known_S: where it is known ``[S]``.
        counted_S: where it is known, and every method counted the rollout ``[S]``.
        se_S: its standard error ``[S]``; 0 where it is exact or unknown.
    """

    against: Mapping[str, Any]
    advantage_S: Floats
    known_S: BoolArray
    counted_S: BoolArray
    se_S: Floats


def judged(sheet: Sheet, truth: TruthLike) -> Judged:
    """Return the methods of a sheet against a truth, with the numbers of `compare`.

    Args:
        sheet: all results of the report.
        truth: its rows, or a file of schema ``accredit.truth/1``.

    Raises:
        DataError: if the truth cannot be read, or knows no step of these rollouts.
    """
    batch = sheet.batch
    table = truth_of(batch, truth)
    advantage_S, known_S = advantages(batch, table)
    against = against_truth(batch, dict(zip(sheet.labels, sheet.credits, strict=True)), table, RESAMPLES, 0)
    counted_S = known_S & ~np.repeat(left_out(batch, sheet.credits), np.diff(batch.step_start_R1))
    return Judged(asdict(against), advantage_S, known_S, counted_S, np.sqrt(errors(batch, table)[0]))


def truth_head(sheet: Sheet, found: Judged) -> dict[str, Any]:
    """Return the table as JSON-ready fields, best method first.

    Args:
        sheet: what a page shows.
        found: of all pages of its report.

    Returns:
        ``rows``, each with ``m`` (index of the method) and its measures as [value, low, high] or None;
        the sizes; ``end`` of the colour scale; ``lines``, what is to be said of the truth; ``worst``,
        for each method the steps of this sheet that are furthest from the truth.
    """
    against = found.against
    place = {label: m for m, label in enumerate(sheet.labels)}
    at = np.flatnonzero(found.counted_S[sheet.order_S])
    true = found.advantage_S[sheet.order_S][at]
    return {
        "rows": [
            {"m": place[row["label"]], **{name: _ends(row[name]) for name in _MEASURES}}
            for row in best_first(against["rows"])
        ],
        **{name: against[f"n_{name}"] for name in ("steps", "rollouts", "groups", "clear")},
        "above": CLEAR,
        "resamples": RESAMPLES,
        "lines": [shorten(one_line(line), _LONGEST) for line in truth_lines(against)],
        "end": domain(found.advantage_S[found.known_S]),
        "worst": [at[worst(row[at], true, sheet.rollout_S[at])].tolist() for row in sheet.credit_MS],
    }


def truth_arrays(sheet: Sheet, found: Judged) -> dict[str, Array]:
    """Return the truth of each shown step, sheet order.

    Args:
        sheet: what a page shows.
        found: of all pages of its report.

    Returns:
        ``truth`` the advantage; ``truth_sure`` 0 where it is unknown, 2 where its sign is looked at
        (|A| > 0.05, and more than 1.96 standard errors), else 1; ``truth_se`` where any is above 0.
    """
    advantage, se = found.advantage_S[sheet.order_S], found.se_S[sheet.order_S]
    known = found.known_S[sheet.order_S]
    size = np.abs(advantage)
    clear = known & (size > CLEAR) & (size > _NORMAL * se)
    arrays: dict[str, Array] = {
        "truth": np.clip(advantage, -LARGEST, LARGEST).astype(np.float32),
        "truth_sure": known.astype(np.int8) + clear.astype(np.int8),
    }
    if se.any():
        arrays["truth_se"] = np.minimum(se, LARGEST).astype(np.float32)
    return arrays


def _ends(found: Mapping[str, float | None] | None) -> list[float | None] | None:
    return None if found is None else [found["value"], found["low"], found["high"]]
