"""Checks of policy tokens and of what is trained."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from accredit.data import Finding
from accredit.findings.codes import CODES
from accredit.findings.scene import Check, Scene

__all__ = ["CHECKS"]


def _tokenless(scene: Scene) -> Iterator[Finding]:
    batch, index = scene.batch, scene.index
    if not batch.n_steps:
        return
    if not batch.n_tokens:
        yield CODES["ACC304"].finding("no step has policy tokens, so there is credit for steps only")
        return
    without = (index.tokens_R == 0) & (index.steps_R > 0)
    yield from scene.rollouts("ACC303", without, "{n} with steps and without policy tokens")


def _ids(scene: Scene) -> Iterator[Finding]:
    batch = scene.batch
    ids = batch.columns.get("token_T")
    if ids is not None and ids.values.min(initial=0) < 0:
        lowest = int(ids.values.min())
        yield from scene.tokens("ACC310", ids.values < 0, f"{{n}} with a negative id (lowest {lowest})")
    context = batch.columns.get("context_token_C")
    if context is not None and batch.context_start_S1 is not None and context.values.min(initial=0) < 0:
        at = np.searchsorted(batch.context_start_S1, np.flatnonzero(context.values < 0), side="right") - 1
        mask = np.zeros(batch.n_steps, bool)
        mask[at] = True
        yield from scene.steps("ACC310", mask, "{n} with negative context token ids")


def _trainable(scene: Scene) -> Iterator[Finding]:
    index = scene.index
    counted = index.tokens_S > 0
    if not counted.any():
        return
    if not (index.trainable_S & counted).any():
        yield CODES["ACC311"].finding(f"none of the {scene.batch.n_tokens} policy tokens is trained")
        return
    off = counted & ~index.trainable_S & ~index.has_status("rejected")[index.rollout_S]
    yield from scene.steps("ACC317", off, "{n} credited and not trained")


CHECKS: tuple[Check, ...] = (_tokenless, _ids, _trainable)
