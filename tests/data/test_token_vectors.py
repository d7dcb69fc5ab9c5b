"""One vector a policy token: from records to a column `[T, d]` and back, and what does not fit."""

from __future__ import annotations

import json
import pickle
import tracemalloc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from accredit.data import Batch
from accredit.data.sinks import number_rows
from accredit.errors import DataError
from accredit.readers import read
from accredit.store import save_batch
from tests.dear import dear

values = st.floats(-100, 100, width=32)


@st.composite
def ragged_vectors(draw):
    """Steps with `[n, d]` lists, or None where a step has none; n tokens each; their width."""
    width = draw(st.integers(1, 4))
    counts = draw(st.lists(st.integers(0, 3), max_size=6))
    row = st.lists(values, min_size=width, max_size=width)
    steps = [
        draw(st.none() | st.lists(row, min_size=n, max_size=n))
        if draw(st.booleans())
        else [[0.5] * width] * n
        for n in counts
    ]
    return counts, steps, width


def record_of(counts, steps, field, name="a", **more):
    made = [{"n_tokens": n} | ({} if v is None else {field: v}) for n, v in zip(counts, steps, strict=True)]
    return {"id": name, "group": "g", "reward": 1.0, "steps": made} | more


def one(*steps, **more):
    return {"id": "a", "group": "g", "reward": 1.0, "steps": list(steps)} | more


# From records.
@pytest.mark.parametrize("field", ["hidden", "signature"])
@pytest.mark.parametrize("kind", ["lists", "arrays", "lists of arrays"])
@given(drawn=ragged_vectors())
def test_column_holds_each_tokens_vector_as_a_plain_loop_finds_it(field, kind, drawn):
    counts, steps, width = drawn
    expected, there = [], []
    for n, step in zip(counts, steps, strict=True):
        there.append(step is not None)
        expected += [[0.0] * width] * n if step is None else step
    if kind == "arrays":
        steps = [None if v is None else np.array(v, np.float32).reshape(len(v), width) for v in steps]
    elif kind == "lists of arrays":
        steps = [None if v is None else [np.array(row, np.float32) for row in v] for v in steps]
    batch = Batch.from_records([record_of(counts, steps, field)])
    assert () == batch.excluded
    if not any(v is not None and len(v) for v in steps):  # no vector says how wide they are
        assert not batch.has(f"{field}_T") or not batch.column(f"{field}_T").values.any()
        return
    column = batch.column(f"{field}_T")
    assert ("token", np.float32) == (column.level, column.values.dtype)
    assert expected == column.values.tolist()
    assert there == column.mask(batch.n_steps).tolist()


cells = (
    st.integers(-(2**54), 2**54)
    | st.just(2**53 + 1)
    | st.floats(allow_nan=False)
    | st.booleans()
    | st.text(max_size=1)
)


@dear
@given(st.lists(st.lists(cells, max_size=2) | cells, max_size=3))
def test_number_rows_takes_equally_long_lists_of_numbers_alone(rows):
    def is_row(row):
        return isinstance(row, list) and all(
            type(v) is float or (type(v) is int and abs(v) < 2**53) for v in row
        )

    sound = all(is_row(row) for row in rows) and len({len(r) for r in rows if isinstance(r, list)}) <= 1
    if sound and any(type(v) is int for row in rows for v in row):
        sound = all(abs(v) < 2**53 for row in rows for v in row)
    found = number_rows(rows)
    assert sound == (found is not None)
    if found is not None:
        assert rows == found.tolist()


@pytest.mark.parametrize(
    ("given_", "stored"),
    [("f2", "f2"), ("f4", "f4"), ("f8", "f4"), ("i8", "f4"), ("i1", "f2")],
)
@pytest.mark.parametrize("field", ["hidden", "signature"])
def test_half_precision_arrays_stay_so_and_others_are_float32(given_, stored, field):
    step = {"n_tokens": 2, field: np.ones((2, 3), given_)}
    assert np.dtype(stored) == Batch.from_records([one(step)]).column(f"{field}_T").values.dtype
    mixed = Batch.from_records([one(step, {"n_tokens": 1, field: [[0.1, 2, 3]]})])
    assert np.float32 == mixed.column(f"{field}_T").values.dtype


def test_empty_step_before_the_first_vector_costs_nothing():
    """The first list was empty, so that the field was taken for numbers, and then for JSON."""
    batch = Batch.from_records([one({"tokens": [], "x": []}, {"tokens": [1], "x": [[1, 2]]})])
    assert [[1.0, 2.0]] == batch.x_T.tolist()
    assert batch.column("x_T").valid is None


