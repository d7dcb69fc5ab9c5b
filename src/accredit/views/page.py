"""One HTML page: a fixed script and style, data in blocks, a policy that lets nothing in or out."""

from __future__ import annotations

import base64
import hashlib
import html
from collections.abc import Iterable
from functools import cache
from importlib.resources import files

__all__ = ["asset", "policy", "write_page"]

_HEAD = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="referrer" content="no-referrer">
<meta name="generator" content="accredit">
<title>{title}</title>
<style>{style}</style>
</head>
<body>
<div id="app"><p>Opening the report …</p></div>
<noscript><p>This report draws its pictures with the script inside this file. Without it, read the same
numbers in a terminal: accredit show FILE -m METHOD.</p></noscript>
"""


@cache
def asset(name: str) -> str:
    """Return a built part of the page (``report.js``, ``report.css``) as committed."""
    return (files("accredit.views") / "assets" / name).read_text(encoding="utf-8")


def policy() -> str:
    """Return the page's Content-Security-Policy: nothing but its own script and style, by hash."""
    return (
        f"default-src 'none'; script-src '{_digest(asset('report.js'))}'; "
        f"style-src '{_digest(asset('report.css'))}'; base-uri 'none'; form-action 'none'"
    )


def write_page(title: str, index: str, blocks: Iterable[tuple[str, str]]) -> Iterable[str]:
    """Yield the text of a page piece by piece.

    Args:
        title: of the browser's window; any text.
        index: the packed index block.
        blocks: (name, packed block) of all others; they follow the script, so that the first paint
            does not wait for them.
    """
    yield _HEAD.format(policy=html.escape(policy()), title=html.escape(title), style=asset("report.css"))
    yield _block("index", index)
    yield f"<script>{asset('report.js')}</script>\n"
    for name, text in blocks:
        yield _block(name, text)
    yield "</body>\n</html>\n"


def _block(name: str, text: str) -> str:
    return f'<script type="application/octet-stream" id="block-{name}">{text}</script>\n'


def _digest(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode("ascii")
