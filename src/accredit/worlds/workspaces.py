"""Snapshots of a folder: trees in a private git object store, or copies."""

from __future__ import annotations

import hashlib
import os
import shutil
import stat
import subprocess
import tempfile
from functools import lru_cache
from pathlib import Path
from typing import Any, Protocol

from accredit.errors import DataError, SandboxError

__all__ = ["Copies", "Folders", "GitTrees", "folder_digest"]

# Files are stored byte for byte, whatever a .gitattributes in the folder says.
_AS_THEY_ARE = "* -text -eol -ident -filter -working-tree-encoding\n"


class Folders(Protocol):
    """Saves and brings back what is in a folder; tokens are good for any folder of this process."""

    def save(self) -> Any:
        """Return a token of what is there."""
        ...

    def back(self, token: Any) -> None:
        """Make the folder what it was."""
        ...


class GitTrees:
    """Saves a folder as a tree of git objects, in a store of its own outside the folder.

    No commit is made and no repository of the user is touched.  The token is the tree's hash: equal
    contents, equal token.  Files, links and executable bits come back; empty folders and times do not.

    Args:
        folder: to save; it must not hold a ``.git``.

    Raises:
        SandboxError: if git is not installed.
        DataError: if there is a ``.git`` in the folder, whose contents git would leave out.
    """

    def __init__(self, folder: Path) -> None:
        git = shutil.which("git")
        if git is None:
            raise SandboxError("git is not installed", hint="Install git, or take snapshots='copy'")
        self._folder, self._git = folder, git
        self._store = tempfile.TemporaryDirectory(prefix="accredit-git-")
        self._objects = _objects(os.getpid())
        self._run("init", "-q")
        info = Path(self._store.name, "info")
        info.mkdir(exist_ok=True)
        (info / "attributes").write_text(_AS_THEY_ARE)

    def save(self) -> str:
        """Return the hash of the tree."""
        nested = next(self._folder.rglob(".git"), None)
        if nested is not None:
            raise DataError(
                f"{nested.relative_to(self._folder)} is a repository inside the workspace",
                hint="Git leaves its contents out: take snapshots='copy'",
            )
        self._run("add", "-A", "-f", ".")
        return self._run("write-tree").strip()

    def back(self, token: str) -> None:
        """Make the folder what the tree says, and nothing else in it."""
        self._run("add", "-A", "-f", ".")
        self._run("read-tree", "-u", "--reset", token)
        self._run("clean", "-f", "-f", "-d", "-x", "-q")

    def _run(self, *words: str) -> str:
        settings = (
            "core.hooksPath=/dev/null",
            "core.fsmonitor=false",
            "core.autocrlf=false",
            "core.fileMode=true",
        )
        said = [part for setting in settings for part in ("-c", setting)]
        ran = subprocess.run(
            [self._git, *said, *words],
            cwd=self._folder,
            env={
                "PATH": os.environ.get("PATH", ""),
                "GIT_DIR": self._store.name,
                "GIT_OBJECT_DIRECTORY": self._objects.name,
                "GIT_WORK_TREE": str(self._folder),
                "GIT_CONFIG_NOSYSTEM": "1",
                "GIT_CONFIG_GLOBAL": os.devnull,
            },
            capture_output=True,
            text=True,
            check=False,
        )
        if ran.returncode != 0:
            raise SandboxError(f"git {words[0]} failed: {ran.stderr.strip()[-200:]}")
        return ran.stdout


class Copies:
    """Saves a folder as a copy of it, empty folders and times included.

    Args:
        folder: to save.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def save(self) -> Any:
        """Return a new copy; it is removed when nobody holds it any more."""
        made = tempfile.TemporaryDirectory(prefix="accredit-copy-")
        shutil.copytree(self._folder, made.name, symlinks=True, dirs_exist_ok=True)
        return made

    def back(self, token: Any) -> None:
        """Make the folder what the copy is."""
        for entry in list(self._folder.iterdir()):
            if entry.is_dir() and not entry.is_symlink():
                shutil.rmtree(entry)
            else:
                entry.unlink()
        shutil.copytree(token.name, self._folder, symlinks=True, dirs_exist_ok=True)


@lru_cache(maxsize=1)
def _objects(process: int) -> tempfile.TemporaryDirectory[str]:
    """Return the store of objects of a process: all its workspaces share it."""
    return tempfile.TemporaryDirectory(prefix="accredit-objects-")


def folder_digest(folder: Path) -> str:
    """Return a digest of the files of a folder: names, contents, executable bits, targets of links."""
    said = hashlib.sha256()
    for at in sorted(folder.rglob("*")):
        mode = at.lstat().st_mode
        if stat.S_ISLNK(mode):
            kind, data = "link", os.fsencode(at.readlink())
        elif stat.S_ISREG(mode):
            kind, data = "program" if mode & stat.S_IXUSR else "file", at.read_bytes()
        else:
            continue
        name = os.fsencode(at.relative_to(folder))
        said.update(b"%s %d %d " % (kind.encode(), len(name), len(data)) + name + data)
    return said.hexdigest()
