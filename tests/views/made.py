"""Made-up rollouts of a small house: shared states, values, tokens, text; and a value-difference result."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from typing import Any

import numpy as np

from accredit.data import Batch, Credit, Explanation, Finding, MethodCard, Parts, Term

ROOMS = ("kitchen", "hall", "cellar", "attic", "garden", "study", "vault", "porch")
VERBS = (
    "go north",
    "go east",
    "take the brass key",
    "open the oak door",
    "look around",
    "read the note",
    "drop the lamp",
    "unlock the chest",
)
WORDS = (
    "old",
    "table",
    "window",
    "door",
    "brass",
    "key",
    "lamp",
    "dust",
    "stone",
    "stair",
    "light",
    "shelf",
    "letter",
    "chest",
    "wall",
    "rug",
)


def records(
    groups: int = 4, rollouts: int = 8, steps: int = 9, tokens: int = 6, seed: int = 3
) -> Iterator[dict[str, Any]]:
    """Yield rollouts that win when they take the key early; lengths vary, states recur."""
    chance = random.Random(seed)
    for g in range(groups):
        rooms = {room: _describe(chance, room) for room in ROOMS}
        for r in range(rollouts):
            yield _rollout(
                chance,
                rooms,
                f"game-{g:02d}",
                f"g{g:02d}-r{r:02d}",
                max(1, steps - chance.randrange(max(1, steps // 2))),
                tokens,
                g,
            )


def made(groups: int = 4, rollouts: int = 8, steps: int = 9, tokens: int = 6, seed: int = 3) -> Batch:
    """Return the rollouts of :func:`records` as a batch."""
    return Batch.from_records(records(groups, rollouts, steps, tokens, seed))


def value_result(batch: Batch, *, broken: bool = False) -> Credit:
    """Return V(after) - V(before) as a result; ``broken`` halves it, so that the bars do not add up."""
    value, start = batch.value_S, batch.step_start_R1
    after = np.append(value[1:], 0.0)
    for r in range(len(batch)):
        if start[r + 1] > start[r]:
            after[start[r + 1] - 1] = batch.reward_R[r]
    steps = (after - value) * (0.5 if broken else 1.0)
    return result(batch, steps, "values", needs=frozenset({"reward", "value"}))


def token_result(batch: Batch, seed: int = 0) -> Credit:
    """Return a result whose tokens differ inside a turn."""
    chance = np.random.default_rng(seed)
    tokens = np.round(chance.normal(size=batch.n_tokens), 1)
    owner = np.repeat(np.arange(batch.n_steps), np.diff(batch.token_start_S1))
    steps = np.bincount(owner, tokens, minlength=batch.n_steps)
    return result(batch, steps, "tokenwise", tokens=tokens)


def result(
    batch: Batch, steps: Any, name: str, *, tokens: Any = None, needs: frozenset[str] = frozenset({"reward"})
) -> Credit:
    """Return a hand-made result with two parts and an explanation."""
    half = steps / 2
    owner = np.repeat(np.arange(batch.n_steps), np.diff(batch.token_start_S1))
    rollout_S = np.repeat(np.arange(len(batch)), np.diff(batch.step_start_R1))

    def explain(step: int) -> Explanation:
        r = int(rollout_S[step])
        term = Term("whole", float(steps[step]), "after - before", {"after": 1.0, "before": 0.5})
        return Explanation(
            name, batch.ids[r], step - int(batch.step_start_R1[r]), float(steps[step]), (term,)
        )

    card = MethodCard(name, f"made-up {name}", needs, "step", frozenset(), "none", ())
    parts = Parts(
        steps,
        parts={"first": half, "second": steps - half},
        findings=(Finding("ACC900", "info", "made up", f"rollout {batch.ids[0]!r} step 1"),),
        explain=explain,
    )
    return Credit(batch, card, {"gamma": 1.0}, parts, lambda: steps[owner] if tokens is None else tokens)


def _rollout(
    chance: random.Random, rooms: dict[str, str], group: str, name: str, n: int, tokens: int, g: int
) -> dict[str, Any]:
    room = ROOMS[0]
    found, steps = False, []
    for t in range(n):
        action = chance.choice(VERBS)
        before = room
        found = found or (action == "take the brass key" and t < n * 2 // 3)
        if action.startswith("go"):
            room = chance.choice(ROOMS)
        steps.append(_step(chance, rooms, before, room, action, found, tokens, n - t))
    wins = found and g % 4 != 3
    return {
        "id": name,
        "group": group,
        "reward": 1.0 if wins else 0.0,
        "status": "finished",
        "steps": steps,
        "final_state": room,
    }


def _step(
    chance: random.Random,
    rooms: dict[str, str],
    before: str,
    room: str,
    action: str,
    found: bool,
    tokens: int,
    left: int,
) -> dict[str, Any]:
    count = max(1, tokens + chance.randrange(-tokens // 3 - 1, tokens // 3 + 1))
    value = 1 / (1 + math.exp(-((2.0 if found else -1.0) + chance.gauss(0, 0.3) - left / 10)))
    return {
        "state": f"in {before}, key {'held' if found else 'not held'}",
        "action": action,
        "text": f"I am in the {before}. I will {action}.",
        "observation": rooms[room],
        "tokens": [chance.randrange(50, 3000) for _ in range(count)],
        "value": round(value, 4),
    }


def _describe(chance: random.Random, room: str) -> str:
    body = " ".join(chance.choice(WORDS) for _ in range(80))
    return f"You are in the {room}. You see {body}."


HOSTILE = (
    "<script>window.pwned = 1</script>",
    "</script><script>window.pwned = 1</script>",
    "<img src=x onerror='window.pwned = 1'>",
    "\x1b[31mred\x1b[0m \x1b]0;title\x07 \x9b2J",
    "[bold red]markup[/] [link=file:///etc/passwd]x[/link]",
    "<!--",
    "]]>",
    "javascript:window.pwned=1",
    '=HYPERLINK("http://x")',
    "\u202egnp.exe",
    "lone \ud800 surrogate"[:5],
    "\u0000null",
    "&lt;b&gt;",
)


def hostile_records() -> list[dict[str, Any]]:
    """Return rollouts in which every text that an environment or a model writes is an attack."""
    rows = []
    for r, text in enumerate(HOSTILE * 2):
        steps = [
            {
                "state": text,
                "action": text,
                "text": text,
                "observation": text,
                "agent": text,
                "tokens": [1, 2],
            }
        ] * 2
        rows.append(
            {
                "id": f"{text} {r}",
                "group": f"group {HOSTILE[r % 6]}",
                "reward": float(r // 6 % 2),
                "steps": steps,
            }
        )
    return rows
