"""What was promised, what was measured, and whether it was met."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

__all__ = ["Target", "targets"]

Results = Mapping[str, Mapping[str, Any]]


class Target(NamedTuple):
    """One promise; `met` compares the figure, not its rounding."""

    claim: str
    measured: str
    met: bool


def targets(results: Results) -> list[Target]:
    """Every promise whose section was measured at full size."""
    judges = {
        "outcome": _outcome,
        "parity": _parity,
        "gigpo": _gigpo,
        "growth": _growth,
        "reading": _reading,
        "spans": _spans,
        "tokens": _tokens,
    }
    found: list[Target] = []
    for name, judge in judges.items():
        if name in results:
            found += judge(results[name])
    return found


def _outcome(section: Mapping[str, Any]) -> Iterator[Target]:
    for row in section["rows"]:
        what = f"`{row['method']}`, {row['rows']:,} rows"
        ratio = row["ratio"]
        loop = ratio["verl loop"]
        yield Target(f"{what}: at least 20x faster than verl's loop", f"{loop:.0f}x", loop >= 20)
        for form, said in (
            ("verl vectorised", "verl's vectorised form as its trainer calls it"),
            ("verl vectorised, integer groups", "that form given integer groups"),
        ):
            yield Target(f"{what}: not slower than {said}", f"{ratio[form]:.1f}x its speed", ratio[form] >= 1)


def _parity(section: Mapping[str, Any]) -> Iterator[Target]:
    for row in section["rows"]:
        yield Target(
            f"`{row['method']}` equals verl's {row['form']} form on ragged batches, {section['tolerance']:g}",
            f"{row['worst']:.1e} apart",
            row["worst"] <= section["tolerance"],
        )


def _gigpo(section: Mapping[str, Any]) -> Iterator[Target]:
    columns, records = section["columns"], section["records"]
    whole = columns["assign and tokens"]["best_s"]
    size = f"{section['steps']:,} steps / {section['tokens'] / 1e6:.0f} M tokens"
    yield Target(f"`gigpo`, {size}, from columns: under 0.06 s", f"{whole:.3f} s", whole < 0.06)
    for kind, said in (("counts", "token counts"), ("arrays", "numpy arrays of token ids")):
        taken = records[kind]["best_s"]
        yield Target(f"`gigpo`, {size}, from records with {said}: under 1 s", f"{taken:.2f} s", taken < 1)
    ratio = columns["token spread alone"]["best_s"] / columns["memory copy"]["best_s"]
    yield Target("token spread within 2x of a plain memory copy", f"{ratio:.2f}x", ratio <= 2)


def _growth(section: Mapping[str, Any]) -> Iterator[Target]:
    span = f"{section['steps'][0]:,} to {section['steps'][-1]:,} steps"
    for row in section["rows"]:
        yield Target(
            f"`{row['method']}`: exponent of time against size, fitted over {span}, at most 1.1",
            f"{row['exponent']:.2f} (steepest neighbours {row['steepest']:.2f})",
            row["exponent"] <= 1.1,
        )


def _tokens(section: Mapping[str, Any]) -> Iterator[Target]:
    for row in section["rows"]:
        what = f"`{row['method']}`, {row['tokens'] / 1e6:.0f} M tokens on one core: under 2 s"
        if "seconds" in row:
            taken = row["seconds"]["best_s"]
            yield Target(what, f"{taken:.2f} s", taken < 2)
        elif "too_slow" in row:
            few = row["too_slow"]
            yield Target(what, f"{few['seconds']:.3g} s for {few['tokens']:,} tokens", met=False)
        else:
            yield Target(what, "not run", met=False)


def _reading(section: Mapping[str, Any]) -> Iterator[Target]:
    figures = section["files"]["jsonl"]
    speed = figures["file_bytes"] / figures["seconds"]["best_s"] / 1e6
    peak, allowed = figures["peak_bytes"], figures["allowed_bytes"]
    yield Target("reading JSONL: 100 MB/s a core or better", f"{speed:.0f} MB/s", speed >= 100)
    if peak is not None:
        yield Target(
            "reading JSONL: peak memory at most 2x the columns + 200 MiB",
            f"{peak / 2**20:.0f} of {allowed / 2**20:.0f} MiB",
            peak <= allowed,
        )


def _spans(section: Mapping[str, Any]) -> Iterator[Target]:
    for row in section["rows"]:
        what = f"`shear`, {row['data']}"
        over, unpruned = row["over_scipy"], row["over_unpruned"]
        yield Target(f"{what}: within 2x of the SciPy calls that it needs", f"{over:.2f}x", over <= 2)
        yield Target(f"{what}: pruning pays for itself", f"{unpruned:.2f} of the time without", unpruned <= 1)
