"""Clean rollouts, and one planted fault a code: how to break them, and for which method."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

Records = list[dict[str, Any]]
ROOMS = ("kitchen with a door to the north", "corridor along the garden wall", "cellar under the old stairs")


def clean() -> Records:
    """Four tasks of four rollouts of three steps, with every usual signal: nothing to find."""
    return [_rollout(g, i) for g in range(4) for i in range(4)]


def _rollout(g: int, i: int) -> dict[str, Any]:
    return {
        "id": f"g{g}-r{i}",
        "group": f"task-{g}",
        "reward": float(i % 2),
        "status": "finished",
        "policy_version": 7,
        "agent": "player",
        "steps": [_step(g, i, t) for t in range(3)],
    }


def _step(g: int, i: int, t: int) -> dict[str, Any]:
    return {
        "state": f"{ROOMS[t]}, house {'abcd'[g]}",
        "action": f"move {'nesw'[i]}",
        "tokens": [10 + i, 20 + t],
        "context_tokens": [1, 2, 30 + g],
        "logprobs": [-0.5, -0.25],
        "entropies": [0.5, 1.0],
        "value": 0.5,
    }


class Plant(NamedTuple):
    """A fault: what is done to clean rollouts, the method that is checked for, how many places show it."""

    spoil: Callable[[Records], Any]
    method: str | None = None
    count: int | None = None


def planted(code: str) -> Records:
    """Return clean rollouts with the fault of a code in them."""
    records = clean()
    made = PLANTS[code].spoil(records)
    return made if isinstance(made, list) else records


def _each(**fields: Any) -> Callable[[Records], None]:
    """Set fields of every rollout."""

    def spoil(records: Records) -> None:
        for record in records:
            record.update(fields)

    return spoil


def _first(n: int = 1, **fields: Any) -> Callable[[Records], None]:
    """Set fields of the first n rollouts; a function is called with the rollout's number."""

    def spoil(records: Records) -> None:
        for i, record in enumerate(records[:n]):
            record.update({k: v(i) if callable(v) else v for k, v in fields.items()})

    return spoil


def _step_of(r: int, t: int, **fields: Any) -> Callable[[Records], None]:
    """Set fields of one step."""
    return lambda records: records[r]["steps"][t].update(fields)


def _steps(**fields: Any) -> Callable[[Records], None]:
    """Set fields of every step; a function is called with rollout and step numbers."""

    def spoil(records: Records) -> None:
        for r, record in enumerate(records):
            for t, step in enumerate(record["steps"]):
                step.update({k: v(r, t) if callable(v) else v for k, v in fields.items()})

    return spoil


def _without(*names: str) -> Callable[[Records], None]:
    """Take fields from every step."""

    def spoil(records: Records) -> None:
        for record in records:
            for step in record["steps"]:
                for name in names:
                    del step[name]

    return spoil


def _copy_of_a_long_one(records: Records) -> None:
    for r in (0, 1):
        for step in records[r]["steps"]:
            step |= {
                "action": "go",
                "tokens": list(range(60)),
                "logprobs": [-0.5] * 60,
                "entropies": [1.0] * 60,
            }


def _tie_in_between(records: Records) -> None:
    _first(4, reward=0.7)(records)


def _nearly_add_up(records: Records) -> None:
    for record in records:
        record["steps"][-1]["reward"] = 1.0
        record["reward"] = 1.0
    records[0]["reward"] = 0.0


