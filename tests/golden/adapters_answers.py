"""Golden files of siop: clusters, evidence and log-probs in; q, rewards of turns and credit out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from accredit.data import Credit
from tests.golden.interface import Call, Golden, GoldenError, adapts, by_step, rollout_extra, steps


@adapts("siop")
def siop(golden: Golden) -> Call:
    golden.no_effect("note")
    golden.must_be("std", "sample (ddof=1)")
    golden.must_be("advantage_dtype", "float32", "float64")
    variants = ("turn", "broadcast", "majority", "frequency", "gold")
    kwargs: dict[str, Any] = {
        "lam": golden.number("lambda", 0.5),
        "num_refs": int(golden.number("num_refs", 3)),
        "epsilon": golden.number("epsilon", 1e-8),
        "gamma": golden.number("gamma", 1.0),
        "norm_by_std": golden.flag("norm_by_std", default=True),
        "eps": golden.number("std_eps", 1e-6),
        "variant": golden.one_of("variant", {name: name for name in variants}, "turn"),
    }
    if "eta" in golden.params:
        kwargs["eta"] = golden.number("eta")
    _check_references(golden.records, kwargs["num_refs"])
    read = {"q": rollout_extra("q"), "reference": _reference, "step_rewards": _rewards, "steps": steps}
    return Call("siop", kwargs, read)


def _reference(credit: Credit) -> list[str]:
    """First answer of each rollout's cluster, "" without one."""
    answers = credit.batch.column("answer_R")
    return [answers.item(r) if r >= 0 else "" for r in credit.extras["reference"].tolist()]


def _rewards(credit: Credit) -> list[list[float]]:
    """Rewards of each rollout's turns, [] where it has none."""
    rewards = by_step(credit, credit.extras["turn_reward"])
    has = credit.extras["rewarded"].tolist()
    return [row if given else [] for row, given in zip(rewards, has, strict=True)]


def _check_references(records: Sequence[Mapping[str, Any]], num_refs: int) -> None:
    """The file's scores are of the first `num_refs` distinct answers of each cluster, equally weighed."""
    distinct: dict[tuple[Any, Any], dict[str, None]] = {}
    for record in records:
        if record.get("answer"):
            distinct.setdefault((record["group"], record["answer_cluster"]), {})[record["answer"]] = None
    for record in records:
        if record.get("ref_logprobs"):
            n = min(num_refs, len(distinct[record["group"], record["answer_cluster"]]))
            weights = [weight for weight, _ in record["ref_logprobs"]["baseline"]]
            if weights != [1 / n] * n:
                raise GoldenError(f"{record['id']}: references weigh {weights}, expected {n} of 1/{n}")
