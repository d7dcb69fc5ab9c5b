"""Runs code that is not trusted: no network, a system that can only be read, limits on everything.

Linux, with bubblewrap and util-linux.  Nothing of the caller's home, environment or processes is there.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from accredit.errors import ParamError, SandboxError

__all__ = ["INSTALL", "Limits", "Ran", "Sandbox"]

INSTALL = (
    "Install it: apt-get install bubblewrap (Debian, Ubuntu), dnf install bubblewrap (Fedora); "
    "or say unsandboxed=True to run this code as yourself"
)
WORKSPACE = "/workspace"
_NOBODY = "65534"
_MARK = "accredit-sandbox: ready"


@dataclass(frozen=True, slots=True)
class Limits:
    """What a run may use.

    Args:
        seconds: of wall time; the whole tree of processes ends then.
        memory: bytes of address space of each process.
        output: bytes that are read of what it prints, and of the largest file that it may write.
        processes: at a time.
    """

    seconds: float = 10.0
    memory: int = 512 * 2**20
    output: int = 2**20
    processes: int = 32

    def __post_init__(self) -> None:
        if self.seconds <= 0 or min(self.memory, self.output, self.processes) < 1:
            raise ParamError("limits must be above 0")


@dataclass(frozen=True, slots=True)
class Ran:
    """What a run came to.

    Args:
        status: exit status; negative: the signal that ended it.
        output: of stdout and stderr, text that nobody vouches for.
        late: whether it was ended for its wall time.
    """

    status: int
    output: str
    late: bool


class Sandbox:
    """Runs Python programs on a folder that they can read, in an empty system of their own.

    The folder is ``/workspace``, read-only; ``/tmp`` can be written and is gone afterwards; of the machine
    there are only ``/usr`` and this interpreter's own folder.  As root, programs run as nobody.

    Args:
        limits: of each run.
        unsandboxed: run as the caller instead, with time, memory and file limits only: for code that is
            trusted, where there is no bubblewrap.

    Raises:
        SandboxError: if bubblewrap or util-linux is missing, or cannot make a sandbox here.
    """

    def __init__(self, limits: Limits | None = None, *, unsandboxed: bool = False) -> None:
        self.limits = limits or Limits()
        self.unsandboxed = unsandboxed
        self._python = _interpreter()
        if not unsandboxed:
            self._tools = {name: _tool(name) for name in ("bwrap", "prlimit", "setpriv")}
            self._check()

    def _check(self) -> None:
        """Raise unless a sandbox can be made here."""
        own = Path(self._python).parents[1]
        if Path.home().is_relative_to(own):
            raise SandboxError(
                f"this Python lies in {own}: to show it would show your home", hint="Use another Python"
            )
        with tempfile.TemporaryDirectory() as folder:
            ran = self.run(f"print({_MARK!r})", Path(folder))
        if ran.status != 0 or ran.output.strip() != _MARK:
            raise SandboxError(
                f"bubblewrap cannot make a sandbox here: {ran.output.strip()[-200:]}", hint=INSTALL
            )

    def run(self, program: str, folder: Path, given: str = "") -> Ran:
        """Run a Python program; never raises for what the program does.

        Args:
            program: source; sees the standard library and ``/workspace``, its working directory.
            folder: shown as the workspace.
            given: on its stdin.
        """
        inner = [*self._limits(), self._python, "-I", "-B", "-c", program]
        command = inner if self.unsandboxed else [*self._jail(folder), *inner]
        with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as text:
            text.write(given.encode("utf-8", "surrogatepass"))
            text.seek(0)
            process = subprocess.Popen(
                command,
                stdin=text,
                stdout=out,
                stderr=subprocess.STDOUT,
                cwd=folder if self.unsandboxed else "/",
                env={"PATH": "/usr/bin:/bin"},
                start_new_session=True,
            )
            late = _waited(process, self.limits.seconds)
            out.seek(0)
            said = out.read(self.limits.output).decode("utf-8", "replace")
        return Ran(process.returncode, said, late)

    def _limits(self) -> list[str]:
        if self.unsandboxed:
            tool = shutil.which("prlimit")
            return [] if tool is None else [tool, *_rlimits(self.limits), "--"]
        found = [self._tools["prlimit"], *_rlimits(self.limits), f"--nproc={self.limits.processes}", "--"]
        if os.geteuid() == 0:  # the number of processes does not bind root
            drop = [f"--reuid={_NOBODY}", f"--regid={_NOBODY}", "--clear-groups", "--no-new-privs"]
            found += [self._tools["setpriv"], *drop, "--"]
        return found

    def _jail(self, folder: Path) -> list[str]:
        home = Path(self._python).parents[1]
        shown = list[str]()
        if not home.is_relative_to("/usr"):  # its parents are empty there, and nobody may pass them
            way = [("--perms", "0755", "--dir", str(at)) for at in reversed(home.parents[:-1])]
            shown = [*(part for parts in way for part in parts), "--ro-bind", str(home), str(home)]
        for name in ("bin", "sbin", "lib", "lib32", "lib64"):
            at = Path("/", name)
            if at.is_symlink():
                shown += ["--symlink", str(at.readlink()), str(at)]
            elif at.is_dir():
                shown += ["--ro-bind", str(at), str(at)]
        # As root the system is set up without a user namespace, and its last act is to become nobody.
        powers = ["--cap-drop", "ALL", *(f"--unshare-{what}" for what in ("ipc", "pid", "net", "uts"))]
        if os.geteuid() == 0:
            powers += ["--cap-add", "CAP_SETUID", "--cap-add", "CAP_SETGID"]
        else:
            powers += ["--unshare-user"]
        tools = [self._tools["bwrap"], "--die-with-parent", "--new-session", "--clearenv"]
        system = ["--ro-bind", "/usr", "/usr", *shown, "--proc", "/proc", "--dev", "/dev"]
        own = ["--perms", "1777", "--size", str(16 * self.limits.output), "--tmpfs", "/tmp"]
        work = ["--ro-bind", str(folder), WORKSPACE, "--chdir", WORKSPACE, "--setenv", "HOME", "/tmp"]
        return [*tools, *powers, *system, *own, *work, "--remount-ro", "/dev", "--remount-ro", "/", "--"]


def _interpreter() -> str:
    """Return this interpreter outside any virtual environment: what it needs lies in one folder."""
    name = f"python{sys.version_info.major}.{sys.version_info.minor}"
    found = Path(sys.base_prefix, "bin", name)
    return str(found if found.exists() else Path(sys.executable).resolve())


def _tool(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        raise SandboxError(f"{name} is not installed: code is not run without a sandbox", hint=INSTALL)
    return found


def _rlimits(limits: Limits) -> list[str]:
    seconds = int(limits.seconds) + 1
    sizes = {"as": limits.memory, "cpu": seconds, "fsize": limits.output, "nofile": 64, "core": 0}
    return [f"--{name}={size}" for name, size in sizes.items()]


def _waited(process: subprocess.Popen[bytes], seconds: float) -> bool:
    """Wait for a process; end it with all of its session when it is late; return whether it was."""
    late = False
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        late = True
    finally:  # whatever it left running ends too, and so it does when we are interrupted
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    return late
