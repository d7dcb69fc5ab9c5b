"""Segments of SPO: where a new one begins, what the states there are worth, and trees of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from accredit.data import Batch
from accredit.errors import ParamError
from accredit.index import Index, step_entropy
from accredit.planners.asking import Answer, Request
from accredit.planners.growing import places_before
from accredit.planners.treemem import Cuts, FanOut
from accredit.typing import Ints

__all__ = ["SegmentValues", "cut_points", "cut_steps", "length_steps", "spo_tree"]


def cut_points(logprobs: Iterable[float], every: int = 5, below: float = 0.9) -> list[int]:
    """Return the cut points of one text: -1, and each token that is the ``every``-th uncertain one since.

    A token is uncertain if it was sampled with a probability under ``below``.  No cut is made after
    the last token: there the outcome is known.

    Args:
        logprobs: of its tokens, nats.
        every: uncertain tokens a segment.
        below: probability.

    Raises:
        ParamError: for ``every`` below 1 or a probability outside [0, 1].

    Source: arXiv 2505.23564.

    Example:
        >>> cut_points([-1.0, 0.0, -1.0, -1.0, -1.0, -1.0], every=2)
        [-1, 2, 4]
    """
    if every < 1 or not 0 <= below <= 1:
        raise ParamError(f"every must be >= 1 and below in [0, 1], got {every} and {below}")
    uncertain = np.exp(np.asarray(list(logprobs), np.float64)) < below
    found = np.flatnonzero(uncertain)[every - 1 :: every]
    return [-1, *found[found < uncertain.size - 1].tolist()]


def cut_steps(index: Index, every: int = 5, below: float = 0.9) -> Ints:
    """Return the steps that begin a segment: the first of each rollout, and each step after a cut point.

    A cut point inside a step moves to the step's end, from where a continuation can be played.  A
    step without token log-probabilities counts as one token, of minus its entropy.

    Args:
        index: of the batch.
        every: uncertain tokens a segment.
        below: probability under which a token is uncertain.
    """
    batch = index.batch
    entropy = step_entropy(index)[0]
    told = np.zeros(batch.n_steps, bool)
    if batch.has("logprob_T"):
        told = batch.column("logprob_T").mask(batch.n_steps) & (index.tokens_S > 0)
    found: list[int] = []
    for r in range(len(batch)):
        logprobs: list[float] = []
        owner: list[int] = []
        for s in batch.steps_of(r):
            inside = slice(int(batch.token_start_S1[s]), int(batch.token_start_S1[s + 1]))
            own = batch.logprob_T[inside].tolist() if told[s] else [-float(entropy[s])]
            logprobs += own
            owner += [s] * len(own)
        cuts = cut_points(logprobs, every, below)[1:] if owner else []
        found += [*owner[:1], *(owner[c] + 1 for c in cuts if owner[c] + 1 in batch.steps_of(r))]
    return np.unique(np.array(found, np.int64))


def length_steps(index: Index, tokens: int = 30) -> Ints:
    """Return the steps that begin a segment of at least so many tokens; the last of a rollout may be shorter.

    A segment ends with the step in which it reaches the length.  A step without tokens counts as one.

    Args:
        index: of the batch.
        tokens: length of a segment, at least 1.

    Raises:
        ParamError: for a length below 1.

    Example:
        >>> records = [{"id": "a", "group": "g", "steps": [{"n_tokens": n} for n in (2, 2, 5, 1)]}]
        >>> length_steps(Index(Batch.from_records(records)), 3).tolist()
        [0, 2, 3]
    """
    if tokens < 1:
        raise ParamError(f"tokens must be >= 1, got {tokens}")
    found: list[int] = []
    for r in range(len(index.batch)):
        length = tokens  # a rollout begins a segment
        for s in index.batch.steps_of(r):
            if length >= tokens:
                found.append(s)
                length = 0
            length += max(int(index.tokens_S[s]), 1)
    return np.array(found, np.int64)


def spo_tree(
    starts: Mapping[str, int],
    sizes: Sequence[int] = (6, 6, 6),
    *,
    cuts: Cuts = length_steps,
    policy: str = "actor",
    max_steps: int | None = None,
) -> FanOut:
    """Return SPO-tree's planner: six segments from the prompt, six after each, six more to the end.

    The last level goes on to the end.  The first child of a segment is the rest of the continuation
    that made it, so that 6 + 36 + 216 segments cost 6 + 30 + 180 = 216 continuations and no step is
    paid twice; `spo` reads the tree that comes back.

    Args:
        starts: task -> seed of its episode's start.
        sizes: children at each level.
        cuts: where the segments of the upper levels end: 30 tokens each; or ``cut_steps``, which cuts
            where the policy was uncertain.
        policy: name of the policy that plays.
        max_steps: of each continuation.

    Source: arXiv 2505.23564; AIFrameResearch/SPO (fan-out 6-6-6, 30 tokens a segment).

    Example:
        >>> planner = spo_tree({"a task": 0}, cuts=cut_steps)
        >>> [(request.k, request.purpose) for request in planner.ask()]
        [(6, 'spo-tree')]
    """
    return FanOut(starts, sizes, cuts=cuts, policy=policy, max_steps=max_steps, purpose="spo-tree")


class SegmentValues:
    """Asks for the value at each cut point, and writes it where `spo-chain` reads it.

    Args:
        batch: rollouts whose steps carry every action.
        k: continuations a cut point.
        every: uncertain tokens a segment.
        below: probability under which a token is uncertain.
        policy: name of the policy that goes on.
    """

    def __init__(
        self, batch: Batch, k: int = 9, *, every: int = 5, below: float = 0.9, policy: str = "actor"
    ) -> None:
        if k < 1:
            raise ParamError(f"k must be >= 1, got {k}")
        index = Index(batch)
        self._index, self._k, self._policy = index, k, policy
        self._steps = cut_steps(index, every, below)
        self._answers: tuple[Answer, ...] | None = None

    def ask(self) -> Sequence[Request]:
        """Return all requests at once."""
        if self._answers is not None:
            return ()
        places = places_before(self._index, self._steps)
        return [Request(p, self._k, self._policy, arm="cut", purpose="spo-chain") for p in places]

    def tell(self, answers: Sequence[Answer]) -> None:
        """Take the answers."""
        self._answers = tuple(answers)

    def filled(self) -> Batch:
        """Return the rollouts with `cutpoints` and `cutpoint_values` at the steps that begin a segment.

        A value is what was paid before the step and the mean of the continuations; None where none
        came back.
        """
        index, batch = self._index, self._index.batch
        answers = self._answers or ()
        paid = np.cumsum(index.paid_S) - index.paid_S
        paid = paid - paid[batch.step_start_R1[:-1][index.rollout_S]] if paid.size else paid
        points, values = np.full(batch.n_steps, None), np.full(batch.n_steps, None)
        counts: Counter[str] = Counter()
        for s, answer in zip(self._steps[: len(answers)].tolist(), answers, strict=True):
            points[s] = [-1]
            values[s] = [None if answer.mean is None else float(paid[s]) + answer.mean]
            counts.update(answer.counts())
        made = {"by": "SegmentValues", "k": self._k, "policy": self._policy, "statuses": dict(counts)}
        return batch.with_column("cutpoints", points, made).with_column("cutpoint_values", values, made)
