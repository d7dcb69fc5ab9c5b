"""The bench beside verl's own functions, at small sizes; a missing verl fails here."""

import json

import pytest

from bench.__main__ import SECTIONS, main
from bench.peers import VERSION

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    out = tmp_path_factory.mktemp("bench")
    main(["--small", "--out", str(out), "--docs", str(out / "performance.md")])
    return out, {f.stem: json.loads(f.read_text()) for f in out.glob("*.json")}


def test_every_section_runs_beside_verl(results):
    out, found = results
    assert set(SECTIONS) == set(found)
    assert {VERSION} == {section["machine"]["versions"]["verl"] for section in found.values()}
    assert "Not measured" not in (out / "performance.md").read_text()


def test_credit_equals_that_of_verl_on_ragged_batches(results):
    parity = results[1]["parity"]
    forms = {("grpo", "loop"), ("grpo", "vectorised"), ("rloo", "loop"), ("rloo", "vectorised")}
    assert forms == {(row["method"], row["form"]) for row in parity["rows"]}
    assert parity["singleton_groups"] > 0
    assert [] == [row for row in parity["rows"] if not row["worst"] <= parity["tolerance"]]


def test_a_tie_is_exactly_zero_where_verl_has_rounding_noise(results):
    ties = results[1]["parity"]["ties"]
    assert [0.0] * len(ties) == [row["accredit grpo"] for row in ties]
    assert [0.0] * len(ties) == [row["accredit rloo"] for row in ties]
    assert any(row["verl grpo loop"] > 1e-3 for row in ties)


def test_both_contestants_are_timed_at_every_size(results):
    rows = results[1]["outcome"]["rows"]
    assert {(m, n) for m in ("grpo", "rloo") for n in (96, 480)} == {(r["method"], r["rows"]) for r in rows}
    assert all(t["best_s"] > 0 for row in rows for t in row["seconds"].values())
