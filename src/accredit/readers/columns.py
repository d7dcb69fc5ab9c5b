"""Columns of the user's own: which of them holds which field, by usual names or by a mapping."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from accredit.errors import DataError, suggest

__all__ = ["NAMES", "check_mapping", "known_columns", "mapping_hint"]

NAMES: Mapping[str, tuple[str, ...]] = {
    "id": ("id", "rollout_id", "trajectory_id"),
    "group": ("group", "prompt_id", "task_id", "uid", "instance_id"),
    "reward": ("reward", "score", "outcome"),
    "messages": ("messages", "conversation", "conversations"),
    "prompt": ("prompt", "question", "instruction"),
    "completion": ("completion", "response"),
    "steps": ("steps",),
    "policy_version": ("policy_version", "step", "global_step"),
    "status": ("status",),
    "agent": ("agent",),
}


def known_columns(columns: Collection[str]) -> dict[str, str]:
    """Return the column of each field for which there is one of a usual name.

    Example:
        >>> known_columns(["question", "score", "model"])
        {'reward': 'score', 'prompt': 'question'}
    """
    found = {ours: next((n for n in names if n in columns), "") for ours, names in NAMES.items()}
    return {ours: theirs for ours, theirs in found.items() if theirs}


def check_mapping(mapping: Mapping[str, str]) -> None:
    """Check that a mapping goes from fields to names of columns.

    Raises:
        DataError: naming the field that does not exist.
    """
    for ours, theirs in mapping.items():
        if ours not in NAMES or not isinstance(theirs, str):
            raise DataError(
                f"mapping gives {theirs!r} for {ours!r}: fields are {', '.join(NAMES)}",
                code="ACC901",
                hint=suggest(str(ours), NAMES) or "Write mapping={'reward': 'name of the column'}",
            )


def mapping_hint(columns: Collection[str], *wanted: str) -> str:
    """Return the mapping to give for some columns; a field that is not told by its name has ``...``.

    Example:
        >>> mapping_hint(["score"])
        "Say which column holds what: mapping={'reward': 'score'} (--map reward=score)"
    """
    found = known_columns(columns) | dict.fromkeys(wanted, "...")
    words = " ".join(f"--map {ours}={theirs}" for ours, theirs in found.items())
    return f"Say which column holds what: mapping={found!r} ({words})"
