"""What is compared with what: sizes, split and pooled groups, copies."""

from __future__ import annotations

import numpy as np
import pytest

import accredit as ac
from accredit.findings.groups import position_pattern
from tests.findings.planted import clean


def _only(records, code, **options):
    (found,) = ac.check(records, **options).by_code()[code]
    return found


def test_row_numbers_as_groups_are_named_as_such():
    records = [r | {"group": i} for i, r in enumerate(clean())]
    assert "the ids are row numbers (row)" in _only(records, "ACC111").message


def test_one_rollout_alone_is_no_wrong_group_column():
    found = ac.check(clean()[:1]).by_code()
    assert "ACC111" not in found
    assert "ACC112" not in found


def test_a_singleton_says_what_the_method_gives_it():
    records = clean()[3:]
    assert "grpo gives such a rollout 0" in _only(records, "ACC112", method="grpo").message
    raw = _only(records, "ACC112", method="grpo:singleton=raw").message
    assert "grpo gives such a rollout its raw score" in raw


def _interleaved():
    """Rollouts of four tasks in turns, so that every row // 4 pools one rollout of each task."""
    records = sorted(clean(), key=lambda r: r["id"][-1])
    return [r | {"group": i // 4} for i, r in enumerate(records)]


def test_groups_pooled_by_position_are_found_and_the_rule_is_named():
    found = _only(_interleaved(), "ACC114")
    assert 4 == found.count
    assert "the group ids are positions (row // 4)" in found.message


def test_groups_by_position_that_are_tasks_are_clean():
    assert ac.check([r | {"group": i // 4} for i, r in enumerate(clean())]).ok
    records = sorted(clean(), key=lambda r: r["id"][-1])
    assert ac.check([r | {"group": i % 4} for i, r in enumerate(records)]).ok


def test_scattered_rollouts_of_a_group_are_clean():
    order = np.random.default_rng(0).permutation(16)
    assert [] == list(ac.check([clean()[i] for i in order]))


def test_groups_split_by_position_are_found_by_prompt():
    records = clean()
    for i, record in enumerate(records):
        record["group"] = i // 2
        for step in record["steps"]:
            del step["state"]
    found = _only(records, "ACC116")
    assert 16 == found.count
    assert "first prompts" in found.message


def test_one_task_at_two_policy_versions_is_not_split():
    records = [r | {"group": f"{r['group']}-{i % 2}", "policy_version": i % 2} for i, r in enumerate(clean())]
    assert "ACC116" not in ac.check(records).by_code()


def test_a_task_field_is_better_evidence_than_the_first_state():
    records = [r | {"task": "the same for all"} for r in clean()]
    assert "task fields" in _only(records, "ACC116").message
    records = [r | {"task": r["group"]} for r in clean()]
    records[0]["steps"][0]["state"] = "a random start, which this task allows"
    assert ac.check(records).ok


def test_first_states_that_differ_everywhere_are_no_evidence():
    records = clean()
    for i, record in enumerate(records):
        record["steps"][0]["state"] = f"12:{i:02} in the kitchen with a door to the north"
    assert "ACC114" not in ac.check(records).by_code()


def test_agents_that_begin_differently_in_one_group_are_not_pooled():
    records = clean()
    for i, record in enumerate(records):
        record["agent"] = ("buyer", "seller")[i % 2]
        record["steps"][0]["state"] += f", seen by the {record['agent']}"
    assert "ACC114" not in ac.check(records).by_code()


def test_branches_may_begin_anywhere():
    records = clean()
    records[1] |= {"parent": "g0-r0", "branch_kind": "subagent"}
    records[1]["steps"][0]["state"] = "a room of its own, with a tower"
    assert "ACC114" not in ac.check(records).by_code()


def test_short_equal_rollouts_are_no_copies():
    records = clean()
    for step, other in zip(records[0]["steps"], records[1]["steps"], strict=True):
        step |= {"tokens": other["tokens"], "action": other["action"]}
    assert {"ACC120"} == set(ac.check(records).by_code())


def test_equal_actions_in_another_order_are_no_repetition():
    records = clean()
    for t in range(3):
        records[0]["steps"][t]["action"] = "abc"[t]
        records[1]["steps"][t]["action"] = "cba"[t]
    assert [] == list(ac.check(records))


@pytest.mark.parametrize(
    ("names", "pattern"),
    [
        ([0, 1, 2, 3], "row"),
        (["0", "0", "1", "1"], "row // 2"),
        ([0, 1, 2, 0, 1, 2], "row % 3"),
        ([0, 0, 1, 1, 2], "row // 2"),
        ([3, 3, 4, 4], ""),
        ([0, 0, 0, 0], ""),
        ([0.0, 1.5], ""),
        (["a", "b"], ""),
        ([0], ""),
        ([10**30, 1], ""),
    ],
)
def test_position_patterns(names, pattern):
    assert pattern == position_pattern(names)
