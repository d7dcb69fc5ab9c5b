"""`gigpo` on 100k steps and 13 M tokens: grouping, returns, both advantages and token spread."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from accredit import Batch, Credit, assign
from bench.inputs import agent_columns, agent_records
from bench.sketch import gigpo_sketch
from bench.timing import Contestant, race

__all__ = ["gigpo_section"]

KINDS = ("counts", "arrays", "arrays+logprobs", "lists")


def gigpo_section(steps: int, n: int) -> dict[str, Any]:
    """Seconds from columns and from records, beside the sketch and plain memory copies."""
    source = agent_columns(steps)
    credit = assign(source.batch(), "gigpo")
    sketched = gigpo_sketch(source)
    agree = float(np.abs(credit.steps - sketched[0]).max())
    tokens = credit.tokens
    del sketched, credit
    buffer = np.zeros_like(tokens)
    columns = race(
        {
            "assign and tokens": Contestant(lambda _: assign(source.batch(), "gigpo").tokens),
            "assign alone": Contestant(lambda _: assign(source.batch(), "gigpo").steps),
            "plain numpy sketch": Contestant(lambda _: gigpo_sketch(source)),
            "token spread alone": Contestant(_tokens, lambda: assign(source.batch(), "gigpo")),
            "memory copy": Contestant(lambda _: tokens.copy()),
            "memory copy into warm memory": Contestant(lambda _: np.copyto(buffer, tokens)),
        },
        n,
    )
    return {
        "steps": steps,
        "tokens": source.n_tokens,
        "rollouts": len(source.ids),
        "apart_from_sketch": agree,
        "columns": {name: t.to_dict() for name, t in columns.items()},
        "records": {kind: _from_records(steps, kind, n) for kind in KINDS},
    }


def _tokens(credit: Credit) -> Any:
    return credit.tokens


def _from_records(steps: int, kind: str, n: int) -> Mapping[str, Any]:
    records = agent_records(agent_columns(steps), kind)
    timing = race({kind: Contestant(lambda _: assign(Batch.from_records(records), "gigpo").tokens)}, n)
    return timing[kind].to_dict()
