"""GAE: value surprises of a decision and, fading by lambda, of those after it; by turns or tokens.

Source: arXiv 1506.02438; verl 0.9.1 ``core_algos.compute_gae_advantage_return``, TRL
``ppo_trainer``, stable-baselines3 ``RolloutBuffer``.  Differences from their code:
docs/methods/gae.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from accredit.data import Batch, Explanation, Parts
from accredit.errors import MissingSignal, ParamError
from accredit.index import Index, carrier_S, segment_sum
from accredit.methods._params import bounded, choice, flag
from accredit.methods._registry import method
from accredit.methods._td import Chain, Scan, Setting, ValueParams, first_token_value, step_chain
from accredit.methods._whitened import whitening_term
from accredit.spread import Whitening
from accredit.typing import BoolArray, Floats, Ints

__all__ = ["gae"]

WHITEN_EPS = 1e-8  # verl's and TRL's, inside the root


@dataclass(frozen=True, slots=True)
class Params(ValueParams):
    """Parameters of `gae`."""

    granularity: str = choice(
        "auto",
        "turn",
        "token",
        doc="unit of the recursion; auto: turns if the batch has `value`, else tokens",
    )
    gamma: float = bounded(1.0, at_least=0, at_most=1, doc="discount a unit")
    lam: float = bounded(0.95, at_least=0, at_most=1, doc="share of later credit: 0 = TD, 1 = Monte Carlo")
    levels: int = bounded(
        1, at_least=1, at_most=2, doc="2: tokens inside turns have rates of their own, gamma and lam rest"
    )
    gamma_tok: float = bounded(1.0, at_least=0, at_most=1, doc="levels=2: discount inside a turn")
    gamma_turn: float = bounded(1.0, at_least=0, at_most=1, doc="levels=2: discount from turn to turn")
    lam_tok: float = bounded(1.0, at_least=0, at_most=1, doc="levels=2: lambda inside a turn")
    lam_turn: float = bounded(0.95, at_least=0, at_most=1, doc="levels=2: lambda from turn to turn")
    observation: str = choice(
        "skip",
        "reset",
        doc="observation tokens: passed over, or they cut off the credit that comes after them",
    )
    whiten: bool = flag(default=False, doc="afterwards, centre and scale over all policy tokens of the batch")


class _Rates(NamedTuple):
    """Discounts and carries, one number or one a unit."""

    gamma: float | Floats
    carry: float | Floats


@method(
    "gae",
    title="Surprises of the value estimate from here on, fading by lambda",
    family="values",
    params=Params,
    needs={"value|token_values"},
    yields="token",
    tags=(),
    cites="arXiv:1506.02438",
    compat={
        "verl": {"granularity": "token", "lam": 1.0, "whiten": True},
        "trl": {"granularity": "token", "lam": 0.95, "whiten": True},
        "sb3": {"granularity": "turn", "gamma": 0.99, "lam": 0.95},
    },
)
def gae(index: Index, params: Params) -> Parts:
    """Generalised advantage estimate of each step or policy token.

    ``delta_t = r_t + gamma V_{t+1} - V_t``, ``A_t = delta_t + gamma lam A_{t+1}``, ``A_T = 0``; t over
    steps or over policy tokens, the outcome in the last reward, V_T = ``final_value`` where the
    rollout was cut off, else 0.  At ``lam`` 0 it is `td`; at ``lam`` 1 the return minus V_t.  With V =
    the group's mean outcome and ``lam`` 1 it is `dr-grpo`; with the mean of the others, `rloo`.
    Observation tokens are no units: a token's successor is the next policy token.

    Args:
        index: of the batch.
        params: see `Params`.

    Returns:
        By turns: credit ``[S]``.  By tokens: credit ``[T]``, and step credit by the same recursion
        over steps, V of a step being V of its first policy token.  Reward units (whitened: none);
        0 in unscored rollouts.  Extras, one a unit, never whitened: ``returns`` A + V, the
        critic's target; ``values`` V in use.

    Raises:
        DataError: if a unit has no value and ``missing`` is error.
        MissingSignal: if ``granularity`` asks for values that the batch lacks.

    Source: arXiv 1506.02438 Eq. 16; verl ``compute_gae_advantage_return``.

    Example:
        >>> from accredit.data import Batch
        >>> steps = [{"value": 0.5}, {"value": 0.4}, {"value": 0.2}]
        >>> batch = Batch.from_records([{"id": "a", "group": "g", "reward": 1, "steps": steps}])
        >>> gae(Index(batch), Params(lam=0.9)).values.round(3).tolist()
        [0.368, 0.52, 0.8]
    """
    setting = Setting(index, params)
    if _by_turns(index.batch, params):
        steps = Scan.of(step_chain(setting), params.gamma, params.gamma * params.lam)
        return _parts(setting, params, steps, None)
    tokens = _token_scan(setting, params)
    return _parts(setting, params, _step_scan(setting, params, tokens), tokens)


def _by_turns(batch: Batch, params: Params) -> bool:
    if params.levels == 2 and params.granularity == "turn":
        raise ParamError("levels=2 tells tokens from turns, so granularity must be auto or token, got 'turn'")
    turns = params.granularity == "turn"
    if params.granularity == "auto":
        turns = batch.has("value_S") and params.levels == 1
    if not turns and not batch.has("token_value_T"):
        raise MissingSignal(
            "method 'gae' by tokens needs token_values, which these rollouts lack",
            code="ACC401",
            hint="Give `token_values` in the steps (a critic makes them), or say granularity='turn'",
        )
    return turns


def _token_scan(setting: Setting, params: Params) -> Scan:
    index = setting.index
    column = index.batch.column("token_value_T")
    carrier = carrier_S(index)
    held = carrier >= 0
    reward = segment_sum(setting.reward_S[held], carrier[held], index.batch.n_tokens)
    there = np.repeat(column.mask(index.batch.n_steps), index.tokens_S)
    value = np.asarray(column.values, np.float64)
    chain = Chain(setting, index.token_start_R1, reward, value, there, "policy token")
    return Scan.of(chain, *_token_rates(index, params))


def _token_rates(index: Index, params: Params) -> _Rates:
    if params.levels == 1 and params.observation == "skip":
        return _Rates(params.gamma, params.gamma * params.lam)
    last = index.batch.token_start_S1[1:][index.tokens_S > 0] - 1
    n = index.batch.n_tokens
    if params.levels == 1:
        gamma, carry = np.full(n, params.gamma), np.full(n, params.gamma * params.lam)
    else:
        gamma, carry = np.full(n, params.gamma_tok), np.full(n, params.gamma_tok * params.lam_tok)
        gamma[last], carry[last] = params.gamma_turn, params.gamma_turn * params.lam_turn
    if params.observation == "reset":
        carry[last[_observed(index)]] = 0.0
    return _Rates(gamma, carry)


def _observed(index: Index) -> BoolArray:
    """Return after which of the steps with policy tokens an observation follows.

    It follows where context tokens were added before the next step with policy tokens; where
    they are not recorded, it follows every step.
    """
    full = np.flatnonzero(index.tokens_S)
    start = index.batch.context_start_S1
    if start is None:
        return np.ones(full.size, bool)
    added: Ints = np.diff(start[full + 1], append=start[-1])
    return added > 0


def _step_scan(setting: Setting, params: Params, tokens: Scan) -> Scan:
    """Return the scan over steps that goes with a scan over tokens.

    A step without policy tokens has no value and hands its reward on, as its tokens' run does;
    it brings no surprise.
    """
    index = setting.index
    reward = segment_sum(tokens.chain.reward, index.step_T, index.batch.n_steps)
    full = index.tokens_S > 0
    value = np.zeros(index.batch.n_steps)
    value[full] = tokens.value[index.batch.token_start_S1[:-1][full]]
    chain = Chain(setting, index.batch.step_start_R1, reward, value, full)
    gamma, lam = (params.gamma, params.lam) if params.levels == 1 else (params.gamma_turn, params.lam_turn)
    carry: float | Floats = gamma * lam
    if params.observation == "reset":
        carry = np.full(index.batch.n_steps, gamma * lam)
        carry[np.flatnonzero(full)[_observed(index)]] = 0.0
    return Scan(chain, gamma, carry, chain.carried_back(gamma))


def _parts(setting: Setting, params: Params, steps: Scan, tokens: Scan | None) -> Parts:
    index = setting.index
    units = tokens or steps
    white = _whitening(setting, units, by_token=tokens is not None) if params.whiten else None

    def of(scan: Scan) -> Floats:
        if white is None:
            return scan.advantage
        credited = scan.chain.credited
        return np.where(credited, white.of(scan.advantage, credited, WHITEN_EPS), 0.0)

    def explain(s: int) -> Explanation:
        if white is None:
            return steps.explain("gae", s)
        credited = bool(steps.chain.credited[s])
        more = whitening_term(white, float(steps.advantage[s]), WHITEN_EPS, counted=credited)
        return steps.explain("gae", s, (more,))

    values, step_values = of(units), of(steps)
    parts = {"surprise": units.surprise, "later": units.later}
    if white is not None:
        parts["whitening"] = values - units.advantage
    known = steps.chain.there if tokens is None else first_token_value(index)[1]
    return Parts(
        values,
        parts=parts,
        steps=None if tokens is None else step_values,
        informed_S=steps.chain.credited & known,
        fallbacks=_fallbacks(setting, units, tokens),
        findings=setting.findings,
        extras={"returns": units.returns, "values": units.value},
        explain=explain,
    )


def _whitening(setting: Setting, units: Scan, *, by_token: bool) -> Whitening:
    """Return the statistics over the policy tokens of the rollouts that get credit."""
    index = setting.index
    spread = units.advantage if by_token else np.repeat(units.advantage, index.tokens_S)
    return Whitening.over(spread, np.repeat(setting.credited_R, index.tokens_R))


def _fallbacks(setting: Setting, units: Scan, tokens: Scan | None) -> dict[str, int]:
    found = units.fallbacks
    if tokens is not None:
        bare = (setting.index.tokens_R == 0) & (setting.index.steps_R > 0) & setting.credited_R
        found["no_policy_tokens"] = int(bare.sum())
    return found
