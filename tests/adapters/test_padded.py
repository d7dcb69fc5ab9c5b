import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import accredit as ac
from accredit.adapters.padded import PaddedRows, pad_credit, padded_credit
from accredit.errors import DataError, MissingSignal
from tests.adapters.made import MUTATIONS, recorded, spoiled, tensors_of
from tests.dear import dear

ECHO = {"ACC870", "ACC871", "ACC872", "ACC873"}


def rows_of(t, **changes):
    given = {
        "rewards": t.rewards,
        "mask": t.mask,
        "group": t.group,
        "rollout": t.rollout,
        "order": t.order,
        "tokens": t.tokens,
    }
    return PaddedRows(**(given | changes))


def test_advantages_are_those_of_the_records():
    records = recorded()
    t = tensors_of(records)
    found = padded_credit(rows_of(t), "grpo")
    expected = ac.assign(records, "grpo")
    assert np.float32 == found.advantages.dtype
    assert np.array_equal(expected.padded(t.mask), found.advantages)
    assert not found.advantages[t.mask == 0].any()


def test_a_rollout_of_several_rows_counts_once():
    """A mean over rows would count the second rollout of each group twice."""
    t = tensors_of(recorded(3))
    credit = padded_credit(rows_of(t), "dr-grpo").credit
    assert 8 == len(credit.batch)
    scores = credit.batch.reward_R[:4]
    assert pytest.approx(scores - scores.mean()) == [c[0] for c in credit.by_rollout()[:4]]


@dear
@given(st.permutations(range(10)), st.sampled_from(["grpo", "rloo", "gigpo"]))
def test_order_of_rows_is_irrelevant(order, method):
    t = tensors_of(recorded())
    states = [["s0", "s1", "s2"]] * 10
    sound = padded_credit(rows_of(t, states=states), method).advantages
    shuffled = type(t)(
        t.tokens[order],
        t.mask[order],
        t.rewards[order],
        *([getattr(t, n)[i] for i in order] for n in ("group", "rollout", "order")),
    )
    found = padded_credit(rows_of(shuffled, states=states), method).advantages
    assert np.allclose(sound[order], found, rtol=0, atol=1e-6)


@pytest.mark.parametrize(("kind", "seed"), MUTATIONS)
def test_every_spoiled_batch_is_caught(kind, seed):
    records = recorded(seed)
    sound = tensors_of(records)
    batch = ac.Batch.from_records(records)
    padded_credit(rows_of(sound), "grpo", echo=batch)
    with pytest.raises(DataError) as caught:
        padded_credit(rows_of(spoiled(sound, kind, seed)), "grpo", echo=batch)
    assert caught.value.code in ECHO
    assert "row" in str(caught.value)


@pytest.mark.parametrize(("kind", "seed"), MUTATIONS)
def test_credit_from_elsewhere_lands_on_no_spoiled_batch(kind, seed):
    records = recorded(seed)
    t = tensors_of(records)
    credit = ac.assign(records, "grpo")

    def laid(t):
        return pad_credit(credit, mask=t.mask, tokens=t.tokens, rollout=t.rollout, order=t.order)

    assert np.array_equal(credit.padded(t.mask), laid(t))
    with pytest.raises(DataError) as caught:
        laid(spoiled(t, kind, seed))
    assert caught.value.code in ECHO


def test_the_echo_names_row_position_expected_and_got():
    t = tensors_of(recorded())
    tokens = t.tokens.copy()
    tokens[4, 1] = 7
    with pytest.raises(DataError, match=f"row 4 position 1: expected token {t.tokens[4, 1]} .* got 7"):
        padded_credit(rows_of(t, tokens=tokens), "grpo", echo=ac.Batch.from_records(recorded()))


def test_part_of_the_recorded_rows_is_enough_on_request():
    records = recorded()
    t = tensors_of(records)
    credit = ac.assign(records, "grpo")
    found = pad_credit(credit, mask=t.mask[3:5], rollout=t.rollout[3:5], order=t.order[3:5], whole=False)
    assert np.array_equal(credit.padded(t.mask)[3:5], found)


def test_states_make_state_methods_possible():
    t = tensors_of(recorded(rows=False))
    with pytest.raises(MissingSignal, match="state"):
        padded_credit(rows_of(t), "gigpo")
    states = [["a", "b", "c"]] * len(t.tokens)
    found = padded_credit(rows_of(t, states=states), "gigpo", gamma=0.9)
    expected = ac.assign(
        [
            r | {"steps": [s | {"state": k} for s, k in zip(r["steps"], "abc", strict=True)]}
            for r in recorded(rows=False)
        ],
        "gigpo",
        gamma=0.9,
    )
    assert np.array_equal(expected.padded(t.mask), found.advantages)


def test_runs_of_the_mask_are_the_steps():
    mask = [[1, 1, 0, 1, 0], [1, 0, 0, 0, 0]]
    credit = padded_credit(PaddedRows(rewards=[1, 0], mask=mask, group=["g", "g"]), "grpo").credit
    assert [2, 1] == np.diff(credit.batch.step_start_R1).tolist()


