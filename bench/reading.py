"""Reading speed and memory: a 65 MB JSON Lines file into a Batch, all checks on, one core.

    python bench/reading.py [megabytes]

Prints one line a measurement and writes `bench/out/reading.json`.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

OUT = Path(__file__).parent / "out" / "reading.json"
STEPS, TOKENS, ROLLOUTS = 20, 200, 1000
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


def _peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def measure(path: Path) -> dict[str, Any]:
    """Best of several readings in this process, and the memory that the first one took."""
    from accredit.readers import read

    read([])
    before = _peak()
    times = []
    for _ in range(REPEATS):
        begin = time.perf_counter()
        batch = read(path)
        times.append(time.perf_counter() - begin)
        if len(times) == 1:
            peak = _peak() - before
    arrays = [c.values for c in batch.columns.values()] + [batch.token_start_S1, batch.step_start_R1]
    columns = sum(a.nbytes for a in arrays)
    size = path.stat().st_size
    return {
        "file_bytes": size,
        "seconds": min(times),
        "mb_per_s": size / min(times) / 1e6,
        "column_bytes": columns,
        "peak_bytes": peak,
        "allowed_bytes": 2 * columns + 200 * 2**20,
        "rollouts": len(batch),
        "tokens": batch.n_tokens,
    }


def _isolated(path: Path) -> dict[str, Any]:
    """Measure in a fresh process, so that one reading's memory is not another's peak."""
    alone = {"OMP_NUM_THREADS": "1", "ARROW_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, __file__, "--measure", str(path)],
        env=os.environ | alone,
        capture_output=True,
        text=True,
        check=True,
    )
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def main() -> None:
    rollouts = int(sys.argv[1]) * ROLLOUTS // 65 if len(sys.argv) > 1 else ROLLOUTS
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        plain = Path(folder) / "rollouts.jsonl"
        write_sample(plain, rollouts)
        paths = {"jsonl": plain}
        from accredit.readers import convert

        for kind in ("jsonl.gz", "jsonl.zst", "parquet"):
            begin = time.perf_counter()
            paths[kind] = convert(plain, plain.with_suffix(f".{kind}")).path
            print(f"write {kind:10} {time.perf_counter() - begin:6.2f} s  {paths[kind].stat().st_size / 1e6:6.1f} MB")
        text = plain.stat().st_size
        for kind, path in paths.items():
            found[kind] = row = _isolated(path)
            row["text_mb_per_s"] = text / row["seconds"] / 1e6
            print(
                f"read  {kind:10} {row['seconds']:6.2f} s  {row['text_mb_per_s']:6.0f} MB/s of text  "
                f"peak {row['peak_bytes'] / 2**20:5.0f} MiB of {row['allowed_bytes'] / 2**20:.0f} allowed "
                f"(columns {row['column_bytes'] / 2**20:.0f})"
            )
    OUT.parent.mkdir(exist_ok=True)
    OUT.write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    if sys.argv[1:2] == ["--measure"]:
        print(json.dumps(measure(Path(sys.argv[2]))))
    else:
        main()
