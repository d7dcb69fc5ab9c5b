"""A language model as ProVer's judge: it points at a segment, and only at that.

It sees one success in full, previews of the failures of its group, and two tools.  What it says is read
strictly; a reply that cannot be read or that cannot be is told to it, asked again a few times, and kept.
What a segment is worth is measured by continuations: no judge can change the amount.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from accredit.errors import ParamError
from accredit.planners.prover import Case
from accredit.signals.asking import Asker, Instructions, Reply, Unreadable, object_of, steps_text, task_text
from accredit.signals.continuation.ledger import Ledger
from accredit.signals.hints import plain_text
from accredit.signals.speaking import Speaker

__all__ = ["JUDGE", "LmJudge"]

JUDGE = Instructions(
    system="You study attempts of an agent at one task. You reply with one JSON object and nothing else.",
    opening="""\
${task}One attempt succeeded. These are its steps:

$target

Other attempts at the same task failed. Their first actions:

$failures

Find a mistake that recurs in the failures, and the shortest run of steps of the success that avoids or
solves it.

To look closer at the failures, reply with one of
{"tool": "search", "query": "words", "k": 5}
{"tool": "get_segment", "rollout": "its id", "start": 0, "end": 3}

To answer, reply with
{"failure_mode": "one sentence", "start": first step, "end": last step}
Both are step numbers of the success, from 0 to $last, at most $most steps, none of which failed.
If no such steps exist, start and end are null.""",
)
_TOOLS = {"search": {"query", "k"}, "get_segment": {"rollout", "start", "end"}}
_ANSWER = {"failure_mode", "start", "end"}


class LmJudge:
    """Asks a model to point; see `accredit.planners.prover.Judge`.

    A reply is one JSON object: a question to a tool, or a segment.  Anything else is refused with its
    reason, counted by the planner as a proposal that cannot be, and asked for again as often as the
    planner repairs.  ``asker.replies`` keeps every reply; ``version`` names model, decoding and prompt.

    Args:
        speaker: the model: `accredit.signals.speaking`.
        instructions: what it is told; its opening names ``$task``, ``$target``, ``$failures``, ``$last``
            and ``$most``.
        tools: questions to the tools in a group, at most.
        seed: of sampling.
        ledger: of the engine, where each question is a judge call of its budget.

    Raises:
        ParamError: for instructions that leave something out.

    Example:
        >>> from accredit.signals.speaking import ChatServer
        >>> LmJudge(ChatServer("http://localhost:8000/v1", "org/tiny")).version.partition(":prompt=")[0]
        'judge:chat:org/tiny:T=0:max=512'
    """

    def __init__(
        self,
        speaker: Speaker,
        *,
        instructions: Instructions = JUDGE,
        tools: int = 6,
        seed: int = 0,
        ledger: Ledger | None = None,
    ) -> None:
        if tools < 0:
            raise ParamError(f"tools must be >= 0, got {tools}")
        instructions.check("task", "target", "failures", "last", "most")
        self.asker = Asker(speaker, "judge", seed, ledger)
        self.version = f"judge:{speaker.version}:prompt={instructions.fingerprint}"
        self._told, self._tools = instructions, tools
        self._used: dict[str, int] = {}

    def __call__(self, case: Case) -> Mapping[str, Any] | None:
        """Return ``start`` and ``end``, ``fault`` where the reply names no segment that can be, or None."""
        subject = case.target
        if case.turn == 0:
            self._used[subject] = 0
            self.asker.begin(subject, self._begun(case))
        else:
            self.asker.tell(subject, self._told.again.replace("$fault", case.fault))
        while (text := self.asker.ask(subject)) is not None:
            try:
                found = self._read(case, object_of(text))
            except Unreadable as fault:
                self.asker.refuse(str(fault))
                return {"fault": str(fault)}
            if not isinstance(found, str):
                return found
            self.asker.tell(subject, found)
        return None

    def refused(self) -> list[Reply]:
        """Return the replies that were not taken, and the questions that were not asked."""
        return self.asker.refused()

    def _begun(self, case: Case) -> list[Mapping[str, str]]:
        steps, width = case.segment(case.target), self._told.width
        previews = case.previews()
        batch = case.index.batch
        return self._told.begun(
            task=task_text(batch, batch.position(case.target), width),
            target=steps_text(steps, width),
            failures="\n".join(f"{plain_text(name)}: {plain_text(text)}" for name, text in previews.items()),
            last=str(len(steps) - 2),
            most=str(case.max_length),
        )

    def _read(self, case: Case, found: dict[str, Any]) -> Mapping[str, Any] | str | None:
        """Return a segment, None, or what a tool says."""
        if "tool" in found:
            return self._tool(case, found)
        if not {"start", "end"} <= found.keys() <= _ANSWER:
            raise Unreadable(f"the object has the names {_names(found)}, not failure_mode, start and end")
        if found["start"] is None and found["end"] is None:
            return None
        if fault := case.fault_of(found["start"], found["end"]):
            raise Unreadable(fault)
        return {"start": found["start"], "end": found["end"]}

    def _tool(self, case: Case, found: dict[str, Any]) -> str:
        name = found.pop("tool")
        if not isinstance(name, str) or name not in _TOOLS or not found.keys() <= _TOOLS[name]:
            raise Unreadable(f"there is no tool {str(name)[:40]!r} with {_names(found)}")
        if self._used[case.target] >= self._tools:
            raise Unreadable(f"the tools were asked {self._tools} times: name start and end now")
        self._used[case.target] += 1
        return self._search(case, **found) if name == "search" else self._segment(case, **found)

    def _search(self, case: Case, query: Any = None, k: Any = 5) -> str:
        if not isinstance(query, str) or not _whole(k) or not 1 <= k <= 20:
            raise Unreadable("search takes words as query, and k from 1 to 20")
        places = case.search(query, k)
        width = self._told.width
        shown = [f"{plain_text(r)}: {steps_text(case.segment(r, t, t), width, t)}" for r, t in places]
        return "\n\n".join(shown) or "No step of the failures has one of these words."

    def _segment(self, case: Case, rollout: Any = None, start: Any = 0, end: Any = None) -> str:
        if rollout not in case.failures:
            raise Unreadable(f"rollout must be one of the failures, got {str(rollout)[:80]!r}")
        if not _whole(start) or start < 0 or not (end is None or (_whole(end) and end >= start)):
            raise Unreadable("start and end are step numbers, 0 <= start <= end")
        steps = case.segment(rollout, start, end)
        return steps_text(steps, self._told.width, start) or f"It has no step {start}."


def _whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _names(found: Mapping[str, Any]) -> str:
    return ", ".join(sorted(found))[:80] or "nothing"
