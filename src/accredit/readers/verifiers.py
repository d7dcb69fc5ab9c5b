"""Flat records of verifiers (``vf-eval``) and of prime-rl's hosted runs: prompt, completion, reward.

A step is an assistant message of the completion, or an entry of ``trajectory`` where that is kept; those have
token ids and log-probabilities. Fields may be JSON inside strings. Group: ``example_id`` or ``id`` of one
file; in a hosted run the run, the training step and ``problem_id``, and where one step samples a problem
several times over, blocks of ``sample_id`` of the ``rollouts_per_example`` that ``metadata.json`` beside the
file tells. State from the last observation. The trainer's own advantage is the signal ``advantage_R``.
Missing: tokens (unless ``trajectory`` is kept), step rewards. Metrics are kept in the metadata.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from accredit.data import Rollout
from accredit.errors import DataError
from accredit.readers.chat import Message, Transcript, chat_message
from accredit.readers.foreign import (
    Origin,
    from_records,
    list_of,
    mapping_of,
    number_of,
    rest_of,
    reward_of,
    text_of,
    top_keys,
)
from accredit.readers.formats import Format, Head, Item, Reading, register

__all__ = ["VERIFIERS"]

_USED = ("prompt", "completion", "reward", "advantage", "trajectory")
_PACKED = ("info", "metrics", "timing")
_HOSTED = {"problem_id", "sample_id", "prompt", "completion", "reward"}
_CUT = ("max_turns", "prompt_too_long", "max_total", "max_seq", "length", "timeout")


def _score(head: Head) -> int:
    keys = top_keys(head)
    if keys >= _HOSTED or keys >= {"example_id", "prompt", "completion", "reward"}:
        return 3
    return 3 if {"id", "task", "prompt", "completion", "reward"} <= keys else 0


def _items(reading: Reading) -> Iterator[Item]:
    file = _File(_per_example(reading))
    yield from from_records(file.rollouts)(reading)
    file.close(reading)


def _per_example(reading: Reading) -> int:
    """Return the run's rollouts per example by the ``metadata.json`` beside the file, 0 if it is not told."""
    path = reading.source.path.parent / "metadata.json"
    try:
        size = path.stat().st_size
        reading.limits.check("the metadata has bytes:", size, "line_bytes", str(path))
        found = mapping_of(reading.decoder.decode(path.read_bytes(), str(path)))
    except (OSError, DataError):
        return 0
    told = mapping_of(found.get("run") or found).get("rollouts_per_example")
    return told if isinstance(told, int) and 0 < told < 10**6 else 0


