"""Messages, transcripts and state keys that all readers of foreign formats share."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from accredit.readers.chat import Call, Message, Transcript, action_key
from accredit.readers.foreign import canonical, letters, reward_of
from accredit.readers.volatile import exact, steady

words = st.text(st.characters(codec="utf-8"), max_size=12)
turns = st.lists(st.tuples(words, words), min_size=1, max_size=6)
values = st.recursive(
    st.none() | st.booleans() | st.integers() | words,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words, inner, max_size=3),
    max_leaves=8,
)


def played(prompt, pairs, rule="observation", normalise=exact):
    talk = Transcript(None, rule=rule, normalise=normalise)
    talk.observe(prompt)
    for action, observation in pairs:
        talk.act(Message("assistant", action))
        talk.observe(observation, "tool")
    return talk.rollout(id="r")


@given(words, turns)
def test_one_turn_is_one_step_and_the_text_after_it_its_observation(prompt, pairs):
    steps = played(prompt, pairs).steps
    assert [a.strip() for a, _ in pairs] == [s.action for s in steps]
    assert [o for _, o in pairs] == [s.observation for s in steps]


@given(words, turns, words, turns)
def test_prefix_keys_are_equal_exactly_where_all_before_is_equal(prompt, pairs, other, more):
    one, two = played(prompt, pairs, "prefix").steps, played(other, more, "prefix").steps
    for t in range(min(len(one), len(two))):
        same = prompt == other and pairs[:t] == more[:t]
        assert same == (one[t].state == two[t].state)


@given(words, turns, turns)
def test_observation_keys_depend_on_the_last_observation_alone(prompt, pairs, more):
    one, two = played(prompt, pairs).steps, played(prompt, more).steps
    for s, (_, seen) in zip(one[1:], pairs, strict=False):
        for u, (_, also) in zip(two[1:], more, strict=False):
            assert (seen == also) == (s.state == u.state)
    assert one[0].state == two[0].state


def test_prefix_is_kept_beside_observation_keys_so_that_it_can_be_chosen_later():
    steps = played("go", [("a", "same"), ("b", "same"), ("c", "same")]).steps
    assert steps[1].state == steps[2].state
    assert steps[1].extra["prefix"] != steps[2].extra["prefix"]


def test_clocks_ids_addresses_paths_and_durations_make_no_new_state():
    noisy = [
        "\x1b[31mat 2024-05-15 15:00:01, 0xdeadbeef\x1b[0m in /tmp/x9: 12 files, 3.1s  \r\n",
        "at 2025-01-01 09:10:11, 0x00c0ffee in /tmp/abc: 12 files, 0.25s\n",
    ]
    assert len({steady(text) for text in noisy}) == 1
    assert "12 files" in steady(noisy[0])
    assert steady("room 3") != steady("room 4")


@given(st.dictionaries(words, values, max_size=5))
def test_action_key_does_not_depend_on_the_order_of_arguments(arguments):
    backwards = dict(reversed(arguments.items()))
    one, two = (Message("assistant", calls=(Call("f", a),)) for a in (arguments, backwards))
    assert action_key(one) == action_key(two)
    assert canonical(arguments) == canonical(backwards)


def test_several_calls_are_one_action():
    both = Message("assistant", "text", (Call("a", {}), Call("b", {"x": 1})))
    assert 'a {}\nb {"x":1}' == action_key(both)
    assert "thought" == action_key(Message("assistant", "", reasoning=" thought "))


@given(st.lists(words), st.lists(words))
def test_letters_tell_lists_of_texts_apart_and_hold_no_digits(one, two):
    assert (one == two) == (letters(*one) == letters(*two))
    assert letters(*one).isalpha()


def test_absent_and_unreadable_scores_are_none_never_zero():
    for value in (None, "", "maybe", [], {}, float("inf"), float("nan"), 10**400):
        assert reward_of(value) is None
    assert [1, 0, 0.5, 0, 1, 0] == [reward_of(v) for v in ("C", "I", "P", "N", True, False)]
