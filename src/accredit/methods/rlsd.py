"""RLSD: the outcome sets the sign, an informed teacher the size of each token's advantage.

Source: arXiv 2604.03128; ZJU-REAL/SDAR @ 8b85c231df3b ``rlsd_utils.py``.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from accredit.data import Parts
from accredit.errors import ParamError
from accredit.index import Index
from accredit.methods._params import bounded, choice
from accredit.methods._registry import method
from accredit.methods._reweight import base_credit, reweighted, step_value
from accredit.methods._teacher import lost_finding, lost_prefix, sampled_gap
from accredit.typing import Floats

__all__ = ["rlsd", "signed_factor"]


@dataclass(frozen=True, slots=True)
class Params:
    """Parameters of `rlsd`."""

    lam: float = bounded(0.5, at_least=0, at_most=1, doc="share of the advantage that the teacher scales")
    eps: float = bounded(0.2, at_least=0, below=1, doc="the factor stays within 1 -/+ eps")
    singleton: str = choice("zero", "raw", doc="a group of one under the default base: 0, or its raw score")


def signed_factor(advantage: Floats, gap_T: Floats, eps: float) -> Floats:
    """Return ``clip(exp(sign(A) d), 1 - eps, 1 + eps)`` ``[T]``; 1 where A = 0.

    Args:
        advantage: A ``[T]``.
        gap_T: d ``[T]``, nats.
        eps: below 1.
    """
    signed = np.sign(advantage)
    signed *= gap_T
    np.minimum(signed, 1.0, out=signed)  # e is beyond 1 + eps: no overflow
    np.exp(signed, out=signed)
    return np.clip(signed, 1.0 - eps, 1.0 + eps, out=signed)


@method(
    "rlsd",
    title="Outcome advantage whose size an informed teacher moves, token by token, within a band",
    family="tokens: teachers",
    params=Params,
    needs={"reward|rewards", "logprobs", "logprobs_teacher"},
    yields="token",
    tags={"reweights"},
    cites="arXiv:2604.03128",
    compat={"code": {"singleton": "raw"}},
)
def rlsd(index: Index, params: Params, *, base: str | None = None) -> Parts:
    """Self-distilled reinforcement: direction from the outcome, magnitude from the teacher.

    ``A'_t = A_t [(1 - lam) + lam clip(exp(sign(A_t) d_t), 1 - eps, 1 + eps)]``,
    ``d_t = log pi_T - log pi_S`` of the sampled token.  The sign is kept and
    ``|A'/A - 1| <= lam eps``.  With ``lam=0``, or where d = 0, it is the base.

    Args:
        index: of the batch; ``logprobs`` and ``logprobs_teacher`` per policy token.
        params: see `Params`.
        base: method under it; None = ``grpo``.

    Returns:
        Token credit ``[T]`` of the base's sign.  Extras: ``gap`` d (nats), ``factor`` ``[T]``.

    Raises:
        MissingSignal: a step that a teacher rescored has no ``logprobs``.
        ParamError: ``singleton`` with a base of the caller's own.

    Source: arXiv 2604.03128; SDAR ``compute_rlsd_token_advantage``.

    Example:
        >>> import accredit as ac
        >>> def record(id, reward, teacher):
        ...     steps = [{"logprobs": [-1.0, -1.0], "logprobs_teacher": teacher}]
        ...     return {"id": id, "group": "g", "reward": reward, "steps": steps}
        >>> both = [record("a", 1, [-0.9, -2.0]), record("b", 0, [-1.0, -1.0])]
        >>> ac.assign(both, "rlsd", base="dr-grpo").tokens.round(4).tolist()
        [0.5263, 0.45, -0.5, -0.5]
    """
    if base is not None and params.singleton != "zero":
        raise ParamError(
            "singleton is for the default base; with base= say it there", hint="base='grpo:singleton=raw'"
        )
    under = base_credit(index, base or f"grpo:singleton={params.singleton}")
    gap = sampled_gap(index)
    factor = signed_factor(under.tokens, gap.values, params.eps)
    values = under.tokens + under.tokens * (params.lam * (factor - 1.0))
    lost = lost_prefix(index)

    def text(s: int) -> str:
        d, w = (step_value(index, x, s) for x in (gap.values, factor))
        return f"A x {params.lam:g} (factor - 1); mean gap {d:.4g} nat, mean factor {w:.4g}"

    return reweighted(
        index,
        under,
        values,
        id="rlsd",
        name="teacher",
        text=text,
        fallbacks=lost,
        findings=lost_finding(lost),
        extras={"gap": gap.values, "factor": factor},
    )