def test_spans_part_turns_that_touch():
    rows = PaddedRows(
        rewards=[1, 0],
        mask=[[1, 1, 1, 0], [1, 1, 0, 0]],
        group=["g", "g"],
        spans=[[(0, 1), (1, 3)], [(0, 2)]],
    )
    assert [0, 1, 3, 5] == padded_credit(rows, "grpo").credit.batch.token_start_S1.tolist()
    numbered = PaddedRows(
        rewards=[1, 0], mask=rows.mask, group=["g", "g"], spans=[[0, 1, 1, -1], [0, 0, -1, -1]]
    )
    assert [0, 1, 3, 5] == padded_credit(numbered, "grpo").credit.batch.token_start_S1.tolist()


@pytest.mark.parametrize(
    ("spans", "place"),
    [
        ([[(0, 1), (2, 3)], [(0, 2)]], "row 0 position 1"),
        ([[(0, 2), (1, 3)], [(0, 2)]], "row 0 step 1"),
        ([[(0, 3)], [(0, 9)]], "row 1 step 0"),
    ],
)
def test_spans_that_do_not_cover_the_mask_are_refused(spans, place):
    rows = PaddedRows(rewards=[1, 0], mask=[[1, 1, 1, 0], [1, 1, 0, 0]], group=["g", "g"], spans=spans)
    with pytest.raises(DataError, match=place):
        padded_credit(rows, "grpo")


def test_a_reward_behind_the_last_sampled_token_belongs_to_the_last_step():
    """verl writes the outcome at the last position, be it an observation token."""
    rewards = [[0, 0, 0, 0, 1.0], [0, 0, 0, 0, 0]]
    rows = PaddedRows(rewards=rewards, mask=[[1, 1, 0, 1, 0], [1, 1, 0, 0, 0]], group=["g", "g"])
    batch = padded_credit(rows, "grpo").credit.batch
    assert [1.0, 0.0] == batch.reward_R.tolist()
    assert not batch.has("reward_S")


def test_rewards_at_several_steps_are_step_rewards_that_add_up_to_the_outcome():
    rewards = [[0, 0.5, 0, 0.25, 0], [0, 0, 0, 0, 0]]
    rows = PaddedRows(rewards=rewards, mask=[[1, 1, 0, 1, 0], [1, 1, 0, 0, 0]], group=["g", "g"])
    batch = padded_credit(rows, "grpo").credit.batch
    assert [0.75, 0.0] == batch.reward_R.tolist()
    assert [0.5, 0.25, 0.0] == batch.reward_S.tolist()
    assert batch.outcome_in_steps


def test_rows_that_disagree_on_the_outcome_are_refused_unless_told_how():
    rows = {"mask": [[1], [1], [1]], "group": ["g"] * 3, "rollout": ["a", "a", "b"]}
    with pytest.raises(DataError, match="ACC107"):
        padded_credit(PaddedRows(rewards=[1, 0, 0], **rows), "grpo")
    summed = padded_credit(PaddedRows(rewards=[1, 2, 0], row_rewards="sum", **rows), "grpo").credit
    last = padded_credit(PaddedRows(rewards=[1, 2, 0], row_rewards="last", **rows), "grpo").credit
    assert [3.0, 0.0] == summed.batch.reward_R.tolist()
    assert [2.0, 0.0] == last.batch.reward_R.tolist()


def test_rows_of_padding_get_nothing_and_join_nothing():
    rows = PaddedRows(rewards=[1, 0, 5], mask=[[1], [1], [0]], group=["g", "g", "g"])
    found = padded_credit(rows, "dr-grpo")
    assert (2,) == found.left_out
    assert [[0.5], [-0.5], [0.0]] == found.advantages.tolist()


def test_a_masked_rollout_that_is_no_padding_still_counts():
    rows = PaddedRows(rewards=[1, 0, 1], mask=[[1], [1], [0]], group=["g"] * 3, keep=[True] * 3)
    assert pytest.approx([1 / 3, -2 / 3, 0]) == padded_credit(rows, "dr-grpo").advantages[:, 0].tolist()


def test_unscored_rows_are_no_zeros():
    rows = PaddedRows(rewards=[1, float("nan"), 0], mask=[[1]] * 3, group=["g"] * 3)
    assert [[0.5], [0.0], [-0.5]] == padded_credit(rows, "dr-grpo").advantages.tolist()


