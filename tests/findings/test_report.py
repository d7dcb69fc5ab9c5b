"""`check` and its Report: inputs, merging, strictness, JSON, hostile text, speed."""

from __future__ import annotations

import json
import time
from collections import Counter

import numpy as np
import pytest
from hypothesis import given

import accredit as ac
from accredit.data import Batch, Column
from accredit.errors import DataError, ParamError
from accredit.findings import examine
from tests.dear import dear
from tests.findings.planted import clean, planted
from tests.strategies import batches, records


def test_a_batch_records_and_a_path_give_the_same(tmp_path):
    path = tmp_path / "rollouts.jsonl"
    path.write_text("\n".join(map(json.dumps, planted("ACC205"))))
    expected = ac.check(planted("ACC205"))
    assert expected.findings == ac.check(iter(planted("ACC205"))).findings
    assert expected.findings == ac.check(path).findings
    assert expected.summary == ac.check(str(path)).summary


def test_errors_come_first():
    found = ac.check([*planted("ACC206"), clean()[0]])
    assert ["error", "info"] == [f.severity for f in found]
    assert ["ACC101"] == [f.code for f in found.errors]
    assert [] == list(found.warnings)
    assert not found.ok


def test_infos_are_no_trouble():
    found = ac.check(planted("ACC206"))
    assert found.ok
    assert 1 == len(found)
    assert "0 errors, 0 warnings, 1 info" in repr(found)


def test_strict_raises_the_worst():
    with pytest.raises(DataError, match="ACC205"):
        ac.check(planted("ACC205"), strict=True)
    assert ac.check(planted("ACC206"), strict=True).ok


def test_an_unknown_method_or_key_is_named():
    with pytest.raises(ParamError, match="gigpo"):
        ac.check(clean(), method="gigp")
    with pytest.raises(ParamError, match="strip-digits"):
        ac.check(clean(), key="strip-digit")


def test_the_method_says_what_it_does_with_truncated_rollouts():
    def message(method):
        return ac.check(planted("ACC206"), method=method).by_code()["ACC206"][0].message

    assert "grpo counts their reward as recorded (truncated='keep')" in message("grpo")
    assert "grpo leaves them out, credit 0" in message("grpo:truncated=drop")
    assert "td runs with truncation='terminal': cut off and no final_value" in message("td")


def test_a_missing_signal_says_where_it_comes_from():
    (found,) = ac.check(planted("ACC401"), method="gigpo").by_code()["ACC401"]
    assert "method 'gigpo' needs `state`" in found.message
    assert "state comes from the environment" in found.hint


def test_rollouts_read_are_used_or_excluded():
    rollouts = ac.check([*planted("ACC110"), clean()[1]]).summary["rollouts"]
    assert (17, 15, 2) == tuple(rollouts[k] for k in ("read", "used", "excluded"))
    assert {"ACC101": 1, "ACC110": 1} == rollouts["excluded_by_code"]


def test_the_summary_counts():
    found = ac.check(planted("ACC206")).summary
    assert {"finished": 14, "truncated": 2, "unsaid": 0} == found["rollouts"]["statuses"]
    assert {"4": 4} == found["groups"]["sizes"]
    assert {"all_pass": 0, "all_fail": 0, "tie": 0, "mixed": 4, "single": 0, "empty": 0} == found["groups"][
        "spread"
    ]
    assert (48, 96, 96) == (found["steps"]["count"], found["tokens"]["count"], found["tokens"]["trained"])
    assert ([0.0, 1.0], [8, 8]) == (found["reward"]["values"], found["reward"]["counts"])
    assert 0.5 == found["success"]
    assert (1.0, 1.0, 12) == tuple(found["states"][k] for k in ("revisited", "shared", "distinct"))
    assert 1.0 == found["signals"]["logprob_T"]


def test_returns_that_overflow_leave_the_summary_json():
    found = ac.check(planted("ACC219"))
    json.dumps(found.to_dict(), allow_nan=False)
    assert (16, 15) == (found.summary["reward"]["n"], found.summary["score"]["n"])


def test_signals_carry_their_share_of_steps():
    found = ac.check(planted("ACC313")).summary["signals"]
    assert 47 / 48 == found["value_S"]


def test_findings_of_concatenated_batches_are_merged():
    one = Batch.from_records([{"group": "g", "reward": 1, "steps": []}], source="a")
    two = Batch.from_records([{"group": "g", "reward": 0, "steps": []}], source="b")
    (found,) = ac.check(Batch.concat([one, two])).by_code()["ACC102"]
    assert (2, ("a record 1", "b record 1")) == (found.count, found.examples)


@dear
@given(batches())
def test_any_batch_is_checked_and_the_report_is_json(batch):
    report = examine(batch)
    text = json.dumps(report.to_dict(), allow_nan=False)
    assert len(report.findings) == len(json.loads(text)["findings"])
    used = report.summary["rollouts"]
    assert used["read"] == used["used"] + used["excluded"]
    assert sum(report.summary["groups"]["spread"].values()) == report.summary["groups"]["count"]


@dear
@given(records(branches=False, rows=False))
def test_the_order_of_rollouts_changes_no_count(made):
    def counts(rollouts):
        return Counter((f.code, f.count) for f in ac.check(rollouts))

    assert counts(made) == counts(made[::-1])


def test_control_characters_never_reach_a_message():
    bad = "\x1b[2J\x07\u202e<b>"
    made = planted("ACC505")
    for record in made:
        record["id"] = bad + record["id"]
        record["group"] = bad + record["group"]
    made[1] |= {"parent": bad, "branch_kind": bad, "rewards": {bad: 1.0}}
    for finding in ac.check(made):
        shown = " ".join([finding.message, *finding.examples])
        assert not any(ord(c) < 32 or c in "\x7f\u202e" for c in shown), finding.code


def test_long_names_are_cut():
    made = planted("ACC205")
    made[0]["id"] = "x" * 10_000
    assert len(ac.check(made).by_code()["ACC205"][0].where) < 100


def _large(n=100_000, steps=10):
    """Columns of many rollouts, eight a group, without a Python loop over steps."""
    rng = np.random.default_rng(0)
    size = n * steps
    start = np.arange(n + 1) * steps
    states = tuple(f"room {i} with a clock at 12:{i % 60:02}" for i in range(20_000))
    columns = {
        "reward_R": Column("rollout", rng.integers(0, 2, n).astype(float)),
        "state_S": Column("step", rng.integers(0, 20_000, size).astype(np.int32), words=states),
        "action_S": Column("step", rng.integers(0, 9, size).astype(np.int32), words=tuple("abcdefghi")),
        "token_T": Column("token", rng.integers(0, 50_000, 2 * size)),
        "logprob_T": Column("token", -rng.random(2 * size).astype(np.float32)),
    }
    group = (np.arange(n) // 8).astype(np.int32)
    ids = tuple(map(str, range(n)))
    return Batch(ids, group, tuple(range(n // 8)), start, np.arange(size + 1) * 2, columns)


def test_a_hundred_thousand_rollouts_take_seconds_at_most():
    """About 0.5 s on a slow core; the limit only catches a loop over steps."""
    batch = _large()
    start = time.process_time()
    examine(batch)
    assert time.process_time() - start < 3
