"""vineppo: the card's numbers, a plain loop beside it, what is shared, and what fills gaps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import accredit as ac
from accredit.errors import DataError, MissingSignal
from tests.dear import dear

Record = dict[str, Any]
CARD = ([1, 0, 0, 1], [1, 1, 0, 1], [0, 0, 0, 1])


def rollout(lists: Sequence[Any], reward: float | None = 1.0, **fields: Any) -> Record:
    steps = [{"continuations": own} for own in lists]
    return {"id": "a", "group": "g", "reward": reward, "steps": steps} | fields


def run(records: list[Record], **params: Any) -> list[list[float]]:
    return [x.tolist() for x in ac.assign(records, "vineppo", outcome_in_steps="no", **params).by_rollout()]


def test_card_example() -> None:
    assert [[0.25, -0.5, 0.75]] == run([rollout(CARD)])
    assert [[0.25, 0.25, 0.0]] == run([rollout(CARD)], max_step=1)


def test_max_step_zero_is_the_outcome_minus_the_first_value() -> None:
    assert [[0.5, 0.0, 0.0]] == run([rollout(CARD)], max_step=0)


@st.composite
def vines(draw: st.DrawFn) -> list[Record]:
    """Rollouts of two tasks that often begin alike, with lists that are sometimes equal, empty or absent."""
    found = []
    lists = st.lists(st.sampled_from([0.0, 1.0, 0.5]), max_size=3)
    for r in range(draw(st.integers(1, 5))):
        steps = []
        for _ in range(draw(st.integers(1, 3))):
            step: Record = {
                "state": draw(st.sampled_from("st")),
                "action": draw(st.sampled_from(["x", "y", None])),
            }
            own = draw(st.none() | lists)
            if own is not None:
                step["continuations"] = [{"reward": x, "truncated": False} for x in own]
            step["reward"] = draw(st.sampled_from([0.0, 0.25]))
            steps.append(step)
        status = draw(st.sampled_from(["finished", "truncated", "rejected"]))
        reward = draw(st.sampled_from([0.0, 1.0, None]))
        found.append({"id": f"r{r}", "group": draw(st.sampled_from("gh")), "steps": steps, "reward": reward})
        found[-1] |= {"status": status}
    found[0] |= {"reward": 1.0, "status": "finished"}
    found[0]["steps"][0]["continuations"] = [{"reward": 1.0}]
    found[0]["steps"][0]["action"] = "x"
    return found


def credited(record: Record) -> bool:
    return record["status"] != "rejected" and (
        record["reward"] is not None or record["status"] == "truncated"
    )


def return_from(record: Record, t: int, unfinished: float) -> float:
    paid = sum(step["reward"] for step in record["steps"][t:])
    return float(paid + (unfinished if record["reward"] is None else record["reward"]))


def begun_alike(a: Record, b: Record, t: int) -> bool:
    if a["group"] != b["group"] or min(len(a["steps"]), len(b["steps"])) <= t:
        return False
    before = zip(a["steps"][:t], b["steps"][:t], strict=True)
    same = all(x["state"] == y["state"] and x["action"] == y["action"] is not None for x, y in before)
    return same and a["steps"][t]["state"] == b["steps"][t]["state"]


def plain(records: list[Record], pool: bool, main: bool, unfinished: float, most: int) -> list[list[float]]:
    """VinePPO by loops over rollouts and steps, from the end to the start."""
    found = []
    for a in records:
        credit, after = [0.0] * len(a["steps"]), 0.0
        for t in reversed(range(len(a["steps"]))):
            paid = return_from(a, t, unfinished) - (
                return_from(a, t + 1, unfinished) if t + 1 < len(a["steps"]) else 0.0
            )
            others = [b for b in records if credited(b) and (b is a or (pool and begun_alike(a, b, t)))]
            lists: list[list[float]] = []
            for b in others:
                own = [c["reward"] for c in b["steps"][t].get("continuations", [])]
                if own not in lists:
                    lists.append(own)
            outcomes = [x for own in lists for x in own]
            if outcomes and main:
                outcomes += [return_from(b, t, unfinished) for b in others]
            if outcomes and t <= most:
                value = sum(outcomes) / len(outcomes)
                credit[t] = paid + after - value
            else:
                value = paid + after
            after = value
        found.append(credit if credited(a) else [0.0] * len(a["steps"]))
    return found


@dear
@given(vines(), st.booleans(), st.booleans(), st.sampled_from([0.0, -0.5]), st.sampled_from([0, 1, 9]))
def test_credit_is_that_of_plain_loops(
    records: list[Record], pool: bool, main: bool, unfinished: float, most: int
) -> None:
    """Seen failing with the values pooled by state, and with fills that forget the step's reward."""
    params = {"pool": pool, "include_main": main, "unfinished_reward": unfinished, "max_step": most}
    got = run(records, missing="fill", **params)
    expected = plain(records, pool, main, unfinished, most)
    for one, other in zip(expected, got, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-12)


@dear
@given(vines(), st.sampled_from([0, 1, 9]))
def test_credit_sums_to_the_return_minus_the_first_value(records: list[Record], most: int) -> None:
    credit = ac.assign(records, "vineppo", outcome_in_steps="no", missing="fill", max_step=most)
    for r, record in enumerate(records):
        if credited(record):
            first = int(credit.batch.step_start_R1[r])
            total = return_from(record, 0, 0.0) - credit.extras["value"][first]
            assert pytest.approx(total, rel=1e-9, abs=1e-12) == credit.by_rollout()[r].sum()


