"""A code-repair workspace: find the planted bug, run the tests in a sandbox, submit."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from accredit.errors import ParamError, suggest
from accredit.worlds.programs import PROGRAMS, source_of
from accredit.worlds.protocol import Cost
from accredit.worlds.sandbox import Limits, Sandbox
from accredit.worlds.textworld import COMMANDS
from accredit.worlds.workspaces import Copies, Folders, GitTrees, folder_digest

__all__ = ["RepairTask", "RepairWorld", "repair_task"]

HORIZON = 8
FILE = "module.py"
LIMITS = Limits(seconds=5.0)
_TOLD, _TESTS = 3, 40  # failures that a run tells, and tests
_LARGEST = 100_000  # characters of a module
# Answers leave the sandbox, the right ones never enter it: what runs there cannot know what to say.
_RUNNER = """
import json, os, sys
out = os.fdopen(os.dup(1), "w")
os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
os.dup2(1, 2)
asked = json.load(sys.stdin)
answers = []
try:
    space = {"__name__": "module"}
    exec(compile(open("module.py", encoding="utf-8").read(), "module.py", "exec"), space)
    run = space[asked["name"]]
except BaseException as error:
    answers = [{"error": type(error).__name__}] * len(asked["inputs"])
else:
    for given in asked["inputs"]:
        try:
            answers.append({"answer": run(*given)})
        except BaseException as error:
            answers.append({"error": type(error).__name__})
