"""Arrays from safetensors and npz: what was written, nothing that lies, and never a pickle."""

from __future__ import annotations

import io
import json
import pickle
import struct
import zipfile
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import accredit as ac
from accredit.errors import DataError
from accredit.readers.tensors import read_tensors
from accredit.store.limits import Limits
from accredit.store.streams import Source

CODES = {"?": "BOOL", "u1": "U8", "i4": "I32", "i8": "I64", "f2": "F16", "f4": "F32", "f8": "F64"}


def safetensors(arrays, **header):
    """A safetensors file as the format's own page describes it."""
    entries, data = {}, b""
    for name, array in arrays.items():
        raw = np.ascontiguousarray(array).tobytes()
        span = [len(data), len(data) + len(raw)]
        kind = array.dtype.str[1:] if array.dtype.kind != "b" else "?"
        entries[name] = {"dtype": CODES[kind], "shape": list(array.shape), "data_offsets": span}
        data += raw
    text = json.dumps({"__metadata__": {"format": "np"}, **entries, **header}).encode()
    return struct.pack("<Q", len(text)) + text + data


def npz(arrays, **options):
    held = io.BytesIO()
    np.savez_compressed(held, **arrays, **options)
    return held.getvalue()


def _read(path, content):
    path.write_bytes(content)
    return read_tensors(Source(path, Limits()), Limits())


ARRAYS = {
    "a": np.arange(6, dtype=np.int64).reshape(2, 3),
    "b": np.array([[True, False]]),
    "c": np.array([0.5, -1.25], np.float32),
    "d": np.zeros((0, 4), np.float64),
    "e": np.array(3, np.int32),
}


@pytest.mark.parametrize("write", [safetensors, npz])
def test_arrays_come_back_as_they_were_written(tmp_path, write):
    found = _read(tmp_path / "x.bin", write(ARRAYS))
    assert ARRAYS.keys() == found.keys()
    for name, array in ARRAYS.items():
        assert array.shape == found[name].shape
        assert np.array_equal(array, found[name])


def test_fortran_order_comes_back(tmp_path):
    array = np.asfortranarray(np.arange(6).reshape(2, 3))
    assert np.array_equal(array, _read(tmp_path / "x.npz", npz({"a": array}))["a"])


def test_bfloat16_becomes_float32(tmp_path):
    values = np.array([1.0, -2.5, 0.15625], np.float32)
    raw = (values.view(np.uint32) >> 16).astype(np.uint16).tobytes()
    entry = {"a": {"dtype": "BF16", "shape": [3], "data_offsets": [0, 6]}}
    text = json.dumps(entry).encode()
    found = _read(tmp_path / "x.safetensors", struct.pack("<Q", len(text)) + text + raw)["a"]
    assert (np.float32, values.tolist()) == (found.dtype, found.tolist())


def _header(entry, data=b"\0" * 16):
    text = json.dumps(entry).encode()
    return struct.pack("<Q", len(text)) + text + data


def _entry(**changes):
    return {"a": {"dtype": "F32", "shape": [4], "data_offsets": [0, 16], **changes}}


@pytest.mark.parametrize(
    "content",
    [
        struct.pack("<Q", 10**6) + b"{" + b" " * 60,
        struct.pack("<Q", 60) + b"{" + b"x" * 70,
        _header(_entry(data_offsets=[0, 32], shape=[8])),
        _header(_entry(shape=[2**62, 4])),
        _header(_entry(shape=[-4])),
        _header(_entry(shape=[5])),
        _header(_entry(dtype="F8_E5M2")),
        _header(_entry(data_offsets=[0])),
        _header(_entry(data_offsets=[12, 4])),
        _header(_entry() | {"b": _entry()["a"]}),
        _header([1]) + b" " * 60,
    ],
)
def test_a_safetensors_file_that_lies_is_refused(tmp_path, content):
    with pytest.raises(DataError) as caught:
        _read(tmp_path / "x.safetensors", content)
    assert caught.value.code in ("ACC909", "ACC903")


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_damage_is_an_error_or_other_numbers_never_a_crash(tmp_path, data):
    whole = data.draw(st.sampled_from([safetensors(ARRAYS), npz(ARRAYS)]))
    cut = data.draw(st.integers(64, len(whole)))
    at = data.draw(st.integers(0, cut - 1))
    broken = bytearray(whole[:cut])
    broken[at] ^= data.draw(st.integers(1, 255))
    with suppress(DataError):
        _read(tmp_path / "x.bin", bytes(broken))


def _member(content):
    held = io.BytesIO()
    with zipfile.ZipFile(held, "w") as file:
        file.writestr("a.npy", content)
    return held.getvalue()


def _npy(descr, shape, data=b""):
    held = io.BytesIO()
    np.lib.format.write_array_header_1_0(held, {"descr": descr, "fortran_order": False, "shape": shape})
    return held.getvalue() + data


@pytest.mark.parametrize(
    ("content", "code"),
    [
        (_npy("|O", (1,), pickle.dumps([1])), "ACC866"),
        (_npy([("x", "<f8")], (1,), b"\0" * 8), "ACC866"),
        (_npy("<f8", (2**40,), b"\0" * 8), "ACC909"),
        (_npy("<f8", (2**62, 2**62), b"\0" * 8), "ACC909"),
        (b"no array", "ACC909"),
        (b"\x93NUMPY\x01\x00", "ACC909"),
    ],
)
def test_an_npz_member_that_is_no_array_of_numbers_is_refused(tmp_path, content, code):
    with pytest.raises(DataError) as caught:
        _read(tmp_path / "x.npz", _member(content))
    assert code == caught.value.code


def test_a_compression_bomb_meets_the_limit(tmp_path):
    path = tmp_path / "x.npz"
    path.write_bytes(npz({"a": np.zeros(1 << 20)}))
    with pytest.raises(DataError) as caught:
        read_tensors(Source(path, Limits()), Limits(line_bytes=1 << 16))
    assert "ACC908" == caught.value.code


class _Armed:
    def __reduce__(self):
        return (Path.touch, (Path("fired"),))


@pytest.mark.parametrize("name", ["batch.pkl", "batch.jsonl", "batch.pt"])
def test_a_pickle_is_never_opened(tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    path = tmp_path / name
    path.write_bytes(pickle.dumps(_Armed()) + b" " * 64)
    for format in (None, "jsonl"):
        with pytest.raises(DataError, match="ACC866") as caught:
            ac.read(path, format)
        assert "load_from_disk" in caught.value.hint
    assert not (tmp_path / "fired").exists()


def test_an_archive_of_torch_is_a_pickle(tmp_path):
    held = io.BytesIO()
    with zipfile.ZipFile(held, "w") as file:
        file.writestr("batch/data.pkl", pickle.dumps(_Armed()))
    path = tmp_path / "tensors"
    path.write_bytes(held.getvalue())
    with pytest.raises(DataError, match="ACC866"):
        ac.read(path)


def test_objects_inside_npz_are_refused_by_read(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    held = np.empty(1, object)
    held[:] = [_Armed()]
    path = tmp_path / "batch.npz"
    path.write_bytes(npz({"response_mask": held}))
    with pytest.raises(DataError, match="ACC866"):
        ac.read(path)
    assert not (tmp_path / "fired").exists()
