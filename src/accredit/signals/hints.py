"""What a rollout's end, its siblings or a caller can tell a prompt, as text.

Each hint is ``(batch, rollout) -> text``; None where there is nothing to tell.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import numpy as np

from accredit.data import Batch
from accredit.errors import MissingSignal, ParamError

__all__ = [
    "Hint",
    "actions_of",
    "answer",
    "evidence",
    "final_state",
    "from_another",
    "outcome",
    "peer",
    "plain_text",
    "privileged",
    "skill",
    "word_of",
]

Hint: TypeAlias = Callable[[Batch, int], str | None]

_LONGEST = 4000  # characters of one field inside a hint
_MARKER = re.compile(r"<(?=[|/]?\w*[|>_])")


def outcome(success_above: float = 0.0, *, state: bool = False) -> Hint:
    """Return a hint that tells how the episode ended: success or failure, cut off or not, its outcome.

    Args:
        success_above: an outcome above it is a success.
        state: tell the final state, too.

    Example:
        >>> batch = Batch.from_records([{"id": "a", "group": "g", "reward": 1, "steps": [{"action": "go"}]}])
        >>> outcome()(batch, 0)
        'In hindsight: the episode ended in success, with outcome 1.'
    """

    def tell(batch: Batch, r: int) -> str | None:
        value = _outcome(batch, r)
        if value is None:
            return None
        how = "in success" if value > success_above else "in failure"
        cut = " after it was cut off" if word_of(batch, r, "status") == "truncated" else ""
        end = plain_text(word_of(batch, r, "final_state")) if state else None
        more = f" The final state: {end}" if end else ""
        return f"In hindsight: the episode ended {how}{cut}, with outcome {value:.6g}.{more}"

    return tell


def final_state() -> Hint:
    """Return a hint that tells the state in which the episode ended."""

    def tell(batch: Batch, r: int) -> str | None:
        end = plain_text(word_of(batch, r, "final_state"))
        cut = "it was cut off" if word_of(batch, r, "status") == "truncated" else "it ended"
        return f"In hindsight: the state of the episode when {cut}: {end}" if end else None

    return tell


def answer() -> Hint:
    """Return a hint that tells the rollout's own final answer."""

    def tell(batch: Batch, r: int) -> str | None:
        said = plain_text(word_of(batch, r, "answer"))
        return f"In hindsight: the final answer was: {said}" if said else None

    return tell


def privileged(field: str = "gold") -> Hint:
    """Return a hint that tells the right answer or solution.

    Args:
        field: where it is: a field of the rollouts, or a key of their ``metadata``.
    """

    def tell(batch: Batch, r: int) -> str | None:
        gold = plain_text(word_of(batch, r, field))
        return f"For reference, the correct answer is: {gold}" if gold else None

    return tell


def skill(text: str | Mapping[Any, str]) -> Hint:
    """Return a hint that tells how such tasks are done.

    Args:
        text: for all, or by group id (groups that are not named get nothing).

    Raises:
        ParamError: if it is empty.
    """
    if not text:
        raise ParamError("the context 'skill' needs a text", hint="Give text=..., or a text for each group")

    def tell(batch: Batch, r: int) -> str | None:
        group = batch.group_names[int(batch.group_R[r])]
        found = text if isinstance(text, str) else text.get(group, text.get(str(group)))
        return f"Advice for this kind of task: {plain_text(found)}" if found else None

    return tell


def peer(success: float = 1.0, *, hide_answer: bool = False) -> Hint:
    """Return a hint that shows failed rollouts the actions of the first successful one of their group.

    Args:
        success: an outcome of at least that is a success.
        hide_answer: leave out the peer's last action, which on questions is the answer itself.
    """

    def tell(batch: Batch, r: int) -> str | None:
        if not _known_failure(batch, r, success):
            return None
        first = next((p for p in _sources(batch, r) if _succeeds(batch, p, success)), None)
        done = [] if first is None else actions_of(batch, first)
        done = done[:-1] if hide_answer else done
        return _listed("A successful attempt at this task took these actions:", done)

    return tell