json.dump(answers, out, default=repr)
out.flush()
os._exit(0)
"""


@dataclass(frozen=True, slots=True)
class RepairTask:
    """A function with bugs, and tests of it.

    Args:
        name: of the function.
        text: what it should do.
        lines: of the module as it is given.
        choices: for lines by number (1-based), the lines that may stand there, the given ones among them.
        right: lines of a module without bugs.
        inputs: arguments of the tests.
        answers: what the right function returns.
    """

    name: str
    text: str
    lines: tuple[str, ...]
    choices: Mapping[int, tuple[str, ...]]
    right: tuple[str, ...]
    inputs: tuple[Any, ...]
    answers: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class _Token:
    files: Any
    said: str
    taken: int
    done: bool


class RepairWorld:
    """Takes ``set line N to TEXT``, ``run tests`` and ``submit``; 1 if all tests then pass, else 0.

    Code runs in a `Sandbox` only.  Snapshots save the workspace, a folder of its own, as a tree of git
    objects or as a copy.

    Args:
        seed: of the task.
        bugs: planted, 1-3.
        snapshots: ``git`` or ``copy``.
        free: ``write`` with a whole module after a line break is taken too, and `actions` lists none.
        unsandboxed: run the code as yourself: only for code that you trust.
        limits: of a run of the tests.
        horizon: actions after which an episode is cut and pays 0.

    Raises:
        SandboxError: if there is no sandbox here and it is not ``unsandboxed``.
    """

    exact_snapshot = True
    snapshot_cost = 0.0
    deterministic = True
    side_effects = False

    def __init__(
        self,
        seed: int = 0,
        *,
        bugs: int = 1,
        snapshots: Literal["git", "copy"] = "git",
        free: bool = False,
        unsandboxed: bool = False,
        limits: Limits = LIMITS,
        horizon: int = HORIZON,
    ) -> None:
        if snapshots not in ("git", "copy") or horizon < 1:
            raise ParamError(f"snapshots are git or copy, horizon >= 1; got {snapshots!r}, {horizon}")
        self.task = repair_task(seed, bugs)
        self._sandbox = Sandbox(limits, unsandboxed=unsandboxed)
        self._own = tempfile.TemporaryDirectory(prefix="accredit-repair-")
        self.folder = Path(self._own.name)
        self.folder.chmod(0o755)  # who runs the tests is nobody, and may read
        self._write("\n".join(self.task.lines))
        self._trees: Folders = GitTrees(self.folder) if snapshots == "git" else Copies(self.folder)
        self._first = self._trees.save()
        self._ran: dict[str, list[str]] = {}  # failures by digest of the workspace
        self._free, self._horizon = free, horizon
        self._said, self._taken, self._done = "", 0, True
        self.cost = Cost()

    def solution(self) -> tuple[str, ...]:
        """Return actions that mend the module."""
        pairs = enumerate(zip(self.task.lines, self.task.right, strict=True), 1)
        edits = [f"set line {n} to {right.strip()}" for n, (given, right) in pairs if given != right]
        return ("run tests", *edits, "run tests", "submit")

    def reset(self, seed: int) -> str:
        """Begin an episode; a task has one beginning, whatever the seed."""
        self._trees.back(self._first)
        self._said, self._taken, self._done = "", 0, False
        return self.seen()

    def step(self, action: str) -> tuple[str, float, bool]:
        """Edit, test or submit.

        Raises:
            ParamError: if the episode is over or the action is not possible here.
        """
        source = action.partition("\n")[2] if self._free and action.startswith("write\n") else None
        if self._over or (source is None and action not in self._listed()):
            hint = "The episode is over" if self._over else suggest(action, self._listed())
            raise ParamError(f"cannot {action[:80]!r} here", hint=hint)
        self.cost.environment_steps += 1
        self._taken += 1
        if source is not None:
            self._write(source[:_LARGEST])
        elif action.startswith("set line "):
            number, _, text = action.removeprefix("set line ").partition(" to ")
            self._set(int(number), text)
        failures = self._failures() if action in ("run tests", "submit") else None
        self._done = action == "submit"
        self._said = self._told(failures) if action == "run tests" and failures is not None else ""
        return self.seen(), float(self._done and failures == []), self._over

    def _set(self, number: int, text: str) -> None:
        lines = self._source().split("\n")
        old = lines[number - 1]
        lines[number - 1] = old[: len(old) - len(old.lstrip())] + text
        self._write("\n".join(lines))

    def _source(self) -> str:
        return (self.folder / FILE).read_text("utf-8", "replace")

    def _write(self, source: str) -> None:
        (self.folder / FILE).write_text(source, "utf-8", "replace")

    def _failures(self) -> list[str]:
        """Return a line for each test that fails; equal workspaces are run once."""
        here = folder_digest(self.folder)
        if here not in self._ran:
            task = self.task
            given = json.dumps({"name": task.name, "inputs": task.inputs})
            ran = self._sandbox.run(_RUNNER, self.folder, given)
            self._ran[here] = _compared(task, "no answer in time" if ran.late else "no answer", ran.output)
        return self._ran[here]

    def _told(self, failures: list[str]) -> str:
        passed = len(self.task.inputs) - len(failures)
        return "\n".join([f"{passed} of {len(self.task.inputs)} tests pass.", *failures[:_TOLD]])

    @property
    def _over(self) -> bool:
        return self._done or self._taken >= self._horizon

    def actions(self) -> list[str] | None:
        """Return the edits to choose from, and the rest; none where the episode is over."""
        return [] if self._over else None if self._free else self._listed()

    def _listed(self) -> list[str]:
        lines = self._source().split("\n")
        edits = [
            f"set line {n} to {text.strip()}"
            for n, texts in self.task.choices.items()
            for text in texts
            if n <= len(lines) and lines[n - 1] != text
        ]
        return [*edits, "run tests", "submit"]

    def steps_left(self) -> int:
        """Return the rest of the horizon."""
        return self._horizon - self._taken

    def reseed(self, seed: int) -> None:
        """Nothing here is left to chance."""

    def seen(self) -> str:
        """Return the task, the module with line numbers, and what the tests said of it."""
        lines = [f"{n:3} {line}" for n, line in enumerate(self._source().split("\n"), 1)]
        parts = [f"Mend {FILE}. {self.task.text}.", *lines, self._said or "Tests were not run on this."]
        options = self.actions()
        return "\n".join(parts if options is None else [*parts, COMMANDS + "; ".join(options)])

    def key(self) -> str:
        """Return a digest of the workspace, and what is known of it."""
        state = "submitted" if self._done else "tested" if self._said else "not tested"
        return f"workspace {folder_digest(self.folder)[:16]} | {state}"

    def snapshot(self) -> Any:
        """Return the saved workspace, with what was said."""
        self.cost.snapshots += 1
        return _Token(self._trees.save(), self._said, self._taken, self._done)

    def restore(self, token: Any) -> str:
        """Go back to a snapshot, of any world of this process and task, which stays usable."""
        self.cost.restores += 1
        self._trees.back(token.files)
        self._said, self._taken, self._done = token.said, token.taken, token.done
        return self.seen()


def _compared(task: RepairTask, silent: str, output: str) -> list[str]:
    """Return a line for each answer that is not the right one."""
    try:
        answers = json.loads(output)
    except (ValueError, RecursionError):
        answers = None
    if not isinstance(answers, list) or len(answers) != len(task.inputs):
        answers = [{"error": silent}] * len(task.inputs)
    failures = []
    for given, wanted, got in zip(task.inputs, task.answers, answers, strict=True):
        right = isinstance(got, dict) and "answer" in got and _same(got["answer"], wanted)
        if not right:
            said = json.dumps(got)[:80]
            failures.append(f"{task.name}({', '.join(map(repr, given))}) should be {wanted!r}, got {said}")
    return failures


def _same(got: Any, wanted: Any) -> bool:
    """Return whether two answers are the same JSON: 1, 1.0 and true are not."""
    return json.dumps(got) == json.dumps(wanted)


def repair_task(seed: int, bugs: int = 1) -> RepairTask:
    """Return a function with planted bugs.

    Args:
        seed: of function, bugs and tests.
        bugs: lines that are wrong, 1-3.

    Raises:
        ParamError: for another number of bugs.
    """
    if not 1 <= bugs <= 3:
        raise ParamError(f"bugs are 1-3, got {bugs}")
    rng = np.random.default_rng([seed, 73])
    program = PROGRAMS[int(rng.integers(len(PROGRAMS)))]
    right = source_of(program)
    right = ["from typing import Any", "", "", *right]
    lines, choices = list(right), dict[int, tuple[str, ...]]()
    wrong = set(rng.permutation(len(program.spots))[:bugs].tolist())
    for i, (piece, others) in enumerate(program.spots.items()):
        (n,) = [n for n, line in enumerate(right) if piece in line]
        some = [right[n], *(right[n].replace(piece, other) for other in others)]
        if i in wrong:
            lines[n] = some[1 + int(rng.integers(len(others)))]
        choices[n + 1] = tuple(some[j] for j in rng.permutation(len(some)).tolist())
    inputs = tuple(program.inputs(rng) for _ in range(_TESTS))
    answers = tuple(program.right(*json.loads(json.dumps(given))) for given in inputs)
    return RepairTask(
        program.right.__name__, program.task, tuple(lines), choices, tuple(right), inputs, answers
    )
