"""The record fields that accredit knows: name, kind, column, meaning.

Fields that are not listed are extra signals: kept, named after the field, at the level that
their values show.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

__all__ = [
    "ALIASES",
    "CONTROL",
    "KNOWN_COLUMNS",
    "NAMED_SIGNALS",
    "ROLLOUT_FIELDS",
    "STATUSES",
    "STEP_FIELDS",
    "TOKEN_FIELDS",
    "Field",
    "Kind",
    "column_of",
    "is_named_signal",
    "step_field",
]

Kind: TypeAlias = Literal[
    "number", "word", "flag", "tokens", "signal", "vector", "vectors", "signals", "json"
]


@dataclass(frozen=True, slots=True)
class Field:
    """One known field of a record.

    Args:
        name: the field's name in a native record.
        column: the column that holds it.
        kind: number (float64), word (JSON scalar, interned), flag (true/false), tokens (token ids),
            signal (float32, one a policy token), vector (fixed-length numbers), vectors (float32 or
            float16, fixed-length numbers a policy token), signals (an object of named signals, each
            a column of its own), json (object).
        meaning: one line for the docs.
        probe: the command or the place that makes it, for MissingSignal.
    """

    name: str
    column: str
    kind: Kind
    meaning: str
    probe: str = ""


def _table(*fields: Field) -> Mapping[str, Field]:
    return {f.name: f for f in fields}


STATUSES = ("finished", "truncated", "failed", "rejected")

# Handled by the builder itself, never columns of their own name.
CONTROL = frozenset({"id", "group", "steps", "rewards", "truncated", "schema"})

# Other spellings that are read as the field on the right.
ALIASES: Mapping[str, str] = {"values": "token_values", "teacher_logprobs": "logprobs_teacher"}

# A step field that holds one signal a name; ``perturbed_logprobs.NAME_T`` is the column of one.
NAMED_SIGNALS = "perturbed_logprobs"
_PROBE = "`accredit probe FILE --model MODEL -o OUT --want {}`"
# No command stores whole distributions: `joint` reduces them while they stream.
_LOGITS = "a trainer that keeps them; accredit.signals.joint makes jsd and fisher_moments without them"

ROLLOUT_FIELDS = _table(
    Field("reward", "reward_R", "number", "outcome of the rollout; null = unscored", "a verifier"),
    Field("status", "status_R", "word", "finished, truncated, failed or rejected"),
    Field("policy_version", "policy_version_R", "word", "version of the policy that played it"),
    Field("final_state", "final_state_R", "word", "state after the last step"),
    Field("final_value", "final_value_R", "number", "V(final_state), used where truncated"),
    Field("parent", "parent_R", "word", "id of the rollout that this one branched from"),
    Field("fork_step", "fork_step_R", "number", "step of the parent at which it branched"),
    Field("start", "start_R", "number", "seed of the episode's start, where a world has several"),
    Field("branch_kind", "branch_kind_R", "word", "fork, subagent, compaction or verifier"),
    Field("tree", "tree_R", "word", "tree of its task that it belongs to, where a task has several"),
    Field("history_tokens", "history_tokens_R", "number", "tokens of the history that the task is about"),
    Field("agent", "agent_R", "word", "default role of its steps"),
    Field("trainable", "trainable_R", "flag", "false: credited, but its tokens get 0"),
    Field("terminated", "terminated_R", "flag", "the task ended by itself"),
    Field(
        "proposal",
        "proposal_R",
        "json",
        "segment start .. end of its steps, with outcomes of continuations before and after it (pre, post)",
        "the continuation engine",
    ),
    Field(
        "revision",
        "revision_R",
        "json",
        "a corrected form of the rollout: its tokens or actions, and its reward",
        "the continuation engine",
    ),
    Field("metadata", "metadata_R", "json", "anything else, kept as it is"),
)

STEP_FIELDS = _table(
    Field("state", "state_S", "word", "anchor key or text before the action", "the environment"),
    Field("action", "action_S", "word", "what the policy did"),
    Field("reward", "reward_S", "number", "reward paid at this step", "a verifier"),
    Field("agent", "agent_S", "word", "role that took the step"),
    Field("tokens", "token_T", "tokens", "policy token ids"),
    Field("n_tokens", "token_start_S1", "number", "number of policy tokens where ids are unknown"),
    Field(
        "logprobs",
        "logprob_T",
        "signal",
        "log-probability of each token, nats",
        _PROBE.format("logprob"),
    ),
    Field("entropies", "entropy_T", "signal", "next-token entropy, nats", _PROBE.format("entropy")),
    Field("token_values", "token_value_T", "signal", "V of the prefix before each token", "a critic"),
    Field("value", "value_S", "number", "V of the state before the step", "a critic"),
    Field("text", "text_S", "word", "what the policy saw or said, for people"),
    Field("observation", "observation_S", "word", "what the environment answered"),
    Field("trainable", "trainable_S", "flag", "false: credited, but its tokens get 0"),
    Field("metadata", "metadata_S", "json", "anything else, kept as it is"),
    Field(
        "logprobs_hindsight",
        "logprobs_hindsight_T",
        "signal",
        "log-probability of each token with the outcome in the prompt, nats",
        _PROBE.format("logprob --context outcome --paired"),
    ),
    Field(
        "logprobs_teacher",
        "logprobs_teacher_T",
        "signal",
        "log-probability of each token under a teacher, nats",
        _PROBE.format("logprob --context peer --paired"),
    ),
    Field("node", "node_S", "word", "node of the tree that the step leads into; shared steps have one"),
    Field("node_entropy", "node_entropy_S", "number", "mean entropy of the step's tokens, nats"),
    Field(
        "continuations",
        "continuations_S",
        "json",
        "outcomes of continuations from the state before the step (c3: after it), each {reward, truncated}",
        "the continuation engine",
    ),
    Field(
        "search",
        "search_S",
        "json",
        "legal actions of the state before the step, each {n, mean, p}: trials, their mean, chance",
        "the continuation engine",
    ),
    Field(
        "top_logprobs",
        "top_logprobs_S",
        "json",
        "log-probabilities of the likeliest next tokens at each of the step's first tokens, nats",
        "the server that sampled",
    ),
    Field(
        "belief",
        "belief_S",
        "json",
        "answers and their probabilities as the policy sees them before the step, {answer: p}",
        _PROBE.format("belief"),
    ),
    Field(
        "answer_lens",
        "answer_lens_S",
        "vector",
        "log-probability of the rollout's answer as each layer sees it before the step, nats",
        _PROBE.format("lens"),
    ),
    Field("action_value", "action_value_S", "number", "Q of the state and the action taken", "a critic"),
    Field("cutpoints", "cutpoints_S", "json", "tokens of the step after which V is known; -1 = before all"),
    Field("cutpoint_values", "cutpoint_values_S", "json", "V after each of `cutpoints`", "continuations"),
    Field("report", "report_S", "word", "what came back for the subtask of this step"),
    Field("features", "features_S", "vector", "physical features of the state before the step"),
    Field("prm_logits", "prm_logits_S", "vector", "[bad, good] logits of a process reward model"),
    Field("prm_logratio", "prm_logratio_T", "signal", "log pi_prm - log pi_ref of each token"),
    Field(
        "old_logprobs",
        "old_logprobs_T",
        "signal",
        "log-probability of each token under the policy before the update, nats",
        "the trainer, before its update",
    ),
    Field(
        NAMED_SIGNALS,
        f"{NAMED_SIGNALS}_T",
        "signals",
        "log-probability of each token with the context perturbed, nats, one list a perturbation",
        _PROBE.format("logprob --context irrelevant,renamed,reordered,typos --paired"),
    ),
    Field("hidden", "hidden_T", "vectors", "hidden state at each token", _PROBE.format("hidden")),
    Field("student_logits", "student_logits_T", "vectors", "logits of the policy", _LOGITS),
    Field("teacher_logits", "teacher_logits_T", "vectors", "logits of a teacher", _LOGITS),
    Field(
        "teacher_none_logits",
        "teacher_none_logits_T",
        "vectors",
        "logits of a teacher that sees no outcome",
        _LOGITS,
    ),
    Field(
        "teacher_pos_logits",
        "teacher_pos_logits_T",
        "vectors",
        "logits of a teacher that is told of success",
        _LOGITS,
    ),
    Field(
        "teacher_neg_logits",
        "teacher_neg_logits_T",
        "vectors",
        "logits of a teacher that is told of failure",
        _LOGITS,
    ),
    Field(
        "fisher_moments",
        "fisher_moments_T",
        "vectors",
        "E_p t, E_p n, E_p t^2, E_p n^2, E_p tn, t_y, n_y of score differences t and n",
        "accredit.signals.joint with FisherMoments() (docs/probes.md)",
    ),
)

# The fields whose length says how many policy tokens a step has.
TOKEN_FIELDS = tuple(f.name for f in STEP_FIELDS.values() if f.kind in ("tokens", "signal", "vectors"))

KNOWN_COLUMNS: Mapping[str, Field] = {
    f.column: f for fields in (ROLLOUT_FIELDS, STEP_FIELDS) for f in fields.values()
}


def column_of(name: str) -> str:
    """Return the column that a name means: a field of the record format, or a column as it is.

    A name that is a field of steps and of rollouts (``reward``, ``agent``) is no column by itself.

    Example:
        >>> column_of("logprobs"), column_of("value"), column_of("surprise_S"), column_of("reward")
        ('logprob_T', 'value_S', 'surprise_S', 'reward')
    """
    found = [table[name].column for table in (STEP_FIELDS, ROLLOUT_FIELDS) if name in table]
    return found[0] if len(found) == 1 else name


def is_named_signal(column: str) -> bool:
    """Return whether a column is one of the signals of ``perturbed_logprobs``.

    Example:
        >>> is_named_signal("perturbed_logprobs.mask_T"), is_named_signal("logprob_T")
        (True, False)
    """
    return column.startswith(f"{NAMED_SIGNALS}.") and column.endswith("_T")


def step_field(name: str) -> Field | None:
    """Return what is known of a step field, or of one signal of ``perturbed_logprobs``; else None.

    Example:
        >>> step_field("perturbed_logprobs.mask").column
        'perturbed_logprobs.mask_T'
    """
    if name.startswith(f"{NAMED_SIGNALS}."):
        return Field(name, f"{name}_T", "signal", STEP_FIELDS[NAMED_SIGNALS].meaning)
    return STEP_FIELDS.get(name)