# What does not fit.
@pytest.mark.parametrize(
    ("steps", "code"),
    [
        ([{"hidden": [[1, 2], [3]]}], "ACC110"),
        ([{"hidden": [[1, 2]]}, {"hidden": [[1]]}], "ACC104"),
        ([{"tokens": [1], "hidden": [[1], [2]]}], "ACC104"),
        ([{"hidden": [1, 2]}], "ACC110"),
        ([{"hidden": [["a"]]}], "ACC110"),
        ([{"hidden": [[True]]}], "ACC110"),
        ([{"hidden": 3}], "ACC110"),
    ],
)
def test_record_whose_known_vectors_do_not_fit_is_left_out_whole(steps, code):
    batch = Batch.from_records([one(*steps), one({"hidden": [[1, 2, 3]]}) | {"id": "b"}])
    assert ("b",) == batch.ids
    assert [("a", code)] == [(e.id, e.code) for e in batch.excluded]
    assert (1, 3) == batch.hidden_T.shape


def test_record_of_another_width_than_those_before_it_is_left_out():
    records = [one({"hidden": [[1, 2]]}) | {"id": name} for name in "ab"]
    records.insert(1, one({"hidden": [[1]]}) | {"id": "x"})
    batch = Batch.from_records(records)
    assert ("a", "b") == batch.ids
    assert [("x", "ACC104")] == [(e.id, e.code) for e in batch.excluded]
    assert "1 numbers a token in hidden" in batch.excluded[0].reason


odd = st.sampled_from(
    [[[1, 2], [3]], [[1]], [["a", "b"]], [[1, 2]] * 3, {"a": [1]}, [[2**53 + 1, 1]], [None]]
)


@pytest.mark.parametrize("kind", ["jsonl", "parquet"])
@given(before=st.lists(st.just([[0.1, 2]]), max_size=2), other=odd)
def test_extra_lists_that_do_not_fit_are_kept_as_they_are(folder, kind, before, other):
    steps = [{"n_tokens": 1, "x": value} for value in [*before, other]]
    batch = Batch.from_records([one(*steps)])
    if other == [[1]] and not before:
        assert [[1.0]] == batch.x_T.tolist()
        return
    assert () == batch.excluded
    assert [*before, other] == batch.x_S.tolist()
    assert batch == read(save_batch(batch, folder / f"odd.{kind}"))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("accredit.store.atomic.os.fsync", lambda handle: None)
        yield tmp_path_factory.mktemp("files")


@pytest.mark.parametrize("field", ["hidden", "x"])
def test_vectors_that_are_not_finite_count_as_absent_with_a_finding(tmp_path, field):
    steps = [{"tokens": [1], field: [[1.0, float("nan")]]}, {"tokens": [2], field: [[1.0, 2.0]]}]
    path = tmp_path / "a.jsonl"
    path.write_text(json.dumps(one(*steps)) + "\n")
    for batch in (Batch.from_records([one(*steps)]), read(path)):
        column = batch.column(f"{field}_T")
        assert [False, True] == column.valid.tolist()
        assert [[0.0, 0.0], [1.0, 2.0]] == column.values.tolist()
        assert [1] == [f.count for f in batch.findings if f.code == "ACC306"]


def test_promise_of_wide_vectors_takes_no_memory(tmp_path):
    path = tmp_path / "a.jsonl"
    columns = [
        {"column": f"{name}_T", "field": name, "kind": "vector", "dtype": "float32", "width": 1 << 20}
        for name in ("hidden", "x")
    ]
    record = one({"n_tokens": 1 << 20})
    path.write_text(
        json.dumps({"schema": "accredit.rollouts/1", "columns": columns}) + f"\n{json.dumps(record)}\n"
    )
    batch = read(path)
    assert 1 << 20 == batch.n_tokens
    assert all(c.values.nbytes < 1 << 25 for c in batch.columns.values())


def test_header_that_promises_another_kind_costs_no_value(tmp_path):
    """Values that did not fit their header's kind became JSON of steps under a name of tokens."""
    path = tmp_path / "a.jsonl"
    column = {"column": "x_T", "field": "x", "dtype": "float32"}
    for kind, value in [("vector", [0.5]), ("number", [[0.5, 1.5]]), ("vector", [["a"]])]:
        header = {"schema": "accredit.rollouts/1", "columns": [column | {"kind": kind, "width": 2}]}
        path.write_text(f"{json.dumps(header)}\n{json.dumps(one({'n_tokens': 1, 'x': value}))}\n")
        batch = read(path)
        assert [value] == batch.x_S.tolist()
        assert "step" == batch.column("x_S").level


