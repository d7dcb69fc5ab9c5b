"""Golden files of the methods on forks and continuations: arpo, c3."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from accredit.data import Credit
from accredit.metrics import context_variances, fidelity, plug_in_information
from accredit.planners.entropy_forks import window_entropy
from tests.golden.interface import Call, Golden, GoldenError, adapts, by_step, steps, tokens

# The sources know one outcome a rollout, whatever the step rewards add up to.
OUTCOME: dict[str, Any] = {"outcome_in_steps": "no"}
BESSEL = "Bessel-corrected"


@adapts("arpo")
def arpo(golden: Golden) -> Call:
    golden.no_effect("note")
    if golden.get("kind", "attribution") == "entropy":
        return Call("arpo", OUTCOME, {"steps": _entropies(golden)})
    golden.must_be("kind", "attribution")
    golden.must_be("std", BESSEL)
    kwargs = OUTCOME | {
        "attribution": golden.one_of("attribution", {"soft": "soft", "hard": "hard"}, "soft"),
        "normalise_by_std": golden.flag("normalise_by_std", default=True),
        "eps": golden.number("epsilon", 1e-6),
    }
    return Call("arpo", kwargs, {"steps": steps, "tokens": tokens})


def _entropies(golden: Golden) -> Callable[[Credit], Any]:
    options = {
        "vocabulary": int(golden.number("vocab_size")),
        "window": int(golden.number("window", 20)),
        "top": int(golden.number("top", 10)),
        "form": golden.one_of("entropy", {n: n for n in ("sum", "mean", "window_mean")}, "sum"),
    }

    def read(credit: Credit) -> Any:
        column = credit.batch.column("top_logprobs_S")
        return by_step(credit, np.array([window_entropy(v, **options) for v in column.decoded()]))

    return read


@adapts("c3")
def c3(golden: Golden) -> Call:
    golden.no_effect("note")
    baselines = {n: n for n in ("loo", "weighted", "full_mean")}
    if golden.get("kind", "tree") == "bucket":
        kwargs = OUTCOME | {"baseline": golden.one_of("baseline", baselines, "weighted")}
        read = {
            "steps": steps,
            "credit_var": _credit_var,
            "fidelity": _fidelity(golden),
            "influence": _influence(golden),
        }
        return Call("c3-bucket", kwargs, read)
    golden.must_be("kind", "tree")
    _is_full(golden)
    variants = ("reward_only", "value_only", "value_assisted")
    contexts = {True: "same", False: "depth"}
    kwargs = OUTCOME | {
        "variant": golden.one_of("variant", {n: n for n in variants}, "reward_only"),
        "baseline": golden.one_of("baseline", baselines, "loo"),
        "alpha": golden.number("alpha", 1.0),
        "contexts": golden.one_of("replay", contexts, default=True),
    }
    return Call("c3", kwargs, {"steps": steps})


def _is_full(golden: Golden) -> None:
    """Check that each task has as many rollouts as its fan-outs say."""
    fanout = golden.get("fanout", None)
    if fanout is None:
        return
    sizes: dict[str, int] = {}
    for record in golden.records:
        sizes[record["group"]] = sizes.get(record["group"], 0) + 1
        if len(record["steps"]) != len(fanout):
            raise GoldenError(f"param 'fanout' is {fanout!r}, a rollout has {len(record['steps'])} steps")
    if set(sizes.values()) != {int(np.prod(fanout))}:
        raise GoldenError(f"param 'fanout' is {fanout!r}, but the groups have {sorted(sizes.values())}")


def _credit_var(credit: Credit) -> Any:
    return context_variances(credit.steps, _contexts(credit)).tolist()


def _fidelity(golden: Golden) -> Callable[[Credit], Any]:
    how = golden.one_of("fidelity", {"pooled": "pooled", "per_context": "per_context"}, "pooled")

    def read(credit: Credit) -> Any:
        q, count, context = credit.extras["q"], credit.extras["count"], _contexts(credit)
        mean = np.bincount(context, q * count) / np.bincount(context, count)
        return fidelity(credit.steps, q - mean[context], context, how=how)

    return read


def _influence(golden: Golden) -> Callable[[Credit], Any]:
    words = int(golden.number("top_symbols", 64))

    def read(credit: Credit) -> Any:
        said = credit.batch.column("next_actions_S").decoded()
        alternative = np.repeat(np.arange(len(said)), [len(s) for s in said])
        known = {word: i for i, word in enumerate(sorted({w for s in said for w in s}))}
        spoken = np.array([known[w] for s in said for w in s], np.int64)
        return plug_in_information(
            _contexts(credit)[alternative], alternative, spoken, smoothing=1.0, words=words
        )

    return read


def _contexts(credit: Credit) -> Any:
    """Return the dense number of each step's context, in order of appearance."""
    found = credit.extras["context"]
    _, first, dense = np.unique(found, return_index=True, return_inverse=True)
    return np.argsort(np.argsort(first))[dense]
