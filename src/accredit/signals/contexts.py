"""Named contexts: the prompt changed as text, the response ids as they were sampled.

A context edits one message of the prompt that stands before a passage's first policy token; what it
tells stands before every later step of that passage as well.  Only the edited message is tokenised;
a rollout that a context leaves alone keeps its stored ids, so its numbers do not move at all.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np

from accredit.data import Batch
from accredit.errors import DataError, ParamError, suggest
from accredit.signals import hints
from accredit.signals.chat import Chat, Prompt, Tokenizer, chat_of
from accredit.signals.hints import Hint, actions_of, word_of
from accredit.signals.passages import passages_of
from accredit.signals.perturbing import SEMIFACTUAL, Kept, perturbed
from accredit.signals.request import CONTEXT, Context, Passage, Segment
from accredit.typing import Array, Floats, Ints

__all__ = ["NAMES", "Survey", "context_named", "field_of", "shuffled", "survey"]

# Where a rollout with nothing to tell is scored as it was: its difference to the plain context is 0.
# Elsewhere it has no score in this context, and the method says what that means.
_SAME = frozenset({"peer", "skill", *SEMIFACTUAL, "counterfactual"})
_OVERLONG = ("refuse", "leave_out")


@dataclass(frozen=True, slots=True)
class _Kind:
    """A named context.

    Args:
        field: of the record that its log-probabilities become.
        place: which message it edits.
        make: options to hint; None for rewordings.
        front: the hint stands before the message's text rather than after it.
    """

    field: str
    place: str
    make: Callable[..., Hint] | None
    front: bool = False


def _evidence(kind: str) -> Callable[..., Hint]:
    def make(**options: Any) -> Hint:
        return hints.evidence(kind, **options)

    return make


_KINDS: Mapping[str, _Kind] = {
    "outcome": _Kind("logprobs_hindsight", "last_user", hints.outcome),
    "final_state": _Kind("logprobs_hindsight", "last_user", hints.final_state),
    "answer": _Kind("logprobs_hindsight", "last_user", hints.answer),
    "gold": _Kind("logprobs_teacher", "last_user", hints.privileged),
    "skill": _Kind("logprobs_teacher", "first_user", hints.skill, front=True),
    "peer": _Kind("logprobs_teacher", "first_user", hints.peer, front=True),
    "evidence_correct": _Kind("logprobs_evidence_correct", "last_user", _evidence("correct")),
    "evidence_wrong": _Kind("logprobs_evidence_wrong", "last_user", _evidence("wrong")),
    "evidence_none": _Kind("logprobs_evidence_none", "last_user", None),
    "removed": _Kind("logprobs_removed", "first_user", None),
    **{name: _Kind(f"perturbed_logprobs.{name}", "first_user", None) for name in SEMIFACTUAL},
    "counterfactual": _Kind("control_logprobs.counterfactual", "first_user", None),
}
NAMES = tuple(_KINDS)


def field_of(name: str) -> str:
    """Return the record field that the log-probabilities of a context become.

    Args:
        name: of a context; ``shuffled:<name>`` is its control.

    Raises:
        ParamError: if there is no such context.

    Example:
        >>> field_of("outcome"), field_of("peer"), field_of("typos")
        ('logprobs_hindsight', 'logprobs_teacher', 'perturbed_logprobs.typos')
    """
    plain = name.removeprefix("shuffled:")
    kind = _kind(plain)
    return kind.field if plain == name else f"control_logprobs.{plain}"


def context_named(
    name: str,
    tokenizer: Tokenizer,
    *,
    place: str | None = None,
    chat: str = "auto",
    seed: int = 0,
    limit: int | None = None,
    overlong: str = "refuse",
    **options: Any,
) -> Context:
    """Return a context by name.

    Args:
        name: one of `NAMES`, or ``shuffled:<name>``: told what belongs to another rollout.
        tokenizer: of the model.
        place: ``first_user`` or ``last_user`` message before the first policy token, or ``end``: a
            message of its own before the generation prompt; None: as the context's method has it.
        chat: family of the chat template, ``plain``, or ``auto``.
        seed: of rewordings and of ``shuffled``.
        limit: tokens of the longest passage that the model takes; None: unknown.
        overlong: what is done with passages that grow longer than ``limit``: ``refuse``, or
            ``leave_out`` (counted as rollouts without context).  They are never cut: a cut removes
            what was told first, and makes the two contexts equal without a word.
        **options: of the context: ``success_above``, ``state`` (outcome); ``field`` (gold); ``text``
            (skill); ``success``, ``hide_answer`` (peer); ``success``, ``which`` (evidence).

    Raises:
        ParamError: for an unknown name or option.
    """
    shuffle = name.startswith("shuffled:")
    plain = name.removeprefix("shuffled:")
    kind = _kind(plain)
    if overlong not in _OVERLONG:
        raise ParamError(f"overlong is refuse or leave_out, not {overlong!r}")
    if shuffle and kind.make is None:
        raise ParamError(f"{plain!r} tells nothing that could be exchanged", hint=suggest(name, _told()))
    hint = _hint(plain, kind, options)
    edit = _Edit(
        name=plain,
        tokenizer=_Cached(tokenizer),
        chat=chat,
        place=place or kind.place,
        seed=seed,
        limit=limit,
        leave_out=overlong == "leave_out",
        hint=hints.from_another(hint, seed) if shuffle and hint else hint,
        front=kind.front,
    )
    describe = {"place": edit.place, "chat": chat, "seed": seed, "template": _fingerprint(edit, options)}
    return Context(name, edit, describe)


def _told() -> list[str]:
    return [f"shuffled:{name}" for name, kind in _KINDS.items() if kind.make]


def _kind(name: str) -> _Kind:
    if name not in _KINDS:
        raise ParamError(f"no context {name!r}", hint=suggest(name, ["sampled", *NAMES]))
    return _KINDS[name]


def _hint(name: str, kind: _Kind, options: Mapping[str, Any]) -> Hint | None:
    if kind.make is None:
        if options:
            raise ParamError(f"the context {name!r} has no option {next(iter(options))!r}")
        return None
    try:
        return kind.make(**options)
    except TypeError:
        given = ", ".join(options) or "none"
        raise ParamError(
            f"the options of the context {name!r} do not fit: {given}", hint="See docs/probes.md"
        ) from None


def _fingerprint(edit: _Edit, options: Mapping[str, Any]) -> str:
    """Return a hash of what the context does, its words included (by what it tells of a sample)."""
    told = edit.hint(_sample(), 0) if edit.hint and edit.name != "skill" else None
    shown = sorted((k, repr(v)) for k, v in options.items())
    text = repr((edit.name, edit.place, edit.front, shown, told))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


@lru_cache(maxsize=1)
def _sample() -> Batch:
    step = [{"action": "go"}]
    told = {"final_state": "s", "answer": "a", "gold": "b"}
    rewards = enumerate((0, 0, 1))
    return Batch.from_records(
        [{"id": str(i), "group": "g", "reward": reward, "steps": step, **told} for i, reward in rewards]
    )


class _Cached:
    """A tokenizer that remembers: prompts recur, and a server is slow to ask."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.encode = lru_cache(maxsize=4096)(tokenizer.encode)
        self._decode = lru_cache(maxsize=4096)(lambda data: tokenizer.decode(np.frombuffer(data, np.int64)))

    def decode(self, ids: Ints) -> str:
        return self._decode(np.ascontiguousarray(ids, np.int64).tobytes())


