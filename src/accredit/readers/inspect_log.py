"""Inspect logs: ``.eval`` archives (deflate or zstandard) and ``.json``.

A rollout is a sample of an epoch; group: task, model and sample id. A step is a model event of the main
conversation, in order: not those of scorers, of models in a role (graders), or without an answer. Where the
events do not fit the messages and nothing was compacted, the assistant messages of the conversation are the
steps (those of the input are context). Reward: the score, C/I/P/N as 1/0/0.5/0; several scores without one
called reward leave the rollout unscored, with its components. A sample that broke off by an error is failed
and unscored; one that met a limit is truncated. State: the store, where store events change it, with the
last observation; else the last observation. Agent: the innermost agent span. Intermediate scores are the
signal ``intermediate_score``. Members of an archive are read one at a time.
Missing: token ids and log-probabilities (Inspect keeps token strings), rewards of steps.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from accredit.data import Rollout
from accredit.errors import DataError
from accredit.readers.archive import Archive
from accredit.readers.chat import Message, Transcript, chat_message, usage_of
from accredit.readers.foreign import (
    Origin,
    Outcome,
    canonical,
    converted,
    from_document,
    letters,
    list_of,
    mapping_of,
    outcome_of,
    rest_of,
    reward_of,
    text_of,
    top_keys,
)
from accredit.readers.formats import Format, Head, Item, Reading, register
from accredit.readers.patches import Store

__all__ = ["INSPECT_EVAL", "INSPECT_JSON"]

_MEMBER = re.compile(r"^samples/.+\.json$")
_DIGITS = re.compile(r"(\d+)")
_ATTACHMENT = re.compile(r"attachment://([0-9a-f]{32})")
_USED = ("messages", "events", "events_data", "attachments", "scores", "output", "store", "timelines")


def _eval_score(head: Head) -> int:
    known = (b"_journal/", b"header.json", b"samples/", b"summaries.json")
    return 3 if head.magic.startswith(b"PK\x03\x04") and any(name in head.text for name in known) else 0


def _json_score(head: Head) -> int:
    keys = top_keys(head)
    return 3 if {"version", "status", "eval"} <= keys else 2 if {"eval", "samples"} <= keys else 0


def _archive_items(reading: Reading) -> Iterator[Item]:
    archive = Archive.open(reading.source.path, reading.limits)
    log = _header(archive, reading)
    names = sorted(filter(_MEMBER.match, archive.members), key=_natural)
    _note_status(log, len(names), _origin(reading, archive.path.name, 0))

    def rollouts(value: Any, origin: Origin) -> Iterator[Rollout]:
        yield _sample(value, log, origin)

    for number, name in enumerate(names):
        where = f"{reading.source.name} member {name}"
        try:
            value = reading.decoder.decode(archive.read(name), where)
        except DataError as error:
            value = error
        yield from converted(rollouts, value, where, number, reading)


def _natural(name: str) -> list[Any]:
    """Sort 2 before 10: by pieces, numbers by value."""
    return [int(p) if p.isdigit() and len(p) < 18 else p for p in _DIGITS.split(name)]


def _header(archive: Archive, reading: Reading) -> Mapping[str, Any]:
    """Return what the archive says about the evaluation; one that crashed has only its journal's start."""
    for name in ("header.json", "_journal/start.json"):
        if name in archive.members:
            return mapping_of(
                reading.decoder.decode(archive.read(name), f"{archive.path.name} member {name}")
            )
    return {}


def _origin(reading: Reading, where: str, number: int) -> Origin:
    return Origin(reading.source.path, where, number, reading.builder.log, reading)


def _json_rollouts(value: Any, origin: Origin) -> Iterator[Rollout]:
    log = mapping_of(value)
    samples = list_of(log.get("samples"))
    _note_status(log, len(samples), origin)
    for sample in samples:
        yield _sample(sample, log, origin)


def _note_status(log: Mapping[str, Any], samples: int, origin: Origin) -> None:
    status = text_of(log.get("status")) or "not told"
    if status != "success":
        whole = mapping_of(mapping_of(log.get("eval")).get("dataset")).get("samples")
        of = f" of {whole}" if isinstance(whole, int) else ""
        origin.note("ACC857", f"the log's status is {status[:20]!r}: it has {samples} samples{of}")


# -- one sample ---------------------------------------------------------------------------------


