"""A shop's help desk over SQLite: tools change a database, and the database as it is left is judged.

The goal is checked as tau-bench (arXiv:2406.12045) does: the tables after the episode must equal the
tables after the right calls, whatever the order and whatever was looked up on the way.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from accredit.errors import ParamError, suggest
from accredit.worlds.protocol import Cost
from accredit.worlds.shops import WAYS, card, changed, digest, opened, shop_task
from accredit.worlds.textworld import COMMANDS

__all__ = ["ToolShop"]

HORIZON = 12
POLICY = (
    "You are the help desk of a shop. Only pending orders can be cancelled or sent elsewhere. Only items of "
    "delivered orders can be refunded, or exchanged for another of the same kind that is in stock. "
    "Do what the customer asks for and nothing else, then say: done."
)


@dataclass(frozen=True, slots=True)
class _Token:
    data: bytes
    shown: frozenset[str]
    said: str
    taken: int
    done: bool


class ToolShop:
    """Answers tool calls on a small retail database; 1 if it is left as it should be, else 0.

    Calls name what was shown before: ``find customer``, ``show order``, ``list lamp``, ``cancel order 7``,
    ``move order 7``, ``refund item 3 to card``, ``exchange item 3 for 12``, ``done``.  A call against the
    rules is answered by an error and changes nothing.  Snapshots are the serialised database.

    Args:
        seed: of the task; the same task again is the same database.
        wishes: things that the customer asks for, 1-3.
        orders: of that customer, at least ``wishes``.
        horizon: calls after which an episode is cut and pays 0.

    Example:
        >>> world = ToolShop(seed=1)
        >>> _ = world.reset(seed=0)
        >>> [world.step(call)[1] for call in world.task.solution][-1]
        1.0
    """

    exact_snapshot = True
    snapshot_cost = 0.0
    deterministic = True
    side_effects = False

    def __init__(self, seed: int = 0, *, wishes: int = 2, orders: int = 3, horizon: int = HORIZON) -> None:
        self.task = shop_task(seed, wishes=wishes, orders=orders)
        if horizon < 1:
            raise ParamError(f"horizon must be >= 1, got {horizon}")
        self._horizon = horizon
        self._db = opened(self.task.start)
        self._shown: frozenset[str] = frozenset()
        self._said, self._taken, self._done = "", 0, True
        self.cost = Cost()

    def reset(self, seed: int) -> str:
        """Begin an episode; a task has one beginning, whatever the seed."""
        self._stand(_Token(self.task.start, frozenset(), "", taken=0, done=False))
        return self.seen()

    def step(self, action: str) -> tuple[str, float, bool]:
        """Make a call.

        Raises:
            ParamError: if the episode is over or the call is not possible here.
        """
        if action not in self.actions():
            hint = "The episode is over" if self._over else suggest(action, self.actions())
            raise ParamError(f"cannot {action[:80]!r} here", hint=hint)
        self._taken += 1
        self.cost.environment_steps += 1
        self._done = action == "done"
        self._said = "" if self._done else self._call(action)
        right = self._done and digest(self._db) == self.task.goal
        return self.seen(), float(right), self._over

    @property
    def _over(self) -> bool:
        return self._done or self._taken >= self._horizon

    def _call(self, action: str) -> str:
        look = re.fullmatch(r"(?:find|show|list) (.+)", action)
        if look:
            self._shown |= {look[1]}
            return ""
        return changed(self._db, action, self.task.address)

    def actions(self) -> list[str]:
        """Return the calls whose arguments are known here; none where the episode is over."""
        if self._over:
            return []
        if "customer" not in self._shown:
            return ["find customer", "done"]
        orders = self._db.execute("SELECT id FROM orders WHERE customer = 1 ORDER BY id").fetchall()
        calls = [f"show order {n}" for (n,) in orders if f"order {n}" not in self._shown]
        for (n,) in orders:
            calls += self._of_order(n) if f"order {n}" in self._shown else []
        return [*dict.fromkeys(calls), "done"]

    def _of_order(self, order: int) -> list[str]:
        calls = [f"cancel order {order}"] + ([f"move order {order}"] if self.task.address else [])
        for item, kind in self._db.execute(
            "SELECT i.id, p.kind FROM items i JOIN products p ON p.id = i.product WHERE i.orders = ? "
            "ORDER BY i.id",
            (order,),
        ).fetchall():
            calls += [f"refund item {item} to {way}" for way in WAYS]
            if kind not in self._shown:
                calls.append(f"list {kind}")
            else:
                some = self._db.execute("SELECT id FROM products WHERE kind = ? ORDER BY id", (kind,))
                calls += [f"exchange item {item} for {n}" for (n,) in some]
        return calls

    def steps_left(self) -> int:
        """Return the rest of the horizon."""
        return self._horizon - self._taken

    def reseed(self, seed: int) -> None:
        """Nothing here is left to chance."""

    def seen(self) -> str:
        """Return rules, the customer's words, what was looked up as it is now, the last error, the calls."""
        facts = [line for what in sorted(self._shown) for line in card(self._db, what)]
        parts = [POLICY, f"Customer ({self.task.email}): {self.task.words}", *facts, self._said]
        parts.append(COMMANDS + ", ".join(self.actions()))
        return "\n".join([part for part in parts if part])

    def key(self) -> str:
        """Return what was looked up and said, and a digest of the database."""
        known = ", ".join(sorted(self._shown)) or "nothing"
        end = "done" if self._done else self._said or "open"
        return f"known: {known} | {end} | db {digest(self._db)[:16]}"

    def snapshot(self) -> Any:
        """Return the serialised database with what was looked up."""
        self.cost.snapshots += 1
        return _Token(self._db.serialize(), self._shown, self._said, self._taken, self._done)

    def restore(self, token: Any) -> str:
        """Go back to a snapshot, which stays usable."""
        self.cost.restores += 1
        self._stand(token)
        return self.seen()

    def _stand(self, token: _Token) -> None:
        self._db.close()
        self._db = opened(token.data)
        self._shown, self._said, self._taken, self._done = token.shown, token.said, token.taken, token.done
