"""IBPO: a failure that a local correction would have saved is blamed less, and where it was corrected.

Source: arXiv 2605.16302, read at second hand (no code is known).  Differences: docs/methods/ibpo.md.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from accredit.data import Explanation, Finding, Parts, Term
from accredit.errors import MissingSignal, ParamError
from accredit.index import GroupStats, Index, rollout_term, segment_sum
from accredit.methods._params import bounded, choice, flag, truncated_choice
from accredit.methods._registry import method
from accredit.methods._revisions import Correction, Unit, corrections
from accredit.typing import Array, BoolArray, Floats

__all__ = ["ibpo"]


@dataclass(frozen=True, slots=True)
class Params:
    """Parameters of `ibpo`."""

    lam: float = bounded(0.6, at_least=0, doc="weight of the correction score; lam rho < 1")
    rho: float = bounded(0.5, at_least=0, at_most=1, doc="score of a failure that every revision saved")
    mode: str = choice(
        "revision",
        "implicit",
        doc="verified revisions; or likeness to the nearest correct rollout of the group",
    )
    mask: bool = flag(default=True, doc="a corrected failure is blamed at what was edited alone")
    step: str = choice(
        "mask", "fraction", doc="a step with edited tokens gets all the blame, or the share of them"
    )
    align: str = choice(
        "auto",
        "token",
        "step",
        doc="compared are tokens, or actions of steps; auto: tokens where there are any",
    )
    mark_insertions: bool = flag(default=True, doc="what a revision puts in marks what stands before it")
    max_edit_fraction: float = bounded(
        1.0, at_least=0, at_most=1, doc="a revision that edits a larger share is no local one: no mask"
    )
    positive_on: str = choice(
        "edited", "kept", doc="where a corrected failure above its group's mean gets its credit"
    )
    success_at: float = bounded(1.0, doc="a rollout with this score or more is right")
    std: str = choice("unbiased", "population", doc="deviation of the group, by n - 1 or by n")
    eps: float = bounded(1e-6, at_least=0, doc="added to the deviation")
    truncated: str = truncated_choice()


@method(
    "ibpo",
    title="Group-relative outcome; failures near a success are blamed less, and where they went wrong",
    family="forks",
    params=Params,
    needs={"reward"},
    yields="token",
    tags={"group"},
    cites="arXiv:2605.16302",
)
def ibpo(index: Index, params: Params) -> Parts:
    """Outcome advantage with failures shaped and masked by corrections.

    ``R'_i = R_i + lam phi_i``, ``phi_i = s_i (1 - R_i)`` for a failure and 0 for a success, s_i = rho
    times the share of its revisions that succeed; ``A_i = (R'_i - mean_g R') / (std_g R' + eps)``.  A
    corrected failure carries A_i only on the tokens (or steps) that its revision of fewest edits
    changed, all others everywhere.  With ``lam=0, mask=False`` it is `grpo`.

    ``mode="implicit"``: s_i = rho (1 - edit distance / length of the longer) to the nearest correct
    rollout of the group, which stands in for the revision.

    Args:
        index: of the batch; `revision` of a failed rollout holds its `reward` and its `tokens` (flat or
            by step) or `actions`; or a list of such.
        params: see `Params`.

    Returns:
        Token credit ``[T]``, step credit ``[S]``.  ``parts``: ``shaped``, ``mask``.  Extras: ``phi``,
        ``shaped_reward``, ``corrected`` ``[R]``; ``mask`` ``[T]``; ``variance_added`` lam Var(phi) and
        ``variance_bound`` -2 Cov(R, phi) ``[G]``: shaping lowers a group's variance iff the first is less.

    Raises:
        MissingSignal: without `revision` in mode revision.
        ParamError: unless ``lam rho < 1``: a failure could overtake a success.
        DataError: for a revision that is none.

    Source: arXiv 2605.16302.

    Example:
        >>> import accredit as ac
        >>> rows = {"axcd": 1.0, "abcd": 0.0, "aaaa": 0.0, "bbbb": 0.0}
        >>> records = [
        ...     {"id": word, "group": "g", "reward": reward, "steps": [{"action": a} for a in word]}
        ...     for word, reward in rows.items()
        ... ]
        >>> records[1]["revision"] = {"reward": 1, "actions": list("axcd")}
        >>> ac.assign(records, "ibpo").steps[:8].round(4).tolist()
        [1.431, 1.431, 1.431, 1.431, 0.0, -0.053, 0.0, 0.0]
    """
    if params.lam * params.rho >= 1:
        raise ParamError(
            f"lam x rho must be below 1, else a corrected failure overtakes a success; got "
            f"{params.lam:g} x {params.rho:g}"
        )
    if params.mode == "revision" and not index.batch.has("revision_R"):
        raise MissingSignal(
            "mode='revision' needs `revision`, which these rollouts lack",
            code="ACC401",
            hint="Let a reviser correct the failures (IbpoPlanner), or say mode='implicit'",
        )
    shaped = _Shaped(index, params)
    A, mask_T, mask_S = shaped.advantage_R, *shaped.masks
    broadcast = np.repeat(A, index.tokens_R)
    values, steps = broadcast * mask_T, A[index.rollout_S] * mask_S
    std_G = shaped.stats.std(shaped.ddof)

    def explain(s: int) -> Explanation:
        r = int(index.rollout_S[s])
        first = rollout_term(index, "shaped", shaped.stats, r, eps=params.eps, scale_G=std_G)
        terms = [first]
        if shaped.phi_R[r] or mask_S[s] != 1:
            text = (
                f"share of the step that was edited {mask_S[s]:.3g}; correction score {shaped.score_R[r]:.3g}"
            )
            terms.append(Term("mask", float(steps[s] - A[r]), text))
        return Explanation("ibpo", *index.place_of(s), float(steps[s]), tuple(terms))

    return Parts(
        values,
        parts={"shaped": broadcast, "mask": values - broadcast},
        steps=steps,
        informed_S=shaped.corrected_R[index.rollout_S],
        fallbacks=shaped.fallbacks,
        findings=shaped.findings(),
        extras={**shaped.extras(), "mask": mask_T},
        explain=explain,
    )


class _Shaped:
    """Shaped rewards, their advantages, and where they act.

    Args:
        index: of the batch.
        params: see `Params`.
    """

    def __init__(self, index: Index, params: Params) -> None:
        self.index, self.params = index, params
        self.ddof = 1 if params.std == "unbiased" else 0
        self.counted: BoolArray = index.counted_R(params.truncated)
        self.wrong = np.flatnonzero(self.counted & (index.score_R < params.success_at))
        right = self.counted & (index.score_R >= params.success_at)
        self.left_out: Counter[str] = Counter()
        self.found: dict[int, Correction] = dict(
            corrections(index, self.wrong, right, params.mode, params.align, params.success_at, self.left_out)
        )
        self.score_R = np.zeros(len(index.batch))
        for r, correction in self.found.items():
            self.score_R[r] = params.rho * correction.share
        self.phi_R: Floats = self.score_R * np.maximum(1 - index.score_R, 0.0)
        self.shaped_R: Floats = index.score_R + params.lam * self.phi_R
        self.stats = GroupStats(self.shaped_R, index.group_R, index.n_groups, self.counted)
        self.advantage_R: Floats = self.stats.standardised(params.eps, self.ddof)

    @cached_property
    def corrected_R(self) -> BoolArray:
        """Failures that a revision saved ``[R]``."""
        return self.score_R > 0

    @cached_property
    def trapped(self) -> int:
        """Number of corrected failures whose positive credit lands on what had to be changed."""
        if not self.params.mask or self.params.positive_on == "kept":
            return 0
        up = self.corrected_R & (self.advantage_R > 0)
        return sum(self._marked(r) is not None for r in np.flatnonzero(up).tolist())

    @cached_property
    def masks(self) -> tuple[Floats, Floats]:
        """Where credit acts: ``[T]``, and the share of each step ``[S]``."""
        index = self.index
        mask_T, mask_S = np.ones(index.batch.n_tokens), np.ones(index.batch.n_steps)
        for r in self.found if self.params.mask else ():
            marked = self._marked(r)
            if marked is None:
                continue
            steps = slice(*index.batch.step_start_R1[r : r + 2])
            tokens = slice(*index.token_start_R1[r : r + 2])
            if self.found[r].unit is Unit.STEP:
                mask_S[steps] = marked
                mask_T[tokens] = np.repeat(marked, index.tokens_S[steps])
            else:
                mask_T[tokens] = marked
                mask_S[steps] = self._by_step(marked, r)
        return mask_T, mask_S

    def _by_step(self, marked: BoolArray, r: int) -> Floats:
        size = self.index.tokens_S[slice(*self.index.batch.step_start_R1[r : r + 2])]
        total = segment_sum(marked, np.repeat(np.arange(size.size), size), size.size)
        share = total / np.maximum(size, 1)
        return share if self.params.step == "fraction" else (share > 0).astype(np.float64)

    def _marked(self, r: int) -> BoolArray | None:
        """Return the tokens or steps of rollout r that carry its credit; None = all."""
        correction, params = self.found[r], self.params
        if correction.alignment is None or not correction.share:
            return None
        edited = correction.alignment.edited(mark_insertions=params.mark_insertions)
        if not edited.any() or edited.all() or edited.mean() > params.max_edit_fraction:
            return None
        if params.positive_on == "kept" and self.advantage_R[r] > 0:
            return correction.alignment.kept
        return edited

    @property
    def fallbacks(self) -> Mapping[str, int]:
        """How many failures were out of the ordinary, by kind."""
        alone = int(self.stats.alone.sum())
        inexact = sum(c.alignment is not None and not c.alignment.exact for c in self.found.values())
        whole = sum(c.share > 0 and self._marked(r) is None for r, c in self.found.items())
        names = ("no_revision", "unverified", "no_reference")
        left = {name: self.left_out[name] for name in names}
        return left | {"singleton": alone, "whole": whole, "inexact_alignment": inexact}

    def extras(self) -> dict[str, Array]:
        """Return the read-outs besides the credit."""
        added, bound = self._variance
        return {
            "phi": self.phi_R,
            "shaped_reward": np.where(self.counted, self.shaped_R, 0.0),
            "corrected": self.corrected_R.astype(np.float64),
            "variance_added": added,
            "variance_bound": bound,
        }

    @cached_property
    def _variance(self) -> tuple[Floats, Floats]:
        index = self.index
        plain = GroupStats(index.score_R, index.group_R, index.n_groups, self.counted)
        phi = GroupStats(self.phi_R, index.group_R, index.n_groups, self.counted)
        size = np.maximum(plain.size, 1)
        both = segment_sum(plain.centred * phi.centred, index.group_R, index.n_groups) / size
        return self.params.lam * phi.std(0) ** 2, -2 * both

    def findings(self) -> tuple[Finding, ...]:
        """Return what the user should know of the shaping."""
        found = []
        if self.trapped:
            message = (
                f"{self.trapped} corrected failures lie above their group's mean: "
                "what had to be changed is praised"
            )
            hint = "Say positive_on='kept' to praise what was right"
            found.append(Finding("ACC524", "warning", message, hint=hint, count=self.trapped))
        added, bound = self._variance
        plain = GroupStats(self.index.score_R, self.index.group_R, self.index.n_groups, self.counted)
        worse = int(((added - bound > 1e-12) & ~plain.flat).sum())
        if worse:
            message = f"in {worse} groups shaping raises the variance of the reward"
            found.append(Finding("ACC525", "info", message, hint="Take a smaller lam or rho", count=worse))
        if self.params.mode == "implicit":
            message = (
                f"{len(self.found)} failures are scored by likeness to a success; no correction was tried"
            )
            hint = "Give `revision` and say mode='revision'"
            found.append(Finding("ACC526", "info", message, hint=hint, count=len(self.found)))
        return tuple(found)
