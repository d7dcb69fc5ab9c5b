"""Jobs that did not end: the command is kept beside what was done, and run again."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import msgspec

from accredit.errors import DataError
from accredit.store.atomic import atomic_file

__all__ = ["keep_command", "kept_command", "resume"]

SCHEMA = "accredit.command/1"
VERBS = ("probe", "truth", "bench")  # those that keep what was done
_NAME = "command.json"
_GRACE = 10.0  # seconds that an interrupted command has to end in its own way


class _Command(msgspec.Struct):
    schema: str
    words: list[str]
    folder: str


def keep_command(job: str | Path, words: Sequence[str]) -> Path:
    """Keep the command of a job, so that `resume` can run it again; return the file.

    Args:
        job: journal of the job, or its folder (``.../`` or one that is there).
        words: after ``accredit``; keys are no part of them, since they come from the environment.
    """
    path = _beside(Path(job))
    with atomic_file(path) as out:
        out.write(msgspec.json.encode(_Command(SCHEMA, list(words), str(Path.cwd()))) + b"\n")
    return path


@contextmanager
def kept_command(job: str | Path, words: Sequence[str]) -> Iterator[None]:
    """Keep the command of a job while it runs; one that fails before it did anything leaves no trace.

    So a slip on the name of a journal does not replace the command that the journal belongs to.
    """
    path = _beside(Path(job))
    before = path.read_bytes() if path.is_file() else None
    begun = _done(Path(job), path)
    keep_command(job, words)
    try:
        yield
    except BaseException:
        if _done(Path(job), path) == begun:
            if before is None:
                path.unlink(missing_ok=True)
            else:
                with atomic_file(path) as out:
                    out.write(before)
        raise


def _done(job: Path, kept: Path) -> dict[Path, int]:
    """Return the size of each file that a job has written, its command aside."""
    beside = [p for p in kept.parent.iterdir() if p.name.startswith(job.name)] if kept.parent.is_dir() else []
    found = job.rglob("*") if job.is_dir() else beside
    return {p: p.stat().st_size for p in found if p.is_file() and p != kept}


def resume(job: str | Path, *, as_json: bool = False) -> int:
    """Run the command of a job that did not end once more, where it was run; what was done is kept.

    Only commands of the ``accredit`` command line keep themselves: ``probe``, ``truth --journal`` and
    ``bench -o``.  The command runs in a process of its own.

    Args:
        job: journal (``OUT.probe``, the FILE of ``--journal``) or folder (of ``bench -o``).
        as_json: write its result as JSON.

    Returns:
        Its exit code.

    Raises:
        DataError: if no command is kept there, or its folder is gone.

    Example:
        >>> resume("nothing-here.journal")
        Traceback (most recent call last):
            ...
        accredit.errors.DataError: no command is kept for nothing-here.journal. ...
    """
    kept = _kept(Path(job))
    words = (
        kept.words if not as_json or "--json" in kept.words else [*kept.words[:1], "--json", *kept.words[1:]]
    )
    with subprocess.Popen([sys.executable, "-m", "accredit", *words], cwd=kept.folder) as child:
        try:
            code = child.wait()
        except KeyboardInterrupt:  # a terminal tells the command, too
            try:
                code = child.wait(_GRACE)
            except subprocess.TimeoutExpired:
                child.terminate()
                code = child.wait()
    return code if code >= 0 else 128 - code


def _beside(job: Path) -> Path:
    return job / _NAME if job.is_dir() else job.with_name(f"{job.name}.{_NAME}")


def _kept(job: Path) -> _Command:
    path = _beside(job)
    try:
        found = msgspec.json.decode(path.read_bytes(), type=_Command)
    except FileNotFoundError:
        raise DataError(
            f"no command is kept for {job}",
            hint="Give the journal (OUT.probe, or the FILE of --journal) or the folder of bench -o",
        ) from None
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise DataError(f"{path} is damaged", hint="Run the command by hand: what was done is kept") from None
    if found.schema != SCHEMA or found.words[:1] not in [[verb] for verb in VERBS]:
        raise DataError(f"{path} holds no command that can be resumed", hint=f"Those are {', '.join(VERBS)}")
    if not Path(found.folder).is_dir():
        raise DataError(f"the folder {found.folder} in which the job was run is gone")
    return found
