"""Rewordings keep the task, which is checked; the control changes it."""

from __future__ import annotations

import re
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from accredit.errors import DataError
from accredit.signals import perturbing
from accredit.signals.perturbing import SEMIFACTUAL, Kept, perturbed, same_task

TASK = (
    "Anna has 3 red apples and gives twelve of them to Peter, who lives with Anna.\n\n"
    "The basket stands near the window. The garden is quiet today. Peter sings loudly.\n\n"
    "Possible commands: take apple, drop apple, open door\n\nHow many apples does Anna keep?"
)
WORDS = st.sampled_from(
    "there Anna Peter apples three 3 4.5 1,000 open door basket garden window first second quickly".split()
)
SENTENCES = st.tuples(st.lists(WORDS, min_size=1, max_size=8).map(" ".join), st.sampled_from(".?!")).map(
    "".join
)
TEXTS = st.lists(st.lists(SENTENCES, min_size=1, max_size=4).map(" ".join), min_size=1, max_size=3).map(
    "\n\n".join
)


def _numbers(text: str) -> Counter:
    """Oracle: numbers and number words, one by one."""
    words = re.findall(r"\w+(?:[.,]\d+)*", text.lower())
    return Counter(w for w in words if w[0].isdigit() or w in {"three", "twelve", "first", "second"})


def _asked(text: str) -> list[str]:
    return sorted(part.strip() for part in re.findall(r"[^.!?\n]*\?", text))


@given(st.sampled_from(SEMIFACTUAL), TEXTS, st.integers(0, 5))
def test_a_rewording_keeps_every_number_and_every_question(name, text, seed):
    found = perturbed(name, text, seed, Kept(frozenset({"door", "open"})))
    if found is None:
        return
    assert found != text
    if name != "renamed":
        assert _numbers(text) == _numbers(found)
        assert _asked(text) == _asked(found)
    else:
        assert len(_asked(text)) == len(_asked(found))
        assert _numbers(text) == _numbers(found)
    assert found.count("door") == text.count("door")


@pytest.mark.parametrize("careless", [("3", "4"), ("twelve", "ten"), ("How many", "Which"), ("?", ".")])
def test_a_rewording_that_would_change_the_task_is_not_used(careless, monkeypatch):
    monkeypatch.setitem(perturbing._SEMIFACTUAL, "typos", lambda text, rng, kept: text.replace(*careless))
    assert perturbed("typos", TASK) is None


@given(st.sampled_from([*SEMIFACTUAL, "counterfactual"]), TEXTS, st.integers(0, 5))
def test_the_same_text_and_seed_give_the_same_rewording(name, text, seed):
    assert perturbed(name, text, seed) == perturbed(name, text, seed)


def test_another_seed_gives_another_rewording():
    for name in SEMIFACTUAL:
        assert len({perturbed(name, TASK, seed) for seed in range(8)}) > 1, name


def test_irrelevant_context_stands_before_the_last_paragraph():
    found = perturbed("irrelevant", TASK)
    assert 1 == len(found.split("\n\n")) - len(TASK.split("\n\n"))
    assert TASK.split("\n\n") == [p for p in found.split("\n\n") if p in TASK.split("\n\n")]
    assert found.rpartition("\n\n")[2] == TASK.rpartition("\n\n")[2]


def test_irrelevant_context_has_no_word_of_an_action():
    kept = Kept(frozenset("clock ceiling birds radio coffee".split()))
    assert {"The weather outside is calm today."} == {
        p
        for seed in range(20)
        for p in perturbed("irrelevant", TASK, seed, kept).split("\n\n")
        if p not in TASK
    }


def test_names_are_exchanged_everywhere_but_not_those_that_an_action_names():
    found = perturbed("renamed", TASK, 0, Kept(frozenset({"peter"})))
    new = found.split()[0]
    assert new != "Anna"
    assert TASK.replace("Anna", new) == found


