from __future__ import annotations

import numpy as np
import pytest

from accredit.errors import ParamError
from accredit.worlds import RATES, make, make_policy
from accredit.worlds.dynamic import success_values

REACHABLE = ("rooms", "keydoor", "umbrella", "lock", "dag", "toklm")


@pytest.mark.parametrize("family", REACHABLE)
@pytest.mark.parametrize("rate", RATES)
def test_the_exact_success_rate_is_the_one_asked_for(family, rate):
    task = make(family, seed=3)
    policy = make_policy(task, rate)
    assert policy.reached
    assert rate == pytest.approx(policy.success_rate, abs=1e-6)
    assert rate == pytest.approx(float(task.start_N @ success_values(task, policy.probs_NA).V[0]), abs=1e-6)


def test_a_rate_out_of_reach_gives_the_nearest_and_says_so():
    task = make("pivot", seed=1, p_hi=0.6, p_lo=0.3)
    policy = make_policy(task, 0.8)
    assert not policy.reached
    assert 0.8 == policy.target
    assert 0.6 == pytest.approx(policy.success_rate, abs=1e-6)


@pytest.mark.parametrize("family", ["team", "coop", "selfplay"])
def test_families_without_a_success_rate_have_beta_zero(family):
    policy = make_policy(make(family, seed=0), 0.5)
    assert (0.0, None) == (policy.beta, policy.success_rate)


@pytest.mark.parametrize("rate", [0.0, 1.0, 2.0])
def test_a_rate_that_no_policy_has_is_refused(rate):
    with pytest.raises(ParamError, match="between 0 and 1"):
        make_policy(make("rooms", seed=0), rate)


def test_probabilities_sum_to_one_where_the_episode_goes_on_and_to_zero_where_not():
    task = make("selfplay", seed=0, variant="proposer")
    probs = make_policy(task).probs_NA
    assert probs.sum(1) == pytest.approx(task.live_N.astype(float))
    assert not probs[~task.allowed_NA].any()


@pytest.mark.parametrize(
    ("family", "size"),
    [
        ("keydoor", {"keys": 3, "shows_key": False}),
        ("lock", {"visible": False}),
        ("selfplay", {"seen": False}),
        ("team", {"variant": "relay"}),
    ],
)
def test_a_policy_that_sees_keys_only_does_the_same_in_states_of_one_key(family, size):
    task = make(family, seed=2, **size)
    probs = make_policy(task, 0.5).probs_NA
    rows: dict[str, np.ndarray] = {}
    for s in np.flatnonzero(task.live_N).tolist():
        assert rows.setdefault(task.keys[s], probs[s]) == pytest.approx(probs[s])
    assert len(rows) < task.live_N.sum()
