"""verifiers 0.4 traces and prime-rl's `assign_advantages`: credit a message node, once.

A trace is a tree of messages whose shared prefixes are stored once; its reward is that of the whole
tree.  So a trace is one rollout here, its steps are the nodes with sampled tokens in the order of
``Trace.nodes``, and a node's credit serves every branch through it.  Credit of traces that
`accredit.read` laid out path by path goes back as well: a node gets the mean over its paths.

Source: verifiers 0.4.0 ``verifiers.v1.Trace``, ``verifiers.v1.graph.MessageNode`` (token_ids, mask,
logprobs, entropies, advantages); prime-rl 0.8.0 ``Algorithm.assign_advantages(trace, list)``.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any, TypeAlias

import accredit as ac
from accredit.adapters.nodes import credit_of, flat, masked_ids, step_advantages
from accredit.adapters.trees import check_traces, node_credits
from accredit.errors import DataError

__all__ = [
    "assign_traces",
    "node_advantages",
    "trace_advantages",
    "trace_record",
    "write_traces",
]

StateOf: TypeAlias = Callable[[Any, int], Any]
GroupOf: TypeAlias = Callable[[Any], Hashable]


def trace_record(trace: Any, group: GroupOf | None = None, state: StateOf | None = None) -> dict[str, Any]:
    """Return a trace as a native record.

    Args:
        trace: a ``verifiers.v1.Trace``.
        group: gives a trace's group; None = its task's key, else the hash of the task's data.
        state: gives the state key before node i, ``state(trace, i)``; None = no states, so methods
            of shared states name what they miss.

    Raises:
        DataError: if the trace's task has neither key nor hash, or a mask is not as long as the ids.
    """
    scored = [r for r in trace.rewards.values() if r is not None]
    record = {
        "id": trace.id,
        "group": _group_of(trace) if group is None else group(trace),
        "reward": float(sum(r.value for r in scored)) if scored else None,
        "rewards": {name: None if r is None else float(r.score) for name, r in trace.rewards.items()} or None,
        "agent": trace.agent.name,
        "trainable": None if trace.agent.trainable else False,
        "status": _status(trace),
        "steps": [_step(trace, i, state) for i in _sampled(trace)],
    }
    return {name: value for name, value in record.items() if value is not None}


def _group_of(trace: Any) -> Any:
    found = trace.task.key or trace.task.hash
    if found is None:
        raise DataError(
            f"the task of trace {trace.id!r} has neither key nor hash",
            code="ACC103",
            hint="Give `group`, for example the id of the episode's group",
        )
    return found


def _status(trace: Any) -> str | None:
    if trace.is_timeout:
        return "truncated"
    return "failed" if trace.errors and not trace.ok else None


def _sampled(trace: Any) -> list[int]:
    return [i for i, node in enumerate(trace.nodes) if any(node.mask)]


def _step(trace: Any, i: int, state: StateOf | None) -> dict[str, Any]:
    node = trace.nodes[i]
    step: dict[str, Any] = {
        "tokens": masked_ids(node.token_ids, node.mask, f"trace {trace.id!r} node {i}"),
        "metadata": {"node": i, "parent": node.parent},
    }
    for field, values in (("logprobs", node.logprobs), ("entropies", node.entropies)):
        if values:
            step[field] = list(values)
    text = getattr(node.message, "content", None)
    if isinstance(text, str):
        step["action"] = text
    if state is not None:
        step["state"] = state(trace, i)
    return step


def node_advantages(credit: ac.Credit, trace: Any) -> dict[int, list[float]]:
    """Return for each sampled node of a trace one advantage a sampled token.

    Args:
        credit: of a batch that `accredit.read` or `trace_record` made of the trace.
        trace: the ``verifiers.v1.Trace``.

    Raises:
        DataError: if nodes, masks or token ids are not those that were credited.
    """
    found = node_credits(credit, trace)
    if found is not None:
        return {c.node: c.advantages for c in found if c.advantages}
    nodes = _sampled(trace)
    held = [
        masked_ids(trace.nodes[i].token_ids, trace.nodes[i].mask, f"trace {trace.id!r} node {i}")
        for i in nodes
    ]
    return dict(zip(nodes, step_advantages(credit, trace.id, held), strict=True))


def trace_advantages(credit: ac.Credit, trace: Any) -> list[float]:
    """Return the list that prime-rl's ``assign_advantages(trace, list)`` takes.

    One number a sampled token, in order of the trace's nodes.
    """
    return flat(list(node_advantages(credit, trace).values()))


def write_traces(credit: ac.Credit, traces: Sequence[Any], *, whole: bool = True) -> None:
    """Set ``node.advantages`` of every sampled node; nothing is written unless all traces fit.

    Nodes of agents that are not trained get zeros: they were scored, and carry no gradient.

    Args:
        credit: of these traces.
        traces: ``verifiers.v1.Trace`` objects.
        whole: every credited trace must be among them.

    Raises:
        DataError: if a trace is missing, comes twice, is unknown, or holds other tokens.
    """
    check_traces(credit, [trace.id for trace in traces], whole=whole)
    found = [(trace, node_advantages(credit, trace)) for trace in traces]
    for trace, by_node in found:
        for i, values in by_node.items():
            trace.nodes[i].advantages = values


def assign_traces(
    traces: Sequence[Any],
    method: str,
    *,
    group: GroupOf | None = None,
    state: StateOf | None = None,
    assign_advantages: Callable[[Any, list[float]], Any] | None = None,
    **options: Any,
) -> ac.Credit:
    """Return the credit of traces and hand it to them.

    Inside a prime-rl ``Algorithm``: ``assign_traces(list(self.iter_trainable_traces(episodes)),
    "gigpo", state=…, assign_advantages=self.assign_advantages)``.

    Args:
        traces: of whole groups.
        method: id or alias.
        group: see `trace_record`.
        state: see `trace_record`.
        assign_advantages: takes a trace and its numbers; None = ``node.advantages`` is set.
        **options: of `accredit.assign`.

    Raises:
        DataError: if a trace cannot be used.
    """
    credit = credit_of([trace_record(trace, group, state) for trace in traces], method, **options)
    if assign_advantages is None:
        write_traces(credit, traces)
        return credit
    lists = [(trace, trace_advantages(credit, trace)) for trace in traces]
    for trace, values in lists:
        assign_advantages(trace, values)
    return credit