# Added columns, slices, sums.
def test_with_column_takes_vectors_of_tokens():
    batch = Batch.from_records([one({"n_tokens": 2}, {"n_tokens": 1})])
    given_ = np.arange(6.0).reshape(3, 2)
    longer = batch.with_column("hidden", given_, {"by": "probe"}, valid=np.array([True, False]))
    assert [[0, 1], [2, 3], [0, 0]] == longer.hidden_T.tolist()
    assert (np.float32, {"by": "probe"}) == (longer.hidden_T.dtype, longer.column("hidden_T").provenance)
    assert given_.flags.writeable
    assert np.float16 == batch.with_column("hidden_T", given_.astype(np.float16)).hidden_T.dtype
    for name, wrong in [("hidden", np.ones(3)), ("hidden", np.ones((2, 2))), ("x_T", np.ones((3, 2, 2)))]:
        with pytest.raises(DataError):
            batch.with_column(name, wrong)
    with pytest.raises(DataError, match="signals"):
        batch.with_column("perturbed_logprobs", np.ones(3))


@given(ragged_vectors(), ragged_vectors(), st.booleans())
def test_vectors_go_through_slices_sums_and_pickles(a, b, shorter):
    first = Batch.from_records([record_of(a[0], a[1], "hidden", "a")])
    second = Batch.from_records([record_of(b[0], b[1], "hidden", "b")])
    wide = [any(v for v in drawn[1] if v is not None) for drawn in (a, b)]
    if all(wide) and a[2] != b[2]:
        with pytest.raises(DataError, match="different kinds"):
            Batch.concat([first, second])
        return
    whole = Batch.concat([first, second])
    again = pickle.loads(pickle.dumps(whole))
    assert whole == again
    assert whole.batch_hash == again.batch_hash
    together = Batch.from_records([*first.records(), *second.records()])
    assert whole == together
    assert first.n_tokens == whole.take([0]).n_tokens
    if wide[0]:
        assert first == whole.take([0])
        changed = whole.hidden_T.copy()
        changed[
            np.flatnonzero(
                np.repeat(whole.column("hidden_T").mask(whole.n_steps), np.diff(whole.token_start_S1))
            )[0]
        ] += 1
        other = whole.with_column("hidden_T", changed, valid=whole.column("hidden_T").valid)
        assert whole != other
        assert whole.batch_hash != other.batch_hash


