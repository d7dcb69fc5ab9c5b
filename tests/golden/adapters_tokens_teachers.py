"""Golden files of the teachers: opsd, rlsd, sdar, uniopsd, verpo; and of the policy losses."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from accredit import losses
from accredit.data import Credit
from accredit.index import Index
from accredit.losses import Loss
from tests.golden.interface import (
    Call,
    Golden,
    Reader,
    adapts,
    by_step,
    by_token,
    step_extra,
    token_extra,
    tokens,
)

GRPO_RAW = "grpo (group mean, sample std ddof=1, +1e-6; a group of one keeps its raw reward: mean 0, std 1)"
GRPO_TRL = "grpo: (r-mean)/(std_ddof1+1e-4)"
MEAN_ONLY = "r - group mean (no std)"


def _rows_are_steps(credit: Credit) -> Any:
    return credit.batch.token_start_S1


def _rows_are_rollouts(credit: Credit) -> Any:
    return Index(credit.batch).token_start_R1


def _column(credit: Credit, name: str) -> Any:
    return np.asarray(credit.batch.column(name).values, np.float64)


def _value(loss: Callable[[Credit], Any]) -> Reader:
    return lambda credit: loss(credit).value


def _grad(loss: Callable[[Credit], Any]) -> Reader:
    return lambda credit: by_token(credit, loss(credit).grad_T)


def _value_and_grad(loss: Callable[[Credit], Loss]) -> Reader:
    return lambda credit: {"loss": _value(loss)(credit), "grad": _grad(loss)(credit)}


@adapts("opsd")
def opsd(golden: Golden) -> Call:
    golden.no_effect("note")
    top_k = golden.get("top_k", None)
    how: dict[str, Any] = {
        "beta": golden.number("beta", 0.5),
        "temperature": golden.number("temperature", 1.0),
        "top_k": None if top_k is None else int(golden.number("top_k")),
    }

    def loss(credit: Credit) -> losses.LogitLoss:
        student, teacher = (_column(credit, f"{who}_logits_T") for who in ("student", "teacher"))
        weight = losses.token_weights(_rows_are_rollouts(credit), "token-mean")
        return losses.jsd(student, teacher, weight, **how)

    read = {"loss": _value(loss), "tokens": token_extra("aux_loss"), "sampled_token_advantage": tokens}
    return Call("opsd", {"source": "logits"} | how, read)


@adapts("rlsd")
def rlsd(golden: Golden) -> Call:
    golden.no_effect("note")
    golden.must_be("base", GRPO_RAW)
    kwargs = {
        "compat": "code",
        "lam": golden.number("rlsd_lambda", 0.5),
        "eps": golden.number("clip_eps", 0.2),
    }
    # The file's step credit is the base's.
    return Call("rlsd", kwargs, {"steps": step_extra("base_steps"), "tokens": tokens})


def _older_weights(credit: Credit, mode: str) -> Any:
    """`agg_loss` of the SDAR code: one form sums all tokens over the longest row."""
    start = _rows_are_steps(credit)
    if mode == "seq-mean-token-sum-norm":
        return losses.token_weights(start, "token-sum") / max(1, np.diff(start).max(initial=0))
    return losses.token_weights(start, mode)


@adapts("sdar")
def sdar(golden: Golden) -> Call:
    golden.no_effect("note")
    gates = {name: name for name in losses.GATES}
    how: dict[str, Any] = {
        "beta": golden.number("gate_beta", 5.0),
        "gate": golden.one_of("gate", gates, "sigmoid"),
    }
    mode = golden.one_of("loss_agg_mode", {m: m for m in losses.AGGREGATIONS}, "token-mean")

    def pair(credit: Credit) -> tuple[Any, Any]:
        return _column(credit, "logprob_T"), _column(credit, "logprobs_teacher_T")

    def gated(credit: Credit) -> Loss:
        return losses.sdar(*pair(credit), _older_weights(credit, mode), **how)

    def skill(credit: Credit) -> Loss:
        old = _column(credit, "old_logprobs_T")
        return losses.skill_sd(*pair(credit), old, _older_weights(credit, mode))

    read = {
        "tokens": token_extra("gate"),
        "loss": _value(gated),
        "grad": _grad(gated),
        "skill_sd_loss": _value(skill),
        "skill_sd_grad": _grad(skill),
    }
    return Call("sdar", how, read)


INTERMEDIATE = {
    "A_E": "episode_part",
    "A_S": "step_part",
    "A_T": "peer_part",
    "c": "c",
    "z_S": "z_step",
    "z_T": "z_peer",
    "has_step": "has_step",
    "has_teacher": "has_peer",
}


def _intermediate(credit: Credit) -> Any:
    found = {theirs: by_step(credit, credit.extras[ours]) for theirs, ours in INTERMEDIATE.items()}
    return found | {"scale": float(credit.extras["scale"][0])}


@adapts("uniopsd")
def uniopsd(golden: Golden) -> Call:
    golden.no_effect("note")
    golden.must_be("gigpo_mode", "mean_norm")
    # Says which rollouts were shown a peer; the file's teacher_logprobs tell that by themselves.
    golden.number("peer_success_threshold", 1.0)
    kwargs = {
        "compat": "code",
        "rho_hat": golden.number("rho_hat"),
        "u": golden.number("u", 0.5),
        "lam": golden.number("lambda_m", 0.5),
        "eps_w": golden.number("eps_w", 0.2),
        "gamma": golden.number("gamma", 0.95),
        "omega": golden.number("omega", 1.0),
        "eps": golden.number("eps", 1e-6),
        "baseline": golden.one_of("episode_baseline", {"rows": "rows", "rollouts": "rollouts"}, "rows"),
    }
    read = {"steps": step_extra("fused"), "tokens": tokens, "intermediate": _intermediate}
    return Call("uniopsd", kwargs, read)


@adapts("verpo")
def verpo(golden: Golden) -> Call:
    golden.no_effect("note")
    golden.must_be("base", MEAN_ONLY)
    golden.must_be("advantage_modulation", "multiplicative_w")
    golden.must_be("vocab_mode", "full")
    kwargs = {
        "evidence": "given",
        "divergence": golden.one_of("divergence", {d: d for d in ("forward_kl", "reverse_kl")}, "forward_kl"),
        "displacement": golden.one_of("displacement", {d: d for d in ("fec", "ctr", "fixed")}, "fec"),
        "cost_alpha": golden.number("cost_alpha", 0.0025),
        "cost_eps": golden.number("cost_epsilon", 2.5e-5),
        "eps_proj": golden.number("projection_epsilon", 1e-8),
        "temperature": golden.number("temperature", 1.0),
        "lam": golden.number("advantage_modulation_lambda", 1.0),
    }
    read: dict[str, Reader] = {"steps": step_extra("base_steps"), "tokens": tokens}
    return Call(
        "verpo",
        kwargs,
        read | {name: token_extra(name) for name in ("weights", "benefit", "fisher_cost", "projection")},
    )


@adapts("policy-loss")
def policy_loss(golden: Golden) -> Call:
    golden.no_effect("note")
    golden.must_be("base", GRPO_TRL)
    clip = {k: golden.number(k) for k in ("clip_low", "clip_high")}
    length = golden.number("padded_length")

    def arrays(credit: Credit) -> tuple[Any, Any, Any]:
        return _column(credit, "logprob_T"), _column(credit, "old_logprobs_T"), np.array(credit.tokens)

    def weights(credit: Credit, mode: str) -> Any:
        return losses.token_weights(_rows_are_rollouts(credit), mode, constant=length)

    def surrogate(mode: str) -> Callable[[Credit], Loss]:
        return lambda credit: losses.ppo(*arrays(credit), weights(credit, mode), **clip)

    def gspo(credit: Credit) -> Loss:
        return losses.gspo(*arrays(credit), _rows_are_rollouts(credit), **clip)

    def cispo(credit: Credit) -> Loss:
        return losses.cispo(*arrays(credit), weights(credit, "token-mean"), **clip)

    def gmpo(credit: Credit) -> Loss:
        return losses.gmpo(*arrays(credit), _rows_are_rollouts(credit), **clip)

    def sapo(credit: Credit) -> Loss:
        return losses.sapo(*arrays(credit), weights(credit, "seq-mean-token-mean"))

    by_mode: Mapping[str, Reader] = {m: _value_and_grad(surrogate(m)) for m in losses.AGGREGATIONS}
    read: dict[str, Reader] = {"agg": lambda credit: {m: reader(credit) for m, reader in by_mode.items()}}
    for loss in (gspo, cispo, gmpo, sapo):
        read[loss.__name__] = _value_and_grad(loss)
    return Call("grpo", {"compat": "trl"}, read)