def test_items_of_a_list_change_places_and_nothing_else():
    text = "Do these:\n- walk\n- run\n- rest\n\nThen stop."
    found = perturbed("reordered", text)
    assert found != text
    assert sorted(text.splitlines()) == sorted(found.splitlines())
    [commands] = [line for line in perturbed("reordered", TASK).splitlines() if line.startswith("Possible")]
    assert {"take apple", "drop apple", "open door"} == set(commands.partition(": ")[2].split(", "))


@pytest.mark.parametrize(
    "text",
    [
        "1. walk\n2. run",
        "Follow these steps:\n- walk\n- run",
        "Your last commands: go west, go east",
        "Your task: because you are ready, open the chest. Then, eat the bear, and rest.",
    ],
)
def test_what_has_an_order_keeps_it(text):
    """A task of several sentences with commas was once taken for a list."""
    assert [None] * 5 == [perturbed("reordered", text, seed) for seed in range(5)]


def test_titles_of_several_words_keep_their_names():
    """A room called "Laundry Place" became "Laundry Mira"."""
    assert perturbed("renamed", "-= Laundry Place =-\nYou enter the Laundry Place now.") is None


def test_sentences_change_places_only_where_none_leans_on_another():
    assert {"One is red. Two is blue.", "Two is blue. One is red."} >= {
        perturbed("reordered", "One is red. Two is blue.")
    }
    assert perturbed("reordered", "Take the key. Then open the door.") is None
    assert perturbed("reordered", "Anna came. She was tired.") is None
    assert perturbed("reordered", "It costs 3.50. Anna pays.") is None


def test_typing_errors_leave_lists_questions_names_and_short_words_right():
    for seed in range(30):
        found = perturbed("typos", TASK, seed)
        for part in (
            "Possible commands: take apple, drop apple, open door",
            "How many apples does Anna keep?",
        ):
            assert part in found
        assert found.count("Anna") == TASK.count("Anna")
        changed = [(a, b) for a, b in zip(TASK.split(), found.split(), strict=True) if a != b]
        assert changed
        assert all(sorted(a) == sorted(b) and len(a) >= 5 and a[0] == b[0] for a, b in changed)


def test_a_typing_error_is_never_a_number():
    """Exchanging two letters of "there" gives "three"."""
    found = {perturbed("typos", "there", seed) for seed in range(30)}
    assert {"tehre"} == found


def test_a_prompt_without_anything_to_change_has_no_rewording():
    assert [None] * 3 == [perturbed(name, "Go on?") for name in ("renamed", "reordered", "typos")]


def test_a_counterfactual_prompt_changes_every_number():
    for seed in range(10):
        found = perturbed("counterfactual", "Tom has 3 pens and 1,000 or 2.5 more, not -4.", seed)
        before, after = (
            re.findall(r"-?\d+(?:[.,]\d+)*", t)
            for t in ("Tom has 3 pens and 1,000 or 2.5 more, not -4.", found)
        )
        assert not [a for a, b in zip(before, after, strict=True) if a == b]


def test_without_numbers_a_counterfactual_prompt_exchanges_two_objects():
    kept = Kept(objects=("chest", "key"))
    found = perturbed("counterfactual", "Open the chest with the key.", 0, kept)
    assert "Open the key with the chest." == found
    assert perturbed("counterfactual", "Open the chest.", 0, kept) is None


@pytest.mark.parametrize(
    ("after", "what"),
    [
        ("Tom has 4 pens. How many?", "quantities"),
        ("Tom has 3 pens, 3 really. How many?", "quantities"),
        ("Tom has 3 pens. Three! How many?", "quantities"),
        ("Tom has 3 pens. How much?", "questions"),
        ("Tom has 3 pens. How many? Why?", "questions"),
    ],
)
def test_a_rewording_of_ones_own_is_checked(after, what):
    with pytest.raises(DataError, match=f"ACC762.*{what}") as caught:
        same_task("Tom has 3 pens. How many?", after)
    assert "Tom" not in str(caught.value)


def test_renamed_questions_are_the_same_questions():
    same_task("Tom has 3. Has Tom more?", "Leon has 3. Has Leon more?", {"Tom": "Leon"})
    with pytest.raises(DataError, match="questions"):
        same_task("Tom has 3. Has Tom more?", "Leon has 3. Has Leon more?")
