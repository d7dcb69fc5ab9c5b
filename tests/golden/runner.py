"""Run golden files: read, adapt, assign, compare every value of every expected key."""

from __future__ import annotations

import importlib
import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from accredit.data import Batch
from accredit.engine import assign
from accredit.errors import AccreditError
from tests.golden.interface import ADAPTERS, STANDARD, Call, Golden, GoldenError

for module in sorted(Path(__file__).parent.glob("adapters_*.py")):
    importlib.import_module(f"tests.golden.{module.stem}")


@dataclass(frozen=True)
class Outcome:
    """What became of one file; ``reason`` is empty where it passed."""

    file: str
    method: str
    values: int = 0
    worst: float = 0.0
    reason: str = ""

    def line(self) -> str:
        """Return the line that is printed for the file."""
        if self.reason:
            return " ".join(f"FAIL {self.file} {self.method} {self.reason}".split())
        return f"PASS {self.file} {self.method} {self.values} values max diff {self.worst:.1e}"


def run_file(path: Path) -> Outcome:
    """Return the outcome of one golden file; nothing is raised."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        return Outcome(path.name, "?", reason=f"cannot be read: {error}")
    return run_content(path.name, content)


def run_content(name: str, content: Any) -> Outcome:
    """Return the outcome of the content of a golden file."""
    method = str(content.get("method", "?")) if isinstance(content, dict) else "?"
    try:
        values, worst = _run(content)
    except GoldenError as error:
        return Outcome(name, method, reason=str(error))
    except AccreditError as error:
        return Outcome(name, method, reason=f"assign raised {type(error).__name__}: {error}")
    except Exception as error:  # noqa: BLE001 - one file's crash must not hide the others' results
        return Outcome(name, method, reason=f"crashed with {type(error).__name__}: {error}")
    return Outcome(name, method, values, worst)


def _run(content: Any) -> tuple[int, float]:
    golden, expected, tolerance = _checked(content)
    if golden.method not in ADAPTERS:
        raise GoldenError(f"unknown method {golden.method!r}; known are {', '.join(sorted(ADAPTERS))}")
    call = ADAPTERS[golden.method](golden)
    if golden.left_over():
        raise GoldenError("; ".join(golden.left_over()))
    unknown = sorted(set(expected) - set(call.read))
    if unknown:
        raise GoldenError(f"unknown expected key {unknown[0]!r}; known are {', '.join(sorted(call.read))}")
    credit = assign(_batch(golden, call), call.method, **call.kwargs)
    pairs = [pair for key, want in expected.items() for pair in _pairs(key, want, call.read[key](credit))]
    if not pairs:
        raise GoldenError("nothing is expected")
    return len(pairs), max(_difference(place, want, got, tolerance) for place, want, got in pairs)


def _checked(content: Any) -> tuple[Golden, dict[str, Any], float]:
    if not isinstance(content, dict):
        raise GoldenError("is not a JSON object")
    absent = [k for k in ("method", "params", "rollouts", "expected", "tolerance") if k not in content]
    if absent:
        raise GoldenError(f"has no {absent[0]!r}")
    kinds = {"method": str, "params": dict, "rollouts": list, "expected": dict}
    for key, kind in kinds.items():
        if not isinstance(content[key], kind):
            raise GoldenError(f"{key!r} is a {type(content[key]).__name__}")
    tolerance = content["tolerance"]
    if isinstance(tolerance, bool) or not isinstance(tolerance, int | float) or not 0 <= tolerance < 1:
        raise GoldenError(f"'tolerance' is {tolerance!r}")
    if not content["expected"]:
        raise GoldenError("nothing is expected")
    inputs = {k: v for k, v in content.items() if k not in STANDARD}
    golden = Golden(content["method"], content["params"], content["rollouts"], inputs)
    return golden, content["expected"], float(tolerance)


def _batch(golden: Golden, call: Call) -> Batch:
    records = golden.records if call.records is None else call.records
    batch = Batch.from_records(records)
    if batch.excluded:
        raise GoldenError(f"{len(batch.excluded)} rollouts cannot be read: {batch.excluded[0].reason}")
    return batch


def _pairs(place: str, want: Any, got: Any) -> Iterator[tuple[str, Any, Any]]:
    """Yield every expected leaf with its place and what we have there; shapes must match."""
    if isinstance(want, dict) or isinstance(got, dict):
        if not (isinstance(want, dict) and isinstance(got, dict) and set(want) == set(got)):
            raise GoldenError(f"{place}: expected {_shown(want)}, got {_shown(got)}")
        for key in want:
            yield from _pairs(f"{place}[{key!r}]", want[key], got[key])
    elif isinstance(want, list) or isinstance(got, list):
        if not (isinstance(want, list) and isinstance(got, list)):
            raise GoldenError(f"{place}: expected {_shown(want)}, got {_shown(got)}")
        if len(want) != len(got):
            raise GoldenError(f"{place}: expected {len(want)} entries, got {len(got)}")
        for i, (w, g) in enumerate(zip(want, got, strict=True)):
            yield from _pairs(f"{place}[{i}]", w, g)
    else:
        yield place, want, got


def _difference(place: str, want: Any, got: Any, tolerance: float) -> float:
    if not _number(want):
        if want is None or isinstance(want, float):
            raise GoldenError(f"{place}: expected is {want!r}, which no value can be compared with")
        if type(want) is not type(got) or want != got:
            raise GoldenError(f"{place}: expected {want!r}, got {got!r}")
        return 0.0
    if not _number(got):
        raise GoldenError(f"{place}: expected {want!r}, got {got!r}")
    apart = abs(got - want)
    if not apart <= tolerance * max(1.0, abs(want)):
        raise GoldenError(f"{place}: expected {want!r}, got {got!r} (tolerance {tolerance:g})")
    return float(apart)


def _number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def files_of(arguments: Sequence[str]) -> list[Path]:
    """Return the golden files that arguments name; a folder stands for its JSON files."""
    found: list[Path] = []
    for argument in arguments:
        path = Path(argument)
        found += sorted(path.glob("*.json")) if path.is_dir() else [path]
    return found
