"""Team: agents choose one after the other and share one reward; relay: they pass a message on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from accredit.errors import ParamError
from accredit.typing import Floats
from accredit.worlds.tabular import Move, Rules, Task, tabulate

__all__ = ["make"]

MOST_BY_PREFIX = 6


def make(
    seed: int,
    *,
    agents: int = 4,
    choices: int = 4,
    variant: str = "bandits",
    interaction: float = 0.5,
    rho: float = 0.5,
    chain: bool | None = None,
    channel_noise: float = 0.1,
) -> Task:
    """Return a task with one step an agent.

    ``bandits``: the outcome is ``sum_k phi_k(a_k) + interaction sum_{k<l} g_kl(a_k, a_l)``, phi and g
    standard normal; agent k's logits are ``(1 - rho) own + rho dependent``, the dependent part given
    by what the agents before did.  With ``chain`` both interaction and dependence reach one
    agent back, so that the tables stay small for any number of agents; without, the state is the
    whole prefix.

    ``relay``: the first agent sees a symbol, each sends one on, and a noisy channel changes it with
    some chance; the outcome is 1 when the right one arrives.  Agents see what they received only.

    Args:
        seed: of phi, g, logits.
        agents: 2 to 16.
        choices: actions (symbols) an agent.
        variant: bandits or relay.
        interaction: weight lambda of pairs.
        rho: strength of dependence, 0 to 1.
        chain: default: from 7 agents on.
        channel_noise: relay: chance that a symbol arrives as another.
    """
    if not 2 <= agents <= 64 or choices < 2 or not 0 <= rho <= 1 or not 0 <= channel_noise <= 1:
        raise ParamError(f"team: agents={agents}, choices={choices}, rho={rho} out of range")
    size = {"agents": agents, "choices": choices, "variant": variant}
    if variant == "relay":
        return _relay(seed, agents, choices, channel_noise, {**size, "channel_noise": channel_noise})
    if variant != "bandits":
        raise ParamError(f"team: no variant {variant!r}", hint="bandits or relay")
    short = agents > MOST_BY_PREFIX if chain is None else chain
    if not short and agents > MOST_BY_PREFIX:
        raise ParamError(f"team: {agents} agents have too many prefixes", hint="Give chain=True")
    size |= {"interaction": interaction, "rho": rho, "chain": short}
    return _bandits(seed, agents, choices, interaction, rho, short, size)


def _bandits(
    seed: int, K: int, A: int, weight: float, rho: float, short: bool, size: Mapping[str, Any]
) -> Task:
    rng = np.random.default_rng(np.random.SeedSequence([seed, 5]))
    phi, pair = rng.standard_normal((K, A)), rng.standard_normal((K, K, A, A))
    own, dependent = rng.standard_normal((K, A)), rng.standard_normal((K, K, A, A))

    def earned(prefix: tuple[int, ...], offset: int, a: int) -> float:
        k = offset + len(prefix)
        return float(phi[k, a] + weight * sum(pair[offset + j, k, b, a] for j, b in enumerate(prefix)))

    def moves(state: tuple[int, tuple[int, ...]]) -> Mapping[int, Sequence[Move]]:
        k, prefix = state
        if k == K:
            return {}
        after = [(k + 1, ((a,) if short else (*prefix, a)) if k + 1 < K else ()) for a in range(A)]
        return {a: [(1.0, after[a], earned(prefix, k - len(prefix), a))] for a in range(A)}

    def logits(states: list[Any]) -> Mapping[str, Any]:
        found = np.zeros((len(states), A))
        for i, (k, prefix) in enumerate(states):
            if k < K:
                pull = [dependent[k - len(prefix) + j, k, b] for j, b in enumerate(prefix)]
                pulled = np.sum(pull, 0) / np.sqrt(len(pull)) if pull else own[k]
                found[i] = (1 - rho) * own[k] + rho * pulled
        return {"logits_NA": found}

    def key(state: tuple[int, tuple[int, ...]]) -> str:
        heard = ", ".join(f"choice {a}" for a in state[1])
        return f"Agent {state[0]}. Before you: {heard or 'nobody'}."

    return tabulate(
        Rules(moves, key, lambda s: 0.0, None, lambda s: f"agent {s[0]}"),
        {(0, ()): 1.0},
        tuple(f"choice {a}" for a in range(A)),
        family="team",
        seed=seed,
        horizon=K,
        deferred=True,
        of_states=logits,
        size=size,
        facts={"phi": phi, "pair": pair, "interaction": weight},
    )


def _relay(seed: int, K: int, A: int, noise: float, size: Mapping[str, Any]) -> Task:
    rng = np.random.default_rng(np.random.SeedSequence([seed, 6]))
    drawn = rng.standard_normal((K, A, A))

    def moves(state: tuple[int, int, int]) -> Mapping[int, Sequence[Move]]:
        k, source, _ = state
        if k == K:
            return {}
        spread = noise / (A - 1)
        return {
            a: [(1 - noise if b == a else spread, (k + 1, source, b), 0.0) for b in range(A)]
            for a in range(A)
        }

    def tables(states: list[Any]) -> Mapping[str, Floats]:
        copying = np.array([[float(a == received) for a in range(A)] for _, _, received in states])
        return {
            "score_NA": copying,
            "logits_NA": np.array([drawn[min(k, K - 1), received] for k, _, received in states]),
        }

    return tabulate(
        Rules(
            moves,
            lambda s: f"Agent {s[0]}. You received symbol {s[2]}.",
            lambda s: float(s[0] == K and s[1] == s[2]),
            lambda s: bool(s[0] == K and s[1] == s[2]),
            lambda s: f"agent {s[0]}",
        ),
        {(0, source, source): 1 / A for source in range(A)},
        tuple(f"send symbol {a}" for a in range(A)),
        family="team",
        seed=seed,
        horizon=K,
        of_states=tables,
        size=size,
    )
