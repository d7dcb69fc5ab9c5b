"""`grpo` and `rloo` beside verl's loops and vectorised forms, on rows of 128 tokens."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from accredit import assign
from bench.inputs import Columns, outcome_columns
from bench.peers import PeerInput, peer_input, peers
from bench.timing import Contestant, race

__all__ = ["outcome_section"]

TOKENS = 128


def outcome_section(sizes: Sequence[int], n: int) -> dict[str, Any]:
    """Seconds of ours and verl's at each size, with the ratios (verl / ours, best of n)."""
    rows = [_row(method, size, n) for method in ("grpo", "rloo") for size in sizes]
    return {"tokens_a_row": TOKENS, "rows": rows}


def _row(method: str, size: int, n: int) -> dict[str, Any]:
    source = outcome_columns(size, TOKENS)
    timings = race(_contestants(method, source), n, budget_s=90)
    ours = timings["accredit"].best
    return {
        "method": method,
        "rows": size,
        "seconds": {name: t.to_dict() for name, t in timings.items()},
        "ratio": {name: t.best / ours for name, t in timings.items() if name != "accredit"},
    }


def _contestants(method: str, source: Columns) -> Mapping[str, Contestant]:
    mask = np.ones((len(source.ids), TOKENS), bool)
    reward_R = source.columns["reward_R"].values
    labels = np.array([str(uuid.UUID(int=g + 1)) for g in range(len(source.group_names))], object)
    by_label = peer_input(reward_R, mask, labels[source.group_R])
    by_number = PeerInput(*by_label[:2], source.group_R.astype(np.int64))
    verl = peers()[method]
    return {
        "accredit": Contestant(lambda _: assign(source.batch(), method).tokens),
        "accredit, padded float32": Contestant(lambda _: assign(source.batch(), method).padded(mask)),
        "verl loop": Contestant(lambda _: verl["loop"](by_label)),
        "verl vectorised": Contestant(lambda _: verl["vectorised"](by_label)),
        "verl vectorised, integer groups": Contestant(lambda _: verl["vectorised"](by_number)),
    }
