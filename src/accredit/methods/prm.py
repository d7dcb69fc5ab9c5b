"""Process rewards: a source that scores the steps, and a rule that turns the scores into credit.

Source: arXiv 2305.20050 (Let's Verify), 2402.03300 (process supervision in GRPO), 2502.01456
(PRIME), 2504.15275 (PURE), Ng, Harada & Russell 1999 (potential-based shaping).  Differences from
their code: docs/methods/prm.md.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping

import numpy as np

from accredit.data import Finding, Parts
from accredit.errors import ParamError
from accredit.index import GroupStats, Index, segment_sum
from accredit.methods._prm_params import Params
from accredit.methods._prm_prime import prime, prime_code
from accredit.methods._prm_pure import pure
from accredit.methods._prm_rules import Case, immediate, pbrs, pooled
from accredit.methods._prm_sources import chosen
from accredit.methods._registry import method

__all__ = ["prm"]

RULES: Mapping[str, Callable[[Case], Parts]] = {
    "milestone": pooled,
    "grpo-process": pooled,
    "prime": prime,
    "prime-code": prime_code,
    "pure": pure,
    "pbrs": pbrs,
    "immediate": immediate,
}


@method(
    "prm",
    title="Scores of the single steps, made credit by one of seven rules",
    family="process",
    params=Params,
    needs={"prm_logratio|prm_logits|prm_prob|step_score|progress|step_reward|potential"},
    yields="token",
    tags=(),
    cites="arXiv:2305.20050, arXiv:2502.01456, arXiv:2504.15275",
    compat={
        "prime": {"source": "logratio", "rule": "prime-code"},
        "pure": {"source": "scores", "rule": "pure", "separator": 1},
    },
    aliases={
        "prime": {"source": "logratio", "rule": "prime"},
        "pure": {"source": "scores", "rule": "pure"},
        "pbrs": {"rule": "pbrs"},
        "grpo-process": {"rule": "grpo-process"},
    },
)
def prm(index: Index, params: Params) -> Parts:
    """Process-reward credit.

    Step t of rollout i, token k, group g; R is ``reward`` alone, r a step's score as ``source`` says:

    - ``milestone``, ``grpo-process``: ``A_t = sum_{u>=t} (r_u - mean_g r)/(std_g r + eps)``, all steps
      of the group one pool, plus ``w (R - mean R)/(std R + eps)``, w = 1 and 0;
    - ``prime``: ``A_k = sum_{s>=k} gamma^(s-k) [beta l_s - mean_{j!=i} beta l_j] + R - mean_{j!=i} R_j``,
      l log ratios, l_j their mean over rollout j; ``prime-code``: as the authors' code;
    - ``pure``: ``A_t = sum_{u>=t} (w_u p'_u - baseline) + c (R - mean_{j!=i} R_j)``, ``p' = 2p - 1``,
      ``w = softmax(-p'/tau)`` over the rollout;
    - ``pbrs``: ``F_t = gamma Phi_{t+1} - Phi_t`` added to the rewards, ``A_t = G_t - mean_j G_{j,0}``;
    - ``immediate``: ``A_t = Phi_{t+1} - Phi_t``, R in place of the last Phi.

    ``prime`` with log ratios 0 is `rloo`; ``pbrs`` with Phi 0 is `dr-grpo`.

    Args:
        index: of the batch.
        params: see `Params`.

    Returns:
        Step credit ``[S]``; by ``prime`` and ``prime-code`` token credit ``[T]``, a step's credit being
        its first token's.  Extras by rule: ``step_rewards``, ``weighted_rewards``,
        ``solution_product`` and ``solution_minimum`` ``[R]``, ``shaping_rewards``, ``values``,
        ``returns`` ``[T]``.

    Raises:
        MissingSignal: naming the columns of the source that is asked for.
        ParamError: for a rule that cannot work on the source, or a weight that the rule does not take.

    Source: arXiv 2402.03300 §4.1.3, 2502.01456 Eq. 5, 2504.15275 Eq. 5-7; Ng et al. 1999.

    Example:
        >>> from accredit.data import Batch
        >>> batch = Batch.from_records([
        ...     {"id": "a", "group": "g", "reward": 1, "steps": [{"reward": 0.9}, {"reward": 0.2}]},
        ...     {"id": "b", "group": "g", "reward": 0, "steps": [{"reward": 0.5}]},
        ... ])
        >>> prm(Index(batch), Params()).values.round(4).tolist()
        [0.0949, -0.9492, -0.0949]
    """
    source, rule = chosen(index, params.source, params.rule)
    if params.outcome_weight is not None and RULES[rule] is not pooled:
        raise ParamError(f"outcome_weight is for rules milestone and grpo-process, not {rule!r}")
    found = RULES[rule](Case(index, params, source, rule))
    extra = _findings(index, params, rule, found)
    return dataclasses.replace(found, findings=(*found.findings, *extra))


def _findings(index: Index, params: Params, rule: str, found: Parts) -> tuple[Finding, ...]:
    told = []
    if rule == "grpo-process" and not params.outcome_weight and index.scored_R.any():
        told.append(
            Finding(
                "ACC423",
                "warning",
                "the outcome is not used: the process rewards alone decide the credit",
                hint="Set outcome_weight above 0",
            )
        )
    return (*told, *_alone(index, found))


def _alone(index: Index, found: Parts) -> tuple[Finding, ...]:
    """Say how much credit the process part gives where the outcomes of a group all tie."""
    if "outcome" not in found.parts:
        return ()
    outcomes = GroupStats(index.outcome_R, index.group_R, index.n_groups, index.scored_R)
    tied_G = outcomes.flat & (outcomes.size > 1)
    steps = found.values if found.steps is None else found.steps
    size = segment_sum(np.abs(steps), index.group_S, index.n_groups)
    acting = tied_G & (size > 0)
    if not acting.any():
        return ()
    share = float(size[acting].sum() / size.sum())
    return (
        Finding(
            "ACC425",
            "info",
            f"in {int(acting.sum())} groups all outcomes tie: the process part alone gives them "
            f"{share:.1%} of the whole credit",
            hint="Nothing; watch that success rises with that share",
            count=int(acting.sum()),
        ),
    )
