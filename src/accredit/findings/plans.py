"""Checks of rollouts against the method that is to run on them."""

from __future__ import annotations

from collections.abc import Iterator

from accredit.data import Finding
from accredit.data.vocabulary import STEP_FIELDS
from accredit.findings.codes import CODES
from accredit.findings.scene import Check, Scene
from accredit.findings.states import RARE

__all__ = ["CHECKS"]


def _needs(scene: Scene) -> Iterator[Finding]:
    plan = scene.plan
    if plan is None:
        return
    if plan.missing:
        names = " and ".join(f"`{need.replace('|', '` or `')}`" for need in plan.missing)
        text = f"method {plan.card.id!r} needs {names}, which these rollouts lack"
        yield CODES["ACC401"].finding(text, mend=" ".join(_source(need) for need in plan.missing))
        return
    if "state" in plan.card.needs and scene.batch.n_steps:
        found = scene.revisits
        if found is not None and found.anywhere < RARE:
            yield CODES["ACC403"].finding(
                f"method {plan.card.id!r} compares visits to one state, and {found.anywhere:.2%} of the "
                "steps share their state with another step of their group"
            )


def _source(need: str) -> str:
    """Return what to give for a need, and who makes it."""
    names = need.split("|")
    makers = [f"{n} comes from {STEP_FIELDS[n].probe}" for n in names if _made(n)]
    return f"Give `{'` or `'.join(names)}`{': ' if makers else ''}{', '.join(makers)}."


def _made(name: str) -> bool:
    return name in STEP_FIELDS and bool(STEP_FIELDS[name].probe)


def _truncated(scene: Scene) -> Iterator[Finding]:
    mask = scene.index.has_status("truncated")
    yield from scene.rollouts("ACC206", mask, f"{{n}} truncated: {_truncated_policy(scene)}")


def _truncated_policy(scene: Scene) -> str:
    if scene.plan is None:
        return "methods count their reward as recorded, unless told truncated='drop'"
    name = scene.plan.card.id
    spec = next((p for p in scene.plan.card.params if p.name in ("truncated", "truncation")), None)
    if spec is None:
        return f"{name} counts their reward as recorded"
    policy = scene.param(spec.name)
    known = {"keep": "counts their reward as recorded", "drop": "leaves them out, credit 0"}
    if spec.name == "truncated" and policy in known:
        return f"{name} {known[policy]} (truncated={policy!r})"
    return f"{name} runs with {spec.name}={policy!r}: {spec.doc}"


def _rejected(scene: Scene) -> Iterator[Finding]:
    mask = scene.index.has_status("rejected")
    who = "every method" if scene.plan is None else scene.plan.card.id
    yield from scene.rollouts("ACC207", mask, f"{{n}} rejected: {who} leaves them out, credit and tokens 0")


CHECKS: tuple[Check, ...] = (_needs, _truncated, _rejected)
