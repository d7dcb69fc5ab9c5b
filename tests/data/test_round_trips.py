"""What goes into a file comes out of it; slices and sums of batches hold what they should."""

from __future__ import annotations

import contextlib
import tracemalloc
from types import MappingProxyType

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from accredit.data import Batch
from accredit.data.sinks import ListSink
from accredit.errors import DataError
from accredit.readers import convert, read
from accredit.store import save_batch
from accredit.store.parquet import parquet_batches, write_parquet
from tests.dear import dear
from tests.strategies import batches, records

KINDS = ("jsonl", "jsonl.gz", "jsonl.zst", "parquet")


def same_in_all(a: Batch, b: Batch) -> None:
    """Equal rollouts, and equal in what `==` does not look at."""
    assert a == b
    assert a.batch_hash == b.batch_hash
    assert a.outcome_in_steps == b.outcome_in_steps
    assert a.excluded == b.excluded
    assert [(f.code, f.message, f.count) for f in a.findings] == [
        (f.code, f.message, f.count) for f in b.findings
    ]
    for name, column in a.columns.items():
        assert column.values.dtype == b.columns[name].values.dtype, name
        assert column.values.shape == b.columns[name].values.shape, name
        assert dict(column.provenance) == dict(b.columns[name].provenance), name


def told(batch: Batch) -> list[tuple[str, str, int]]:
    return [(f.code, f.message, f.count) for f in batch.findings]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder whose files need not survive a power cut: hundreds of flushes take minutes."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("accredit.store.atomic.os.fsync", lambda handle: None)
        yield tmp_path_factory.mktemp("files")


@dear
@given(source=records())
def test_file_brings_a_batch_back_whole(folder, source):
    batch = Batch.from_records(source, source="made.jsonl")
    assert () == batch.excluded
    for kind in KINDS:
        back = read(save_batch(batch, folder / f"a.{kind}"))
        same_in_all(batch, back)
        assert dict(batch.provenance) == back.provenance["origin"]


@dear
@given(batches())
def test_records_bring_a_batch_back(batch):
    assert batch == Batch.from_records(list(batch.records()))


@st.composite
def with_odd_columns(draw):
    """Columns that no record gives: other dtypes, names that are taken, words and JSON of tokens."""
    batch = draw(batches(max_rollouts=4, max_steps=3))
    size = {"R": len(batch), "S": batch.n_steps, "T": batch.n_tokens}
    if batch.context_start_S1 is not None:
        size["C"] = int(batch.context_start_S1[-1])
    for name in draw(
        st.sets(
            st.sampled_from(
                ["x", "value", "tokens", "id", "steps", "a_S", "values", "row", "hidden", "teacher_logprobs"]
            )
        )
    ):
        letter = draw(st.sampled_from(sorted(size)))
        n = size[letter]
        made = {
            "int": np.arange(n) - 2**62,
            "uint": np.arange(n, dtype=np.uint64) + np.uint64(2**63),
            "small": np.arange(n, dtype=np.int8),
            "bool": np.arange(n) % 2 == 0,
            "float": np.arange(n) / 7,
            "words": ["ab"[i % 2] for i in range(n)],
            "mixed words": [["a", 1, 1.0, True, "1"][i % 5] for i in range(n)] if n > 1 else ["a"] * n,
        }
        if letter in "RST":
            made |= {
                "vector": np.arange(3.0 * n).reshape(n, 3) / 7,
                "half vector": (np.arange(2.0 * n).reshape(n, 2) / 7).astype(np.float16),
                "int vector": np.arange(2 * n, dtype=np.int32).reshape(n, 2),
                "large vector": np.arange(2 * n, dtype=np.uint64).reshape(n, 2) + np.uint64(2**63),
                "bool vector": np.arange(2 * n).reshape(n, 2) % 3 == 0,
                "no width": np.ones((n, 0)),
            }
        if letter in "RS":
            made["json"] = [{"i": i} for i in range(n)]
        values = made[draw(st.sampled_from(sorted(made)))]
        mask = None
        if draw(st.booleans()):
            rows = size["R"] if letter == "R" else size["S"]
            mask = np.array([i % 3 != 0 for i in range(rows)], bool)
        if f"{name}_{letter}" not in batch.columns and f"{name}_{letter}" != "row_S":
            with contextlib.suppress(DataError):  # a column of the vocabulary takes its own kind alone
                batch = batch.with_column(f"{name}_{letter}", values, {"by": "test", "n": 1}, valid=mask)
    return batch


@dear
@given(batch=with_odd_columns())
def test_file_brings_added_columns_back(folder, batch):
    for kind in ("jsonl", "parquet"):
        same_in_all(batch, read(save_batch(batch, folder / f"b.{kind}")))


