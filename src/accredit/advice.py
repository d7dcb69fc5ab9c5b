"""Which methods can work on these rollouts: what they lack, what they would gain, and why.

The gain is read off the benchmark: tasks whose rollouts look like these (as many revisited states,
groups of like size) say how much nearer to the truth than the outcome broadcast a method came there.
What the benchmark cannot know is checked on the rollouts: whether the critic, or the process
reward, says anything about what followed.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from importlib.resources import files
from typing import Any, TypeAlias

import numpy as np

from accredit.data import Batch, MethodCard
from accredit.data.vocabulary import ROLLOUT_FIELDS, STEP_FIELDS
from accredit.engine import Rollouts, as_batch, missing_needs
from accredit.index import Index, Key, key_column
from accredit.methods import catalog
from accredit.typing import Floats

__all__ = ["Advice", "Advised", "Traits", "advise", "traits_of"]

Evidence: TypeAlias = Sequence[Mapping[str, Any]]

BASELINE = "grpo"
WORTH = 0.005  # of NMSE: a smaller gain is no reason to change
_NEAR = (0.2, 0.7)  # what counts as alike: share of shared steps, log2 of group size
# What a method needs with its default parameters, though not with all.
_BY_DEFAULT = {"remax": "reward_baseline", "ibpo": "revision"}
_CAUTION = 0.5  # deviations of the gain over like tasks that are taken off it


@dataclass(frozen=True, slots=True)
class Traits:
    """What of some rollouts decides which methods can work.

    Args:
        groups: number of groups.
        group_size: mean rollouts a group.
        spread: share of groups whose outcomes differ.
        shared: share of steps whose state occurs in another rollout of the group, too.
        length: mean steps a rollout.
        critic: share of the variance of what followed a step that ``value`` explains (below 0: worse
            than a constant); None without values.
        process: correlation of a rollout's mean process score with its outcome; None without scores.
    """

    groups: int
    group_size: float
    spread: float
    shared: float
    length: float
    critic: float | None
    process: float | None


@dataclass(frozen=True, slots=True)
class Advised:
    """One method on these rollouts.

    Args:
        method: id.
        runs: whether it can run here.
        missing: what it lacks, as its card words it.
        gain: expected NMSE below grpo's, cautious (positive: nearer to the truth); None = no evidence.
        chance: ``good``, ``slight``, ``none`` or ``unknown``.
        reason: one sentence.
        unlock: what would make it run; "" if it runs.
    """

    method: str
    runs: bool
    missing: tuple[str, ...]
    gain: float | None
    chance: str
    reason: str
    unlock: str


@dataclass(frozen=True, slots=True)
class Advice:
    """Methods, the most promising that can run first; then those that could be made to run.

    Args:
        traits: of the rollouts.
        methods: ranked.
    """

    traits: Traits
    methods: tuple[Advised, ...]

    @property
    def first(self) -> Advised:
        """The method to begin with; grpo where nothing that runs promises more."""
        best = self.methods[0]
        if best.runs and best.chance in ("good", "slight"):
            return best
        return next((m for m in self.methods if m.method == BASELINE), best)

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as JSON-ready values."""
        return {"first": self.first.method, **asdict(self)}


def advise(
    rollouts: Rollouts,
    *,
    without: Sequence[str] = (),
    evidence: Evidence | None = None,
    key: Key | None = None,
) -> Advice:
    """Return which methods can run on rollouts, and which have a chance to beat the outcome broadcast.

    Args:
        rollouts: a Batch, a path, or an iterable of records.
        without: ids that are not to be advised.
        evidence: gains on task settings; default those of the committed benchmark run.
        key: which states count as the same, as in `assign`.

    Example:
        >>> records = [
        ...     {"id": f"{g}{r}", "group": g, "reward": r % 2, "steps": [{"state": f"{g}{r}", "n_tokens": 1}]}
        ...     for g in "ab" for r in range(4)
        ... ]
        >>> found = advise(records)
        >>> found.traits.shared, "crbc" in [m.method for m in found.methods if not m.runs]
        (0.0, True)
    """
    batch = as_batch(rollouts)
    traits = traits_of(batch, key)
    known = _evidence() if evidence is None else evidence
    cards = [card for card in catalog() if card.yields != "table" and card.id not in without]
    found = [_advised(batch, card, traits, known, key) for card in cards]
    found.sort(key=lambda m: (not m.runs, -(m.gain if m.gain is not None else -1.0), m.method))
    return Advice(traits, tuple(found))


