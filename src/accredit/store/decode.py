"""One JSON line to one record, exactly: nothing lenient happens without a note.

msgspec decodes fast but keeps the last of two equal keys in silence. A duplicate shows in a count:
the members in the text against the members of the decoded objects. The count of colons alone
settles most lines; strings are tokenised only where it does not.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from typing import Any, NoReturn

import msgspec

from accredit.data import FindingLog
from accredit.data.sinks import number_rows
from accredit.errors import DataError
from accredit.store.limits import Limits

__all__ = ["Decoder", "count_keys", "count_members", "deeper", "known_only"]

_KEY = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"(\s*:)?')
_ESCAPE = re.compile(
    rb"\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|(u[dD][89a-fA-F][0-9a-fA-F]{2})|.)",
    re.DOTALL,
)
_decode = msgspec.json.Decoder().decode


class Decoder:
    """Decodes lines under limits.

    Args:
        limits: bounds of one record.
        log: takes notes of what was mended (NaN, lone surrogates).
        strict: treat as an error what would be mended.
    """

    def __init__(self, limits: Limits, log: FindingLog, *, strict: bool = False) -> None:
        self.limits = limits
        self.log = log
        self.strict = strict
        self._colons = False

    def decode(self, line: bytes, where: str) -> Any:
        """Return the line's JSON value.

        Raises:
            DataError: saying what is wrong with the line, and where in it.
        """
        if len(line) > self.limits.containers:
            opened = line.count(b"{") + line.count(b"[")
            self.limits.check("the record has lists and objects:", opened, "containers", where)
        try:
            value = _decode(line)
        except RecursionError:
            raise self._too_deep(where) from None
        except (msgspec.DecodeError, ValueError) as error:
            value = self._mended(line, str(error), where)
        else:
            self._check_keys(line, value, where)
        if self._may_be_deep(line, value) and deeper(value, self.limits.depth):
            raise self._too_deep(where)
        return value

    def _may_be_deep(self, line: bytes, value: Any) -> bool:
        """Whether there are brackets enough: most of a record's open side by side, not one in another."""
        opened = line.count(b"{") + line.count(b"[")
        if opened <= self.limits.depth:
            return False
        return opened - _shallow_containers(value) > self.limits.depth - _SHALLOW_DEPTH

    def _check_keys(self, line: bytes, value: Any, where: str) -> None:
        shallow = _shallow_members(value)
        # Texts with colons come in whole files; counting keys at once spares a pass over the line.
        if not self._colons and line.count(b":") == shallow:
            return
        keys = count_keys(line)
        self._colons = keys == shallow
        if keys == shallow or keys == count_members(value):
            return
        try:
            self._exactly(line.decode(), where)
        except RecursionError:
            raise self._too_deep(where) from None
        raise AssertionError("the exact decoder names the key that stands twice")

    def _too_deep(self, where: str) -> DataError:
        depth = self.limits.depth
        return DataError(
            f"the record is nested more than {depth} levels deep",
            code="ACC908",
            where=where,
            hint=f"If that is meant, read it in Python with limits=Limits(depth={10 * depth})",
        )

    # -- the slow, exact way ----------------------------------------------------------------

    def _mended(self, line: bytes, complaint: str, where: str) -> Any:
        """Decode a line that plain JSON rules refuse; name the trouble if it cannot be mended."""
        try:
            text = line.decode()
        except UnicodeDecodeError as error:
            raise _not_text(line, error, where) from None
        whole = _ESCAPE.sub(_without_lone, line)
        if whole != line:
            self._note("ACC907", "half of a surrogate pair, which is no character, is read as U+FFFD", where)
            text = whole.decode()
        try:
            value = self._exactly(text, where)
        except (ValueError, RecursionError) as error:
            if isinstance(error, DataError):
                raise
            raise _malformed(line, complaint, where) from None
        return value

    def _exactly(self, text: str, where: str) -> Any:
        """Decode by the standard library, which shows every pair of every object and every NaN."""
        odd: list[str] = []

        def constant(word: str) -> float:
            odd.append(word)
            return float(word)

        def number(digits: str) -> float:
            value = float(digits)
            if math.isinf(value):
                odd.append(digits[:20])
            return value

        def members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
            found = dict(pairs)
            if len(found) < len(pairs):
                _twice(pairs, where)
            return found

        value = json.loads(
            text, parse_constant=constant, parse_float=number, object_pairs_hook=members, parse_int=_integer
        )
        if odd:
            self._note("ACC906", f"{odd[0]} is not a JSON number: read as not known", where)
            value = known_only(value)
        return value

    def _note(self, code: str, message: str, where: str) -> None:
        hint = "Write null for what is not known" if code == "ACC906" else "Cut texts between characters"
        if self.strict:
            raise DataError(message, code=code, where=where, hint=hint)
        self.log.add(code, "warning", message, where=where, hint=hint)


