"""One row a rollout or several: the same data in either layout get the same credit, by every method."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.methods.test_battery import ALL, subject_of

CLAIM = "one rollout in several rows counts once"


def _rows(data, record):
    """The record cut at any places into rows, which may come in any order."""
    n = len(record["steps"])
    cuts = sorted(data.draw(st.sets(st.integers(1, n - 1)))) if n > 1 else []
    bounds = list(zip([0, *cuts], [*cuts, n], strict=True))
    if len(bounds) == 1:
        return [record]
    rows = [record | {"row": k, "steps": record["steps"][a:b]} for k, (a, b) in enumerate(bounds)]
    return data.draw(st.permutations(rows))


@pytest.mark.parametrize("case", ALL, ids=lambda case: case.name)
@settings(max_examples=6, deadline=None)
@given(data=st.data())
def test_rows_of_a_rollout_get_the_credit_of_the_rollout(case, data):
    assert CLAIM not in case.waive
    kind = data.draw(st.sampled_from(["plain", "ragged", "mixed", "tie"]))
    subject = subject_of(case, data.draw(st.integers(0, 9)))
    records = subject.records(kind)
    whole = subject.run(records)
    split = subject.run([row for record in records for row in _rows(data, record)])
    assert whole.batch.ids == split.batch.ids
    for ours, theirs in ((whole.steps, split.steps), (whole.tokens, split.tokens)):
        assert np.allclose(ours, theirs, rtol=1e-9, atol=1e-12)
