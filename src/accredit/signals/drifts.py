"""Whether probe and sampler speak of the same tokens: drift a rollout, and alignment under shifts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from accredit.data import Batch, Finding
from accredit.data.likeness import require_alike
from accredit.errors import DataError
from accredit.index.segments import row_of, segment_sum
from accredit.signals.passages import placed, unique
from accredit.signals.reductions import rows_at_a_time
from accredit.signals.request import SAMPLED, Distributions, ProbeRequest, Span, Want
from accredit.typing import Array, Floats, Ints

__all__ = ["Alignment", "Drift", "alignment", "drift"]

SHIFTS = (-1, 0, 1)


@dataclass(frozen=True)
class Drift:
    """How far the probe's log-probabilities are from the sampler's, nats.

    Args:
        recorded: the sampler's column.
        probed: the probe's column.
        ids: rollouts that have tokens in both.
        tokens: ``[n]`` tokens compared.
        mean: ``[n]`` mean of ``|sampler - probe|``.
        most: ``[n]`` largest of it.
        tolerance: mean above which a rollout is a finding.
    """

    recorded: str
    probed: str
    ids: tuple[str, ...]
    tokens: Ints
    mean: Floats
    most: Floats
    tolerance: float

    def overall(self) -> tuple[float, float, int]:
        """Return mean and largest difference over all tokens, and their number."""
        n = int(self.tokens.sum())
        mean = float((self.mean * self.tokens).sum() / n) if n else 0.0
        return mean, float(self.most.max(initial=0)), n

    def findings(self) -> tuple[Finding, ...]:
        """Return a warning if a rollout's mean is above the tolerance."""
        far = np.flatnonzero(self.mean > self.tolerance)
        if not far.size:
            return ()
        worst = far[np.argsort(-self.mean[far], kind="stable")]
        mean, most, n = self.overall()
        return (
            Finding(
                "ACC758",
                "warning",
                f"{far.size} of {len(self.ids)} rollouts drift: |sampler - probe| is on average over "
                f"{self.tolerance:g} nat (all {n} tokens: mean {mean:.3g}, largest {most:.3g})",
                self.ids[worst[0]],
                "Compare temperature, weights and dtype; subtract only log-probs of one back end",
                int(far.size),
                tuple(self.ids[i] for i in worst[:5]),
            ),
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the drift as JSON-ready fields, worst rollouts first."""
        mean, most, n = self.overall()
        order = np.argsort(-self.mean, kind="stable")
        rows = [
            {
                "rollout": self.ids[i],
                "tokens": int(self.tokens[i]),
                "mean": float(self.mean[i]),
                "most": float(self.most[i]),
            }
            for i in order
        ]
        return {
            "recorded": self.recorded,
            "probed": self.probed,
            "tokens": n,
            "mean": mean,
            "most": most,
            "tolerance": self.tolerance,
            "rollouts": rows,
        }


def drift(
    batch: Batch, recorded: str = "logprob_T", probed: str = "probe_logprob_T", *, tolerance: float = 0.1
) -> Drift:
    """Return how far a probe's log-probabilities are from recorded ones, a rollout.

    Different kernels and dtypes alone give 1e-3 to 1e-1; more is another temperature, other weights, or
    another place.

    Args:
        batch: with both columns.
        recorded: the sampler's.
        probed: the probe's.
        tolerance: mean difference above which a rollout is a finding, nats.

    Raises:
        DataError: if a column is missing, or both say that their temperature or mode differ.
    """
    one, other = batch.column(recorded), batch.column(probed)
    require_alike(
        recorded, one.provenance, probed, other.provenance, ("dtype", "backend", "weights", "model")
    )
    both = one.mask(batch.n_steps) & other.mask(batch.n_steps)
    keep = np.repeat(both, np.diff(batch.token_start_S1))
    rollout = row_of(batch.token_start_S1[batch.step_start_R1])[keep]
    apart = np.abs(one.values[keep].astype(np.float64) - other.values[keep])
    n = np.bincount(rollout, minlength=len(batch))
    most = np.zeros(len(batch))
    np.maximum.at(most, rollout, apart)
    there = np.flatnonzero(n)
    mean = segment_sum(apart, rollout, len(batch))[there] / n[there]
    names = tuple(batch.ids[r] for r in there)
    return Drift(recorded, probed, names, n[there], mean, most[there], tolerance)


@dataclass(frozen=True, slots=True)
class Alignment:
    """Mean log-probability of chosen tokens when the rows of the logits are shifted.

    Args:
        logprob: by shift; nats.
        tokens: that every shift was read at.
    """

    logprob: Mapping[int, float]
    tokens: int

    @property
    def best(self) -> int:
        """Shift with the highest mean."""
        return max(self.logprob, key=lambda shift: self.logprob[shift])

    def findings(self) -> tuple[Finding, ...]:
        """Return an error if another shift than 0 fits the chosen tokens best."""
        if self.best == 0:
            return ()
        told = ", ".join(f"{shift:+d}: {value:.3f}" for shift, value in self.logprob.items())
        return (
            Finding(
                "ACC759",
                "error",
                f"chosen tokens are more probable with rows shifted by {self.best:+d} ({told} nat, "
                f"{self.tokens} tokens)",
                "",
                "Check that prompt ids and token ids are those of one call, and belong to this model",
            ),
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the means as JSON-ready fields."""
        return {
            "logprob": {str(k): v for k, v in self.logprob.items()},
            "tokens": self.tokens,
            "best": self.best,
        }


def alignment(batch: Batch, backend: Distributions, *, passages: int = 32, seed: int = 0) -> Alignment:
    """Return the mean log-probability of the chosen tokens at rows p - 2, p - 1 and p.

    Row p - 1 is the one that predicted token p; if another one fits better, ids or rows are displaced.

    Args:
        batch: rollouts with ids.
        backend: shows whole distributions.
        passages: how many distinct requests are looked at.
        seed: which ones, where there are more.

    Raises:
        DataError: if there is no token to look at.
    """
    asks = [group[0] for group in unique(placed(batch, Want(logprob=True), SAMPLED).requests).values()]
    picked = np.random.default_rng(seed).permutation(len(asks))[:passages]
    values = [_shifted(backend, asks[i]) for i in np.sort(picked)]
    table = np.concatenate(values) if values else np.zeros((0, len(SHIFTS)))
    if not len(table):
        raise DataError("no token stands at index 2 or later of its sequence", code="ACC753")
    means = table.mean(axis=0).tolist()
    return Alignment(dict(zip(SHIFTS, means, strict=True)), len(table))


def _shifted(backend: Distributions, ask: ProbeRequest) -> Floats:
    """Log-probability ``[n, 3]`` of tokens at index 2 or later, a column a shift."""
    positions = ask.positions[ask.positions >= 2]
    ids = np.append(ask.ids, ask.ids[-1])  # so that the row of the last token has a successor
    columns = [
        _chosen(backend, ProbeRequest(ids, _single(positions + shift), ask.want), ask.ids[positions])
        for shift in SHIFTS
    ]
    return np.stack(columns, axis=1) if positions.size else np.zeros((0, len(SHIFTS)))


def _single(positions: Ints) -> tuple[Span, ...]:
    return tuple(Span(i, p, p + 1) for i, p in enumerate(positions.tolist()))


def _chosen(backend: Distributions, ask: ProbeRequest, ids: Ints) -> Floats:
    size = rows_at_a_time(backend.vocabulary)
    found: list[Array] = []
    at = 0
    for rows in backend.rows(ask, size):
        found.append(rows[np.arange(len(rows)), ids[at : at + len(rows)]])
        at += len(rows)
    return np.concatenate(found).astype(np.float64) if found else np.zeros(0)
