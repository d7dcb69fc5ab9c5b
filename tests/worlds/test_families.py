from __future__ import annotations

import numpy as np
import pytest

from accredit.data import Batch
from accredit.errors import ParamError
from accredit.oracle import solve
from accredit.worlds import FAMILIES, make, make_policy, sample
from tests.worlds.enumeration import paths

VARIANTS = [
    *((family, {}) for family in FAMILIES),
    ("keydoor", {"keys": 3, "variant": "aliased", "shows_key": False}),
    ("keydoor", {"variant": "outcome_only", "length": 103}),
    ("umbrella", {"length": 1, "distractors": 0}),
    ("lock", {"undo": True, "needed": 5}),
    ("lock", {"rule": "xor"}),
    ("team", {"agents": 6}),
    ("team", {"agents": 16}),
    ("team", {"variant": "relay"}),
    ("team", {"variant": "planner"}),
    ("coop", {"game": "duplicates", "players": 8}),
    ("dag", {"predicates": 12}),
    ("pivot", {"depth": 64, "repair": True}),
    ("toklm", {"rule": "parity", "vocabulary": 16}),
    ("toklm", {"rule": "copy", "length": 20}),
    ("selfplay", {"variant": "proposer"}),
    ("selfplay", {"seen": False}),
    ("rooms", {"rooms": 30, "items": 3}),
]


@pytest.fixture(scope="module", params=VARIANTS, ids=lambda v: "-".join([v[0], *map(str, v[1].values())]))
def drawn(request):
    family, size = request.param
    return sample(make(family, seed=5, **size), groups=16, group_size=8, seed=1)


def test_tables_are_verified_and_truth_matches_the_batch(drawn):
    for role in drawn.task.payoffs or (None,):
        assert solve(drawn.task, drawn.policy, role=role).residual < 1e-12
    truth = drawn.truth
    assert drawn.batch.n_steps == truth.advantage.size == truth.critical.size == truth.advantage_key.size
    assert drawn.batch.n_tokens == truth.token_advantage.size
    assert truth.q == pytest.approx(truth.value + truth.advantage)


def test_token_advantages_sum_to_those_of_steps(drawn):
    step_T = np.repeat(np.arange(drawn.batch.n_steps), np.diff(drawn.batch.token_start_S1))
    assert drawn.truth.advantage == pytest.approx(np.bincount(step_T, drawn.truth.token_advantage), abs=1e-12)


def test_the_batch_is_that_of_its_records(drawn):
    assert drawn.batch == Batch.from_records(drawn.batch.records())
    assert not drawn.batch.findings


def test_sampled_advantages_have_mean_zero(drawn):
    """Within a rollout they are increments of a martingale: uncorrelated, so that this is their error."""
    credit = drawn.truth.advantage
    error = np.sqrt((credit**2).sum())
    assert abs(credit.sum()) <= 4 * error + 1e-9


def test_the_sampled_success_rate_is_the_exact_one(drawn):
    if drawn.policy.success_rate is None:
        return
    rate, n = drawn.policy.success_rate, len(drawn.batch)
    won = drawn.batch.reward_R > (drawn.task.outcome_N.max() + drawn.task.outcome_N.min()) / 2
    assert abs(won.mean() - rate) <= 4 * np.sqrt(rate * (1 - rate) / n) + 1e-9


def test_returns_average_to_the_value_of_the_start(drawn):
    task, batch = drawn.task, drawn.batch
    owner = np.repeat(np.arange(len(batch)), np.diff(batch.step_start_R1))
    paid = np.bincount(owner, batch.reward_S, len(batch)) if batch.has("reward_S") else 0.0
    total = batch.reward_R + paid
    for r, table in enumerate(drawn.tables):
        mine = total[drawn.flat.role_R == r]
        error = mine.std() / np.sqrt(mine.size)
        assert abs(mine.mean() - float(task.start_N @ table.V[0])) <= 4 * error + 1e-9


def test_continuations_average_to_the_exact_q(drawn):
    at = int(drawn.truth.spread.argmax())
    spent = drawn.cost.continuations
    exact = drawn.q_of(at)
    for action in drawn.alternatives(at)[:3]:
        found = drawn.continuations(at, action, 400, seed=9)
        assert abs(found.mean() - exact[action]) <= 4 * found.std() / 20 + 1e-9
    assert spent + 400 * len(drawn.alternatives(at)[:3]) == drawn.cost.continuations


def test_only_the_first_step_of_an_umbrella_counts():
    drawn = sample(make("umbrella", seed=0, length=20), groups=4)
    assert np.array_equal(drawn.truth.critical, drawn.time_S == 0)
    assert not drawn.truth.advantage[drawn.time_S > 0].any()


def test_only_the_key_steps_of_keydoor_count():
    drawn = sample(make("keydoor", seed=0, keys=2), groups=4)
    assert {0, 1} == set(drawn.time_S[drawn.truth.critical].tolist())
    assert np.abs(drawn.truth.advantage[drawn.time_S > 1]).max() < 1e-12
    assert {0.0, 0.2} == set(drawn.batch.reward_S.tolist())


@pytest.mark.parametrize("seed", range(5))
def test_the_pivot_is_where_the_truth_is(seed):
    task = make("pivot", seed=seed, depth=16)
    drawn = sample(task, groups=8)
    assert {task.facts["pivot"]} == set(drawn.time_S[np.abs(drawn.truth.advantage) > 1e-9].tolist())
    assert np.array_equal(drawn.truth.critical, drawn.time_S == task.facts["pivot"])


