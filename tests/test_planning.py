"""`plan`: the odds of the file, the size to take, the waste, and who finds signal in it."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import accredit as ac
from accredit.errors import DataError, ParamError
from accredit.odds import tie_probability
from accredit.views.plan_tables import plan_blocks
from accredit.views.tables import plain
from tests.strategies import batches


def outcomes(rewards, **step):
    """A group a row of rewards; each rollout has two steps at states of its own."""
    return [
        {
            "id": f"{g}.{r}",
            "group": f"g{g}",
            "reward": reward,
            "steps": [{"state": f"{g}{r}{t}", "action": "a", "n_tokens": 1, **step} for t in range(2)],
        }
        for g, row in enumerate(rewards)
        for r, reward in enumerate(row)
    ]


def test_a_rate_alone_gives_the_exact_odds():
    found = ac.plan(success_rate=0.2, group_size=8)
    assert 0.8**8 + 0.2**8 == pytest.approx(found.now.tie.value, rel=1e-12)
    assert (None, (), "given") == (found.waste, found.finders, found.kind)
    assert 8 / (1 - found.now.tie.value) == pytest.approx(found.now.cost, rel=1e-12)


def test_several_rates_are_averaged_over():
    found = ac.plan(success_rate=[0.1, 0.9, 0.5], group_size=4)
    expected = np.mean([p**4 + (1 - p) ** 4 for p in (0.1, 0.9, 0.5)])
    assert expected == pytest.approx(found.now.tie.value, rel=1e-12)


@given(st.floats(0.005, 0.995), st.floats(0.01, 0.9))
@settings(max_examples=60)
def test_the_suggested_size_is_the_smallest_that_does(p, target):
    found = ac.plan(success_rate=p, target=target).suggested
    slow = next((n for n in range(2, 1025) if p**n + (1 - p) ** n <= target), None)
    assert slow == found


def test_a_rate_of_zero_has_no_size():
    found = ac.plan(success_rate=0.0, group_size=8)
    assert (None, 1.0, None) == (found.suggested, found.now.tie.value, found.now.cost)
    assert "not even 1,024" in plain(plan_blocks({"file": None, **found.to_dict()}))


def test_a_file_gives_the_law_of_its_groups():
    rng = np.random.default_rng(5)
    rewards = [rng.binomial(1, p, 8).tolist() for p in rng.beta(1.0, 2.0, 400)]
    found = ac.plan(outcomes(rewards), methods=[])
    truth = float(tie_probability(1 / 3, 8, 1 / 4))
    assert ("fitted", 8) == (found.kind, found.size)
    assert found.now.tie.low < truth < found.now.tie.high
    assert found.now.tie.high - found.now.tie.low < 0.1
    assert found.now.drawn.value == pytest.approx(found.waste.groups / 400)
    assert 400 == len(found.tasks)
    never = [t for t in found.tasks if t.passed == 0]
    assert never
    assert all(0 < t.rate.value < 0.34 for t in never)  # shrunk toward the others, not 0


def test_the_waste_is_counted_by_kind():
    found = ac.plan(outcomes([[1, 1], [0, 0, 0], [0, 1], [0.5, 0.5], [1]]), methods=[])
    waste = found.waste
    assert (7, 10, 3, 4) == (waste.rollouts, waste.scored, waste.groups, waste.of_groups)
    assert (1, 1, 1, 1) == (waste.all_pass, waste.all_fail, waste.tie, waste.single)
    assert "graded" == found.kind


def test_graded_rewards_are_drawn_down_and_not_extrapolated():
    found = ac.plan(outcomes([[0, 0.5, 1, 1], [0.5, 0.5, 0.5, 1]]), methods=[])
    assert [2, 4] == [s.size for s in found.sizes]
    assert (1 / 6 + 3 / 6) / 2 == pytest.approx(found.sizes[0].tie.value)
    assert found.success_rate is None
    assert () == found.tasks
    assert 4 == found.suggested  # at 3 the chance is (0 + 1/4) / 2
    assert 3 == ac.plan(outcomes([[0, 0.5, 1, 1], [0.5, 0.5, 0.5, 1]]), methods=[], target=0.13).suggested


def test_rewards_that_differ_by_rounding_are_one():
    found = ac.plan(outcomes([[0.1 + 0.2, 0.3], [0.0, 0.3]]), methods=[])
    assert "graded" != found.kind
    assert 1 == found.waste.groups


def test_groups_of_one_tell_the_rate_and_nothing_else():
    found = ac.plan(outcomes([[1], [0], [0], [0]]))
    assert ("unknown", 0.25, ()) == (found.kind, found.success_rate, found.sizes)
    assert 4 == found.waste.single
    assert "nothing can be said" in plain(plan_blocks({"file": None, **found.to_dict()}))


# -- who finds signal ---------------------------------------------------------------------------------


def test_outcome_methods_find_nothing_where_outcomes_tie_and_step_rewards_do():
    records = outcomes([[1, 1], [0, 0], [0, 1]])
    for record in records:
        for t, step in enumerate(record["steps"]):
            step["value"] = 0.3 + 0.1 * t
    told = {f.method: f for f in ac.plan(records).finders}
    assert {0} == {told[m].steps for m in ("grpo", "rloo", "gpg")}
    assert (8, 8, 1.0) == (told["td"].steps, told["td"].of_steps, told["td"].share)
    assert (2, 2) == (told["td"].groups, told["td"].of_groups)
    assert told["reinforce-pp"].across
    assert told["reinforce-pp"].steps > 0


@given(batches())
@settings(max_examples=25, deadline=None)
def test_the_share_is_that_of_the_credit_itself(batch):
    index = ac.Index(batch)
    if not index.scored_R.any():
        with pytest.raises(DataError, match="none of the rollouts is scored"):
            ac.plan(batch)
        return
    found = ac.plan(batch, methods=["grpo", "reinforce-pp"])
    for finder in found.finders:
        credit = ac.assign(batch, finder.method).steps
        several, steps, inside = {}, 0, 0
        for g in range(index.n_groups):
            scores = index.score_R[(index.group_R == g) & index.scored_R]
            several[g] = len(scores) > 1 and np.ptp(scores) <= 1e-12 * max(1, np.abs(scores).max())
        for s, g in enumerate(index.group_S.tolist()):
            inside += several[g]
            steps += several[g] and abs(credit[s]) > 1e-12 * np.abs(credit).max()
        assert (steps, inside) == (finder.steps, finder.of_steps)


def test_a_method_that_cannot_run_is_told_with_its_reason():
    found = ac.plan(outcomes([[1, 1], [0, 1]]), methods=["remax", "grpo"])
    assert ["remax"] == [name for name, _ in found.unable]
    with pytest.raises(ParamError, match="Did you mean 'gigpo'"):
        ac.plan(outcomes([[1, 1]]), methods=["gigppo"])


# -- slips -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({}, "needs rollouts or a success rate"),
        ({"success_rate": 1.2}, "success_rate"),
        ({"success_rate": []}, "success_rate"),
        ({"success_rate": "often"}, "success_rate"),
        ({"success_rate": 0.5, "group_size": 0}, "group_size"),
        ({"success_rate": 0.5, "target": 0.0}, "target"),
    ],
)
def test_slips_are_named(given, says):
    with pytest.raises(ParamError, match=says):
        ac.plan(**given)


def test_rollouts_without_rewards_are_refused():
    with pytest.raises(DataError, match="none of the rollouts is scored"):
        ac.plan(outcomes([[None, None]]))
