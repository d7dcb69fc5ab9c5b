"""Small made-up groups for the state-graph tests: random walks on a few states."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

Record = dict[str, Any]


@st.composite
def walks(
    draw: st.DrawFn, *, clean: bool = False, groups: int = 2, deterministic: bool = False
) -> list[Record]:
    """Return records of random walks.

    Args:
        draw: Hypothesis.
        clean: rollouts end in ``GOAL`` or ``TRAP``, which nobody leaves; otherwise anywhere, some
            cut off, some without a final state.
        groups: largest number of groups.
        deterministic: a state and an action have one successor in a group.
    """
    states = ["A", "B", "C", "D"]
    found = []
    for g in range(draw(st.integers(1, groups))):
        table = {(s, a): draw(st.sampled_from(states)) for s in states for a in ("l", "r")}
        sure = table if deterministic else None
        n = draw(st.integers(1 if g else 2, 5))
        found += [_walk(draw, f"g{g}", i, sure, states, clean) for i in range(n)]
    return found


def _walk(
    draw: st.DrawFn,
    group: str,
    number: int,
    table: dict[tuple[str, str], str] | None,
    states: list[str],
    clean: bool,
) -> Record:
    state = draw(st.sampled_from(states))
    steps = []
    for _ in range(draw(st.integers(1, 6))):
        action = draw(st.sampled_from(["l", "r"]))
        steps.append({"state": state, "action": action})
        state = draw(st.sampled_from(states)) if table is None else table[state, action]
    won = draw(st.booleans())
    record: Record = {"id": f"{group}-{number}", "group": group, "reward": float(won), "steps": steps}
    if clean:
        steps[-1]["action"] = "win" if won else "lose"
        return record | {"final_state": "GOAL" if won else "TRAP"}
    if draw(st.booleans()):
        record["final_state"] = state
        record["status"] = draw(st.sampled_from(["finished", "truncated"]))
    return record
