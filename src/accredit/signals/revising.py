"""A language model as IBPO's reviser: it names the first wrong step of a failure and another action.

What it says is read strictly, and its action must be possible where it is to be taken; else it is told
why and asked again a few times.  Whether the correction succeeds is played, not believed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from accredit.errors import ParamError
from accredit.index import Index
from accredit.planners.ibpo import Draft
from accredit.planners.truth import places_of
from accredit.signals.asking import Asker, Instructions, Reply, Unreadable, object_of, steps_text, task_text
from accredit.signals.chat_actor import action_meant
from accredit.signals.continuation.ledger import Ledger
from accredit.signals.continuation.restorers import RestoreFailed, Restorer
from accredit.signals.hints import plain_text
from accredit.signals.speaking import Speaker

__all__ = ["REVISER", "LmReviser"]

REVISER = Instructions(
    system="You correct attempts of an agent at a task. You reply with one JSON object and nothing else.",
    opening="""\
${task}This attempt failed:

$failure

Other attempts at the same task, to compare with:

$references

Name the first step of the failed attempt that was wrong, and the action to take there instead; all that
comes after it will be done anew. Reply with
{"step": step number from 0 to $last, "action": "another action, as the task writes actions"}""",
)


class LmReviser:
    """Asks a model to correct; see `accredit.planners.ibpo.Reviser`.

    Args:
        speaker: the model, the policy itself in the paper: `accredit.signals.speaking`.
        restorer: of the worlds: the action is then checked against, and taken for the one it means among,
            those possible at the step; None: the world refuses what is not possible when it is played.
        instructions: what it is told; its opening names ``$task``, ``$failure``, ``$references`` and
            ``$last``.
        repairs: how often it is asked again about a failure.
        seed: of sampling.
        ledger: of the engine, where each question is a judge call of its budget.

    Raises:
        ParamError: for instructions that leave something out.

    Example:
        >>> from accredit.signals.speaking import ChatServer
        >>> LmReviser(ChatServer("http://localhost:8000/v1", "org/tiny")).version.partition(":prompt=")[0]
        'reviser:chat:org/tiny:T=0:max=512'
    """

    def __init__(
        self,
        speaker: Speaker,
        restorer: Restorer | None = None,
        *,
        instructions: Instructions = REVISER,
        repairs: int = 3,
        seed: int = 0,
        ledger: Ledger | None = None,
    ) -> None:
        if repairs < 0:
            raise ParamError(f"repairs must be >= 0, got {repairs}")
        instructions.check("task", "failure", "references", "last")
        self.asker = Asker(speaker, "reviser", seed, ledger)
        self.version = f"reviser:{speaker.version}:prompt={instructions.fingerprint}"
        self._told, self._restorer, self._repairs = instructions, restorer, repairs

    def __call__(self, draft: Draft) -> Mapping[str, Any] | None:
        """Return the first edited ``step`` and ``actions``; None where no reply could be taken."""
        subject = draft.rollout
        if not draft.actions(subject):
            return None
        self.asker.begin(subject, self._begun(draft))
        for _ in range(self._repairs + 1):
            text = self.asker.ask(subject)
            if text is None:
                return None
            try:
                return self._read(draft, object_of(text))
            except Unreadable as fault:
                self.asker.refuse(str(fault))
                self.asker.tell(subject, self._told.again.replace("$fault", str(fault)))
        return None

    def refused(self) -> list[Reply]:
        """Return the replies that were not taken, and the questions that were not asked."""
        return self.asker.refused()

    def _begun(self, draft: Draft) -> list[Mapping[str, str]]:
        shown = [
            f"{'Success' if name in draft.right else 'Failure'}:\n{_numbered(draft.actions(name))}"
            for name in draft.references
        ]
        batch, steps = draft.index.batch, draft.steps(draft.rollout)
        return self._told.begun(
            task=task_text(batch, batch.position(draft.rollout), self._told.width),
            failure=steps_text(steps, self._told.width),
            references="\n\n".join(shown) or "none",
            last=str(len(steps) - 1),
        )

    def _read(self, draft: Draft, found: dict[str, Any]) -> Mapping[str, Any]:
        if found.keys() != {"step", "action"}:
            raise Unreadable(f"the object has the names {', '.join(sorted(found))[:80]}, not step and action")
        step, action = found["step"], found["action"]
        own = draft.actions(draft.rollout)
        if not isinstance(step, int) or isinstance(step, bool) or not 0 <= step < len(own):
            raise Unreadable(f"step must be a number from 0 to {len(own) - 1}, got {str(step)[:40]!r}")
        if not isinstance(action, str) or not action.strip():
            raise Unreadable("action must be a text")
        meant = self._possible(draft.index, draft.rollout, step, action)
        if meant == own[step]:
            raise Unreadable(f"{meant[:80]!r} is what the attempt did at step {step}")
        return {"step": step, "actions": [meant]}

    def _possible(self, index: Index, rollout: str, step: int, action: str) -> str:
        """Return the possible action that is meant."""
        if self._restorer is None:
            return action.strip()
        batch = index.batch
        at = int(batch.step_start_R1[batch.position(rollout)]) + step
        (place,) = places_of(batch, [at], markov=False)
        try:
            world = self._restorer.stand(place)
        except RestoreFailed:
            raise Unreadable(f"the state before step {step} cannot be reached again") from None
        options = world.actions()
        self._restorer.release(world, place)
        meant = action_meant(action, options)
        if options is not None and meant not in options:
            raise Unreadable(f"{meant[:80]!r} is not possible at step {step}; possible: {', '.join(options)}")
        return meant


def _numbered(actions: Sequence[str]) -> str:
    return "\n".join(f"{t}. {plain_text(action)}" for t, action in enumerate(actions))
