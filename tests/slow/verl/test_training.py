"""A tiny random model learns from our advantages through verl's own batch, advantage and loss functions.

verl 0.9.1 has no rollout engine for a CPU, and its training engines are registered for accelerators
(both asserted here, so that a release that changes this fails the test).  What is left of the loop,
sampling and the optimiser step, is played by transformers and torch.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]

VOCABULARY, TARGET, LENGTH, GROUP = 12, 7, 6, 8


def test_verl_itself_cannot_train_on_a_cpu():
    from verl.workers.engine import EngineRegistry
    from verl.workers.rollout.base import _ROLLOUT_REGISTRY

    assert {"vllm", "sglang", "trtllm"} == {name for name, _ in _ROLLOUT_REGISTRY}
    devices = {d for backends in EngineRegistry._engines["language_model"].values() for d in backends}
    assert "cpu" not in devices


@pytest.fixture
def model():
    from transformers import Qwen2Config, Qwen2ForCausalLM

    torch.manual_seed(0)
    config = Qwen2Config(
        vocab_size=VOCABULARY,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=2,
        max_position_embeddings=32,
    )
    return Qwen2ForCausalLM(config)


@torch.no_grad()
def sampled(model, rows):
    ids = torch.ones((rows, 1), dtype=torch.int64)
    for _ in range(LENGTH):
        probs = model(ids).logits[:, -1].softmax(-1)
        ids = torch.cat([ids, torch.multinomial(probs, 1)], dim=1)
    return ids[:, 1:]


def logprobs_of(model, responses):
    start = torch.ones((len(responses), 1), dtype=torch.int64)
    logits = model(torch.cat([start, responses], dim=1)).logits[:, :-1]
    return logits.log_softmax(-1).gather(-1, responses[..., None]).squeeze(-1)


def batch_of(model, responses):
    """Two turns of two tokens with an observation between; the reward is paid turn by turn."""
    from verl import DataProto

    mask = torch.tensor([1, 1, 0, 1, 1, 0]).expand(len(responses), -1).clone()
    hits = (responses == TARGET).float() * mask
    records = np.empty(len(responses), object)
    for b, (ids, hit) in enumerate(zip(responses.tolist(), hits.tolist(), strict=True)):
        spans = ((0, 2), (3, 5))
        records[b] = {
            "steps": [
                {"state": f"turn {t}", "tokens": ids[i:j], "reward": sum(hit[i:j]) / 4}
                for t, (i, j) in enumerate(spans)
            ]
        }
    rewards = torch.zeros_like(hits)
    rewards[:, -1] = hits.sum(1) / 4
    return DataProto.from_dict(
        tensors={
            "token_level_rewards": rewards,
            "response_mask": mask,
            "responses": responses,
            "old_log_probs": logprobs_of(model, responses).detach(),
        },
        non_tensors={
            "uid": np.array([f"g{b // GROUP}" for b in range(len(responses))], object),
            "accredit": records,
        },
    )


@pytest.mark.parametrize("method", ["grpo", "gigpo"])
def test_reward_rises_and_the_loss_stays_finite(model, method):
    from verl.trainer.config import AlgoConfig
    from verl.trainer.ppo.core_algos import get_policy_loss_fn
    from verl.trainer.ppo.v1.utils import compute_advantage_for_multi_trajectories
    from verl.workers.config import FSDPActorConfig

    actor = FSDPActorConfig(strategy="fsdp", rollout_n=GROUP, ppo_micro_batch_size_per_gpu=8)
    optimiser = torch.optim.AdamW(model.parameters(), lr=5e-3)
    means = []
    for _ in range(25):
        responses = sampled(model, 4 * GROUP)
        data = batch_of(model, responses)
        keys = [f"{uid}_{b % GROUP}_0" for b, uid in enumerate(data.non_tensor_batch["uid"])]
        config = AlgoConfig(adv_estimator=f"accredit/{method}")
        batch = compute_advantage_for_multi_trajectories(
            data, keys, config.adv_estimator, num_repeat=GROUP, config=config
        ).batch
        assert not batch["advantages"][batch["response_mask"] == 0].any()
        loss, _ = get_policy_loss_fn("vanilla")(
            old_log_prob=batch["old_log_probs"],
            log_prob=logprobs_of(model, responses),
            advantages=batch["advantages"],
            response_mask=batch["response_mask"].bool(),
            loss_agg_mode="token-mean",
            config=actor,
        )
        assert torch.isfinite(loss)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        means.append(float(batch["token_level_rewards"].sum(1).mean()))
    assert np.mean(means[-5:]) > np.mean(means[:5]) + 0.3
