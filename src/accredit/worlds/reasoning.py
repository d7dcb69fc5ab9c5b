"""Reasoning-gym puzzles as worlds of one turn: a question, a free answer, a score.

Needs ``pip install "accredit[worlds]"``; nothing here imports reasoning_gym before it is called.
"""

from __future__ import annotations

from typing import Any

from accredit.errors import BackendError, ParamError
from accredit.worlds.protocol import Cost

__all__ = ["ReasoningWorld"]


class ReasoningWorld:
    """Asks a generated question once; pays the score of the answer, in [0, 1].

    Args:
        seed: of the question.
        kind: generator of reasoning-gym.
        options: of the generator.

    Raises:
        BackendError: if reasoning-gym is not installed.
        ParamError: if there is no such generator, or its own answer does not score 1.
    """

    exact_snapshot = True
    snapshot_cost = 0.0
    deterministic = True
    side_effects = False

    def __init__(self, seed: int = 0, *, kind: str = "chain_sum", **options: Any) -> None:
        try:
            import reasoning_gym
        except ImportError as error:
            raise BackendError(
                "reasoning-gym is not installed", code="ACC756", hint="pip install 'accredit[worlds]'"
            ) from error
        try:
            self._maker: Any = reasoning_gym.create_dataset(kind, size=1, seed=seed, **options)
        except (ValueError, AssertionError, TypeError) as error:
            raise ParamError(f"reasoning-gym makes no {kind!r} like this: {error}") from error
        self._item: Any = self._maker[0]
        right = self._item["answer"]
        if right is not None and self._score(right) < 1:
            raise ParamError(f"{kind!r} does not take its own answer as right", hint="Take another generator")
        self._answer: str | None = ""
        self.cost = Cost()

    @property
    def solution(self) -> str | None:
        """The answer that the generator knows; others may be as good."""
        known = self._item["answer"]
        return None if known is None else str(known)

    def _score(self, answer: str) -> float:
        return float(self._maker.score_answer(answer, self._item))

    def reset(self, seed: int) -> str:
        """Ask; a world has one question, whatever the seed."""
        self._answer = None
        return self.seen()

    def step(self, action: str) -> tuple[str, float, bool]:
        """Answer.

        Raises:
            ParamError: if it was answered before.
        """
        if self._answer is not None:
            raise ParamError("the question was answered", hint="The episode is over")
        self._answer = action
        self.cost.environment_steps += 1
        return self.seen(), self._score(action.strip()), True

    def actions(self) -> list[str] | None:
        """Return None, as any text is an answer; nothing where there was one."""
        return None if self._answer is None else []

    def steps_left(self) -> int:
        """Return 1 before the answer."""
        return int(self._answer is None)

    def reseed(self, seed: int) -> None:
        """Nothing here is left to chance."""

    def seen(self) -> str:
        """Return the question."""
        return str(self._item["question"])

    def key(self) -> str:
        """Return the question, and the answer once there is one."""
        return self.seen() if self._answer is None else f"{self.seen()}\n\nAnswer: {self._answer}"

    def snapshot(self) -> Any:
        """Return the answer, None before it."""
        self.cost.snapshots += 1
        return (self._answer,)

    def restore(self, token: Any) -> str:
        """Go back to a snapshot, which stays usable."""
        self.cost.restores += 1
        (self._answer,) = token
        return self.seen()
