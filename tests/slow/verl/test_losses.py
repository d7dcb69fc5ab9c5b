"""Reference losses equal verl's own functions, gradients too."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from verl.trainer.ppo import core_algos
from verl.workers.config import ActorConfig

from accredit import losses

pytestmark = pytest.mark.slow

MASK = np.arange(5)[None] < np.array([5, 3, 1, 4])[:, None]
START = np.concatenate([[0], np.cumsum(MASK.sum(axis=1))])
# verl adds 1e-8 to the number of tokens.
CLOSE = 1e-7


@pytest.fixture
def arrays():
    rng = np.random.default_rng(0)
    logprob = -rng.exponential(1, MASK.shape)
    old = logprob + rng.normal(0, 0.4, MASK.shape)
    return logprob, old, np.repeat(rng.normal(size=(4, 1)), 5, axis=1)


def test_gmpo_is_verls_geo_mean(arrays):
    logprob, old, advantage = arrays
    leaf = torch.tensor(logprob, requires_grad=True)
    config = ActorConfig(
        strategy="fsdp",
        rollout_n=1,
        ppo_micro_batch_size_per_gpu=1,
        clip_ratio_low=0.2,
        clip_ratio_high=0.3,
    )
    given = (torch.tensor(x) for x in (advantage, MASK.astype(float)))
    loss, _ = core_algos.compute_policy_loss_geo_mean(torch.tensor(old), leaf, *given, config=config)
    loss.backward()
    inside = (x[MASK] for x in (logprob, old, advantage))
    ours = losses.gmpo(*inside, START, clip_low=0.2, clip_high=0.3)
    assert ours.value == pytest.approx(loss.item(), abs=CLOSE)
    np.testing.assert_allclose(ours.grad_T, leaf.grad.numpy()[MASK], atol=CLOSE)


@pytest.mark.parametrize("estimator", losses.ESTIMATORS)
def test_kl_estimates_are_verls(arrays, estimator):
    logprob, reference, _ = arrays
    leaf = torch.tensor(logprob, requires_grad=True)
    theirs = core_algos.kl_penalty(leaf, torch.tensor(reference), estimator)
    theirs.sum().backward()
    one = np.ones(logprob.size)
    ours = losses.kl_estimate(logprob.ravel(), reference.ravel(), one, estimator=estimator)
    np.testing.assert_allclose(ours.loss_T, theirs.detach().numpy().ravel(), atol=1e-12)
    np.testing.assert_allclose(ours.grad_T, leaf.grad.numpy().ravel(), atol=1e-12)
