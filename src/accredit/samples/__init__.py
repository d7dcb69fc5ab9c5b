"""Real rollouts that come with the package: a language model in text games (examples/textworld)."""

from __future__ import annotations

from importlib.resources import as_file, files
from pathlib import Path

from accredit.samples.signals import SIGNALS_KEY, SIGNALS_SCHEMA, call_digests, with_signals

__all__ = [
    "SIGNALS_KEY",
    "SIGNALS_SCHEMA",
    "call_digests",
    "names",
    "path",
    "tables_path",
    "truth_path",
    "with_signals",
]


def names() -> list[str]:
    """Return the names of the bundled files.

    Example:
        >>> "textworld" in names()
        True
    """
    return sorted(f.name.removesuffix(_SUFFIX) for f in files(__name__).iterdir() if f.name.endswith(_SUFFIX))


def path(name: str = "textworld") -> Path:
    """Return the path of a bundled file of rollouts.

    Args:
        name: without its ending, e.g. ``textworld``.

    Raises:
        KeyError: naming the files that are there.

    Example:
        >>> path("textworld").name
        'textworld.jsonl.gz'
    """
    if name not in names():
        raise KeyError(f"no bundled rollouts {name!r}; there are {', '.join(names())}")
    with as_file(files(__name__) / f"{name}{_SUFFIX}") as found:
        return found


def truth_path(name: str = "textworld") -> Path | None:
    """Return the path of the exact truth of bundled rollouts, None where there is none.

    It was made by ``accredit truth`` (see its header).

    Args:
        name: of the rollouts.

    Example:
        >>> truth_path("textworld").name
        'textworld-truth.parquet'
    """
    return _beside(f"{name}-truth.parquet")


def tables_path(name: str = "textworld") -> Path | None:
    """Return the path of the explored worlds of bundled rollouts, None where there is none.

    They were made by ``accredit truth --tables``, with the policy that played; `oracle.player_of` goes on
    in them without it.

    Args:
        name: of the rollouts.

    Example:
        >>> tables_path("textworld").name
        'textworld-tables.jsonl.zst'
    """
    return _beside(f"{name}-tables.jsonl.zst")


def _beside(name: str) -> Path | None:
    place = files(__name__) / name
    if not place.is_file():
        return None
    with as_file(place) as found:
        return found


_SUFFIX = ".jsonl.gz"
