"""Multi-hop search over a full-text index: the way to the answer, and going back by transcript."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from accredit.data import Batch
from accredit.errors import ParamError
from accredit.oracle import tabulate
from accredit.oracle.named import world_named
from accredit.planners import Request
from accredit.worlds import World
from accredit.worlds.acting import UniformActor
from accredit.worlds.search import FOUND, SearchWorld, corpus, normal
from tests.worlds.promises import (
    agrees_with_its_record,
    continued,
    goes_on_as_before,
    places,
    scripted,
    walked,
)

picks = st.lists(st.integers(0, 30), max_size=6)
seeds = st.integers(0, 40)


@given(st.integers(0, 10_000), st.integers(1, 3))
@settings(max_examples=30)
def test_the_solution_is_possible_pays_and_needs_every_hop(seed: int, hops: int) -> None:
    world = SearchWorld(seed, hops=hops)
    world.reset(0)
    for action in world.solution()[:-1]:
        options = world.actions()
        assert action in options
        if world.corpus.links and not set(world.question.pages) <= world._read:
            last = {n for p in world._read for n in world.corpus.links[p].values()}
            named = {world.corpus.titles[n] for n in last}
            assert (f"answer {world.question.answer}" in options) == (world.question.answer in named)
        world.step(action)
    assert 1.0 == world.step(world.solution()[-1])[1]
    assert set(world.question.pages) == world._read


@given(seeds, picks, picks, picks)
@settings(max_examples=20)
def test_a_restored_search_goes_on_as_before(seed, before, after, between) -> None:
    goes_on_as_before(lambda: SearchWorld(seed), before, after, between)


@given(seeds, st.lists(st.integers(0, 30), max_size=10))
@settings(max_examples=20)
def test_states_of_one_key_look_alike(seed, picks) -> None:
    """The key says all that is seen: what was searched before does not matter."""
    world, seen = SearchWorld(seed), dict[str, str]()
    world.reset(0)
    for _ in range(2):
        for _, text, _, over, key, _ in walked(world, picks):
            assert over or seen.setdefault(key, text) == text
        world.reset(0)
        picks = picks[::-1]


@given(st.text(max_size=30))
def test_any_words_can_be_searched_for(words: str) -> None:
    world = SearchWorld(1, free=True)
    world.reset(0)
    if words.strip():
        world.step(f"search {words}")
        assert len(world._listed) <= FOUND
    title = world.corpus.titles[5]
    world.step(f'search {title}" OR title:*')
    assert 5 in world._listed


def test_only_listed_pages_can_be_read_and_only_the_right_name_pays() -> None:
    world = SearchWorld(2, free=True)
    world.reset(0)
    world.step("read 3")
    world.step("read ³")
    assert frozenset() == world._read
    assert (None, 8) == (world.actions(), world.steps_left())
    assert (0.0, True) == world.step("answer nobody")[1:]
    world.reset(0)
    assert (1.0, True) == world.step(f"answer the {world.question.answer.upper()}.")[1:]
    with pytest.raises(ParamError, match="over"):
        world.step("read 1")
    world.reset(0)
    for odd in ("look", "search", "search  ", ""):
        with pytest.raises(ParamError, match="cannot"):
            world.step(odd)
    assert "kalo" == normal(" The KALO! ")


def test_an_episode_is_cut_at_its_horizon_without_pay() -> None:
    world = SearchWorld(2, horizon=3)
    world.reset(0)
    assert [False, False, True] == [world.step(a)[2] for a in world.solution()[:3]]
    assert [] == world.actions()


def test_names_of_a_corpus_differ_and_its_relations_are_told() -> None:
    pages = corpus(4, 12)
    assert 48 == len(set(pages.titles))
    for n, links in enumerate(pages.links):
        assert all(pages.titles[m] in pages.texts[n] and m != n for m in links.values())


def test_it_keeps_the_promises_of_a_world() -> None:
    world = SearchWorld(3)
    assert isinstance(world, World)
    assert (True, 5.0, True, False) == (
        world.exact_snapshot, world.snapshot_cost, world.deterministic, world.side_effects,
    )  # fmt: skip
    agrees_with_its_record(lambda: SearchWorld(3), world.solution())
    with pytest.raises(ParamError, match="hops"):
        SearchWorld(3, hops=4)


def test_a_restore_counts_the_actions_that_it_takes_again() -> None:
    world = SearchWorld(3)
    world.reset(0)
    for action in world.solution()[:4]:
        world.step(action)
    world.restore(world.snapshot())
    assert 8 == world.cost.environment_steps


def test_continuations_win_along_the_solution_and_average_to_the_exact_value() -> None:
    def make() -> SearchWorld:
        return SearchWorld(3, hops=1, horizon=4, pages=4)

    solution = make().solution()
    here, _ = places(make, solution)
    wins = continued(make, [Request(p) for p in here], scripted(solution))
    assert [1.0] * len(here) == [a.mean for a in wins]
    table = tabulate(make(), UniformActor())
    exact = table.tables.V[1, table.walk(solution, [None] * len(solution))[0][1]]
    answer = continued(make, [Request(here[1], k=300)], slots=8)[0]
    assert 0 < exact < 1
    assert abs(answer.mean - exact) <= 4 * np.sqrt(exact * (1 - exact) / 300)


def test_it_is_made_by_name() -> None:
    batch = Batch.from_records([{"id": "a", "group": "q12", "steps": []}])
    assert SearchWorld(12).question == world_named("search", batch)("q12").question
