"""The adapter inside the real verl on a CPU: registry, both `compute_advantage` paths, the queue of V1.

verl is imported once; the entry point of the installed accredit must have loaded the plug-in.
"""

from __future__ import annotations

import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pytest
import torch

import accredit as ac
from accredit.errors import DataError, MissingSignal, ParamError, VersionError
from tests.adapters.made import MUTATIONS, recorded, spoiled, tensors_of

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]

verl = __import__("verl")


@pytest.fixture(scope="module")
def core():
    from verl.trainer.ppo import core_algos, ray_trainer
    from verl.trainer.ppo.v1 import trainer_base, utils

    return SimpleNamespace(algos=core_algos, legacy=ray_trainer, v1=utils, base=trainer_base)


def config_of(name, **accredit):
    from verl.trainer.config import AlgoConfig

    config = AlgoConfig(adv_estimator=name)
    config.accredit = accredit
    return config


def proto(records, *, steps=True, **non_tensors):
    """The DataProto that verl makes of recorded rows: reward at the last position of each row."""
    from verl import DataProto

    t = tensors_of(records)
    rewards = torch.zeros(t.mask.shape)
    rewards[:, -1] = torch.tensor(t.rewards, dtype=torch.float32)
    objects = {"uid": np.array(t.group, object)}
    if steps:
        held = np.empty(len(records), object)
        held[:] = [{"steps": r["steps"]} for r in records]
        objects["accredit"] = held
    return DataProto.from_dict(
        tensors={
            "token_level_rewards": rewards,
            "response_mask": torch.tensor(t.mask),
            "responses": torch.tensor(t.tokens),
            "old_log_probs": torch.linspace(-2, -0.1, t.mask.size).reshape(t.mask.shape),
        },
        non_tensors=objects | {k: np.array(v, object) for k, v in non_tensors.items()},
    )


def expected(records, method, **options):
    credit = ac.assign(records, method, **options)
    return credit.padded(tensors_of(records).mask)


SINGLE = recorded(rows=False)


def test_the_entry_point_is_how_verl_finds_us():
    from importlib.metadata import entry_points

    assert ["accredit.adapters.verl_plugin"] == [
        p.value for p in entry_points(group="verl.plugins") if p.name == "accredit"
    ]


