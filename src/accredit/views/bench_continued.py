"""What continuations bought on recorded rollouts, in sentences."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = ["continued_words"]


_WHO = (
    "Continuations are played in the explored worlds (`accredit truth --tables`) by the chances that the "
    "policy gave its actions there: the same policy in the same game, no model asked."
)

_FORCED = (
    "A step with one possible action has A = 0: asct knows that, vineppo gives it the noise of two means."
)


def continued_words(document: Mapping[str, Any]) -> list[str]:
    """Return what was bought and what it shows, a sentence each; nothing where nothing was bought.

    Args:
        document: ``Recorded.to_dict()`` of `continued`.
    """
    about = document["about"]
    if "budgets" not in about:
        return []
    asked = ", ".join(map(str, about["budgets"]))
    shared = "path" if about.get("memory") else "game, state and step number"
    lines = [
        _WHO,
        f"Each method gets its own at K = {asked} (seed {about['seed']}); trees stop at smaller K.",
        f"Continuations and steps are sums over all games; the rollouts took {document['steps']:,} steps.",
        f"Places of one {shared} share their continuations, but for forks, which are rollouts' own.",
        "More rollouts are as many as take the steps that vineppo takes at the same K.",
        _noise(about),
        _FORCED,
    ]
    return lines + _vine(document) + _duels(about)


def _noise(about: Mapping[str, Any]) -> str:
    most = ", ".join(f"{(2 * k) ** -0.5:.2f} at K = {k}" for k in about["budgets"])
    return (
        f"A has a standard deviation of {about['spread']:.2f} over the steps; the difference of two means of "
        f"K outcomes of 0 or 1 has a standard error of at most 1/sqrt(2K): {most}."
    )


def _vine(document: Mapping[str, Any]) -> list[str]:
    """Return how vineppo comes near the truth as K grows: in the order of steps, and in the gradient."""
    rows = [r for r in document["rows"] if r["method"] == "vineppo" and not r["unable"] and r["rank"]]
    lines = []
    for row in sorted(rows, key=lambda row: row["continuations"]):
        cosine = f", gradient cosine {_number(row['cosine'])}" if row["cosine"] else ""
        lines.append(
            f"vineppo with {row['bought']} ({row['environment_steps']:,} steps): "
            f"rank correlation {_number(row['rank'])}{cosine}."
        )
    return lines


def _duels(about: Mapping[str, Any]) -> list[str]:
    """Return a sentence for each K, and for each of what the free methods got."""
    lines = []
    for k in about["budgets"]:
        for spent, words in ((True, "with as many steps as more rollouts"), (False, "that bought nothing")):
            duels = [d for d in about["duels"] if (d["k"], d["spent"]) == (k, spent)]
            told = "; ".join(f"{d['other']} {_number(d, sign=True)}" for d in duels)
            if told:
                lines.append(f"vineppo at K = {k} minus a method {words}, game by game: {told}.")
    return lines


def _number(found: Mapping[str, Any], *, sign: bool = False) -> str:
    form = "+.2f" if sign else ".2f"
    if found["low"] is None:
        return f"{found['value']:{form}}"
    return f"{found['value']:{form}} ({found['low']:{form}} to {found['high']:{form}})"
