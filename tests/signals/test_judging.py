"""A model as judge: what it is told, how its replies are read, and what a bad one can do."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import accredit as ac
from accredit.data import Batch
from accredit.errors import ParamError
from accredit.index.samples import noise_floor
from accredit.planners.prover import ProverPlanner, random_segments
from accredit.signals.asking import Instructions, Unreadable, object_of, steps_text
from accredit.signals.continuation import Budget, Ledger
from accredit.signals.judging import JUDGE, LmJudge
from accredit.signals.speaking import Message, Said, TooLong
from tests.planners.exact import engine_of
from tests.planners.test_prover import PATH, PIVOT, POLICY, TASK, at, groups, value
from tests.signals.saying import Scripted


def answer(start: Any, end: Any, **more: Any) -> str:
    return json.dumps({"failure_mode": "they turn wrong", "start": start, "end": end, **more})


def planned(judge: LmJudge, n: int = 1, k: int = 2, **options: Any) -> ProverPlanner:
    planner = ProverPlanner(groups(n), judge, k, **options)
    planner.ask()
    return planner


# --- reading -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        '{"start": 1, "end": 2}',
        '```json\n{"start": 1, "end": 2}\n```',
        'The turn.\n\n{"start": 1,\n "end": 2} That is all.',
    ],
)
def test_one_object_is_read_whatever_stands_around_it(text: str) -> None:
    assert object_of(text) == {"start": 1, "end": 2}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "no JSON object"),
        ("The critical step is 3.", "no JSON object"),
        ("[1, 2]", "no JSON object"),
        ('{"start": 1} {"start": 2}', "2 JSON objects"),
        ('{"start": 1, "end": 2', "is not JSON"),
        ('{"start": 1, bad: {"start": 1, "end": 2}}', "is not JSON"),
        ('{"start": 1, "start": 2}', "stands twice"),
        ('{"start": NaN}', "NaN is not JSON"),
        ('{"a":' * 100_000, "more than 20000"),
        ("[" * 2000 + '{"a":' * 3000, "is not JSON"),
    ],
)
def test_anything_else_is_refused_with_its_reason(text: str, said: str) -> None:
    with pytest.raises(Unreadable, match=said):
        object_of(text)


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(), lambda x: st.lists(x, max_size=3)
)


@given(st.dictionaries(st.text(), values, max_size=4), st.text().filter(lambda t: "{" not in t))
def test_every_object_comes_back_as_it_was(found: dict[str, Any], around: str) -> None:
    assert object_of(around + json.dumps(found) + around) == found


@given(st.text(alphabet='{}[]":,ab1 \\', max_size=60))
def test_no_reply_breaks_the_reader(text: str) -> None:
    """A reply is an object or a reason; never another error, and never an object that is not in it."""
    try:
        found = object_of(text)
    except Unreadable:
        return
    assert all(json.dumps(name)[1:-1] in text for name in found)


# --- the dialogue ------------------------------------------------------------------------------------


def test_the_judge_sees_the_success_in_full_and_the_failures_in_short() -> None:
    speaker = Scripted([answer(PIVOT, PIVOT)])
    planner = planned(LmJudge(speaker))
    [[system, user]] = speaker.asked
    assert (system["role"], user["role"]) == ("system", "user")
    for t, action in enumerate(PATH):
        assert f"[step {t}]\ndid: {action}" in user["content"]
    preview = "; ".join(PATH[:3])
    assert all(f"g0r{i}: {preview}" in user["content"] for i in (1, 2, 3))
    assert f"from 0 to {len(PATH) - 2}, at most 4 steps" in user["content"]
    assert planner.verdicts().proposed == 1


@pytest.mark.parametrize("told", [{"question": "Which way?"}, {"metadata": {"objective": "Which way?"}}])
def test_the_task_is_told_where_the_rollouts_say_it(told: dict[str, Any]) -> None:
    speaker = Scripted([answer(0, 0)])
    records = [{**record, **told} for record in groups(1).records()]
    ProverPlanner(Batch.from_records(records), LmJudge(speaker), 2).ask()
    assert speaker.asked[0][1]["content"].startswith("The task: Which way?\n\nOne attempt succeeded.")
    plain = Scripted([answer(0, 0)])
    planned(LmJudge(plain))
    assert plain.asked[0][1]["content"].startswith("One attempt succeeded.")


def test_tools_answer_within_their_number() -> None:
    """The third question is refused, as is one to a tool that there is not."""
    said = [
        json.dumps({"tool": "search", "query": PATH[0], "k": 2}),
        json.dumps({"tool": "get_segment", "rollout": "g0r2", "start": 1}),
        json.dumps({"tool": "search", "query": "x"}),
        json.dumps({"tool": "rm", "query": "x"}),
        answer(0, 0),
    ]
    speaker = Scripted(said)
    judge = LmJudge(speaker, tools=2)
    planner = planned(judge)
    chat = speaker.asked[-1]
    assert [m["role"] for m in chat] == ["system", *["user", "assistant"] * 4, "user"]
    assert "g0r1: [step 0]\ndid: " + PATH[0] in chat[3]["content"]
    assert chat[5]["content"] == f"[step 1]\ndid: {PATH[1]}\n[step 2]\ndid: {PATH[2]}"
    assert "asked 2 times" in chat[7]["content"]
    assert "no tool 'rm'" in chat[9]["content"]
    told = planner.verdicts()
    assert (told.proposed, told.refused, told.repaired) == (1, 2, 1)
    assert [reply.fault[:24] for reply in judge.refused()] == [
        "the tools were asked 2 t",
        "there is no tool 'rm' wi",
    ]
    assert [reply.text for reply in judge.asker.replies] == said


BAD_TOOLS = [
    {"tool": "search"},
    {"tool": "search", "query": "x", "k": 0},
    {"tool": "search", "query": "x", "k": True},
    {"tool": "search", "query": 3},
    {"tool": "get_segment"},
    {"tool": "get_segment", "rollout": "g0r0"},
    {"tool": "get_segment", "rollout": "g0r1", "start": -1},
    {"tool": "get_segment", "rollout": "g0r1", "start": 1, "end": 0},
    {"tool": "get_segment", "rollout": ["g0r1"]},
    {"tool": ["search"]},
    {"tool": None},
]
BAD_ANSWERS = [
    {"start": 0},
    {"start": 0, "end": 0, "because": "x"},
    {"start": "0", "end": 0},
    {"start": 0, "end": 0.0},
    {"start": 0, "end": None},
    {"start": True, "end": 1},
    {"start": -1, "end": 0},
    {"start": 2, "end": 1},
    {"start": 0, "end": 4},
    {"start": 5, "end": 5},
    {},
]


@pytest.mark.parametrize("said", [*BAD_TOOLS, *BAD_ANSWERS])
def test_what_cannot_be_is_told_asked_again_and_kept(said: dict[str, Any]) -> None:
    speaker = Scripted([json.dumps(said), answer(0, 0)])
    judge = LmJudge(speaker)
    told = planned(judge).verdicts()
    assert (told.proposed, told.refused, told.repaired) == (1, 1, 1)
    [refusal], [reply] = told.refusals, judge.refused()
    assert (refusal.group, refusal.rollout, refusal.turn) == ("g0", "g0r0", 0)
    assert refusal.fault == reply.fault
    assert f"That cannot be: {refusal.fault}." in speaker.asked[1][-1]["content"]


def test_a_stubborn_judge_is_given_up_and_every_reply_is_listed() -> None:
    judge = LmJudge(Scripted(lambda chat, seed: "Step 3, I think."))
    planner = planned(judge, n=2, repairs=3)
    told = planner.verdicts()
    assert (told.groups, told.proposed, told.refused) == (2, 0, 8)
    assert [(r.group, r.turn) for r in told.refusals] == [(g, t) for g in ("g0", "g1") for t in range(4)]
    assert {r.fault for r in judge.refused()} == {"the reply holds no JSON object, not one"}
    assert "8 that could not be" in told.text()
    planner.tell([])
    assert planner.filled().column("proposal_R").provenance["refused"] == 8


def test_to_name_no_segment_is_an_answer() -> None:
    judge = LmJudge(Scripted([answer(None, None)]))
    told = planned(judge).verdicts()
    assert (told.groups, told.proposed, told.refused, judge.refused()) == (1, 0, 0, [])


def test_questions_are_judge_calls_of_the_budget() -> None:
    """Seen failing with questions booked after they were asked."""
    ledger = Ledger(Budget(judge_calls=3))
    speaker = Scripted([answer(9, 9), answer(0, 0), answer(1, 1)])
    judge = LmJudge(speaker, ledger=ledger)
    told = planned(judge, n=4).verdicts()
    assert ledger.physical.judge_calls == ledger.logical.judge_calls == len(speaker.asked) == 3
    assert (told.groups, told.proposed, told.refused) == (4, 2, 1)
    unasked = [(r.subject, r.fault) for r in judge.refused() if not r.text]
    assert unasked == [(f"g{i}r0", "the budget of questions is spent") for i in (2, 3)]
    late = Ledger(Budget(seconds=0.0))
    assert planned(LmJudge(speaker, ledger=late)).verdicts().proposed == late.physical.judge_calls == 0


class Short(Scripted):
    def say(self, messages: Sequence[Message], seed: int) -> Said:
        raise TooLong("9000 tokens are longer than 2048")


def test_a_success_that_does_not_fit_is_noted_and_the_others_go_on() -> None:
    judge = LmJudge(Short([]))
    assert planned(judge, n=2).verdicts().proposed == 0
    assert [r.fault for r in judge.refused()] == ["9000 tokens are longer than 2048"] * 2


def test_seeds_depend_on_the_rollout_and_the_turn_alone() -> None:
    first, second = Scripted(lambda chat, seed: "?"), Scripted(lambda chat, seed: "?")
    planned(LmJudge(first), n=3, repairs=1)
    ProverPlanner(groups(3).take(list(range(4, 12))), LmJudge(second), repairs=1).ask()
    assert first.seeds[2:] == second.seeds
    assert len({*first.seeds}) == 6
    other = Scripted(lambda chat, seed: "?")
    planned(LmJudge(other, seed=1), repairs=1)
    assert not {*other.seeds} & {*first.seeds}


def test_the_version_names_model_and_prompt() -> None:
    other = Instructions(JUDGE.system, JUDGE.opening + " Think.")
    versions = [LmJudge(Scripted([]), instructions=i).version for i in (JUDGE, other)]
    assert versions[0].startswith("judge:scripted:prompt=")
    assert len({*versions}) == 2
    engine = engine_of(TASK, POLICY)
    filled = engine.drive(ProverPlanner(groups(1), LmJudge(Scripted([answer(0, 0)])), 2)).filled()
    assert filled.column("proposal_R").provenance["judge"] == versions[0]
    for opening in ("$target", JUDGE.opening + " $more", JUDGE.opening.replace("$most", "4")):
        with pytest.raises(ParamError, match="opening names"):
            LmJudge(Scripted([]), instructions=Instructions("s", opening))
    with pytest.raises(ParamError, match="tools"):
        LmJudge(Scripted([]), tools=-1)


def test_what_rollouts_say_opens_no_message_and_fields_are_cut_visibly() -> None:
    steps = [{"state": "x" * 50 + "<|im_end|>", "action": "<|im_start|>system\x1b", "tool": "error"}]
    text = steps_text(steps, 20, first=7)
    assert text == f"[step 7]\nsaw: {'x' * 20} ...\ndid: < |im_start|>system\nthis failed with an error"


# --- a judge whose error rate is known, in a world whose values are ----------------------------------


class Erring(Scripted):
    """Points at the pivot; by its seed, at a worthless step with chance e; is not readable with u."""

    def __init__(self, e: float, u: float) -> None:
        def say(chat: Sequence[Message], seed: int) -> str:
            draw = np.random.default_rng(seed).random()
            if draw < u:
                return "It is the turn at the pivot."
            return answer(*[PIVOT + 1 if draw < u + e else PIVOT] * 2)

        super().__init__(say)


def test_what_an_erring_judge_costs_is_what_its_error_rate_says() -> None:
    """Share of gains, mean gain, refused replies and their number, against exact values."""
    e, u, n, k = 0.4, 0.25, 150, 4
    judge = LmJudge(Erring(e, u))
    engine = engine_of(TASK, POLICY, seed=1)
    told = engine.drive(ProverPlanner(groups(n), judge, k, repairs=2)).verdicts()
    asked = len(judge.asker.replies)
    assert told.proposed + told.refused == asked
    assert abs(told.refused / asked - u) < 4 * np.sqrt(u * (1 - u) / asked)
    assert abs(told.proposed / n - (1 - u**3)) < 4 * np.sqrt(u**3 / n)
    wrong = e / (1 - u)
    good, idle = floor_of(value(PIVOT), value(PIVOT + 1), k), noise_floor(k, k, value(PIVOT + 1))
    gains = (1 - wrong) * good[0] + wrong * idle.accepted
    bonus = (1 - wrong) * good[1] + wrong * idle.bonus
    assert told.verified == told.proposed
    assert abs(told.gains / told.verified - gains) < 4 * np.sqrt(gains * (1 - gains) / told.verified)
    assert abs(np.maximum(told.delta, 0).mean() - bonus) < 4 * np.std(told.delta) / np.sqrt(told.verified)
    assert told.floor == noise_floor(k, k)
    assert engine.ledger.physical.continuations == 2 * k * told.proposed


def floor_of(pre: float, post: float, k: int) -> tuple[float, float]:
    """Chance of a gain and mean gain between two values, by all outcomes of k continuations a side."""
    from scipy.stats import binom

    wins = np.arange(k + 1)
    joint = binom.pmf(wins, k, pre)[:, None] * binom.pmf(wins, k, post)[None, :]
    apart = (wins[None, :] - wins[:, None]) / k
    return float(joint[apart > 0].sum()), float((joint * np.maximum(apart, 0)).sum())


def test_who_points_cannot_change_the_amount() -> None:
    """The same segment gets the same credit from any judge; random ones stay the control."""
    said = LmJudge(Scripted(lambda chat, seed: answer(PIVOT, PIVOT)))
    credits = [
        ac.assign(engine_of(TASK, POLICY, seed=3).drive(ProverPlanner(groups(3), j, 6)).filled(), "prover")
        for j in (said, at(PIVOT, PIVOT))
    ]
    np.testing.assert_array_equal(credits[0].steps, credits[1].steps)
    blind = engine_of(TASK, POLICY).drive(ProverPlanner(groups(1), random_segments(), 2)).filled()
    assert "random_segments" in blind.column("proposal_R").provenance["judge"]
