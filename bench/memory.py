"""Peak extra memory of one call, each in a process of its own.

`python -m bench.memory CASE SIZE` prints one JSON object. The resident peak counts everything
(torch's tensors too); tracemalloc counts what Python and numpy ask for.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tracemalloc
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

__all__ = ["MIB", "memory_section", "resident_extra"]

MIB = float(1 << 20)
CASES = ("accredit grpo", "verl grpo loop", "verl grpo vectorised", "accredit gigpo", "accredit gigpo steps")


def memory_section(size: int) -> dict[str, Any]:
    """Peak extra memory of each case at `size` rows (steps for gigpo)."""
    return {"size": size, "rows": [{"case": case, **_in_process(case, size)} for case in CASES]}


def _in_process(case: str, size: int) -> dict[str, Any]:
    root = Path(__file__).parents[1]
    command = [sys.executable, "-m", "bench.memory", case, str(size)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=root, check=False)
    if done.returncode:
        raise SystemExit(f"{case} failed:\n{done.stderr}")
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def _call(case: str, size: int) -> Callable[[], Any]:
    from accredit import assign
    from bench.inputs import agent_columns, outcome_columns

    if case.startswith("accredit gigpo"):
        agent = agent_columns(size)
        if case.endswith("steps"):
            return lambda: assign(agent.batch(), "gigpo").steps
        return lambda: assign(agent.batch(), "gigpo").tokens
    source = outcome_columns(size)
    if case == "accredit grpo":
        return lambda: assign(source.batch(), "grpo").tokens
    return _peer_call(case, source)


def _peer_call(case: str, source: Any) -> Callable[[], Any]:
    import numpy as np

    from bench.outcome import TOKENS
    from bench.peers import peer_input, peers

    mask = np.ones((len(source.ids), TOKENS), bool)
    given = peer_input(source.columns["reward_R"].values, mask, source.group_R.astype(np.int64))
    run = peers()["grpo"][case.rpartition(" ")[2]]
    return lambda: run(given)


def _status(field: str) -> float:
    """A field of this process's status in MiB (Linux)."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field + ":"):
            return int(line.split()[1]) / 1024
    raise KeyError(field)


def resident_extra(call: Callable[[], Any]) -> float | None:
    """Peak resident MiB above what was there before the call; None where Linux's counters are absent.

    Not `ru_maxrss`: a child inherits its parent's.
    """
    reset = Path("/proc/self/clear_refs")
    if not reset.exists():
        return None
    reset.write_text("5")  # the peak starts anew at what is resident now
    before = _status("VmRSS")
    result = call()
    extra = _status("VmHWM") - before
    del result
    return extra


def _traced_extra(call: Callable[[], Any]) -> float:
    tracemalloc.start()
    result = call()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    del result
    return peak / MIB


def main(arguments: Sequence[str]) -> None:
    case, size = arguments[0], int(arguments[1])
    _call(case, 96)()  # imports and first-use tables are not the call's memory
    call = _call(case, size)
    print(json.dumps({"resident_mib": resident_extra(call), "traced_mib": _traced_extra(call)}))


if __name__ == "__main__":
    main(sys.argv[1:])
