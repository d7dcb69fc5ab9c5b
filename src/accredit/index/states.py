"""State keys: which states count as the same.

Keys are interned once; a method sees int codes and cannot depend on spelling.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

import numpy as np

from accredit.data import Batch, Column
from accredit.errors import ParamError, suggest
from accredit.index.similarity import near_codes, nearness_of
from accredit.typing import Ints, Scalar

__all__ = [
    "NORMALISERS",
    "Key",
    "Normaliser",
    "check_key",
    "final_state_codes",
    "key_column",
    "similar_clusters",
    "state_codes",
    "word_keys",
]

Normaliser: TypeAlias = Callable[[str], str]
_Matcher: TypeAlias = "difflib.SequenceMatcher[str]"
Key: TypeAlias = str | Callable[[Scalar], Scalar] | Sequence["str | Callable[[Scalar], Scalar]"]

_CLOCK = re.compile(
    r"\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d(?:\.\d+)?)?(?:Z|[+-]\d\d:?\d\d)?)?"
    r"|\b\d\d?:\d\d(?::\d\d(?:\.\d+)?)?\b"
)
_ID = re.compile(
    r"\b[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}\b|\b0x[0-9a-fA-F]+\b|\b(?=[0-9a-f]*\d)[0-9a-f]{12,}\b"
)
_ANSI = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]")

NORMALISERS: Mapping[str, Normaliser] = {
    "exact": lambda text: text,
    "strip-clocks": lambda text: _CLOCK.sub("<time>", text),
    "strip-ids": lambda text: _ID.sub("<id>", text),
    "strip-digits": lambda text: re.sub(r"\d+", "<n>", text),
    "strip-ansi": lambda text: _ANSI.sub("", text),
    "squash-space": lambda text: " ".join(text.split()),
    "casefold": lambda text: text.casefold(),
}


def word_keys(words: Sequence[Scalar], key: Key | None) -> Ints:
    """Return a dense code for each word: equal codes where the key makes them equal.

    Args:
        words: the vocabulary.
        key: a normaliser's name, several joined by ``+`` or in a list, or a callable.

    Raises:
        ParamError: if a normaliser is not known.
    """
    if key is None or key == "exact":
        return np.arange(len(words), dtype=np.int64)
    rules = _rules(key)
    table: dict[tuple[type, Scalar], int] = {}
    codes = np.empty(len(words), np.int64)
    for i, word in enumerate(words):
        for rule in rules:
            word = rule(word)
        codes[i] = table.setdefault((type(word), word), len(table))
    return codes


def _rules(key: Key) -> list[Callable[[Scalar], Scalar]]:
    if callable(key):
        return [_called(key)]
    if key == "exact":
        return []
    names = key.split("+") if isinstance(key, str) else list(key)
    return [_called(name) if callable(name) else _named(name.strip()) for name in names]


def _called(rule: Callable[[Scalar], Scalar]) -> Callable[[Scalar], Scalar]:
    """Return the user's function with its failures told as such."""

    def checked(word: Scalar) -> Scalar:
        try:
            found = rule(word)
        except Exception as error:  # whatever a user's function does
            raise ParamError(
                f"the key function failed on {_short(word)}: {type(error).__name__}: {error}"
            ) from error
        if not isinstance(found, str | int | float):
            raise ParamError(
                f"the key function returned {_short(found)} for {_short(word)}",
                hint="It must return a string, a number or true/false",
            )
        return found

    return checked


def check_key(key: object) -> None:
    """Check that a value can be a key at all.

    Raises:
        ParamError: naming what is allowed and what was got.
    """
    parts = key if isinstance(key, list | tuple) else [key]
    if key is not None and not all(isinstance(part, str) or callable(part) for part in parts):
        raise ParamError(
            f"key must be a name, a function, a list of them or None; got {_short(key)}",
            hint=f"Normalisers: {', '.join(NORMALISERS)}; or the name of a word column",
        )


def _named(name: str) -> Callable[[Scalar], Scalar]:
    if name not in NORMALISERS:
        raise ParamError(f"no state key {name!r}", hint=suggest(name, NORMALISERS))
    rule = NORMALISERS[name]
    return lambda word: rule(word) if isinstance(word, str) else word


def _short(value: object) -> str:
    return repr(value)[:60]


def state_codes(batch: Batch, key: Key | None) -> tuple[Ints, int]:
    """Return the state code of each step ``[S]`` and the number of codes.

    A step without a state gets a code of its own. ``key="text"`` (or any other word column's
    name, with normalisers joined by ``+``) takes that column as the state; ``similar:0.95`` and
    ``embedding:0.9`` join states that are nearly equal (`accredit.index.similarity`).

    Args:
        batch: must have the column.
        key: see `word_keys`.

    Raises:
        ParamError: for a key that is neither a normaliser nor a column.
        DataError: if the column is absent.
    """
    near = nearness_of(key)
    if near is not None:
        return near_codes(batch, near)
    column_name, rest = key_column(batch, key)
    column = batch.column(column_name)
    keys = word_keys(column.words or (), rest)
    return _own_codes(keys[column.values], int(keys.max(initial=-1)) + 1, column)


