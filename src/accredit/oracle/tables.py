"""Explored worlds on disk: states, moves and the policy's chances, so that nobody explores them again."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from accredit.errors import DataError, StoreError
from accredit.oracle.tabulated import Moves, Node, Table, table_of
from accredit.store.encode import encode
from accredit.store.kinds import file_kind, lines_file
from accredit.store.limits import Limits
from accredit.store.lines import is_header, read_objects
from accredit.store.schema import TABLES
from accredit.typing import Floats

__all__ = ["Explored", "check_tables_target", "read_tables", "save_tables"]


@dataclass(frozen=True, slots=True, eq=False)
class Explored:
    """Worlds as tables.

    Args:
        tables: by group.
        about: what else is known: name of the world, version of the policy.
    """

    tables: Mapping[str, Table]
    about: Mapping[str, Any] = field(default_factory=dict)


class _Move(msgspec.Struct, array_like=True):
    action: str
    to: int
    reward: float
    over: bool


class _State(msgspec.Struct):
    key: str
    seen: str
    moves: list[_Move]


class _Chances(msgspec.Struct):
    state: int
    past: list[str]
    probs: list[float]


class _Row(msgspec.Struct):
    group: str
    start: int
    horizon: int
    memory: int
    states: list[_State]
    policy: list[_Chances]


def check_tables_target(path: str | Path) -> None:
    """Refuse a name that `save_tables` could not write to, before anything is explored.

    Raises:
        StoreError: if the name does not say the kind of file, or says Parquet.
    """
    if file_kind(path) == "parquet":
        raise StoreError(
            "tables are written as JSON Lines, not Parquet",
            code="ACC913",
            where=str(path),
            hint="End the name in .jsonl, .jsonl.gz or .jsonl.zst",
        )


def save_tables(explored: Explored, path: str | Path) -> Path:
    """Write tables (schema ``accredit.tables/1``): a header, then one line a group.

    Args:
        explored: the tables.
        path: ends in ``.jsonl``, ``.jsonl.gz`` or ``.jsonl.zst``.

    Raises:
        StoreError: if it cannot be written.
    """
    check_tables_target(path)
    target = Path(path)
    with lines_file(target) as out:
        out.write(encode({**explored.about, "schema": TABLES}) + b"\n")
        for table in explored.tables.values():
            out.write(encode(_row(table)) + b"\n")
    return target


def _row(table: Table) -> _Row:
    number = {state: i for i, state in enumerate(table.moves)}
    states = [
        _State(*state, [_Move(a, number[to], paid, over) for a, (to, paid, over) in ways.items()])
        for state, ways in table.moves.items()
    ]
    live = [(node, table.chances(n)) for node, n in table.nodes.items() if table.task.live_N[n]]
    policy = [
        _Chances(number[state], list(past), [chance[a] for a in table.moves[state]])
        for (state, past), chance in live
    ]
    first = number[table.start[0]]
    return _Row(table.group, first, table.task.horizon, table.memory, states, policy)


def read_tables(path: str | Path, *, limits: Limits | None = None) -> Explored:
    """Return the tables of a file of schema ``accredit.tables/1``; their values are computed anew.

    Args:
        path: JSON Lines.
        limits: bounds of the reading.

    Raises:
        VersionError: if it has a newer schema.
        DataError: naming the line and what is wrong with it.
    """
    about: Mapping[str, Any] = {}
    found: dict[str, Table] = {}
    for place, fields in read_objects(path, TABLES, limits or Limits()):
        if not found and is_header(fields):
            about = {k: v for k, v in fields.items() if k != "schema"}
            continue
        try:
            row = msgspec.convert(fields, _Row)
        except msgspec.ValidationError as error:
            raise _odd(place, str(error)) from error
        if row.group in found:
            raise _odd(place, f"group {row.group!r} is given twice")
        found[row.group] = _table(row, place)
    if not found:
        raise _odd(str(path), "it holds no group")
    return Explored(found, about)


def _table(row: _Row, place: str) -> Table:
    moves = _moves(row, place)
    names = list(moves)
    chances: dict[Node, Floats] = {}
    for told in row.policy:
        if not 0 <= told.state < len(names):
            raise _odd(place, f"there is no state {told.state}")
        state, probs = names[told.state], np.array(told.probs, np.float64)
        if probs.size != len(moves[state]) or not _sums_to_one(probs):
            raise _odd(place, f"the chances of state {told.state} are not one number an action that sum to 1")
        chances[state, tuple(told.past)] = probs

    def known(nodes: Sequence[Node]) -> Sequence[Floats]:
        lost = [node for node in nodes if node not in chances]
        if lost:
            raise _odd(
                place, f"the policy's chances in {lost[0][0][0][:80]!r} after {lost[0][1]} are missing"
            )
        return [chances[node] for node in nodes]

    return table_of(row.group, names[row.start], moves, known, memory=row.memory, horizon=row.horizon)


def _moves(row: _Row, place: str) -> Moves:
    names = [(state.key, state.seen) for state in row.states]
    inside = range(len(names))
    if len(set(names)) < len(names) or row.start not in inside:
        raise _odd(place, "two states are alike, or the start is none of them")
    if row.horizon < 1 or row.memory < 0:
        raise _odd(place, f"horizon is {row.horizon} and memory {row.memory}")
    for state in row.states:
        if any(move.to not in inside or not math.isfinite(move.reward) for move in state.moves):
            raise _odd(place, f"a move from {state.key[:80]!r} leads nowhere, or pays no number")
    return {
        name: {move.action: (names[move.to], move.reward, move.over) for move in state.moves}
        for name, state in zip(names, row.states, strict=True)
    }


def _sums_to_one(probs: Floats) -> bool:
    return bool(np.isfinite(probs).all() and (probs >= 0).all() and abs(probs.sum() - 1) < 1e-9)


def _odd(place: str, what: str) -> DataError:
    return DataError(
        f"no tables of {TABLES}: {what}",
        code="ACC915",
        where=place,
        hint="Make them with accredit truth --tables",
    )
