"""The command line: one verb a file; nouns are files.

Exit codes: 0 done, 1 findings, 2 usage, 3 data, 4 back end, 130 interrupted.
"""

from __future__ import annotations

import errno
import importlib
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

import click

import accredit
from accredit.errors import AccreditError, ParamError, ProbeError, suggest

__all__ = ["main", "run"]

VERBS = (
    "check",
    "convert",
    "show",
    "probe",
    "assign",
    "plan",
    "truth",
    "compare",
    "report",
    "methods",
    "bench",
    "resume",
    "demo",
)
DONE, FINDINGS, USAGE, DATA, BACKEND, INTERRUPTED = 0, 1, 2, 3, 4, 130
CLOSED_PIPE = 141  # as a program that SIGPIPE ended


class Verbs(click.Group):
    """Loads a verb's file when it is asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the verbs in the order in which they are used."""
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return a verb's command, None if there is no such verb."""
        if cmd_name not in VERBS:
            return None
        command: click.Command = importlib.import_module(f"accredit.cli.{cmd_name}").command
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the verb that the arguments begin with; the nearest one is named if there is none."""
        if args and args[0] not in VERBS and not args[0].startswith("-"):
            ctx.fail(f"no command {args[0]!r}. {suggest(args[0], VERBS)}")
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the verb; a reader that went away (``| head``) is no error of ours."""
        try:
            found = super().invoke(ctx)
            sys.stdout.flush()
        except BrokenPipeError:
            # What is still buffered goes nowhere, or the interpreter would complain at its end.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            ctx.exit(CLOSED_PIPE)
        return found


@click.group(cls=Verbs, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(accredit.__version__, prog_name="accredit")
def verbs() -> None:
    """Which decisions of a rollout earned its reward?

    FILE is rollouts: JSON Lines (.gz, .zst) or Parquet. Every verb has --help and --json.
    """


def main(args: Sequence[str] | None = None) -> NoReturn:
    """Run the command line and leave the process with its exit code.

    Args:
        args: the words after ``accredit``; None: those of this process.
    """
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # closed by who started us, as ``>&-`` does
            setattr(sys, name, Path(os.devnull).open("w", encoding="utf-8"))  # noqa: SIM115 - until the end
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(
                errors="backslashreplace"
            )  # a terminal that lacks a letter still gets the rest
    sys.exit(run(args))


def run(args: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code; errors are one line on standard error."""
    try:
        words = sys.argv[1:] if args is None else list(args)
        found = verbs.main(words, "accredit", standalone_mode=False, obj=words)
    except click.Abort:
        return _say(
            "interrupted; files are written whole or not at all, so run the same command again", INTERRUPTED
        )
    except click.ClickException as error:
        error.show()
        return USAGE
    except AccreditError as error:
        return _say(str(error), _code_of(error))
    except OSError as error:
        return _say(_sentence(error), DATA)
    except MemoryError:
        return _say("not enough memory for this file. Split it by group, or drop token signals", DATA)
    return found if isinstance(found, int) else DONE


def _code_of(error: AccreditError) -> int:
    if isinstance(error, ParamError):
        return USAGE
    return BACKEND if isinstance(error, ProbeError) else DATA


def _sentence(error: OSError) -> str:
    name = f" {error.filename!r}" if error.filename else ""
    if error.errno == errno.ENOSPC:
        return f"ACC804: no space left on the disk to write{name}. Free some, or write elsewhere"
    return f"ACC804:{name} cannot be read or written: {error.strerror or error}"


def _say(message: str, code: int) -> int:
    from accredit.views.plain import one_line  # ids and paths in it are somebody's text

    text = one_line(message)
    click.echo(text if text.startswith("ACC") else f"accredit: {text}", err=True)
    return code
