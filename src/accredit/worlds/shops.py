"""The tables of a small shop: tasks of its help desk, look-ups, and calls that change them."""

from __future__ import annotations

import hashlib
import re
import sqlite3
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from accredit.errors import ParamError

__all__ = ["WAYS", "ShopTask", "card", "changed", "digest", "opened", "shop_task"]

_KINDS = ("lamp", "kettle", "radio", "chair", "clock", "scarf")
_COLOURS = ("red", "blue", "green", "white")
_FIRST = ("Ada", "Ben", "Cleo", "Dina", "Emil", "Fay", "Gus", "Hana")
_LAST = ("Moor", "Quist", "Reyes", "Stone", "Tanaka", "Ude")
_STREETS = ("Mill Lane", "High Street", "Oak Road", "Quay", "Station Road")
WAYS = ("card", "gift card")
_TABLES = ("customers", "products", "orders", "items", "payments")
_SCHEMA = """
CREATE TABLE customers (id INTEGER PRIMARY KEY, name TEXT, email TEXT);
CREATE TABLE products (id INTEGER PRIMARY KEY, kind TEXT, colour TEXT, price INTEGER, stock INTEGER);
CREATE TABLE orders (id INTEGER PRIMARY KEY, customer INTEGER, status TEXT, address TEXT, way TEXT);
CREATE TABLE items (id INTEGER PRIMARY KEY, orders INTEGER, product INTEGER, status TEXT);
CREATE TABLE payments (id INTEGER PRIMARY KEY, item INTEGER, amount INTEGER, way TEXT);
"""


@dataclass(frozen=True, slots=True)
class ShopTask:
    """A database, what a customer asks for, and the database as it should be left.

    Args:
        start: serialised database.
        email: by which the customer is found.
        words: of the customer.
        address: that they name; "" if none.
        solution: calls that do it, look-ups included, ``done`` last.
        goal: digest of the tables after them.
    """

    start: bytes
    email: str
    words: str
    address: str
    solution: tuple[str, ...]
    goal: str


def opened(data: bytes) -> sqlite3.Connection:
    """Return a database in memory, of its own."""
    db = sqlite3.connect(":memory:", isolation_level=None)
    db.deserialize(data)
    return db


def digest(db: sqlite3.Connection) -> str:
    """Return a digest of all rows of all tables."""
    rows = [db.execute(f"SELECT * FROM {name} ORDER BY id").fetchall() for name in _TABLES]
    return hashlib.sha256(repr(rows).encode()).hexdigest()


def card(db: sqlite3.Connection, what: str) -> list[str]:
    """Return what a look-up shows, as it is now."""
    if what == "customer":
        name, orders = db.execute(
            "SELECT name, (SELECT group_concat(id, ', ') FROM orders WHERE customer = 1) FROM customers "
            "WHERE id = 1"
        ).fetchone()
        return [f"Customer {name} has the orders {orders}."]
    if what.startswith("order "):
        order, status, address, way = db.execute(
            "SELECT id, status, address, way FROM orders WHERE id = ?", (int(what[6:]),)
        ).fetchone()
        items = db.execute(
            "SELECT i.id, p.colour, p.kind, p.price, i.status FROM items i "
            "JOIN products p ON p.id = i.product WHERE i.orders = ? ORDER BY i.id",
            (order,),
        ).fetchall()
        return [f"Order {order} is {status}, goes to {address}, paid by {way}."] + [
            f"- item {n}: {colour} {kind}, {price}, {state}" for n, colour, kind, price, state in items
        ]
    products = db.execute("SELECT id, colour, price, stock FROM products WHERE kind = ? ORDER BY id", (what,))
    return [
        f"- product {n}: {colour} {what}, {price}, {stock} in stock" for n, colour, price, stock in products
    ]


# -- what calls change --------------------------------------------------------------------------------


