"""Every reference loss and its gradient equal those of torch's autograd on padded rows."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
import torch

from accredit import losses

pytestmark = pytest.mark.slow

ROWS = np.array([0, 4, 5, 5, 11])
SIZE, WORDS = int(ROWS[-1]), 7


@pytest.fixture(params=range(5))
def case(request):
    """Token arrays: log-probs of policy, old policy and teacher, advantages, mask, logits."""
    rng = np.random.default_rng(request.param)
    found = {name: -rng.exponential(1.0, SIZE) for name in ("logprob", "old", "teacher")}
    found["old"] = found["logprob"] + rng.normal(0, 0.3, SIZE)
    found["advantage"] = np.repeat(rng.normal(size=ROWS.size - 1), np.diff(ROWS))
    found["mask"] = rng.random(SIZE) < 0.8
    for name in ("student_TV", "teacher_TV"):
        found[name] = rng.normal(0, 2, (SIZE, WORDS))
    return found


def tensors(case, *names):
    """The first one is what is learnt."""
    found = [torch.tensor(case[name], dtype=torch.float64) for name in names]
    found[0].requires_grad_()
    return found


def check(ours, loss, leaf):
    loss.backward()
    assert ours.value == pytest.approx(loss.item(), rel=1e-10, abs=1e-12)
    np.testing.assert_allclose(ours[1], leaf.grad.numpy(), rtol=1e-9, atol=1e-11)


def rows_of(x):
    return [x[a:b] for a, b in pairwise(ROWS)]


def averaged(loss, mask, mode):
    """`agg_loss` row by row."""
    kept = [row[m] for row, m in zip(rows_of(loss), rows_of(torch.tensor(mask)), strict=True) if m.any()]
    if mode == "token-mean":
        return torch.cat(kept).mean()
    if mode == "token-sum":
        return torch.cat(kept).sum()
    if mode == "seq-mean-token-mean":
        return torch.stack([row.mean() for row in kept]).mean()
    total = torch.stack([row.sum() for row in kept]).mean()
    return total / 9 if mode == "seq-mean-token-sum-norm" else total


@pytest.mark.parametrize("mode", losses.AGGREGATIONS)
@pytest.mark.parametrize("name", ["ppo", "aepo", "cispo", "sapo"])
def test_policy_losses(case, name, mode):
    x, old, a = tensors(case, "logprob", "old", "advantage")
    ratio = torch.exp(x - old)
    if name == "ppo":
        loss = torch.maximum(-a * ratio, -a * ratio.clamp(0.8, 1.2))
    elif name == "aepo":
        high = torch.where(ratio > 1.2, 1.2 * ratio / ratio.detach(), ratio.clamp(0.8, 1.2))
        loss = torch.maximum(-a * ratio, -a * high)
    elif name == "cispo":
        loss = -ratio.clamp(0.8, 1.2).detach() * a * x
    else:
        tau = 1.05 - 0.05 * (a > 0).double()
        loss = -(4 / tau) * torch.sigmoid(tau * (ratio - 1)) * a
    weight = losses.token_weights(ROWS, mode, case["mask"], 9)
    ours = getattr(losses, name)(case["logprob"], case["old"], case["advantage"], weight)
    check(ours, averaged(loss, case["mask"], mode), x)


def test_gspo(case):
    x, old, a = tensors(case, "logprob", "old", "advantage")
    loss = []
    for xr, orow, m in zip(rows_of(x), rows_of(old), rows_of(torch.tensor(case["mask"])), strict=True):
        mean = ((xr - orow) * m).sum() / m.sum().clamp(min=1)
        loss.append(torch.exp(xr - xr.detach() + mean.detach()))
    ratio = torch.cat(loss)
    loss = torch.maximum(-a * ratio, -a * ratio.clamp(1 - 0.1, 1 + 0.1))
    ours = losses.gspo(
        case["logprob"],
        case["old"],
        case["advantage"],
        ROWS,
        mask_T=case["mask"],
        clip_low=0.1,
        clip_high=0.1,
    )
    check(ours, averaged(loss, case["mask"], "seq-mean-token-mean"), x)


def test_gmpo(case):
    x, old, a = tensors(case, "logprob", "old", "advantage")
    held = torch.sign(a) * torch.minimum(
        torch.sign(a) * (x - old), torch.sign(a) * (x - old).clamp(-0.2, 0.2)
    )
    loss = []
    for h, ar, m in zip(rows_of(held), rows_of(a), rows_of(torch.tensor(case["mask"])), strict=True):
        if m.any():
            loss.append(-ar[m].mean() * torch.exp(h[m].mean()))
    ours = losses.gmpo(
        case["logprob"],
        case["old"],
        case["advantage"],
        ROWS,
        mask_T=case["mask"],
        clip_low=0.2,
        clip_high=0.2,
    )
    check(ours, torch.stack(loss).mean(), x)


@pytest.mark.parametrize("estimator", losses.ESTIMATORS)
def test_kl_estimates(case, estimator):
    x, ref = tensors(case, "logprob", "teacher")
    d = x - ref
    value = {"k1": d, "k2": d**2 / 2, "k3": torch.exp(-d) - 1 + d, "abs": d.abs()}[
        estimator.removesuffix("+")
    ]
    if estimator.endswith("+"):
        value = d**2 / 2 - (d**2 / 2).detach() + value.detach()
    weight = losses.token_weights(ROWS, "token-mean", case["mask"])
    ours = losses.kl_estimate(case["logprob"], case["teacher"], weight, estimator=estimator)
    check(ours, averaged(value, case["mask"], "token-mean"), x)


@pytest.mark.parametrize("top_k", [None, 3])
@pytest.mark.parametrize("temperature", [1.0, 1.7])
@pytest.mark.parametrize("beta", [0.0, 0.3, 0.5, 1.0])
def test_jsd(case, beta, temperature, top_k):
    x, teacher = tensors(case, "student_TV", "teacher_TV")
    s, t = x / temperature, teacher / temperature
    if top_k:
        kept = t.topk(top_k, dim=-1).indices
        s, t = s.gather(1, kept), t.gather(1, kept)
    s, t = s.log_softmax(-1), t.log_softmax(-1)
    kl = lambda a, b: torch.nn.functional.kl_div(b, a, reduction="none", log_target=True).sum(-1)  # noqa: E731
    if beta == 0:
        loss = kl(t, s)
    elif beta == 1:
        loss = kl(s, t)
    else:
        mixed = torch.logaddexp(s + np.log(1 - beta), t + np.log(beta))
        loss = beta * kl(t, mixed) + (1 - beta) * kl(s, mixed)
    weight = losses.token_weights(ROWS, "token-mean", case["mask"])
    ours = losses.jsd(
        case["student_TV"], case["teacher_TV"], weight, beta=beta, temperature=temperature, top_k=top_k
    )
    check(ours, averaged(loss, case["mask"], "token-mean"), x)


@pytest.mark.parametrize("divergence", ["forward_kl", "reverse_kl"])
def test_evidence(case, divergence):
    x, direction = tensors(case, "student_TV", "teacher_TV")
    logs = (x / 1.3).log_softmax(-1)
    of = logs if divergence == "forward_kl" else logs.exp()
    weight = losses.token_weights(ROWS, "token-mean", case["mask"])
    ours = losses.evidence(
        case["student_TV"], case["teacher_TV"], weight, divergence=divergence, temperature=1.3
    )
    check(ours, averaged(-(direction * of).sum(-1), case["mask"], "token-mean"), x)


def test_sampled_reverse_kl(case):
    x, teacher = tensors(case, "logprob", "teacher")
    weight = losses.token_weights(ROWS, "token-mean", case["mask"])
    ours = losses.sampled_reverse_kl(case["logprob"], case["teacher"], weight)
    check(ours, averaged(-(teacher - x).detach() * x, case["mask"], "token-mean"), x)


@pytest.mark.parametrize("gate", losses.GATES)
def test_sdar(case, gate):
    x, teacher = tensors(case, "logprob", "teacher")
    gap = teacher - x
    if gate == "sigmoid":
        held = torch.sigmoid(3.0 * gap)
    elif gate == "const":
        held = torch.ones_like(gap)
    else:
        positive = gap[torch.tensor(case["mask"]) & (gap > 0)]
        held = (gap >= positive.topk(int(np.ceil(0.4 * positive.numel()))).values[-1]).double()
    weight = losses.token_weights(ROWS, "seq-mean-token-mean", case["mask"])
    ours = losses.sdar(case["logprob"], case["teacher"], weight, gate=gate, beta=3.0, top=0.4)
    check(ours, averaged(held.detach() * gap, case["mask"], "seq-mean-token-mean"), x)


def test_skill_sd(case):
    x, teacher, old = tensors(case, "logprob", "teacher", "old")
    ell = x - teacher
    k3 = torch.exp((-ell).clamp(max=20)) - 1 + ell
    loss = torch.exp((x - old).clamp(max=10)) * k3
    weight = losses.token_weights(ROWS, "token-mean", case["mask"])
    ours = losses.skill_sd(case["logprob"], case["teacher"], case["old"], weight)
    check(ours, averaged(loss, case["mask"], "token-mean"), x)
