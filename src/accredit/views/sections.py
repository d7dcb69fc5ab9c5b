"""Sections of a page that are made apart: each between two marks, replaced as a whole."""

from __future__ import annotations

import re

__all__ = ["section", "with_sections"]

_MARKED = re.compile(r"<!-- (?P<name>[\w-]+): begin[^\n]*?-->.*?<!-- (?P=name): end -->", re.DOTALL)


def section(name: str, made_by: str, body: str) -> str:
    """Return a section between its marks.

    Args:
        name: of the section; a page has one of each name.
        made_by: the command that makes it.
        body: Markdown.
    """
    return f"<!-- {name}: begin, made by {made_by} -->\n\n{body}\n\n<!-- {name}: end -->"


def with_sections(page: str, other: str) -> str:
    """Return a page with the marked sections of another put in, in place of its own of the same names.

    Args:
        page: Markdown.
        other: sections, or another page whose sections are taken over.

    Example:
        >>> one, two = (section("learning", "us", word) for word in ("first", "second"))
        >>> page = with_sections(with_sections("text", one), two)
        >>> page.count("first"), page.count("second")
        (0, 1)
    """
    for found in _MARKED.finditer(other):
        name, text = found["name"], found.group()
        bare = _MARKED.sub(lambda own, name=name: "" if own["name"] == name else own.group(), page)  # type: ignore[misc]
        page = f"{bare.rstrip()}\n\n{text}\n"
    return page
