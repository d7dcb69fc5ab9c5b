"""Checks of signals: log-probabilities, entropies, values, extra signals, and where they are missing."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from accredit.data import Column, Finding
from accredit.findings.codes import CODES
from accredit.findings.scene import Check, Scene
from accredit.typing import Array, BoolArray

__all__ = ["CHECKS"]

# Low-precision softmax rounds a certain token's log-probability to a little above 0.
_ROUNDING = 1e-3
_LOWEST_LOGPROB = -100.0
# ln(2^20): a uniform choice among a million tokens.
_HIGHEST_ENTROPY = 20 * float(np.log(2))
# Known for a step or not at all; step rewards and texts are rightly absent on some.
_SHOULD_BE_WHOLE = ("token_T", "logprob_T", "entropy_T", "token_value_T", "value_S", "prm_logratio_T")


def _logprobs(scene: Scene) -> Iterator[Finding]:
    found = _known(scene, "logprob_T")
    if found is None:
        return
    values = found.values
    high, low = float(values.max(initial=0)), float(values.min(initial=0))
    if high > _ROUNDING:
        odds = "; they look like probabilities" if low >= 0 and high <= 1 else ""
        yield from scene.tokens(
            "ACC305", values > _ROUNDING, f"{{n}} with a log-probability above 0 (highest {high:.6g}){odds}"
        )
    if low < _LOWEST_LOGPROB:
        text = f"{{n}} with a log-probability below {_LOWEST_LOGPROB:g} nats (lowest {low:.6g})"
        yield from scene.tokens("ACC312", values < _LOWEST_LOGPROB, text)
    if high == low == 0 and values.size > 1:
        yield CODES["ACC307"].finding(f"all {values.size} log-probabilities are 0")


def _entropies(scene: Scene) -> Iterator[Finding]:
    found = _known(scene, "entropy_T")
    if found is None:
        return
    values = found.values
    high, low = float(values.max(initial=0)), float(values.min(initial=0))
    if low < -_ROUNDING:
        text = f"{{n}} with an entropy below 0 (lowest {low:.6g})"
        yield from scene.tokens("ACC308", values < -_ROUNDING, text)
    if high > _HIGHEST_ENTROPY:
        text = f"{{n}} with an entropy above {_HIGHEST_ENTROPY:.1f} nats (highest {high:.6g})"
        yield from scene.tokens("ACC309", values > _HIGHEST_ENTROPY, text)
    if high == low == 0 and values.size > 1:
        yield CODES["ACC316"].finding(f"all {values.size} entropies are 0")


def _known(scene: Scene, name: str) -> Column | None:
    column = scene.batch.columns.get(name)
    return column if column is not None and column.values.size else None


def _values(scene: Scene) -> Iterator[Finding]:
    index = scene.index
    scored_S = index.scored_R[index.rollout_S]
    names = [n for n in ("value_S", "token_value_T", "final_value_R") if scene.batch.has(n)]
    if not names or not scored_S.any():
        return
    returns = index.return_S(1.0)[scored_S]
    low, high = min(0.0, float(returns.min())), max(0.0, float(returns.max()))
    room = max(high - low, 1e-9)
    bounds = f"in [{low:.6g}, {high:.6g}]"
    for name in names:
        values = scene.batch.column(name).values
        if values.min(initial=0) >= low - room and values.max(initial=0) <= high + room:
            continue
        far = ((values < low - room) | (values > high + room)) & _present_at(scene, name)
        place = {"S": scene.steps, "T": scene.tokens, "R": scene.rollouts}[name[-1]]
        worst = float(values[far][np.abs(values[far]).argmax()]) if far.any() else 0.0
        text = f"{{n}} with a {name[:-2]} far outside the returns ({bounds}, the furthest is {worst:.6g})"
        yield from place("ACC315", far, text)


def _present_at(scene: Scene, name: str) -> BoolArray:
    there = scene.present(name)
    return there[scene.index.step_T] if name.endswith("_T") else there


def _gaps(scene: Scene) -> Iterator[Finding]:
    spoken = scene.index.tokens_S > 0
    for name in _SHOULD_BE_WHOLE:
        column = scene.batch.columns.get(name)
        if column is None or column.valid is None:
            continue
        need = spoken if column.level == "token" else np.ones(scene.batch.n_steps, bool)
        text = f"{{n}} without {name[:-2]}, which others have"
        yield from scene.steps("ACC313", need & ~column.valid, text)


def _mixed_kinds(scene: Scene) -> Iterator[Finding]:
    for name, column in scene.batch.columns.items():
        if not column.is_json or name.startswith("metadata_"):
            continue
        there = scene.present(name)
        kinds = _kinds(column.values[there])
        if len(set(kinds) & {"number", "text"}) and len(kinds) > 1:
            where = "rollouts" if column.level == "rollout" else "steps"
            yield CODES["ACC314"].finding(
                f"signal {name[:-2]!r} holds {' and '.join(sorted(kinds))} in {int(there.sum())} {where}",
                count=int(there.sum()),
            )


def _kinds(values: Array) -> set[str]:
    known = {bool: "true/false", int: "number", float: "number", str: "text", dict: "object"}
    found = set()
    for kind in set(map(type, values.tolist())):
        found.add(known.get(kind, "list"))
    return found


CHECKS: tuple[Check, ...] = (_logprobs, _entropies, _values, _gaps, _mixed_kinds)
