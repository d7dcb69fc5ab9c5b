"""Chat messages to steps: turns of the policy, action keys, observations, state keys.

A reader turns its dialect into `Message`s (`chat_message` knows OpenAI's and its many relatives,
`responses_messages` the Responses API), gives them to a `Transcript` in order, and gets a Rollout:

    talk = Transcript(origin)
    for raw in record["messages"]:
        talk.add(chat_message(raw, origin))
    yield talk.rollout(id=..., group=..., reward=...)

One turn that the policy sampled is one step, however many tools it calls. What stands between two
turns is the observation of the first and makes the state key of the second. Assistant messages that were
put there as context (demonstrations, copies) are context.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from hashlib import blake2b
from typing import Any, Literal

from accredit.data import Rollout, Step
from accredit.readers.foreign import Origin, in_letters, letters, mapping_of, number_of
from accredit.readers.messages import (
    Call,
    Message,
    action_key,
    call_of,
    chat_message,
    content_text,
    responses_messages,
)
from accredit.readers.volatile import Normaliser, steady
from accredit.typing import Json, Scalar

__all__ = [
    "Call",
    "Message",
    "StateRule",
    "Transcript",
    "action_key",
    "call_of",
    "chat_message",
    "content_text",
    "metadata_of",
    "responses_messages",
    "usage_of",
]

StateRule = Literal["observation", "prefix"]


class Transcript:
    """Takes what was seen and done in order, and makes the steps.

    The state key of a step is, in this order: the one given to `act`; for the first step a hash of the
    prompt; under ``rule="observation"`` a hash of what was observed since the turn before (GiGPO's anchor);
    else, and where nothing was observed, a hash of the whole prefix. With the rule ``observation`` each step
    also carries the hash of its prefix as the word ``prefix``, so that ``key="prefix"`` chooses it later.
    Texts are normalised before they are hashed; `rollout` notes which keys were used.

    Args:
        origin: place, for notes.
        rule: what makes the key where none is given.
        normalise: applied to texts before they are hashed.

    Example:
        >>> talk = Transcript(None)
        >>> talk.observe("find the key")
        >>> talk.act(Message("assistant", "look"))
        >>> talk.observe("key.txt", "tool")
        >>> talk.act(Message("assistant", "key.txt"))
        >>> found = talk.rollout(id="r", reward=1.0)
        >>> [(s.action, s.observation) for s in found.steps]
        [('look', 'key.txt'), ('key.txt', None)]
    """

    def __init__(
        self, origin: Origin | None, *, rule: StateRule = "observation", normalise: Normaliser = steady
    ) -> None:
        self.origin = origin
        self.rule = rule
        self.normalise = normalise
        self.prompt: list[tuple[str, str]] = []
        self.left_out = 0
        self._steps: list[dict[str, Any]] = []
        self._seen: list[tuple[str, str]] = []
        self._prefix = blake2b(digest_size=16)
        self._keys: Counter[str] = Counter()
        self._kinds: Counter[str] = Counter()
        self._marks: dict[str, str] = {}

    def __len__(self) -> int:
        return len(self._steps)

    def add(self, message: Message, **fields: Any) -> None:
        """Take a message: a sampled assistant message is a step, anything else is observed.

        Args:
            message: in order.
            fields: of the step, see `act`.
        """
        if message.role == "assistant" and message.sampled:
            self.act(message, **fields)
            return
        self.left_out += message.role == "assistant"
        called = [call.key for call in message.calls]
        self.observe("\n".join([message.text, *called]) if called else message.text, message.role)

    def observe(self, text: str, role: str = "user") -> None:
        """Take something that the policy sees before its next turn."""
        (self._seen if self._steps else self.prompt).append((role, text))
        self._grow(role, self.normalise(text))

    def act(
        self,
        message: Message,
        *,
        state: Scalar | None = None,
        snapshot: bool = False,
        context: Sequence[Message] | None = None,
        action: Scalar | None = None,
        **fields: Any,
    ) -> None:
        """Take a turn of the policy.

        Args:
            message: what it said and called.
            state: key of the state before it, if the format has one.
            snapshot: ``state`` was made of a snapshot of the environment.
            context: all that this call was shown, if the format records it call by call: the keys are made of
                it, not of what went before; empty where it was not recorded (the step gets no state).
            action: its key, if `action_key` of the message is not it.
            fields: further fields of `Step`.
        """
        self._close()
        prefix = in_letters(self._prefix.copy().digest())
        kind, key = "snapshot" if snapshot else "given", state
        if state is None and context is not None:
            kind, key, prefix = self._keys_of(context)
        elif state is None:
            kind, key = self._key()
        if self.rule == "observation" and prefix:
            fields["extra"] = {**fields.get("extra", {}), "prefix": prefix}
        if kind == "observation":
            self._keys[str(key)] += 1
        self._kinds[kind] += 1
        said = "\n".join(t for t in (message.reasoning, message.text) if t.strip())
        step = {
            "state": key,
            "action": action_key(message) if action is None else action,
            "text": said or None,
        }
        self._steps.append(step | fields)
        self._grow("assistant", message.reasoning, message.text, *(c.key for c in message.calls))
        self._seen = []

    def rollout(self, id: str, **fields: Any) -> Rollout:
        """Return the rollout, and note how its state keys were made.

        Args:
            id: its id.
            fields: further fields of `Rollout`.
        """
        if self._steps:
            self._close()
            if self._seen and set(self._kinds) <= {"prompt", "observation", "prefix"}:
                fields.setdefault("final_state", self._key()[1])
        self._note(id)
        return Rollout(id=id, steps=[Step(**step) for step in self._steps], **fields)

    def _close(self) -> None:
        if self._steps and self._seen and "observation" not in self._steps[-1]:
            self._steps[-1]["observation"] = "\n".join(text for _, text in self._seen)

    def _key(self) -> tuple[str, str]:
        """Return kind and key of the state that the policy is in."""
        if self._steps and self._seen and self.rule == "observation":
            seen = (part for role, text in self._seen for part in (role, self._mark(text)))
            return "observation", letters("observation", *seen)
        kind = "prefix" if self._steps else "prompt"
        return kind, in_letters(self._prefix.copy().digest())

    def _keys_of(self, context: Sequence[Message]) -> tuple[str, str | None, str]:
        """Return kind, key and prefix key of a call that was shown this context."""
        if not context:
            return "unknown", None, ""
        said = [[m.role, self._mark(m.text), m.reasoning, *(c.key for c in m.calls)] for m in context]
        last = max((i for i, m in enumerate(context) if m.role == "assistant"), default=-1)
        prefix = letters("context", *(part for parts in said for part in parts))
        if last < 0:
            return "prompt", prefix, prefix
        if last == len(context) - 1 or self.rule == "prefix":
            return "prefix", prefix, prefix
        return "observation", letters("observation", *(p for s in said[last + 1 :] for p in s[:2])), prefix

    def _mark(self, text: str) -> str:
        """Return what stands for a text in keys; contexts repeat texts call by call, so each is made once."""
        found = self._marks.get(text)
        if found is None:
            found = self._marks[text] = letters(self.normalise(text))
        return found

    def _grow(self, *parts: str) -> None:
        for part in parts:
            raw = part.encode("utf-8", "surrogatepass")
            self._prefix.update(len(raw).to_bytes(8, "big"))
            self._prefix.update(raw)

    def _note(self, id: str) -> None:
        if self.origin is None:
            return
        used = (set(self._kinds) - {"prompt"}) or ({self.rule} if self._kinds else set())
        for kind, code, message, hint in _NOTES:
            if kind in used:
                self.origin.note(code, message, hint=hint)
        if self.left_out:
            self.origin.note("ACC855", "assistant messages that the policy did not sample here are context")
        [(_, most)] = self._keys.most_common(1) or [("", 0)]
        if most >= 3 and 2 * most > self._keys.total():
            self.origin.note(
                "ACC853",
                f"{most} of the {self._keys.total()} observations of {id!r} are the same: as state keys they "
                "hide where the policy is",
                hint='Take the whole prefix as the state: key="prefix"',
            )


_NOTES = (
    (
        "observation",
        "ACC850",
        "the file has no states: a step's key is a hash of its prompt or of the last observation",
        'key="prefix" takes the whole prefix instead; a column of your own by with_column("state_S", ...)',
    ),
    (
        "prefix",
        "ACC851",
        "the file has no states: a step's key is a hash of everything before it",
        "Only rollouts that began alike word for word share states; give states for more",
    ),
    (
        "snapshot",
        "ACC852",
        "a step's state key is made of the snapshot of the environment that the file has",
        "",
    ),
)


def usage_of(usage: Any) -> dict[str, float]:
    """Return the numbers of tokens that a call reports, as the signals ``input_tokens``, ``output_tokens``.

    They are what a server billed, not the lengths of recorded id lists, so they are signals and do not make
    policy tokens.
    """
    given = mapping_of(usage)
    found = {}
    for name, keys in _USAGE.items():
        value = next((number_of(given[k]) for k in keys if k in given), None)
        if value is not None:
            found[name] = value
    return found


_USAGE: Mapping[str, tuple[str, ...]] = {
    "input_tokens": ("input_tokens", "prompt_tokens", "input", "gen_ai.usage.input_tokens"),
    "output_tokens": ("output_tokens", "completion_tokens", "output", "gen_ai.usage.output_tokens"),
}


def metadata_of(**fields: Json) -> dict[str, Json] | None:
    """Return the fields that are there, None if there are none."""
    return {k: v for k, v in fields.items() if v not in (None, "", [], {})} or None
