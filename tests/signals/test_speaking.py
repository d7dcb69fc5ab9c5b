"""A chat server as speaker: what is sent, what is counted, what does not fit; and a judge on one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from accredit.errors import BackendError, BudgetExceeded, DataError, ParamError
from accredit.planners.prover import ProverPlanner
from accredit.signals.client import Limits
from accredit.signals.continuation import Budget, Ledger
from accredit.signals.judging import LmJudge
from accredit.signals.remembering import Remembered
from accredit.signals.speaking import ChatServer, Said, Speaker, TooLong
from tests.planners.test_prover import groups
from tests.signals.saying import Scripted
from tests.signals.served import Answer, error, ok, serving

CHAT = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Where?"}]


def saying(text: str) -> Any:
    def respond(path: str, body: Any) -> Answer:
        usage = {"prompt_tokens": 11, "completion_tokens": 3}
        return ok({"choices": [{"message": {"role": "assistant", "content": text}}], "usage": usage})

    return respond


def test_a_chat_goes_out_as_it_stands_and_its_cost_comes_back() -> None:
    with serving(saying("There.")) as server:
        speaker = ChatServer(server.url, "org/tiny", temperature=0.5, max_tokens=7)
        assert isinstance(speaker, Speaker)
        assert speaker.say(CHAT, 5) == Said("There.", 11, 3)
        speaker.say(CHAT, 6)
        [(path, body, _), _] = server.asked
    assert path == "/v1/chat/completions"
    assert body == {"model": "org/tiny", "temperature": 0.5, "max_tokens": 7, "seed": 5, "messages": CHAT}
    assert (speaker.usage.answers, speaker.usage.prompt_tokens, speaker.usage.tokens) == (2, 22, 6)
    assert speaker.version == "chat:org/tiny:T=0.5:max=7"


@pytest.mark.parametrize(
    ("status", "message", "kind"),
    [
        (400, "This model's maximum context length is 2048 tokens", TooLong),
        (400, "the request exceeds the available context size", TooLong),
        (400, "temperature is no number", BackendError),
        (401, "context length", BackendError),
    ],
)
def test_a_chat_that_does_not_fit_is_told_from_other_refusals(status: int, message: str, kind: Any) -> None:
    refusing = serving(lambda path, body: error(status, message=message, type="x"))
    with refusing as server, pytest.raises(BackendError) as refused:
        ChatServer(server.url, "m").say(CHAT, 0)
    assert type(refused.value).__name__ == ("TooLong" if kind is TooLong else "Refused")
    assert "Where?" not in str(refused.value)


def test_further_fields_are_sent_and_change_the_version() -> None:
    shape = {"response_format": {"type": "json_object"}}
    with serving(saying("{}")) as server:
        speaker = ChatServer(server.url, "m", more=shape)
        speaker.say(CHAT, 0)
        assert server.asked[0][1]["response_format"] == {"type": "json_object"}
        plain = ChatServer(server.url, "m")
        plain.say(CHAT, 0)
        assert "response_format" not in server.asked[1][1]
    assert speaker.version.startswith(f"{plain.version}:more=")
    for name in ("model", "seed", "messages"):
        with pytest.raises(ParamError, match=f"may not say {name}"):
            ChatServer("http://localhost:1", "m", more={name: "x"})


def test_budgets_of_the_server_stop_it() -> None:
    with serving(saying("x")) as server:
        speaker = ChatServer(server.url, "m", limits=Limits(tokens=11))
        speaker.say(CHAT, 0)
        with pytest.raises(BudgetExceeded, match="11 prompt tokens"):
            speaker.say(CHAT, 0)
    for options in ({"temperature": -1.0}, {"max_tokens": 0}):
        with pytest.raises(ParamError):
            ChatServer("http://localhost:1", "m", **options)


def test_a_judge_behind_a_server_proposes_and_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its key is sent, and is in no reply, refusal or provenance."""
    monkeypatch.setenv("ACCREDIT_API_KEY", "sk-very-secret")
    text = 'The turn. {"failure_mode": "they go astray", "start": 1, "end": 2}'
    with serving(saying(text)) as server:
        judge = LmJudge(ChatServer(server.url, "org/tiny"))
        planner = ProverPlanner(groups(2), judge, 2)
        requests = planner.ask()
        assert {headers["Authorization"] for _, _, headers in server.asked} == {"Bearer sk-very-secret"}
    assert [r.place.step for r in requests] == [1, 3, 1, 3]
    assert [(r.subject, r.turn, r.tokens) for r in judge.asker.replies] == [("g0r0", 0, 3), ("g1r0", 0, 3)]
    planner.tell([])
    made = planner.filled().column("proposal_R").provenance
    assert made["judge"].startswith("judge:chat:org/tiny:T=0:max=512:prompt=")
    assert "sk-very" not in f"{made}{judge.asker.replies}"


def test_another_chat_or_seed_is_another_question(tmp_path: Path) -> None:
    speaker = Scripted(lambda chat, seed: f"{seed}")
    with Remembered(speaker, tmp_path / "j") as kept:
        told = [kept.say(CHAT, 1), kept.say(CHAT, 2), kept.say(CHAT[:1], 1), kept.say(CHAT, 1)]
        assert (kept.knows(CHAT, 2), kept.knows(CHAT, 3)) == (True, False)
    assert [said.text for said in told] == ["1", "2", "1", "1"]
    assert len(speaker.asked) == kept.usage.answers == 3


def test_answers_that_were_paid_are_not_asked_again_after_a_kill(tmp_path: Path) -> None:
    """The second run asks what the first had not, within a budget that holds only that."""
    path = tmp_path / "replies.jsonl"

    def judged(speaker: Scripted, n: int, most: int) -> tuple[LmJudge, Ledger]:
        ledger = Ledger(Budget(judge_calls=most))
        with Remembered(speaker, path) as kept:
            judge = LmJudge(kept, ledger=ledger)
            ProverPlanner(groups(n), judge, 2, repairs=1).ask()
        return judge, ledger

    def says(chat: Any, seed: int) -> str:
        return f"Step {seed}?"

    first, second, fresh = Scripted(says), Scripted(says), Scripted(says)
    judged(first, 2, most=4)
    path.write_bytes(path.read_bytes()[:-5])  # killed while it wrote
    judge, ledger = judged(second, 3, most=3)
    assert (len(first.asked), len(second.asked)) == (4, 3)  # the torn one, and the third group's
    assert (ledger.physical.judge_calls, ledger.logical.judge_calls) == (3, 6)
    whole = LmJudge(fresh)
    ProverPlanner(groups(3), whole, 2, repairs=1).ask()
    assert judge.asker.replies == whole.asker.replies
    text = path.read_text()
    assert "branch" not in text  # of what was shown nothing is kept
    other = Scripted(says)
    other.version = "another"
    with pytest.raises(DataError, match="another job"):
        Remembered(other, path)
