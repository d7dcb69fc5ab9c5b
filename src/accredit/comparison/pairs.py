"""Agreement of each two methods: ranks, signs, and the steps on which they differ most."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations

import numpy as np

from accredit.against import left_out
from accredit.agreement import draw_weights, kendall, rms, spearmans
from accredit.comparison.records import Disagreement, Pair
from accredit.data import Batch, Credit
from accredit.typing import Floats, Ints

__all__ = ["pairs_of", "rollout_of_step"]

WORST = 10
PREVIEW = 160


def pairs_of(batch: Batch, credits: Mapping[str, Credit], n_boot: int, seed: int) -> tuple[Pair, ...]:
    """Return the agreement of each two results, over the rollouts that all of them counted.

    Args:
        batch: the rollouts.
        credits: results by label.
        n_boot: resamples of groups behind the intervals.
        seed: of the resamples.
    """
    labels = list(credits)
    rollout_S = rollout_of_step(batch)
    kept_S = ~left_out(batch, credits.values())[rollout_S]
    at = np.flatnonzero(kept_S)
    groups, group_S = np.unique(batch.group_R[rollout_S[at]], return_inverse=True)
    weights = draw_weights(groups.size, n_boot, seed)
    values = [credits[label].steps[at] for label in labels]
    rhos = spearmans(values, group_S, weights) if at.size else []
    found = []
    for p, (i, j) in enumerate(combinations(range(len(labels)), 2)):
        a, b = values[i], values[j]
        quadrants = _quadrants(a, b)
        found.append(
            Pair(
                labels[i],
                labels[j],
                int(at.size),
                int(groups.size),
                rhos[p] if rhos else None,
                kendall(a, b, group_S, weights) if at.size else None,
                quadrants,
                quadrants["+-"] + quadrants["-+"],
                _worst(batch, at, rollout_S, a, b),
            )
        )
    return tuple(found)


def _quadrants(a: Floats, b: Floats) -> dict[str, int]:
    signs = {"+": (a > 0, b > 0), "-": (a < 0, b < 0)}
    found = {x + y: int((signs[x][0] & signs[y][1]).sum()) for x in "+-" for y in "+-"}
    return found | {
        "one zero": int(((a == 0) ^ (b == 0)).sum()),
        "both zero": int(((a == 0) & (b == 0)).sum()),
    }


def _worst(batch: Batch, at: Ints, rollout_S: Ints, a: Floats, b: Floats) -> tuple[Disagreement, ...]:
    gap = np.abs(a / (rms(a) or 1.0) - b / (rms(b) or 1.0))
    order = np.argsort(-gap, kind="stable")
    seen: set[tuple[int, float, float]] = set()
    found: list[Disagreement] = []
    for i in order[gap[order] > 1e-9].tolist():
        s = int(at[i])
        r = int(rollout_S[s])
        same = (r, float(a[i]), float(b[i]))
        if same in seen:
            continue
        if len(found) == WORST:
            break
        seen.add(same)
        found.append(
            Disagreement(
                batch.ids[r],
                s - int(batch.step_start_R1[r]),
                str(batch.group_names[int(batch.group_R[r])]),
                float(a[i]),
                float(b[i]),
                float(gap[i]),
                _preview(batch, ("action_S",), s),
                _preview(batch, ("text_S", "observation_S", "state_S"), s),
            )
        )
    return tuple(found)


def _preview(batch: Batch, names: Sequence[str], s: int) -> str:
    """Return the first of the columns that has this step, shortened."""
    for name in names:
        column = batch.columns.get(name)
        if column is None or not column.given(s):
            continue
        word = column.values[s] if column.words is None else column.words[int(column.values[s])]
        text = " ".join(str(word)[: 4 * PREVIEW].split())
        return text if len(text) <= PREVIEW else text[: PREVIEW - 1] + "…"
    return ""


def rollout_of_step(batch: Batch) -> Ints:
    """Return the rollout of each step ``[S]``."""
    return np.repeat(np.arange(len(batch)), np.diff(batch.step_start_R1))
