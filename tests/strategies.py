"""Ragged rollouts with every optional field, for property tests.

`records()` draws native records (dicts), `batches()` the Batch of them.  A field is first drawn to
be in the source at all, then to be absent (`null`, or left out) in single rollouts and steps.  Sizes
stay small: two steps show what two hundred do, and shrink to something that a person can read.
"""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from accredit.data import Batch

ROLLOUT_FIELDS = (
    "reward", "rewards", "status", "policy_version", "final_state", "final_value", "agent",
    "trainable", "terminated", "metadata", "r_number", "r_word", "r_json",
    "candidate_logprobs", "ref_logprobs", "evidence", "answer", "answer_cluster", "proposal", "revision",
)  # fmt: skip
STEP_FIELDS = (
    "state", "action", "reward", "agent", "tokens", "n_tokens", "context_tokens", "prompt_tokens",
    "logprobs", "entropies", "token_values", "value", "text", "observation", "trainable", "metadata",
    "prm_logits", "prm_logratio", "s_number", "s_word", "s_vector", "s_json", "s_token",
    "old_logprobs", "hidden", "student_logits", "perturbed_logprobs", "s_vectors", "continuations", "search",
)  # fmt: skip
PER_TOKEN = (
    "tokens", "logprobs", "entropies", "token_values", "prm_logratio", "old_logprobs", "hidden",
    "student_logits",
)  # fmt: skip
_OTHERS_OF_TOKENS = ("s_token", "s_vectors")

words = st.text(st.characters(exclude_categories=["Cs"]), max_size=6)
odd_words = st.sampled_from(
    ["", " ", "é", "e\u0301", "😀", "\u2028", "a\tb", "\x00", '"', "\\", "1", "true", "null"]
)
scalars = st.one_of(
    words,
    odd_words,
    st.integers(-(2**70), 2**70),
    st.booleans(),
    st.floats(allow_nan=False, allow_infinity=False),
)
numbers = st.floats(-1e6, 1e6, allow_nan=False)
rewards = st.one_of(st.sampled_from([0.0, 1.0, 0.7, -1.0]), st.floats(-100, 100, allow_nan=False))
json_values = st.recursive(
    st.none() | scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words, inner, max_size=3),
    max_leaves=6,
)
token_ids = st.one_of(st.integers(0, 200_000), st.sampled_from([0, 2**31, 2**63 - 1]))
logprobs = st.floats(-50, 0, width=32)

outcomes = st.lists(
    st.fixed_dictionaries({"reward": st.none() | rewards, "truncated": st.booleans()}), max_size=3
)

_ROLLOUT: dict[str, st.SearchStrategy[Any]] = {
    "reward": rewards,
    "rewards": st.dictionaries(st.sampled_from(["format", "answer", "é"]), st.none() | rewards, max_size=3),
    "status": st.sampled_from(["finished", "truncated", "failed", "rejected"]),
    "policy_version": scalars,
    "final_state": scalars,
    "final_value": numbers,
    "agent": st.sampled_from(["planner", "coder", 1]),
    "trainable": st.booleans(),
    "terminated": st.booleans(),
    "metadata": json_values,
    "r_number": numbers,
    "r_word": words,
    "r_json": st.dictionaries(words, json_values, max_size=2),
    "candidate_logprobs": st.lists(st.lists(logprobs, max_size=3), max_size=3),
    "ref_logprobs": st.dictionaries(
        st.sampled_from(["baseline", "after_step"]),
        st.lists(logprobs, max_size=3) | st.dictionaries(words, st.lists(logprobs, max_size=2), max_size=2),
    ),
    "evidence": st.lists(numbers | st.integers(0, 9), max_size=4),
    "answer": words | odd_words,
    "answer_cluster": st.integers(0, 5),
    "proposal": st.fixed_dictionaries({"start": st.integers(0, 3), "pre": outcomes, "post": outcomes}),
    "revision": st.fixed_dictionaries({"reward": rewards, "tokens": st.lists(token_ids, max_size=3)}),
}
_STEP: dict[str, st.SearchStrategy[Any]] = {
    "state": st.sampled_from(["s0", "s1", "s2"]) | scalars,
    "action": scalars,
    "reward": rewards,
    "agent": st.sampled_from(["planner", "coder"]),
    "value": numbers,
    "text": words,
    "observation": words,
    "trainable": st.booleans(),
    "metadata": json_values,
    "context_tokens": st.lists(token_ids, max_size=3),
    "prompt_tokens": st.lists(st.integers(0, 3), max_size=5),
    "prm_logits": st.lists(numbers, min_size=2, max_size=2),
    "s_number": numbers,
    "s_word": words,
    "s_vector": st.lists(numbers, min_size=6, max_size=6),
    "s_json": st.dictionaries(words, json_values, max_size=2),
    "continuations": outcomes,
    "search": st.dictionaries(
        words,
        st.fixed_dictionaries({"n": st.integers(0, 9), "mean": rewards, "p": st.floats(0, 1)}),
        max_size=3,
    ),
}
_TOKEN: dict[str, st.SearchStrategy[Any]] = {
    "tokens": token_ids,
    "logprobs": logprobs,
    "entropies": st.floats(0, 20, width=32),
    "token_values": st.floats(-100, 100, width=32),
    "prm_logratio": st.floats(-5, 5, width=32),
    "s_token": st.floats(-5, 5, width=32),
    "old_logprobs": logprobs,
    "hidden": st.lists(st.floats(-9, 9, width=32), min_size=3, max_size=3),
    "student_logits": st.lists(st.floats(-9, 9, width=16), min_size=2, max_size=2),
    "s_vectors": st.lists(st.integers(-9, 9) | st.floats(-9, 9, width=32), min_size=2, max_size=2),
}


