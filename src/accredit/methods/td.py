"""TD: a step's credit is the change of value that it brought, so a rollout's credit sums to R - V(s_0).

Source: Sutton 1988; arXiv 1506.02438 (GAE at lambda 0).
"""

from __future__ import annotations

from dataclasses import dataclass

from accredit.data import Explanation, Parts
from accredit.index import Index
from accredit.methods._params import bounded
from accredit.methods._registry import method
from accredit.methods._td import Scan, Setting, ValueParams, step_chain

__all__ = ["td"]


@dataclass(frozen=True, slots=True)
class Params(ValueParams):
    """Parameters of `td`."""

    gamma: float = bounded(1.0, at_least=0, at_most=1, doc="discount a step")


@method(
    "td",
    title="Change of the state's value that a step brought",
    family="values",
    params=Params,
    needs={"value|token_values"},
    yields="step",
    tags={"telescopes"},
    cites="arXiv:1506.02438",
)
def td(index: Index, params: Params) -> Parts:
    """Value difference of each step.

    ``A_t = r_t + gamma V_{t+1} - V_t``, t = 0 … T-1, the outcome in ``r_{T-1}``; V_T is
    ``final_value`` where the rollout was cut off, else 0.  With gamma 1 the credit of a rollout sums
    to its return minus V_0.  It is `gae` at lambda 0, by turns.

    Args:
        index: of the batch.
        params: see `Params`.

    Returns:
        Step credit ``[S]``, reward units; 0 in unscored rollouts.  Extras: ``returns`` ``[S]``,
        the target ``r_t + gamma V_{t+1}`` of a critic; ``values`` ``[S]``, V in use.

    Raises:
        DataError: if a step has no value and ``missing`` is error.

    Source: arXiv 1506.02438 Eq. 10 at lambda 0.

    Example:
        >>> from accredit.data import Batch
        >>> steps = [{"value": 0.5}, {"value": 0.25}]
        >>> batch = Batch.from_records([{"id": "a", "group": "g", "reward": 1, "steps": steps}])
        >>> td(Index(batch), Params()).values.tolist()
        [-0.25, 0.75]
    """
    setting = Setting(index, params)
    scan = Scan.of(step_chain(setting), params.gamma, 0.0)

    def explain(s: int) -> Explanation:
        return scan.explain("td", s)

    return Parts(
        scan.advantage,
        parts={"surprise": scan.surprise},
        informed_S=scan.chain.credited & scan.chain.there,
        fallbacks=scan.fallbacks,
        findings=setting.findings,
        extras={"returns": scan.returns, "values": scan.value},
        explain=explain,
    )
