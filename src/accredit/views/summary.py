"""What one result says, as JSON-ready fields: sizes, groups, decisive steps, everything left out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from accredit.errors import AccreditError, DataError, suggest
from accredit.views.decisive import decisions, decisive

if TYPE_CHECKING:
    from accredit.data import Batch, Credit, Explanation

__all__ = ["credit_summary", "decisive_steps", "group_credits", "left_out", "reason_of", "rollout_steps"]

PREVIEW = 160


def credit_summary(credit: Credit, top: int = 10) -> dict[str, Any]:
    """Return a result as JSON-ready fields.

    Args:
        credit: from `assign`.
        top: how many decisive steps to tell.

    Returns:
        ``rollouts.read = rollouts.used + rollouts.excluded``; each excluded one has its reason.
    """
    batch = credit.batch
    return {
        "schema": "accredit.summary/1",
        "method": credit.method,
        "title": credit.card.title,
        "params": dict(credit.params),
        **left_out([credit]),
        "sizes": {"groups": batch.n_groups, "steps": batch.n_steps, "tokens": batch.n_tokens},
        "coverage": credit.coverage,
        "nonzero": float((credit.steps != 0).mean()) if batch.n_steps else 0.0,
        "fallbacks": credit.fallbacks,
        "unused": list(credit.result.unused),
        "findings": [f.to_dict() for f in (*batch.findings, *credit.findings)],
        "groups": _groups(credit),
        "top": decisive_steps(credit, top),
    }


def left_out(credits: Sequence[Credit]) -> dict[str, Any]:
    """Return the sum ``read = used + excluded``, each exclusion, and who stayed outside the statistics.

    Args:
        credits: results over one batch.

    Returns:
        ``rollouts`` (read, used, excluded), ``excluded`` (id, reason, where, code) and ``uncounted``
        (ids by reason, and by method where the methods differ).
    """
    first = credits[0]
    reasons: dict[str, list[str]] = {}
    for reason in dict.fromkeys(reason for c in credits for reason in c.uncounted):
        by_method = {c.method: c.uncounted.get(reason, ()) for c in credits}
        if len(set(by_method.values())) == 1:
            reasons[reason] = list(first.uncounted[reason])
        else:
            reasons |= {f"{reason} ({m})": list(ids) for m, ids in by_method.items() if ids}
    return {
        "rollouts": {
            "read": first.used + len(first.excluded),
            "used": first.used,
            "excluded": len(first.excluded),
        },
        "excluded": [
            {"id": e.id, "reason": e.reason, "where": e.where, "code": e.code} for e in first.excluded
        ],
        "uncounted": reasons,
    }


def decisive_steps(credit: Credit, top: int = 10) -> list[dict[str, Any]]:
    """Return the steps of largest |credit|, each with its place, what was done, outcome and reason.

    Steps of a group with the same state, action and credit stand for each other: the first is told,
    with their number in ``times``; so do steps of one rollout with the same credit.

    Args:
        credit: from `assign`.
        top: how many.
    """
    batch = credit.batch
    rollout_S = np.repeat(np.arange(len(batch)), np.diff(batch.step_start_R1))
    found = decisive(credit.steps, rollout_S, decisions(batch, credit.steps), top)
    return [_told(credit, f.step, int(rollout_S[f.step])) | {"times": f.times} for f in found]


def _told(credit: Credit, s: int, r: int) -> dict[str, Any]:
    batch = credit.batch
    step = s - int(batch.step_start_R1[r])
    return {
        "rollout": batch.ids[r],
        "step": step,
        "group": str(batch.group_names[int(batch.group_R[r])]),
        "credit": float(credit.steps[s]),
        "reward": _item(batch, "reward_R", r),
        "action": _text(batch, ("action_S", "text_S"), s),
        "state": _text(batch, ("text_S", "observation_S", "state_S"), s),
        "reason": reason_of(credit, batch.ids[r], step),
    }


def rollout_steps(credit: Credit, rollout: str) -> dict[str, Any]:
    """Return a rollout step by step: what was done, credit, its addends, the arithmetic.

    Args:
        credit: from `assign`.
        rollout: its id.

    Raises:
        DataError: if there is no such rollout.
    """
    batch = credit.batch
    r = batch.position(rollout)
    per_step = not credit.per_token
    steps = []
    for s in batch.steps_of(r):
        told = _told(credit, s, r)
        parts = {name: float(values[s]) for name, values in credit.parts.items()} if per_step else {}
        steps.append({k: told[k] for k in ("step", "credit", "action", "state", "reason")} | {"parts": parts})
    return {
        "schema": "accredit.rollout-credit/1",
        "method": credit.method,
        "rollout": rollout,
        "group": str(batch.group_names[int(batch.group_R[r])]),
        "reward": _item(batch, "reward_R", r),
        "steps": steps,
    }


def group_credits(credit: Credit, group: str) -> dict[str, Any]:
    """Return a group's rollouts with their rewards and the credit of each step.

    Args:
        credit: from `assign`.
        group: its name.

    Raises:
        DataError: if there is no such group.
    """
    batch = credit.batch
    names = [str(name) for name in batch.group_names]
    if group not in names:
        raise DataError(f"no group {group!r} in this batch", hint=suggest(group, names))
    per_rollout = credit.by_rollout()
    members = np.flatnonzero(batch.group_R == names.index(group)).tolist()
    return {
        "group": group,
        "rollouts": [
            {"id": batch.ids[r], "reward": _item(batch, "reward_R", r), "credit": per_rollout[r].tolist()}
            for r in members
        ],
    }


def reason_of(credit: Credit, rollout: str, step: int) -> str:
    """Return one line about a step's credit: the arithmetic of its addends, largest first.

    Args:
        credit: from `assign`.
        rollout: its id.
        step: 0-based step.
    """
    try:
        told = credit.explain(rollout, step)
    except AccreditError as error:
        return str(error)
    return _terms(told)


def _terms(told: Explanation) -> str:
    """Each addend with its arithmetic, largest first; a single one without its name."""
    terms = sorted(told.terms, key=lambda t: -abs(t.value))
    if len(terms) == 1:
        return terms[0].formula
    return ", ".join(f"{t.value:+.3g} {t.name} {t.formula}" for t in terms if t.value)


def _groups(credit: Credit) -> list[dict[str, Any]]:
    """Numbers of each group, in order of first appearance."""
    batch = credit.batch
    scored = _mask(batch, "reward_R")
    group_S = np.repeat(batch.group_R, np.diff(batch.step_start_R1))
    n_names = len(batch.group_names)
    informed = credit.result.informed_S
    steps = np.bincount(group_S, minlength=n_names)
    sums = np.bincount(group_S, np.abs(credit.steps), n_names)
    known = np.bincount(group_S, informed, n_names) if informed is not None else np.zeros(n_names)
    members = np.bincount(batch.group_R, minlength=n_names)
    paid = np.bincount(batch.group_R, scored, n_names)
    codes, first = np.unique(batch.group_R, return_index=True)
    rewards = _rewards(batch, scored)
    return [
        {
            "group": str(batch.group_names[g]),
            "rollouts": int(members[g]),
            "scored": int(paid[g]),
            "reward": rewards.get(g),
            "steps": int(steps[g]),
            "mean_abs": float(sums[g] / max(1, steps[g])),
            "informed": float(known[g] / max(1, steps[g])),
        }
        for g in codes[np.argsort(first, kind="stable")].tolist()
    ]


def _rewards(batch: Batch, scored: Any) -> dict[int, dict[str, float]]:
    """Mean and ends of the rewards of each group that has one, by group code."""
    if not batch.has("reward_R"):
        return {}
    rows = np.flatnonzero(scored)
    rows = rows[np.argsort(batch.group_R[rows], kind="stable")]
    codes, first = np.unique(batch.group_R[rows], return_index=True)
    found = np.split(batch.reward_R[rows], first[1:])
    return {
        g: {"mean": float(v.mean()), "low": float(v.min()), "high": float(v.max())}
        for g, v in zip(codes.tolist(), found, strict=False)
    }


def _mask(batch: Batch, name: str) -> Any:
    column = batch.columns.get(name)
    return np.zeros(len(batch), bool) if column is None else column.mask(len(batch))


def _item(batch: Batch, name: str, r: int) -> float | None:
    return float(batch.column(name).values[r]) if _mask(batch, name)[r] else None


def _text(batch: Batch, names: tuple[str, ...], s: int) -> str:
    """The first of the columns that has this step, on one line, shortened."""
    for name in names:
        column = batch.columns.get(name)
        if column is not None and column.given(s):
            text = " ".join(str(column.item(s))[: 4 * PREVIEW].split())
            return text if len(text) <= PREVIEW else text[: PREVIEW - 1] + "…"
    return ""
