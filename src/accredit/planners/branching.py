"""Continuations as branches: rollouts with `parent` and `fork_step` that share their beginning."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from accredit.data import Batch
from accredit.errors import DataError
from accredit.planners.asking import Answer, Outcome, Place, Request, Visit

__all__ = ["branched", "with_branches"]

_STATUS = {"truncated": "truncated", "illegal": "failed"}


def branched(
    answers: Iterable[Answer],
    records: Iterable[Mapping[str, Any]] = (),
    *,
    versions: Mapping[str, str] | None = None,
    outcome_in_steps: bool = False,
) -> list[dict[str, Any]]:
    """Return each recorded continuation as a rollout of its own, in native records.

    A continuation from step t of rollout i is the rollout that begins with i's steps 0 .. t-1
    (``parent`` = i, ``fork_step`` = t) and goes on as the continuation did.  A continuation from the
    start of an episode of no rollout has no parent.  Its score is what was paid before t plus the
    continuation's reward.  Outcomes that are no results become no rollouts; the same continuation
    told twice is one.

    Args:
        answers: to requests with ``record=True``.
        records: the rollouts that places name; branches of earlier rounds may be among them.
        versions: version of each policy, written as `policy_version` (``engine.crew.versions``).
        outcome_in_steps: whether the records' step rewards contain the outcome; then the branches'
            do too.  Else the reward of the last step is the `reward` of the branch, or the whole
            reward is where the records pay nothing at steps.

    Returns:
        Records with ids ``PARENT@STEP:ARM.REPLICATE`` and the seed of the episode's `start`;
        ``metadata["continuation"]`` says policy, seed, replicate, status and purpose.  A step that a
        policy chose has `action_logprob`, and as `node_entropy` its negative, a token.

    Raises:
        DataError: if a place names a rollout that is not there or is too short, a continuation has
            no path, or two unlike continuations have one name.

    Example:
        >>> root = {"id": "a", "group": "g", "reward": 1, "steps": [{"action": "x"}, {"action": "y"}]}
        >>> place = Place("g", "k", ("x",), rollout="a", step=1)
        >>> outcome = Outcome("finished", 0.0, steps=1, path=(Visit("s", "z", 0.0),))
        >>> found, = branched([Answer(Request(place, record=True), (outcome,))], [root])
        >>> found["id"], found["fork_step"], [step["action"] for step in found["steps"]]
        ('a@1:.0', 1, ['x', 'z'])
    """
    known = {str(record["id"]): record for record in records}
    paid = any(step.get("reward") for record in known.values() for step in record["steps"])
    found: dict[str, dict[str, Any]] = {}
    for answer in answers:
        request = answer.request
        begun = _beginning(request.place, known)
        for outcome in filter(lambda o: o.is_result, answer.outcomes):
            record = _record(request, outcome, versions or {})
            record |= _paid(outcome, begun, paid, outcome_in_steps)
            if found.setdefault(record["id"], record)["metadata"] != record["metadata"]:
                raise DataError(
                    f"two continuations are called {record['id']!r}", hint="Give each request its own `arm`"
                )
    return list(found.values())


def with_branches(
    batch: Batch, answers: Iterable[Answer], *, versions: Mapping[str, str] | None = None
) -> Batch:
    """Return the rollouts of a batch and their branches.

    Args:
        batch: the rollouts that places name.
        answers: to requests with ``record=True``.
        versions: version of each policy.

    Raises:
        DataError: as `branched` does.
    """
    records = list(batch.records())
    more = branched(answers, records, versions=versions, outcome_in_steps=batch.outcome_in_steps)
    if not more:
        return batch
    provenance = {**batch.provenance, "branches": len(more)}
    return Batch.concat([batch, Batch.from_records(more)]).with_provenance(provenance)


def _beginning(place: Place, known: Mapping[str, Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the steps before the place."""
    if not place.rollout and not place.actions:
        return []
    parent = known.get(place.rollout)
    if parent is None or len(parent["steps"]) < place.step:
        what = "is not there" if parent is None else f"has {len(parent['steps'])} steps"
        raise DataError(
            f"a continuation goes on from step {place.step} of rollout {place.rollout!r}, which {what}",
            hint="Give the rollouts that the places name",
        )
    return [dict(step) for step in parent["steps"][: place.step]]


def _record(request: Request, outcome: Outcome, versions: Mapping[str, str]) -> dict[str, Any]:
    """Return what a branch is, without its steps and reward."""
    place = request.place
    if len(outcome.path) != outcome.steps:
        raise DataError(
            f"a continuation of {outcome.steps} steps from {place.key[:80]!r} has no path",
            hint="Ask with record=True",
        )
    arm = request.arm or "+".join(request.forced)
    told = {
        "policy": request.policy,
        "seed": outcome.seed,
        "replicate": outcome.replicate,
        "status": outcome.status,
        "purpose": request.purpose,
    }
    record: dict[str, Any] = {
        "id": f"{place.rollout or place.group}@{place.step}:{arm}.{outcome.replicate}",
        "group": place.group,
        "status": _STATUS.get(outcome.status, "finished"),
        "final_state": outcome.final_key,
        "start": place.start,
        "metadata": {"continuation": told},
    }
    if place.rollout:
        record |= {"parent": place.rollout, "fork_step": place.step, "branch_kind": "fork"}
    if request.policy in versions:
        record["policy_version"] = versions[request.policy]
    return record


def _paid(
    outcome: Outcome, begun: list[dict[str, Any]], paid: bool, outcome_in_steps: bool
) -> dict[str, Any]:
    """Return the steps and the reward, so that the score is what was paid before and after."""
    own = [_step(visit) for visit in outcome.path]
    if outcome_in_steps:
        own = [s | {"reward": v.reward} for s, v in zip(own, outcome.path, strict=True)]
        return {"steps": begun + own, "reward": sum(s.get("reward") or 0.0 for s in begun + own)}
    if paid and own:
        rewards = [*(v.reward for v in outcome.path[:-1]), 0.0]
        own = [s | {"reward": r} for s, r in zip(own, rewards, strict=True)]
        return {"steps": begun + own, "reward": outcome.path[-1].reward}
    return {"steps": begun + own, "reward": outcome.reward}


def _step(visit: Visit) -> dict[str, Any]:
    found: dict[str, Any] = {"state": visit.key, "action": visit.action}
    if visit.agent:
        found["agent"] = visit.agent
    if visit.tokens:
        found["n_tokens"] = visit.tokens
    if visit.logprob is not None:
        found["action_logprob"] = visit.logprob
        found["node_entropy"] = -visit.logprob / max(visit.tokens, 1)
    return found
