"""Beliefs read out before each step: exact numbers, the right prefix, and forks where the answer moves."""

from __future__ import annotations

import itertools
import json
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import accredit as ac
from accredit.data import Batch
from accredit.errors import BackendError, DataError, ParamError
from accredit.index import Index
from accredit.planners.beliefs import belief_forks, candidates, probe_js
from accredit.signals.beliefs import SUFFIX, _names, answer_beliefs, belief_asked, known_answers
from accredit.signals.endpoint import Endpoint
from accredit.signals.lens import answer_lens
from accredit.signals.readout import Frame, before_steps
from accredit.signals.request import Scores
from tests.signals.served import MODEL, echoed, ok, serving, vllm
from tests.signals.toy import SIZE, Remembering, Toy, batch, chat, record

FAKE = Remembering(vocabulary=SIZE, seed=2)
TOY = Toy()
END = "<|im_end|>"


def _next(ids: list[int]) -> np.ndarray:
    """Oracle: the whole distribution after some ids, one term at a time."""
    hidden = np.sin(sum(FAKE.embedding[i % len(FAKE.embedding)] for i in ids)).astype(np.float32)
    weights = [float(np.exp(np.float64(row @ hidden))) for row in FAKE.head]
    return np.array(weights) / sum(weights)


def _ids(*texts: str) -> list[int]:
    """Texts that were tokenised apart: recorded ids stay as they are."""
    return [i for each in texts for i in TOY.encode(each).tolist()]


def _log(ids: list[int], more: list[int]) -> float:
    return sum(float(np.log(_next([*ids, *more[:n]])[i])) for n, i in enumerate(more))


def agent(name: str = "a", steps: int = 3, **fields: Any) -> dict[str, Any]:
    """Each call has a prompt of its own."""
    answers = [f"go {t}{END}" for t in range(steps)]
    return record(name, [chat(("user", f"room {t}")) for t in range(steps)], answers, **fields)


def text(name: str, lines: list[str], **fields: Any) -> dict[str, Any]:
    """One prompt, then lines that follow one another."""
    steps = [{"tokens": TOY.encode(line).tolist(), "action": line} for line in lines]
    steps[0]["prompt_tokens"] = TOY.encode(chat(("user", "q"))).tolist()
    return {"id": name, "group": "g", "reward": 0.0, "steps": steps, **fields}


def test_the_belief_is_the_distribution_of_the_next_token_after_prompt_and_suffix() -> None:
    """Seen failing with the token before the place in place of the one that stands there."""
    found = answer_beliefs(batch(agent()), FAKE, TOY, k=4).belief_S
    for t, belief in enumerate(found):
        whole = _next(_ids(chat(("user", f"room {t}")), SUFFIX))
        best = sorted(range(SIZE), key=lambda i: -whole[i])[:4]
        np.testing.assert_allclose(list(belief.values()), whole[best], rtol=1e-4)
    assert len({tuple(belief) for belief in found}) == 3


def test_lines_of_one_text_are_read_with_all_lines_before_them() -> None:
    lines = ["2 and 2\n", f"is 4{END}", "so 4"]
    found = answer_beliefs(batch(text("a", lines)), FAKE, TOY, k=2).belief_S
    ends = [
        [],
        ["2 and 2\n"],
        ["2 and 2\n", "is 4"],
    ]  # an end of turn is taken off: the readout goes on there
    for said, belief in zip(ends, found, strict=True):
        whole = _next(_ids(chat(("user", "q")), *said, SUFFIX))
        np.testing.assert_allclose(list(belief.values()), np.sort(whole)[::-1][:2], rtol=1e-4)


def test_whole_answers_share_their_probability_end_of_turn_and_all() -> None:
    """Seen failing without the space before the answer."""
    frame = Frame(before="\nAnswer:", after=END)
    found = answer_beliefs(batch(agent()), FAKE, TOY, answers=("4", "the 7"), frame=frame).belief_S
    for t, belief in enumerate(found):
        prefix = _ids(chat(("user", f"room {t}")), "\nAnswer:")
        logs = [_log(prefix, TOY.encode(f" {a}{END}").tolist()) for a in ("4", "the 7")]
        expected = np.exp(logs) / np.exp(logs).sum()
        np.testing.assert_allclose([belief["4"], belief["the 7"]], expected, rtol=1e-4)
        assert sum(belief.values()) == pytest.approx(1)


