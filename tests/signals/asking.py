"""Rollouts with whole prompts, as strategies, and what a fake model says of them by plain loops."""

from __future__ import annotations

import math

import numpy as np
from hypothesis import strategies as st

VOCABULARY = 7
ids = st.integers(0, VOCABULARY - 1)


@st.composite
def rollouts(draw, max_rollouts=3, max_steps=4):
    """Records with `prompt_tokens` at every step: they go on from the call before, or begin afresh."""
    found = []
    for r in range(draw(st.integers(1, max_rollouts))):
        steps, seen = [], []
        for t in range(draw(st.integers(1, max_steps))):
            if t and draw(st.booleans()):
                prompt = seen + draw(st.lists(ids, max_size=3))
            else:
                prompt = draw(st.lists(ids, min_size=1, max_size=4))
            tokens = draw(st.lists(ids, max_size=3))
            steps.append({"prompt_tokens": prompt, "tokens": tokens})
            seen = prompt + tokens
        found.append({"id": f"r{r}", "group": "g", "reward": float(r), "steps": steps})
    return found


def distribution(fake, prefix, temperature=1.0):
    """The fake model's next-token probabilities after some ids, float64, one number at a time."""
    width = len(fake.carry)
    state = [0.0] * width
    for token in prefix:
        carried = [sum(fake.carry[i][j] * state[j] for j in range(width)) for i in range(width)]
        state = [math.tanh(carried[i] + fake.embedding[token][i]) for i in range(width)]
    logits = [sum(float(row[i]) * state[i] for i in range(width)) / temperature for row in fake.head]
    total = sum(math.exp(z) for z in logits)
    return [math.exp(z) / total for z in logits], state


def said(fake, records):
    """Log-probability, entropy, gradient norm and state at each policy token, by plain loops."""
    rows = []
    for record in records:
        for step in record["steps"]:
            for i, token in enumerate(step["tokens"]):
                prefix = step["prompt_tokens"] + step["tokens"][:i]
                p, before = distribution(fake, prefix, fake.temperature)
                entropy = -sum(q * math.log(q) for q in p)
                square = sum(((v == token) - q) ** 2 for v, q in enumerate(p))
                at = distribution(fake, [*prefix, token])[1]
                rows.append((math.log(p[token]), entropy, square, before, at))
    return [np.array(column) for column in zip(*rows, strict=True)] if rows else [np.zeros(0)] * 5