def test_values_reach_gae_and_come_back_as_returns():
    rows = PaddedRows(
        rewards=[1.0, 0.0], mask=[[1, 1], [1, 0]], group=["g", "g"], values=[[0.5, 0.25], [0.5, 9.0]]
    )
    found = padded_credit(rows, "gae", lam=1.0)
    assert [[0.5, 0.75], [-0.5, 0.0]] == found.advantages.tolist()
    assert [[1.0, 1.0], [0.0, 0.0]] == found.returns.tolist()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"mask": [[1, 0.5]]}, "row 0 position 1 is 0.5"),
        ({"mask": [1, 1]}, "shape"),
        ({"logprobs": [[float("nan"), 0]]}, "logprobs row 0 position 0 is nan"),
        ({"tokens": [[1, 2, 3]]}, "tokens has shape"),
        ({"rewards": [float("inf")]}, "infinite"),
        ({"rewards": [1, 2]}, "rewards have shape"),
        ({"group": ["g", "g"]}, "group has 2 entries for 1 rows"),
        ({"records": [{"reward": 1}]}, "a 'reward' of its own"),
        ({"states": [["a", "b"]]}, "2 states for 1 steps"),
        ({"records": [{"steps": [{"tokens": [3, 4]}]}]}, "expected token 4"),
        ({"row_rewards": "mean"}, "row_rewards must be"),
        ({"rollout": ["a"], "order": [1]}, "row 0 of rollout 'a' is missing"),
    ],
)
def test_what_does_not_fit_is_refused(changes, message):
    given = {"rewards": [1.0], "mask": [[1, 1]], "group": ["g"], "tokens": [[3, 5]]}
    with pytest.raises(Exception, match=message):
        padded_credit(PaddedRows(**(given | changes)), "grpo")


def test_rollout_ids_are_unique_over_groups():
    rows = PaddedRows(rewards=[1, 1], mask=[[1], [1]], group=["g", "h"], rollout=["0", "0"])
    with pytest.raises(DataError, match="have groups 'g' and 'h'"):
        padded_credit(rows, "grpo")


def test_prompts_in_the_rows_are_skipped():
    records = recorded(rows=False)
    t = tensors_of(records)
    wide = rows_of(t, tokens=np.pad(t.tokens, ((0, 0), (2, 0))), mask=np.pad(t.mask, ((0, 0), (2, 0))))
    with pytest.raises(DataError):
        padded_credit(wide, "grpo", echo=ac.Batch.from_records(records))
    fits = rows_of(
        t,
        tokens=np.pad(t.tokens, ((0, 0), (2, 0))),
        mask=np.pad(t.mask, ((0, 0), (2, 0))),
        prompt_in_rows=True,
    )
    found = padded_credit(fits, "grpo", echo=ac.Batch.from_records(records)).advantages
    assert np.array_equal(ac.assign(records, "grpo").padded(t.mask), found[:, 2:])


def ragged(draw):
    """Records of two groups whose steps have 0 to 3 tokens, and the cuts that part each into rows."""
    records, cuts = [], []
    for i in range(draw(st.integers(2, 6))):
        n = draw(st.integers(1, 5))
        steps = [
            {"state": draw(st.sampled_from("ab")), "tokens": [100 * i + 10 * t + k for k in range(size)]}
            for t, size in enumerate(draw(st.lists(st.integers(1, 3), min_size=n, max_size=n)))
        ]
        reward = draw(st.sampled_from([0.0, 0.5, 1.0]))
        records.append({"id": f"r{i}", "group": f"g{i % 2}", "reward": reward, "steps": steps})
        cuts.append(sorted(draw(st.sets(st.integers(1, n - 1)))) if n > 1 else [])
    return records, cuts


@st.composite
def parted(draw):
    return ragged(draw)


def padded_rows(rows, order):
    """Rows (rollout, number, steps) as tensors, in any order; an observation token after each step."""
    width = max(sum(len(s["tokens"]) + 1 for s in steps) for _, _, steps in rows)
    mask, tokens = np.zeros((len(rows), width), int), np.zeros((len(rows), width), int)
    for b, i in enumerate(order):
        at = 0
        for step in rows[i][2]:
            n = len(step["tokens"])
            mask[b, at : at + n], tokens[b, at : at + n] = 1, step["tokens"]
            at += n + 1
    chosen = [rows[i] for i in order]
    return PaddedRows(
        rewards=[r["reward"] for r, _, _ in chosen],
        mask=mask,
        tokens=tokens,
        group=[r["group"] for r, _, _ in chosen],
        rollout=[r["id"] for r, _, _ in chosen],
        order=[number for _, number, _ in chosen],
        states=[[s["state"] for s in steps] for _, _, steps in chosen],
    )


@dear
@given(st.data(), parted(), st.sampled_from(["grpo", "rloo", "gigpo", "reinforce-pp", "opo"]))
def test_rows_and_rollouts_of_the_same_data_have_identical_credit(data, case, method):
    records, cuts = case
    rows = [
        (record, number, record["steps"][first:last])
        for record, own in zip(records, cuts, strict=True)
        for number, (first, last) in enumerate(zip([0, *own], [*own, len(record["steps"])], strict=True))
    ]
    order = data.draw(st.permutations(range(len(rows))))
    rows_held = padded_rows(rows, order)
    whole = ac.assign(records, method, singleton="zero")
    found = padded_credit(rows_held, method, singleton="zero")
    by_token = dict(zip(whole.batch.token_T.tolist(), whole.tokens.tolist(), strict=True))
    mask = np.asarray(rows_held.mask) > 0
    expected = [by_token[t] for t in rows_held.tokens[mask].tolist()]
    assert np.allclose(expected, found.advantages[mask], rtol=1e-6, atol=1e-6)
    assert not found.advantages[~mask].any()
    assert np.isfinite(found.advantages).all()
