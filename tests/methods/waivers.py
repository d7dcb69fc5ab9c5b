"""What each method does not promise: the check's claim and the reason.

`test_battery` runs every waived check too, and fails if it passes: a waiver without a
counterexample is a wrong one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from accredit.battery_samples import Record

TIES = "a group whose rollouts all tie gets exactly 0"
SCALE_FREE = "scaling all rewards changes nothing but what eps does"
SINGLE = "a group of one gets 0 by default"
LOCAL = "a group's credit does not depend on other groups"
ZERO_SUM = "rollouts of a group sum to 0"
SCALES = "scaling all rewards scales the credit"
SHIFT = "adding a constant to all outcomes changes nothing"
UNSCORED = "unscored and rejected rollouts get 0 and join no statistics"


@dataclass(frozen=True)
class Case:
    """How the battery runs a method: parameters, extra signals, waived claims with reasons."""

    name: str
    params: Mapping[str, Any] | Callable[[list[Record]], Mapping[str, Any]] = field(default_factory=dict)
    decorate: Callable[[list[Record]], list[Record]] = list
    waive: Mapping[str, str] = field(default_factory=dict)


def by_step(more: Callable[[Record, int], Record]) -> Callable[[list[Record]], list[Record]]:
    """Return what adds to every step what ``more`` makes of it and of its number."""

    def decorate(records: list[Record]) -> list[Record]:
        return [
            record | {"steps": [step | more(step, t) for t, step in enumerate(record["steps"])]}
            for record in records
        ]

    decorate.__doc__ = more.__doc__
    return decorate


TURNS = "turn rewards are compared too, where all outcomes tie"
WHITENED = "whitening is over all policy tokens of the batch"
BATCHWISE = "with a deviation over the batch every group's credit depends on all rewards"


def _with_baseline(records: list[Record]) -> list[Record]:
    return [record | {"reward_baseline": 0.375} for record in records]


@by_step
def _with_turns(step: Record, t: int) -> Record:
    """Rewards of turns, answers of a tool."""
    n = len(step["tokens"])
    return {"reward": 0.5 * (n % 2), "tool": ("none", "error", "result")[n % 3]}


@by_step
def _scored(step: Record, t: int) -> Record:
    return {"step_score": step["value"], "potential": step["value"], "reward": step["value"]}


def _with_scores(records: list[Record]) -> list[Record]:
    """Scores of steps of every kind; the value serves as potential."""
    return [
        record | {"progress": [0.0, *(step["value"] for step in record["steps"])]}
        for record in _scored(records)
    ]


DISTANCE = "with gamma < 1 an equal outcome is worth less the more steps it takes"
LOOPS = "visits to one state inside one rollout are compared too, and with gamma < 1 they differ"

GROUP_STEPS = "the step term compares a rollout's steps with each other too"


TEACHER = "the teacher's signal does not depend on the outcome"
ROWS_MEMORY = "memory carried over equals one unbroken run"
BATCH_SCALE = "the relational term is divided by its root mean square over the batch"


@by_step
def roles(step: Record, t: int) -> Record:
    """Let a planner and a worker take turns; workers have a teacher."""
    taught = [round(0.9 * x, 4) for x in step["logprobs"]]
    return {"agent": ("planner", "worker")[t % 2], "report": f"done {t % 3}", "logprobs_teacher": taught}


@by_step
def hindsight(step: Record, t: int) -> Record:
    """Give every step log-probs under a prompt that shows the end."""
    return {"logprobs_hindsight": [round(0.7 * x - 0.01 * i, 4) for i, x in enumerate(step["logprobs"])]}


TRAINED = "no credit reaches a token that is not trained"
TOKENS_TRAINED = "the mean is over the tokens that are trained, so it moves when others are"
HISTORY = "a history of the correlation lets the peer in; one unbroken batch has none"
BATCHWISE_RHO = "correlation, scale and medians are taken over the batch"


@by_step
def teacher(step: Record, t: int) -> Record:
    """Let a teacher rescore two steps of three."""
    if (t + len(step["tokens"])) % 3 == 0:
        return {}
    return {"logprobs_teacher": [round(0.7 * x - 0.02 * i, 4) for i, x in enumerate(step["logprobs"])]}


@by_step
def moments(step: Record, _: int) -> Record:
    """Moments of an evidence direction at each token: means, squares, product, values at the token."""
    found = []
    for x in step["logprobs"]:
        t, n = round(0.1 * x, 3), round(0.05 * x + 0.02, 3)
        found.append([t, n, t * t + 0.03, n * n + 0.02, t * n + 0.01, t + 0.2 + 0.1 * x, n - 0.1])
    return {"fisher_moments": found}


OVER_TRAINED = "statistics are over trained tokens, and the others keep the base's credit"
POOLED = "entropies are standardised over the batch"
SHAPED = "tokens are compared among successes and among failures, so a tie has credit too"


AGREEMENT = "agreement is compared, not outcomes: turns differ where all outcomes tie"
OWN_TURNS = "a rollout's turns are compared with each other too"


def answers(records: list[Record]) -> list[Record]:
    """Give rollouts final answers in three clusters, evidence, and log-probs of their answer."""
    found = []
    for record in records:
        sizes = [len(step["tokens"]) for step in record["steps"]]
        refs = [[[1.0, round(-3.0 + 0.2 * t - 0.3 * n, 4)]] for t, n in enumerate([0, *sizes])]
        said = sum(sizes) % 4
        found.append(
            record
            | {"answer": f"answer {said}" if said else "", "answer_cluster": said % 3 if said else None}
            | {"evidence": [0.1 * n for n in sizes if n]}
            | {"ref_logprobs": {"baseline": refs[0], "after_step": refs[1:]}}
        )
    return found


@by_step
def altered(step: Record, t: int) -> Record:
    """Rescore every step under two altered prompts."""
    typos = [round(x - 0.1 * (i % 3), 4) for i, x in enumerate(step["logprobs"])]
    return {"perturbed_logprobs": {"typos": typos, "story": [round(0.8 * x, 4) for x in step["logprobs"]]}}


@by_step
def _hidden(step: Record, t: int) -> Record:
    rows = zip(step["tokens"], step["logprobs"], step["entropies"], strict=True)
    return {"hidden": [[1.0 + 0.01 * (a % 7), x, e] for a, x, e in rows]}


def hidden(records: list[Record]) -> list[Record]:
    """Give every token a hidden state, and every boundary log-probs of three answers."""
    found = []
    for record in _hidden(records):
        n = len(record["steps"])
        found.append(
            record | {"candidate_logprobs": [[-1.0 - 7.0 * ((t + n) % 2), -2.0, -3.0] for t in range(n + 1)]}
        )
    return found


NAMES = "names of rollouts, groups and states are irrelevant"
CRITIC = "a critic's values do not follow the outcomes"


@by_step
def continued(step: Record, t: int) -> Record:
    """Give every step continuations after it, and a critic's value of its action."""
    rewards = [{"reward": float((t + i) % 2)} for i in range(len(step["tokens"]))]
    return {"action_value": step["value"], "continuations": rewards}


