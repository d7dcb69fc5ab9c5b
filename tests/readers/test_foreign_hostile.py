"""Foreign files that nobody vouches for: whatever stands in them, they give data, findings or one error."""

from __future__ import annotations

import copy
import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from accredit.data import BatchBuilder
from accredit.errors import AccreditError
from accredit.readers import Limits, Reading, convert, formats, read
from accredit.readers.formats import get_format
from accredit.readers.reading import _head
from accredit.store.decode import Decoder
from accredit.store.streams import Source
from tests.readers.lookalikes import DATA

FILES = sorted(p for p in DATA.rglob("*") if p.is_file())
ODD = st.sampled_from(
    [
        None,
        True,
        0,
        -1,
        3.5,
        10**400,
        "",
        "x",
        "[",
        '{"a": 1}',
        [],
        [None],
        [[]],
        {},
        {"a": None},
        {"role": 3},
        [3],
    ]
)


def load(path):
    text = path.read_text()
    return [json.loads(line) for line in text.splitlines()] if path.suffix == ".jsonl" else json.loads(text)


def dump(path, value, folder):
    target = folder / path.name
    lines = "\n".join(map(json.dumps, value)) if path.suffix == ".jsonl" else json.dumps(value)
    target.write_text(lines)
    return target


def places(value, way=()):
    """Yield the way to every node of a value."""
    yield way
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, member in inner:
        yield from places(member, (*way, key))


def put(value, way, odd):
    if not way:
        return odd
    *up, last = way
    holder = value
    for key in up:
        holder = holder[key]
    holder[last] = odd
    return value


VALUES = {path: load(path) for path in FILES}
WAYS = {path: list(places(value)) for path, value in VALUES.items()}


def attempt(path):
    """Return the batch of a file, or the code of the one error; any other exception fails the test."""
    try:
        return read(path), ""
    except AccreditError as error:
        return None, error.code


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=300)
@given(st.data())
def test_any_value_anywhere_gives_data_or_an_error_that_says_where(tmp_path, data):
    path = data.draw(st.sampled_from(FILES))
    way = data.draw(st.sampled_from(WAYS[path]))
    changed = put(copy.deepcopy(VALUES[path]), way, data.draw(ODD))
    if path.suffix == ".jsonl" and not isinstance(changed, list):
        return
    batch, code = attempt(dump(path, changed, tmp_path))
    assert code or batch is not None
    assert batch is None or all(e.code and e.reason for e in batch.excluded)


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.name)
def test_a_file_that_is_cut_off_is_an_error_or_loses_only_its_end(tmp_path, path):
    raw = path.read_bytes().rstrip()
    for share in (0.1, 0.5, 0.9, 1):
        target = tmp_path / path.name
        target.write_bytes(raw[: int(share * len(raw)) - 1])
        batch, code = attempt(target)
        if batch is None:
            assert code in ("ACC903", "ACC904", "ACC916")
        else:
            assert path.suffix == ".jsonl"
            assert batch.excluded or batch.findings


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.name)
def test_reading_twice_gives_the_same_rollouts(path):
    one, two = read(path), read(path)
    assert list(one.records()) == list(two.records())


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.name)
def test_a_look_alike_survives_conversion(tmp_path, path):
    batch = read(path)
    for target in ("a.jsonl", "a.parquet"):
        convert(path, tmp_path / target)
        assert list(read(tmp_path / target).records()) == list(batch.records())


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.name)
def test_exactly_one_foreign_format_claims_a_file(path):
    head = _head(Source(path, Limits()))
    scores = [f.score(head) for f in formats()]
    best = max(scores)
    assert best >= 2
    assert 1 == scores.count(best)


@pytest.mark.parametrize(
    "name",
    [
        "swe_agent/shop-7.traj",
        "openhands/output.jsonl",
        "atif/job/hello__a1/agent/trajectory.cont-1.json",
        "nemo_gym/rollouts.jsonl",
        "tau_bench/lab-air.json",
        "who_when/hand/3.json",
    ],
)
def test_fields_that_nobody_knows_are_kept_as_metadata(tmp_path, name):
    path = DATA / name
    value = copy.deepcopy(VALUES[path])
    for record in value if isinstance(value, list) else [value]:
        record["my_note"] = {"kept": [1, None, "x"]}
    for record in read(dump(path, value, tmp_path)).records():
        assert {"kept": [1, None, "x"]} == record["metadata"]["my_note"]


def test_lines_are_read_one_at_a_time(tmp_path, monkeypatch):
    path = tmp_path / "many.jsonl"
    path.write_text((DATA / "nemo_gym/rollouts.jsonl").read_text() * 50)
    decoded = []
    plain = Decoder.decode
    monkeypatch.setattr(Decoder, "decode", lambda *given: decoded.append(1) or plain(*given))
    source, builder = Source(path, Limits()), BatchBuilder()
    reading = Reading(source, Limits(), builder, Decoder(Limits(), builder.log))
    items = get_format("nemo-gym").items(reading)
    next(items)
    assert len(decoded) <= 3
