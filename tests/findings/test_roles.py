"""Roles: who took which step, and who is compared with whom."""

from __future__ import annotations

import accredit as ac
from tests.findings.planted import clean


def _codes(records):
    return set(ac.check(records).by_code())


def _with_agents(*by_rollout):
    """Clean rollouts of one group; each argument names the agents of a rollout's three steps."""
    records = clean()[: len(by_rollout)]
    for record, agents in zip(records, by_rollout, strict=True):
        for step, agent in zip(record["steps"], agents, strict=True):
            step["agent"] = agent
    return records


def test_a_role_that_all_rollouts_have_makes_them_comparable():
    assert {"ACC603"} == _codes(_with_agents("aba", "bab", "abb", "bba"))


def test_rollouts_without_a_common_role_are_compared_all_the_same():
    found = _codes(_with_agents("aaa", "bbb", "aaa", "bbb"))
    assert {"ACC602"} == found


def test_branches_of_another_role_are_no_mixture():
    records = _with_agents("aaa", "aaa", "aaa", "bbb")
    records[3] |= {"parent": "g0-r0", "branch_kind": "verifier", "fork_step": 1}
    assert "ACC602" not in _codes(records)


def test_a_step_role_overrides_the_rollout_default():
    records = clean()
    records[0]["agent"] = "someone else"
    for step in records[0]["steps"]:
        step["agent"] = "player"
    assert set() == _codes(records)


def test_no_roles_at_all_are_one_role():
    assert set() == _codes([r | {"agent": None} for r in clean()])
