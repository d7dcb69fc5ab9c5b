"""Reference loss terms: what a trainer does with token advantages, in numpy, with gradients."""

from accredit.losses.cancellation import drift, min_replace, orthogonal
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
from accredit.losses.fisher import MOMENTS, Directions, directions, fisher_moments, row_pieces
from accredit.losses.policy import (
    AGGREGATIONS,
    Loss,
    aepo,
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
    "MOMENTS",
    "Directions",
    "LogitLoss",
    "Loss",
    "aepo",
    "aggregate",
    "cispo",
    "directions",
    "drift",
    "evidence",
    "fisher_moments",
    "forward_kl",
    "gmpo",
    "gspo",
    "jsd",
    "kl_estimate",
    "log_softmax",
    "min_replace",
    "orthogonal",
    "ppo",
    "reverse_kl",
    "row_pieces",
    "sampled_reverse_kl",
    "sapo",
    "sdar",
    "sdar_gate",
    "skill_sd",
    "token_weights",
]