def _level_within_groups(records: Records) -> None:
    for r, record in enumerate(records):
        record["reward"] = float(r // 4)


def _dwarfing(records: Records) -> None:
    _each(reward=1.0)(records)
    records[3]["reward"] = 1000.0


def _rewards_partly(records: Records) -> None:
    for record in records[1:]:
        record["rewards"] = {"format": 1.0}


def _overflowing(records: Records) -> None:
    for step in records[0]["steps"]:
        step["reward"] = 1e308


def _one_scored_in_a_group(records: Records) -> None:
    for record in records[:3]:
        record["reward"] = None


def _prompts(second: list[int]) -> Callable[[Records], None]:
    """Give rollout 0 whole prompts, the second one as given."""

    def spoil(records: Records) -> None:
        for t, prompt in enumerate(([1, 2], second)):
            step = records[0]["steps"][t]
            del step["context_tokens"]
            step["prompt_tokens"] = prompt

    return spoil


def _branch(**fields: Any) -> Callable[[Records], None]:
    """Make rollout 1 a branch of rollout 0, with its first step shared."""

    def spoil(records: Records) -> None:
        records[1]["steps"][0]["action"] = records[0]["steps"][0]["action"]
        records[1].update({"parent": "g0-r0", "fork_step": 1, "branch_kind": "fork"} | fields)

    return spoil


def _dropped(name: str) -> Callable[[Records], None]:
    """A good branch, but for one field."""

    def spoil(records: Records) -> None:
        _branch()(records)
        del records[1][name]

    return spoil


def _roles_by_step(records: Records) -> None:
    _each(agent=None)(records)
    _steps(agent=lambda r, t: ("planner", "coder")[t % 2])(records)


def _rows(reward: Any) -> Callable[[Records], Records]:
    """Give rollout 0 as two records, the second with a reward of its own."""

    def spoil(records: Records) -> Records:
        first = records[0]
        head = first | {"row": 0, "steps": first["steps"][:1]}
        tail = first | {"row": 1, "steps": first["steps"][1:], "reward": reward}
        return [head, tail, *records[1:]]

    return spoil


PLANTS: dict[str, Plant] = {
    "ACC101": Plant(lambda records: [*records, records[0]], count=1),
    "ACC102": Plant(_first(id=None), count=1),
    "ACC103": Plant(_first(group=None), count=1),
    "ACC104": Plant(_step_of(0, 1, logprobs=[-1.0]), count=1),
    "ACC105": Plant(_step_of(0, 0, state={"room": 1}), count=1),
    "ACC106": Plant(_rows(0.0), count=1),
    "ACC107": Plant(_rows(1.0), count=1),
    "ACC108": Plant(_rows("broken"), count=1),
    "ACC110": Plant(_first(reward="much"), count=1),
    "ACC111": Plant(lambda records: [r | {"group": r["id"]} for r in records], count=16),
    "ACC112": Plant(_first(group="alone"), count=1),
    "ACC113": Plant(lambda records: records[1:], count=1),
    "ACC114": Plant(_step_of(0, 0, state="another house altogether, with a tower"), count=1),
    "ACC115": Plant(_first(steps=[]), count=1),
    "ACC116": Plant(_first(2, group="task-0 again"), count=4),
    "ACC117": Plant(_steps(state=lambda r, t: "abc"[t] + "xy"[r // 8]), count=16),
    "ACC118": Plant(_first(policy_version=6), count=1),
    "ACC119": Plant(_copy_of_a_long_one, count=1),
    "ACC120": Plant(lambda r: _each_action(r, 0, 1), count=1),
    "ACC121": Plant(lambda records: records[0]["steps"].append({}), count=1),
    "ACC122": Plant(lambda records: [], count=1),
    "ACC123": Plant(lambda records: [r | {"group": "1" if i % 4 else 1} for i, r in enumerate(records[:8])]),
    "ACC124": Plant(_steps(obsevration="a door"), count=1),
    "ACC201": Plant(_first(reward=None), count=1),
    "ACC202": Plant(_first(reward=math.nan), count=1),
    "ACC203": Plant(_step_of(0, 0, reward=math.inf), count=1),
    "ACC204": Plant(_each(reward=None), count=1),
    "ACC205": Plant(_first(status="failed"), count=1),
    "ACC206": Plant(_first(2, status="truncated"), count=2),
    "ACC207": Plant(_first(2, status="rejected"), count=2),
    "ACC208": Plant(_nearly_add_up, count=1),
    "ACC209": Plant(_steps(reward=0.1), count=16),
    "ACC210": Plant(lambda records: [_paid_at_the_end(r) for r in records]),
    "ACC211": Plant(_first(4, reward=1.0), count=1),
    "ACC212": Plant(_first(4, reward=0.0), count=1),
    "ACC213": Plant(_tie_in_between, count=1),
    "ACC214": Plant(_level_within_groups),
    "ACC215": Plant(_each(reward=0.7)),
    "ACC216": Plant(_dwarfing, count=1),
    "ACC217": Plant(_rewards_partly, count=1),
    "ACC218": Plant(_one_scored_in_a_group, count=1),
    "ACC219": Plant(_overflowing, count=1),
    "ACC301": Plant(_prompts([1, 2, 10, 99, 5]), count=1),
    "ACC302": Plant(_prompts([9, 2, 10]), count=1),
    "ACC303": Plant(lambda records: _tokenless(records[0])),
    "ACC304": Plant(_without("tokens", "logprobs", "entropies")),
    "ACC305": Plant(_step_of(0, 1, logprobs=[0.5, 0.2]), count=2),
    "ACC306": Plant(_step_of(0, 1, entropies=[math.nan, 1.0]), count=1),
    "ACC307": Plant(_steps(logprobs=[0.0, 0.0])),
    "ACC308": Plant(_step_of(0, 1, entropies=[-0.5, 1.0]), count=1),
    "ACC309": Plant(_step_of(0, 1, entropies=[14.0, 1.0]), count=1),
    "ACC310": Plant(_step_of(0, 1, tokens=[5, -100]), count=1),
    "ACC311": Plant(_each(trainable=False)),
    "ACC312": Plant(_step_of(0, 1, logprobs=[-1e4, -1.0]), count=1),
    "ACC313": Plant(_step_of(0, 1, value=None), count=1),
    "ACC314": Plant(_steps(progress=lambda r, t: "half" if r else 0.5)),
    "ACC315": Plant(_step_of(0, 1, value=50.0), count=1),
    "ACC316": Plant(_steps(entropies=[0.0, 0.0])),
    "ACC317": Plant(_step_of(0, 1, trainable=False), count=1),
    "ACC401": Plant(_without("state"), method="gigpo"),
    "ACC403": Plant(_steps(state=lambda r, t: f"{r}:{t}"), method="gigpo"),
    "ACC501": Plant(_branch(parent="nobody"), count=1),
    "ACC502": Plant(_branch(parent="g0-r1"), count=1),
    "ACC503": Plant(_branch(fork_step=4), count=1),
    "ACC504": Plant(_branch(group="task-1"), count=1),
    "ACC505": Plant(_branch(branch_kind="twig"), count=1),
    "ACC506": Plant(_dropped("fork_step"), count=1),
    "ACC507": Plant(_dropped("parent"), count=1),
    "ACC508": Plant(_branch(fork_step=2), count=1),
    "ACC601": Plant(_first(agent=None), count=3),
    "ACC602": Plant(_first(agent="judge"), count=1),
    "ACC603": Plant(_roles_by_step, count=16),
    "ACC701": Plant(_without("state")),
    "ACC702": Plant(_step_of(0, 2, state=None), count=1),
    "ACC703": Plant(_steps(state=lambda r, t: f"{r}:{t}")),
    "ACC704": Plant(_steps(state=lambda r, t: f"{ROOMS[t]} {'abcd'[r // 4]}, {r} o'clock")),
    "ACC705": Plant(_steps(state="here")),
}


def _each_action(records: Records, *rollouts: int) -> None:
    for r in rollouts:
        for step in records[r]["steps"]:
            step["action"] = "wait"


def _paid_at_the_end(record: dict[str, Any]) -> dict[str, Any]:
    record["steps"][-1]["reward"] = record["reward"]
    return record


def _tokenless(record: dict[str, Any]) -> None:
    for step in record["steps"]:
        for name in ("tokens", "logprobs", "entropies"):
            del step[name]