@given(st.lists(st.tuples(st.floats(-2, 2), st.floats(-1, 1)), min_size=1, max_size=5))
def test_with_exact_values_it_is_gae_at_lambda_zero(drawn: list[tuple[float, float]]) -> None:
    steps = [{"value": v, "continuations": [v], "reward": r} for v, r in drawn]
    record = {"id": "a", "group": "g", "reward": 1.0, "steps": steps}
    expected = ac.assign([record], "gae", lam=0, granularity="turn", outcome_in_steps="no").steps
    np.testing.assert_allclose(
        expected, ac.assign([record], "vineppo", outcome_in_steps="no").steps, atol=1e-12
    )


def test_an_empty_step_gets_nothing_and_its_neighbours_what_is_left() -> None:
    """Both of its boundaries are one text, so that they share one estimate."""
    twice = rollout([CARD[0], CARD[1], CARD[1], CARD[2]])
    twice["steps"][1]["tokens"] = []
    assert [[0.25, 0.0, -0.5, 0.75]] == run([twice])


def test_rollouts_that_began_alike_share_one_value() -> None:
    def one(name: str, lists: Sequence[Any], action: str) -> Record:
        steps = [{"state": "s", "action": action, "continuations": own} for own in lists]
        return {"id": name, "group": "g", "reward": 1.0, "steps": steps}

    records = [one("a", [[1, 0], [1]], "x"), one("b", [[0, 0], [0]], "x"), one("c", [[1, 0], [0, 0]], "y")]
    credit = ac.assign(records, "vineppo")
    value = credit.extras["value"]
    assert [0.25, 0.5] * 2 + [0.25, 0.0] == value.tolist()  # equal lists count once
    assert [4, 2] * 2 + [4, 2] == credit.extras["k"].tolist()
    own = ac.assign(records, "vineppo", pool=False).extras["value"]
    assert [0.5, 1.0, 0.0, 0.0, 0.5, 0.0] == own.tolist()


def test_what_the_rollout_got_may_count_too() -> None:
    credit = ac.assign([rollout(CARD)], "vineppo", include_main=True)
    assert pytest.approx([0.6, 0.8, 0.4]) == credit.extras["value"].tolist()


def test_cut_off_rollouts_and_continuations_have_the_unfinished_reward_unless_they_have_their_own() -> None:
    cut = {"reward": None, "truncated": True}
    records = [rollout([[cut, 1]], None, truncated=True), rollout([[0]], 0.5, truncated=True) | {"id": "b"}]
    assert [[-0.25 - 0.375], [0.5]] == run(records, unfinished_reward=-0.25, pool=False)


def test_an_unscored_rollout_has_no_credit() -> None:
    assert [[0.0], [0.5]] == run([rollout([[1, 0]], None), rollout([[1, 0]]) | {"id": "b"}])


def test_a_state_without_outcomes_is_an_error_that_names_the_place_unless_it_is_filled() -> None:
    for hole in (None, []):
        records = [rollout([CARD[0], hole, CARD[2]])]
        with pytest.raises(DataError, match=r"ACC420.*rollout 'a' step 1"):
            ac.assign(records, "vineppo")
        credit = ac.assign(records, "vineppo", missing="fill")
        assert [-0.25, 0.0, 0.75] == credit.steps.tolist()
        assert {"filled": 1, "empty": int(hole == [])} == credit.fallbacks
    zero = ac.assign([rollout([CARD[0], [], CARD[2]])], "vineppo", on_empty="zero")
    assert [-0.5, 0.25, 0.75] == zero.steps.tolist()
    with pytest.raises(MissingSignal, match="continuations"):
        ac.assign([{"id": "a", "group": "g", "reward": 1, "steps": [{}]}], "vineppo")


def test_the_end_of_an_episode_is_worth_nothing_even_where_a_critic_says_otherwise() -> None:
    assert [[0.5]] == run([rollout([[1, 0]], truncated=True, final_value=5.0)])


def test_standard_errors_are_those_of_both_states() -> None:
    credit = ac.assign([rollout(CARD)], "vineppo")
    v = [(s + 1) / 6 * (1 - (s + 1) / 6) / 4 for s in (2, 3, 1)]
    assert (
        pytest.approx([(v[0] + v[1]) ** 0.5, (v[1] + v[2]) ** 0.5, v[2] ** 0.5])
        == credit.extras["se"].tolist()
    )
    filled = ac.assign([rollout(CARD)], "vineppo", max_step=1).extras["se"].tolist()
    assert pytest.approx([(v[0] + v[1]) ** 0.5, v[1] ** 0.5, 0.0]) == filled


def test_outcomes_that_all_equal_the_reward_leave_exactly_nothing() -> None:
    assert [[0.0] * 3] == run([rollout([[0.1] * 3] * 3, 0.1)])


def test_explain_lists_the_outcomes() -> None:
    text = ac.assign([rollout(CARD)], "vineppo").explain("a", 1).text()
    assert "next value 0.25 - value 0.75 of 4 outcomes" in text
