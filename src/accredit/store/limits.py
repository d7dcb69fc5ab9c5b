"""How much a file may ask for, checked before memory is taken."""

from __future__ import annotations

from dataclasses import dataclass

from accredit.errors import DataError

__all__ = ["Limits"]

MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds of a reading; whatever passes one becomes a `DataError` that names it.

    Args:
        line_bytes: longest line (or Parquet row group, uncompressed).
        depth: deepest nesting of lists and objects in one record.
        containers: most lists and objects in one record (each costs memory many times its text).
        steps: most steps in one record.
        total_bytes: most bytes of a file after decompression.
        ratio: most bytes that one compressed byte may become, once ``ratio_from`` bytes came out.
        ratio_from: where ``ratio`` begins to count.

    Example:
        >>> Limits(line_bytes=1000).steps
        100000
    """

    line_bytes: int = 256 * MIB
    depth: int = 64
    containers: int = 4_000_000
    steps: int = 100_000
    total_bytes: int = 1 << 40
    ratio: int = 200
    ratio_from: int = 256 * MIB

    def check(self, what: str, got: int, name: str, where: str) -> None:
        """Raise if ``got`` is above the limit ``name``.

        Raises:
            DataError: naming both, and how to lift the limit.
        """
        allowed = getattr(self, name)
        if got > allowed:
            raise DataError(
                f"{what} {got:,}, more than the limit of {allowed:,}",
                code="ACC908",
                where=where,
                hint=f"If that is meant, read it in Python with limits=Limits({name}={got})",
            )
