"""V1's own path: rows in the real TransferQueue, through `PPOTrainer._compute_advantage`, and back."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import accredit as ac
from accredit.errors import DataError
from tests.adapters.made import recorded, tensors_of

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]


@pytest.fixture(scope="module")
def queue():
    import ray
    import transfer_queue as tq
    from hydra import compose, initialize_config_module

    with initialize_config_module("verl.trainer.config", version_base=None):
        config = compose(
            "ppo_trainer",
            [
                "algorithm.adv_estimator=accredit/gigpo",
                "+algorithm.accredit.gamma=0.5",
                "transfer_queue.enable=true",
                "transfer_queue.backend.SimpleStorage.num_data_storage_units=1",
                "transfer_queue.backend.SimpleStorage.total_storage_size=200",
            ],
        )
    ray.init(num_cpus=4, include_dashboard=False, log_to_driver=False)
    tq.init(config.transfer_queue)
    yield tq, config
    tq.close()
    ray.shutdown()


def trainer_of(config):
    """A trainer without workers: the method under test needs its configuration only."""
    from verl.trainer.ppo.v1 import PPOTrainerSync

    trainer = object.__new__(PPOTrainerSync)
    trainer.config = config
    return trainer


def put(tq, records, partition, *, padding=0):
    """Rows as verl's agent loop worker writes them (`AgentLoopWorkerTQ._agent_loop_postprocess`)."""
    from verl.experimental.agent_loop import AgentLoopOutput
    from verl.utils.tensordict_utils import list_of_dict_to_tensordict

    t = tensors_of(records)
    keys, fields, tags = [], [], []
    for b, record in enumerate(records):
        n = int(np.flatnonzero(t.mask[b]).max()) + 2
        output = AgentLoopOutput(
            prompt_ids=[1, 2],
            response_ids=t.tokens[b, :n].tolist(),
            response_mask=t.mask[b, :n].tolist(),
            response_logprobs=[-0.5] * n,
            reward_score=record["reward"],
            num_turns=3,
            metrics={},
            extra_fields={"accredit": {"steps": record["steps"]}},
        )
        made_later = {"entropy": torch.linspace(0, 1, n), "old_log_probs": torch.linspace(-1, 0, n)}
        fields.append(output.as_dict() | made_later | {"uid": record["group"]})
        keys.append(f"{record['group']}_{record['id'][-1]}_{record.get('row', 0)}")
        tags.append({"status": "success"})
    for i in range(padding):
        pad = {name: v[:1].clone() if torch.is_tensor(v) else v for name, v in fields[0].items()}
        pad |= {"uid": "pad", "response_mask": torch.zeros(1, dtype=torch.int64)}
        pad |= {"rm_scores": torch.zeros(1), "rollout_log_probs": torch.zeros(1)}
        fields.append(pad)
        keys.append(f"pad_{i}_0")
        tags.append({"status": "success", "is_padding": True})
    tq.kv_batch_put(keys=keys, partition_id=partition, fields=list_of_dict_to_tensordict(fields), tags=tags)
    return tq.KVBatchMeta(partition_id=partition, keys=keys, tags=tags)


def advantages_of(tq, batch):
    data = tq.kv_batch_get(keys=batch.keys, partition_id=batch.partition_id, select_fields=["advantages"])
    return [row.numpy() for row in data["advantages"].unbind()]


def test_states_sessions_and_padding_reach_the_method_through_the_queue(queue):
    tq, config = queue
    records = recorded()
    batch = put(tq, records, "sound", padding=2)
    metrics = {}
    trainer_of(config)._compute_advantage(batch, metrics)
    credit = ac.assign(records, "gigpo", gamma=0.5)
    expected = credit.padded(tensors_of(records).mask)
    found = advantages_of(tq, batch)
    assert all(np.array_equal(expected[b, : row.size], row) for b, row in enumerate(found[: len(records)]))
    assert [[0.0], [0.0]] == [row.tolist() for row in found[len(records) :]]
    assert metrics["accredit/rollouts"] == len(credit.batch)


def test_entropies_and_logprobs_reach_the_method(queue):
    """gaca needs the log-probabilities: it runs, so they came."""
    from omegaconf import OmegaConf

    tq, config = queue
    config = OmegaConf.merge(config, {"algorithm": {"adv_estimator": "accredit/gaca"}})
    config.algorithm.accredit = {}
    batch = put(tq, recorded(), "gaca")
    trainer_of(config)._compute_advantage(batch, {})
    assert any(row.any() for row in advantages_of(tq, batch))


def test_retokenised_responses_are_caught_in_the_queue(queue):
    tq, config = queue
    records = recorded()
    batch = put(tq, records, "spoiled")
    wrong = torch.nested.as_nested_tensor(
        [row + 1 for row in tq.kv_batch_get(batch.keys, "spoiled", ["responses"])["responses"].unbind()],
        layout=torch.jagged,
    )
    from tensordict import TensorDict

    tq.kv_batch_put(
        keys=batch.keys, partition_id="spoiled", fields=TensorDict({"responses": wrong}, [len(records)])
    )
    with pytest.raises(DataError, match="ACC870: row 0 position 0"):
        trainer_of(config)._compute_advantage(batch, {})
