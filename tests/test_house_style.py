"""The figures of the house style that no linter measures."""

from __future__ import annotations

import ast
import functools
import re
import statistics
from pathlib import Path

import accredit

PACKAGE = Path(accredit.__file__).parent
MODULES = sorted(f for f in PACKAGE.rglob("*.py") if "node_modules" not in f.parts)


@functools.cache
def _nodes(module: Path) -> list[ast.AST]:
    return list(ast.walk(ast.parse(module.read_text())))


@functools.cache
def _functions() -> list[tuple[int, str]]:
    """Lines of each function without its docstring, with its place."""
    sizes = []
    for module in MODULES:
        for node in _nodes(module):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                doc = ast.get_docstring(node, clean=False)
                lines = node.end_lineno - node.lineno + 1 - (doc.count("\n") + 1 if doc else 0)
                sizes.append((lines, f"{module.relative_to(PACKAGE)}:{node.lineno} {node.name}"))
    return sorted(sizes)


def test_no_function_is_longer_than_80_lines():
    assert [] == [where for lines, where in _functions() if lines > 80]


def test_half_of_the_functions_have_at_most_10_lines_and_nine_tenths_35():
    lines = [n for n, _ in _functions()]
    assert statistics.median(lines) <= 10
    assert statistics.quantiles(lines, n=10)[-1] <= 35


def test_no_module_is_longer_than_400_lines():
    assert [] == [str(m.relative_to(PACKAGE)) for m in MODULES if m.read_text().count("\n") > 400]


def test_no_module_is_named_utils():
    assert [] == [m.name for m in MODULES if m.stem in {"utils", "helpers", "common", "misc"}]


def test_no_code_is_left_for_later():
    later = re.compile(r"\b(TODO|FIXME|XXX|HACK)\b|raise NotImplementedError")
    found = [
        f"{m.relative_to(PACKAGE)}: {line.strip()}"
        for m in MODULES
        for line in m.read_text().splitlines()
        if later.search(line)
    ]
    assert [] == found


def _sums_by_reduceat(module: Path) -> bool:
    found = (n for n in _nodes(module) if isinstance(n, ast.Attribute))
    return any(n.attr == "reduceat" and getattr(n.value, "attr", "") == "add" for n in found)


def test_arrays_are_summed_by_reduceat_where_empty_rows_are_left_out_alone():
    """`np.add.reduceat` returns the next element for an empty step; `row_sum` does not."""
    found = [str(m.relative_to(PACKAGE)) for m in MODULES if _sums_by_reduceat(m)]
    assert ["index/segments.py"] == found
