"""Prompts reworded without touching the task, and, as a control, with the task changed.

Semifactual: irrelevant context, other names, another order, typing errors; numbers and questions stay,
and `same_task` checks that they did.  Counterfactual: other numbers, or two objects that change places.
The same text, seed and kept words give the same rewording.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from random import Random
from typing import TypeAlias

from accredit.errors import DataError

__all__ = ["SEMIFACTUAL", "Kept", "perturbed", "same_task"]

_NUMBER = re.compile(r"(?<![\w.])[-+]?\d+(?:[.,]\d+)*")
_NUMBER_WORDS = frozenset(
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen "
    "seventeen eighteen nineteen twenty thirty forty fifty sixty seventy eighty ninety hundred thousand "
    "million billion half third quarter dozen double twice triple first second".split()
)
_WORD = re.compile(r"[^\W\d_]+")
_SENTENCE = re.compile(r"[^.!?\n]+(?:[.!?]+|$|(?=\n))")
_ITEM = re.compile(r"^\s*[-*•]\s+")
_COMMAS = re.compile(r"^(?P<head>[^:\n]{1,80}:\s+)(?P<items>[^,\n:.!?]+(?:, [^,\n:.!?]+)+)$", re.MULTILINE)
# Lists under such a word are in an order that means something.
_ORDERED = frozenset("last previous history step steps sequence order done path route so far plan".split())
# A sentence with one of these leans on the one before it.
_LEANS = frozenset(
    "then next after before finally later afterwards first second third last it its this that these those he "
    "she they them his her their there also however so therefore thus instead otherwise but and or".split()
)
_NAMES = "Alda Boris Clara Dario Edith Farid Greta Hugo Irene Jonas Katya Leon Mira Nadir Olga Pavel".split()
_ASIDES = (
    "The weather outside is calm today.",
    "A clock is ticking somewhere far away.",
    "Someone painted the ceiling in a pale colour long ago.",
    "A faint smell of coffee is in the air.",
    "Birds can be heard through the wall.",
    "The radio next door plays an old song.",
)
_TYPO_RATE = 0.06


@dataclass(frozen=True, slots=True)
class Kept:
    """What a rewording leaves alone.

    Args:
        words: in lower case: those of actions and answers.
        objects: those that a counterfactual prompt may exchange: last words of actions.
    """

    words: frozenset[str] = frozenset()
    objects: tuple[str, ...] = ()


Perturbation: TypeAlias = Callable[[str, Random, Kept], str | None]


def same_task(before: str, after: str, renamed: Mapping[str, str] | None = None) -> None:
    """Make sure that a reworded prompt keeps every quantity and every question.

    Args:
        before: original text.
        after: reworded text.
        renamed: old to new name, applied to ``before`` first.

    Raises:
        DataError: naming what kind of thing changed (never the text).

    Example:
        >>> same_task("Tom has 3 pens. How many?", "It rains. Tom has 3 pens. How many?")
    """
    what = _changed(before, after, renamed or {})
    if what:
        raise DataError(
            f"a reworded prompt changes the {what}",
            code="ACC762",
            hint="Reword only what is beside the task",
        )


def _changed(before: str, after: str, renamed: Mapping[str, str]) -> str:
    """Return what of the task a rewording changes, "" for nothing."""
    known = _replaced(before, renamed)
    kinds = (("quantities", _quantities), ("questions", _questions))
    return next((what for what, of in kinds if of(known) != of(after)), "")


def irrelevant(text: str, rng: Random, kept: Kept) -> str | None:
    """Return the text with a sentence that has nothing to do with it, before its last paragraph.

    Args:
        text: of a message.
        rng: chance.
        kept: words that the sentence must not have.
    """
    fits = [aside for aside in _ASIDES if not kept.words & _lower_words(aside)]
    if not fits:
        return None
    aside = rng.choice(fits)
    head, gap, tail = text.rpartition("\n\n")
    return f"{head}{gap}{aside}\n\n{tail}" if gap else f"{aside} {text}"


def renamed(text: str, rng: Random, kept: Kept) -> str | None:
    """Return the text with other names of people and things that no action or answer names.

    Args:
        text: of a message.
        rng: chance.
        kept: words that keep their name.
    """
    mapping = _new_names(text, rng, kept)
    if not mapping:
        return None
    found = _replaced(text, mapping)
    return None if _changed(text, found, mapping) else found


def reordered(text: str, rng: Random, kept: Kept) -> str | None:
    """Return the text with the items of a list, or sentences that stand alone, in another order.

    Args:
        text: of a message.
        rng: chance.
        kept: not needed: nothing is renamed.
    """
    return _items_moved(text, rng) or _commas_moved(text, rng) or _sentences_moved(text, rng)


def typos(text: str, rng: Random, kept: Kept) -> str | None:
    """Return the text with two letters exchanged inside some plain words outside questions and lists.

    Args:
        text: of a message.
        rng: chance.
        kept: words that stay right.
    """
    spared = [m.span() for m in _SENTENCE.finditer(text) if m.group().endswith("?")]
    spared += [m.span() for m in _COMMAS.finditer(text)]
    places = [
        m
        for m in _WORD.finditer(text)
        if len(m.group()) >= 5
        and m.group().islower()
        and m.group() not in kept.words | _NUMBER_WORDS
        and len(set(m.group()[1:-1])) > 1
        and not any(a <= m.start() < b for a, b in spared)
    ]
    if not places:
        return None
    chosen = rng.sample(places, max(1, round(_TYPO_RATE * len(places))))
    for m in sorted(chosen, key=lambda m: -m.start()):
        text = text[: m.start()] + _mistyped(m.group(), rng) + text[m.end() :]
    return text


def counterfactual(text: str, rng: Random, kept: Kept) -> str | None:
    """Return the text with another answer: every number changed, or two objects exchanged.

    Args:
        text: of a message.
        rng: chance.
        kept: its objects are exchanged where the text has no number.
    """
    shift = rng.randint(1, 9)
    changed = _NUMBER.sub(lambda m: _shifted(m.group(), shift), text)
    if changed != text:
        return changed
    here = [w for w in dict.fromkeys(kept.objects) if re.search(rf"\b{re.escape(w)}\b", text)]
    if len(here) < 2:
        return None
    a, b = rng.sample(here, 2)
    return _replaced(text, {a: b, b: a})


_SEMIFACTUAL: Mapping[str, Perturbation] = {
    "irrelevant": irrelevant,
    "renamed": renamed,
    "reordered": reordered,
    "typos": typos,
}
SEMIFACTUAL = tuple(_SEMIFACTUAL)


def perturbed(name: str, text: str, seed: int = 0, kept: Kept | None = None) -> str | None:
    """Return a text reworded in a named way; None where it finds nothing, or nothing beside the task.

    Args:
        name: one of `SEMIFACTUAL`, or ``counterfactual``.
        text: of a message.
        seed: the same text and seed give the same rewording, whichever rollout it comes from.
        kept: what stays.

    Example:
        >>> perturbed("reordered", "Possible commands: go, stay", kept=Kept())
        'Possible commands: stay, go'
        >>> perturbed("counterfactual", "Tom has 3 pens.") == "Tom has 3 pens."
        False
    """
    rng = Random(f"{seed}\0{name}\0{text}")
    kept = kept or Kept()
    if name == "counterfactual":
        return counterfactual(text, rng, kept)
    found = _SEMIFACTUAL[name](text, rng, kept)
    # `renamed` knows what it renamed, and has looked itself.
    changed = found is not None and name != "renamed" and _changed(text, found, {})
    return None if changed or found == text else found


def _quantities(text: str) -> Counter[str]:
    listed = re.sub(r"(?m)^\s*\d+[.)]\s+", "", text)  # numbers of list items are no quantities
    return Counter(_NUMBER.findall(listed)) + Counter(w for w in _all_words(listed) if w in _NUMBER_WORDS)


def _questions(text: str) -> Counter[str]:
    found = (m.group().strip() for m in _SENTENCE.finditer(text))
    return Counter(" ".join(s.split()) for s in found if s.endswith("?") and _WORD.search(s))


def _all_words(text: str) -> list[str]:
    return [w.lower() for w in _WORD.findall(text)]


def _lower_words(text: str) -> frozenset[str]:
    return frozenset(_all_words(text))


def _replaced(text: str, mapping: Mapping[str, str]) -> str:
    if not mapping:
        return text
    names = "|".join(map(re.escape, sorted(mapping, key=len, reverse=True)))
    return re.sub(rf"\b(?:{names})\b", lambda m: mapping[m.group()], text)


def _new_names(text: str, rng: Random, kept: Kept) -> dict[str, str]:
    """Return new names of capitalised words that recur, also inside a sentence, and are in no title."""
    words = [m for m in _WORD.finditer(text) if m.group()[0].isupper()]
    pairs = [(a.group(), b.group()) for a, b in pairwise(words) if text[a.end() : b.start()] == " "]
    titled = {word for pair in pairs for word in pair}
    times = Counter(m.group() for m in words)
    inside = {
        m.group()
        for m in words
        if m.group()[1:].islower()
        and len(m.group()) >= 3
        and times[m.group()] >= 2
        and m.group() not in titled
        and re.search(r"[\w,;]['’\"(]? +['’\"(]?$", text[: m.start()])
    }
    old = sorted(w for w in inside if w.lower() not in kept.words | _NUMBER_WORDS | _LEANS)
    free = [n for n in _NAMES if n not in text and n.lower() not in kept.words]
    return dict(zip(old, rng.sample(free, len(free)), strict=False))


def _items_moved(text: str, rng: Random) -> str | None:
    """Return the text with the items of its first list, one a line, in another order."""
    lines = text.split("\n")
    first = next((i for i, line in enumerate(lines) if _ITEM.match(line)), None)
    if first is None or (first and _ORDERED & _lower_words(lines[first - 1])):
        return None
    last = next((i for i in range(first, len(lines)) if not _ITEM.match(lines[i])), len(lines))
    moved = _moved(lines[first:last], rng)
    return None if moved is None else "\n".join([*lines[:first], *moved, *lines[last:]])


def _commas_moved(text: str, rng: Random) -> str | None:
    """Return the text with the items of a list in one line ("Possible commands: go, stay") moved."""
    for found in _COMMAS.finditer(text):
        moved = None if _ORDERED & _lower_words(found["head"]) else _moved(found["items"].split(", "), rng)
        if moved is not None:
            return text[: found.start("items")] + ", ".join(moved) + text[found.end("items") :]
    return None


def _sentences_moved(text: str, rng: Random) -> str | None:
    paragraphs = text.split("\n\n")
    for i, paragraph in enumerate(paragraphs):
        sentences = [m.group().strip() for m in _SENTENCE.finditer(paragraph)]
        plain = all(s.endswith(".") and not _LEANS & _lower_words(s) for s in sentences)
        whole = " ".join(sentences) == paragraph  # decimals and abbreviations would not come back
        moved = _moved(sentences, rng) if plain and whole else None
        if moved is not None:
            return "\n\n".join([*paragraphs[:i], " ".join(moved), *paragraphs[i + 1 :]])
    return None


def _moved(items: list[str], rng: Random) -> list[str] | None:
    """Return the items in another order; None if there is no other."""
    if len(set(items)) < 2:
        return None
    found = items
    while found == items:
        found = rng.sample(items, len(items))
    return found


def _mistyped(word: str, rng: Random) -> str:
    """Return the word with two inner letters exchanged, unless that gives a number ("there")."""
    swaps = [word[:i] + word[i + 1] + word[i] + word[i + 2 :] for i in range(1, len(word) - 2)]
    return rng.choice([w for w in swaps if w != word and w not in _NUMBER_WORDS] or [word])


def _shifted(number: str, shift: int) -> str:
    """Return another number of the same look: its whole part grows."""
    sign, digits = (number[0], number[1:]) if number[0] in "+-" else ("", number)
    whole = re.match(r"\d+", digits)
    assert whole is not None
    return f"{sign}{int(whole.group()) + shift}{digits[whole.end() :]}"
