"""Tables and documents of any rollouts: JSON without NaN, every rollout accounted for, harmless text."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest
from hypothesis import given

import accredit as ac
from accredit.errors import DataError
from accredit.views.check_tables import check_blocks
from accredit.views.comparison_tables import comparison_blocks
from accredit.views.credit_tables import credit_blocks
from accredit.views.summary import credit_summary
from accredit.views.tables import plain
from tests.dear import dear
from tests.strategies import batches

METHODS = ["grpo:singleton=zero", "dr-grpo:singleton=raw", "reinforce-pp", "gigpo:singleton=zero"]
ACTS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e]")


@dear
@given(batches())
def test_a_comparison_of_any_rollouts_is_a_document_and_a_text(batch):
    found = ac.compare(batch, METHODS, n_boot=10)
    document = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    assert len(METHODS) == len(document["methods"]) + len(document["unable"])
    for pair in document["pairs"]:
        assert pair["n_steps"] == sum(pair["quadrants"].values()) <= batch.n_steps
        for name in ("spearman", "kendall"):
            if pair[name] is not None:
                ends = [pair[name][k] for k in ("low", "value", "high") if pair[name][k] is not None]
                assert all(-1 - 1e-9 <= v <= 1 + 1e-9 for v in ends)
    assert not ACTS.search(plain(comparison_blocks(found.to_dict())))


@dear
@given(batches())
def test_a_summary_of_any_credit_accounts_for_every_rollout(batch):
    for method in METHODS:
        try:
            credit = ac.assign(batch, method)
        except DataError:
            continue
        summary = credit_summary(credit, 5)
        json.dumps({**summary, "params": None}, allow_nan=False)
        sizes = summary["rollouts"]
        assert sizes["read"] == sizes["used"] + sizes["excluded"] == len(batch) + len(batch.excluded)
        assert len(batch) == sum(g["rollouts"] for g in summary["groups"])
        assert batch.n_steps == sum(g["steps"] for g in summary["groups"])
        for told, (_, group) in zip(summary["groups"], batch.groups(), strict=True):
            paid = [r["reward"] for r in group.records() if r.get("reward") is not None]
            expected = {"mean": np.mean(paid), "low": min(paid), "high": max(paid)} if paid else None
            assert (expected and pytest.approx(expected)) == told["reward"] or group.has("row_S")
        if summary["top"]:
            assert np.abs(credit.steps).max() == abs(summary["top"][0]["credit"])
        assert not ACTS.search(plain(credit_blocks(summary)))


@dear
@given(batches())
def test_a_check_of_any_rollouts_is_a_document_and_a_text(batch):
    document = {"file": "x", "excluded": [], **ac.check(batch).to_dict()}
    json.dumps(document, allow_nan=False)
    assert not ACTS.search(plain(check_blocks(document)))
