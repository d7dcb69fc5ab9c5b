"""`compare`: numbers of each method, agreement, and who cannot run."""

from __future__ import annotations

import json

import numpy as np
import pytest

import accredit as ac
from accredit.comparison import runnable
from accredit.errors import DataError, ParamError


def _records(n_groups=4, size=4, seed=0, **fields):
    """Rollouts of two to four steps in five states, with rewards 0 or 1."""
    rng = np.random.default_rng(seed)
    return [
        {
            "id": f"g{g}r{r}",
            "group": f"g{g}",
            "reward": float((g + r) % 2 if size < 3 else rng.integers(2) if r > 1 else r),
            "steps": [
                {"state": f"s{rng.integers(5)}", "action": f"a{rng.integers(3)}", "n_tokens": 2}
                for _ in range(rng.integers(2, 5))
            ],
            **fields,
        }
        for g in range(n_groups)
        for r in range(size)
    ]


@pytest.fixture
def batch():
    return ac.Batch.from_records(_records())


def test_a_rescaled_method_agrees_fully_and_never_flips(batch):
    pair = ac.compare(batch, ["dr-grpo", "rloo"], n_boot=50).pairs[0]
    assert (1.0, 1.0, 1.0) == pytest.approx((pair.spearman.value, pair.spearman.low, pair.spearman.high))
    assert pair.kendall.value == pytest.approx(1.0)
    assert 0 == pair.flips
    assert () == pair.worst  # equal after each is divided by its root mean square


def test_rows_tell_what_each_method_gave(batch):
    grpo, gigpo = ac.compare(batch, ["grpo", "gigpo"], n_boot=0).rows
    credit = ac.assign(batch, "gigpo")
    assert 0.0 == grpo.within  # the same number for every step of a rollout
    assert 0 < gigpo.within <= 1
    assert float(np.abs(credit.steps).mean()) == pytest.approx(gigpo.mean_abs)
    assert float((credit.steps != 0).mean()) == gigpo.nonzero
    assert credit.coverage == gigpo.coverage
    assert gigpo.seconds >= 0


def test_within_is_one_where_rollouts_differ_only_inside():
    records = [
        {
            "id": "a",
            "group": "g",
            "reward": 0,
            "steps": [{"state": "s", "reward": 1}, {"state": "t", "reward": -1}],
        },
        {
            "id": "b",
            "group": "g",
            "reward": 0,
            "steps": [{"state": "s", "reward": -1}, {"state": "t", "reward": 1}],
        },
    ]
    row = ac.compare(records, ["gigpo"], gamma=1e-9, episode_weight=0.0, n_boot=0).rows[0]
    assert row.within == pytest.approx(1.0)


def test_quadrants_count_every_step_once(batch):
    pair = ac.compare(batch, ["grpo", "gigpo"], n_boot=0).pairs[0]
    a, b = ac.assign(batch, "grpo").steps, ac.assign(batch, "gigpo").steps
    assert batch.n_steps == sum(pair.quadrants.values()) == pair.n_steps
    assert int((a * b < 0).sum()) == pair.flips == pair.quadrants["+-"] + pair.quadrants["-+"]
    assert int(((a > 0) & (b > 0)).sum()) == pair.quadrants["++"]


def test_worst_disagreements_are_the_largest_scaled_gaps_with_their_place(batch):
    pair = ac.compare(batch, ["grpo", "gigpo"], n_boot=0).pairs[0]
    a, b = ac.assign(batch, "grpo").steps, ac.assign(batch, "gigpo").steps
    gap = np.abs(a / np.sqrt(np.mean(a**2)) - b / np.sqrt(np.mean(b**2)))
    first = pair.worst[0]
    at = int(batch.step_start_R1[batch.position(first.rollout)]) + first.step
    assert float(gap.max()) == pytest.approx(first.gap) == pytest.approx(float(gap[at]))
    assert (a[at], b[at]) == (first.first, first.second)
    assert list(batch.records())[batch.position(first.rollout)]["steps"][first.step]["action"] == first.action
    assert sorted((w.gap for w in pair.worst), reverse=True) == [w.gap for w in pair.worst]
    assert 10 >= len(pair.worst)


def test_a_method_that_cannot_run_is_listed_with_its_reason(batch):
    found = ac.compare(batch, ["grpo", "remax"], n_boot=0)
    assert ["grpo"] == [row.label for row in found.rows]
    assert ["remax"] == [u.label for u in found.unable]
    assert "ACC401" == found.unable[0].code
    assert "greedy" in found.unable[0].reason


def test_groups_of_one_are_a_reason_and_not_an_error():
    records = _records(n_groups=3, size=1)
    found = ac.compare(records, ["grpo"], n_boot=0)
    assert () == found.rows
    assert "ACC111" == found.unable[0].code


@pytest.mark.parametrize(
    ("methods", "options", "says"),
    [
        ([], {}, "needs a list"),
        ("grpo", {}, "needs a list"),
        (["grpo", "gigppo"], {}, "Did you mean 'gigpo'"),
        (["grpo"], {"gama": 1.0}, "no parameter\\b|has a parameter 'gama'"),
        (["gigpo"], {"gamma": 7.0}, "gamma must be"),
        (["grpo"], {"n_boot": -1}, "n_boot must be"),
    ],
)
def test_mistakes_of_the_caller_are_errors(batch, methods, options, says):
    with pytest.raises(ParamError, match=says):
        ac.compare(batch, methods, **options)


