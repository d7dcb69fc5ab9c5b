"""Rollouts as records: what readers yield and Python users may build."""

from __future__ import annotations

from typing import Any

import msgspec

from accredit.typing import Json, Scalar

__all__ = ["SCHEMA", "Rollout", "Step"]

SCHEMA = "accredit.rollouts/1"


class Step(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One decision of a policy: one LLM turn, one environment action.

    Args:
        state: anchor key or text before the action.
        action: what the policy did.
        reward: reward paid at this step, in reward units.
        agent: role that took the step.
        tokens: policy token ids ``[n]``.
        n_tokens: their number, where ids are unknown.
        context_tokens: ids added to the context before this step.
        prompt_tokens: the whole prompt of the call (turned into a delta while reading).
        logprobs: log-probability of each policy token, nats.
        entropies: next-token entropy at each policy token, nats.
        value: V of the state before the step.
        token_values: V of the prefix before each policy token.
        text: what the policy saw or said, for people.
        observation: what the environment answered.
        trainable: False: credited, but its tokens get advantage 0.
        metadata: anything else.
        extra: further named signals.

    Example:
        >>> Step(state="kitchen", action="go north").to_record()
        {'state': 'kitchen', 'action': 'go north'}
    """

    state: Scalar | None = None
    action: Scalar | None = None
    reward: float | None = None
    agent: Scalar | None = None
    tokens: Any = None
    n_tokens: int | None = None
    context_tokens: Any = None
    prompt_tokens: Any = None
    logprobs: Any = None
    entropies: Any = None
    value: float | None = None
    token_values: Any = None
    text: str | None = None
    observation: str | None = None
    trainable: bool | None = None
    metadata: Json = None
    extra: dict[str, Any] = {}

    def to_record(self) -> dict[str, Any]:
        """Return the step's fields as a native record, absent ones left out."""
        return _record(self)


class Rollout(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One trajectory with one outcome.

    Args:
        id: unique id (several records may share it if each has a ``row``).
        group: id of the task whose rollouts are compared.
        reward: outcome in reward units; None = unscored.
        steps: the decisions in order.
        rewards: named components of a multi-reward.
        row: label of this record among several of one rollout.
        policy_version: version of the policy that played it.
        final_state: state after the last step.
        final_value: V(final_state), used where truncated.
        parent: id of the rollout that this one branched from.
        fork_step: step of the parent at which it branched.
        branch_kind: fork, subagent, compaction or verifier.
        agent: default role of its steps.
        trainable: False: credited, but its tokens get advantage 0.
        status: finished, truncated, failed or rejected.
        metadata: anything else.
        extra: further named signals.

    Example:
        >>> Rollout(id="r1", group="g", reward=1.0, steps=[Step(action="go")]).to_record()
        {'id': 'r1', 'group': 'g', 'reward': 1.0, 'steps': [{'action': 'go'}]}
    """

    id: str
    group: Scalar | None = None
    reward: float | None = None
    steps: list[Step] = []
    rewards: dict[str, float | None] | None = None
    row: Scalar | None = None
    policy_version: Scalar | None = None
    final_state: Scalar | None = None
    final_value: float | None = None
    parent: str | None = None
    fork_step: int | None = None
    branch_kind: str | None = None
    agent: Scalar | None = None
    trainable: bool | None = None
    status: str | None = None
    metadata: Json = None
    extra: dict[str, Any] = {}

    def to_record(self) -> dict[str, Any]:
        """Return the rollout as a native record, absent fields left out."""
        record = _record(self)
        record["steps"] = [step.to_record() for step in self.steps]
        return record


def _record(struct: msgspec.Struct) -> dict[str, Any]:
    names = (n for n in struct.__struct_fields__ if n != "extra")
    record = {n: v for n in names if (v := getattr(struct, n)) is not None}
    extra: dict[str, Any] = getattr(struct, "extra", {})
    return record | extra
