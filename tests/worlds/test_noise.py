from __future__ import annotations

import numpy as np
import pytest

from accredit.errors import ParamError
from accredit.worlds import FAMILIES, Noise, make, sample
from accredit.worlds.noise import keys_of

EVERY = Noise(flip=0.1, truncate=0.3, alias=0.5, ragged=True, duplicate=0.2)


@pytest.fixture(scope="module")
def task():
    return make("rooms", seed=1)


def test_flips_change_outcomes_at_their_rate_and_nothing_else(task):
    clean, noisy = (sample(task, seed=3, noise=Noise(flip=f)) for f in (0.0, 0.2))
    changed = clean.batch.reward_R != noisy.batch.reward_R
    assert abs(changed.mean() - 0.2) <= 4 * np.sqrt(0.16 / changed.size)
    assert np.array_equal(clean.batch.reward_R[changed], 1 - noisy.batch.reward_R[changed])
    assert np.array_equal(clean.truth.advantage, noisy.truth.advantage)


def test_flips_mirror_signed_outcomes():
    umbrella = make("umbrella", seed=0)
    clean, noisy = (sample(umbrella, groups=4, noise=Noise(flip=f)) for f in (0.0, 1.0))
    assert np.array_equal(clean.batch.reward_R, -noisy.batch.reward_R)


def test_cut_rollouts_are_beginnings_marked_truncated_with_outcome_0(task):
    whole, cut = (sample(task, seed=3, noise=Noise(truncate=u)) for u in (0.0, 0.3))
    marked = cut.batch.column("status_R").decoded() == "truncated"
    assert abs(marked.mean() - 0.3) <= 4 * np.sqrt(0.21 / marked.size)
    assert not cut.batch.reward_R[marked].any()
    lengths = np.diff(cut.batch.step_start_R1)
    assert 1 == lengths[marked].min()
    assert (lengths[marked] < np.diff(whole.batch.step_start_R1)[marked]).all()
    assert np.array_equal(lengths[~marked], np.diff(whole.batch.step_start_R1)[~marked])
    for r in np.flatnonzero(marked)[:20].tolist():
        begin = whole.batch.step_start_R1[r]
        steps = cut.batch.steps_of(r)
        assert np.array_equal(whole.node_S[begin : begin + len(steps)], cut.node_S[steps.start : steps.stop])


def test_a_cut_rollout_names_the_state_it_would_go_on_from(task):
    whole, cut = (sample(task, seed=3, noise=Noise(truncate=u)) for u in (0.0, 0.5))
    final = cut.batch.column("final_state_R")
    for r in np.flatnonzero(final.valid)[:20].tolist():
        after = whole.batch.step_start_R1[r] + len(cut.batch.steps_of(r))
        assert whole.batch.column("state_S").item(int(after)) == final.item(r)


def test_aliasing_merges_the_given_share_of_keys(task):
    live = {task.keys[s] for s in np.flatnonzero(task.live_N).tolist()}
    keys = keys_of(task, Noise(alias=0.5))
    seen = {keys.words[c] for c in np.unique(keys.code_HN[:, task.live_N]).tolist()}
    assert len(live) - round(0.5 * len(live) / 2) == len(seen)
    assert seen < live
    drawn = sample(task, noise=Noise(alias=0.5))
    apart = np.abs(drawn.truth.advantage - drawn.truth.advantage_key).max()
    assert apart > np.abs(sample(task).truth.advantage - sample(task).truth.advantage_key).max()


def test_a_nonce_leaves_no_revisits_and_all_the_truth(task):
    drawn = sample(task, groups=8, noise=Noise(nonce=True))
    assert drawn.batch.n_steps == np.unique(drawn.batch.state_S).size
    assert np.array_equal(drawn.truth.advantage, drawn.truth.advantage_key)


def test_ragged_groups_have_every_size_up_to_the_largest(task):
    drawn = sample(task, groups=200, group_size=4, noise=Noise(ragged=True))
    sizes = np.bincount(drawn.batch.group_R)
    assert {1, 2, 3, 4} == set(sizes.tolist())


def test_duplicates_repeat_an_earlier_rollout_of_the_group(task):
    drawn = sample(task, groups=64, noise=Noise(duplicate=0.4))
    copies = 0
    for _, group in drawn.batch.groups():
        seen: set[bytes] = set()
        for r in range(len(group)):
            steps = group.steps_of(r)
            played = group.state_S[steps.start : steps.stop].tobytes()
            played += group.action_S[steps.start : steps.stop].tobytes()
            copies += played in seen
            seen.add(played)
    rolled = 64 * 7
    assert copies >= rolled * 0.4 - 4 * np.sqrt(rolled * 0.24)
    assert len(set(drawn.batch.ids)) == len(drawn.batch)


@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_takes_every_noise(family):
    drawn = sample(make(family, seed=2), groups=6, noise=EVERY)
    assert drawn.batch.n_steps == drawn.truth.advantage.size
    assert np.isfinite(drawn.batch.reward_R).all()
    split = sample(make(family, seed=2), groups=6, noise=Noise(nonce=True))
    assert split.batch.n_steps == np.unique(split.batch.state_S).size


def test_distractors_keep_keys_apart_and_the_truth_as_it_was():
    plain, noisy = (sample(make("umbrella", seed=1, distractors=n), groups=4) for n in (0, 20))
    assert np.unique(plain.batch.state_S).size < 45
    assert np.unique(noisy.batch.state_S).size > 0.99 * noisy.batch.n_steps
    assert np.array_equal(plain.truth.advantage_key, noisy.truth.advantage_key)


@pytest.mark.parametrize("wrong", [{"flip": -0.1}, {"alias": 1.1}, {"truncate": 2.0}])
def test_shares_outside_0_to_1_are_refused(wrong):
    with pytest.raises(ParamError, match="between 0 and 1"):
        Noise(**wrong)
