"""Whether two log-probabilities may be subtracted: same temperature, dtype, back end, weights, ..."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from accredit.errors import DataError

__all__ = ["LIKE", "require_alike", "unlike"]

# What two columns of log-probabilities must share, where both say it.
LIKE = ("temperature", "mode", "dtype", "head_dtype", "backend", "weights", "model")


def unlike(
    one: Mapping[str, Any], other: Mapping[str, Any], allow: Collection[str] = ()
) -> dict[str, tuple[Any, Any]]:
    """Return in what two provenances differ, of those things that a difference of log-probs needs equal.

    What one of them does not say cannot differ: recorded columns often say nothing.

    Args:
        one: provenance of a column.
        other: provenance of another.
        allow: names of `LIKE` that may differ, e.g. ``weights`` of a teacher.

    Example:
        >>> unlike({"dtype": "float32", "backend": "vllm"}, {"dtype": "bfloat16", "backend": "vllm"})
        {'dtype': ('float32', 'bfloat16')}
    """
    both = (name for name in LIKE if name not in allow and name in one and name in other)
    return {name: (one[name], other[name]) for name in both if one[name] != other[name]}


def require_alike(
    first: str,
    one: Mapping[str, Any],
    second: str,
    other: Mapping[str, Any],
    allow: Collection[str] = (),
) -> None:
    """Refuse to subtract log-probabilities that were not made the same way.

    Args:
        first: name of a column.
        one: its provenance.
        second: name of another.
        other: its provenance.
        allow: names of `LIKE` that may differ.

    Raises:
        DataError: naming what differs.
    """
    apart = unlike(one, other, allow)
    if apart:
        told = ", ".join(f"{name} {a!r} and {b!r}" for name, (a, b) in apart.items())
        raise DataError(
            f"{first} and {second} must not be subtracted: they differ in {told}",
            code="ACC754",
            hint="Score both with the same back end; a column that is given without provenance says nothing",
        )
