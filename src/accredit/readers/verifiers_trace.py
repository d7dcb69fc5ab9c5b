"""Traces and episodes of verifiers (graph form) and prime-rl: message trees with token ids.

A step is a node that was sampled; a rollout is a path from a root to a leaf. A trace without branches is one
rollout with the trace's id; of a trace with branches the first path has that id, and path k is ``id#k``,
whose ``parent`` is the earlier path that owns most of its nodes and whose ``fork_step`` is the number of
steps that they share. ``metadata.node`` of a step is its node: `accredit.adapters.verifiers` puts credit
back by it. Group: ``group.id`` of the episode, else the key of the task; an episode of several agents gives
one group an agent. State: hash of the path before the node. Reward: sum of score times weight.
Log-probabilities, entropies and the trainer's advantages (signal ``advantage_T``) go with the sampled tokens.
Missing: step rewards.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from accredit.data import Rollout
from accredit.readers.chat import Transcript, chat_message
from accredit.readers.foreign import (
    Origin,
    from_records,
    list_of,
    mapping_of,
    need,
    number_of,
    rest_of,
    text_of,
    top_keys,
)
from accredit.readers.formats import Format, Head, register

__all__ = ["TRACES", "paths_of"]

_USED = ("nodes", "rewards", "id")


def _score(head: Head) -> int:
    keys = top_keys(head)
    if {"nodes", "rewards", "id"} <= keys:
        return 3
    return 3 if {"traces", "task"} <= keys or {"traces", "group"} <= keys else 0


def _rollouts(value: Any, origin: Origin) -> Iterator[Rollout]:
    if isinstance(value, Mapping) and "traces" in value:
        group = text_of(mapping_of(value.get("group")).get("id")) or _task(value)
        policy = mapping_of(mapping_of(mapping_of(value.get("run")).get("work")).get("policy"))
        traces = need(value, "traces", list, origin)
        several = len({_agent(trace) for trace in traces}) > 1
        for trace in traces:
            name = f"{group}/{_agent(trace)}" if group and several else group
            yield from _trace(trace, name, text_of(policy.get("start")) or None, origin)
        return
    yield from _trace(value, "", None, origin)


def _agent(trace: Any) -> str:
    return text_of(mapping_of(mapping_of(trace).get("agent")).get("name"))


def _task(record: Mapping[str, Any]) -> str:
    task = mapping_of(record.get("task"))
    return text_of(task.get("key") or task.get("hash"))


def paths_of(parents: Sequence[int | None]) -> list[list[int]]:
    """Return the paths from a root to each leaf of a forest, in order of the leaves.

    Args:
        parents: index of each node's parent, which comes before it; None for a root.

    Example:
        >>> paths_of([None, 0, 1, 1])
        [[0, 1, 2], [0, 1, 3]]
    """
    inner = {p for p in parents if p is not None}
    paths = []
    for leaf in (i for i in range(len(parents)) if i not in inner):
        path: list[int] = []
        at: int | None = leaf
        while at is not None:
            path.append(at)
            at = parents[at]
        paths.append(path[::-1])
    return paths


def _parents(nodes: list[Any], origin: Origin) -> list[int | None]:
    parents: list[int | None] = []
    for i, node in enumerate(nodes):
        parent = mapping_of(node).get("parent")
        if parent is not None and (type(parent) is not int or not 0 <= parent < i):
            raise origin.wrong(f"parent of node {i}", parent, "null or the index of an earlier node")
        parents.append(parent)
    return parents


def _trace(value: Any, group: str, version: str | None, origin: Origin) -> Iterator[Rollout]:
    nodes = need(value, "nodes", list, origin)
    name = need(value, "id", str, origin)
    earlier: list[list[int]] = []
    for k, path in enumerate(paths_of(_parents(nodes, origin))):
        talk = Transcript(origin, rule="prefix")
        context: list[Any] = []
        for i in path:
            context = _add(talk, nodes, i, context, origin)
        yield talk.rollout(
            id=f"{name}#{k}" if k else name,
            group=group or _task(value) or None,
            agent=_agent(value) or None,
            trainable=False if mapping_of(value.get("agent")).get("trainable") is False else None,
            policy_version=version,
            **_fork(path, earlier, nodes, name),
            **_outcome(value),
            metadata=rest_of(value, *_USED) or None,
        )
        earlier.append(path)


def _sampled(node: Any) -> bool:
    return mapping_of(node).get("sampled") is True


def _fork(path: list[int], earlier: list[list[int]], nodes: list[Any], name: str) -> dict[str, Any]:
    """Return parent and fork step of a path: the earlier path with which it shares most nodes."""
    best, shared = 0, 0
    for k, other in enumerate(earlier):
        n = next((i for i, (a, b) in enumerate(zip(path, other, strict=False)) if a != b), len(other))
        if n > shared:
            best, shared = k, n
    steps = sum(_sampled(nodes[i]) for i in path[:shared])
    if not steps:
        return {}
    return {"parent": f"{name}#{best}" if best else name, "fork_step": steps, "branch_kind": "fork"}


def _add(talk: Transcript, nodes: list[Any], i: int, context: list[Any], origin: Origin) -> list[Any]:
    """Take node i, and return the ids that stand before the next sampled one."""
    node, place = nodes[i], {"node": i}
    message = chat_message(mapping_of(node).get("message"), origin)
    ids = list_of(node.get("token_ids"))
    if not _sampled(node):
        talk.add(message._replace(sampled=False))
        return context + ids
    mask = list_of(node.get("mask"))
    if len(ids) != len(mask):
        raise origin.wrong("mask of a node", f"{len(mask)} values", f"{len(ids)} values, one a token")
    sampled = [n for n, m in enumerate(mask) if m]
    if not sampled:
        talk.act(message, metadata=place)
        return context + ids
    before = context + ids[: sampled[0]]
    tokens = [ids[n] for n in sampled]
    talk.act(message, tokens=tokens, context_tokens=before or None, metadata=place, **_streams(node))
    return ids[sampled[-1] + 1 :]


def _streams(node: Mapping[str, Any]) -> dict[str, Any]:
    """Return what has one number a sampled token."""
    found = {n: v for n in ("logprobs", "entropies") if (v := list_of(node.get(n)))}
    extra = {n[:-1]: v for n in ("advantages", "reference_logprobs") if (v := list_of(node.get(n)))}
    return found | ({"extra": extra} if extra else {})


def _outcome(value: Mapping[str, Any]) -> dict[str, Any]:
    """Return reward, components and status of a trace; a trace with errors is failed and unscored."""
    given = mapping_of(value.get("rewards"))
    scores: dict[str, float | None] = {}
    total: float | None = None
    for name, entry in given.items():
        score = number_of(mapping_of(entry).get("score"))
        weight = mapping_of(entry).get("weight", 1.0)
        scores[name] = score
        if score is not None and (w := number_of(weight)) is not None:
            total = (total or 0.0) + w * score
    failed = bool(value.get("errors")) or value.get("ok") is False
    cut = value.get("is_timeout") is True or text_of(value.get("stop_condition")).startswith(
        ("max_", "timeout")
    )
    done = "finished" if value.get("is_completed") is True else None
    return {
        "reward": None if failed else total,
        "rewards": scores or None,
        "status": "failed" if failed else "truncated" if cut else done,
    }


TRACES = register(Format("verifiers-trace", "verifiers and prime-rl traces", _score, from_records(_rollouts)))
