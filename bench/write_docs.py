"""Make docs/performance.md of the results in bench/out: `python bench/write_docs.py`.

The prose is in bench/page, one file a section; this module fills in the tables.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from string import Template
from typing import Any

ROOT = Path(__file__).parents[1]
if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))

from bench.targets import targets  # noqa: E402  (found through the line above)

__all__ = ["page", "write_docs"]

Section = Mapping[str, Any]
PAGE = ROOT / "bench" / "page"
MARK = "<!-- Made by `make bench` (bench/write_docs.py); do not edit. -->"


def write_docs(out: Path, docs: Path) -> None:
    """Write the page of all results in `out`."""
    files = {name: out / f"{name}.json" for name in PARTS}
    results = {n: json.loads(f.read_text(encoding="utf-8")) for n, f in files.items() if f.exists()}
    docs.write_text(page(results), encoding="utf-8")


def page(results: Mapping[str, Section]) -> str:
    """The page as Markdown; a section without results is named at the end."""
    found = [MARK, _filled("introduction", _introduction(results))]
    for name, section in results.items():
        found += [_filled(name, PARTS[name](section)), _measured(section)]
    absent = [name for name in PARTS if name not in results]
    if absent:
        found.append(f"Not measured in this edition: {', '.join(absent)}.")
    return "\n\n".join(found) + "\n"


def _filled(name: str, values: Mapping[str, str]) -> str:
    return Template((PAGE / f"{name}.md").read_text(encoding="utf-8")).substitute(values).strip()


def _measured(section: Section) -> str:
    moment = section["moment"]
    said = f"Measured {moment['date']}, load average {moment['load']} when it began"
    walls = [t["wall_s"] / t["best_s"] for t in _timings(section)]
    return f"*{said}; wall time at most {max(walls):.2f} times the figures.*" if walls else f"*{said}.*"


def _timings(node: Any) -> list[Section]:
    """Every timing inside a section."""
    if isinstance(node, dict):
        inside = [t for value in node.values() for t in _timings(value)]
        return [node, *inside] if "wall_s" in node else inside
    return [t for value in node for t in _timings(value)] if isinstance(node, list) else []


def _introduction(results: Mapping[str, Section]) -> Mapping[str, str]:
    rows = targets({name: s for name, s in results.items() if not s["small"]})
    met = sum(t.met for t in rows)
    small = any(section["small"] for section in results.values())
    warning = "\n**Some sections ran at the small size that tests use: their figures mean nothing.**\n"
    machines = {_machine(s["machine"]): None for s in results.values()}
    return {
        "machine": "\n\n".join(machines),
        "warning": warning if small else "",
        "verdict": f"{met} of {len(rows)} targets are met." if rows else "No target was measured.",
        "targets": _table(
            ("target", "measured", "met"), [(t.claim, t.measured, "yes" if t.met else "**no**") for t in rows]
        ),
    }


def _machine(machine: Section) -> str:
    versions = ", ".join(f"{k} {v}" for k, v in machine["versions"].items() if v)
    where = f"{machine['processor']}, {machine['cores']} cores, {machine['system']}"
    return f"Machine: {where}; Python {machine['python']}, {versions}."


def _outcome(section: Section) -> Mapping[str, str]:
    names = list(section["rows"][0]["seconds"])
    body = [
        (
            f"`{row['method']}`",
            f"{row['rows']:,}",
            *(_timing(row["seconds"][n]) for n in names),
            f"{row['ratio']['verl loop']:.0f}",
            f"{row['ratio']['verl vectorised']:.1f} ({row['ratio']['verl vectorised, integer groups']:.1f})",
        )
        for row in section["rows"]
    ]
    return {
        "tokens": str(section["tokens_a_row"]),
        "table": _table(("method", "rows", *names, "loop", "vectorised"), body),
        "repeats": _repeats(s for row in section["rows"] for s in row["seconds"].values()),
    }


def _gigpo(section: Section) -> Mapping[str, str]:
    columns, records = section["columns"], section["records"]
    copy = columns["memory copy"]["best_s"]
    beside = [(name, _timing(t), f"{t['best_s'] / copy:.2f}") for name, t in columns.items()]
    read = [(kind.replace("+", " + "), _timing(t)) for kind, t in records.items()]
    return {
        "steps": f"{section['steps']:,}",
        "rollouts": f"{section['rollouts']:,}",
        "tokens": f"{section['tokens']:,}",
        "apart": f"{section['apart_from_sketch']:.0e}",
        "columns": _table(("from columns", "time", "in memory copies"), beside),
        "records": _table(("from Python records with tokens as …", "time"), read),
        "repeats": _repeats([*columns.values(), *records.values()]),
    }


def _growth(section: Section) -> Mapping[str, str]:
    body = [
        (
            f"`{row['method']}`",
            *(f"{_time(s)} ({w:.1f})" for s, w in zip(row["best_s"], row["worst_over_best"], strict=True)),
            f"{row['exponent']:.2f}",
            f"{row['steepest']:.2f}",
        )
        for row in section["rows"]
    ]
    sizes = [f"{s:,} steps" for s in section["steps"]]
    return {
        "tokens": str(section["tokens_a_step"]),
        "n": str(section["n"]),
        "table": _table(("method", *sizes, "exponent", "steepest"), body),
    }


def _memory(section: Section) -> Mapping[str, str]:
    body = [(row["case"], _mib(row["resident_mib"]), _mib(row["traced_mib"])) for row in section["rows"]]
    return {"size": f"{section['size']:,}", "table": _table(("call", "resident", "traced"), body)}


def _reading(section: Section) -> Mapping[str, str]:
    files = section["files"]
    text = files["jsonl"]["file_bytes"]
    header = ("file", "MB", "time", "MB/s of the file", "MB/s of the JSONL", "columns", "peak", "allowed")
    return {
        "rollouts": f"{section['rollouts']:,}",
        "steps": str(section["steps"]),
        "tokens": str(section["tokens"]),
        "megabytes": f"{text / 1e6:.0f}",
        "decoder": f"{text / files['jsonl']['bare_decode']['best_s'] / 1e6:.0f}",
        "table": _table(header, [_file(kind, figures, text) for kind, figures in files.items()]),
        "repeats": _repeats(figures["seconds"] for figures in files.values()),
    }


def _file(kind: str, figures: Section, text: int) -> tuple[str, ...]:
    size, best = figures["file_bytes"], figures["seconds"]["best_s"]
    memory = (figures["column_bytes"], figures["peak_bytes"], figures["allowed_bytes"])
    return (
        kind,
        f"{size / 1e6:.1f}",
        _timing(figures["seconds"]),
        f"{size / best / 1e6:.0f}",
        f"{text / best / 1e6:.0f}",
        *(_mib(None if b is None else b / 2**20) for b in memory),
    )


def _catalogue(section: Section) -> Mapping[str, str]:
    header = ("method", "yields", "time", "exponent")
    return {
        "small": f"{section['steps'][0]:,}",
        "steps": f"{section['steps'][-1]:,}",
        "tokens": f"{section['tokens'][-1] / 1e6:.1f}",
        "table": _table(header, [_method(row) for row in section["rows"]]),
        "repeats": _repeats(s for row in section["rows"] for s in row.get("seconds", ())),
    }


def _method(row: Section) -> tuple[str, ...]:
    if "not_run" in row:
        return (f"`{row['method']}`", row["yields"], f"not run: {row['not_run']}", "")
    if "elsewhere" in row:
        return (f"`{row['method']}`", row["yields"], f"in the section on {row['elsewhere']}", "")
    return (f"`{row['method']}`", row["yields"], _timing(row["seconds"][-1]), f"{row['exponent']:.2f}")


def _tokens(section: Section) -> Mapping[str, str]:
    header = ("method", "needs", "time", "M tokens a second")
    return {
        "steps": f"{section['steps']:,}",
        "tokens": f"{section['tokens'] / 1e6:.1f}",
        "table": _table(header, [_token_method(row) for row in section["rows"]]),
        "repeats": _repeats(row["seconds"] for row in section["rows"] if "seconds" in row),
    }


def _token_method(row: Section) -> tuple[str, ...]:
    needs = ", ".join(need.replace("|", " or ") for need in row["needs"])
    if "not_run" in row:
        return (f"`{row['method']}`", needs, f"not run: {row['not_run']}", "")
    if "too_slow" in row:
        few = row["too_slow"]
        return (f"`{row['method']}`", needs, f"{_time(few['seconds'])} for {few['tokens']:,} tokens", "")
    timing = row["seconds"]
    return (f"`{row['method']}`", needs, _timing(timing), f"{row['tokens'] / timing['best_s'] / 1e6:.0f}")


def _spans(section: Section) -> Mapping[str, str]:
    names = list(section["rows"][0]["seconds"])
    body = [
        (
            row["data"],
            f"{row['solved']:,} of {row['pairs']:,}",
            *(_timing(row["seconds"][name]) for name in names),
            f"{row['over_scipy']:.2f}",
            f"{row['over_unpruned']:.2f}",
        )
        for row in section["rows"]
    ]
    header = ("hidden states", "pairs solved", *names, "over SciPy alone", "over no pruning")
    return {
        "rollouts": str(section["rollouts"]),
        "tokens": f"{section['tokens']:,}",
        "width": str(section["width"]),
        "table": _table(header, body),
        "repeats": _repeats(s for row in section["rows"] for s in row["seconds"].values()),
    }


def _parity(section: Section) -> Mapping[str, str]:
    body = [(f"`{r['method']}`", r["form"], r["singleton"], f"{r['worst']:.1e}") for r in section["rows"]]
    names = [n for n in section["ties"][0] if n != "reward"]
    ties = [(f"{r['reward']:.4g}", *(f"{r[n]:.1e}" if r[n] else "0" for n in names)) for r in section["ties"]]
    return {
        "batches": str(section["batches"]),
        "tokens": f"{section['tokens']:,}",
        "singletons": str(section["singleton_groups"]),
        "table": _table(("method", "verl's form", "singleton", "largest difference"), body),
        "ties": _table(("reward of all eight", *names), ties),
    }


PARTS: Mapping[str, Callable[[Section], Mapping[str, str]]] = {
    "outcome": _outcome,
    "gigpo": _gigpo,
    "growth": _growth,
    "memory": _memory,
    "reading": _reading,
    "catalogue": _catalogue,
    "tokens": _tokens,
    "spans": _spans,
    "parity": _parity,
}


def _timing(timing: Section) -> str:
    median, worst = timing["spread"]
    return f"{_time(timing['best_s'])} ({median:.1f}, {worst:.1f})"


def _time(seconds: float) -> str:
    return f"{seconds * 1e3:.3g} ms" if seconds < 1 else f"{seconds:.3g} s"


def _repeats(timings: Iterable[Section]) -> str:
    counts = sorted({t["n"] for t in timings}) or [0]
    return f"Best of {counts[0]}." if len(counts) == 1 else f"Best of {counts[0]} to {counts[-1]}."


def _mib(value: float | None) -> str:
    if value is None:
        return "not measured"
    return f"{value:.0f}" if value >= 10 else f"{value:.1f}"


def _table(header: Sequence[str], body: Iterable[Sequence[str]]) -> str:
    rows = [f"| {' | '.join(row)} |" for row in body]
    return "\n".join([f"| {' | '.join(header)} |", f"|{'---|' * len(header)}", *rows])


if __name__ == "__main__":
    write_docs(ROOT / "bench" / "out", ROOT / "docs" / "performance.md")