def test_the_plugin_costs_a_worker_nothing():
    """Neither numpy-heavy rooms of ours nor verl's trainers are imported with it."""
    code = (
        "import sys, verl; assert 'accredit.adapters.verl_plugin' in sys.modules; "
        "print('accredit.data' in sys.modules, 'verl.trainer.ppo.core_algos' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "False False" == done.stdout.strip()


def test_every_method_is_an_estimator(core):
    names = {n for n in core.algos.ADV_ESTIMATOR_REGISTRY if n.startswith("accredit/")}
    cards = [c for c in ac.catalog() if c.yields != "table"]
    assert {f"accredit/{n}" for c in cards for n in (c.id, *c.aliases)} == names
    assert callable(core.algos.get_adv_estimator_fn("accredit/gigpo"))


@pytest.mark.parametrize("method", ["grpo", "rloo", "dr-grpo", "gigpo", "hgpo", "opo", "gpg", "reinforce-pp"])
def test_the_legacy_path_gives_the_credit_of_the_records(core, method):
    data = core.legacy.compute_advantage(
        proto(SINGLE), adv_estimator=f"accredit/{method}", config=config_of(f"accredit/{method}")
    )
    found = data.batch["advantages"]
    assert torch.float32 == found.dtype
    assert np.array_equal(expected(SINGLE, method), found.numpy())
    assert data.meta_info["accredit"]["accredit/rollouts"] == len(SINGLE)


def test_gae_takes_the_critics_values_and_returns_its_targets(core):
    data = proto(SINGLE)
    data.batch["values"] = torch.rand(
        data.batch["response_mask"].shape, generator=torch.Generator().manual_seed(0)
    )
    ours = core.legacy.compute_advantage(
        data, adv_estimator="accredit/gae", config=config_of("accredit/gae", compat="verl")
    ).batch
    ours = ours.clone()
    data.batch["token_level_rewards"] = at_last_sampled(data.batch)
    theirs = core.legacy.compute_advantage(data, adv_estimator="gae", config=config_of("gae")).batch
    mask = data.batch["response_mask"].bool()
    assert torch.allclose(theirs["advantages"] * mask, ours["advantages"], atol=1e-4)
    assert torch.allclose(theirs["returns"] * mask, ours["returns"], atol=1e-5)


def at_last_sampled(batch):
    rewards, mask = batch["token_level_rewards"], batch["response_mask"]
    moved = torch.zeros_like(rewards)
    last = mask.shape[1] - 1 - mask.flip(1).argmax(1)
    moved[torch.arange(len(mask)), last] = rewards.sum(1)
    return moved


@pytest.mark.parametrize(
    ("ours", "theirs"), [("grpo", "grpo"), ("rloo", "rloo"), ("opo", "opo"), ("gpg", "gpg")]
)
def test_parity_with_verls_own_estimators(core, ours, theirs):
    found = core.legacy.compute_advantage(
        proto(SINGLE), adv_estimator=f"accredit/{ours}", config=config_of(f"accredit/{ours}", compat="verl")
    ).batch["advantages"]
    peer = core.legacy.compute_advantage(proto(SINGLE), adv_estimator=theirs, config=config_of(theirs)).batch
    mask = peer["response_mask"].bool()
    assert torch.allclose(peer["advantages"] * mask, found, atol=2e-5)


def test_other_estimators_pass_through_untouched(core):
    own = core.algos.compute_grpo_outcome_advantage
    data = proto(SINGLE)
    direct = own(
        data.batch["token_level_rewards"], data.batch["response_mask"], data.non_tensor_batch["uid"]
    )[0]
    through = core.legacy.compute_advantage(data, "grpo", config=config_of("grpo")).batch["advantages"]
    assert torch.equal(direct, through)


def test_a_registered_estimator_works_where_nothing_is_wrapped(core):
    data = proto(SINGLE, steps=False)
    fn = core.algos.get_adv_estimator_fn("accredit/grpo")
    found, returns = fn(
        token_level_rewards=data.batch["token_level_rewards"],
        response_mask=data.batch["response_mask"],
        config=config_of("accredit/grpo"),
        index=data.non_tensor_batch["uid"],
    )
    assert np.array_equal(expected(SINGLE, "grpo"), found.numpy())
    assert torch.equal(found, returns)


def test_parameters_come_from_the_trainers_own_yaml(core):
    """Hydra composes verl's real configuration; the slash and the plus are what a user types."""
    from hydra import compose, initialize_config_module

    with initialize_config_module("verl.trainer.config", version_base=None):
        config = compose(
            "ppo_trainer",
            [
                "algorithm.adv_estimator=accredit/gigpo",
                "+algorithm.accredit.gamma=0.5",
                "+algorithm.accredit.mode=mean_norm",
            ],
        )
    algorithm = config.algorithm
    found = core.legacy.compute_advantage(proto(SINGLE), algorithm.adv_estimator, config=algorithm)
    assert np.array_equal(
        expected(SINGLE, "gigpo", gamma=0.5, mode="mean_norm"), found.batch["advantages"].numpy()
    )


def test_verls_own_gamma_counts_where_it_is_not_the_default(core):
    from verl.trainer.config import AlgoConfig

    config = AlgoConfig(adv_estimator="accredit/gigpo", gamma=0.5)
    found = core.legacy.compute_advantage(proto(SINGLE), "accredit/gigpo", config=config)
    assert np.array_equal(expected(SINGLE, "gigpo", gamma=0.5), found.batch["advantages"].numpy())


def test_an_unknown_parameter_is_one_sentence(core):
    with pytest.raises(ParamError, match="gama"):
        core.legacy.compute_advantage(
            proto(SINGLE), adv_estimator="accredit/gigpo", config=config_of("accredit/gigpo", gama=1)
        )


def test_missing_signals_are_named(core):
    with pytest.raises(MissingSignal, match="state"):
        core.legacy.compute_advantage(
            proto(SINGLE, steps=False), adv_estimator="accredit/gigpo", config=config_of("accredit/gigpo")
        )


def test_another_version_fails_with_one_sentence(core, monkeypatch):
    monkeypatch.setattr(verl, "__version__", "0.7.0")
    with pytest.raises(VersionError, match=r"ACC874: verl 0\.7\.0 is installed; this adapter knows 0\.9"):
        core.legacy.compute_advantage(
            proto(SINGLE), adv_estimator="accredit/grpo", config=config_of("accredit/grpo")
        )


def test_verl_agents_steps_are_joined_by_trajectory(core):
    """One row a step: uid and traj_uid say what belongs together, anchor_obs is the state."""
    steps, rows = [], []
    for record in SINGLE:
        for t, step in enumerate(record["steps"]):
            rows.append({**record, "steps": [step]})
            steps.append((record["id"], step["state"], t))
    data = proto(rows, steps=False, traj_uid=[s[0] for s in steps], anchor_obs=[s[1] for s in steps])
    found = core.legacy.compute_advantage(
        data, adv_estimator="accredit/gigpo", config=config_of("accredit/gigpo")
    ).batch["advantages"]
    credit = ac.assign(SINGLE, "gigpo")
    assert np.allclose(credit.steps, found[:, 0].numpy(), atol=1e-6)


def keys_of(records):
    return [f"{r['group']}_{r['id'][-1]}_{r.get('row', 0)}" for r in records]


@pytest.mark.parametrize("method", ["grpo", "rloo", "gigpo"])
def test_v1_counts_a_session_once(core, method):
    records = recorded()
    data = core.v1.compute_advantage_for_multi_trajectories(
        proto(records), keys_of(records), f"accredit/{method}", config=config_of(f"accredit/{method}")
    )
    assert np.array_equal(expected(records, method), data.batch["advantages"].numpy())


def test_v1_parity_with_verls_session_aware_grpo(core):
    records = recorded()
    ours = core.v1.compute_advantage_for_multi_trajectories(
        proto(records), keys_of(records), "accredit/grpo", config=config_of("accredit/grpo", compat="verl")
    ).batch["advantages"]
    theirs = core.v1.compute_advantage_for_multi_trajectories(
        proto(records), keys_of(records), "grpo", config=config_of("grpo")
    ).batch["advantages"]
    assert torch.allclose(theirs, ours, atol=1e-5)


@pytest.mark.parametrize(("kind", "seed"), MUTATIONS)
def test_every_spoiled_batch_is_caught(core, kind, seed):
    """The agent loop's record of each row is the echo; V1's keys tell a lost or doubled row."""
    records = recorded(seed)
    sound = proto(records)
    config = config_of("accredit/grpo", strict=True)
    core.v1.compute_advantage_for_multi_trajectories(
        proto(records), keys_of(records), "accredit/grpo", num_repeat=4, config=config
    )
    t = spoiled(tensors_of(records), kind, seed)
    keys = [f"{g}_{r[-1]}_{o}" for g, r, o in zip(t.group, t.rollout, t.order, strict=True)]
    held = dict(zip(keys_of(records), sound.non_tensor_batch["accredit"], strict=True))
    data = proto([{**records[0], "steps": []}] * len(keys))
    data.batch["responses"], data.batch["response_mask"] = torch.tensor(t.tokens), torch.tensor(t.mask)
    data.non_tensor_batch["uid"] = np.array(t.group, object)
    data.non_tensor_batch["accredit"] = np.array([*(held[k] for k in keys), None], object)[:-1]
    with pytest.raises(DataError) as caught:
        core.v1.compute_advantage_for_multi_trajectories(
            data, keys, "accredit/grpo", num_repeat=4, config=config
        )
    assert caught.value.code in {"ACC870", "ACC871", "ACC872", "ACC873"}


def test_groups_that_lost_a_session_are_a_warning_and_are_counted(core, caplog):
    """V1 leaves out sessions whose agent loop returned nothing."""
    records = [r for r in SINGLE if r["id"] != "g0r2"]
    data = core.legacy.compute_advantage(
        proto(records), "accredit/grpo", num_repeat=4, config=config_of("accredit/grpo")
    )
    assert data.meta_info["accredit"]["accredit/short_groups"] == 1
    assert "group 'g0' has 3" in caplog.text


def test_no_section_of_ours_in_the_yaml_means_the_methods_defaults(core):
    from hydra import compose, initialize_config_module

    with initialize_config_module("verl.trainer.config", version_base=None):
        algorithm = compose("ppo_trainer", ["algorithm.adv_estimator=accredit/gigpo"]).algorithm
    found = core.legacy.compute_advantage(proto(SINGLE), algorithm.adv_estimator, config=algorithm)
    assert np.array_equal(expected(SINGLE, "gigpo"), found.batch["advantages"].numpy())


def test_the_legacy_trainers_entropies_survive_until_the_advantages(core):
    """The trainer drops `entropys` before it computes advantages: ours are a copy."""
    from accredit.adapters.verl import _with_entropies
    from accredit.adapters.verl_batch import ENTROPY, credit_rows

    method = core.legacy.RayPPOTrainer._compute_old_log_prob
    assert method.accredit
    assert not hasattr(method.__wrapped__, "accredit")

    data = proto(SINGLE)
    entropies = torch.rand(data.batch["response_mask"].shape)
    trainer = SimpleNamespace(config=SimpleNamespace(algorithm=config_of("accredit/grpo")))
    played = SimpleNamespace(batch={"entropys": entropies})
    output, _ = _with_entropies(lambda self, batch: (played, 0.0))(trainer, data)
    tensors = {**data.batch, ENTROPY: output.batch[ENTROPY]}
    batch = credit_rows("grpo", tensors, data.non_tensor_batch, config_of("accredit/grpo")).credit.batch
    mask = data.batch["response_mask"].bool()
    assert np.allclose(entropies[mask].numpy(), batch.entropy_T)
    assert np.allclose(data.batch["old_log_probs"][mask].numpy(), batch.logprob_T)


def test_rejected_tokens_get_nothing_and_stay_in_their_steps(core):
    """Rejection sampling zeroes the mask after sampling; V1 keeps the mask that was sampled."""
    from accredit.adapters.verl_batch import HERE, RowFacts

    data = proto(SINGLE)
    sampled = data.batch["response_mask"].clone()
    data.batch["response_mask"][0] = 0
    token = HERE.set(RowFacts(keys=keys_of(SINGLE), tensors={"response_mask": sampled}))
    try:
        found = core.legacy.compute_advantage(data, "accredit/grpo", config=config_of("accredit/grpo"))
    finally:
        HERE.reset(token)
    whole = expected(SINGLE, "grpo")
    whole[0] = 0
    assert np.array_equal(whole, found.batch["advantages"].numpy())


def test_memory_of_a_stateful_method_lasts_from_batch_to_batch(core):
    from accredit.adapters import verl_batch

    verl_batch.forget()
    core.legacy.compute_advantage(proto(SINGLE), "accredit/price", config=config_of("accredit/price"))
    first = verl_batch._MEMORY["price"]
    again = core.legacy.compute_advantage(proto(SINGLE), "accredit/price", config=config_of("accredit/price"))
    second = ac.assign(SINGLE, "price", state=first)
    assert np.array_equal(second.padded(tensors_of(SINGLE).mask), again.batch["advantages"].numpy())
    verl_batch.forget()
    assert not verl_batch._MEMORY
