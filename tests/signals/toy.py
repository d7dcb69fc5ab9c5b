"""A tokenizer small enough to know by heart, with special tokens and ambiguous merges, and prompts for it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from accredit.data import Batch
from accredit.signals.fake import FakeBackend

SPECIAL = ("<|im_start|>", "<|im_end|>")
MERGES = ("\n\n", "ing ", "ha", "the ", "ve", "user", "system", "assistant")
FIRST_BYTE = 1 + len(SPECIAL) + len(MERGES)
SIZE = FIRST_BYTE + 256


class Toy:
    """Greedy longest match over special tokens, a few merges, then bytes; id 0 is never given."""

    def __init__(self, special: Sequence[str] = SPECIAL) -> None:
        self.pieces = [*special, *MERGES]
        self.first_byte = 1 + len(self.pieces)

    def encode(self, text: str) -> np.ndarray:
        found: list[int] = []
        while text:
            piece = max((p for p in self.pieces if text.startswith(p)), key=len, default="")
            if piece:
                found.append(1 + self.pieces.index(piece))
            else:
                piece = text[0]
                found += [self.first_byte + b for b in piece.encode()]
            text = text[len(piece) :]
        return np.array(found, np.int64)

    def decode(self, ids) -> str:
        data = b"".join(
            self.pieces[i - 1].encode() if i < self.first_byte else bytes([i - self.first_byte])
            for i in np.asarray(ids).tolist()
        )
        return data.decode("utf-8", "replace")


class Remembering(FakeBackend):
    """A fake model whose every number depends on every token before, however far."""

    def states(self, ids: np.ndarray) -> np.ndarray:
        return np.sin(np.cumsum(self.embedding[ids % len(self.embedding)], axis=0)).astype(np.float32)


def apart(text: str) -> list[int]:
    """Return ids of a text that its tokenizer would not give: every byte alone."""
    return [FIRST_BYTE + b for b in text.encode()]


def chat(*messages: tuple[str, str], generation: bool = True) -> str:
    shown = "".join(f"<|im_start|>{role}\n{text}<|im_end|>\n" for role, text in messages)
    return shown + "<|im_start|>assistant\n" * generation


def record(name: str, prompts: Sequence[Any], answers: Sequence[str], **fields: Any) -> dict[str, Any]:
    """Return a rollout whose calls have prompts (texts or ids) and answers (texts; also the actions)."""
    toy = Toy()
    steps = [
        {
            "prompt_tokens": toy.encode(p).tolist() if isinstance(p, str) else list(p),
            "tokens": toy.encode(a).tolist(),
            "action": a.removesuffix("<|im_end|>"),
        }
        for p, a in zip(prompts, answers, strict=True)
    ]
    return {"id": name, "group": "g", "reward": 0.0, "steps": steps, **fields}


def batch(*records: dict[str, Any]) -> Batch:
    return Batch.from_records(records, strict=True)
