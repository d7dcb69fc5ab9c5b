"""ASCT: what search found an action worth, minus what it found the actor's mix of actions worth.

Source: arXiv 2609.35215, Algorithm 1 and appendix A (no code is known).  Differences:
docs/methods/asct.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from accredit.data import Explanation, Finding, Parts, Term
from accredit.data.values import is_number
from accredit.errors import DataError, MissingSignal
from accredit.index import GroupStats, Index, flat_groups, segment_sum
from accredit.methods._params import bounded, choice
from accredit.methods._registry import method
from accredit.typing import Array, BoolArray, Floats, Ints

__all__ = ["asct"]


@dataclass(frozen=True, slots=True)
class Params:
    """Parameters of `asct`."""

    standardise: str = choice(
        "batch", "none", doc="mean 0 and deviation 1 over all decisions of the batch; or as it is"
    )
    eps: float = bounded(1e-8, at_least=0, doc="added to the deviation")
    baseline: str = choice("actor", "uniform", doc="actions weigh by the actor's chance p, or alike")
    illegal: str = choice(
        "zero",
        "rollout",
        doc="an action that was not legal: 0; or what its rollout got minus the state's value",
    )
    missing: str = choice("raise", "zero", doc="a decision that was not searched: refuse; or credit 0")


@method(
    "asct",
    title="Searched value of the action taken minus the actor's mean over all legal actions",
    family="forks",
    params=Params,
    needs={"search", "action"},
    yields="step",
    tags={"cross_group", "no_reward"},
    cites="arXiv:2609.35215",
)
def asct(index: Index, params: Params) -> Parts:
    """Actor-centred advantage from a search table.

    ``Q(a)`` is the mean utility of the trials that began with a, ``V = sum_a p_a Q(a)`` over the legal
    actions that were tried, p renormalised over them, and ``A = Q(a_t) - V``; ``sum_a p_a A(a) = 0``.
    Then mean 0 and deviation 1 (population) over all decisions of the batch.  A state with one legal
    action is no decision: 0.

    Args:
        index: of the batch; `search` of a step maps each legal action to n, mean and p (and `var`, the
            variance of one trial, for standard errors).
        params: see `Params`.

    Returns:
        Step credit ``[S]``, reward units or, standardised, none; 0 where there is no decision.  Extras
        ``[S]``: ``raw`` A before standardising, ``q``, ``v``, ``trials``, ``flat`` 1 where all Q are
        equal, ``flips`` 1 where weighing all actions alike would turn the sign, ``se`` of A where every
        table has `var`.  ``[J]``, all legal actions in the order of the tables: ``action_step``,
        ``action_q``, ``action_p``, ``action_advantage`` (0 where not tried).

    Raises:
        DataError: if a decision was not searched and ``missing`` is raise, or a table is none.
        MissingSignal: ``illegal="rollout"`` without rewards.

    Source: arXiv 2609.35215, Eq. of the actor-centred credit.

    Example:
        >>> import accredit as ac
        >>> table = {"x": {"n": 4, "mean": 0.4, "p": 0.5}, "y": {"n": 5, "mean": 0.7, "p": 0.3}}
        >>> table["z"] = {"n": 3, "mean": 0.55, "p": 0.2}
        >>> record = {"id": "a", "group": "g", "steps": [{"action": "y", "search": table}]}
        >>> ac.assign([record], "asct", standardise="none").steps.round(6).tolist()
        [0.18]
    """
    tree = _Searched(index, params)
    raw = tree.raw_S
    values, parts = raw, {"search": raw}
    if params.standardise == "batch":
        everyone = GroupStats(raw, np.zeros(raw.size, np.int64), 1, tree.decided_S)
        values = everyone.standardised(params.eps, ddof=0)
        parts["standardising"] = values - raw

    def explain(s: int) -> Explanation:
        if not tree.decided_S[s]:
            return Explanation("asct", *index.place_of(s), 0.0, (), (tree.reason(s),))
        inputs = {"q": float(tree.taken_S[s]), "v": float(tree.value_S[s]), "trials": float(tree.trials_S[s])}
        text = "value {q:.6g} of the action - {v:.6g} of the actor's mix, {trials:.0f} trials".format(
            **inputs
        )
        terms = [Term("search", float(raw[s]), text, inputs)]
        if "standardising" in parts:
            terms.append(Term("standardising", float(parts["standardising"][s]), "over the whole batch"))
        return Explanation("asct", *index.place_of(s), float(values[s]), tuple(terms))

    return Parts(
        values,
        parts=parts,
        informed_S=tree.decided_S,
        fallbacks=tree.fallbacks,
        findings=tree.findings(),
        extras=tree.extras(),
        explain=explain,
    )


class _Searched:
    """The search tables of a batch, flat over legal actions ``J``.

    Args:
        index: of the batch.
        params: see `Params`.
    """

    def __init__(self, index: Index, params: Params) -> None:
        self.index, self.params = index, params
        self.size = index.batch.n_steps
        step, rows, names = self._rows()
        self.step_J: Ints = np.array(step, np.int64)
        self.n_J, self.mean_J, told_p, self.var_J = np.array(rows, np.float64).reshape(-1, 4).T
        self.tried_J: BoolArray = self.n_J > 0
        action = index.batch.column("action_S")
        done = action.decoded()
        known = action.mask(self.size)
        self.chosen_J: BoolArray = np.array(
            [bool(known[s]) and str(done[s]) == a for s, a in zip(step, names, strict=True)], bool
        )
        self.p_J: Floats = self._weights(told_p)
        self._decide()

    # -- reading ------------------------------------------------------------------------------------

    def _rows(self) -> tuple[list[int], list[list[float]], list[str]]:
        column = self.index.batch.column("search_S")
        step: list[int] = []
        rows: list[list[float]] = []
        names: list[str] = []
        for s in np.flatnonzero(column.mask(self.size)).tolist():
            table = column.item(s)
            if not isinstance(table, Mapping):
                raise self._odd(s, table)
            for action, told in table.items():
                step.append(s)
                names.append(str(action))
                rows.append(self._row(s, told))
        return step, rows, names

    def _row(self, s: int, told: Any) -> list[float]:
        """Return n, mean, p and var; p and var are -1 where absent."""
        if not isinstance(told, Mapping):
            raise self._odd(s, told)
        n: Any = told.get("n")
        given = [n, told.get("mean") if n else 0.0, *(_or_absent(told, name) for name in ("p", "var"))]
        if not all(map(is_number, given)) or n < 0 or (told.get("p") is not None and told["p"] < 0):
            raise self._odd(s, told)
        return [float(x) for x in given]

    def _odd(self, s: int, got: Any) -> DataError:
        return DataError(
            f"a search table holds {repr(got)[:60]}",
            code="ACC110",
            where=self.index.where(s),
            hint='Give {"action": {"n": trials, "mean": their mean utility, "p": chance under the actor}}',
        )

    def _weights(self, told: Floats) -> Floats:
        """Return p over the actions that were tried ``[J]``; sums to 1 over a table with any."""
        lacks = told < 0
        none_told = self._sum(~lacks) == 0
        mixed = lacks & ~none_told[self.step_J]
        if mixed.any() and self.params.baseline == "actor":
            s = int(self.step_J[mixed][0])
            raise DataError(
                "some legal actions have a chance p and others have none",
                where=self.index.where(s),
                hint="Give p for all of them; or for none, then all weigh alike",
            )
        alike = lacks | (self.params.baseline == "uniform")
        mass = np.where(alike, 1.0, told) * self.tried_J
        empty = self._sum(mass) <= 0
        mass = np.where(empty[self.step_J], self.tried_J, mass)
        self._no_p = none_told & (self._sum(np.ones(told.size)) > 0)
        total = self._sum(mass)[self.step_J]
        found: Floats = np.divide(mass, total, out=np.zeros(mass.size), where=total > 0)
        return found

    def _sum(self, values_J: Array) -> Floats:
        return segment_sum(values_J, self.step_J, self.size)

    # -- what was decided ---------------------------------------------------------------------------

    def _decide(self) -> None:
        """Tell apart decisions, forced moves, illegal actions, and what was not searched."""
        legal = self._sum(np.ones(self.step_J.size))
        kept = ~self.index.has_status("rejected")[self.index.rollout_S]
        self.forced_S = kept & (legal == 1) & (self._sum(self.chosen_J) > 0)
        open_S = kept & ~self.forced_S
        searched = self._sum(self.tried_J) > 0
        self.illegal_S = open_S & (legal > 0) & (self._sum(self.chosen_J) == 0)
        own = self._sum(self.chosen_J & self.tried_J) > 0
        self.missing_S = open_S & ~self.illegal_S & ~own
        self.decided_S: BoolArray = open_S & own
        if self.params.illegal == "rollout":
            self.decided_S = self.decided_S | (self.illegal_S & searched & self._scored_S)
        if self.missing_S.any() and self.params.missing == "raise":
            raise DataError(
                f"{int(self.missing_S.sum())} decisions have no search, or none of the action taken",
                code="ACC420",
                where=self.index.where(int(np.flatnonzero(self.missing_S)[0])),
                hint="Search them (AsctPlanner), or say missing='zero'",
            )

    @cached_property
    def _scored_S(self) -> BoolArray:
        if not self.index.batch.has("reward_R"):
            raise MissingSignal(
                "illegal='rollout' needs `reward`, which these rollouts lack",
                code="ACC401",
                hint="Give `reward`",
            )
        return self.index.scored_R[self.index.rollout_S]

    @cached_property
    def trials_S(self) -> Floats:
        """Trials of each state ``[S]``."""
        return self._sum(self.n_J)

    @cached_property
    def value_S(self) -> Floats:
        """V ``[S]``; 0 where nothing was tried."""
        return self._sum(self.p_J * self.mean_J)

    @cached_property
    def flat_S(self) -> BoolArray:
        """Decisions whose actions are all worth the same ``[S]``."""
        flat = flat_groups(self.mean_J, self.step_J, self.size, self.tried_J)
        several = self._sum(self.tried_J) > 1
        found: BoolArray = flat & several & self.decided_S & ~self.illegal_S
        return found

    @cached_property
    def taken_S(self) -> Floats:
        """Value of the action taken ``[S]``: Q, or what the rollout got where it was illegal."""
        found = self._sum(np.where(self.chosen_J & self.tried_J, self.mean_J, 0.0))
        if self.params.illegal == "rollout":
            found = np.where(self.illegal_S & self.decided_S, self.index.return_S(1.0), found)
        return found

    @cached_property
    def raw_S(self) -> Floats:
        """A ``[S]``."""
        found = np.where(self.decided_S, self.taken_S - self.value_S, 0.0)
        found[self.flat_S] = 0.0
        return found

    @cached_property
    def flips_S(self) -> BoolArray:
        """Decisions whose sign would turn if all actions weighed alike ``[S]``."""
        tried = self._sum(self.tried_J)
        plain = self.taken_S - self._sum(self.tried_J * self.mean_J) / np.maximum(tried, 1)
        found: BoolArray = self.decided_S & ~self.flat_S & (np.sign(plain) != np.sign(self.raw_S))
        return found

    def reason(self, s: int) -> str:
        """Return why step s has no credit."""
        if self.forced_S[s]:
            return "one legal action: no decision"
        if self.illegal_S[s]:
            return "its action was not legal"
        return "not searched" if self.missing_S[s] else "rejected: no credit"

    # -- what is told -------------------------------------------------------------------------------

    @property
    def fallbacks(self) -> dict[str, int]:
        """How many steps were out of the ordinary, by kind."""
        legal, tried = self._sum(np.ones(self.step_J.size)), self._sum(self.tried_J)
        return {
            "not_searched": int(self.missing_S.sum()),
            "illegal": int(self.illegal_S.sum()),
            "some_untried": int((self.decided_S & (tried < legal)).sum()),
            "no_probs": int((self.decided_S & self._no_p & (self.params.baseline == "actor")).sum()),
            "all_equal": int(self.flat_S.sum()),
        }

    def findings(self) -> tuple[Finding, ...]:
        """Return what the user should know of the search."""
        decided, flat, flips = (int(x.sum()) for x in (self.decided_S, self.flat_S, self.flips_S))
        found = []
        if decided and 2 * flat >= decided:
            message = f"in {flat} of {decided} decisions search found all actions equally good"
            hint = (
                "Where random play hardly ever succeeds, complete trials by the actor: rule='actor_rollout'"
            )
            found.append(Finding("ACC521", "warning", message, hint=hint, count=flat))
        if flips and self.params.baseline == "actor":
            message = (
                f"weighing all legal actions alike would turn the sign of {flips} of {decided} decisions "
                f"({flips / decided:.1%})"
            )
            found.append(Finding("ACC522", "info", message, count=flips))
        return tuple(found)

    def extras(self) -> dict[str, Array]:
        """Return the read-outs by step, and the table of all legal actions."""
        found: dict[str, Array] = {
            "raw": self.raw_S,
            "q": np.where(self.decided_S, self.taken_S, 0.0),
            "v": np.where(self.decided_S, self.value_S, 0.0),
            "trials": self.trials_S,
            "flat": self.flat_S.astype(np.float64),
            "flips": self.flips_S.astype(np.float64),
            "action_step": self.step_J,
            "action_q": self.mean_J * self.tried_J,
            "action_p": self.p_J,
            "action_advantage": (self.mean_J - self.value_S[self.step_J]) * self.tried_J,
        }
        if (self.var_J[self.tried_J] >= 0).all():
            found["se"] = self._se()
        return found

    def _se(self) -> Floats:
        """Return the standard error of A for independent trials ``[S]``."""
        legal = self.decided_S & ~self.illegal_S
        own = self.chosen_J.astype(np.float64)
        error = np.divide(self.var_J, self.n_J, out=np.zeros(self.n_J.size), where=self.tried_J)
        return np.where(legal, np.sqrt(self._sum((own - self.p_J) ** 2 * error)), 0.0)


def _or_absent(told: Mapping[str, Any], name: str) -> Any:
    value = told.get(name)
    return -1.0 if value is None else value
