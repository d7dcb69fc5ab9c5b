"""Reference loss terms: what a trainer does with token advantages, in numpy, with gradients."""

from accredit.losses.distillation import GATES, sampled_reverse_kl, sdar, sdar_gate, skill_sd
from accredit.losses.divergence import (
    ESTIMATORS,
    LogitLoss,
    evidence,
    forward_kl,
    jsd,
    kl_estimate,
    log_softmax,
    reverse_kl,
)
from accredit.losses.policy import (
    AGGREGATIONS,
    Loss,
    aggregate,
    cispo,
    gmpo,
    gspo,
    ppo,
    sapo,
    token_weights,
)

__all__ = [
    "AGGREGATIONS",
    "ESTIMATORS",
    "GATES",
    "LogitLoss",
    "Loss",
    "aggregate",
    "cispo",
    "evidence",
    "forward_kl",
    "gmpo",
    "gspo",
    "jsd",
    "kl_estimate",
    "log_softmax",
    "ppo",
    "reverse_kl",
    "sampled_reverse_kl",
    "sapo",
    "sdar",
    "sdar_gate",
    "skill_sd",
    "token_weights",
]
