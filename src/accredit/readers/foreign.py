"""What readers of foreign formats share: values of a file one by one, careful access, scores, group ids.

A foreign format is a score and a function from one JSON value to rollouts:

    def _rollouts(value: Any, origin: Origin) -> Iterator[Rollout]: ...
    FORMAT = register(Format("name", "title", _score, from_records(_rollouts)))

`from_records` takes JSON Lines, a list in one document, one object, or rows of Parquet; `from_document`
hands over a whole document as one value. A value that raises `DataError` is excluded with its
place, the others are used.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from accredit.data import FindingLog, Rollout
from accredit.errors import DataError
from accredit.readers.document import elements, whole_text
from accredit.readers.formats import Head, Item, Reading, keys_at
from accredit.readers.parquet import as_json, parquet_rows
from accredit.typing import Json, Severity

__all__ = [
    "Origin",
    "Outcome",
    "Rollouts",
    "canonical",
    "converted",
    "element_keys",
    "from_document",
    "from_records",
    "in_letters",
    "inner_keys",
    "letters",
    "list_of",
    "mapping_of",
    "need",
    "number_of",
    "outcome_of",
    "rest_of",
    "reward_of",
    "task_group",
    "text_of",
    "top_keys",
    "values",
]

_SEVERITY: Mapping[str, Severity] = {
    "ACC853": "warning",
    "ACC854": "warning",
    "ACC857": "warning",
    "ACC858": "warning",
    "ACC860": "warning",
    "ACC861": "warning",
}


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a value stands, and the log that takes notes about it.

    Args:
        path: the file.
        where: file and line, element or member.
        number: of the value in the file, from 0.
        log: takes findings.
        reading: limits and decoder, for values inside values.
    """

    path: Path
    where: str
    number: int
    log: FindingLog
    reading: Reading

    @property
    def stem(self) -> str:
        """Name of the file without endings, with its folders below the folder that is read."""
        root = Path(self.reading.builder.source)
        place = self.path.relative_to(root) if root in self.path.parents else Path(self.path.name)
        return (place.parent / place.name.split(".")[0]).as_posix()

    @property
    def name(self) -> str:
        """Name by place, the same in every reading of the source: stem and number."""
        return f"{self.stem}-{self.number}"

    def note(self, code: str, message: str, *, hint: str = "", severity: Severity | None = None) -> None:
        """Record a finding about this value (info, unless the code's table says more)."""
        self.log.add(code, severity or _SEVERITY.get(code, "info"), message, where=self.where, hint=hint)

    def wrong(self, what: str, got: Any, allowed: str) -> DataError:
        """Return the error of a field of the wrong kind."""
        shown = repr(got)
        shown = shown if len(shown) <= 60 else shown[:57] + "..."
        return DataError(
            f"{what} must be {allowed}, got {shown}",
            code="ACC110",
            where=self.where,
            hint="Mend the record, or force another format with format=",
        )

    def loads(self, text: str) -> Any:
        """Return the JSON value of a text inside a value, under the same limits.

        Raises:
            DataError: if it is not JSON or passes a limit.
        """
        return self.reading.decoder.decode(text.encode("utf-8", "replace"), self.where)


Rollouts: TypeAlias = Callable[[Any, Origin], Iterable[Rollout]]


def from_records(convert: Rollouts) -> Callable[[Reading], Iterator[Item]]:
    """Return the `Format.items` of a format of one value a line, list element or Parquet row."""

    def items(reading: Reading) -> Iterator[Item]:
        number = -1
        for where, value in values(reading):
            number += 1
            yield from converted(convert, value, where, number, reading)

    return items


def from_document(convert: Rollouts) -> Callable[[Reading], Iterator[Item]]:
    """Return the `Format.items` of a format whose whole document is one value."""

    def items(reading: Reading) -> Iterator[Item]:
        name = reading.source.name
        value = reading.decoder.decode(whole_text(reading), name)
        yield from converted(convert, value, name, 0, reading)

    return items


def converted(convert: Rollouts, value: Any, where: str, number: int, reading: Reading) -> Iterator[Item]:
    """Yield the rollouts of one value (or the error that stands for it); an error is one item."""
    if isinstance(value, DataError):
        yield Item(where, value)
        return
    origin = Origin(reading.source.path, where, number, reading.builder.log, reading)
    try:
        for rollout in convert(value, origin):
            yield Item(where, rollout)
    except DataError as error:
        yield Item(where, error)


def values(reading: Reading) -> Iterator[tuple[str, Any]]:
    """Yield place and value (or its DataError) of each record.

    Records are rows of Parquet, lines if the first line is a whole object, else elements of a list.
    """
    if reading.source.magic.startswith(b"PAR1"):
        yield from ((where, as_json(row)) for where, row in parquet_rows(reading))
        return
    if not _in_lines(reading):
        yield from elements(reading)
        return
    for number, line in reading.source.lines():
        where = reading.source.place(number)
        if isinstance(line, DataError):
            yield where, line
        elif line.strip():
            yield where, _decoded(reading, line, where)


def _in_lines(reading: Reading) -> bool:
    for _, line in reading.source.lines():
        if isinstance(line, DataError):
            return True
        if text := line.strip():
            return text.startswith(b"{") and text.endswith(b"}")
    return True


def _decoded(reading: Reading, line: bytes, where: str) -> Any:
    try:
        return reading.decoder.decode(line, where)
    except DataError as error:
        return error


# -- recognising ----------------------------------------------------------------------------


