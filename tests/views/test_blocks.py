"""Blocks come back as they went in, and only what the page can read goes in."""

from __future__ import annotations

import base64
import zlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from accredit.views.blocks import Block, pack, unpack
from tests.dear import dear

TYPES = st.sampled_from(["f4", "i4", "u2", "i1", "u1"])
FLAT = TYPES.flatmap(
    lambda t: arrays.arrays(
        np.dtype(t),
        st.integers(0, 9),
        elements={"allow_nan": False, "allow_infinity": False} if t == "f4" else None,
    )
)
NAMES = st.text(st.characters(codec="utf-8"), max_size=8)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**40), 2**40) | st.text(st.characters(codec="utf-8")),
    lambda x: st.lists(x, max_size=3),
)


@dear
@given(
    st.dictionaries(NAMES.filter(lambda n: n != "arrays"), JSON, max_size=4),
    st.dictionaries(NAMES, FLAT, max_size=5),
)
def test_a_block_comes_back_as_it_went_in(head, flat):
    back = unpack(pack(Block(head, flat)))
    assert head == back.head
    assert {n: (a.dtype, a.tolist()) for n, a in flat.items()} == {
        n: (a.dtype, a.tolist()) for n, a in back.arrays.items()
    }


def test_arrays_begin_at_multiples_of_four_so_that_typed_arrays_can_view_them():
    block = Block({"a": "é"}, {"one": np.zeros(3, np.int8), "two": np.zeros(2, np.float32)})
    raw = zlib.decompress(base64.b64decode(pack(block)), wbits=31)
    length = int(np.frombuffer(raw[:4], "<u4")[0])
    assert (4 + length) % 4 == 0
    assert b'"two":["f4",4,2]' in raw


def test_equal_blocks_are_equal_text():
    one, two = (Block({"n": 1}, {"x": np.arange(4, dtype=np.int32)}) for _ in range(2))
    assert pack(one) == pack(two)


@pytest.mark.parametrize(
    "bad", [np.array([np.nan], np.float32), np.array([np.inf], np.float32), np.array([1.0]), np.array([1])]
)
def test_what_the_page_cannot_read_is_refused(bad):
    with pytest.raises(ValueError, match="report block"):
        pack(Block({}, {"x": bad}))


def test_a_lone_surrogate_does_not_stop_a_report():
    assert unpack(pack(Block({"x": "a\ud800b"}, {}))).head["x"] == "a?b"
