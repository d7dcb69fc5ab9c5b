"""Orders of methods that papers report, checked against the truth."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from itertools import combinations
from typing import Any

import numpy as np

from accredit.benchmark.equipment import REFERENCES
from accredit.benchmark.journal import Cell
from accredit.benchmark.leaderboard import HEADLINE, LEVEL, MARGIN
from accredit.benchmark.plan import PLAIN
from accredit.benchmark.uncertainty import difference, holm

__all__ = ["CLAIMS", "Ordering", "duels_of", "orderings_of"]

# (better, worse, who says so): results of training, which credit is one cause of.
CLAIMS = (
    ("gigpo", "grpo", "arXiv:2505.10978"),
    ("hgpo", "gigpo", "arXiv:2602.22817"),
    ("crbc", "gigpo", "arXiv:2609.35082"),
    ("graft", "gigpo", "arXiv:2609.28963"),
    ("graph-hca", "gigpo", "arXiv:2609.35084"),
    ("gaca", "gigpo", "arXiv:2609.12424"),
    ("relace", "gigpo", "arXiv:2610.07349"),
    ("hcapo", "gigpo", "arXiv:2603.08754"),
    ("price", "grpo", "arXiv:2609.38890"),
    ("opo", "grpo", "arXiv:2505.23585"),
    ("rloo", "reinforce-pp", "arXiv:2402.14740"),
    ("td", "gae", "lam = 0 against 0.95, critic of error 0.1"),
)


@dataclass(frozen=True, slots=True)
class Ordering:
    """One order, by NMSE on the same tasks of the plain setting.

    Args:
        better: who should be nearer to the truth.
        worse: than whom.
        source: who says so.
        wins: families where it is, at the 5 % level after Holm over the families and by 0.001 or more.
        losses: families where the other is.
        ties: families where they are not separable.
        mean: mean difference of NMSE over families (negative: as claimed).
    """

    better: str
    worse: str
    source: str
    wins: tuple[str, ...]
    losses: tuple[str, ...]
    ties: tuple[str, ...]
    mean: float

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as JSON-ready values."""
        return asdict(self)


def orderings_of(cells: Iterable[Cell]) -> tuple[Ordering, ...]:
    """Return the orders whose two methods were both measured.

    Args:
        cells: of a run.
    """
    values: dict[str, dict[str, dict[int, float]]] = {}
    for cell in cells:
        if cell.place.setting == PLAIN.name and HEADLINE in cell.metrics:
            by_seed = values.setdefault(cell.place.method, {}).setdefault(cell.place.family, {})
            by_seed[cell.place.seed] = cell.metrics[HEADLINE]
    found = []
    for better, worse, source in CLAIMS:
        both = values.get(better, {}).keys() & values.get(worse, {}).keys()
        if both:
            found.append(_ordering(better, worse, source, values, sorted(both)))
    return tuple(found)


def duels_of(cells: Iterable[Cell]) -> dict[str, dict[str, int]]:
    """Return in how many families each method is nearer to the truth than each other one.

    Plain setting, 5 % level after Holm over all pairs of a family.

    Args:
        cells: of a run.
    """
    values: dict[str, dict[str, dict[int, float]]] = {}
    for cell in cells:
        place = cell.place
        if place.setting == PLAIN.name and HEADLINE in cell.metrics and place.method not in REFERENCES:
            values.setdefault(place.family, {}).setdefault(place.method, {})[place.seed] = cell.metrics[
                HEADLINE
            ]
    wins: dict[str, dict[str, int]] = {}
    for by_method in values.values():
        apart = {}
        for a, b in combinations(sorted(by_method), 2):
            seeds = sorted(by_method[a].keys() & by_method[b].keys())
            if seeds:
                apart[f"{a}|{b}"] = difference(
                    np.array([by_method[a][s] for s in seeds]), np.array([by_method[b][s] for s in seeds])
                )
        p = holm({pair: d.p for pair, d in apart.items()})
        for pair, d in apart.items():
            a, b = pair.split("|")
            if p[pair] <= LEVEL and abs(d.value) >= MARGIN:
                better, worse = (a, b) if d.value < 0 else (b, a)
                wins.setdefault(better, {})[worse] = wins.get(better, {}).get(worse, 0) + 1
    return wins


def _ordering(
    better: str,
    worse: str,
    source: str,
    values: dict[str, dict[str, dict[int, float]]],
    families: list[str],
) -> Ordering:
    apart = {}
    for family in families:
        first, second = values[better][family], values[worse][family]
        seeds = sorted(first.keys() & second.keys())
        apart[family] = difference(np.array([first[s] for s in seeds]), np.array([second[s] for s in seeds]))
    p = holm({family: d.p for family, d in apart.items()})
    told = {f: p[f] <= LEVEL and abs(apart[f].value) >= MARGIN for f in families}
    return Ordering(
        better,
        worse,
        source,
        tuple(f for f in families if told[f] and apart[f].value < 0),
        tuple(f for f in families if told[f] and apart[f].value > 0),
        tuple(f for f in families if not told[f]),
        float(np.mean([d.value for d in apart.values()])),
    )
