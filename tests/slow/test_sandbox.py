"""The sandbox, with real bubblewrap: what code in it cannot read, reach, write, outlive or use up."""

from __future__ import annotations

import os
import socket
import tempfile
import threading
import time
from pathlib import Path

import pytest

from accredit.worlds.repair import RepairWorld
from accredit.worlds.sandbox import Limits, Ran, Sandbox
from tests.worlds.promises import agrees_with_its_record, goes_on_as_before

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def sandbox() -> Sandbox:
    return Sandbox(Limits(seconds=8.0))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "module.py").write_text("x = 1\n")
    (tmp_path / "module.py").chmod(0o666)  # its own permissions forbid nothing
    tmp_path.chmod(0o777)
    return tmp_path


def tried(sandbox: Sandbox, folder: Path, program: str) -> Ran:
    ran = sandbox.run(program, folder)
    assert not ran.late, ran
    return ran


def test_the_workspace_can_be_read_and_so_can_what_is_on_stdin(sandbox, folder) -> None:
    ran = sandbox.run("print(open('module.py').read() + input())", folder, "said")
    assert (0, "x = 1\nsaid\n") == (ran.status, ran.output)


def test_home_and_the_rest_of_the_machine_cannot_be_read(sandbox, folder) -> None:
    outside = folder.parent / "outside"
    outside.write_text("hidden words")
    with tempfile.NamedTemporaryFile("w", dir=Path.home()) as own:
        own.write("hidden words")
        own.flush()
        Path(own.name).chmod(0o644)
        for path in (own.name, outside, "/etc/passwd", "/etc/shadow", Path(__file__), "/proc/1/environ"):
            ran = tried(sandbox, folder, f"print(open({str(path)!r}).read())")
            assert ran.status != 0, path
            assert "hidden" not in ran.output
            assert "FileNotFoundError" in ran.output or "PermissionError" in ran.output


def test_the_callers_environment_and_processes_are_not_there(sandbox, folder, monkeypatch) -> None:
    monkeypatch.setenv("ACCREDIT_SECRET", "secret")
    ran = tried(
        sandbox, folder, "import os; print(dict(os.environ), [p for p in os.listdir('/proc') if p.isdigit()])"
    )
    assert "secret" not in ran.output
    assert str(os.getpid()) not in ran.output.split("[")[1]


def test_there_is_no_network_not_even_to_this_machine(sandbox, folder) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        program = f"import socket; socket.create_connection(('127.0.0.1', {port}), 2)"
        assert 0 == Sandbox(unsandboxed=True).run(program, folder).status
        ran = tried(sandbox, folder, program)
        assert "ConnectionRefusedError" in ran.output
        ran = tried(sandbox, folder, "import socket; print([name for _, name in socket.if_nameindex()])")
        assert "['lo']" == ran.output.strip()


def test_nothing_but_its_own_tmp_can_be_written(sandbox, folder) -> None:
    for path in ("/workspace/new", "/workspace/module.py", "/usr/new", "/new", "/bin/new", "/dev/shm/new"):
        ran = tried(sandbox, folder, f"open({path!r}, 'w').write('x')")
        assert "OSError" in ran.output or "PermissionError" in ran.output, (path, ran)
    for program in ("os.symlink('/etc/passwd', '/workspace/l')", "os.remove('/workspace/module.py')"):
        assert tried(sandbox, folder, f"import os; {program}").status != 0
    assert [("module.py", "x = 1\n")] == [(at.name, at.read_text()) for at in folder.iterdir()]
    assert 0 == tried(sandbox, folder, "open('/tmp/a', 'w').write('x')").status
    assert "[]" == tried(sandbox, folder, "import os; print(os.listdir('/tmp'))").output.strip()


def test_it_is_nobody_without_powers(sandbox, folder) -> None:
    ran = tried(sandbox, folder, "import os; print(os.getuid()); print(open('/proc/self/status').read())")
    assert "0" != ran.output.splitlines()[0]
    powers = [line.split()[1] for line in ran.output.splitlines() if line.startswith(("CapEff", "CapPrm"))]
    assert ["0" * 16] * 2 == powers
    for program in ("os.setuid(0)", "os.chroot('/tmp')", "os.mknod('/tmp/d', 0o20666, os.makedev(1, 1))"):
        assert tried(sandbox, folder, f"import os; {program}").status != 0
    ran = tried(
        sandbox, folder, "import ctypes; print(ctypes.CDLL(None).mount(b'n', b'/tmp', b'tmpfs', 0, None))"
    )
    assert "-1" == ran.output.strip()


def test_a_fork_bomb_is_small_and_leaves_nothing_behind(folder) -> None:
    """Processes are limited in number, and all end with the first one."""
    sandbox = Sandbox(Limits(seconds=4.0, processes=16))
    mark = f"accredit-bomb-{os.getpid()}"
    program = f"""
import os, time
mark = {mark!r}
made = 0
while True:
    try:
        if os.fork() == 0:
            os.setsid()
            time.sleep(60)
        made += 1
    except OSError:
        break
print(made)
"""
    ran = sandbox.run(program, folder)
    assert 1 <= int(ran.output) < 16
    forever = program.replace("break", "time.sleep(0.01)")
    began = time.perf_counter()
    assert sandbox.run(forever, folder).late
    assert time.perf_counter() - began < 30
    time.sleep(0.2)
    assert not [p for p in Path("/proc").iterdir() if p.name.isdigit() and mark.encode() in _command(p)]


def _command(process: Path) -> bytes:
    try:
        return (process / "cmdline").read_bytes()
    except OSError:
        return b""


def test_time_memory_and_output_are_limited(folder) -> None:
    sandbox = Sandbox(Limits(seconds=3.0, memory=300 * 2**20, output=2**16))
    assert sandbox.run("while True: pass", folder).late
    assert sandbox.run("import time; time.sleep(60)", folder).late
    assert "MemoryError" in tried(sandbox, folder, "bytearray(10**9)").output
    ran = tried(sandbox, folder, "print('x' * 10**8, flush=True)")
    assert ran.status != 0
    assert len(ran.output) <= 2**16
    ran = tried(sandbox, folder, "f = open('/tmp/a', 'wb', 0); [f.write(b'x' * 2**16) for _ in range(99)]")
    assert ran.status != 0


def test_a_sandbox_can_be_used_beside_threads(sandbox, folder) -> None:
    found: list[Ran] = []
    threads = [
        threading.Thread(target=lambda: found.append(sandbox.run("print(1)", folder))) for _ in range(3)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [(0, "1\n")] * 3 == [(ran.status, ran.output) for ran in found]


@pytest.mark.parametrize("snapshots", ["git", "copy"])
def test_the_repair_world_keeps_its_promises_in_the_sandbox(snapshots) -> None:
    def make() -> RepairWorld:
        return RepairWorld(5, snapshots=snapshots)

    agrees_with_its_record(make, make().solution())
    goes_on_as_before(make, [0, 6], [6, 3, 6], [1, 6, 2])


def test_a_loop_without_end_fails_all_tests_in_time() -> None:
    world = RepairWorld(1, free=True, limits=Limits(seconds=2.0))
    world.reset(0)
    world.step(f"write\ndef {world.task.name}(*_):\n    while True: pass")
    assert "0 of 40 tests pass.\n" in world.step("run tests")[0]
    assert 0.0 == world.step("submit")[1]
