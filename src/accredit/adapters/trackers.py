"""Findings and a summary of credit as plain scalars for experiment trackers.

Whichever of W&B, MLflow and TensorBoard a run uses takes a mapping of names to numbers; none of
them is imported here unless the run has imported it.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

import accredit as ac

__all__ = ["finding_scalars", "log_scalars", "scalars"]


def scalars(credit: ac.Credit, prefix: str = "accredit") -> dict[str, float]:
    """Return a result as numbers by name, all finite.

    ``credit/…`` and ``advantage/…``: mean, std, least, greatest, and the share of exact zeros, of
    steps and of policy tokens; ``coverage/…``: shares of steps and groups with information beyond
    the outcome; ``rollouts``; ``uncounted/<reason>``; ``fallbacks/<name>``; ``findings/<code>``.

    Args:
        credit: the result.
        prefix: of every name.

    Example:
        >>> records = [{"id": i, "group": "g", "reward": r, "steps": [{}]} for i, r in (("a", 1), ("b", 0))]
        >>> found = scalars(ac.assign(records, "dr-grpo"))
        >>> found["accredit/rollouts"], found["accredit/credit/max"]
        (2.0, 0.5)
    """
    found: dict[str, float] = {"rollouts": len(credit.batch), "steps": credit.batch.n_steps}
    found |= _moments("credit", credit.steps)
    if credit.batch.n_tokens:
        found |= _moments("advantage", credit.tokens)
    found |= {f"coverage/{name}": share for name, share in credit.coverage.items()}
    found |= {f"uncounted/{reason}": len(ids) for reason, ids in credit.uncounted.items()}
    found |= {f"fallbacks/{name}": n for name, n in credit.fallbacks.items()}
    found["excluded"] = len(credit.excluded)
    plain = {f"{prefix}/{name}": float(value) for name, value in found.items()}
    return plain | finding_scalars(credit.findings, prefix)


def finding_scalars(findings: Iterable[Any], prefix: str = "accredit") -> dict[str, float]:
    """Return how many places each finding shows, and how many errors and warnings there are.

    Args:
        findings: of `accredit.check`, of a Batch or of a Credit.
        prefix: of every name.

    Example:
        >>> batch = ac.Batch.from_records([{"group": "g", "reward": 1, "steps": []}])
        >>> finding_scalars(batch.findings)["accredit/findings/ACC102"]
        1.0
    """
    found: dict[str, float] = {f"{prefix}/findings/{kind}": 0.0 for kind in ("error", "warning")}
    for finding in findings:
        if finding.severity != "info":
            found[f"{prefix}/findings/{finding.severity}"] += finding.count
        name = f"{prefix}/findings/{finding.code}"
        found[name] = found.get(name, 0.0) + finding.count
    return found


def _moments(name: str, values: Any) -> dict[str, float]:
    if not values.size:
        return {}
    return {
        f"{name}/mean": float(values.mean()),
        f"{name}/std": float(values.std()),
        f"{name}/min": float(values.min()),
        f"{name}/max": float(values.max()),
        f"{name}/zero_share": float(np.mean(values == 0)),
    }


def log_scalars(values: Mapping[str, float], *, step: int | None = None, writer: Any = None) -> list[str]:
    """Send numbers to every tracker that has an open run in this process.

    A tracker counts if the program has imported it and begun a run: ``wandb.run`` is set,
    ``mlflow.active_run()`` returns one.  TensorBoard has no global run: give its writer.

    Args:
        values: numbers by name, of `scalars`.
        step: of training.
        writer: a TensorBoard SummaryWriter, or anything with ``add_scalar(name, value, step)``.

    Returns:
        The trackers that took them, by name; none is no error.

    Example:
        >>> log_scalars({"accredit/rollouts": 2.0})
        []
    """
    plain = {name: float(value) for name, value in values.items()}
    taken = []
    wandb = sys.modules.get("wandb")
    if wandb is not None and getattr(wandb, "run", None) is not None:
        wandb.log(plain, step=step)
        taken.append("wandb")
    mlflow = sys.modules.get("mlflow")
    if mlflow is not None and mlflow.active_run() is not None:
        mlflow.log_metrics(plain, step=step)
        taken.append("mlflow")
    if writer is not None:
        for name, value in plain.items():
            writer.add_scalar(name, value, step)
        taken.append("tensorboard")
    return taken