class _File:
    """Groups of one file, counted, for groups that it holds in part.

    Args:
        per_example: rollouts of a group by the run's settings, 0 if not known.
    """

    def __init__(self, per_example: int) -> None:
        self.per_example = per_example
        self.sizes: Counter[str] = Counter()
        self.blocks: dict[str, set[int]] = {}

    def rollouts(self, value: Any, origin: Origin) -> Iterator[Rollout]:
        """Yield the rollout of one record."""
        if not isinstance(value, Mapping):
            raise origin.wrong("a record", value, "an object")
        found = {k: _unpacked(v, origin) if k in _PACKED else v for k, v in value.items()}
        talk = Transcript(origin)
        _fill(talk, found, origin)
        place = self._place(found, origin)
        self.sizes[text_of(place["group"])] += 1
        failed = bool(found.get("error"))
        advantage = number_of(found.get("advantage"))
        yield talk.rollout(
            **place,
            reward=None if failed else reward_of(found.get("reward")),
            status="failed" if failed else _status(found),
            policy_version=text_of(found.get("step")) or None,
            metadata=rest_of(found, *_USED),
            extra={} if advantage is None else {"advantage": advantage},
        )

    def _place(self, found: Mapping[str, Any], origin: Origin) -> dict[str, Any]:
        if "problem_id" not in found:
            task = text_of(found.get("example_id", found.get("id")))
            return {"id": origin.name, "group": f"{origin.stem}/{task}" if task else None}
        run = text_of(found.get("run_id")) or origin.stem
        task, step = text_of(found["problem_id"]), text_of(found.get("step"))
        group = f"{run}/{step}/{task}"
        sample = found.get("sample_id")
        if not isinstance(sample, int):
            return {"id": origin.name, "group": group}
        return {"id": f"{run}/{step}.{sample}", "group": self._block(group, sample, origin)}

    def _block(self, group: str, sample: int, origin: Origin) -> str:
        """Return the group of a sample: the problem's first block has its name, others are told apart."""
        if not self.per_example:
            return group
        blocks = self.blocks.setdefault(group, set())
        blocks.add(sample // self.per_example)
        if len(blocks) == 2:
            origin.note(
                "ACC861",
                f"{group!r} was sampled more than once over: blocks of {self.per_example} sample numbers "
                "(rollouts_per_example) are its groups",
            )
        return f"{group}#{sample // self.per_example}"

    def close(self, reading: Reading) -> None:
        """Say which groups the file holds in part."""
        part = [(name, n) for name, n in self.sizes.items() if n < self.per_example]
        if part:
            name, n = part[0]
            reading.builder.log.add(
                "ACC857",
                "warning",
                f"{len(part)} groups hold fewer rollouts than the run's {self.per_example} per example "
                f"({name!r}: {n}): credit that compares with the rest of the group is not the run's",
                where=str(reading.source.path),
                hint="Read the file that holds the rest, too, or leave these groups out",
            )


def _unpacked(value: Any, origin: Origin) -> Any:
    """Return JSON that is packed in a string, if it is."""
    if not isinstance(value, str) or value.lstrip()[:1] not in ("[", "{"):
        return value
    try:
        return origin.loads(value)
    except DataError:
        return value


def _messages(value: Any, role: str, what: str, origin: Origin) -> Iterator[Message]:
    given = _unpacked(value, origin)
    if isinstance(given, str):
        yield Message(role, given)
    elif isinstance(given, list):
        yield from (chat_message(raw, origin) for raw in given)
    else:
        raise origin.wrong(what, value, "a text or a list of messages")


def _fill(talk: Transcript, found: Mapping[str, Any], origin: Origin) -> None:
    for message in _messages(found.get("prompt"), "user", "prompt", origin):
        talk.add(message._replace(sampled=False))
    calls = [c for c in list_of(found.get("trajectory")) if isinstance(c, Mapping) and c.get("completion")]
    if not calls:
        for message in _messages(found.get("completion"), "assistant", "completion", origin):
            talk.add(message)
        return
    for call in calls:
        context = list(_messages(call.get("prompt"), "user", "prompt", origin))
        said = list(_messages(call["completion"], "assistant", "completion", origin))
        asked = max((i for i, m in enumerate(context) if m.role == "assistant"), default=-1) + 1
        for message in context[asked:] if len(talk) else []:
            talk.observe(message.text, message.role)
        _speak(talk, said, context, call, origin)


def _speak(
    talk: Transcript, said: list[Message], context: list[Message], call: Mapping[str, Any], origin: Origin
) -> None:
    """Take what one call answered: one turn has the call's tokens, several cannot share them."""
    turns = sum(m.role == "assistant" for m in said)
    if turns > 1:
        origin.note("ACC858", f"a call with {turns} assistant messages: its tokens are left out")
    fields = _tokens(call, origin) if turns == 1 else {}
    for message in said:
        talk.add(message, **({"context": context, **fields} if message.role == "assistant" else {}))


def _tokens(call: Mapping[str, Any], origin: Origin) -> dict[str, Any]:
    tokens = mapping_of(call.get("tokens"))
    ids, mask = list_of(tokens.get("completion_ids")), list_of(tokens.get("completion_mask"))
    reward = number_of(call.get("reward"))
    found: dict[str, Any] = {} if reward is None else {"extra": {"trajectory_reward": reward}}
    if not all(mask):
        origin.note("ACC858", "a call's mask leaves out tokens of its completion: its tokens are left out")
        return found
    if ids:
        found |= {"tokens": ids, "prompt_tokens": list_of(tokens.get("prompt_ids")) or None}
        found["logprobs"] = list_of(tokens.get("completion_logprobs")) or None
    return found


def _status(found: Mapping[str, Any]) -> str | None:
    stop = text_of(found.get("stop_condition"))
    if found.get("is_truncated") is True or stop.startswith(_CUT):
        return "truncated"
    return "finished" if found.get("is_completed") is True else None


VERIFIERS = register(Format("verifiers", "verifiers and prime-rl records", _score, _items))