def _cancel(db: sqlite3.Connection, order: str) -> str:
    status, way = db.execute("SELECT status, way FROM orders WHERE id = ?", (order,)).fetchone()
    if status != "pending":
        return f"Error: order {order} is {status}, not pending."
    db.execute("UPDATE orders SET status = 'cancelled' WHERE id = ?", (order,))
    for item, price in db.execute(
        "SELECT i.id, p.price FROM items i JOIN products p ON p.id = i.product WHERE i.orders = ?", (order,)
    ).fetchall():
        _back(db, item, price, way, "cancelled")
    return ""


def _move(db: sqlite3.Connection, order: str, address: str) -> str:
    (status,) = db.execute("SELECT status FROM orders WHERE id = ?", (order,)).fetchone()
    if status != "pending":
        return f"Error: order {order} is {status}, not pending."
    db.execute("UPDATE orders SET address = ? WHERE id = ?", (address, order))
    return ""


def _refund(db: sqlite3.Connection, item: str, way: str) -> str:
    error, price, _, _ = _delivered(db, item)
    if not error:
        _back(db, int(item), price, way, "returned")
    return error


def _exchange(db: sqlite3.Connection, item: str, product: str) -> str:
    error, price, old, way = _delivered(db, item)
    new, stock = db.execute("SELECT price, stock FROM products WHERE id = ?", (product,)).fetchone()
    if error or not stock or int(product) == old:
        return error or f"Error: product {product} is not in stock, or is the same."
    _back(db, int(item), price - new, way, "exchanged")
    db.execute("UPDATE products SET stock = stock - 1 WHERE id = ?", (product,))
    db.execute("UPDATE items SET product = ? WHERE id = ?", (product, item))
    return ""


def _delivered(db: sqlite3.Connection, item: str) -> tuple[str, int, int, str]:
    """Return what forbids to take an item back, its price, its product, and how it was paid."""
    order, status, own, price, product, way = db.execute(
        "SELECT o.id, o.status, i.status, p.price, p.id, o.way FROM items i JOIN orders o ON o.id = i.orders "
        "JOIN products p ON p.id = i.product WHERE i.id = ?",
        (item,),
    ).fetchone()
    if status != "delivered":
        return f"Error: order {order} is {status}, not delivered.", price, product, way
    error = "" if own == "kept" else f"Error: item {item} is {own} already."
    return error, price, product, way


def _back(db: sqlite3.Connection, item: int, amount: int, way: str, status: str) -> None:
    """Take an item back into stock, and pay for it."""
    db.execute(
        "UPDATE products SET stock = stock + 1 WHERE id = (SELECT product FROM items WHERE id = ?)", (item,)
    )
    db.execute("UPDATE items SET status = ? WHERE id = ?", (status, item))
    # The id follows the item, not the time: the same deeds in another order leave the same tables.
    db.execute("INSERT INTO payments VALUES (?, ?, ?, ?)", (item, item, amount, way))


_CHANGES: tuple[tuple[str, Callable[..., str]], ...] = (
    (r"cancel order (\d+)", _cancel),
    (r"refund item (\d+) to (card|gift card)", _refund),
    (r"exchange item (\d+) for (\d+)", _exchange),
)


def changed(db: sqlite3.Connection, action: str, address: str) -> str:
    """Do what a call says; return its error, "" if there is none."""
    move = re.fullmatch(r"move order (\d+)", action)
    if move:
        return _move(db, move[1], address)
    for pattern, change in _CHANGES:
        found = re.fullmatch(pattern, action)
        if found:
            return change(db, *found.groups())
    raise ParamError(f"no tool for {action[:80]!r}")


# -- tasks ----------------------------------------------------------------------------------------------


