from __future__ import annotations

import time

import numpy as np
import pytest

from accredit.errors import ParamError
from accredit.store import read_truth
from accredit.worlds import Noise, Signals, make, sample

ALL = Signals(value=0.1, hindsight=True, annotator=0.2, prm=0.1, hidden=5, features=True)


def test_equal_seeds_give_equal_rollouts_and_truth():
    task = make("rooms", seed=1)
    one, same, other = (sample(task, groups=4, seed=s, signals=ALL) for s in (7, 7, 8))
    assert one.batch == same.batch
    assert np.array_equal(one.truth.advantage, same.truth.advantage)
    assert one.batch != other.batch


def test_a_group_does_not_depend_on_how_many_others_there_are():
    task = make("dag", seed=1)
    noise = Noise(flip=0.2, truncate=0.3, ragged=True, duplicate=0.3)
    few, many = (sample(task, groups=g, seed=2, noise=noise, signals=ALL) for g in (3, 9))
    first = many.batch.take(np.arange(len(few.batch)))
    assert list(few.batch.records()) == list(first.records())


def test_rollouts_do_not_depend_on_the_signals_supplied():
    task = make("rooms", seed=1)
    bare = sample(task, groups=3, seed=2, signals=Signals(logprobs=False, entropies=False))
    full = sample(task, groups=3, seed=2, signals=ALL)
    assert {"reward_R", "state_S", "action_S", "token_T"} == set(bare.batch.columns)
    assert np.array_equal(bare.batch.reward_R, full.batch.reward_R)
    assert np.array_equal(bare.batch.token_T, full.batch.token_T)


def test_log_probs_and_entropies_are_those_of_the_policy():
    drawn = sample(make("rooms", seed=1), groups=3)
    probs, first = drawn.policy.probs_NA, drawn.batch.token_start_S1[:-1]
    expected = np.log(probs[drawn.node_S, drawn.action_S])
    assert expected == pytest.approx(drawn.batch.logprob_T[first], rel=1e-6)
    entropy = -(probs[drawn.node_S] * np.log(probs[drawn.node_S])).sum(1)
    assert entropy == pytest.approx(drawn.batch.entropy_T[first], rel=1e-5)
    others = np.setdiff1d(np.arange(drawn.batch.n_tokens), first)
    assert others.size
    assert not drawn.batch.logprob_T[others].any()


def test_values_are_the_truth_plus_noise_of_the_given_size():
    drawn = sample(make("rooms", seed=1), signals=Signals(value=0.3))
    error = drawn.batch.value_S - drawn.truth.value
    assert 0.3 == pytest.approx(error.std(), rel=0.05)
    exact = sample(make("rooms", seed=1), groups=3, signals=Signals(value=0.0))
    assert np.array_equal(exact.truth.value, exact.batch.value_S)


def test_the_annotator_errs_at_its_rate():
    drawn = sample(make("rooms", seed=1), signals=Signals(annotator=0.2))
    wrong = drawn.batch.critical_S.astype(bool) != drawn.truth.critical
    assert abs(wrong.mean() - 0.2) <= 4 * np.sqrt(0.16 / wrong.size)


def test_predicates_are_flipped_at_the_rate_of_the_annotator():
    drawn = sample(make("dag", seed=1), signals=Signals(predicates=0.1, features=True))
    wrong = drawn.batch.predicates_S != drawn.batch.features_S
    assert abs(wrong.mean() - 0.1) <= 4 * np.sqrt(0.09 / wrong.size)


def test_hindsight_is_the_share_of_the_action_among_rollouts_that_ended_so():
    """Bayes by counting: at the first step of one task, over many rollouts."""
    drawn = sample(make("rooms", seed=3), groups=500, success_rate=0.2, signals=Signals(hindsight=True))
    start = drawn.batch.step_start_R1[:-1]
    action, won = drawn.action_S[start], drawn.batch.reward_R > 0
    shown = drawn.batch.logprobs_hindsight_T[drawn.batch.token_start_S1[start]]
    for outcome in (True, False):
        for a in np.unique(action).tolist():
            among, exact = won == outcome, np.exp(shown[(won == outcome) & (action == a)])
            share = (action[among] == a).mean()
            assert exact == pytest.approx(exact[0])
            assert abs(share - exact[0]) <= 4 * np.sqrt(exact[0] * (1 - exact[0]) / among.sum())


def test_hidden_vectors_hold_the_value_in_one_direction():
    drawn = sample(make("rooms", seed=1), groups=8, signals=Signals(hidden=6))
    hidden, value = drawn.batch.hidden_S, drawn.truth.value
    fit, *_ = np.linalg.lstsq(hidden, value, rcond=None)
    assert value == pytest.approx(hidden @ fit, abs=1e-9)


def test_token_values_are_prefix_values():
    drawn = sample(make("toklm", seed=1), groups=3, signals=Signals(value=0.0))
    value, credit = drawn.truth.token_value, drawn.truth.token_advantage
    for r in range(len(drawn.batch)):
        steps = drawn.batch.steps_of(r)
        tokens = slice(drawn.batch.token_start_S1[steps.start], drawn.batch.token_start_S1[steps.stop])
        after = np.append(value[tokens][1:], drawn.batch.reward_R[r])
        assert credit[tokens] == pytest.approx(after - value[tokens], abs=1e-12)
    assert value == pytest.approx(drawn.batch.token_value_T, abs=1e-6)


def test_continuations_are_the_same_alone_and_together_and_repeatable():
    drawn = sample(make("rooms", seed=1), groups=2)
    steps = [0, 5, 9]
    actions = [drawn.alternatives(s)[0] for s in steps]
    together = drawn.continuations(steps, actions, 6, seed=3)
    alone = [drawn.continuations(s, a, 6, seed=3) for s, a in zip(steps, actions, strict=True)]
    assert np.array_equal(np.array(alone), together)


def test_continuations_cost_what_they_play():
    drawn = sample(make("keydoor", seed=1, length=10), groups=2)
    before = drawn.cost.environment_steps
    drawn.continuations(0, "pick", 5, seed=0)
    assert (before + 50, 5, 5) == (
        drawn.cost.environment_steps,
        drawn.cost.continuations,
        drawn.cost.restores,
    )


def test_an_action_that_is_not_allowed_cannot_be_continued():
    drawn = sample(make("selfplay", seed=1, variant="proposer"), groups=1)
    with pytest.raises(ParamError, match="not allowed"):
        drawn.continuations(0, "way 0", 1, seed=0)


@pytest.mark.parametrize("name", ["truth.parquet", "truth.jsonl"])
def test_the_truth_file_gives_the_advantages_back(tmp_path, name):
    drawn = sample(make("rooms", seed=1), groups=2)
    found = read_truth(drawn.truth_file(tmp_path / name))
    assert drawn.truth.advantage == pytest.approx(found.column(drawn.batch).values, abs=1e-15)
    assert {"exact"} == set(found.source)
    assert "rooms" == found.header["world"]["family"]


def test_groups_of_all_failures_and_of_all_successes_are_kept():
    drawn = sample(make("rooms", seed=1), groups=200, group_size=2, success_rate=0.5)
    means = [group.reward_R.mean() for _, group in drawn.batch.groups()]
    assert {0.0, 0.5, 1.0} == set(means)


def test_sampling_a_setting_takes_well_under_a_second():
    task = make("rooms", seed=1, rooms=10)
    begin = time.process_time()
    drawn = sample(task, groups=64, group_size=8)
    assert time.process_time() - begin < 1.0
    assert 512 == len(drawn.batch)