def top_keys(head: Head) -> frozenset[str]:
    """Return the keys of a file's first object, as far as its beginning shows them; columns of Parquet."""
    if head.columns and not head.note:
        return frozenset(head.columns)
    if isinstance(head.first, Mapping):
        return frozenset(map(str, head.first))
    return keys_at(head.text, 1) if head.text.lstrip()[:1] == b"{" else frozenset()


def element_keys(head: Head) -> frozenset[str]:
    """Return the keys of the first objects of a file that is one list, as far as its beginning shows them."""
    return keys_at(head.text, 2) if head.text.lstrip()[:1] == b"[" else frozenset()


def inner_keys(head: Head) -> frozenset[str]:
    """Return the keys of the objects inside a file's first object, as far as its beginning shows them."""
    return keys_at(head.text, 2) if head.text.lstrip()[:1] == b"{" else frozenset()


# -- careful access -------------------------------------------------------------------------


def mapping_of(value: Any) -> Mapping[str, Any]:
    """Return an object, or an empty one in place of anything else."""
    return value if isinstance(value, Mapping) else {}


def list_of(value: Any) -> list[Any]:
    """Return a list, or an empty one in place of anything else."""
    return value if isinstance(value, list) else []


def text_of(value: Any) -> str:
    """Return a text: strings as they are, None as "", anything else as its canonical JSON."""
    if isinstance(value, str):
        return value
    return "" if value is None else canonical(value)


def number_of(value: Any) -> float | None:
    """Return a finite number, or None in place of anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        found = float(value)
    except OverflowError:
        return None
    return found if math.isfinite(found) else None


_KINDS = {"list": "a list", "dict": "an object", "str": "a string"}


def need(record: Any, key: str, kind: type[Any], origin: Origin) -> Any:
    """Return a field that must be there and of a kind.

    Raises:
        DataError: naming the field and what was got.
    """
    if not isinstance(record, Mapping):
        raise origin.wrong("a record", record, "an object")
    value = record.get(key)
    if not isinstance(value, kind):
        raise origin.wrong(key, value, _KINDS[kind.__name__])
    return value


def rest_of(record: Mapping[str, Any], *used: str) -> dict[str, Json] | None:
    """Return the fields that nothing has used, None if there are none; they become metadata."""
    return {k: v for k, v in record.items() if k not in used and v is not None} or None


# -- scores and groups ----------------------------------------------------------------------

_GRADES = {"C": 1.0, "I": 0.0, "P": 0.5, "N": 0.0}


def reward_of(value: Any) -> float | None:
    """Return a score as a number: bool -> 0/1, "C" "I" "P" "N" -> 1 0 0.5 0, a numeral -> itself, else None.

    Example:
        >>> [reward_of(v) for v in (True, "C", "P", "0.25", 2, None, "good", float("nan"))]
        [1.0, 1.0, 0.5, 0.25, 2.0, None, None, None]
    """
    if isinstance(value, bool):
        return float(value)
    if isinstance(value, str):
        if value in _GRADES:
            return _GRADES[value]
        try:
            return number_of(float(value))
        except ValueError:
            return None
    return number_of(value)


class Outcome(NamedTuple):
    """A rollout's outcome and its named components, either None if not known."""

    reward: float | None = None
    rewards: dict[str, float | None] | None = None


def outcome_of(value: Any, origin: Origin) -> Outcome:
    """Return the outcome of a score or an object of named scores.

    Of several named scores the one called ``reward`` or ``score`` is the outcome; without such a name the
    rollout stays unscored and keeps the components, with a finding.
    """
    if not isinstance(value, Mapping):
        found = reward_of(value)
        if found is None and value is not None:
            origin.note(
                "ACC854",
                f"the score {str(value)[:40]!r} is no number and no grade: the rollout stays unscored",
                hint="Map it to a number and give it as reward",
            )
        return Outcome(found)
    named = {str(k): reward_of(v) for k, v in value.items()}
    main: str | None = next((k for k in ("reward", "score") if k in named), None)
    if main is None and len(named) == 1:
        main = next(iter(named))
    if main is None and named:
        shown = ", ".join(list(named)[:8])
        origin.note(
            "ACC854",
            f"several scores and none called reward ({shown}): the rollout stays unscored",
            hint="Choose one of the columns rewards.<name>, and give it as reward",
        )
    return Outcome(named[main] if main is not None else None, named or None)


def canonical(value: Any) -> str:
    """Return the canonical JSON text of a value: sorted keys, no spaces.

    Example:
        >>> canonical({"b": [1, 2], "a": None})
        '{"a":null,"b":[1,2]}'
    """
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, default=str)


def letters(*parts: str) -> str:
    """Return 32 letters that stand for some texts in order (128 bits of BLAKE2b).

    Only the letters a to p occur, so key normalisers that strip digits or ids leave them alone.

    Example:
        >>> letters("ab") != letters("a", "b"), len(letters())
        (True, 32)
    """
    digest = blake2b(digest_size=16)
    for part in parts:
        raw = part.encode("utf-8", "surrogatepass")
        digest.update(len(raw).to_bytes(8, "big"))
        digest.update(raw)
    return in_letters(digest.digest())


def in_letters(digest: bytes) -> str:
    """Return a digest written with the letters a to p."""
    return digest.hex().translate(_TO_LETTERS)


_TO_LETTERS = str.maketrans("0123456789abcdef", "abcdefghijklmnop")


def task_group(origin: Origin, *parts: Any) -> str | None:
    """Return a group id that stands for a task's content, with a note; None if there is no content."""
    texts = [text_of(part) for part in parts if part]
    if not any(texts):
        return None
    origin.note(
        "ACC856",
        "the file names no task: groups are made of equal task contents",
        hint="Give the id of the task, if equal prompts are different tasks or one task has several prompts",
    )
    return f"task-{letters(*texts)}"
