"""Reading speed and memory: a 65 MB JSON Lines file into a Batch, all checks on, one core.

`python -m bench.reading --measure FILE` prints the figures of one file as JSON.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from bench.memory import MIB, resident_extra
from bench.timing import Contestant, race

ROOT = Path(__file__).parents[1]
STEPS, TOKENS = 20, 200
REPEATS = 5


def write_sample(path: Path, rollouts: int) -> None:
    """Rollouts with states, actions, rewards, token ids and log-probabilities."""
    import numpy as np

    rng = np.random.default_rng(0)
    with path.open("w") as out:
        for r in range(rollouts):
            steps = [
                {
                    "state": f"room {t % 7}: a door leads north",
                    "action": f"go {t}",
                    "reward": 0.0,
                    "tokens": rng.integers(0, 50_000, TOKENS).tolist(),
                    "logprobs": [round(-float(x), 5) for x in rng.exponential(1, TOKENS)],
                }
                for t in range(STEPS)
            ]
            record = {"id": f"r{r}", "group": f"g{r // 8}", "reward": float(r % 2), "steps": steps}
            out.write(json.dumps(record) + "\n")


def measure(path: Path) -> dict[str, Any]:
    """Best of several readings in this process, and the memory that the first one took."""
    from accredit.readers import read

    read([])
    peak = resident_extra(lambda: read(path))
    batch = read(path)
    arrays = [c.values for c in batch.columns.values()] + [batch.token_start_S1, batch.step_start_R1]
    columns = sum(a.nbytes for a in arrays)
    timings = race({"read": Contestant(lambda _: read(path)), **_yardstick(path)}, REPEATS)
    return {
        "file_bytes": path.stat().st_size,
        "seconds": timings["read"].to_dict(),
        "bare_decode": timings["decode"].to_dict() if "decode" in timings else None,
        "column_bytes": columns,
        "peak_bytes": None if peak is None else peak * MIB,
        "allowed_bytes": 2 * columns + 200 * 2**20,
        "rollouts": len(batch),
        "tokens": batch.n_tokens,
    }


def _yardstick(path: Path) -> dict[str, Contestant]:
    """The JSON decoder alone on the same lines, which makes Python objects and no columns."""
    import msgspec

    if path.suffix != ".jsonl":
        return {}
    lines = path.read_bytes().splitlines()
    decode = msgspec.json.Decoder().decode
    return {"decode": Contestant(lambda _: [decode(line) for line in lines])}


def _isolated(path: Path) -> dict[str, Any]:
    """Measure in a fresh process, so that one reading's memory is not another's peak."""
    alone = {"OMP_NUM_THREADS": "1", "ARROW_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-m", "bench.reading", "--measure", str(path)],
        env=os.environ | alone,
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
    )
    if done.returncode:
        raise SystemExit(f"reading {path.name} failed:\n{done.stderr}")
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def reading_section(rollouts: int) -> dict[str, Any]:
    """Time and memory of the same rollouts as JSONL, compressed JSONL and Parquet."""
    from accredit.readers import convert

    with tempfile.TemporaryDirectory() as folder:
        plain = Path(folder) / "rollouts.jsonl"
        write_sample(plain, rollouts)
        kinds = ("jsonl.gz", "jsonl.zst", "parquet")
        paths = {"jsonl": plain} | {k: convert(plain, plain.with_suffix(f".{k}")).path for k in kinds}
        found = {kind: _isolated(path) for kind, path in paths.items()}
    return {"rollouts": rollouts, "steps": STEPS, "tokens": TOKENS, "files": found}


if __name__ == "__main__":
    print(json.dumps(measure(Path(sys.argv[2]))))