@dear
@given(batches(min_rollouts=2), st.data())
def test_slice_of_a_batch_survives_a_file(folder, batch, data):
    """Columns of which the slice has no value are still there."""
    picked = data.draw(st.lists(st.integers(0, len(batch) - 1), unique=True, max_size=len(batch)))
    part = batch.take(np.array(picked, np.int64))
    for kind in ("jsonl", "parquet"):
        same_in_all(part, read(save_batch(part, folder / f"c.{kind}")))


def test_convert_keeps_everything_between_all_forms(tmp_path):
    first = tmp_path / "a.jsonl"
    first.write_text(
        '{"id": "a", "group": 1, "reward": 1, "steps": [{"reward": 1, "tokens": [1], "x": 0.5}]}\n'
        '{"id": "b", "group": true, "reward": null, "steps": [{"state": 1.0}, {"state": 1}]}\n'
        '{"id": "c", "reward": "high"}\n'
        '{"id": "d", "steps": [{"prompt_tokens": [1], "tokens": [3]}, {"prompt_tokens": [1, 9]}]}\n'
    )
    whole = read(first)
    assert 1 == len(whole.excluded)
    for kind in (*KINDS, *reversed(KINDS)):
        done = convert(first, tmp_path / f"next.{kind}")
        assert (3, whole.excluded) == (done.rollouts, done.excluded)
        same_in_all(whole, read(done.path))
        first = done.path


def test_file_may_be_converted_onto_itself(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text('{"id": "a", "group": "g", "reward": 1, "steps": []}\n')
    convert(path, path)
    assert ("a",) == read(path).ids


def many(n: int, steps: int = 2, tokens: int = 50):
    for r in range(n):
        yield {
            "id": f"r{r}",
            "group": r // 4,
            "reward": float(r % 2),
            "steps": [
                {"state": f"s{t % 3}", "tokens": list(range(tokens)), "logprobs": [-0.5] * tokens}
                for t in range(steps)
            ],
        }


def test_row_groups_are_bounded_and_stream(tmp_path, monkeypatch):
    monkeypatch.setattr("accredit.store.parquet._GROUP_TOKENS", 1000)
    batch = Batch.from_records(many(100))
    write_parquet(batch, tmp_path / "a.parquet")
    parts = list(parquet_batches(tmp_path / "a.parquet"))
    assert 10 == len(parts)
    assert all(part.n_tokens <= 1000 for part in parts)
    assert batch == Batch.concat(parts) == read(tmp_path / "a.parquet")


def test_rows_of_other_writers_are_read_as_records(tmp_path):
    import pyarrow as pa
    import pyarrow.parquet as pq

    rows = [*many(5), {"id": "x", "group": 9, "reward": float("nan"), "steps": [{"state": "s"}]}]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "a.parquet")
    batch = read(tmp_path / "a.parquet")
    assert batch.take(np.arange(5)) == Batch.from_records(many(5))
    assert [True] * 5 + [False] == batch.column("reward_R").mask(6).tolist()


def test_other_tools_read_the_parquet_file(tmp_path):
    import pyarrow.parquet as pq

    path = save_batch(Batch.from_records(many(3, tokens=2)), tmp_path / "a.parquet")
    table = pq.read_table(path)
    assert ["id", "group", "reward", "steps"] == table.column_names
    step = table["steps"][0].as_py()[0]
    assert {"n_tokens": 2, "state": "s0", "tokens": [0, 1], "logprobs": [-0.5, -0.5]} == step


# Folders and documents.
def test_folder_is_one_source(tmp_path):
    whole = Batch.from_records(many(9))
    for i, kind in enumerate(KINDS):
        save_batch(whole.take(np.arange(2 * i, 2 * i + 2)), tmp_path / f"{i}.{kind}")
    (tmp_path / "notes.txt").write_text("not rollouts")
    back = read(tmp_path)
    assert set(whole.ids[:8]) == set(back.ids)
    assert whole.take(np.array([whole.position(i) for i in back.ids])) == back
    empty = tmp_path / "none"
    empty.mkdir()
    with pytest.raises(DataError, match="no file of rollouts"):
        read(empty)


def test_id_in_two_files_of_a_folder_is_left_out_once(tmp_path):
    batch = Batch.from_records(many(2))
    for name in ("a.jsonl", "b.jsonl", "c.parquet"):
        save_batch(batch, tmp_path / name)
    back = read(tmp_path)
    assert batch.ids == back.ids
    assert ["ACC101"] * 4 == [e.code for e in back.excluded]
    with pytest.raises(DataError, match="ACC101"):
        read(tmp_path, strict=True)


