"""Checks of rewards: scored, spread, scale, and step rewards against the outcome."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from accredit.data import Finding
from accredit.findings.codes import CODES
from accredit.findings.scene import Check, Scene
from accredit.findings.ties import zero_spread
from accredit.index import segment_sum
from accredit.index.rewards import COMPONENT

__all__ = ["CHECKS"]

# A reward this many times the median of the others decides every mean and deviation it is in.
_DWARFS = 100
_FEWEST_FOR_SCALE = 5


def _unscored(scene: Scene) -> Iterator[Finding]:
    index, n = scene.index, len(scene.batch)
    if n and not scene.scored_R.any():
        hint = ""
        if any(name.startswith(COMPONENT) for name in scene.batch.columns):
            hint = "Give `reward`, or a method that combines `rewards`: combine='sum_then_normalize'."
        elif scene.batch.has("reward_S"):
            hint = (
                "Step rewards alone are no outcome: give their sum, or what the verifier said, in `reward`."
            )
        yield CODES["ACC204"].finding(f"none of the {n} rollouts has a reward that counts", mend=hint)
        return
    missing = ~scene.scored_R & ~index.has_status("rejected")
    yield from scene.rollouts("ACC201", missing, "{n} without a reward: out of all statistics, credit 0")


def _failed(scene: Scene) -> Iterator[Finding]:
    failed = scene.index.has_status("failed") & scene.scored_R
    yield from scene.rollouts("ACC205", failed, "{n} failed and with a reward, which counts")


def _adding_up(scene: Scene) -> Iterator[Finding]:
    batch, index = scene.batch, scene.index
    if not (batch.has("reward_S") and batch.has("reward_R")):
        return
    paid_R = segment_sum(index.paid_S, index.rollout_S, len(batch))
    nonzero_R = segment_sum(index.paid_S != 0, index.rollout_S, len(batch)) > 0
    given_R = segment_sum(scene.present("reward_S"), index.rollout_S, len(batch)) > 0
    apart_R = np.abs(paid_R - index.outcome_R) > 1e-9 * np.maximum(1, np.abs(index.outcome_R))
    judged_R = given_R & index.scored_R
    told = int((judged_R & nonzero_R).sum())
    off = judged_R & apart_R
    if not told:
        return
    if index.outcome_in_steps:
        yield CODES["ACC210"].finding(
            f"step rewards add up to the outcome in all {int(judged_R.sum())} scored rollouts that have "
            "them, so the outcome is not added again"
        )
    elif 2 * int((judged_R & nonzero_R & ~apart_R).sum()) > told:
        yield from scene.rollouts(
            "ACC208",
            off,
            "{n} whose step rewards do not add up to the outcome, as they do in most; it comes on top in all",
        )
    else:
        yield from scene.rollouts(
            "ACC209",
            off,
            "{n} whose step rewards do not add up to the outcome, so it is added to the last step",
        )


def _spread(scene: Scene) -> Iterator[Finding]:
    score, counted = scene.score_R, scene.counted_R
    kinds = scene.ties
    for code, mask, what in (
        ("ACC211", kinds.all_pass, "all pass"),
        ("ACC212", kinds.all_fail, "all fail"),
        ("ACC213", kinds.tie, "all tie in between"),
    ):
        yield from scene.groups(code, mask, f"{{n}} in which {what}: outcome methods give 0 there")
    short = (kinds.single | kinds.empty) & (scene.group_size_G > 1) & counted.any()
    yield from scene.groups("ACC218", short, "{n} with several rollouts and at most one that counts")
    if kinds.mixed.any() or np.count_nonzero(counted) < 2:
        return
    whole = zero_spread(score, np.zeros(score.size, np.int64), 1, counted)
    if not whole.mixed.any():
        level = float(score[counted][0])
        yield CODES["ACC215"].finding(
            f"all {int(counted.sum())} counted rollouts have the same return, {level:.6g}"
        )
    elif (kinds.all_pass | kinds.all_fail | kinds.tie).any():
        yield CODES["ACC214"].finding(
            "returns differ between groups and in no group: methods that compare a group give 0 everywhere"
        )


def _scale(scene: Scene) -> Iterator[Finding]:
    size_R = np.abs(scene.index.outcome_R)
    size = size_R[(size_R > 0) & scene.counted_R]
    if size.size < _FEWEST_FOR_SCALE:
        return
    largest = float(size.max())
    middle = float(np.median(size / largest)) * largest  # scaled: the mean of two middles may overflow
    if largest / _DWARFS > middle:
        big = scene.counted_R & (size_R / _DWARFS > middle)
        ratio = largest / middle if middle > 0 else np.inf
        yield from scene.rollouts(
            "ACC216",
            big,
            f"{{n}} with a reward of up to {largest:.6g}, {ratio:.6g} times the median {middle:.6g}",
        )


def _components(scene: Scene) -> Iterator[Finding]:
    for name in scene.batch.columns:
        if name.startswith(COMPONENT):
            there = scene.present(name)
            text = f"{{n}} without the reward component {name[8:-2]!r}"
            yield from scene.rollouts("ACC217", ~there & scene.scored_R, text)


def _overflow(scene: Scene) -> Iterator[Finding]:
    text = "{n} with a return too large for a float"
    yield from scene.rollouts("ACC219", ~np.isfinite(scene.score_R), text)


CHECKS: tuple[Check, ...] = (_unscored, _failed, _adding_up, _spread, _scale, _components, _overflow)