@dataclass
class _Edit:
    """What a context does to a passage."""

    name: str
    tokenizer: Tokenizer
    chat: str
    place: str
    seed: int
    limit: int | None
    leave_out: bool
    hint: Hint | None
    front: bool
    _told: dict[int, str | None] = field(default_factory=dict)
    _kept: dict[int, Kept] = field(default_factory=dict)
    _batch: Batch | None = None

    def __call__(self, batch: Batch, passage: Passage) -> Passage | None:
        if batch is not self._batch:
            self._batch, self._told, self._kept = batch, {}, {}
        first = passage.segments[0] if passage.segments else None
        if first is None or first.step != CONTEXT or self.name == "evidence_none":
            return passage  # nothing before its first token: counted where it is placed
        ids = self._edited(batch, passage.rollout, first.ids)
        if ids is None:
            return passage if self.name in _SAME else None
        found = Passage(passage.rollout, (Segment(ids), *passage.segments[1:]))
        return found if self._fits(batch, found) else None

    def _edited(self, batch: Batch, r: int, ids: Ints) -> Ints | None:
        prompt = Prompt(ids, self.tokenizer, self._family(ids))
        if self.hint is None:
            return prompt.rewritten(self.place, lambda text: self._reworded(batch, r, text))
        if r not in self._told:
            self._told[r] = self.hint(batch, r)
        told = self._told[r]
        if told is None:
            return None
        found = prompt.rewritten(self.place, lambda text: _joined(text, told, front=self.front))
        if found is None:
            raise DataError(
                f"a prompt of rollout {batch.ids[r]!r} has no {self.place} message to tell it in",
                code="ACC761",
                hint="Give place='end' for a message of its own, or chat='plain'",
            )
        return found

    def _family(self, ids: Ints) -> Chat | None:
        return chat_of(ids, self.tokenizer, self.chat)

    def _reworded(self, batch: Batch, r: int, text: str) -> str | None:
        if self.name == "removed":
            return ""
        group = int(batch.group_R[r])
        if group not in self._kept:
            self._kept[group] = _kept(batch, group)
        return perturbed(self.name, text, self.seed, self._kept[group])

    def _fits(self, batch: Batch, passage: Passage) -> bool:
        size = sum(s.ids.size for s in passage.segments)
        if self.limit is None or size <= self.limit:
            return True
        if not self.leave_out:
            raise DataError(
                f"with the context {self.name!r} a passage of rollout {batch.ids[passage.rollout]!r} has "
                f"{size} tokens, and the model takes {self.limit}",
                code="ACC763",
                hint="Give overlong='leave_out' to score the others; nothing is ever cut",
            )
        return False