def test_known_answers_are_the_right_one_the_own_and_the_groups() -> None:
    rows = [agent("a", answer="X"), agent("b", answer="x."), agent("c"), agent("d", answer="Z", gold="Y")]
    rollouts = batch(*rows)
    assert [known_answers(rollouts, r) for r in range(4)] == [
        ["X", "Z"],
        ["x.", "Z"],
        ["X", "Z"],
        ["Y", "Z", "X"],
    ]
    found = answer_beliefs(rollouts, FAKE, TOY, answers=known_answers)
    assert [set(found.belief_S[3 * r]) for r in range(4)] == [{"X", "Z"}, {"x.", "Z"}, {"X", "Z"}, {*"XYZ"}]


@pytest.mark.parametrize("steps", [1, 2, 3, 17, 18, 40])
def test_what_is_read_is_what_a_fork_is_chosen_among(steps: int) -> None:
    rollouts = batch(agent("a", steps), agent("b", 3))
    found = answer_beliefs(rollouts, FAKE, TOY, k=2)
    there = found.column("belief_S").mask(found.n_steps)
    marks = candidates(steps - 1)
    expected = {0, *marks} if len(marks) > 1 else set()
    assert set(np.flatnonzero(there[:steps]).tolist()) == expected
    assert there[steps:].all()
    every = answer_beliefs(rollouts, FAKE, TOY, k=2, cap=None)
    assert every.column("belief_S").mask(every.n_steps).all()


class Planted(Remembering):
    """Takes the answer for 4 until it has read ``ha``, from then on for 7."""

    turn = int(TOY.encode("ha")[0])

    def score(self, requests: Any) -> Any:
        for request in requests:
            p = [0.3, 0.7] if self.turn in request.ids[: request.positions[0]] else [0.8, 0.2]
            first = int(TOY.encode("4")[0])
            order = np.argsort(p)[::-1]
            ids, logs = first + np.array([0, 3])[order], np.log(np.array(p)[order])
            yield Scores(
                request.key,
                topk_ids=ids[None].astype(np.int32),
                topk_logprobs=logs[None].astype(np.float32),
            )


@pytest.mark.parametrize("pivot", [0, 1, 3, 4])
def test_forks_stand_before_the_step_that_moved_the_answer(pivot: int) -> None:
    lines = ["a ", "b ", "c ", "d ", "e ", "f "]
    lines[pivot] = "ha"
    found = answer_beliefs(batch(text("r", lines)), Planted(SIZE), TOY)
    sides = [{"4": 0.8, "7": 0.2}, {"7": 0.7, "4": 0.3}]
    assert [pytest.approx(b) for b in found.belief_S] == [sides[t > pivot] for t in range(6)]
    index = Index(found)
    assert belief_forks("probe_js")(index, 0).tolist() == [pivot]
    shifts = [probe_js(a, b) for a, b in itertools.pairwise(found.belief_S)]
    assert int(np.argmax(shifts)) == pivot


@example({1: "", 2: "", 3: "#1"})
@given(st.dictionaries(st.integers(0, 4), st.sampled_from(["", "a", "#1", "a#1", "\ufffd", "#"])))
def test_each_token_has_a_name_of_its_own(texts: dict[int, str]) -> None:
    """Seen failing where a text ends as a marked one does."""

    class Told(Toy):
        def decode(self, ids: Any) -> str:
            return texts[int(ids[0])]

    found = _names(texts, Told())
    assert len(set(found.values())) == len(texts)
    assert all(found[i].startswith(text) for i, text in texts.items())


def _server(path: str, body: Any) -> Any:
    """vLLM, whose tokenizer takes letters for their code."""
    if path == "/tokenize":
        return ok({"tokens": [3 + ord(c) % 47 for c in body["prompt"].replace(END, "~")]})
    if path == "/detokenize":
        return ok({"prompt": chr(97 + body["tokens"][0])})
    return vllm(path, body)


