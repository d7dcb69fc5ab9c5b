"""Golden files of the methods on the state graph: crbc, graft, graph-hca."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from accredit.data import Credit
from tests.golden.interface import Call, Golden, Reader, adapts, step_extra, steps

REWARDS: dict[str, Any] = {"outcome_in_steps": "no"}
TRAJECTORY = (
    "GRPO, unbiased std, 0 for a group of one",
    "GRPO, unbiased std, eps 1e-6, 0 for a group of one",
)


def _by_group(read: Callable[[Credit, int, int], dict[Any, Any]]) -> Reader:
    """Reader of ``{group: {state: …}}`` collected step by step."""

    def found(credit: Credit) -> Any:
        batch = credit.batch
        out: dict[str, dict[Any, Any]] = {}
        for r in range(len(batch)):
            group = out.setdefault(str(batch.group_names[int(batch.group_R[r])]), {})
            for s in batch.steps_of(r):
                for key, value in read(credit, r, s).items():
                    if isinstance(value, dict):
                        group.setdefault(key, {}).update(value)
                    else:
                        group[key] = value
        return out

    return found


def _state_value(credit: Credit, r: int, s: int) -> dict[Any, Any]:
    return {credit.batch.column("state_S").item(s): float(credit.extras["state_values"][s])}


def _value_with_end(credit: Credit, r: int, s: int) -> dict[Any, Any]:
    found = _state_value(credit, r, s)
    if s == credit.batch.steps_of(r)[-1]:
        found[credit.batch.column("final_state_R").item(r)] = float(credit.extras["next_values"][s])
    return found


def _action_value(credit: Credit, r: int, s: int) -> dict[Any, Any]:
    state, action = credit.batch.column("state_S").item(s), credit.batch.column("action_S").item(s)
    return {state: {action: float(credit.extras["action_values"][s])}}


@adapts("crbc")
def crbc(golden: Golden) -> Call:
    golden.no_effect("convention", "note")
    golden.must_be("success", "reward > 0")
    golden.must_be("final_step_successor", "virtual absorbing node per outcome")
    golden.must_be("trajectory_part", *TRAJECTORY)
    golden.must_be("epsilon", 1e-6)
    depth = golden.get("K", "inf")
    kwargs = REWARDS | {
        "beta": golden.number("beta"),
        "depth": None if depth in ("inf", None) else golden.number("K"),
        "grpo_weight": golden.number("w_G", 1.0),
        "step_weight": golden.number("w_S", 5.0),
        "sigma_min": golden.number("sigma_min", 0.1),
    }
    read = {
        "steps": steps,
        "state_values": _by_group(_state_value),
        "action_values": _by_group(_action_value),
        "step_credit": step_extra("step_credit"),
    }
    return Call("crbc", kwargs, read)


@adapts("graft")
def graft(golden: Golden) -> Call:
    golden.no_effect("convention", "note")
    golden.must_be("std", "unbiased")
    golden.must_be("group_of_one", "A/(|A|+eps)")
    golden.must_be("norm_group", "every step (raw edge instance) that leaves the state, within the group")
    kwargs = REWARDS | {
        "gamma": golden.number("gamma"),
        "lam": golden.number("lambda"),
        "normalise": golden.flag("normalise", default=True),
        "eps": golden.number("epsilon", 1e-6),
        "terminal": golden.one_of("terminal", TERMINALS, "state"),
    }
    read = {
        "steps": steps,
        "state_values": _by_group(_value_with_end),
        "td": step_extra("td"),
        "graph_gae": step_extra("graph_gae"),
    }
    return Call("graft", kwargs, read)


TERMINALS = {
    "final state pinned to the mean outcome (1 if reward > 0 else 0) of the rollouts of the group that "
    "end there, even when it also has outgoing edges": "state",
    "final states pinned: 1 if any rollout of the group succeeded there, else 0": "state",
    "state": "state",
    "open": "open",
    "virtual": "virtual",
}


@adapts("graph-hca")
def graph_hca(golden: Golden) -> Call:
    golden.no_effect("convention", "note")
    golden.must_be("std", "unbiased")
    golden.must_be("group_of_one", 0)
    golden.must_be("trajectory_part", *TRAJECTORY)
    kwargs = REWARDS | {
        "discount": golden.number("discount"),
        "floor": golden.number("floor", 0.01),
        "step_weight": golden.number("w_s", 1.0),
        "eps": golden.number("epsilon", 1e-6),
        "terminal": golden.one_of("terminal", TERMINALS, "state"),
    }
    ends_are_states = kwargs["terminal"] == "state"
    read = {
        "steps": steps,
        "potential": _by_group(_value_with_end if ends_are_states else _with_outcome_nodes),
        "credit": step_extra("credit"),
        "step_part": step_extra("step_part"),
    }
    return Call("graph-hca", kwargs, read)


def _with_outcome_nodes(credit: Credit, r: int, s: int) -> dict[Any, Any]:
    """Virtual ends are reported as z+ and z-."""
    found = _state_value(credit, r, s)
    if credit.params["terminal"] == "virtual" and s == credit.batch.steps_of(r)[-1]:
        end = float(credit.extras["next_values"][s])
        found["z+" if end > 0 else "z-"] = end
    return found if credit.params["terminal"] == "virtual" else _value_with_end(credit, r, s)


@adapts("hcapo")
def hcapo(golden: Golden) -> Call:
    golden.no_effect("convention", "note", "rescored")
    golden.must_be("std", "unbiased")
    kwargs = REWARDS | {
        "gamma": golden.number("gamma", 0.95),
        "temperature": golden.number("T_temp", 5.0),
        "clip_low": golden.number("C_min", 0.8),
        "clip_high": golden.number("C_max", 1.2),
        "omega": golden.number("omega", 1.0),
        "alpha": golden.number("alpha", 0.5),
        "smoothing": golden.one_of(
            "smoothing", {k: k for k in ("recursive", "neighbours", "none")}, "recursive"
        ),
        "do_no_harm": golden.flag("do_no_harm", default=True),
        "eps": golden.number("epsilon", 1e-6),
    }
    return Call(
        "hcapo", kwargs, {"steps": steps, "rho": step_extra("rho"), "q_hindsight": step_extra("q_hindsight")}
    )