def _joined(text: str, told: str, *, front: bool) -> str:
    pieces = (told, text) if front else (text, told)
    return "\n\n".join(piece for piece in pieces if piece)


def _kept(batch: Batch, group: int) -> Kept:
    """Return the words that a group's actions and answers name."""
    said: list[str] = []
    objects: dict[str, None] = {}
    for r in np.flatnonzero(batch.group_R == group).tolist():
        actions = actions_of(batch, r)
        said += actions + [word_of(batch, r, name) or "" for name in ("answer", "gold")]
        objects |= dict.fromkeys(action.split()[-1] for action in actions)
    words = frozenset("".join(c if c.isalpha() else " " for c in " ".join(said)).lower().split())
    return Kept(words, tuple(o for o in objects if o.isalpha()))


@dataclass(frozen=True, slots=True)
class Survey:
    """What a context does to a batch, before anything is scored.

    Args:
        edited: passages with another prompt.
        unchanged: passages whose prompt is the sampled one.
        without: passages that have no such context.
        added: tokens that the edited prompts are longer by, in all.
        longest: tokens of the longest passage.
    """

    edited: int
    unchanged: int
    without: int
    added: int
    longest: int


def survey(batch: Batch, context: Context) -> Survey:
    """Return how many passages a context edits, and how long they become.

    Args:
        batch: rollouts with token and context ids.
        context: any.

    Raises:
        DataError: if the rollouts have no ids, or a prompt has no place for the context.
    """
    passages, _ = passages_of(batch)
    edited = unchanged = added = longest = 0
    for passage in passages:
        found = context.of(batch, passage)
        if found is None:
            continue
        before, after = (sum(s.ids.size for s in p.segments) for p in (passage, found))
        same = before == after and _flat(passage) == _flat(found)
        unchanged += same
        edited += not same
        added += after - before
        longest = max(longest, after)
    return Survey(edited, unchanged, len(passages) - edited - unchanged, added, longest)


def _flat(passage: Passage) -> bytes:
    return b"".join(np.ascontiguousarray(s.ids, np.int64).tobytes() for s in passage.segments)


def shuffled(batch: Batch, perturbed_T: Array, base_T: Array, seed: int = 0) -> Floats:
    """Return perturbed log-probs whose drifts changed places among the tokens of each rollout.

    A control: ``log p_k - log p_0`` is permuted within the rollout, so its distribution stays and its
    place says nothing.

    Args:
        batch: rollouts.
        perturbed_T: log-probs under a reworded prompt ``[T]``, nats.
        base_T: log-probs under the sampled prompt ``[T]``, nats.
        seed: of the permutation.

    Returns:
        Log-probs ``[T]``, nats.

    Source: arXiv 2609.40360, the ablation with shuffled corrections.
    """
    rng = np.random.default_rng(seed)
    drift = np.asarray(perturbed_T, np.float64) - base_T
    ends = batch.token_start_S1[batch.step_start_R1]
    for a, b in zip(ends[:-1].tolist(), ends[1:].tolist(), strict=True):
        drift[a:b] = rng.permutation(drift[a:b])
    return np.asarray(base_T, np.float64) + drift