def _small() -> Batch:
    steps = [{"prompt_tokens": [1, 2, t], "tokens": [7], "action": "x"} for t in range(3)]
    return Batch.from_records([{"id": "a", "group": "g", "reward": 0.0, "steps": steps}], strict=True)


def test_a_server_that_names_likely_tokens_gives_the_numbers_of_its_model() -> None:
    with serving(_server) as server:
        endpoint = Endpoint(server.url)
        found = answer_beliefs(_small(), endpoint, k=3)
        local = answer_beliefs(_small(), MODEL, endpoint, k=3)
    assert found.column("belief_S").provenance["backend"] == "endpoint:vllm"
    for here, there in zip(local.belief_S, found.belief_S, strict=True):
        assert here == pytest.approx(there, rel=1e-5)


def test_a_server_that_scores_given_tokens_alone_is_asked_for_whole_answers() -> None:
    def echo(path: str, body: Any) -> Any:
        return ok(echoed(body)) if path == "/v1/completions" else _server(path, body)

    with serving(echo) as server:
        endpoint = Endpoint(server.url, dialect="echo")
        with pytest.raises(BackendError, match="answers="):
            answer_beliefs(_small(), endpoint)
        found = answer_beliefs(_small(), endpoint, answers=("yes", "no"))
        local = answer_beliefs(_small(), MODEL, endpoint, answers=("yes", "no"))
    for here, there in zip(local.belief_S, found.belief_S, strict=True):
        assert here == pytest.approx(there, rel=1e-5)


def test_a_job_that_was_cut_off_goes_on(tmp_path: Any) -> None:
    journal = tmp_path / "j"
    rollouts = batch(agent("a", 6), agent("b", 6))
    whole = answer_beliefs(rollouts, FAKE, TOY, k=3, journal=journal)
    lines = journal.read_bytes().splitlines(keepends=True)
    journal.write_bytes(b"".join(lines[:-1]))
    again = answer_beliefs(rollouts, FAKE, TOY, k=3, journal=journal, resume=True)
    assert list(whole.belief_S) == list(again.belief_S)
    with pytest.raises(DataError, match="another job"):
        answer_beliefs(rollouts, FAKE, TOY, k=4, journal=journal, resume=True)


def test_steps_that_cannot_be_read_are_told() -> None:
    """The ids of one step are not known, nor then is what stands before those after it."""
    broken = text("a", ["x", "y", "z"])
    del broken["steps"][1]["tokens"]
    found = answer_beliefs(batch(broken, agent("b")), FAKE, TOY)
    assert found.column("belief_S").mask(6).tolist() == [True, False, False, True, True, True]
    [finding] = [f for f in found.findings if f.code == "ACC753"]
    assert (finding.count, finding.where) == (2, "rollout 'a' step 1")
    assert set(dict(before_steps(found))) == {0, 3, 4, 5}
    headless = [text("c", ["x", "y", "z"]), agent("d")]
    del headless[0]["steps"][0]["prompt_tokens"]  # nothing stands before its first step
    assert set(dict(before_steps(batch(*headless)))) == {1, 2, 3, 4, 5}


@pytest.mark.parametrize(
    ("options", "error", "said"),
    [
        ({"k": 1}, ParamError, "at least 2"),
        ({"cap": 1}, ParamError, "at least 2"),
        ({"answers": ["x", " X. "]}, ParamError, "two different answers"),
        ({"answers": known_answers}, DataError, "two different answers"),
    ],
)
def test_what_asks_for_no_belief_is_refused(options: dict[str, Any], error: Any, said: str) -> None:
    with pytest.raises(error, match=said):
        answer_beliefs(batch(agent()), FAKE, TOY, **options)
    with pytest.raises(DataError, match="none of 1 rollouts"):
        answer_beliefs(batch(agent(steps=2)), FAKE, TOY)


class Speaking(Remembering):
    tokenizer = TOY