def _drawn(step: Record, n: int) -> list[dict[str, Any]]:
    """Outcomes of continuations, made of the step's value; one was cut off."""
    cut = {"reward": None, "truncated": True}
    return [{"reward": float(i < round(n * step["value"])), "truncated": False} for i in range(n)] + [cut]


@by_step
def vines(step: Record, t: int) -> Record:
    """Give every step outcomes of continuations."""
    return {"continuations": _drawn(step, 3)}


def proposals(records: list[Record]) -> list[Record]:
    """Propose the first two steps of every rollout, also of those that are too short for it."""
    found = []
    for record in records:
        steps = record["steps"]
        sides = {"pre": _drawn(steps[0], 3), "post": _drawn(steps[-1], 4)} if steps else {}
        found.append(record | {"proposal": {"start": 0, "end": 1} | sides})
    return found


@by_step
def searches(step: Record, t: int) -> Record:
    """Give every step a search table of the three actions."""
    return {
        "search": {
            action: {"n": 4, "mean": round((i + 1) * step["value"] % 1, 3), "p": (0.5, 0.3, 0.2)[i]}
            for i, action in enumerate(("north", "take", "open"))
        }
    }


def revisions(records: list[Record]) -> list[Record]:
    """Revise every rollout: its second token changed; those with an odd number of tokens succeed."""
    found = []
    for record in records:
        tokens = [token for step in record["steps"] for token in step["tokens"]]
        told = {"reward": float(len(tokens) % 2), "tokens": [*tokens[:1], 501, *tokens[2:]]}
        found.append(record | {"revision": told})
    return found


ORDER = "order of rollouts is irrelevant"
NEAREST = "of two successes that are equally near the first is taken"
REVISED = "failures that tie are told apart by their revisions"


