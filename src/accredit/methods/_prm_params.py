"""Parameters of `prm`."""

from __future__ import annotations

from dataclasses import dataclass

from accredit.methods._params import bounded, choice, flag, incomplete_choice, truncated_choice

__all__ = ["Params"]


@dataclass(frozen=True, slots=True)
class Params:
    """Parameters of `prm`; those that a rule does not name have no effect on it."""

    source: str = choice(
        "auto",
        "reward",
        "progress",
        "scores",
        "logratio",
        "potential",
        doc="what scores the steps; auto: the first there of logratio, scores, progress, reward",
    )
    rule: str = choice(
        "auto",
        "milestone",
        "grpo-process",
        "prime",
        "prime-code",
        "pure",
        "pbrs",
        "immediate",
        doc="what turns scores into credit; auto: the source's own rule",
    )
    outcome_weight: float | None = bounded(
        None, at_least=0, doc="milestone, grpo-process: weight of the outcome; None = 1 and 0"
    )
    milestone: str = choice(
        "difference", "first", doc="progress: lost progress costs what it paid; or each check pays once"
    )
    gamma: float = bounded(1.0, at_least=0, at_most=1, doc="prime, pbrs: discount a token, a step")
    beta: float = bounded(0.05, at_least=0, doc="reward units a nat of log ratio (prime, grpo-process)")
    tau: float = bounded(
        0.1, above=0, doc="pure: temperature of the weights: near 0 the minimum counts, inf = the mean"
    )
    weighted: bool = flag(default=True, doc="pure: false weighs all steps of a rollout equally")
    baseline: str = choice("token", "step", doc="pure: the other rollouts' reward a token, or a step")
    separator: int = bounded(0, at_least=0, doc="pure: tokens of a separator that each step counts too")
    verifier_coef: float = bounded(1.0, at_least=0, doc="pure: weight of the outcome")
    reward_mode: str = choice("PRMVR", "PRM", "VR", doc="pure: process and outcome, or one of them")
    prime_norm: str = choice(
        "batch", "none", doc="prime-code: divide log ratios by their largest sum to go in the batch"
    )
    granularity: str = choice(
        "token", "whole", doc="prime-code: a reward a token, or all of them on the last token"
    )
    verifier_gamma: float = bounded(
        1.0, at_least=0, at_most=1, doc="prime-code: discount a token of the outcome"
    )
    norm_eps: float = bounded(1e-6, at_least=0, doc="prime-code: added to the largest sum")
    whiten_eps: float = bounded(1e-8, at_least=0, doc="prime-code: added to the variance, inside the root")
    eps: float = bounded(1e-6, at_least=0, doc="milestone, grpo-process: added to the deviation")
    truncated: str = truncated_choice()
    incomplete: str = incomplete_choice()