@st.composite
def records(
    draw: st.DrawFn,
    *,
    fields: tuple[str, ...] | None = None,
    always: tuple[str, ...] = (),
    min_rollouts: int = 0,
    max_rollouts: int = 6,
    max_groups: int = 3,
    min_steps: int = 0,
    max_steps: int = 4,
    max_tokens: int = 4,
    holes: bool = True,
    branches: bool = True,
    rows: bool = True,
    odd_ids: bool = True,
) -> list[dict[str, Any]]:
    """Native records of several groups.

    Args:
        fields: only these optional fields (names of rollout and step fields; "step.reward",
            "step.agent", "step.trainable" and "step.metadata" mean those of steps); None = any.
        always: fields that every source has (where a single step may lack them only by `holes`).
        holes: single rollouts and steps may lack a field that others have.
        branches: some rollouts have `parent`, `fork_step`, `branch_kind`.
        rows: some rollouts come as several records with a `row` label.
        odd_ids: ids and groups are any text or number; else "r0", "r1" … and "g0", "g1" …
    """
    here_R = _choose(draw, ROLLOUT_FIELDS, "", fields, always)
    here_S = _choose(draw, STEP_FIELDS, "step.", fields, always)
    n = draw(st.integers(min_rollouts, max_rollouts))
    ids = draw(st.lists(words.filter(bool), min_size=n, max_size=n, unique=True)) if odd_ids else None
    groups = draw(st.lists(scalars, min_size=1, max_size=max_groups)) if odd_ids else None
    found: list[dict[str, Any]] = []
    for r in range(n):
        name = ids[r] if ids else f"r{r}"
        code = draw(st.integers(0, max_groups - 1))
        group = groups[code % len(groups)] if groups else f"g{code}"
        steps = [
            _step(draw, here_S, max_tokens, holes) for _ in range(draw(st.integers(min_steps, max_steps)))
        ]
        record = {"id": name, "group": group} | _values(draw, _ROLLOUT, here_R, holes) | {"steps": steps}
        if branches and r and draw(st.booleans()):
            record |= {"parent": found[draw(st.integers(0, len(found) - 1))]["id"], "fork_step": 0}
            record["branch_kind"] = draw(st.sampled_from(["fork", "subagent", "compaction", "verifier"]))
        found += _as_rows(draw, record) if rows and len(steps) > 1 and draw(st.booleans()) else [record]
    return found


@st.composite
def batches(draw: st.DrawFn, **options: Any) -> Batch:
    """The Batch of `records(**options)`."""
    return Batch.from_records(draw(records(**options)))


def _choose(
    draw: st.DrawFn,
    names: tuple[str, ...],
    prefix: str,
    fields: tuple[str, ...] | None,
    always: tuple[str, ...],
) -> list[str]:
    shared = {"reward", "agent", "trainable", "metadata"}
    spelled = {(prefix + n if prefix and n in shared else n): n for n in names}
    usable = [s for s in spelled if fields is None or s in fields or s in always]
    picked = draw(st.sets(st.sampled_from(usable))) if usable else set()
    return [spelled[s] for s in usable if s in picked or s in always]


def _values(
    draw: st.DrawFn, table: dict[str, st.SearchStrategy[Any]], names: list[str], holes: bool
) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name in names:
        if name not in table:
            continue
        fate = draw(st.integers(0, 5)) if holes else 2
        if fate == 0:
            found[name] = None
        elif fate != 1:
            found[name] = draw(table[name])
    return found


def _step(draw: st.DrawFn, names: list[str], max_tokens: int, holes: bool) -> dict[str, Any]:
    count = draw(st.integers(0, max_tokens))
    found = _values(draw, _STEP, names, holes)
    for name in names:
        if name in _TOKEN and not (holes and draw(st.integers(0, 4)) == 0):
            found[name] = draw(st.lists(_TOKEN[name], min_size=count, max_size=count))
    if "perturbed_logprobs" in names:
        signal = st.none() | st.lists(logprobs, min_size=count, max_size=count)
        found["perturbed_logprobs"] = draw(st.dictionaries(st.sampled_from(["mask", "a_T", ""]), signal))
    counted = any(k in found for k in PER_TOKEN)
    if "n_tokens" in names or (any(k in found for k in _OTHERS_OF_TOKENS) and not counted):
        found["n_tokens"] = count
    return found


def _as_rows(draw: st.DrawFn, record: dict[str, Any]) -> list[dict[str, Any]]:
    cut = draw(st.integers(1, len(record["steps"]) - 1))
    labels = draw(st.sampled_from([(0, 1), ("a", "b"), (1.5, 7), (-1, "x")]))
    halves = (record["steps"][:cut], record["steps"][cut:])
    return [record | {"row": row, "steps": half} for row, half in zip(labels, halves, strict=True)]
