"""Data health: may the reader trust the input? Findings by code, exclusions, distributions."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from accredit.typing import Floats, Ints
from accredit.views.plain import shorten, visible

if TYPE_CHECKING:
    from accredit.data import Finding
    from accredit.views.sheet import Sheet

__all__ = ["findings_of", "health", "histogram", "zero_spread"]

_ORDER = {"error": 0, "warning": 1, "info": 2}
_PLACE = re.compile(r"rollout '((?:[^'\\]|\\.)*)'(?:,? step (\d+))?")
_BINS = 24
_EXCLUDED_SHOWN = 50


def health(sheet: Sheet, checked: Sequence[Finding] | None = None) -> dict[str, Any]:
    """Return findings, exclusions and distributions as JSON-ready fields.

    Args:
        sheet: the results.
        checked: what `check` found in the rollouts; None if it was not asked.
    """
    reward, ok = sheet.rollout_column("reward_R")
    lengths = np.diff(sheet.start_R1)
    return {
        "findings": [_finding(sheet, f) for f in findings_of(sheet, checked)],
        "checked": checked is not None,
        "excluded": _excluded(sheet),
        "length": histogram(lengths, whole=True),
        "reward": histogram(reward[ok]),
        "unscored": int((~ok).sum()),
        "visits": _visits(sheet),
        "spread": zero_spread(reward, ok, sheet.group_R, len(sheet.names)),
    }


def findings_of(sheet: Sheet, checked: Sequence[Finding] | None = None) -> list[Finding]:
    """Return all findings of the batch and of the results, one a code, errors first."""
    by_code: dict[str, Finding] = {}
    seen: set[Finding] = set()
    for finding in _all_findings(sheet, checked):
        if finding in seen:
            continue
        seen.add(finding)
        known = by_code.get(finding.code)
        by_code[finding.code] = finding if known is None else known.merged(finding)
    return sorted(by_code.values(), key=lambda f: (_ORDER[f.severity], f.code))


def histogram(values: Floats | Ints, *, whole: bool = False) -> dict[str, Any]:
    """Return edges and counts; few distinct values get one bar each.

    Args:
        values: the numbers.
        whole: the values are counts, so edges fall between whole numbers.

    Returns:
        ``n``, ``mean``, and either ``values`` (bar positions) or ``edges``, with ``counts``.
    """
    if not len(values):
        return {"n": 0, "mean": 0.0, "values": [], "counts": []}
    found, counts = np.unique(values, return_counts=True)
    head: dict[str, Any] = {"n": len(values), "mean": float(np.mean(values))}
    if len(found) <= _BINS:
        return {**head, "values": [float(v) for v in found], "counts": counts.tolist()}
    if whole:
        width = max(int(np.ceil((found[-1] - found[0] + 1) / _BINS)), 1)
        edges = np.arange(found[0], found[-1] + width + 1, width) - 0.5
    else:
        edges = np.linspace(found[0], found[-1], _BINS + 1)
    counts, edges = np.histogram(values, edges)
    return {**head, "edges": edges.tolist(), "counts": counts.tolist()}


def zero_spread(reward: Floats, ok: Any, group_R: Ints, n_groups: int) -> dict[str, int]:
    """Count groups by their rewards: mixed, all pass, all fail, tie, single, unscored.

    A group has no spread when max - min is at most 1e-12 of the largest |reward| in it. All pass /
    all fail: its reward is the highest / the lowest of the batch.
    """
    kinds = dict.fromkeys(("mixed", "all pass", "all fail", "tie", "single", "unscored"), 0)
    top, bottom = (reward[ok].max(), reward[ok].min()) if ok.any() else (0.0, 0.0)
    for g in range(n_groups):
        r = reward[(group_R == g) & ok]
        kinds[_kind(r, float(top), float(bottom))] += 1
    return kinds


def _kind(r: Floats, top: float, bottom: float) -> str:
    if len(r) < 2:
        return "single" if len(r) else "unscored"
    if not _tied(r.min(), r.max()):
        return "mixed"
    if _tied(bottom, top):
        return "tie"
    return "all pass" if _tied(r[0], top) else "all fail" if _tied(r[0], bottom) else "tie"


def _tied(a: float, b: float) -> bool:
    """Whether two rewards differ by rounding at most: 1e-12 of the larger."""
    return abs(a - b) <= 1e-12 * max(abs(a), abs(b))


def _visits(sheet: Sheet) -> dict[str, Any]:
    """Return how many steps stand in a state that 1, 2, 3 … rollouts of their group visit."""
    state = sheet.texts("state").codes.astype(np.int64)
    known = state >= 0
    if not known.any():
        return {"n": 0, "values": [], "counts": [], "shared": 0}
    key = sheet.group_S[known] * (int(state.max()) + 1) + state[known]
    pairs = np.unique(np.stack([key, sheet.rollout_S[known]], axis=1), axis=0)
    keys, rollouts = np.unique(pairs[:, 0], return_counts=True)
    visited_by = rollouts[np.searchsorted(keys, key)]
    values, counts = np.unique(visited_by, return_counts=True)
    return {
        "n": int(known.sum()),
        "values": [float(v) for v in values],
        "counts": counts.tolist(),
        "shared": int((visited_by > 1).sum()),
    }


def _all_findings(sheet: Sheet, checked: Sequence[Finding] | None) -> Iterable[Finding]:
    found = sheet.batch.findings if checked is None else checked  # `check` tells those of reading, too
    yield from found
    told = () if checked is None else {f.code for f in found}
    for credit in sheet.credits:
        yield from (f for f in credit.findings if f.code not in told)


def _finding(sheet: Sheet, finding: Finding) -> dict[str, Any]:
    places = finding.places()
    return {
        "code": finding.code,
        "severity": finding.severity,
        "message": visible(finding.message),
        "hint": visible(finding.hint),
        "count": finding.count,
        "places": [shorten(visible(p), 200) for p in places],
        "link": next((p for p in (_resolve(sheet, x) for x in (*places, finding.message)) if p), None),
    }


def _resolve(sheet: Sheet, place: str) -> list[int] | None:
    """Return [sheet rollout, step] of a place such as ``rollout 'r17' step 3``."""
    match = _PLACE.search(place)
    rollout = sheet.place_of.get(match.group(1)) if match else None
    if match is None or rollout is None:
        return None
    last = int(sheet.start_R1[rollout + 1] - sheet.start_R1[rollout]) - 1
    return [rollout, max(min(int(match.group(2) or 0), last), 0)]


def _excluded(sheet: Sheet) -> dict[str, Any]:
    """Return rollouts left out, by the reader or by a method, each with its reason."""
    rows: dict[tuple[str, str], list[str]] = {}
    for label, credit in zip(sheet.labels, sheet.credits, strict=True):
        for e in credit.excluded:
            rows.setdefault((e.id, e.reason), []).append(label)
    for e in sheet.batch.excluded:
        rows.setdefault((e.id, e.reason), [])
    shown = [
        {"id": shorten(visible(i), 80), "reason": visible(reason), "methods": methods}
        for (i, reason), methods in list(rows.items())[:_EXCLUDED_SHOWN]
    ]
    return {"n": len(rows), "rows": shown}
