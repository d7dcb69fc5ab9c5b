"""The rich console of standard output: colour on a terminal only, a fixed width elsewhere."""

from __future__ import annotations

import sys

from rich.console import Console

__all__ = ["PIPED_WIDTH", "console"]

PIPED_WIDTH = 110  # a pipe has no width; output to it must not depend on the terminal behind


class _Console(Console):
    """Leaves a pipe that its reader closed to the command line, as a plain write does."""

    def on_broken_pipe(self) -> None:
        """Let the error through; rich would end the process with exit code 1."""
        raise BrokenPipeError


def console(*, everything: bool = False) -> Console:
    """Return a console on which text is never read as markup.

    Args:
        everything: whether views may be longer than the screen.
    """
    piped = not sys.stdout.isatty()
    return _Console(
        file=sys.stdout,
        markup=False,
        emoji=False,
        highlight=False,
        width=PIPED_WIDTH if piped else None,
        height=10**9 if everything else None,
    )
