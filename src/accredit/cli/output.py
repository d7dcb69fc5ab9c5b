"""Results on standard output, notes and progress on standard error."""

from __future__ import annotations

import json
import math
import os
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

import click

from accredit.errors import ParamError

__all__ = ["Progress", "emit_json", "keep_this_command", "note", "progress", "refuse_input"]

_A_MINUTE = 60.0


class Progress(Protocol):
    """Called with what is done, what there is in all, and what comes now."""

    def __call__(self, done: int, total: int, now: str) -> None:
        """Tell where the work is."""


def emit_json(document: Any) -> None:
    """Write one JSON document; ASCII only, so that nothing in it can act on a terminal."""
    click.echo(json.dumps(_plain(document), indent=1, allow_nan=False))


def _plain(value: Any) -> Any:
    """Return a value as JSON has it; JSON has no infinity, so that is a word."""
    if isinstance(value, Mapping):
        return {str(k): _plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_plain(v) for v in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if value is None or isinstance(value, str | int | float | bool):
        return value
    return value.item() if hasattr(value, "item") else str(value)


def note(message: str) -> None:
    """Write one line to standard error, made harmless."""
    from accredit.views.plain import one_line

    click.echo(one_line(message), err=True)


def refuse_input(output: str | Path, source: str) -> None:
    """Refuse to write a result over what it was made from: the rollouts, or a file of their folder.

    Raises:
        ParamError: naming the output.
    """
    target, given = Path(output), Path(source)
    if not target.exists() or not given.exists():
        return
    inside = given.is_dir() and given.resolve() in target.resolve().parents and target.is_file()
    if inside or target.samefile(given):
        raise ParamError(
            f"-o {output} would replace the rollouts that are read", hint="Give the result another name"
        )


def keep_this_command(job: str | Path, *, again: str = "", not_again: str = "") -> None:
    """Keep the words of this command beside a job, for ``accredit resume``.

    Nothing is kept of a command that reads standard input, or has a key among its words.

    Args:
        job: journal or folder of the job.
        again: option that the second run needs.
        not_again: option that it must not have.
    """
    from accredit.resuming import kept_command
    from accredit.signals.client import KEYS

    context = click.get_current_context()
    words = [word for word in context.find_root().obj if word != not_again]
    if again and again not in words:
        words.insert(1, again)
    keys = [key for key in (os.environ.get(name, "").strip() for name in KEYS) if key]
    if "-" in words or any(key in word for word in words for key in keys):
        note("accredit resume will not know this command: it reads standard input or holds a key")
        return
    context.with_resource(kept_command(job, words))


@contextmanager
def progress(verb: str) -> Iterator[Progress]:
    """Show done / total, and time, on standard error: one line on a terminal, else one a minute.

    Args:
        verb: what is being done.
    """
    begin = last = time.monotonic()
    live = sys.stderr.isatty() and os.environ.get("TERM") != "dumb"

    def tell(done: int, total: int, now: str) -> None:
        nonlocal last
        spent = time.monotonic() - begin
        left = f", about {spent / done * (total - done):.0f} s left" if done and spent > 1 else ""
        line = f"{verb} {done}/{total}, {spent:.0f} s{left}: {now}"
        if live:
            click.echo(f"\r\x1b[2K{_clean(line)}", err=True, nl=False)
        elif time.monotonic() - last >= _A_MINUTE:
            last = time.monotonic()
            click.echo(_clean(line), err=True)

    try:
        yield tell
    finally:
        if live:
            click.echo("\r\x1b[2K", err=True, nl=False)


def _clean(text: str) -> str:
    from accredit.views.plain import one_line, shorten

    return shorten(one_line(text), 100)