@by_step
def _with_cuts(step: Record, t: int) -> Record:
    """Values before the first token of every other step, and in the middle of long ones."""
    if t % 2:
        return {}
    points = [-1, 1] if len(step["tokens"]) > 2 else [-1]
    return {"cutpoints": points, "cutpoint_values": [step["value"], 0.25][: len(points)]}


# Methods (and presets) that need more than their id; all others run with their defaults.
CASES = (
    Case("spo-chain", decorate=_with_cuts),
    Case("dr-grpo", waive={SCALE_FREE: "the mean-only form keeps the scale of the rewards"}),
    Case("grpo:scale=batch", waive={LOCAL: BATCHWISE}),
    Case(
        "grpo:centre=none",
        waive={
            ZERO_SUM: "no mean is subtracted",
            SHIFT: "no mean is subtracted",
        },
    ),
    Case("grpo-passk", waive={ZERO_SUM: "only the single best rollout of a group has credit"}),
    Case(
        "rloo:normalise=true", waive={LOCAL: BATCHWISE, SCALES: "the credit is divided by its own deviation"}
    ),
    Case("reinforce-pp:variant=baseline", waive={SHIFT: "groups of one keep their raw score"}),
    Case("reinforce-pp:variant=baseline,singleton=zero"),
    Case(
        "reinforce-pp:gamma=0.9",
        waive={SHIFT: "with gamma < 1 a constant outcome is worth less to earlier tokens"},
    ),
    Case("remax", decorate=_with_baseline),
    Case("gigpo", waive={TIES: DISTANCE, SINGLE: LOOPS}),
    Case("gigpo:gamma=1"),
    Case("gigpo:mode=mean_std_norm", waive={TIES: DISTANCE, SINGLE: LOOPS}),
    Case("returns", waive={TIES: DISTANCE, SINGLE: LOOPS}),
    Case("hgpo", waive={TIES: DISTANCE, SINGLE: LOOPS}),
    Case("hgpo:base_group=true,gamma=1"),
    Case("crbc", waive={TIES: DISTANCE, SINGLE: LOOPS}),
    Case("crbc:depth=1", waive={TIES: DISTANCE, SINGLE: LOOPS}),
    Case("crbc:boundary=reward", waive={TIES: DISTANCE, SINGLE: LOOPS}),
    Case("price", waive={ROWS_MEMORY: BATCH_SCALE}),
    Case("scad", decorate=roles, waive={TIES: TEACHER, SINGLE: TEACHER}),
    Case("gaca", waive={TIES: DISTANCE, SINGLE: LOOPS}),
    Case("hcapo", decorate=hindsight, waive={TIES: DISTANCE, SINGLE: GROUP_STEPS}),
    Case("opsd", decorate=teacher),
    Case("opsd:centre=anchor", decorate=teacher, waive={TRAINED: TOKENS_TRAINED}),
    Case("rlsd", decorate=teacher),
    Case("sdar", decorate=teacher),
    Case("skill-sd", decorate=teacher),
    Case("verpo", decorate=moments),
    Case("verpo:displacement=fixed,evidence=given", decorate=moments),
    Case("uniopsd", decorate=teacher, waive={TIES: DISTANCE, SINGLE: LOOPS, ROWS_MEMORY: HISTORY}),
    Case(
        "uniopsd:rho_hat=batch,z0=0",
        decorate=teacher,
        waive={TIES: DISTANCE, SINGLE: LOOPS, ROWS_MEMORY: BATCHWISE_RHO},
    ),
    Case("scapo", decorate=altered, waive={TRAINED: OVER_TRAINED}),
    Case("scapo:correction=all,clip_u=1", decorate=altered, waive={TRAINED: OVER_TRAINED}),
    Case("siop", decorate=answers, waive={TIES: AGREEMENT, SINGLE: OWN_TURNS}),
    Case("siop:variant=broadcast", decorate=answers, waive={TIES: AGREEMENT}),
    Case("siop:variant=frequency", decorate=answers, waive={TIES: AGREEMENT}),
    Case("siop:variant=gold", decorate=answers, waive={TIES: AGREEMENT, SINGLE: OWN_TURNS}),
    Case("shear", decorate=hidden),
    Case("shear:window=3,stride=2", decorate=hidden),
    Case("shear:window=2,stride=1,distance=mmd_rbf,span_scope=step", decorate=hidden),
    Case("shear:window=3,stride=2,distance=chamfer,normalise=per_rollout", decorate=hidden),
    Case("dcsd", decorate=hidden),
    Case("dcsd:direction=outcome,partition=induced", decorate=hidden),
    Case("relace", decorate=hindsight, waive={TIES: DISTANCE, SINGLE: LOOPS}),
    Case("graft", waive={TIES: DISTANCE, SINGLE: LOOPS}),
    Case("graph-hca", waive={TIES: DISTANCE, SINGLE: LOOPS}),
    Case("hapo", waive={TRAINED: OVER_TRAINED}),
    Case("hapo:population=batch,percentile=80,ablate=PLR", waive={TRAINED: OVER_TRAINED, LOCAL: POOLED}),
    Case("pepo", waive={TRAINED: OVER_TRAINED}),
    Case("pepo:apply_to=all", waive={TRAINED: OVER_TRAINED}),
    Case("eapo", waive={TRAINED: OVER_TRAINED}),
    Case("entropy-top", waive={TRAINED: OVER_TRAINED}),
    Case("entropy-top:rank_by=proximal,population=rollout,threshold=quantile", waive={TRAINED: OVER_TRAINED}),
    Case("empg", waive={TRAINED: OVER_TRAINED}),
    Case("gtpo", waive={TRAINED: OVER_TRAINED, TIES: SHAPED, SINGLE: SHAPED}),
    Case("grpo-s", waive={TIES: SHAPED}),
    Case("gtpo-conflict:divide=true,entropy_terms=true", waive={TRAINED: OVER_TRAINED}),
    Case("lambda-grpo:lam=2"),
    Case("gae:granularity=token"),
    Case("gae:granularity=token,levels=2,observation=reset"),
    Case("gae:whiten=true", waive={LOCAL: WHITENED}),
    Case("gae:granularity=token,whiten=true", waive={LOCAL: WHITENED}),
    Case("mt-grpo", decorate=_with_turns, waive={TIES: TURNS}),
    Case(
        "mt-grpo:alpha=0.5",
        decorate=_with_turns,
        waive={TIES: TURNS, ZERO_SUM: "with alpha < 1 the outcome counts by the rollout's length"},
    ),
    Case("mt-grpo:align=state", decorate=_with_turns, waive={TIES: TURNS}),
    Case(
        "mt-grpo:variant=code",
        decorate=_with_turns,
        waive={TIES: TURNS, ZERO_SUM: "only the rollouts that got a tool result have the turn term"},
    ),
    Case("vineppo", decorate=vines),
    Case("vineppo:include_main=true,max_step=1", decorate=vines),
    Case("vineppo:pool=false,unfinished_reward=-0.5", decorate=vines),
    Case("prover", decorate=proposals),
    Case("prover:several=true,signed=true,margin=0.1,unit=group", decorate=proposals),
    Case("asct", decorate=searches),
    Case("asct:standardise=none,baseline=uniform", decorate=searches),
    Case("ibpo", decorate=revisions, waive={TIES: REVISED}),
    Case("ibpo:positive_on=kept,std=population,step=fraction", decorate=revisions, waive={TIES: REVISED}),
    Case("ibpo:mode=implicit"),
    Case("ibpo:mode=implicit,align=step,lam=1", waive={ORDER: NEAREST}),
    Case("prm:rule=milestone", decorate=_with_scores),
    Case("prm:rule=grpo-process,source=logratio"),
    Case("prm:rule=grpo-process,source=reward", decorate=_with_scores),
    Case("prm:rule=prime-code", waive={LOCAL: WHITENED}),
    Case("prm:rule=pure", decorate=_with_scores),
    Case("prm:rule=pure,baseline=step,weighted=false", decorate=_with_scores),
    Case("prm:rule=pbrs", decorate=_with_scores),
    Case("prm:rule=immediate", decorate=_with_scores),
    Case("arpo:attribution=hard"),
    Case(
        "arpo:attribution=hard,normalise_by_std=false,dedupe=true",
        waive={SCALE_FREE: "the mean-only form keeps the scale of the rewards"},
    ),
    Case("aepo", waive={TRAINED: OVER_TRAINED}),
    Case("c3:blend=0.5,baseline=weighted"),
    Case("c3:contexts=depth"),
    Case(
        "c3:variant=value_assisted", decorate=continued, waive={TIES: CRITIC, SHIFT: CRITIC, SCALES: CRITIC}
    ),
    Case("c3-bucket", decorate=continued),
    Case("treemem", waive={NAMES: "the draw of paths is by names, so that order does not matter"}),
    Case("treemem:normalise=siblings,sibling=z,update_on=all_nodes"),
    Case("treemem:normalise=level,update_on=all_nodes"),
)
