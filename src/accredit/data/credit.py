"""The result of a method on a batch: credit of steps, advantages of tokens, and how they came."""

from __future__ import annotations

import dataclasses
import itertools
import pickle
from collections.abc import Callable, Mapping
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np

from accredit.data.batch import Batch
from accredit.data.explanation import Explanation
from accredit.data.finding import Exclusion, Finding
from accredit.data.parts import Explainer, MethodCard, Parts
from accredit.errors import DataError
from accredit.typing import Array, Floats, Ints

if TYPE_CHECKING:
    from accredit.views import Plots

__all__ = ["Credit"]


class Credit:
    """Credit of one method on one batch.

    Args:
        batch: the rollouts.
        card: the method's card.
        params: every parameter that was in force, `assign`'s own included.
        parts: what the method returned.
        spread: makes token advantages ``[T]`` (called once, on first use of ``tokens``).
        uncounted: rollouts that got no credit or joined no statistics, by reason.
        provenance: versions and what was done.
        again: makes this credit from its batch once more; what an unpickled credit explains with,
            for explainers do not travel.

    Arrays are read-only, and so are ``params``, ``parts`` and ``extras``: what is explained, shown
    and saved is what the method returned.  A credit can be pickled.

    Attributes:
        steps: float64 ``[S]``, credit of each step in the batch's order.
        parts: named addends of the credit, ``[T]`` where ``per_token``, else ``[S]``.
        extras: named read-outs of the method.
        coverage: shares of steps and groups with information beyond the outcome broadcast.
    """

    def __init__(
        self,
        batch: Batch,
        card: MethodCard,
        params: Mapping[str, Any],
        parts: Parts,
        spread: Callable[[], Floats],
        *,
        uncounted: Mapping[str, tuple[str, ...]] | None = None,
        provenance: Mapping[str, Any] | None = None,
        again: Callable[[Batch], Credit] | None = None,
    ) -> None:
        self.batch = batch
        self.card = card
        self.params: Mapping[str, Any] = MappingProxyType(dict(params))
        self.result = parts
        self.parts = _locked_all(parts.parts)
        self.extras = _locked_all(parts.extras)
        self.findings: tuple[Finding, ...] = parts.findings
        self.fallbacks = dict(parts.fallbacks)
        self.uncounted = dict(uncounted or {})
        self.provenance = dict(provenance or {})
        self.state = parts.state
        self.table = parts.table
        steps = parts.values if parts.steps is None else parts.steps
        self.steps: Floats = _locked(steps)
        self._spread: Callable[[], Floats] | None = spread
        self._again = again

    def __getstate__(self) -> dict[str, Any]:
        state = self.__dict__ | {"_spread": None}
        if self.card.yields != "table":
            state["tokens"] = self.tokens
        state.pop("_explainer", None)
        state["result"] = dataclasses.replace(self.result, explain=None)
        for name in ("params", "parts", "extras"):
            state[name] = dict(state[name])
        state["_again"] = self._again if _travels(self._again) else None
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__ |= state
        self.params = MappingProxyType(self.params)
        self.parts, self.extras = _locked_all(self.parts), _locked_all(self.extras)
        self.steps = _locked(self.steps)
        if "tokens" in state:
            self.tokens = _locked(state["tokens"])

    @property
    def method(self) -> str:
        """The method's id."""
        return self.card.id

    @property
    def per_token(self) -> bool:
        """Whether values and parts belong to tokens (``[T]``) rather than to steps (``[S]``)."""
        return self.result.steps is not None

    @cached_property
    def tokens(self) -> Floats:
        """Advantage of each policy token, float64 ``[T]``; 0 where a token is not trained.

        Raises:
            DataError: if the method gives a table instead.
        """
        self._refuse_table()
        assert self._spread is not None  # an unpickled credit brings its tokens
        return _locked(self._spread())

    @property
    def excluded(self) -> tuple[Exclusion, ...]:
        """Rollouts that were read but are not in the batch."""
        return self.batch.excluded

    @property
    def used(self) -> int:
        """Number of rollouts in the batch; used + excluded = rollouts read."""
        return len(self.batch)

    @cached_property
    def coverage(self) -> dict[str, float]:
        """Shares of steps and of groups with information beyond the outcome broadcast."""
        informed = self.result.informed_S
        if informed is None or not informed.size:
            return {"steps": 0.0, "groups": 0.0}
        rollout_S = np.repeat(np.arange(len(self.batch)), np.diff(self.batch.step_start_R1))
        touched = np.unique(self.batch.group_R[rollout_S[informed]]).size
        return {"steps": float(informed.mean()), "groups": touched / max(1, self.batch.n_groups)}

    def by_rollout(self) -> list[Floats]:
        """Return each rollout's step credit ``[steps of r]``, in the batch's order (views)."""
        return _split(self.steps, self.batch.step_start_R1)

    def tokens_by_rollout(self) -> list[list[Floats]]:
        """Return each rollout's token advantages, one array a step (views)."""
        per_step = _split(self.tokens, self.batch.token_start_S1)
        bounds = self.batch.step_start_R1.tolist()
        return [per_step[a:b] for a, b in itertools.pairwise(bounds)]

    def explain(self, rollout: str, step: int) -> Explanation:
        """Return the comparison set and the arithmetic behind one step's credit.

        Args:
            rollout: rollout id.
            step: 0-based step.

        Raises:
            DataError: if there is no such rollout or step, or the method gives a table instead.
        """
        self._refuse_table()
        r = self.batch.position(rollout)
        steps = self.batch.steps_of(r)
        if isinstance(step, bool) or not isinstance(step, int | np.integer):
            raise DataError(f"a step is a whole number from 0 to {len(steps) - 1}, got {step!r}")
        if not 0 <= step < len(steps):
            raise DataError(f"rollout {rollout!r} has {len(steps)} steps, no step {step}")
        if self._explainer is None:
            return Explanation(self.method, rollout, step, float(self.steps[steps[step]]), ())
        return self._explainer(steps[step])

    def _refuse_table(self) -> None:
        if self.card.yields == "table":
            raise DataError(
                f"method {self.method!r} gives a table, not a credit of steps",
                code="ACC833",
                hint="Read `credit.table`",
            )

    @cached_property
    def _explainer(self) -> Explainer | None:
        if self._spread is not None:
            return self.result.explain
        if self._again is None:
            raise DataError(
                f"this {self.method} credit was pickled without what explains it",
                hint="Explain before pickling, or give a key or a state that can be pickled",
            )
        return self._again(self.batch).result.explain

    def padded(self, mask: Array, *, fill: float = 0.0) -> Array:
        """Return token advantages laid out like a trainer's padded batch.

        Args:
            mask: bool ``[rows, length]``, True at policy tokens; one row a rollout, or one a
                record where rollouts were given as several rows.
            fill: value of all other positions.

        Returns:
            float32 ``[rows, length]``.

        Raises:
            DataError: naming the first row whose number of True positions is not its number of
                policy tokens.
        """
        where = np.asarray(mask, bool)
        counts = np.diff(self.row_token_start())
        got = where.sum(axis=1) if where.ndim == 2 else np.zeros(0, np.int64)
        if where.ndim != 2 or got.size != counts.size:
            raise DataError(
                f"mask has shape {where.shape}, not ({counts.size}, length)",
                hint="Give one row a rollout (or a record), in the batch's order",
            )
        wrong = np.flatnonzero(got != counts)
        if wrong.size:
            w = int(wrong[0])
            raise DataError(
                f"mask row {w} has {int(got[w])} policy positions for {int(counts[w])} policy tokens",
                hint="The mask must be True exactly at the sampled tokens, in order",
            )
        found = np.full(where.shape, fill, np.float32)
        found[where] = self.tokens
        return found

    def row_token_start(self) -> Ints:
        """Return int64 token offsets of each record: a rollout, or one of its rows."""
        batch = self.batch
        starts = batch.step_start_R1
        if batch.has("row_S"):
            starts = np.union1d(starts, _row_cuts(batch))
        return batch.token_start_S1[starts]

    def save(self, path: str | Path) -> Path:
        """Write the credit with its provenance (schema ``accredit.credit/1``).

        Args:
            path: ends in ``.parquet``, ``.jsonl``, ``.jsonl.gz`` or ``.jsonl.zst``.

        Raises:
            StoreError: if the file cannot be written or its kind is not known.
        """
        from accredit.store import save_credit

        return save_credit(self, Path(path))

    @property
    def plot(self) -> Plots:
        """Pictures of this credit: ``credit.plot.waterfall(rollout)`` …"""
        from accredit.views import Plots

        return Plots(self)

    def __repr__(self) -> str:
        changed = {k: v for k, v in self.params.items() if k in _non_defaults(self)}
        shown = ", ".join(f"{k}={v!r}" for k, v in changed.items())
        size = f"{len(self.batch)} rollouts, {self.batch.n_steps} steps, {self.batch.n_tokens} tokens"
        return f"Credit({self.method}{': ' if shown else ''}{shown})\n{size}\n{self._top()}"

    def _top(self, n: int = 3) -> str:
        order = np.argsort(-np.abs(self.steps), kind="stable")[:n].tolist()
        rollout_S = np.searchsorted(self.batch.step_start_R1, order, side="right") - 1
        return "largest: " + ", ".join(
            f"{self.batch.ids[r]} step {s - int(self.batch.step_start_R1[r])} {self.steps[s]:+.4g}"
            for s, r in zip(order, rollout_S.tolist(), strict=True)
        )

    def _repr_html_(self) -> str:
        from accredit.views import notebook_html

        return notebook_html(self)


def _locked(values: Array) -> Array:
    """Return a view that cannot be written; the owner's array stays as it is."""
    found = values.view()
    found.flags.writeable = False
    return found


def _locked_all(arrays: Mapping[str, Array]) -> Mapping[str, Array]:
    return MappingProxyType({name: _locked(np.asarray(values)) for name, values in arrays.items()})


def _travels(again: Callable[[Batch], Credit] | None) -> bool:
    try:
        pickle.dumps(again)
    except (pickle.PicklingError, AttributeError, TypeError):  # what pickle says of a lambda, by version
        return False
    return True


def _split(values: Floats, start: Ints) -> list[Floats]:
    bounds = start.tolist()
    return [values[a:b] for a, b in itertools.pairwise(bounds)]


def _row_cuts(batch: Batch) -> Ints:
    column = batch.column("row_S")
    codes = np.where(column.mask(batch.n_steps), column.values, -1)
    return np.flatnonzero(np.diff(codes)) + 1


def _non_defaults(credit: Credit) -> set[str]:
    defaults = {p.name: p.default for p in credit.card.params}
    return {k for k, v in credit.params.items() if k in defaults and defaults[k] != v}
