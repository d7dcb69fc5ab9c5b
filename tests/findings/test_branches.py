"""Branches: parents that are there, forks that can be, circles."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

import accredit as ac
from accredit.findings.branches import circular
from tests.findings.planted import clean


def _codes(records):
    return set(ac.check(records).by_code())


def _forked(step, kind="fork"):
    records = clean()
    for t in range(min(int(max(step, 0)), 3)):
        records[1]["steps"][t]["action"] = records[0]["steps"][t]["action"]
    records[1] |= {"parent": "g0-r0", "fork_step": step, "branch_kind": kind}
    return records


def test_a_good_fork_is_clean():
    assert set() == _codes(_forked(0))
    assert set() == _codes(_forked(2))


def test_fork_steps_that_cannot_be():
    assert {"ACC503"} == _codes(_forked(-1))
    assert {"ACC503"} == _codes(_forked(1.5))
    (found,) = ac.check(_forked(9)).by_code()["ACC503"]
    assert "rollout 'g0-r1' forks at step 9, allowed 0 to 3" in found.message


def test_a_subagent_need_not_repeat_its_parent():
    records = _forked(2, kind="subagent")
    records[1]["steps"] = records[1]["steps"][:1]
    records[1]["steps"][0]["action"] = "something else"
    assert set() == _codes(records)


def test_a_fork_shorter_than_what_it_shares_cannot_be():
    records = _forked(2)
    records[1]["steps"] = records[1]["steps"][:1]
    assert {"ACC503"} == _codes(records)


def test_an_excluded_parent_is_missing():
    records = _forked(1)
    records[0]["reward"] = "broken"
    assert "ACC501" in _codes(records)


def test_ids_that_are_numbers_are_parents_too():
    records = _forked(1)
    for i, record in enumerate(records):
        record["id"] = i
    records[1]["parent"] = 0
    assert "ACC501" not in _codes(records)


def test_a_circle_of_two_and_what_hangs_from_it_never_end():
    assert [True, True, True, False, False] == circular(np.array([1, 0, 1, -1, 3])).tolist()


@given(st.integers(0, 8).flatmap(lambda n: st.lists(st.integers(-2, max(n - 1, -1)), min_size=n, max_size=n)))
def test_circles_equal_the_plain_walk(parents):
    assert [_never_ends(parents, r) for r in range(len(parents))] == circular(
        np.array(parents, np.int64)
    ).tolist()


def _never_ends(parents, r):
    seen = set()
    while r >= 0:
        if r in seen:
            return True
        seen.add(r)
        r = parents[r]
    return False
