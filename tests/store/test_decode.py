"""Decoding a line: duplicates at any depth, the limits, and fast conversion of number lists."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from accredit.data import FindingLog
from accredit.data.sinks import numbers
from accredit.errors import DataError
from accredit.store.decode import Decoder, count_keys, count_members, deeper
from accredit.store.limits import Limits
from tests.strategies import json_values


def exactly(line: bytes, limits: Limits | None = None):
    return Decoder(limits or Limits(), FindingLog()).decode(line, "line 1")


@given(json_values)
def test_members_in_the_text_are_counted_exactly(value):
    line = json.dumps(value).encode()
    assert count_members(value) == count_keys(line)
    spaced = re.sub(rb'": ', b'" : ', line) if b'\\"' not in line else line
    assert count_members(json.loads(spaced)) == count_keys(spaced)


@given(st.lists(st.tuples(st.sampled_from("abc"), json_values), max_size=4))
def test_duplicate_keys_are_found_at_any_depth(pairs):
    body = ", ".join(f"{json.dumps(k)}: {json.dumps(v)}" for k, v in pairs)
    line = b'{"id": "x", "metadata": {"inner": [{%s}]}, "steps": []}' % body.encode()
    if len({k for k, _ in pairs}) == len(pairs):
        assert json.loads(line) == exactly(line)
    else:
        with pytest.raises(DataError, match="ACC905"):
            exactly(line)


@given(json_values, st.integers(1, 6))
def test_depth_is_limited_exactly(value, limit):
    def depth(v):
        inner = v.values() if isinstance(v, dict) else v if isinstance(v, list) else None
        return 0 if inner is None else 1 + max(map(depth, inner), default=0)

    assert (depth(value) > limit) == deeper(value, limit)


@given(st.integers(0, 12), st.booleans(), st.integers(4, 12))
def test_depth_of_a_record_is_limited_wherever_it_is_deep(levels, in_step, limit):
    value = 1
    for i in range(levels):
        value = [value] if i % 2 else {"k": value}
    steps = [{"a": [1], "b": [2]}] * 4 + [{"metadata": value if in_step else None}]
    record = {"id": "x", "metadata": None if in_step else value, "steps": steps}
    line = json.dumps(record).encode()
    if deeper(record, limit):
        with pytest.raises(DataError, match="ACC908"):
            exactly(line, Limits(depth=limit))
    else:
        assert record == exactly(line, Limits(depth=limit))


@given(
    st.lists(
        st.one_of(st.integers(-(2**70), 2**70), st.floats(), st.booleans(), st.none(), st.text(max_size=1))
    )
)
def test_fast_conversion_of_a_list_gives_what_numpy_gives_or_leaves_it(values):
    plain = numbers(values)
    for code in "qdf":
        fast = numbers(values, code)
        if fast is None or plain is None:
            huge = any(type(v) is int and abs(v) >= 2**63 for v in values)
            assert (fast is None) == (plain is None) or huge
        elif fast.dtype.char == code and code != "q":
            with np.errstate(over="ignore"):
                assert np.array_equal(plain.astype(code), fast, equal_nan=True)
        else:
            assert np.array_equal(plain, fast, equal_nan=True)
