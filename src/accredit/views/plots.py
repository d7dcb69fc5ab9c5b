"""``credit.plot``: every picture of one result, as SVG text that can be saved."""

from __future__ import annotations

from typing import TYPE_CHECKING

from accredit.views.matrix import draw_matrix, matrix_of
from accredit.views.svg import Picture
from accredit.views.turns import waterfall_of
from accredit.views.waterfall import draw_waterfall

if TYPE_CHECKING:
    from accredit.data import Credit

__all__ = ["Plots"]


class Plots:
    """Pictures of one result.

    Args:
        credit: the result.
    """

    def __init__(self, credit: Credit) -> None:
        self._credit = credit

    def waterfall(self, rollout: str) -> Picture:
        """Return the turn waterfall of a rollout: how did V(s0) become R?

        Args:
            rollout: its id.

        Raises:
            DataError: if there is no such rollout.

        Example:
            >>> import accredit as ac
            >>> won = {"id": "a", "group": "g", "reward": 1, "steps": [{"action": "go"}]}
            >>> lost = {"id": "b", "group": "g", "reward": 0, "steps": [{"action": "wait"}]}
            >>> credit = ac.assign([won, lost], "grpo")
            >>> credit.plot.waterfall("a").save(getfixture("tmp_path") / "a.svg").name
            'a.svg'
        """
        return draw_waterfall(waterfall_of(self._credit, rollout))

    def matrix(self, group: str) -> Picture:
        """Return the matrix of a group: where do siblings part?

        Args:
            group: its name.

        Raises:
            DataError: if there is no such group.
        """
        return draw_matrix(matrix_of(self._credit, group))

    def __repr__(self) -> str:
        return "Plots: waterfall(rollout), matrix(group)"