def test_a_repair_counts_only_after_a_wrong_turn():
    task = make("pivot", seed=2, depth=16, repair=True)
    drawn = sample(task, groups=8)
    critical = drawn.truth.critical & (drawn.time_S == task.facts["repair"])
    low = drawn.truth.value < 0.9 - 1e-9
    assert np.array_equal(critical, (drawn.time_S == task.facts["repair"]) & low)


@pytest.mark.parametrize("link", [-1.0, 1.0])
def test_entropy_at_the_pivot_follows_the_link(link):
    ranks = []
    for seed in range(20):
        task = make("pivot", seed=seed, depth=16, entropy_link=link)
        drawn = sample(task, groups=1, group_size=1, success_rate=None)
        entropy = drawn.batch.entropy_T[drawn.batch.token_start_S1[:-1]]
        ranks.append(np.argsort(np.argsort(entropy))[task.facts["pivot"]] / (entropy.size - 1))
    assert (np.mean(ranks) - 0.5) * link > 0.35


def test_team_values_are_those_of_every_joint_choice():
    task = make("team", seed=4, agents=3, choices=3)
    policy = make_policy(task)
    phi, pair, weight = (task.facts[k] for k in ("phi", "pair", "interaction"))
    expected = 0.0
    for p in paths(task, policy.probs_NA):
        joint = [a for _, _, a in p.steps]
        worth = sum(phi[k, a] for k, a in enumerate(joint))
        worth += weight * sum(pair[j, k, joint[j], joint[k]] for k in range(3) for j in range(k))
        assert worth == pytest.approx(sum(p.rewards))
        expected += p.prob * worth
    assert expected == pytest.approx(solve(task, policy).value)


def test_a_chain_of_agents_equals_its_enumeration_by_prefixes():
    """With two agents a chain and a prefix are the same thing."""
    chain, prefix = (make("team", seed=4, agents=2, chain=c) for c in (True, False))
    values = [solve(task, make_policy(task)).value for task in (chain, prefix)]
    assert values[0] == pytest.approx(values[1])


def test_a_deferred_outcome_is_the_sum_and_values_hold_what_is_earned():
    drawn = sample(make("team", seed=1), groups=4)
    assert not drawn.batch.has("reward_S")
    last = drawn.batch.step_start_R1[1:] - 1
    assert drawn.batch.reward_R == pytest.approx(drawn.truth.q[last])


def test_roles_of_a_zero_sum_game_have_opposite_outcomes_and_own_truth():
    drawn = sample(make("selfplay", seed=3), groups=4)
    first, second = drawn.batch.reward_R[::2], drawn.batch.reward_R[1::2]
    assert first == pytest.approx(-second)
    roles = drawn.batch.column("agent_R").decoded()
    assert ["first", "second"] == roles[:2].tolist()
    last = drawn.batch.step_start_R1[1:] - 1
    assert second == pytest.approx(drawn.truth.q[last][1::2])


def test_a_relay_hides_the_source_so_that_keys_know_less_than_the_truth():
    drawn = sample(make("team", seed=1, variant="relay"), groups=64)
    assert np.abs(drawn.truth.advantage - drawn.truth.advantage_key).max() > 0.1


def test_planner_and_worker_take_turns_until_all_is_done():
    drawn = sample(make("team", seed=1, variant="planner"), groups=8)
    assert 0.5 == pytest.approx(drawn.policy.success_rate, abs=1e-6)
    roles = drawn.batch.column("agent_S").decoded()
    assert np.array_equal(np.where(drawn.time_S % 2, "worker", "planner"), roles.astype(str))


def test_dag_attempts_need_their_parents():
    task = make("dag", seed=3)
    start = task.keys.index("Done: nothing.")
    for i, name in enumerate(task.facts["predicates"]):
        row = start * task.n_actions + i
        ends = {task.keys[s] for s in task.edge_to_E[task.edge_start_M1[row] : task.edge_start_M1[row + 1]]}
        assert (f"Done: {name}." in ends) == (not task.facts["needs"][name])


def test_the_string_of_a_token_task_obeys_its_rule_iff_it_succeeds():
    drawn = sample(make("toklm", seed=2, rule="brackets"), groups=8)
    for record in drawn.batch.records():
        text = "".join(step["action"] for step in record["steps"])
        depth, ok = 0, True
        for letter in text:
            depth += {"(": 1, ")": -1}.get(letter, 0)
            ok = ok and depth >= 0
        assert float(ok and depth == 0) == record["reward"]


def test_equal_seeds_make_equal_tasks_and_other_seeds_other_ones():
    one, same, other = (make("rooms", seed=s) for s in (1, 1, 2))
    assert one.keys == same.keys
    assert np.array_equal(one.edge_to_E, same.edge_to_E)
    assert one.keys != other.keys


@pytest.mark.parametrize(
    ("family", "size"),
    [
        ("rooms", {"rooms": 99}),
        ("keydoor", {"length": 4, "keys": 4}),
        ("umbrella", {"length": 0}),
        ("lock", {"rule": "or"}),
        ("team", {"agents": 7, "chain": False}),
        ("team", {"variant": "crew"}),
        ("coop", {"players": 15}),
        ("coop", {"game": "chess"}),
        ("dag", {"predicates": 13}),
        ("pivot", {"good": 3}),
        ("toklm", {"rule": "rhyme"}),
        ("selfplay", {"variant": "chess"}),
        ("room", {}),
    ],
)
def test_sizes_that_cannot_be_are_refused(family, size):
    with pytest.raises(ParamError):
        make(family, seed=0, **size)