def test_words_ask_for_the_same() -> None:
    rollouts, fake = batch(agent(answer="7", gold="4")), Speaking(vocabulary=SIZE, seed=2)
    plain = answer_beliefs(rollouts, FAKE, TOY, k=3)
    assert list(ac.probe(rollouts, fake, "belief:3").belief_S) == list(plain.belief_S)
    settings: dict[str, Any] = {"suffix": "Done?", "answers": "yes/no", "end": "", "cap": 0}
    asked = belief_asked(rollouts, fake, "belief", settings)
    frame = Frame(before="\nDone?", after="")
    expected = answer_beliefs(rollouts, FAKE, TOY, answers=("yes", "no"), frame=frame, cap=None)
    assert list(asked.belief_S) == list(expected.belief_S)
    known = belief_asked(rollouts, fake, "belief", {"answers": "known"})
    assert set(known.belief_S[0]) == {"4", "7"}
    for settings in ({"sufix": "x"}, {"cap": "x"}, {"cap": True}):
        with pytest.raises(ParamError):
            belief_asked(rollouts, fake, "belief", settings)
    for want in ("belief:x", "belief:"):
        with pytest.raises(ParamError, match="belief:20"):
            belief_asked(rollouts, fake, want)
    with pytest.raises(ParamError, match="sampled context"):
        ac.probe(rollouts, fake, "belief", context="outcome")


# --- the answer at every layer -------------------------------------------------------------------------


def test_the_lens_is_the_answers_log_probability_at_each_layer() -> None:
    """Seen failing with the state at the token in place of the one before it."""
    rollouts = batch(agent(answer="4"), agent("b"))
    found = answer_lens(rollouts, FAKE, TOY)
    column = found.column("answer_lens_S")
    assert column.mask(6).tolist() == [True] * 3 + [False] * 3  # without an answer there is nothing to read
    for t in range(3):
        prefix = _ids(chat(("user", f"room {t}")), SUFFIX)
        answer = _ids(" 4")
        last = _log(prefix, answer)
        first = 0.0
        for n, i in enumerate(answer):
            logits = FAKE.head @ FAKE.embedding[[*prefix, *answer][len(prefix) + n - 1]].astype(np.float32)
            first += float(logits[i]) - float(np.log(np.exp(logits.astype(np.float64)).sum()))
        np.testing.assert_allclose(column.decoded()[t], [first, last], rtol=1e-4)


def test_forks_are_placed_by_the_largest_shift_of_the_lens() -> None:
    found = answer_lens(batch(agent(steps=6, answer="4")), FAKE, TOY)
    rows = found.column("answer_lens_S").decoded()
    shifts = [float(np.linalg.norm(b - a)) for a, b in itertools.pairwise(rows)]
    assert len({round(s, 6) for s in shifts}) > 2
    index = Index(found)
    assert belief_forks("lens_shift")(index, 0).tolist() == [int(np.argmax(shifts))]
    assert belief_forks("lens_shift")(Index(batch(agent(steps=6))), 0).tolist() == [3]  # the middle


def test_the_lens_is_asked_for_in_words_and_kept(tmp_path: Any) -> None:
    rollouts, fake = batch(agent(answer="4")), Speaking(vocabulary=SIZE, seed=2)
    plain = answer_lens(rollouts, FAKE, TOY).column("answer_lens_S").values
    found = ac.probe(rollouts, fake, "lens", journal=tmp_path / "j")
    np.testing.assert_array_equal(plain, found.column("answer_lens_S").values)
    path = tmp_path / "out.jsonl"
    path.write_text("".join(json.dumps(r) + "\n" for r in found.records()))
    np.testing.assert_allclose(plain, ac.read(path).column("answer_lens_S").values, rtol=1e-6)
    for want, settings in (("lens:3", None), ("lens", {"answers": "a/b"})):
        with pytest.raises(ParamError):
            belief_asked(rollouts, fake, want, settings)
    with pytest.raises(ParamError, match="cap"):
        answer_lens(rollouts, FAKE, TOY, cap=1)
    with pytest.raises(DataError, match="has an answer"):
        answer_lens(batch(agent()), FAKE, TOY)
    with serving(_server) as server, pytest.raises(BackendError, match="does not show its layers"):
        answer_lens(_small().with_column("answer_R", ["x"]), Endpoint(server.url))
