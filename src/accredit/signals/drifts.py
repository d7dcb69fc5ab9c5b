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
from accredit.signals.pairs import SAMPLER
from accredit.signals.passages import placed, unique
from accredit.signals.reductions import rows_at_a_time
from accredit.signals.request import SAMPLED, Distributions, ProbeRequest, Span, Want
from accredit.typing import Floats, Ints

__all__ = ["Alignment", "Checkup", "Drift", "alignment", "checkup", "drift"]

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


@dataclass(frozen=True)
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


def alignment(batch: Batch, backend: Distributions, *, passages: int = 16, seed: int = 0) -> Alignment:
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
    """Log-probability ``[n, 3]`` of tokens at index 2 or later, a column a shift; one forward."""
    positions = ask.positions[ask.positions >= 2]
    if not positions.size:
        return np.zeros((0, len(SHIFTS)))
    ids = np.append(ask.ids, ask.ids[-1])  # so that the row of the last token has a successor
    read = np.unique(positions[:, None] + np.array(SHIFTS))
    rows = ProbeRequest(ids, tuple(Span(i, p, p + 1) for i, p in enumerate(read.tolist())), ask.want)
    found, at = np.zeros((positions.size, len(SHIFTS))), 0
    for piece in backend.rows(rows, rows_at_a_time(backend.vocabulary)):
        for column, shift in enumerate(SHIFTS):
            here = np.searchsorted(read, positions + shift) - at
            mine = (here >= 0) & (here < len(piece))
            found[mine, column] = piece[here[mine], ask.ids[positions[mine]]]
        at += len(piece)
    return found


@dataclass(frozen=True)
class Checkup:
    """What a probe says about the recording that it scored.

    Args:
        drift: against the sampler's log-probabilities, where there are any.
        alignment: under shifts, where the back end shows whole distributions.
    """

    drift: Drift | None
    alignment: Alignment | None

    def findings(self) -> tuple[Finding, ...]:
        """Return the findings of both."""
        return tuple(f for part in (self.drift, self.alignment) if part is not None for f in part.findings())


def checkup(scored: Batch, backend: Any, *, tolerance: float = 0.1) -> Checkup:
    """Return drift and alignment of a batch that was probed, as far as they can be told.

    Args:
        scored: what `probe` or `paired` returned.
        backend: who scored it.
        tolerance: of `drift`, nats.
    """
    pairs = (("logprob_T", "probe_logprob_T"), (SAMPLER, "logprob_T"))
    both = next((pair for pair in pairs if all(scored.has(name) for name in pair)), None)
    return Checkup(
        drift(scored, *both, tolerance=tolerance) if both else None,
        alignment(scored, backend) if callable(getattr(backend, "rows", None)) else None,
    )
