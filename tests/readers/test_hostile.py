"""Files that nobody vouches for: each gives data, findings, or one error that says where and what to do."""

from __future__ import annotations

import gzip
import json

import pyarrow as pa
import pytest

from accredit.data import Batch
from accredit.errors import DataError, StoreError, VersionError
from accredit.readers import Limits, read

GOOD = b'{"id": "ok", "group": "g", "reward": 1, "steps": [{"action": "go", "n_tokens": 2}]}\n'
RECORD = '{"id": "x", "group": "g", "reward": 0, "steps": [%s]}\n'


def line(step: str) -> bytes:
    return (RECORD % step).encode()


def deep(levels: int) -> bytes:
    return line('{"metadata": ' + "[" * levels + "]" * levels + "}")


# A bad line beside a good one: the code of its finding, and a word of its reason.
BAD_LINES = {
    "not JSON": (b"{id: 1}\n", "ACC904", "not JSON"),
    "cut off": (b'{"id": "x", "steps": [{"act\n', "ACC904", "ends in the middle"),
    "trailing comma": (line('{"action": "a",}'), "ACC904", "trailing comma"),
    "two values in a line": (GOOD.strip() + b" " + GOOD, "ACC904", "trailing characters"),
    "a list": (b"[1, 2]\n", "ACC110", "not an object"),
    "a number": (b"7\n", "ACC110", "not an object"),
    "a log message": (b"INFO saved\n", "ACC904", "not JSON"),
    "binary garbage": (b"\x80\x81\x82\x00\x01\n", "ACC911", "not UTF-8"),
    "NUL bytes": (b"\x00\x00\x00\n", "ACC904", "not JSON"),
    "Latin-1": ('{"id": "é"}\n'.encode("latin1"), "ACC911", "not UTF-8"),
    "surrogates as bytes": (b'{"id": "\xed\xa0\x80"}\n', "ACC911", "not UTF-8"),
    "control character": (b'{"id": "a\x01b", "steps": []}\n', "ACC904", "not JSON"),
    "key twice": (b'{"id": "x", "reward": 1, "reward": 0, "steps": []}\n', "ACC905", "'reward' stands twice"),
    "key twice in a step": (line('{"action": "a", "action": "b"}'), "ACC905", "'action' stands twice"),
    "key twice by an escape": (
        line('{"action": "a", "\\u0061ction": "b"}'),
        "ACC905",
        "'action' stands twice",
    ),
    "key twice beside colons": (line('{"state": "a: b", "n": 1, "n": 2}'), "ACC905", "'n' stands twice"),
    "key twice deep down": (
        line('{"metadata": {"a": [{"b": {"c": 1, "c": 2}}]}}'),
        "ACC905",
        "'c' stands twice",
    ),
    "key twice, a space before the colon": (line('{"a" : 1, "a" : 2}'), "ACC905", "'a' stands twice"),
    "too deep": (deep(100), "ACC908", "64 levels"),
    "far too deep": (deep(100_000), "ACC908", "64 levels"),
    "deep and broken": (b"[" * 100_000 + b"\n", "ACC908", "64 levels"),
    "an integer of 5,000 digits": (line('{"reward": 1%s}' % ("0" * 5000)), "ACC904", "out of range"),
    "an integer beyond floats": (line('{"reward": 1%s}' % ("0" * 400)), "ACC110", "huge integer"),
    "a token id beyond 64 bits": (
        line('{"tokens": [123456789012345678901234567890]}'),
        "ACC110",
        "whole numbers",
    ),
    "a token id beyond 63 bits": (line('{"tokens": [9223372036854775808]}'), "ACC110", "2**63"),
    "a token id that is no whole number": (line('{"tokens": [1.5]}'), "ACC110", "whole numbers"),
    "null among token ids": (line('{"tokens": [1, null]}'), "ACC110", "whole numbers"),
    "nested token ids": (line('{"tokens": [[1], [2]]}'), "ACC110", "whole numbers"),
    "steps that are no list": (b'{"id": "x", "steps": {"a": 1}}\n', "ACC110", "list of steps"),
    "a step that is no object": (line("3"), "ACC110", "an object"),
    "fewer logprobs than tokens": (
        line('{"tokens": [1, 2], "logprobs": [-1]}'),
        "ACC104",
        "1 logprobs for 2",
    ),
    "an unknown status": (b'{"id": "x", "status": "lost", "steps": []}\n', "ACC110", "status"),
    "the same id again": (GOOD, "ACC101", "occurs twice"),
    "a newer record": (
        b'{"schema": "accredit.rollouts/9", "id": "x", "steps": []}\n',
        "ACC910",
        "rollouts/9",
    ),
}