@pytest.mark.parametrize("shape", ["[%s, %s]", '{"rollouts": [%s, %s]}'])
def test_json_document_is_read(tmp_path, shape):
    import json

    path = tmp_path / "a.json"
    texts = [json.dumps(r, indent=2) for r in many(2)]
    path.write_text(shape.replace("{", "{\n") % tuple(texts))
    assert Batch.from_records(many(2)) == read(path)


# Slices, sums, memory.
@dear
@given(batches(), st.data())
def test_parts_of_a_batch_add_up_to_it(batch, data):
    cut = data.draw(st.integers(0, len(batch)))
    parts = [batch.take(np.arange(cut)), batch.take(np.arange(cut, len(batch)))]
    assert batch == Batch.concat(parts)
    assert batch.outcome_in_steps == Batch.concat(parts).outcome_in_steps


def test_parts_put_together_count_what_was_left_out_once():
    broken = {"id": "r", "group": "g0", "reward": "much", "steps": [{"action": "a"}]}
    batch = Batch.from_records([*many(4), broken])
    whole = Batch.concat([batch.take([0, 1]), batch.take([2, 3])])
    assert 1 == len(batch.excluded)
    assert batch.excluded == whole.excluded
    assert batch.findings == whole.findings


@dear
@given(batches(min_rollouts=1))
def test_groups_hold_each_rollout_once(batch):
    names = [name for name, _ in batch.groups()]
    assert len(names) == batch.n_groups
    assert sorted(batch.ids) == sorted(i for _, part in batch.groups() for i in part.ids)


@dear
@given(batches(min_rollouts=1), st.data())
def test_order_back_and_forth_is_the_same_batch(batch, data):
    order = np.array(data.draw(st.permutations(range(len(batch)))), np.int64)
    assert batch == batch.take(order).take(np.argsort(order))


def test_contiguous_slice_is_a_view():
    batch = Batch.from_records(many(10))
    part = batch.take(np.arange(2, 5))
    assert np.shares_memory(batch.token_T, part.token_T)
    assert not part.token_T.flags.writeable


def test_generator_is_read_at_the_memory_of_its_columns():
    list(many(1))
    tracemalloc.start()
    batch = Batch.from_records(many(3000))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    columns = sum(c.values.nbytes for c in batch.columns.values())
    assert 3000 * 100 * 12 < columns
    assert peak < 2 * columns + 4 * 2**20


def test_torn_rollout_is_left_out_whole():
    """A rollout of several records lost one of them and was used with the rest."""
    rows = [
        {"id": "a", "group": "g", "reward": 1, "row": 0, "steps": [{"action": "x"}]},
        {"id": "a", "group": "g", "reward": 1, "row": 1, "steps": [{"tokens": [1.5]}]},
        {"id": "b", "group": "g", "reward": 1, "row": 0, "steps": [{"action": "x"}]},
    ]
    batch = Batch.from_records(rows)
    assert ("b",) == batch.ids
    assert ["a", "a"] == [e.id for e in batch.excluded]
    assert ["ACC110", "ACC108"] == [e.code for e in batch.excluded]


@dear
@given(records(rows=False), st.data())
def test_used_and_excluded_add_up_to_what_was_given(source, data):
    spoil = [{"id": ""}, {"reward": "x"}, {"steps": 3}, {"status": "lost"}, {}]
    given_ = [r | data.draw(st.sampled_from(spoil)) for r in source]
    batch = Batch.from_records(given_)
    assert len(given_) == len(batch) + len(batch.excluded)


@dear
@given(records())
def test_steps_of_equal_keys_are_read_as_any_others(source):
    """Dicts of equal keys are taken column by column; other mappings one field at a time."""
    slow = [r | {"steps": [MappingProxyType(step) for step in r["steps"]]} for r in source]
    assert Batch.from_records(source) == Batch.from_records(slow)


def test_number_beyond_float32_counts_as_absent_with_a_finding():
    steps = [{"logprobs": [-1e300], "signal": [1e300]}, {"logprobs": [-1.0], "signal": [1.0]}]
    batch = Batch.from_records([{"id": "a", "steps": steps}])
    assert [False, True] == batch.column("logprob_T").valid.tolist()
    assert [False, True] == batch.column("signal_T").valid.tolist()
    assert 2 == next(f.count for f in batch.findings if f.code == "ACC306")


def test_empty_list_does_not_round_the_integers_beside_it():
    """numpy reads [] as float64, and 64-bit numbers beside it lost their last digits."""
    sink = ListSink("i8")
    assert sink.add([0, 1], [[], [2**62 + 1]])
    assert [2**62 + 1] == sink.flat().tolist()
