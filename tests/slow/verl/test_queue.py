"""V1's own path: rows in the real TransferQueue, through `PPOTrainer._compute_advantage`, and back."""

from __future__ import annotations

import asyncio

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


def put(tq, records, run, *, multiple=1):
    """Rows through verl's own agent loop worker, its log-probability step's fields, and its padding."""
    from tensordict import TensorDict
    from verl.trainer.ppo.padding_utils import upsample_batch_to_divisible_size

    keys = asyncio.run(_played(records, run))
    lengths = tq.kv_batch_get(keys=keys, partition_id="train", select_fields=["response_mask"])[
        "response_mask"
    ]
    for name, first, last in (("entropy", 0, 1), ("old_log_probs", -1, 0)):
        rows = [torch.linspace(first, last, len(row)) for row in lengths.unbind()]
        fields = TensorDict({name: torch.nested.as_nested_tensor(rows, layout=torch.jagged)}, [len(keys)])
        tq.kv_batch_put(keys=keys, partition_id="train", fields=fields)
    held = tq.kv_list("train")["train"]
    batch = tq.KVBatchMeta(partition_id="train", keys=keys, tags=[held[k] for k in keys])
    return upsample_batch_to_divisible_size(batch, multiple, eos_token_id=0)


async def _played(records, run):
    from verl.experimental.agent_loop import AgentLoopOutput
    from verl.trainer.ppo.v1 import AgentLoopWorkerTQ

    worker = object.__new__(AgentLoopWorkerTQ.__ray_metadata__.modified_class)
    worker.processor = worker.reward_loop_worker_handles = None
    worker.distillation_enabled = False
    t = tensors_of(records)
    sessions, keys = {}, []
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
            extra_fields={"accredit": {"steps": record["steps"]}, "reward_extra_info": {}},
        )
        own = sessions.setdefault((f"{run}_{record['group']}", int(record["id"][-1])), [])
        keys.append(f"{run}_{record['group']}_{record['id'][-1]}_{len(own)}")
        own.append(output)
    for (uid, session), outputs in sessions.items():
        await worker._agent_loop_postprocess(
            outputs, validate=False, uid=uid, session_id=session, global_steps=0
        )
    return keys


def advantages_of(tq, batch):
    data = tq.kv_batch_get(keys=batch.keys, partition_id=batch.partition_id, select_fields=["advantages"])
    return [row.numpy() for row in data["advantages"].unbind()]


def test_states_sessions_and_padding_reach_the_method_through_the_queue(queue):
    tq, config = queue
    records = recorded()
    batch = put(tq, records, "sound", multiple=12)
    metrics = {}
    trainer_of(config)._compute_advantage(batch, metrics)
    credit = ac.assign(records, "gigpo", gamma=0.5)
    expected = credit.padded(tensors_of(records).mask)
    found = advantages_of(tq, batch)
    assert all(np.array_equal(expected[b, : row.size], row) for b, row in enumerate(found[: len(records)]))
    assert [True] * 2 == [tag["is_padding"] for tag in batch.tags[len(records) :]]
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
        [row + 1 for row in tq.kv_batch_get(batch.keys, "train", ["responses"])["responses"].unbind()],
        layout=torch.jagged,
    )
    from tensordict import TensorDict

    tq.kv_batch_put(
        keys=batch.keys, partition_id="train", fields=TensorDict({"responses": wrong}, [len(records)])
    )
    with pytest.raises(DataError, match="ACC870: row 0 position 0"):
        trainer_of(config)._compute_advantage(batch, {})
