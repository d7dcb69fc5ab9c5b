"""The fast way of long lines gives what the exact way gives, or leaves the line to it."""

from __future__ import annotations

import json
import re

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from accredit.data import Batch, FindingLog
from accredit.errors import DataError
from accredit.readers.bulk import decode_bulk
from accredit.store.decode import Decoder, count_keys, count_members
from accredit.store.limits import Limits
from tests.strategies import json_values, records

LIMITS = Limits()


def exactly(line: bytes):
    return Decoder(LIMITS, FindingLog()).decode(line, "line 1")


def same(line: bytes) -> bool:
    """Whether the fast way took the line; fails if it gave something else."""
    fast = decode_bulk(line, LIMITS)
    if fast is None:
        return False
    slow = Batch.from_records([exactly(line)])
    assert slow == Batch.from_records([fast])
    assert slow.excluded == Batch.from_records([fast]).excluded
    return True


@given(records(rows=False, branches=False, min_rollouts=1, max_tokens=40), st.booleans())
def test_bulk_decoding_equals_exact_decoding(rollouts, spaced):
    for record in rollouts:
        text = json.dumps(record) if spaced else msgspec.json.encode(record).decode()
        same(text.encode())


def test_ordinary_long_line_takes_the_fast_way():
    step = {
        "state": "a: b",
        "tokens": list(range(300)),
        "logprobs": [-0.12345678901234567] * 300,
        "metadata": {"a": 1},
    }
    record = {
        "id": "x",
        "group": "g",
        "reward": 1,
        "metadata": {"k": [1]},
        "steps": [step, {"tokens": []}, step],
    }
    assert same(json.dumps(record).encode())


NUMBERS = [
    "1", "-1", "0", "-0", "1.0", "1e5", "1E+5", "-1.5e-7", "123456789012345678", "1234567890123456789",
    "9223372036854775807", "9223372036854775808", "-9223372036854775809", "1e400", "-1e400", "1e-400",
    "0.1000000000000000055511151231257827", "123456789012345678901234567890", "null", "true", '"1"', '"a,b"',
    "[1]", "[]", "{}", '{"a": 1}', "NaN", "Infinity", "-", "01", "+1", ".5", "1.", "0x10",
    "", " ", "1 2", "1_000",
]  # fmt: skip


@pytest.mark.parametrize("number", NUMBERS)
@pytest.mark.parametrize("field", ["tokens", "logprobs", "context_tokens", "other"])
@pytest.mark.parametrize("spot", ["first", "middle", "last", "alone", "own list"])
def test_odd_number_in_a_list_is_never_read_otherwise(number, field, spot):
    plain = ["1", "22", "333", "4444", "55555", "666666"]
    lists = {
        "first": [[number, *plain], plain],
        "middle": [[*plain[:3], number, *plain[3:]], plain],
        "last": [plain, [*plain, number]],
        "alone": [[number]],
        "own list": [plain, [number], plain],
    }[spot]
    steps = ", ".join(f'{{"{field}": [{", ".join(found)}]}}' for found in lists)
    line = f'{{"id": "x", "group": "g", "steps": [{steps}]}}'.encode()
    try:
        exactly(line)
    except DataError:
        assert decode_bulk(line, LIMITS) is None
        return
    same(line)


@pytest.mark.parametrize(
    "line",
    [
        '{"id": "x", "id": "y", "steps": [{"tokens": [11111, 22222, 33333]}]}',
        '{"id": "x", "steps": [{"tokens": [11111, 22222, 33333], "tokens": [1]}]}',
        '{"id": "x", "steps": [{"state": "a: b", "state": "c", "tokens": [11111, 22222, 33333]}]}',
        '{"id": "x", "steps": [{"metadata": {"a": 1, "a": 2}, "tokens": [11111, 22222, 33333]}]}',
        '{"id": "x", "metadata": {"a": 1, "\\u0061": 2}, "steps": []}',
        '{"id": "x", "steps": [], "steps": []}',
    ],
)
def test_key_that_stands_twice_is_left_to_the_exact_decoder(line):
    assert decode_bulk(line.encode(), LIMITS) is None
    with pytest.raises(DataError, match="ACC905"):
        exactly(line.encode())


def test_depth_and_steps_are_limited_on_the_fast_way_too():
    line = b'{"id": "x", "steps": [{"metadata": ' + b"[" * 100 + b"]" * 100 + b"}]}"
    assert decode_bulk(line, LIMITS) is None
    assert decode_bulk(b'{"id": "x", "steps": [{}, {}, {}]}', Limits(steps=2)) is None
    assert decode_bulk(b'{"id": "x", "steps": [{}, {}, {}]}', LIMITS) is not None


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
