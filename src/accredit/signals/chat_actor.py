"""A model behind an OpenAI-compatible chat endpoint that plays by saying what it does."""

from __future__ import annotations

import hashlib
import re
import string
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np

from accredit.errors import ParamError
from accredit.signals.client import Client, Limits
from accredit.signals.speaking import SEEDS, ChatServer, Usage
from accredit.worlds.acting import Choice, Scene

__all__ = ["ChatActor", "Wording", "action_meant"]


@dataclass(frozen=True, slots=True)
class Wording:
    """How a scene becomes a chat.

    Args:
        system: message that says what the game is.
        user: the other message: ``{seen}`` what the world shows, ``{history}`` the last actions in a
            paragraph (nothing where there are none), ``{actions}`` what can be done, in a paragraph
            (nothing where that is free text, or what is seen says it already).
        history: number of last actions that are told; 0 makes the policy a function of what is seen.

    Raises:
        ParamError: if ``user`` has no ``{seen}``, or a name that is not one of the three.

    Example:
        >>> scene = Scene("g", "s", "A hall.", ("north", "south"), ("north",))
        >>> print(Wording(history=1).messages(scene)[1]["content"])
        A hall.
        <BLANKLINE>
        Your last actions: north
        <BLANKLINE>
        Possible actions: north, south
        <BLANKLINE>
        What do you do next? Reply with one possible action and nothing else.
    """

    system: str = "You are playing a game. Reply with one action."
    user: str = (
        "{seen}\n\n{history}{actions}What do you do next? Reply with one possible action and nothing else."
    )
    history: int = 0

    def __post_init__(self) -> None:
        try:
            names = {name for _, name, _, _ in string.Formatter().parse(self.user) if name is not None}
            self.user.format(seen="", history="", actions="")
        except (ValueError, LookupError, AttributeError) as error:
            raise ParamError(f"user cannot be read: {error}", hint="A brace itself is {{ or }}") from None
        if "seen" not in names or names - {"seen", "history", "actions"}:
            raise ParamError(f"user names {sorted(names)}", hint="{seen}, and maybe {history}, {actions}")
        if self.history < 0:
            raise ParamError(f"history must be >= 0, got {self.history}")

    @property
    def fingerprint(self) -> str:
        """Hash of all of it."""
        text = "\0".join((self.system, self.user, str(self.history)))
        return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:12]

    def messages(self, scene: Scene) -> list[dict[str, str]]:
        """Return the chat of a scene.

        Args:
            scene: what the actor knows.
        """
        last = scene.history[-self.history :] if self.history else ()
        options = scene.actions or ()
        untold = options if any(action not in scene.seen for action in options) else ()
        told = {
            "seen": scene.seen,
            "history": f"Your last actions: {', '.join(last)}\n\n" if last else "",
            "actions": f"Possible actions: {', '.join(untold)}\n\n" if untold else "",
        }
        return [
            {"role": "system", "content": self.system},
            {"role": "user", "content": self.user.format(**told)},
        ]


class ChatActor:
    """Plays by asking a chat model what it does, one request a scene, ``limits.concurrency`` at a time.

    The seed of each request is drawn from the scene's generator, so that a server which honours seeds
    plays the same again.  An answer that means none of the possible actions is played as it stands,
    and the world refuses it: the policy gave an illegal action, counted in ``unmapped``.  The key, if
    there is one, is ``ACCREDIT_API_KEY`` or ``OPENAI_API_KEY`` of the environment.

    Args:
        url: with or without ``/v1`` at its end.
        model: its name there.
        wording: how a scene becomes a chat.
        temperature: of sampling, >= 0.
        max_tokens: of an answer.
        limits: retries, timeout, concurrency, budgets; the budget of tokens is of those that the
            server says it read, looked at before each request.

    Raises:
        ParamError: for a URL or a setting that is none.

    Example:
        >>> ChatActor("http://localhost:8000/v1", "org/tiny").version
        'chat:org/tiny:T=1:max=32:prompt=bda8b94ddac5'
    """

    def __init__(
        self,
        url: str,
        model: str,
        *,
        wording: Wording | None = None,
        temperature: float = 1.0,
        max_tokens: int = 32,
        limits: Limits | None = None,
    ) -> None:
        self.server = ChatServer(url, model, temperature=temperature, max_tokens=max_tokens, limits=limits)
        self.wording = wording or Wording()
        self.unmapped = 0
        self._lock = threading.Lock()
        self.version = f"{self.server.version}:prompt={self.wording.fingerprint}"

    @property
    def client(self) -> Client:
        """Who sends; its ``spent`` counts attempts."""
        return self.server.client

    @property
    def usage(self) -> Usage:
        """Answers and tokens, as the server counts them."""
        return self.server.usage

    def act(self, scenes: Sequence[Scene], rngs: Sequence[np.random.Generator]) -> Sequence[Choice]:
        """Return what the model does in each scene.

        Raises:
            BackendError: if the server gives no answer after all retries, or one that is none.
            BudgetExceeded: if a budget is spent.
        """
        seeds = [int(rng.integers(SEEDS)) for rng in rngs]
        pool = ThreadPoolExecutor(self.client.limits.concurrency, "accredit-chat")
        try:
            return list(pool.map(self._one, scenes, seeds))
        finally:
            pool.shutdown(wait=True, cancel_futures=True)

    def _one(self, scene: Scene, seed: int) -> Choice:
        said = self.server.say(self.wording.messages(scene), seed)
        action = action_meant(said.text, scene.actions)
        with self._lock:
            self.unmapped += scene.actions is not None and action not in scene.actions
        return Choice(action, tokens=said.tokens)


def action_meant(text: str, actions: Sequence[str] | None) -> str:
    """Return the possible action that an answer means, or the answer as it stands.

    The answer without spaces around it is compared letter by letter, then without case, punctuation
    and width of spaces; where two actions are alike after that, it means neither.

    Args:
        text: what the model said.
        actions: what can be done; None = free text.

    Example:
        >>> action_meant(' "Go north."', ["go north", "go south"]), action_meant("fly", ["go north"])
        ('go north', 'fly')
    """
    said = text.strip()
    if actions is None or said in actions:
        return said
    wanted = _plain(said)
    alike = [action for action in actions if wanted and _plain(action) == wanted]
    return alike[0] if len(alike) == 1 else said


def _plain(text: str) -> str:
    return " ".join(re.findall(r"\w+", text.casefold()))