def wide(n: int, as_lists: bool, tokens: int = 64, width: int = 32):
    given_ = np.ones((tokens, width), np.float32) / 3
    for r in range(n):
        hidden = given_.tolist() if as_lists else given_.copy()
        yield {"id": f"r{r}", "group": r // 4, "steps": [{"hidden": hidden}]}


@pytest.mark.parametrize("as_lists", [True, False])
def test_vectors_are_read_at_little_more_than_the_memory_of_their_column(as_lists):
    list(wide(1, as_lists))
    tracemalloc.start()
    batch = Batch.from_records(wide(1000, as_lists))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert 1000 * 64 * 32 * 4 == batch.hidden_T.nbytes
    assert peak < 2 * batch.hidden_T.nbytes + 4 * 2**20


def test_windows_of_a_file_count_the_numbers_of_vectors(tmp_path, monkeypatch):
    from accredit.data.export import windows
    from accredit.store.parquet import parquet_batches, write_parquet

    batch = Batch.from_records(wide(8, as_lists=False))
    assert [(0, 4), (4, 8)] == list(windows(batch, 4 * 64 * 32))
    monkeypatch.setattr("accredit.store.parquet._GROUP_TOKENS", 4 * 64 * 32)
    write_parquet(batch, tmp_path / "a.parquet")
    parts = list(parquet_batches(tmp_path / "a.parquet"))
    assert 2 == len(parts)
    assert batch == Batch.concat(parts)


@pytest.mark.parametrize("kind", ["jsonl", "parquet"])
@pytest.mark.parametrize("field", ["hidden", "x"])
@dear
@given(drawn=ragged_vectors())
def test_half_precision_stays_half_precision_in_files(folder, kind, field, drawn):
    counts, steps, width = drawn
    half = [None if v is None else np.array(v, np.float16).reshape(len(v), width) for v in steps]
    batch = Batch.from_records([record_of(counts, half, field)])
    back = read(save_batch(batch, folder / f"half.{kind}"))
    assert batch == back
    for name, column in batch.columns.items():
        assert column.values.dtype == back.columns[name].values.dtype, name
    if any(v is not None and v.size for v in half):
        assert np.float16 == back.column(f"{field}_T").values.dtype


# Named signals.
def test_named_signals_are_columns_and_come_back_as_they_came():
    steps = [
        {"tokens": [1, 2], "perturbed_logprobs": {"mask": [-1.0, -2.0], "shuffle": [-0.5, -0.25]}},
        {"perturbed_logprobs": {"mask": [-3.0]}},
        {"tokens": [4]},
    ]
    batch = Batch.from_records([one(*steps)])
    assert [-1.0, -2.0, -3.0, 0.0] == batch.columns["perturbed_logprobs.mask_T"].values.tolist()
    assert [True, False, False] == batch.columns["perturbed_logprobs.shuffle_T"].valid.tolist()
    assert steps == next(iter(batch.records()))["steps"]


@pytest.mark.parametrize(
    ("step", "code"),
    [
        ({"perturbed_logprobs": [-1.0]}, "ACC110"),
        ({"perturbed_logprobs": {"mask": 1}}, "ACC110"),
        ({"tokens": [1], "perturbed_logprobs": {"mask": [-1.0, -1.0]}}, "ACC104"),
        ({"perturbed_logprobs": {"mask": [-1.0]}, "perturbed_logprobs.mask": [-1.0]}, "ACC110"),
    ],
)
def test_named_signals_of_another_form_leave_the_record_out(step, code):
    assert [code] == [e.code for e in Batch.from_records([one(step)]).excluded]


def test_other_columns_of_such_a_name_survive_files(tmp_path):
    batch = Batch.from_records([one({"tokens": [1], "perturbed_logprobs": {"a": [-1.0]}})])
    batch = batch.with_column("perturbed_logprobs.a_S", [0.5]).with_column("perturbed_logprobs.b_S", ["w"])
    for kind in ("jsonl", "parquet"):
        assert batch == read(save_batch(batch, tmp_path / f"a.{kind}"))


def test_teacher_logprobs_are_read_as_logprobs_teacher():
    batch = Batch.from_records([one({"teacher_logprobs": [-1.0]}, {"logprobs_teacher": [-2.0]})])
    assert [-1.0, -2.0] == batch.logprobs_teacher_T.tolist()


# Rollouts.
REFERENCES = {
    "candidate_logprobs": [[-1.0, -2.5], [-3], []],
    "ref_logprobs": {"baseline": [-1.0, -2.0], "after_step": [[-1.0], [-0.5, 0]]},
    "evidence": [1, 2.5, 3],
    "answer": "42",
    "answer_cluster": 3,
}


@pytest.mark.parametrize("kind", ["jsonl", "jsonl.gz", "parquet"])
def test_lists_and_objects_of_a_rollout_come_back_as_they_were(tmp_path, kind):
    more = [REFERENCES, {}, REFERENCES | {"evidence": [], "candidate_logprobs": []}]
    records = [one({"n_tokens": 3}, **m) | {"id": f"r{i}"} for i, m in enumerate(more)]
    batch = Batch.from_records(records)
    back = read(save_batch(batch, tmp_path / f"a.{kind}"))
    assert batch == back
    assert batch.batch_hash == back.batch_hash
    assert records == list(back.records())
    assert int is type(back.evidence_R[0][0])


def test_numpy_inside_objects_equals_the_lists_it_is_written_as(tmp_path):
    """Equality of arrays inside JSON raised, and their fingerprint was that of their shortened text."""
    long = np.arange(3000.0)
    batch = Batch.from_records([one(ref_logprobs={"baseline": long}, evidence=long, table=np.ones((2, 2)))])
    plain = Batch.from_records(
        [one(ref_logprobs={"baseline": long.tolist()}, evidence=long.tolist(), table=[[1.0, 1.0]] * 2)]
    )
    assert batch == plain == read(save_batch(batch, tmp_path / "a.jsonl"))
    assert batch.batch_hash == plain.batch_hash
    other = long.copy()
    other[1500] = -1
    assert batch != Batch.from_records(
        [one(ref_logprobs={"baseline": other}, evidence=long, table=[[1.0, 1.0]] * 2)]
    )


def test_nan_in_a_list_of_a_rollout_is_not_known(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text('{"id": "a", "group": "g", "evidence": [1.0, NaN], "steps": []}\n')
    batch = read(path)
    assert [[1.0, None]] == batch.evidence_R.tolist()
    assert batch == read(save_batch(batch, tmp_path / "b.jsonl"))