@pytest.mark.parametrize("name", BAD_LINES)
@pytest.mark.parametrize("where", ["before", "after"])
def test_bad_line_becomes_one_exclusion_with_its_place(tmp_path, name, where):
    bad, code, words = BAD_LINES[name]
    if code == "ACC101":
        where = "after"
    path = tmp_path / "a.jsonl"
    path.write_bytes(bad + GOOD if where == "before" else GOOD + bad)
    batch = read(path)
    assert ("ok",) == batch.ids
    assert [code] == [e.code for e in batch.excluded]
    assert words in batch.excluded[0].reason
    assert f"a.jsonl line {1 if where == 'before' else 2}" == batch.excluded[0].where
    found = [f for f in batch.findings if f.code == code]
    assert 1 == len(found)
    assert found[0].hint or code == "ACC110"


@pytest.mark.parametrize("name", BAD_LINES)
def test_strict_stops_at_the_bad_line_and_names_it(tmp_path, name):
    bad, code, words = BAD_LINES[name]
    path = tmp_path / "a.jsonl"
    path.write_bytes(GOOD + bad + GOOD)
    with pytest.raises((DataError, VersionError)) as caught:
        read(path, strict=True)
    assert code == caught.value.code
    assert "line 2" in caught.value.where
    assert words in caught.value.message


@pytest.mark.parametrize("name", [n for n in BAD_LINES if BAD_LINES[n][1] not in ("ACC101", "ACC910")])
def test_file_of_bad_lines_alone_is_one_error_with_the_first_reasons(tmp_path, name):
    bad, _, words = BAD_LINES[name]
    path = tmp_path / "a.jsonl"
    path.write_bytes(bad * 5)
    with pytest.raises(DataError) as caught:
        read(path, "jsonl")
    assert "ACC916" == caught.value.code
    assert "none of the 5" in caught.value.message
    assert words in caught.value.message


# Odd, but of a clear meaning: read, with a finding or none.
ODD = {
    "NaN outcome": (line("{}").replace(b'"reward": 0', b'"reward": NaN'), {"ACC906", "ACC202"}),
    "infinite outcome": (line("{}").replace(b'"reward": 0', b'"reward": -Infinity'), {"ACC906", "ACC202"}),
    "overflowing outcome": (line("{}").replace(b'"reward": 0', b'"reward": 1e999'), {"ACC906", "ACC202"}),
    "NaN logprob": (line('{"logprobs": [NaN, -1.5]}'), {"ACC906", "ACC306"}),
    "NaN value": (line('{"value": NaN}'), {"ACC906"}),
    "NaN in metadata": (line('{"metadata": {"a": [NaN, 1]}}'), {"ACC906"}),
    "lone surrogate": (line('{"state": "a\\ud83d"}'), {"ACC907"}),
    "lone low surrogate": (line('{"state": "\\ude00a"}'), {"ACC907"}),
    "surrogate pair": (line('{"state": "\\ud83d\\ude00"}'), set()),
    "escaped backslash before a u": (line('{"state": "\\\\ud83d"}'), set()),
    "colons in texts": (line('{"state": "a: b", "text": "\\":"}'), set()),
    "spaces before colons": (line('{"state" : "s"  , "n"\t: 1}'), set()),
    "null everywhere": (
        b'{"id":"x","group":"g","reward":null,"steps":[{"action":null,"tokens":null}]}\n',
        set(),
    ),
    "unknown fields": (line('{"x": 1, "y": [1, [2]], "z": {"a": 1}}'), set()),
    "a huge integer as a state": (line('{"state": 123456789012345678901234567890}'), set()),
    "a big integer as an extra signal": (line('{"seed": 1%s}' % ("0" * 400)), set()),
    "depth below the limit": (deep(50), set()),
    "truncated as an alias": (b'{"id":"x","group":"g","truncated":true,"steps":[]}\n', set()),
}


@pytest.mark.parametrize("name", ODD)
def test_odd_line_is_read_with_its_findings(tmp_path, name):
    odd, codes = ODD[name]
    path = tmp_path / "a.jsonl"
    path.write_bytes(odd + GOOD)
    batch = read(path)
    assert ("x", "ok") == batch.ids
    assert () == batch.excluded
    assert codes == {f.code for f in batch.findings}