def final_state_codes(batch: Batch, key: Key | None) -> tuple[Ints, Ints, int]:
    """Return the state codes of steps ``[S]`` and of final states ``[R]`` in one code space.

    Args:
        batch: must have the state column; without ``final_state_R``, or where ``key`` names
            another column than the state, all final codes are -1 (not known).
        key: see `word_keys`.

    Returns:
        Step codes, final codes (-1 where absent), number of codes.
    """
    column_name, rest = key_column(batch, key)
    final = batch.columns.get("final_state_R")
    if final is None or column_name != "state_S" or nearness_of(key) is not None:
        codes, n = state_codes(batch, key)
        return codes, np.full(len(batch), -1, np.int64), n
    column = batch.column("state_S")
    words = (*(column.words or ()), *(final.words or ()))
    keys = word_keys(words, rest or [])
    split = len(column.words or ())
    codes, n = _own_codes(keys[:split][column.values], int(keys.max(initial=-1)) + 1, column)
    ends = np.where(final.mask(len(batch)), keys[split:][final.values], -1)
    return codes, ends, n


def _own_codes(codes: Ints, n: int, column: Column) -> tuple[Ints, int]:
    """Give each step without a state a code of its own, n and up."""
    if column.valid is None or column.valid.all():
        return codes, n
    missing = np.flatnonzero(~column.valid)
    codes = codes.copy()
    codes[missing] = n + np.arange(missing.size)
    return codes, n + missing.size


def key_column(batch: Batch, key: Key | None) -> tuple[str, Key | None]:
    """Return the column that a key takes as the state, and the normalisers that remain of the key.

    Args:
        batch: need not have the column ``state_S``.
        key: see `state_codes`.

    Raises:
        ParamError: if the key begins with no normaliser and no word column of the steps.

    Example:
        >>> steps = [{"observation": "At 10:30: a hall"}]
        >>> batch = Batch.from_records([{"id": "a", "group": "g", "steps": steps}])
        >>> key_column(batch, "observation+strip-clocks"), key_column(batch, "strip-clocks")
        (('observation_S', 'strip-clocks'), ('state_S', 'strip-clocks'))
    """
    near = nearness_of(key)
    if near is not None:
        vectors = near.kind == "embedding" and batch.has("embedding_S")
        return ("embedding_S" if vectors else "state_S"), None
    if isinstance(key, str):
        head, _, tail = key.partition("+")
        if head.strip() not in NORMALISERS:
            named = [
                name[:-2] for name, c in batch.columns.items() if c.level == "step" and c.words is not None
            ]
            if head not in named:
                raise ParamError(f"no state key {head!r}", hint=suggest(head, [*NORMALISERS, *named]))
            return f"{head}_S", tail or None
    return "state_S", key


def similar_clusters(
    texts: Sequence[str], groups: Sequence[int], threshold: float, *, autojunk: bool = False
) -> Ints:
    """Return greedy similarity clusters of texts inside groups, in the order given.

    A text joins the first cluster of its group whose first member is at least ``threshold``
    similar by `difflib.SequenceMatcher(None, text, member).ratio()`, else opens a new one.
    Order-dependent and not transitive (verl-agent's rule).

    Args:
        texts: ``[n]``.
        groups: group of each text.
        threshold: in (0, 1].
        autojunk: difflib's heuristic; True only to reproduce upstream.
    """
    heads: dict[int, list[tuple[_Matcher, int]]] = {}
    known: dict[tuple[int, str], int] = {}
    codes = np.empty(len(texts), np.int64)
    fresh = 0
    for i, (text, group) in enumerate(zip(texts, groups, strict=True)):
        code = known.get((group, text))
        if code is None:
            code = _first_similar(text, heads.setdefault(group, []), threshold)
            if code is None:
                code, fresh = fresh, fresh + 1
                matcher = difflib.SequenceMatcher(None, "", text, autojunk=autojunk)
                heads[group].append((matcher, code))
            known[group, text] = code
        codes[i] = code
    return codes


def _first_similar(text: str, heads: list[tuple[_Matcher, int]], threshold: float) -> int | None:
    for matcher, code in heads:
        matcher.set_seq1(text)
        # Both quick ratios are upper bounds, so skipping on them changes nothing.
        if matcher.real_quick_ratio() < threshold or matcher.quick_ratio() < threshold:
            continue
        if matcher.ratio() >= threshold:
            return code
    return None
