"""Columns taken out of a batch."""

from __future__ import annotations

import numpy as np
import pytest

from accredit.data import Batch, Column
from accredit.errors import DataError

STEP = {"prompt_tokens": [1, 2], "tokens": [3], "logprobs": [-1.0], "state": "s"}
BATCH = Batch.from_records([{"id": "a", "group": "g", "reward": 1.0, "steps": [STEP]}])


def test_a_batch_without_a_column_has_all_others():
    found = BATCH.without_column("logprobs")
    assert BATCH.columns.keys() - {"logprob_T"} == found.columns.keys()
    assert (
        Batch.from_records([{**r, "steps": [{**STEP, "logprobs": None}]} for r in BATCH.records()]) == found
    )


@pytest.mark.parametrize("name", ["token_T", "context_token_C", "context_reset_S"])
def test_what_others_are_counted_by_stays(name):
    with pytest.raises(DataError, match="counted by it"):
        BATCH.without_column(name)


def test_a_column_that_is_not_there_cannot_be_left_out():
    with pytest.raises(DataError, match="Did you mean 'logprob_T'"):
        BATCH.without_column("logprobs_T")


def test_a_value_is_given_where_the_mask_says_so_and_a_slice_where_all_of_it_are():
    column = Column("step", np.zeros(3), np.array([True, False, True]))
    assert [True, False, True] == [column.given(s) for s in range(3)]
    assert [True, False, True] == [column.given(slice(a, b)) for a, b in ((0, 1), (0, 2), (2, 2))]
    assert Column("step", np.zeros(3)).given(1)