def _sample(value: Any, log: Mapping[str, Any], origin: Origin) -> Rollout:
    if not isinstance(value, Mapping) or "id" not in value:
        raise origin.wrong("a sample", value, "an object with an id")
    about = mapping_of(log.get("eval"))
    name, epoch = text_of(value["id"]), text_of(value.get("epoch"))
    talk = _conversation(value, origin)
    outcome = _outcome(mapping_of(value.get("scores")), origin)
    failed = bool(value.get("error"))
    model = text_of(about.get("model")) or None
    return talk.rollout(
        id=f"{text_of(about.get('run_id')) or origin.stem}/{name}.{epoch}",
        group=f"{text_of(about.get('task'))}/{name} {model or ''}".strip(),
        reward=None if failed else outcome.reward,
        rewards=outcome.rewards,
        status="failed" if failed else "truncated" if _was_cut(value) else "finished",
        policy_version=model,
        metadata=rest_of(value, *_USED),
    )


def _outcome(scores: Mapping[str, Any], origin: Origin) -> Outcome:
    flat: dict[str, Any] = {}
    for name, score in scores.items():
        value = score.get("value") if isinstance(score, Mapping) else score
        if isinstance(value, Mapping):
            flat |= {f"{name}.{k}": v for k, v in value.items()}
        else:
            flat[name] = value
    return outcome_of(flat, origin) if flat else Outcome()


def _was_cut(value: Mapping[str, Any]) -> bool:
    choices = list_of(mapping_of(value.get("output")).get("choices"))
    stop = mapping_of(choices[0]).get("stop_reason") if choices else None
    return bool(value.get("limit")) or stop in ("max_tokens", "model_length")


def _conversation(value: Mapping[str, Any], origin: Origin) -> Transcript:
    events = [e for e in list_of(value.get("events")) if isinstance(e, Mapping)]
    spans = _Spans.of(events)
    scored = spans.scorers(events)
    main = {
        id(e)
        for e in events
        if e.get("event") == "model" and id(e) not in scored and not e.get("role") and _answer(e) is not None
    }
    said = (mapping_of(m) for m in list_of(value.get("messages")))
    own = sum(m.get("role") == "assistant" and m.get("source") != "input" for m in said)
    replay = _Replay(
        value, spans, _Attachments(mapping_of(value.get("attachments")), origin), Transcript(origin)
    )
    if main and (len(main) == own or any(e.get("event") == "compaction" for e in events)):
        for event in events:
            replay.take(event, policy=id(event) in main)
    replay.rest()
    return replay.talk


def _answer(event: Mapping[str, Any]) -> Mapping[str, Any] | None:
    choices = list_of(mapping_of(event.get("output")).get("choices"))
    message = mapping_of(choices[0]).get("message") if choices else None
    return message if isinstance(message, Mapping) and not event.get("error") else None


