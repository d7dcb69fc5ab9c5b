"""verl's rollout dumps (``trainer.rollout_data_dir``): ``{step}.jsonl`` with input, output, score.

Group: training step and the ``uid`` of the task; the V1 trainer writes ``"{uid}_{session}_{index}"``, so the
rollout is uid and session, and an index is one of its rows. The older trainer writes no uid: groups are equal
inputs of one training step. A step is an assistant turn where the template's marks of turns survive in
``output``; verl strips them by default, and then the whole output is one step. State from the last
observation. Numbers beside the score (``acc``) are components of the reward.
Missing: tokens, log-probabilities, step rewards; turns unless special tokens are kept.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from accredit.data import Rollout
from accredit.readers.chat import Message, Transcript
from accredit.readers.foreign import (
    Origin,
    from_records,
    need,
    number_of,
    rest_of,
    reward_of,
    task_group,
    text_of,
    top_keys,
)
from accredit.readers.formats import Format, Head, register

__all__ = ["VERL_DUMP", "marked_turns"]

_USED = ("input", "output", "score", "step", "uid")
_KEY = re.compile(r"(?P<uid>.+)_(?P<session>\d+)_(?P<index>\d+)", re.DOTALL)
_MARKS = re.compile(
    r"<\|im_start\|>(?P<chatml>[a-z]{1,20})\n|<\|start_header_id\|>(?P<llama>[a-z]{1,20})<\|end_header_id\|>\s*"
)
_ENDS = re.compile(r"(?:<\|im_end\|>|<\|eot_id\|>|<\|end_of_text\|>|<\|endoftext\|>|\s)+\Z")
_ROLES = {"ipython": "tool", "environment": "tool"}


def _score(head: Head) -> int:
    keys = top_keys(head)
    return 3 if {"input", "output", "score", "step"} <= keys else 0


def marked_turns(text: str, role: str) -> Iterator[Message]:
    r"""Yield the turns of a text that begins in the turn of a role, by the marks of ChatML or Llama 3.

    Without marks the whole text is one turn.

    Example:
        >>> text = "hi<|im_end|>\n<|im_start|>user\nno<|im_end|>"
        >>> [(m.role, m.text) for m in marked_turns(text, "assistant")]
        [('assistant', 'hi'), ('user', 'no')]
    """
    begin = 0
    for mark in _MARKS.finditer(text):
        if said := _ENDS.sub("", text[begin : mark.start()]).strip():
            yield Message(role, said)
        named = mark["chatml"] or mark["llama"]
        role, begin = _ROLES.get(named, named), mark.end()
    if said := _ENDS.sub("", text[begin:]).strip():
        yield Message(role, said)


def _rollouts(value: Any, origin: Origin) -> Iterator[Rollout]:
    prompt, output = need(value, "input", str, origin), need(value, "output", str, origin)
    talk = Transcript(origin)
    for message in marked_turns(prompt, "user"):
        talk.add(message._replace(sampled=False))
    for message in marked_turns(output, "assistant"):
        talk.add(message)
    if not _MARKS.search(output):
        if not output.strip():
            talk.act(Message("assistant"))
        origin.note("ACC859", "no marks of turns are left in `output`: the whole output is one step")
    yield talk.rollout(**_place(value, prompt, origin), **_outcome(value))


def _place(value: Mapping[str, Any], prompt: str, origin: Origin) -> dict[str, Any]:
    step, uid = text_of(value.get("step")), text_of(value.get("uid"))
    version = {"policy_version": step or None}
    if key := _KEY.fullmatch(uid):
        name = f"{step}/{key['uid']}"
        return {"id": f"{name}_{key['session']}", "group": name, "row": int(key["index"]), **version}
    if uid:
        return {"id": origin.name, "group": f"{step}/{uid}", **version}
    return {"id": origin.name, "group": task_group(origin, f"step {step}", prompt), **version}


def _outcome(value: Mapping[str, Any]) -> dict[str, Any]:
    """Return the score, its components, and the rest."""
    parts = {k: v for k in value if k not in _USED and (v := _component(value[k])) is not None}
    return {
        "reward": reward_of(value.get("score")),
        "rewards": parts or None,
        "metadata": rest_of(value, *_USED, *parts),
    }


def _component(value: Any) -> float | None:
    return float(value) if isinstance(value, bool) else number_of(value)


VERL_DUMP = register(Format("verl", "verl's rollout dump", _score, from_records(_rollouts)))
