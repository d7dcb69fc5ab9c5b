"""`check`: what is wrong with rollouts, or worth knowing, before a method runs on them."""

from __future__ import annotations

import dataclasses

from accredit.data import Batch
from accredit.engine import Rollouts, missing_needs
from accredit.findings import Plan, Report, examine
from accredit.index import Key
from accredit.methods import get_method
from accredit.readers import read

__all__ = ["check"]


def check(
    rollouts: Rollouts, method: str | None = None, key: Key | None = None, strict: bool = False
) -> Report:
    """Return the findings of rollouts, those made while reading included, and their numbers.

    Args:
        rollouts: a Batch, a path, or an iterable of records.
        method: the method that is to run on them (``"gigpo"``, ``"grpo:truncated=drop"``): its needs are
            checked, and findings say what it does with odd rollouts. None = any.
        key: which states count as the same, as in `assign`.
        strict: raise at the first rollout that cannot be used, else for the worst error or warning,
            instead of reporting it.

    Returns:
        The Report: iterate over its findings; ``.ok`` is True without errors and warnings.

    Raises:
        DataError: if a file cannot be read at all; with ``strict``, for the first error or warning.
        ParamError: for an unknown method, parameter or key.

    Example:
        >>> records = [{"id": i, "group": i, "reward": 1, "steps": [{"n_tokens": 2}]} for i in "ab"]
        >>> [finding.code for finding in check(records).errors]
        ['ACC111']
    """
    batch = rollouts if isinstance(rollouts, Batch) else read(rollouts, strict=strict)
    return examine(batch, None if method is None else _plan(batch, method, key), key=key, strict=strict)


def _plan(batch: Batch, method: str, key: Key | None) -> Plan:
    chosen, implied = get_method(method)
    params = chosen.make_params(implied)
    missing = tuple(missing_needs(batch, chosen.card, key))
    in_force = {f.name: getattr(params, f.name) for f in dataclasses.fields(params)}
    return Plan(chosen.card, in_force, missing)
