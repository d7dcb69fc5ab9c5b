"""Credit of the paths of a message tree, back on its nodes: each node once, whatever passes through it.

The reader of traces makes one rollout a path from a root to a leaf (``id``, ``id#1`` …), the adapter of
verifiers one rollout a tree; both note the node of each step. A node that several paths share was credited in
each of them: it gets the mean over those paths, and the number of paths is told.

Source: verifiers 0.4.0 ``Trace.nodes`` (``advantages`` compact: one number per True of the mask); prime-rl
0.8.0 ``assign_advantages(trace, list)`` and its token export (``token_ids``, ``position_ids``, ``loss_mask``,
``advantages``, ``inference_logprobs``, ``rl_weights``).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

import accredit as ac
from accredit.adapters.echo import check_ids, match_rows
from accredit.adapters.nodes import masked_ids
from accredit.errors import DataError

__all__ = ["NodeCredit", "check_traces", "node_credits", "prime_rl_tokens"]


class NodeCredit(NamedTuple):
    """What a node of a tree got.

    Args:
        node: its index in ``Trace.nodes``.
        paths: credited paths that pass through it; the numbers are means over them.
        credit: of the step.
        advantages: one a sampled token.
    """

    node: int
    paths: int
    credit: float
    advantages: list[float]


def check_traces(credit: ac.Credit, ids: Sequence[str], *, whole: bool = True) -> None:
    """Check that traces are those of a result: each there, none twice, none unknown.

    Args:
        credit: the result.
        ids: id of each trace; its paths are ``id``, ``id#1`` …
        whole: every credited trace must be there.

    Raises:
        DataError: ACC872 or ACC873, naming the trace.
    """
    known = set(credit.batch.ids)
    trees = [name for name in credit.batch.ids if not _is_path(name, known)]
    match_rows(((name, 0) for name in trees), [(str(i), 0) for i in ids], whole=whole)


def _is_path(name: str, known: set[str]) -> bool:
    base, mark, number = name.rpartition("#")
    return bool(mark) and number.isdecimal() and base in known


def node_credits(credit: ac.Credit, trace: Any) -> list[NodeCredit] | None:
    """Return the credit of every node of a trace that was sampled, in order of the nodes.

    Args:
        credit: of a batch that the reader or the adapter made of traces.
        trace: a ``verifiers.v1.Trace``, or one as its JSON has it.

    Returns:
        None where the batch does not say which node a step is (records of one's own).

    Raises:
        DataError: if a node was not credited, or holds other tokens than those that were.

    Example:
        >>> nodes = [{"parent": None, "sampled": True, "token_ids": [7], "mask": [True]}]
        >>> step = {"tokens": [7], "metadata": {"node": 0}}
        >>> records = [{"id": i, "group": "g", "reward": r, "steps": [step]} for i, r in (("a", 1), ("b", 0))]
        >>> node_credits(ac.assign(records, "dr-grpo"), {"id": "a", "nodes": nodes})
        [NodeCredit(node=0, paths=1, credit=0.5, advantages=[0.5])]
    """
    name, nodes = str(_get(trace, "id")), list(_get(trace, "nodes"))
    steps = list(_steps(credit.batch, name))
    if not steps or any(node is None for node, _ in steps):
        return None
    held = {i: ids for i, node in enumerate(nodes) if (ids := _held(node, name, i)) or _sampled(node)}
    visits: dict[int, list[int]] = {}
    for i, s in steps:
        if i not in held:
            raise DataError(f"trace {name!r} has no sampled node {i}, which was credited", code="ACC872")
        visits.setdefault(i, []).append(s)
    missed = [i for i, ids in held.items() if ids and i not in visits]
    if missed:
        raise DataError(
            f"trace {name!r} node {missed[0]} was not credited",
            code="ACC873",
            hint="Credit the traces as they are now; paths that were left out are in batch.excluded",
        )
    return [_mean(credit, name, i, visits[i], held[i]) for i in sorted(visits)]


def _steps(batch: ac.Batch, name: str) -> Iterator[tuple[int | None, int]]:
    """Node and number of each step of the paths of a trace; None where the node is not told."""
    told = batch.column("metadata_S") if batch.has("metadata_S") else None
    there = None if told is None else told.mask(batch.n_steps)
    known, path, k = set(batch.ids), name, 0
    while path in known:
        for s in batch.steps_of(batch.position(path)):
            found = told.item(s) if told is not None and there is not None and there[s] else None
            node = found.get("node") if isinstance(found, Mapping) else None
            yield (node if type(node) is int else None), s
        k += 1
        path = f"{name}#{k}"


def _held(node: Any, name: str, i: int) -> list[int]:
    mask = _get(node, "mask") or ()
    if not any(mask):
        return []
    return masked_ids(_get(node, "token_ids"), mask, f"trace {name!r} node {i}")


def _sampled(node: Any) -> bool:
    return _get(node, "sampled") is True


def _get(record: Any, name: str) -> Any:
    return record.get(name) if isinstance(record, Mapping) else getattr(record, name, None)


def _mean(credit: ac.Credit, name: str, i: int, steps: list[int], held: list[int]) -> NodeCredit:
    batch = credit.batch
    found = []
    for s in steps:
        first, last = (int(n) for n in batch.token_start_S1[s : s + 2])
        if last - first != len(held):
            raise DataError(
                f"trace {name!r} node {i} has {len(held)} policy tokens, {last - first} were credited",
                code="ACC871",
                hint="The mask must be 1 exactly at the sampled tokens",
            )
        if batch.has("token_T"):
            check_ids(batch.token_T[first:last], held, f"trace {name!r} node {i}")
        found.append(credit.tokens[first:last])
    mean = np.mean(found, axis=0)
    return NodeCredit(i, len(steps), float(credit.steps[steps].mean()), [float(v) for v in mean])


def prime_rl_tokens(credit: ac.Credit, traces: Sequence[Any], *, whole: bool = True) -> list[dict[str, Any]]:
    """Return one row of tokens a path, with the names of prime-rl's token export.

    A node that several paths share is trained in the first of them: in later paths its ``loss_mask`` is
    false, its advantage and its ``rl_weights`` are 0, so that no token counts twice.

    Args:
        credit: of these traces.
        traces: ``verifiers.v1.Trace`` objects, or traces as their JSON has them.
        whole: every credited trace must be among them.

    Returns:
        Rows of ``token_ids``, ``position_ids``, ``loss_mask``, ``advantages``, ``rl_weights`` and, where
        every trained token has one, ``inference_logprobs``; all of one length.

    Raises:
        DataError: if a trace is missing, comes twice, is unknown, or holds other tokens.
    """
    check_traces(credit, [str(_get(trace, "id")) for trace in traces], whole=whole)
    return [row for trace in traces for row in _rows(credit, trace)]


def _rows(credit: ac.Credit, trace: Any) -> Iterator[dict[str, Any]]:
    credits = node_credits(credit, trace)
    if credits is None:
        raise DataError(
            f"the steps of trace {str(_get(trace, 'id'))!r} do not say which nodes they are",
            code="ACC875",
            hint="Read the traces with accredit.read, or make records with verifiers.trace_record",
        )
    found = {c.node: c.advantages for c in credits}
    nodes = list(_get(trace, "nodes"))
    done: set[int] = set()
    for path in _paths([_get(node, "parent") for node in nodes]):
        streams = [_stream(nodes[i], found.get(i, []), own=i not in done) for i in path]
        done.update(path)
        row: dict[str, Any] = {
            name: [v for stream in streams for v in stream[name]]
            for name in ("token_ids", "loss_mask", "advantages", "rl_weights", "inference_logprobs")
        }
        if any(value is None for value in row["inference_logprobs"]):
            del row["inference_logprobs"]
        yield {**row, "position_ids": list(range(len(row["token_ids"])))}


def _stream(node: Any, advantages: list[float], *, own: bool) -> dict[str, list[Any]]:
    """The tokens of a node: 0 and false where they are not trained in this path."""
    mask = [bool(m) for m in _get(node, "mask") or ()]
    sampled = _get(node, "logprobs") or [None] * sum(mask)
    given, logprobs = iter(advantages), iter(sampled)
    values = [next(given) if m else 0.0 for m in mask]
    trained = [m and own for m in mask]
    return {
        "token_ids": [int(i) for i in _get(node, "token_ids") or ()],
        "loss_mask": trained,
        "advantages": [v if t else 0.0 for v, t in zip(values, trained, strict=True)],
        "rl_weights": [float(t) for t in trained],
        "inference_logprobs": [next(logprobs) if m else 0.0 for m in mask],
    }


def _paths(parents: Sequence[int | None]) -> Iterator[list[int]]:
    """Yield the nodes from a root to each leaf, in order of the leaves, as the reader has them."""
    inner = {p for p in parents if p is not None}
    for leaf in (i for i in range(len(parents)) if i not in inner):
        path, at = [leaf], parents[leaf]
        while at is not None:
            path.append(at)
            at = parents[at]
        yield path[::-1]
