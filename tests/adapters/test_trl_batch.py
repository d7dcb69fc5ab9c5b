"""TRL's generation batch as padded rows, without TRL: what is compared, grouped and summed."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from accredit.adapters.padded import padded_credit
from accredit.adapters.trl_batch import Row, Sampled, Scores, loss_mask, padded_rows, rows_of
from accredit.errors import DataError
from tests.adapters.made import MUTATIONS, recorded, spoiled, tensors_of

ECHO = {"ACC870", "ACC871", "ACC872", "ACC873"}


def sampled_of(t, **changes):
    """What `_generate` gives for the rows of tensors, whose length is that of the last sampled token."""
    ends = [int(np.flatnonzero(row).max()) + 1 for row in t.mask]
    ids = [row[:end].tolist() for row, end in zip(t.tokens, ends, strict=True)]
    mask = [row[:end].tolist() for row, end in zip(t.mask, ends, strict=True)]
    made = {"ids": ids, "mask": mask, "logprobs": None, "extra": {}} | changes
    given = ([], made["ids"], made["mask"], [], made["logprobs"], made["extra"], None, [])
    return Sampled.of(given, len(t.tokens))


def output_of(t):
    """What `_generate_and_score_completions` makes of them."""
    ends = [np.flatnonzero(row).max() + 1 if row.any() else 0 for row in t.mask]
    completion = np.arange(t.mask.shape[1]) < np.array(ends)[:, None]
    return {
        "completion_ids": t.tokens,
        "completion_mask": completion.astype(int),
        "tool_mask": np.where(completion, t.mask, 1),
    }


def laid(t, output, **changes):
    inputs = [{"prompt": g} for g in t.group]
    return rows_of(inputs, sampled_of(t, **changes), output, None, {})


def scores_of(t):
    return Scores(np.asarray(t.rewards)[:, None], ["won"], np.ones(1))


SOUND = tensors_of(recorded(rows=False))


def test_what_was_sampled_is_what_gets_credit():
    rows = padded_rows(laid(SOUND, output_of(SOUND)), scores_of(SOUND), 4)
    found = padded_credit(rows, "dr-grpo")
    assert found.credit.batch.token_T.tolist() == SOUND.tokens[SOUND.mask > 0].tolist()
    assert 8 == len(found.credit.batch)
    width = found.advantages.shape[1]
    assert not found.advantages[SOUND.mask[:, :width] == 0].any()


@pytest.mark.parametrize(("kind", "seed"), MUTATIONS)
def test_every_batch_that_was_spoiled_after_sampling_is_caught(kind, seed):
    sound = tensors_of(recorded(seed, rows=False))
    inputs = [{"prompt": g} for g in sound.group]
    rows_of(inputs, sampled_of(sound), output_of(sound), None, {})
    with pytest.raises(DataError) as caught:
        rows_of(inputs, sampled_of(sound), output_of(spoiled(sound, kind, seed)), None, {})
    assert caught.value.code in ECHO


def test_a_completion_that_is_masked_whole_passes_only_where_trl_was_told_so():
    output = output_of(SOUND)
    output["completion_mask"] = output["completion_mask"].copy()
    output["completion_mask"][3] = 0
    inputs = [{"prompt": g} for g in SOUND.group]
    with pytest.raises(DataError, match="row 3 position 0"):
        rows_of(inputs, sampled_of(SOUND), output, None, {})
    rows = rows_of(inputs, sampled_of(SOUND), output, None, {}, may_be_masked=True)
    assert SOUND.mask[3].sum() == rows[3].policy.sum()
    assert not loss_mask(output)[3].any()


def test_a_group_of_two_prompts_is_refused_and_a_prompt_drawn_twice_makes_two_groups():
    rows = [Row(p, np.array([1]), np.array([True]), None, {}) for p in "aaaabb"]
    scores = Scores(np.zeros((6, 1)), ["won"], np.ones(1))
    with pytest.raises(DataError, match="rows 3 and 4 are one group"):
        padded_rows(rows, scores, 3)
    found = padded_rows(rows, scores, 2)
    assert ["prompt a"] * 2 + ["prompt a (2)"] * 2 + ["prompt b"] * 2 == found.group
    assert 6 == len(set(found.rollout))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"ids": [[1]]}, "completion_ids has 1 rows for 8 prompts"),
        ({"mask": [[1]] * 8}, "row 0 has .* token ids and a mask of 1"),
        ({"extra": {"accredit": [{}] * 9}}, "accredit has 9 rows for 8 prompts"),
    ],
)
def test_a_rollout_functions_slips_are_told(changes, message):
    with pytest.raises(DataError, match=message):
        sampled_of(SOUND, **changes)


def test_log_probabilities_that_are_not_all_there_count_as_none():
    sizes = [len(row) for row in sampled_of(SOUND).ids]
    sound = [[-0.5] * n for n in sizes]
    assert sampled_of(SOUND, logprobs=sound).logprobs is not None
    assert sampled_of(SOUND, logprobs=[*sound[:-1], [None] * sizes[-1]]).logprobs is None
    assert sampled_of(SOUND, logprobs=[*sound[:-1], []]).logprobs is None


def test_a_signal_that_some_rows_lack_is_left_out():
    rows = laid(SOUND, output_of(SOUND))
    whole = [Row(r.prompt, r.ids, r.policy, None, {"logprobs": -np.ones(r.ids.size)}) for r in rows]
    assert {"logprobs"} == set(padded_rows(whole, scores_of(SOUND), 4).signals)
    assert {} == padded_rows([rows[0], *whole[1:]], scores_of(SOUND), 4).signals


def test_rewards_of_several_functions_are_kept_by_name():
    scores = Scores(np.array([[1.0, np.nan, 3.0]]), ["won", "short", "won"], np.array([1.0, 2.0, 0.5]))
    assert {"won": 1.0, "won_2": 3.0} == scores.named(0)
    assert [2.5] == scores.outcomes().tolist()
    row = Row("a", np.array([1]), np.array([True]), {"rewards": {"won": 9.0}}, {})
    with pytest.raises(DataError, match="'rewards' of its own"):
        padded_rows([row], scores, 1)


numbers = st.one_of(st.just(float("nan")), st.floats(-10, 10, width=32))


@given(
    st.integers(1, 4).flatmap(
        lambda k: st.tuples(
            st.lists(st.lists(numbers, min_size=k, max_size=k), min_size=1, max_size=6),
            st.lists(st.floats(-2, 2), min_size=k, max_size=k),
        )
    )
)
def test_the_outcome_is_the_weighted_sum_of_the_functions_that_did_not_abstain(case):
    values, weights = case
    found = Scores(np.array(values), ["f"] * len(weights), np.array(weights)).outcomes()
    for row, value in zip(values, found.tolist(), strict=True):
        there = [(v, w) for v, w in zip(row, weights, strict=True) if v == v]
        if there:
            assert sum(v * w for v, w in there) == pytest.approx(value, rel=1e-9, abs=1e-9)
        else:
            assert value != value
