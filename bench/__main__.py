"""`python -m bench [SECTION ...] [--small] [--out DIR] [--docs FILE]`."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "RAY_DISABLE_IMPORT_WARNING"):
    os.environ[_name] = "1"  # read by numpy and torch when they are imported, which is later

ROOT = Path(__file__).parents[1]
SECTIONS = ("outcome", "parity", "gigpo", "growth", "memory", "catalogue", "tokens", "reading", "spans")


def sections(*, small: bool) -> Mapping[str, Callable[[], dict[str, Any]]]:
    """What each section runs, at full size or at a size for tests."""
    from bench.catalogue import catalogue_section
    from bench.growth import growth_section
    from bench.memory import memory_section
    from bench.outcome import outcome_section
    from bench.parity import parity_section
    from bench.reading import reading_section
    from bench.spans import spans_section
    from bench.state_groups import gigpo_section
    from bench.token_methods import tokens_section

    if small:
        return {
            "outcome": lambda: outcome_section((96, 480), 1),
            "parity": lambda: parity_section(3),
            "gigpo": lambda: gigpo_section(960, 1),
            "growth": lambda: growth_section((96, 480), 1),
            "memory": lambda: memory_section(960),
            "catalogue": lambda: catalogue_section((96, 480), 1),
            "tokens": lambda: tokens_section(96, 1, tokens=13),
            "reading": lambda: reading_section(4),
            "spans": lambda: spans_section(2, 110, 8, 1),
        }
    return {
        "outcome": lambda: outcome_section((1_000, 10_000, 100_000), 9),
        "parity": lambda: parity_section(40),
        "gigpo": lambda: gigpo_section(100_000, 9),
        "growth": lambda: growth_section((1_000, 10_000, 100_000, 1_000_000), 7),
        "memory": lambda: memory_section(100_000),
        "catalogue": lambda: catalogue_section((10_000, 100_000), 5),
        "tokens": lambda: tokens_section(77_000, 5),
        "reading": lambda: reading_section(1_000),
        "spans": lambda: spans_section(4, 300, 256, 3),
    }


def main(arguments: Sequence[str] | None = None) -> None:
    """Run sections, keep their results as JSON, and write the page."""
    from bench.machine import machine, moment
    from bench.write_docs import write_docs

    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("section", nargs="*", help=f"default all: {', '.join(SECTIONS)}")
    parser.add_argument("--small", action="store_true", help="sizes for a test, not for figures")
    parser.add_argument("--out", type=Path, default=ROOT / "bench" / "out")
    parser.add_argument("--docs", type=Path, default=ROOT / "docs" / "performance.md")
    given = parser.parse_args(arguments)
    todo = sections(small=given.small)
    unknown = set(given.section) - set(todo)
    if unknown:
        parser.error(f"no section {', '.join(sorted(unknown))}; there are {', '.join(SECTIONS)}")
    given.out.mkdir(parents=True, exist_ok=True)
    for name in given.section or SECTIONS:
        print(f"bench: {name} ...", file=sys.stderr, flush=True)
        before = moment()
        result = {**todo[name](), "small": given.small, "machine": machine(), "moment": before}
        (given.out / f"{name}.json").write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    write_docs(given.out, given.docs)
    print(f"bench: {given.docs}", file=sys.stderr)


if __name__ == "__main__":
    main()