def evidence(kind: str, which: int = 0, success: float = 1.0) -> Hint:
    """Return a hint that shows another rollout of the group as correct or incorrect evidence.

    Nothing is told where the group lacks one of the two kinds: a contrast needs both.

    Args:
        kind: ``correct`` or ``wrong``.
        which: 0: the first such rollout in listed order; 1: the second, ...
        success: an outcome of at least that is correct.
    """
    words = {"correct": ("A correct", True), "wrong": ("An incorrect", False)}
    if kind not in words:
        raise ParamError(f"evidence is correct or wrong, not {kind!r}")
    article, wanted = words[kind]

    def tell(batch: Batch, r: int) -> str | None:
        others = [p for p in _sources(batch, r) if p != r and _outcome(batch, p) is not None]
        right = [_succeeds(batch, p, success) for p in others]
        fits = [p for p, good in zip(others, right, strict=True) if good == wanted]
        if len(set(right)) < 2 or which >= len(fits):
            return None
        return _listed(f"{article} attempt at this task took these actions:", actions_of(batch, fits[which]))

    return tell


def from_another(hint: Hint, seed: int = 0) -> Hint:
    """Return a control: each rollout is told what belongs to another one, chosen at random.

    Rollouts that have no hint of their own get none; a batch with fewer than two hints gets none.

    Args:
        hint: what is told.
        seed: of the choice.
    """
    known: list[tuple[Batch, dict[int, str]]] = []

    def tell(batch: Batch, r: int) -> str | None:
        if not known or known[0][0] is not batch:
            known[:] = [(batch, _exchanged(batch, hint, seed))]
        return known[0][1].get(r)

    return tell


def _exchanged(batch: Batch, hint: Hint, seed: int) -> dict[int, str]:
    told = {r: text for r in range(len(batch)) if (text := hint(batch, r)) is not None}
    order = np.random.default_rng(seed).permutation(np.array(list(told), np.int64)).tolist()
    if len(order) < 2:
        return {}
    # A cycle through all: nobody keeps the own one.
    return {r: told[other] for r, other in zip(order, [*order[1:], order[0]], strict=True)}


def actions_of(batch: Batch, r: int) -> list[str]:
    """Return what a rollout did, one text a step that has one.

    Args:
        batch: rollouts.
        r: position of one.
    """
    if not batch.has("action_S"):
        return []
    column = batch.column("action_S")
    there = column.mask(batch.n_steps)
    texts = (plain_text(str(column.item(s))) for s in batch.steps_of(r) if there[s])
    return [text for text in texts if text]


def word_of(batch: Batch, r: int, field: str) -> str | None:
    """Return a field of a rollout, or a key of its metadata, as text; None where it is absent.

    Args:
        batch: rollouts.
        r: position of one.
        field: name in the record.
    """
    value = _item(batch, r, f"{field}_R")
    if value is None:
        notes = _item(batch, r, "metadata_R")
        value = notes.get(field) if isinstance(notes, dict) else None
    return str(value) if isinstance(value, str | int | float | bool) else None


def _item(batch: Batch, r: int, name: str) -> Any:
    if not batch.has(name):
        return None
    column = batch.column(name)
    return column.item(r) if column.given(r) else None


def plain_text(text: str | None, longest: int = _LONGEST) -> str:
    """Return a field fit for a prompt: no special tokens, no control characters, of bounded length.

    Args:
        text: what a rollout says; None is nothing.
        longest: characters.

    Example:
        >>> plain_text("go<|im_end|> north", 8)
        'go< |im_ ...'
    """
    if text is None:
        return ""
    kept = "".join(c for c in text if c.isprintable() or c in "\n\t").strip()
    safe = _MARKER.sub("< ", kept)
    return safe if len(safe) <= longest else safe[:longest] + " ..."


def _listed(head: str, items: list[str]) -> str | None:
    lines = [f"{n}. {' '.join(item.split())}" for n, item in enumerate(items, 1)]
    return "\n".join([head, *lines]) if lines else None


def _sources(batch: Batch, r: int) -> list[int]:
    """Return the rollouts of a group that may be shown: those that were not rejected."""
    group = np.flatnonzero(batch.group_R == batch.group_R[r]).tolist()
    return [p for p in group if word_of(batch, p, "status") != "rejected"]


def _outcome(batch: Batch, r: int) -> float | None:
    if not batch.has("reward_R"):
        raise MissingSignal("these rollouts have no outcome", hint="Give reward in the rollouts")
    column = batch.column("reward_R")
    return float(column.values[r]) if column.given(r) else None


def _succeeds(batch: Batch, r: int, success: float) -> bool:
    value = _outcome(batch, r)
    return value is not None and value >= success


def _known_failure(batch: Batch, r: int, success: float) -> bool:
    value = _outcome(batch, r)
    return value is not None and value < success