def shop_task(seed: int, *, wishes: int = 2, orders: int = 3) -> ShopTask:
    """Return a database with a customer who asks for something.

    Args:
        seed: of everything.
        wishes: things asked for, each of another order.
        orders: of the customer.

    Raises:
        ParamError: if there are not enough orders for the wishes.
    """
    if not 1 <= wishes <= min(3, orders) or orders > len(_KINDS):
        raise ParamError(f"wishes are 1-3 and at most orders (1-{len(_KINDS)}), got {wishes} of {orders}")
    rng = np.random.default_rng([seed, 61])
    db = sqlite3.connect(":memory:", isolation_level=None)
    db.executescript(_SCHEMA)
    email = _filled(db, rng, orders)
    start = db.serialize()
    address = f"{rng.integers(1, 99)} {rng.choice(_STREETS)}"
    asked = [_wish(db, rng, n) for n in sorted(rng.permutation(orders)[:wishes].tolist())]
    calls = [call for _, some in asked for call in some]
    solution = ("find customer", *calls, "done")
    if not any(call.startswith("move") for call in calls):
        address = ""
    for call in calls:
        if not call.startswith(("show", "list")):
            assert not changed(db, call, address), call
    words = " ".join(text for text, _ in asked).replace("ADDRESS", address)
    return ShopTask(start, email, words, address, solution, digest(db))


def _filled(db: sqlite3.Connection, rng: np.random.Generator, orders: int) -> str:
    """Fill the tables: every product, the customer with orders of different kinds, and others."""
    n = 0
    for kind in _KINDS:
        prices = rng.permutation(np.arange(10, 90))[: len(_COLOURS)]
        for colour, price in zip(_COLOURS, prices.tolist(), strict=True):
            n += 1
            db.execute("INSERT INTO products VALUES (?, ?, ?, ?, ?)", (n, kind, colour, price, 1 + n % 3))
    email = ""
    numbers = iter(rng.permutation(np.arange(100, 999)).tolist())
    items = iter(rng.permutation(np.arange(1, 99)).tolist())
    for customer in range(1, 4):
        name = f"{_FIRST[int(rng.integers(len(_FIRST)))]} {_LAST[int(rng.integers(len(_LAST)))]}"
        address = f"{name.lower().replace(' ', '.')}{customer}@mail.example"
        email = email or address
        db.execute("INSERT INTO customers VALUES (?, ?, ?)", (customer, name, address))
        for kind in rng.permutation(len(_KINDS))[:orders].tolist():
            row = (
                next(numbers),
                customer,
                ("pending", "delivered")[int(rng.integers(2))],
                f"{rng.integers(1, 99)} {rng.choice(_STREETS)}",
                WAYS[int(rng.integers(2))],
            )
            db.execute("INSERT INTO orders VALUES (?, ?, ?, ?, ?)", row)
            product = 1 + kind * len(_COLOURS) + int(rng.integers(len(_COLOURS)))
            db.execute("INSERT INTO items VALUES (?, ?, ?, 'kept')", (next(items), row[0], product))
    return email


def _wish(db: sqlite3.Connection, rng: np.random.Generator, place: int) -> tuple[str, Sequence[str]]:
    """Return what the customer says about one of their orders, and the calls that do it."""
    order, status, item, colour, kind, product = db.execute(
        "SELECT o.id, o.status, i.id, p.colour, p.kind, p.id FROM orders o JOIN items i ON i.orders = o.id "
        "JOIN products p ON p.id = i.product WHERE o.customer = 1 ORDER BY o.id LIMIT 1 OFFSET ?",
        (place,),
    ).fetchone()
    what, look = f"the {colour} {kind}", f"show order {order}"
    first = bool(rng.integers(2))
    if status == "pending":
        if first:
            return f"Please cancel my order of {what}.", (look, f"cancel order {order}")
        return f"Please send my order of {what} to ADDRESS instead.", (look, f"move order {order}")
    if first:
        way = WAYS[int(rng.integers(2))]
        return f"I want my money back for {what}, to my {way}.", (look, f"refund item {item} to {way}")
    others = db.execute(
        "SELECT id FROM products WHERE kind = ? AND id != ? AND stock > 0 ORDER BY price", (kind, product)
    ).fetchone()
    return (
        f"I want {what} exchanged for the cheapest other {kind}.",
        (look, f"list {kind}", f"exchange item {item} for {others[0]}"),
    )