def count_keys(line: bytes) -> int:
    """Return the number of object members in a line of valid JSON."""
    return sum(1 for colon in _KEY.findall(line) if colon)


def count_members(value: Any) -> int:
    """Return the number of members of all objects inside a decoded value."""
    total, level = 0, [value] if type(value) is dict or type(value) is list else []
    while level:
        below: list[Any] = []
        for item in level:
            inner: Any = item
            if type(item) is dict:
                total += len(item)
                inner = item.values()
            below += [v for v in inner if type(v) is dict or type(v) is list]
        level = below
    return total


def _shallow_members(value: Any) -> int:
    """Return the members of a record and of its steps, without what lies deeper."""
    if type(value) is not dict:
        return -1
    steps = value.get("steps")
    inner = sum(len(s) for s in steps if type(s) is dict) if type(steps) is list else 0
    return len(value) + inner


# Record, list of steps, step, value of a step.
_SHALLOW_DEPTH = 4


def _shallow_containers(value: Any) -> int:
    """Return the lists and objects of a record that lie no deeper than the values of its steps."""
    if type(value) is not dict:
        return 0
    steps = value.get("steps")
    inner = [s for s in steps if type(s) is dict] if type(steps) is list else []
    return (
        1 + sum(type(v) is dict or type(v) is list for d in (value, *inner) for v in d.values()) + len(inner)
    )


_NESTED = frozenset({dict, list})


def deeper(value: Any, depth: int) -> bool:
    """Return whether lists and objects are nested more than ``depth`` levels."""
    level = [value] if isinstance(value, dict | list) else []
    for _ in range(depth):
        # Most lists hold numbers alone, and looking at their types is a quarter of the work.
        parts = [item.values() if type(item) is dict else item for item in level]
        nested = [part for part in parts if not _NESTED.isdisjoint(map(type, part))]
        level = [v for part in nested for v in part if type(v) is dict or type(v) is list]
        if not level:
            return False
    return True


def known_only(value: Any) -> Any:
    """Return a record without NaN and infinity, except where the builder counts them itself.

    Those are the outcome, and the lists of one number, or one vector, a token.
    """
    if not isinstance(value, Mapping):
        return value
    found = {k: v if k in ("reward", "steps") else _finite(v, inside=True) for k, v in value.items()}
    steps = found.get("steps")
    if isinstance(steps, list):
        found["steps"] = [
            {k: _finite(v) for k, v in s.items()} if isinstance(s, dict) else _finite(s) for s in steps
        ]
    return found


def _finite(value: Any, *, inside: bool = False) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {k: _finite(v, inside=True) for k, v in value.items()}
    if isinstance(value, list):
        flat = not inside and (
            not any(isinstance(v, dict | list) for v in value) or number_rows(value) is not None
        )
        return value if flat else [_finite(v, inside=True) for v in value]
    return value


def _integer(digits: str) -> int:
    if len(digits) > 4000:
        raise ValueError("an integer has more than 4,000 digits")
    return int(digits)


def _without_lone(found: re.Match[bytes]) -> bytes:
    return b"\\ufffd" if found.group(1) else found.group(0)


def _twice(pairs: list[tuple[str, Any]], where: str) -> NoReturn:
    seen: set[str] = set()
    for key, _ in pairs:
        if key in seen:
            raise DataError(
                f"the key {key[:60]!r} stands twice in one object",
                code="ACC905",
                where=where,
                hint="Keep the one that is meant; which it is cannot be told from here",
            )
        seen.add(key)
    raise AssertionError("called only where a key stands twice")


def _not_text(line: bytes, error: UnicodeDecodeError, where: str) -> DataError:
    return DataError(
        f"byte {error.start + 1} of the line (0x{line[error.start]:02x}) is not UTF-8 text",
        code="ACC911",
        where=where,
        hint="Save the file as UTF-8: iconv -f latin1 -t utf-8",
    )


def _malformed(line: bytes, complaint: str, where: str) -> DataError:
    reason = complaint.removeprefix("JSON is malformed: ")
    if "truncated" in reason:
        reason = "it ends in the middle"
    return DataError(
        f"the line is not JSON: {reason}; it begins {_shown(line)}",
        code="ACC904",
        where=where,
        hint="Write one whole JSON object a line",
    )


def _shown(line: bytes) -> str:
    text = line[:40].decode("utf-8", "replace")
    return repr(text + ("…" if len(line) > 40 else ""))
