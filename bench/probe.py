"""`python -m bench.probe`: throughput of the rescoring probe beside a bare transformers forward.

Both get the same batch, the same model in the same process, and one thread; turns alternate.  The model
has the shape of SmolLM2-135M (30 layers, width 576, 49,152 ids) and random weights: speed does not
depend on their values.  Every token but the first of each sequence is a policy token, which is the
probe's worst case.  Needs torch and transformers.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
from collections.abc import Mapping, Sequence
from typing import Any

for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[_name] = "1"  # read by numpy and torch when they are imported, which is later

__all__ = ["probe_section"]

TARGETS = {"logprob": 0.85, "logprob,entropy": 0.75}
SHAPE = {
    "vocab_size": 49_152,
    "hidden_size": 576,
    "intermediate_size": 1536,
    "num_hidden_layers": 30,
    "num_attention_heads": 9,
    "num_key_value_heads": 3,
    "tie_word_embeddings": True,
}


def probe_section(
    sequences: int, length: int, n: int, dtype: str = "float32", head_dtype: str = "float32", **shape: int
) -> dict[str, Any]:
    """CPU seconds of each contestant, and the probe's throughput as a share of the bare forward's.

    Args:
        sequences: of the batch.
        length: tokens of each.
        n: rounds; the share is the median of the rounds' shares, with the smallest and the largest.
        dtype: of the body.
        head_dtype: of the product that makes logits, ``float32`` or ``model``.
        **shape: other sizes of the model.
    """
    import numpy as np
    import torch
    import transformers

    from accredit.signals import ProbeRequest, Span, TransformersBackend, Want
    from bench.timing import Contestant, race

    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = transformers.LlamaForCausalLM(transformers.LlamaConfig(**{**SHAPE, **shape}))
    model = model.to(getattr(torch, dtype)).eval()
    backend = TransformersBackend(model, head_dtype=head_dtype, batch_tokens=sequences * length)
    ids = np.random.default_rng(0).integers(1, model.config.vocab_size, (sequences, length))
    batch = torch.from_numpy(ids)

    def bare(_: Any) -> Any:
        with torch.inference_mode():
            return model(batch, use_cache=False).logits

    def probing(want: Want) -> Any:
        asks = [ProbeRequest(row, (Span(0, 1, length),), want) for row in ids]
        return lambda _: list(backend.score(asks))

    runs = {"bare forward": bare, **{want: probing(Want.parse(want)) for want in TARGETS}}
    timings = race({name: Contestant(run) for name, run in runs.items()}, n, budget_s=1200)
    rows = [_row(name, timings["bare forward"].seconds, timings[name].seconds) for name in runs]
    return {"sequences": sequences, "length": length, "dtype": dtype, "head_dtype": head_dtype, "rows": rows}


def _row(name: str, bare: Sequence[float], mine: Sequence[float]) -> dict[str, Any]:
    shares = [a / b for a, b in zip(bare, mine, strict=True)]
    return {
        "name": name,
        "seconds": min(mine),
        "n": len(mine),
        "share": statistics.median(shares),
        "from": min(shares),
        "to": max(shares),
        "target": TARGETS.get(name),
    }


def _line(row: Mapping[str, Any]) -> str:
    target = "" if row["target"] is None else f", asked for: {row['target']:.0%}"
    spread = f"{row['from']:.0%} to {row['to']:.0%} in {row['n']} rounds"
    share = f"{row['share']:5.0%} of a bare forward ({spread}){target}"
    return f"{row['name']:16} {row['seconds']:8.2f} s CPU  {share}"


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and print; `--json` prints the numbers."""
    parser = argparse.ArgumentParser(prog="python -m bench.probe", description=__doc__)
    parser.add_argument("--sequences", type=int, default=4)
    parser.add_argument("--length", type=int, default=256)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--dtype", default="float32", choices=["float32", "bfloat16"])
    parser.add_argument("--head-dtype", default="float32", choices=["float32", "model"])
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args(arguments)
    found = probe_section(given.sequences, given.length, given.rounds, given.dtype, given.head_dtype)
    if given.json:
        json.dump(found, sys.stdout, indent=1)
    else:
        print(*(_line(row) for row in found["rows"]), sep="\n")


if __name__ == "__main__":
    main()