def test_what_was_mended_is_an_error_under_strict(tmp_path):
    path = tmp_path / "a.jsonl"
    for name in ("NaN outcome", "lone surrogate"):
        path.write_bytes(ODD[name][0])
        with pytest.raises(DataError, match="line 1"):
            read(path, strict=True)


def test_lone_surrogate_becomes_the_replacement_character(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_bytes(ODD["lone surrogate"][0])
    assert ("a\ufffd",) == read(path).column("state_S").words


def test_nan_is_absent_not_zero(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_bytes(ODD["NaN logprob"][0] + line('{"logprobs": [-1, -2]}').replace(b'"x"', b'"y"'))
    column = read(path).column("logprob_T")
    assert [False, True] == column.valid.tolist()


# The file around the lines.
def test_byte_order_mark_blank_lines_and_crlf_do_not_matter(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_bytes(b"\xef\xbb\xbf\r\n  \r\n" + GOOD.replace(b"\n", b"\r\n") + b"\r\n\r\n")
    batch = read(path)
    assert ("ok",) == batch.ids
    assert () == batch.findings


def test_last_line_needs_no_line_end(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_bytes(GOOD.strip())
    assert 1 == len(read(path))


@pytest.mark.parametrize("content", [b"", b"\n \r\n\n", b"\xef\xbb\xbf"])
def test_empty_file_says_so(tmp_path, content):
    path = tmp_path / "a.jsonl"
    path.write_bytes(content)
    with pytest.raises(DataError, match=r"ACC902: a.jsonl is empty"):
        read(path)


UNKNOWN = {
    "binary": (bytes(range(256)) * 4, "not text"),
    "text": (b"Dear Sir,\nplease find enclosed\n", "begins 'Dear Sir"),
    "CSV": (b"id,reward\na,1\n", "begins 'id,reward"),
    "other keys": (b'{"prompt": "p", "completion": "c"}\n', "has keys prompt, completion"),
    "zip": (b"PK\x03\x04" + b"\0" * 30, "zip archive"),
    "xz": (b"\xfd7zXZ\0" + b"\0" * 30, "compressed by xz"),
    "UTF-16": ("{}".encode("utf-16"), "UTF-16"),
}


@pytest.mark.parametrize("name", UNKNOWN)
def test_unknown_file_is_described_with_what_to_do(tmp_path, name):
    content, words = UNKNOWN[name]
    path = tmp_path / "a.jsonl"
    path.write_bytes(content)
    with pytest.raises(DataError, match=words) as caught:
        read(path)
    assert "ACC903" == caught.value.code
    assert caught.value.hint


def test_format_forces_what_content_does_not_show(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_bytes(b'{"prompt": "p", "completion": "c"}\n')
    assert 1 == len(read(path, "jsonl"))
    with pytest.raises(DataError, match="Did you mean 'jsonl'"):
        read(path, "jsonnl")


def test_missing_file_is_an_error_with_its_path(tmp_path):
    with pytest.raises(DataError, match=r"ACC901.*nowhere.jsonl"):
        read(tmp_path / "nowhere.jsonl")


@pytest.mark.parametrize("source", [7, None, b"bytes", {"id": "a"}])
def test_what_is_no_source_is_an_error(source):
    with pytest.raises(DataError, match="ACC901"):
        read(source)


# Compression.
def zstd(content: bytes) -> bytes:
    return pa.compress(content, codec="zstd", asbytes=True)


PACKERS = {"gzip": gzip.compress, "zstd": zstd}


@pytest.mark.parametrize("pack", PACKERS.values(), ids=PACKERS)
def test_compression_is_told_from_content_whatever_the_name(tmp_path, pack):
    path = tmp_path / "a.txt"
    path.write_bytes(pack(GOOD) + pack(GOOD.replace(b"ok", b"more")))
    assert ("ok", "more") == read(path).ids


@pytest.mark.parametrize("pack", PACKERS.values(), ids=PACKERS)
def test_cut_off_stream_gives_what_came_before_and_says_so(tmp_path, pack):
    lines = [GOOD.replace(b"ok", f"r{i} {hash(str(i))}".encode()) for i in range(20_000)]
    packed = pack(b"".join(lines))
    path = tmp_path / "a.jsonl.gz"
    path.write_bytes(packed[: len(packed) // 2])
    batch = read(path)
    assert 0 < len(batch) < len(lines)
    assert "ACC909" in {f.code for f in batch.findings}
    assert len(batch.excluded) <= 1
    with pytest.raises(DataError):
        read(path, strict=True)


@pytest.mark.parametrize("pack", PACKERS.values(), ids=PACKERS)
def test_stream_cut_off_before_the_first_rollout_is_an_error(tmp_path, pack):
    packed = pack(GOOD)
    path = tmp_path / "a.jsonl.gz"
    for size in (5, 12, 20):
        path.write_bytes(packed[:size])
        with pytest.raises(DataError):
            read(path)


@pytest.mark.parametrize("pack", PACKERS.values(), ids=PACKERS)
def test_garbage_after_the_stream_is_a_finding(tmp_path, pack):
    path = tmp_path / "a.jsonl.gz"
    path.write_bytes(pack(GOOD) + b"garbage!")
    batch = read(path)
    assert ("ok",) == batch.ids
    assert ["ACC909"] == [f.code for f in batch.findings]


def test_zero_padding_after_gzip_is_nothing(tmp_path):
    path = tmp_path / "a.jsonl.gz"
    path.write_bytes(gzip.compress(GOOD) + b"\0" * 512)
    assert () == read(path).findings


def test_wrong_checksum_is_a_finding(tmp_path):
    packed = bytearray(gzip.compress(GOOD))
    packed[-8] ^= 1
    path = tmp_path / "a.jsonl.gz"
    path.write_bytes(packed)
    assert ["ACC909"] == [f.code for f in read(path).findings]


@pytest.mark.parametrize("pack", PACKERS.values(), ids=PACKERS)
def test_bomb_stops_at_the_limit(tmp_path, pack):
    path = tmp_path / "a.jsonl.gz"
    path.write_bytes(pack(GOOD + b" " * 30_000_000))
    with pytest.raises(DataError, match=r"ACC908.*factor"):
        read(path, limits=Limits(ratio_from=1 << 20))
    with pytest.raises(DataError, match=r"ACC908.*bytes"):
        read(path, limits=Limits(total_bytes=1 << 20))


def test_line_beyond_the_limit_is_left_out_unread(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_bytes(GOOD + line('{"text": "%s"}' % ("x" * 5_000_000)) + GOOD.replace(b"ok", b"last"))
    batch = read(path, limits=Limits(line_bytes=100_000))
    assert ("ok", "last") == batch.ids
    assert ["ACC908"] == [e.code for e in batch.excluded]
    assert "limits=Limits(line_bytes=" in next(f.hint for f in batch.findings)


def test_too_many_steps_or_objects_are_left_out(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_bytes(GOOD + line(", ".join(["{}"] * 1000)))
    for limits in (Limits(steps=999), Limits(containers=1000)):
        assert ["ACC908"] == [e.code for e in read(path, limits=limits).excluded]
    assert 2 == len(read(path))


# Headers.
def test_header_is_read_only_in_the_first_line(tmp_path):
    path = tmp_path / "a.jsonl"
    header = b'{"schema": "accredit.rollouts/1"}\n'
    path.write_bytes(header + GOOD)
    assert ("ok",) == read(path).ids
    path.write_bytes(GOOD + header)
    assert 1 == len(read(path)) - 1 == len([f for f in read(path).findings if f.code == "ACC102"])


@pytest.mark.parametrize(
    ("schema", "error", "words"),
    [
        ("accredit.rollouts/2", VersionError, "pip install -U"),
        ("accredit.rollouts/99999999999999999999", VersionError, "pip install -U"),
        ("accredit.credit/1", DataError, "read_credit"),
        ("accredit.rollouts/x", DataError, "accredit.rollouts/1"),
    ],
)
def test_header_of_another_schema_is_refused_with_what_it_is(tmp_path, schema, error, words):
    path = tmp_path / "a.jsonl"
    path.write_bytes(json.dumps({"schema": schema}).encode() + b"\n" + GOOD)
    with pytest.raises(error, match=words):
        read(path)


HEADERS = [
    {"columns": 7, "findings": "x", "excluded": {}, "provenance": [], "outcome_in_steps": "yes"},
    {"columns": [{}, 3, {"column": "x_Q", "field": "x", "kind": "number", "dtype": "float64"}]},
    {"columns": [{"column": "x_S", "field": "x", "kind": "vector", "dtype": "float64", "width": 1 << 60}]},
    {"columns": [{"column": "v_S", "field": "v", "kind": "vector", "dtype": "float64", "width": 1 << 20}]},
    {"columns": [{"column": "token_T", "field": "tokens", "kind": "json"}]},
    {"columns": [{"column": "action_S", "field": "action", "kind": "number", "dtype": "uint8"}]},
    {"columns": [{"column": "reward_R", "field": "steps", "kind": "number", "dtype": "float64"}]},
    {"columns": [{"column": "n_S", "field": "n_tokens", "kind": "number", "dtype": "int8"}]},
    {"findings": [{}, {"count": "many"}], "excluded": [{"id": 3}]},
]


@pytest.mark.parametrize("fields", HEADERS)
def test_header_that_lies_costs_no_rollout(tmp_path, fields):
    path = tmp_path / "a.jsonl"
    path.write_bytes(json.dumps({"schema": "accredit.rollouts/1"} | fields).encode() + b"\n" + GOOD)
    batch = read(path)
    assert ("ok",) == batch.ids
    assert ["go"] == [batch.column("action_S").item(0)]
    assert 2 == batch.n_tokens
    assert [1.0] == batch.reward_R.tolist()


def test_header_alone_is_an_empty_batch(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_bytes(b'{"schema": "accredit.rollouts/1"}\n')
    assert 0 == len(read(path))


# Parquet.
def test_cut_off_parquet_is_one_error(tmp_path):
    from accredit.store import save_batch

    good = tmp_path / "a.jsonl"
    good.write_bytes(GOOD)
    path = save_batch(read(good), tmp_path / "a.parquet")
    whole = path.read_bytes()
    for size in (4, 10, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:size])
        with pytest.raises(DataError):
            read(path)


def test_damaged_parquet_is_data_or_one_error(tmp_path):
    from accredit.store import save_batch

    good = tmp_path / "a.jsonl"
    good.write_bytes(GOOD + line('{"tokens": [1, 2], "logprobs": [-1, -2], "metadata": {"a": 1}}'))
    path = save_batch(read(good), tmp_path / "a.parquet")
    whole = path.read_bytes()
    for at in range(0, len(whole), 31):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 0x5A]) + whole[at + 1 :])
        try:
            read(path)
        except (DataError, StoreError):
            continue


def test_one_line_with_a_list_of_rollouts_is_a_document(tmp_path):
    """What ``json.dump({"rollouts": [...]})`` writes was refused; over several lines it was read."""
    path = tmp_path / "a.json"
    path.write_text(json.dumps({"rollouts": [json.loads(GOOD)], "model": "m"}))
    assert ("ok",) == read(path).ids


@pytest.mark.parametrize("source", [[1], [{"id": "a", "reward": "high"}], iter(["x"])])
def test_records_of_which_none_can_be_used_are_an_error(source):
    """They gave an empty batch without a word."""
    with pytest.raises(DataError, match="none of the 1 rollouts of the records") as caught:
        read(source)
    assert "ACC916" == caught.value.code


def test_no_records_are_an_empty_batch():
    assert 0 == len(read([]))


@pytest.mark.parametrize("of", [read, Batch.from_records])
def test_open_file_is_no_source(tmp_path, of):
    """The lines of a text handle were taken for records, and the batch was empty."""
    path = tmp_path / "a.jsonl"
    path.write_bytes(GOOD)
    with path.open() as handle, pytest.raises(DataError, match="path"):
        of(handle)


@pytest.mark.parametrize("source", ["abc", b"abc", {"id": "a", "steps": []}])
def test_text_or_one_record_is_no_iterable_of_records(source):
    """The letters of a text were taken for records, and the batch was empty."""
    with pytest.raises(DataError, match=f"not a {type(source).__name__}"):
        Batch.from_records(source)


def test_gzip_cut_off_in_its_first_line_says_so(tmp_path):
    """The error told of a line that ends in the middle, not that the file is cut off."""
    path = tmp_path / "a.jsonl.gz"
    steps = ", ".join(f'{{"action": "{i * 7919 % 1000}"}}' for i in range(2000))
    path.write_bytes(gzip.compress(line(steps))[:2000])
    with pytest.raises(DataError, match="is a broken gzip after") as caught:
        read(path)
    assert "ACC916" == caught.value.code
