"""Which requests go through a model together: rows that share a prefix, buckets of like length.

A row is a prefix, computed once, and the tails of all requests that have it; each tail sees the prefix and
itself alone. A bucket is rows of like length up to a budget of padded tokens. Both depend on nothing
but the requests, so that the same requests give the same numbers, also after a restart.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from accredit.signals.request import ProbeRequest
from accredit.typing import Array, Ints

__all__ = ["Row", "block_mask", "buckets", "packed", "prefix_of"]


@dataclass(frozen=True, slots=True)
class Row:
    """One sequence of a forward pass.

    Args:
        members: positions of the requests in it.
        prefix: ids that all of them begin with.
        tails: what each adds, up to its last policy token.
    """

    members: tuple[int, ...]
    prefix: Ints
    tails: tuple[Ints, ...]

    @property
    def length(self) -> int:
        """Tokens of the row."""
        return int(self.prefix.size + sum(tail.size for tail in self.tails))

    def ids(self) -> Ints:
        """Return its ids, the prefix first."""
        return np.concatenate([self.prefix, *self.tails])

    def places(self) -> Ints:
        """Return the position of each token in its own request."""
        parts = [np.arange(self.prefix.size), *(self.prefix.size + np.arange(t.size) for t in self.tails)]
        return np.concatenate(parts)

    def owners(self) -> Ints:
        """Return the tail of each token, -1 for the prefix."""
        return np.repeat(np.arange(-1, len(self.tails)), [self.prefix.size, *(t.size for t in self.tails)])

    def index_of(self, tail: int, positions: Ints) -> Ints:
        """Return where positions of a member's request stand in the row.

        Args:
            tail: number of the member.
            positions: in the request.
        """
        skipped = sum(t.size for t in self.tails[:tail])
        return np.where(positions < self.prefix.size, positions, positions + skipped)


def prefix_of(request: ProbeRequest) -> Ints:
    """Return the ids before the first policy token."""
    return request.ids[: request.positions[0]]


def packed(requests: Sequence[ProbeRequest], budget: int, *, share: bool = True) -> list[Row]:
    """Return rows for all requests that have policy tokens, shortest first.

    Args:
        requests: any.
        budget: tokens of a shared row; a prefix whose tails do not fit gets several rows.
        share: whether requests with one prefix may share a row.
    """
    families: dict[bytes, list[int]] = {}
    for i, request in enumerate(requests):
        if request.positions.size:
            mark = prefix_of(request).tobytes() if share else str(i).encode()
            families.setdefault(mark, []).append(i)
    rows = [row for members in families.values() for row in _rows(requests, members, budget)]
    return sorted(rows, key=lambda row: row.length)


def _rows(requests: Sequence[ProbeRequest], members: Sequence[int], budget: int) -> list[Row]:
    prefix = prefix_of(requests[members[0]])
    rows: list[Row] = []
    held: list[tuple[int, Ints]] = []
    size = prefix.size
    for i in members:
        tail = requests[i].ids[prefix.size : requests[i].positions[-1] + 1]
        if held and size + tail.size > budget:
            rows.append(_row(prefix, held))
            held, size = [], prefix.size
        held.append((i, tail))
        size += tail.size
    return [*rows, _row(prefix, held)]


def _row(prefix: Ints, held: Sequence[tuple[int, Ints]]) -> Row:
    return Row(tuple(i for i, _ in held), prefix, tuple(tail for _, tail in held))


def buckets(rows: Sequence[Row], budget: int) -> list[list[Row]]:
    """Return rows in batches whose padded size stays in the budget; a longer row is alone.

    Args:
        rows: shortest first.
        budget: longest row times rows of a batch, at most.
    """
    found: list[list[Row]] = []
    for row in rows:
        if not found or row.length * (len(found[-1]) + 1) > budget:
            found.append([])
        found[-1].append(row)
    return found


def block_mask(rows: Sequence[Row], length: int) -> Array | None:
    """Return who may look at whom, bool ``[B, 1, L, L]``; None where plain causal attention says it.

    Padding looks at itself, so that no row of the softmax is empty.

    Args:
        rows: of one bucket.
        length: that they are padded to.
    """
    if all(len(row.tails) == 1 for row in rows):
        return None
    mask = np.zeros((len(rows), 1, length, length), bool)
    for i, row in enumerate(rows):
        owner = row.owners()
        mine = (owner[:, None] == owner[None, :]) | (owner[None, :] == -1)
        mask[i, 0, : owner.size, : owner.size] = np.tril(mine)
    mask[:, 0, range(length), range(length)] = True
    return mask
