"""Math-APS trees (OpenR, OmegaPRM): ``question`` and ``reasoning_steps``, a tree with Monte-Carlo values.

A rollout is a path from the root to a leaf, a step is a node below the root. Shared beginnings are repeated,
with ``parent`` and ``fork_step``. ``value_S`` is the value of the node before the step and ``final_value_R``
that of the leaf: the share of sampled completions that were right. A leaf of value 0 or 1 is a whole
solution, and that is its outcome; a path to any other leaf is unscored. Group: equal questions, since
question ids repeat within a file. State: hash of the path.
Stored children are a selection of those that were sampled, so a node's value is not the mean of its
children's. Missing: tokens, step rewards.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any, NamedTuple

from accredit.data import Rollout
from accredit.readers.chat import Message, Transcript
from accredit.readers.foreign import (
    Origin,
    from_records,
    list_of,
    mapping_of,
    need,
    number_of,
    rest_of,
    task_group,
    text_of,
    top_keys,
)
from accredit.readers.formats import Format, Head, register
from accredit.readers.verifiers_trace import paths_of

__all__ = ["MATH_APS"]


class _Tree(NamedTuple):
    texts: list[str]
    values: list[float | None]
    parents: list[int | None]


def _score(head: Head) -> int:
    return 3 if {"question", "reasoning_steps"} <= top_keys(head) else 0


def _flat(root: Any) -> _Tree:
    """Return the nodes of a tree, each after its parent, in the order of the file."""
    tree = _Tree([], [], [])
    open_: list[tuple[Any, int | None]] = [(root, None)]
    while open_:
        node, parent = open_.pop()
        fields = mapping_of(node)
        tree.texts.append(text_of(fields.get("text")))
        tree.values.append(number_of(fields.get("mc_value")))
        tree.parents.append(parent)
        here = len(tree.texts) - 1
        open_ += [(child, here) for child in reversed(list_of(fields.get("children")))]
    return tree


def _rollouts(value: Any, origin: Origin) -> Iterator[Rollout]:
    tree = _flat(need(value, "reasoning_steps", dict, origin))
    question = text_of(value.get("question"))
    group = task_group(origin, question)
    before: list[int] = []
    for k, path in enumerate(paths_of(tree.parents)):
        talk = Transcript(origin, rule="prefix")
        talk.observe(question or tree.texts[0])
        for above, node in pairwise(path):
            talk.act(Message("assistant", tree.texts[node]), value=tree.values[above])
        value_of_leaf = tree.values[path[-1]]
        shared = sum(a == b for a, b in zip(path[1:], before[1:], strict=False))
        fork = (
            {"parent": f"{origin.name}#{k - 1}", "fork_step": shared, "branch_kind": "fork"} if shared else {}
        )
        yield talk.rollout(
            id=f"{origin.name}#{k}",
            group=group,
            reward=value_of_leaf if value_of_leaf in (0, 1) else None,
            final_value=value_of_leaf,
            metadata=rest_of(value, "reasoning_steps", "question"),
            **fork,
        )
        before = path


MATH_APS = register(Format("math-aps", "Math-APS trees with values", _score, from_records(_rollouts)))