def test_a_shared_parameter_goes_to_the_methods_that_have_it(batch):
    found = ac.compare(batch, ["grpo", "gigpo"], gamma=0.5, spread={"clip": 0.25}, compat="verl", n_boot=0)
    assert 0.5 == found.credits["gigpo"].params["gamma"]
    assert "gamma" not in found.credits["grpo"].params
    assert all(np.abs(c.tokens).max() <= 0.25 for c in found.credits.values())
    assert ["verl", None] == [c.params["compat"] for c in found.credits.values()]


def test_methods_may_repeat_with_other_parameters_and_labels_stay_apart(batch):
    given = ac.assign(batch, "gigpo", gamma=0.5)
    found = ac.compare(batch, ["gigpo", "gigpo", "gigpo:gamma=0.5", given], n_boot=0)
    assert ["gigpo", "gigpo (2)", "gigpo:gamma=0.5", "gigpo:gamma=0.5 (2)"] == list(found.credits)
    assert found.rows[3].seconds is None
    assert found.credits["gigpo:gamma=0.5 (2)"] is given
    assert 6 == len(found.pairs)


def test_a_credit_over_other_rollouts_is_refused(batch):
    other = ac.assign(ac.Batch.from_records(_records(seed=9)), "grpo")
    with pytest.raises(ParamError, match="other rollouts"):
        ac.compare(batch, ["grpo", other])


def test_steps_of_uncounted_rollouts_are_not_compared():
    records = _records()
    records[0]["reward"] = None
    pair = ac.compare(records, ["grpo", "gigpo"], n_boot=0).pairs[0]
    assert pair.n_steps == sum(len(r["steps"]) for r in records[1:])


def test_a_method_with_constant_credit_has_no_correlation():
    records = _records()
    for record in records:
        record["reward"] = 1.0
    pair = ac.compare(records, ["grpo", "rloo"], n_boot=20).pairs[0]
    assert (None, None) == (pair.spearman, pair.kendall)
    assert pair.n_steps == pair.quadrants["both zero"]


@pytest.mark.parametrize("records", [[], [{"id": "a", "group": "g", "reward": 1.0, "steps": []}]])
def test_no_steps_make_no_numbers_and_no_error(records):
    found = ac.compare(records, ["reinforce-pp", "grpo:singleton=zero"], n_boot=20)
    assert all(row.mean_abs == row.within == row.nonzero == 0 for row in found.rows)
    assert all(pair.spearman is None for pair in found.pairs)
    json.dumps(found.to_dict(), allow_nan=False)


def test_huge_rewards_do_not_overflow_in_the_summary():
    records = _records()
    for record in records:
        record["reward"] *= 1e300
    row = ac.compare(records, ["dr-grpo", "rloo"], n_boot=5).rows[0]
    assert np.isfinite(row.mean_abs)
    assert 0.0 == row.within


def test_the_same_seed_gives_the_same_document(batch):
    def document(seed):
        found = ac.compare(batch, ["grpo", "gigpo"], n_boot=40, seed=seed).to_dict()
        for row in found["methods"]:
            del row["seconds"]
        return json.dumps(found, allow_nan=False)

    assert document(1) == document(1)
    assert document(1) != document(2)


def test_progress_is_told_before_each_method(batch):
    told = []
    ac.compare(batch, ["grpo", "gigpo"], n_boot=0, progress=lambda *now: told.append(now))
    assert [(0, 2, "grpo"), (1, 2, "gigpo"), (2, 2, "agreement")] == told


def test_text_and_html_are_harmless():
    records = _records()
    for record in records:
        record["id"] += "\x1b[31m<script>"
        for step in record["steps"]:
            step["action"] = "\x1b]0;x\x07<b>"
    found = ac.compare(records, ["grpo", "gigpo"], n_boot=0)
    assert not {"\x1b", "\x07"} & set(repr(found))
    assert "<script>" not in found._repr_html_()
    assert "grpo" in found._repr_html_()


def test_runnable_names_the_missing_needs(batch):
    found = runnable(batch)
    assert [] == found["grpo"]
    assert set(found) == {card.id for card in ac.catalog()}
    assert ["state"] == runnable(
        ac.Batch.from_records([{"id": "a", "group": "g", "reward": 1, "steps": [{}]}])
    )["gigpo"]


def test_a_table_method_is_not_compared(batch, monkeypatch):
    from accredit.comparison import run

    credit = ac.assign(batch, "grpo")
    object.__setattr__(credit, "card", type("Card", (), {"yields": "table", "id": "shapley", "params": ()})())
    with pytest.raises(DataError, match="gives a table"):
        run._credit_of(batch, credit, {}, {})


def test_runnable_takes_a_column_as_the_state():
    records = [{"id": i, "group": "g", "reward": 1, "steps": [{"text": "seen"}]} for i in "ab"]
    assert ["state"] == runnable(records)["gigpo"]
    assert [] == runnable(records, key="text")["gigpo"]