@dataclass(slots=True)
class _Replay:
    """Takes the events of a sample in order: each call with all that it was shown.

    Args:
        value: the sample.
        spans: its spans.
        attached: its long texts.
        talk: takes the steps.
        store: the sample's store so far.
        known: messages that are taken: the last call's context and its answer.
        shown: messages in the contexts of all calls together.
        score: the intermediate score since the last call.
        read: messages by identity, since calls share them.
    """

    value: Mapping[str, Any]
    spans: _Spans
    attached: _Attachments
    talk: Transcript
    store: Store = field(default_factory=Store)
    known: int = 0
    shown: int = 0
    score: float | None = None
    read: dict[int, Message] = field(default_factory=dict)

    def take(self, event: Mapping[str, Any], *, policy: bool) -> None:
        """Take one event; only calls of the policy are steps."""
        kind = event.get("event")
        if kind == "store":
            self.store.apply(list_of(event.get("changes")))
        elif kind == "score" and event.get("intermediate") is True:
            self.score = reward_of(mapping_of(event.get("score")).get("value"))
        elif policy:
            context = self._context(event)
            self._observe(context[self.known :] if len(context) >= self.known else context[-1:])
            self._act(event, context)
            self.known, self.score = len(context) + 1, None

    def rest(self) -> None:
        """Take the messages that no event told: those after the last call, or all."""
        messages = [self._message(raw) for raw in list_of(self.value.get("messages"))]
        if self.known:
            self._observe(messages[self.known :])
            return
        for message in messages:
            self.talk.add(message._replace(sampled=mapping_of(message.raw).get("source") != "input"))

    def _context(self, event: Mapping[str, Any]) -> list[Message]:
        """Return what a call was shown: messages, or ranges of the pool that all calls share."""
        given = list_of(event.get("input"))
        self._count(len(given))
        context = [self._message(raw) for raw in given]
        pool = list_of(mapping_of(self.value.get("events_data")).get("messages"))
        for span in [] if given else list_of(event.get("input_refs")):
            if isinstance(span, list) and len(span) == 2 and all(type(n) is int and n >= 0 for n in span):
                picked = pool[span[0] : span[1]]
                self._count(len(picked))
                context += map(self._message, picked)
        return context

    def _count(self, messages: int) -> None:
        self.shown += messages
        origin = self.attached.origin
        limits = origin.reading.limits
        limits.check("the calls of a sample were shown messages:", self.shown, "containers", origin.where)

    def _message(self, raw: Any) -> Message:
        found = self.read.get(id(raw))
        if found is None:
            found = self.attached.in_message(chat_message(raw, self.attached.origin))
            self.read[id(raw)] = found
        return found

    def _observe(self, messages: Iterable[Message]) -> None:
        for message in messages:
            if message.role != "assistant":
                self.talk.observe(message.text, message.role)

    def _act(self, event: Mapping[str, Any], context: list[Message]) -> None:
        raw = {"role": "assistant", **(_answer(event) or {})}
        signals = usage_of(mapping_of(event.get("output")).get("usage"))
        if self.score is not None:
            signals["intermediate_score"] = self.score
        fields: dict[str, Any] = {"context": context}
        if self.store.changed:
            last = [m.text for m in context if m.role != "assistant"][-1:]
            key = letters("store", canonical(self.store.content), *map(self.talk.normalise, last))
            fields = {"state": key, "snapshot": True}
        agent = self.spans.agent(text_of(event.get("span_id")))
        answer = self.attached.in_message(chat_message(raw, self.attached.origin))
        self.talk.act(answer, agent=agent, extra=signals, **fields)


@dataclass(slots=True)
class _Attachments:
    """Puts long texts back where a log names them by hash; all that is put back counts."""

    texts: Mapping[str, Any]
    origin: Origin
    size: int = 0
    done: dict[str, str] = field(default_factory=dict)

    def __call__(self, text: str) -> str:
        if "attachment://" not in text:
            return text
        if text not in self.done:
            self.done[text] = _ATTACHMENT.sub(self._one, text)
        return self.done[text]

    def in_message(self, message: Message) -> Message:
        return message._replace(text=self(message.text), reasoning=self(message.reasoning))

    def _one(self, found: re.Match[str]) -> str:
        text = self.texts.get(found.group(1))
        if not isinstance(text, str):
            return found.group(0)
        self.size += len(text)
        limits = self.origin.reading.limits
        limits.check(
            "the attachments of a sample have characters:", self.size, "line_bytes", self.origin.where
        )
        return text


@dataclass(slots=True)
class _Spans:
    """Spans of a sample: name, kind and parent of each."""

    table: dict[str, tuple[str, str, str]] = field(default_factory=dict)

    @classmethod
    def of(cls, events: Iterable[Mapping[str, Any]]) -> _Spans:
        found = cls()
        for e in events:
            if e.get("event") == "span_begin":
                parts = (text_of(e.get("name")), text_of(e.get("type")), text_of(e.get("parent_id")))
                found.table[text_of(e.get("id"))] = parts
        return found

    def _up(self, span: str, wanted: Callable[[str], bool]) -> str | None:
        """Return the name of the innermost span of a kind that holds a span."""
        seen: set[str] = set()
        while span in self.table and span not in seen:
            seen.add(span)
            name, kind, parent = self.table[span]
            if wanted(kind):
                return name
            span = parent
        return None

    def agent(self, span: str) -> str | None:
        return self._up(span, lambda kind: kind == "agent")

    def scorers(self, events: Iterable[Mapping[str, Any]]) -> set[int]:
        """Return the events (by identity) inside scorers: by span, or between old ``step`` events."""
        found, inside = set(), 0
        for e in events:
            if e.get("event") == "step" and e.get("type") == "scorer":
                inside += 1 if e.get("action") == "begin" else -1
            within = self._up(text_of(e.get("span_id")), lambda kind: kind in ("scorer", "scorers"))
            if inside > 0 or within is not None:
                found.add(id(e))
        return found


INSPECT_EVAL = register(Format("inspect-eval", "Inspect .eval log", _eval_score, _archive_items))
INSPECT_JSON = register(
    Format("inspect-json", "Inspect .json log", _json_score, from_document(_json_rollouts))
)