def traits_of(batch: Batch, key: Key | None = None) -> Traits:
    """Return what of a batch decides which methods can work.

    Args:
        batch: the rollouts.
        key: which states count as the same, as in `assign`.
    """
    index = Index(batch, key)
    size_G = np.bincount(index.group_R, minlength=index.n_groups)
    return Traits(
        index.n_groups,
        float(size_G.mean()) if size_G.size else 0.0,
        _spread(index),
        _shared(index),
        float(index.steps_R.mean()) if len(batch) else 0.0,
        _critic(index),
        _process(index),
    )


def _spread(index: Index) -> float:
    if not index.n_groups:
        return 0.0
    low, high = np.full(index.n_groups, np.inf), np.full(index.n_groups, -np.inf)
    kept = index.scored_R
    np.minimum.at(low, index.group_R[kept], index.score_R[kept])
    np.maximum.at(high, index.group_R[kept], index.score_R[kept])
    return float(np.mean(high > low))


def _shared(index: Index) -> float:
    """Share of steps whose (group, state) occurs in at least two rollouts."""
    if not index.batch.has(key_column(index.batch, index.key)[0]) or not index.batch.n_steps:
        return 0.0
    anchor = index.anchor_S
    pairs = np.unique(anchor * len(index.batch) + index.rollout_S)
    rollouts = np.bincount(pairs // len(index.batch), minlength=int(anchor.max()) + 1)
    return float(np.mean(rollouts[anchor] > 1))


def _critic(index: Index) -> float | None:
    """1 - var(G - V) / var(G) over scored steps that have a value."""
    if not index.batch.has("value_S"):
        return None
    column = index.batch.column("value_S")
    kept = column.mask(index.batch.n_steps) & index.scored_R[index.rollout_S]
    followed = index.return_S(1.0)[kept]
    whole = float(followed.var()) if kept.any() else 0.0
    if not whole:
        return None
    return 1 - float((followed - column.values[kept]).var()) / whole


# Columns of process scores in which more is better, as far as one number a step can say.
_SCORES = ("prm_prob_S", "step_score_S", "progress_S")


def _process(index: Index) -> float | None:
    name = next((n for n in _SCORES if index.batch.has(n)), None)
    if name is None:
        return None
    kept = index.scored_R & (index.steps_R > 0)
    count = np.maximum(index.steps_R, 1)
    mean_R = np.bincount(index.rollout_S, index.batch.column(name).values, len(index.batch)) / count
    return _correlation(mean_R[kept], index.score_R[kept])


def _correlation(x: Floats, y: Floats) -> float | None:
    if x.size < 2 or not x.std() or not y.std():
        return None
    return float(np.corrcoef(x, y)[0, 1])


# A method that takes one of several signals was measured with these.
_MEASURED_WITH = {"prm": ("prm_prob_S", "prm_logits_S", "step_score_S")}


def _advised(batch: Batch, card: MethodCard, traits: Traits, evidence: Evidence, key: Key | None) -> Advised:
    missing = tuple(_missing(batch, card, traits, key))
    applies = card.id not in _MEASURED_WITH or any(batch.has(c) for c in _MEASURED_WITH[card.id])
    gain, alike = _gain(card.id, traits, evidence) if applies else (None, 0.0)
    doubt = _doubt(card, traits)
    if doubt:
        gain = min(0.0, gain) if gain is not None else 0.0
    chance = "unknown" if gain is None else "good" if gain >= 0.02 else "slight" if gain >= WORTH else "none"
    reason = doubt or _reason(card, traits, gain, alike)
    return Advised(card.id, not missing, missing, gain, chance, reason, _unlock(missing))


def _missing(batch: Batch, card: MethodCard, traits: Traits, key: Key | None) -> list[str]:
    found = missing_needs(batch, card, key)
    beyond = _BY_DEFAULT.get(card.id)
    if beyond is not None and not batch.has(f"{beyond}_R"):
        found.append(beyond)
    if "group" in card.tags and traits.group_size == 1 and len(batch) > 1:
        found.append("groups of two or more rollouts")
    return found


def _doubt(card: MethodCard, traits: Traits) -> str:
    """Why the rollouts themselves speak against a method; "" where they do not."""
    needs_value = any("value" in need.split("|") for need in card.needs)
    if needs_value and traits.critic is not None and traits.critic <= 0:
        return f"the values explain nothing of what followed (share {traits.critic:.2f}): noise as credit"
    if card.id == "prm" and traits.process is not None and traits.process <= 0:
        return f"process scores do not go with the outcome (correlation {traits.process:+.2f})"
    if traits.spread == 0 and "group" in card.tags:
        return "no group has different outcomes, so there is nothing to compare"
    return ""


def _reason(card: MethodCard, traits: Traits, gain: float | None, alike: float) -> str:
    if card.id == BASELINE:
        return "the outcome broadcast that the others are held against"
    if gain is None:
        return "not measured on the benchmark with the signals that are here"
    told = f"on like tasks of the benchmark NMSE {_change(gain)} (cautious; {alike:.0f} task settings)"
    if "cross_group" in card.tags:
        told += "; it compares across groups, which are of one task there"
    if "broadcast" in card.tags:
        return f"gives every step of a rollout the same number; {told}"
    if any("state" in need.split("|") for need in card.needs):
        return f"{traits.shared:.0%} of steps are at a state that another rollout of the group visits; {told}"
    if traits.critic is not None and any("value" in need.split("|") for need in card.needs):
        return f"the values explain {traits.critic:.0%} of the variance of what followed; {told}"
    return told


def _change(gain: float) -> str:
    return f"{abs(gain):.2f} below grpo's" if gain >= 0 else f"{abs(gain):.2f} above grpo's"


def _unlock(missing: Sequence[str]) -> str:
    """What would meet the needs, as the vocabulary knows it."""
    said = []
    for need in missing:
        known = [table[f] for f in need.split("|") for table in (ROLLOUT_FIELDS, STEP_FIELDS) if f in table]
        made = dict.fromkeys(f"{f.name} from {f.probe}" for f in known if f.probe)
        said.append(" or ".join(made) if made else f"{need.replace('|', ' or ')} in the records")
    return "; ".join(said)


@cache
def _evidence() -> Evidence:
    text = files("accredit").joinpath("evidence.json").read_text(encoding="utf-8")
    return tuple(json.loads(text)["points"])


def _gain(method: str, traits: Traits, evidence: Evidence) -> tuple[float | None, float]:
    """Cautious gain of a method on like tasks, and how many task settings they amount to."""
    if method == BASELINE:
        return 0.0, 0.0
    points = [p for p in evidence if method in p["gain"]]
    if not points:
        return None, 0.0
    weight = np.array([_likeness(p, traits) for p in points])
    gain = np.array([p["gain"][method] for p in points])
    total = float(weight.sum())
    mean = float(weight @ gain / total)
    spread = math.sqrt(float(weight @ (gain - mean) ** 2 / total))
    return mean - _CAUTION * spread, total**2 / float(weight @ weight)


def _likeness(point: Mapping[str, Any], traits: Traits) -> float:
    shared = (point["shared"] - traits.shared) / _NEAR[0]
    size = (math.log2(point["group_size"]) - math.log2(max(1.0, traits.group_size))) / _NEAR[1]
    return math.exp(-(shared**2 + size**2) / 2) + 1e-9
