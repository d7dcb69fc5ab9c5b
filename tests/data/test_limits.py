"""Numbers that no rollout can have: left out with a place and a mend, never a wrong total."""

from __future__ import annotations

import numpy as np
import pytest

import accredit as ac
from accredit.data import builder
from accredit.store import save_batch


def _record(name: str, *counts: int) -> dict[str, object]:
    return {"id": name, "group": "g", "reward": 1, "steps": [{"n_tokens": n} for n in counts]}


@pytest.mark.parametrize("count", [2**63 - 1, 2**62, 10**12, 2**70, 2**24 + 1, -1])
def test_an_impossible_number_of_tokens_leaves_the_rollout_out(count):
    """2**63 - 1 tokens gave negative totals, two times 2**62 wrapped to 0, 10**12 asked for 8 TB."""
    batch = ac.Batch.from_records([_record("a", 2), _record("b", 3, count)])
    assert (1, 2) == (len(batch), batch.n_tokens)
    assert [("b", "ACC110", "records record 2")] == [(e.id, e.code, e.where) for e in batch.excluded]
    assert "n_tokens of step 1" in batch.excluded[0].reason
    assert f"a whole number from 0 to {2**24}" in batch.excluded[0].reason


def test_a_batch_takes_rollouts_up_to_its_number_of_tokens(monkeypatch):
    monkeypatch.setattr(builder, "MAX_TOKENS", 5)
    batch = ac.Batch.from_records([_record("a", 3), _record("b", 2, 1), _record("c", 2)])
    assert (("a", "c"), 5) == (batch.ids, batch.n_tokens)
    assert ["b"] == [e.id for e in batch.excluded]


def test_a_parquet_file_of_an_impossible_number_of_tokens_is_refused(tmp_path):
    batch = ac.Batch.from_records([_record("a", 2)])._replace(token_start_S1=np.array([0, 2**40]))
    save_batch(batch, tmp_path / "huge.parquet")
    with pytest.raises(ac.AccreditError, match="n_tokens passes"):
        ac.read(tmp_path / "huge.parquet")
