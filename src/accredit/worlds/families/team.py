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
    rounds: int = 6,
    subtasks: int = 3,
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

    ``planner``: each round a planner names one of the subtasks and a worker tries it in one of several
    ways, with a chance of its own; the outcome is 1 when all subtasks are done.

    Args:
        seed: of phi, g, logits, chances.
        agents: 2 to 16 (planner: always two).
        choices: actions (symbols, ways) an agent.
        variant: bandits, relay or planner.
        interaction: weight lambda of pairs.
        rho: strength of dependence, 0 to 1.
        rounds: planner: number of rounds.
        subtasks: planner: number of subtasks.
        chain: default: from 7 agents on.
        channel_noise: relay: chance that a symbol arrives as another.
    """
    if not 2 <= agents <= 64 or choices < 2 or not 0 <= rho <= 1 or not 0 <= channel_noise <= 1:
        raise ParamError(f"team: agents={agents}, choices={choices}, rho={rho} out of range")
    size = {"agents": agents, "choices": choices, "variant": variant}
    if variant == "relay":
        return _relay(seed, agents, choices, channel_noise, {**size, "channel_noise": channel_noise})
    if variant == "planner":
        return _planner(seed, rounds, subtasks, choices)
    if variant != "bandits":
        raise ParamError(f"team: no variant {variant!r}", hint="bandits, relay or planner")
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


def _planner(seed: int, rounds: int, subtasks: int, ways: int) -> Task:
    if rounds < 1 or not 1 <= subtasks <= 8:
        raise ParamError(f"team: rounds={rounds}, subtasks={subtasks} out of range")
    rng = np.random.default_rng(np.random.SeedSequence([seed, 12]))
    chance = rng.uniform(0.1, 0.95, (subtasks, ways)).tolist()
    everything = (1 << subtasks) - 1

    def moves(state: tuple[int, int]) -> Mapping[int, Sequence[Move]]:
        done, asked = state
        if asked < 0:
            return {} if done == everything else {u: [(1.0, (done, u), 0.0)] for u in range(subtasks)}
        after = (done | 1 << asked, -1)
        return {
            subtasks + w: [(p, after, 0.0), (1 - p, (done, -1), 0.0)] for w, p in enumerate(chance[asked])
        }

    def key(state: tuple[int, int]) -> str:
        done, asked = state
        held = [str(u) for u in range(subtasks) if done >> u & 1]
        task = f"Worker: do subtask {asked}." if asked >= 0 else "Planner: name a subtask."
        return f"{task} Done: {', '.join(held) or 'nothing'}."

    return tabulate(
        Rules(
            moves,
            key,
            lambda s: float(s[0] == everything),
            lambda s: bool(s[0] == everything),
            lambda s: "planner" if s[1] < 0 else "worker",
        ),
        {(0, -1): 1.0},
        (*(f"subtask {u}" for u in range(subtasks)), *(f"way {w}" for w in range(ways))),
        family="team",
        seed=seed,
        horizon=2 * rounds,
        size={"variant": "planner", "rounds": rounds, "subtasks": subtasks, "choices": ways},
        facts={"chance": chance},
    )
