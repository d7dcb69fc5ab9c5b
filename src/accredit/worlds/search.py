"""Search and answer over a full-text index: questions whose answer lies two or three pages away."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from accredit.errors import ParamError
from accredit.worlds.protocol import Cost
from accredit.worlds.textworld import COMMANDS

__all__ = ["Corpus", "Question", "SearchWorld", "corpus", "normal"]

HORIZON = 10
FOUND = 3  # pages that a search lists
_SYLLABLES = ("ka", "lo", "mi", "ren", "ta", "vo", "su", "del", "bri", "nor", "fa", "gu")
# kind of page: its relations, as (name, kind of the other page, sentence).
_RELATIONS = {
    "person": (
        ("birthplace", "town", "{a} was born in {b}."),
        ("employer", "company", "{a} works for {b}."),
    ),
    "company": (
        ("founder", "person", "{a} was founded by {b}."),
        ("seat", "town", "{a} has its seat in {b}."),
    ),
    "town": (
        ("mayor", "person", "The mayor of {a} is {b}."),
        ("river", "river", "{a} lies on the {b}."),
    ),
    "river": (("mouth", "town", "The {a} reaches the sea at {b}."),),
}
_FILL = (
    "It is mentioned in old letters.",
    "Visitors praise it.",
    "Little else is known.",
    "Its archive burnt.",
)


@dataclass(frozen=True, slots=True)
class Question:
    """A question and the way to its answer.

    Args:
        text: of the question.
        pages: numbers of the pages to read, in order; the last one names the answer.
        answer: name.
    """

    text: str
    pages: tuple[int, ...]
    answer: str


@dataclass(frozen=True, slots=True)
class Corpus:
    """Pages about made-up people, companies, towns and rivers.

    Args:
        titles: name of each page, all different.
        texts: of each page.
        links: for each page, the number of the page that each of its relations leads to.
        kinds: of each page.
    """

    titles: tuple[str, ...]
    texts: tuple[str, ...]
    links: tuple[dict[str, int], ...]
    kinds: tuple[str, ...]


class SearchWorld:
    """Answers ``search WORDS``, ``read N`` and ``answer NAME``; 1 for the right name, else 0.

    Searches go to an FTS5 index (bm25) and list titles; a page that was listed can be read, and what it
    names searched for.  Snapshots are the actions so far, which are taken again.

    Args:
        seed: of the corpus and the question.
        hops: pages that must be read, 1-3.
        free: any text is taken as an action, and `actions` lists none.
        pages: of each kind.
        horizon: actions after which an episode is cut and pays 0.

    Example:
        >>> world = SearchWorld(seed=1)
        >>> _ = world.reset(seed=0)
        >>> [world.step(action)[1] for action in world.solution()][-1]
        1.0
    """

    exact_snapshot = True
    deterministic = True
    side_effects = False

    def __init__(
        self, seed: int = 0, *, hops: int = 2, free: bool = False, pages: int = 12, horizon: int = HORIZON
    ) -> None:
        if not 1 <= hops <= 3 or horizon < 1 or not 4 <= pages <= 1000:
            raise ParamError(f"hops are 1-3, pages 4-1000, horizon >= 1; got {hops}, {pages}, {horizon}")
        self.corpus = corpus(seed, pages)
        self.question = _question(self.corpus, np.random.default_rng([seed, 67]), hops)
        self._db = _index(self.corpus)
        self._free, self._horizon = free, horizon
        self._given: tuple[str, ...] = ()
        self._listed: tuple[int, ...] = ()
        self._read: frozenset[int] = frozenset()
        self._answer: str | None = ""
        self.snapshot_cost = horizon / 2
        self.cost = Cost()

    def solution(self) -> tuple[str, ...]:
        """Return actions that answer the question."""
        look = [(f"search {self.corpus.titles[n]}", f"read {n}") for n in self.question.pages]
        return (*(action for pair in look for action in pair), f"answer {self.question.answer}")

    def reset(self, seed: int) -> str:
        """Begin an episode; a question has one beginning, whatever the seed."""
        self._given, self._listed, self._read, self._answer = (), (), frozenset(), None
        return self.seen()

    def step(self, action: str) -> tuple[str, float, bool]:
        """Search, read or answer.

        Raises:
            ParamError: if the episode is over or the action is none of these.
        """
        verb, _, rest = action.partition(" ")
        if self._over or verb not in ("search", "read", "answer") or not rest.strip():
            hint = "The episode is over" if self._over else "search WORDS, read N or answer NAME"
            raise ParamError(f"cannot {action[:80]!r} here", hint=hint)
        self.cost.environment_steps += 1
        self._take(action)
        right = self._answer is not None and normal(self._answer) == normal(self.question.answer)
        return self.seen(), float(right), self._over

    def _take(self, action: str) -> None:
        verb, _, rest = action.partition(" ")
        if verb == "search":
            self._listed = self._search(rest)
        elif verb == "read" and rest.isdecimal() and int(rest) in self._listed:
            self._read |= {int(rest)}
        elif verb == "answer":
            self._answer = rest.strip()
        self._given = (*self._given, action)

    def _search(self, words: str) -> tuple[int, ...]:
        terms = " OR ".join(f'"{word}"' for word in re.findall(r"\w+", words))
        if not terms:
            return ()
        found = self._db.execute(
            "SELECT rowid FROM pages WHERE pages MATCH ? ORDER BY bm25(pages, 4.0, 1.0), rowid LIMIT ?",
            (terms, FOUND),
        )
        return tuple(int(n) for (n,) in found)

    @property
    def _over(self) -> bool:
        return self._answer is not None or len(self._given) >= self._horizon

    def actions(self) -> list[str] | None:
        """Return searches for names that are known, pages listed but not read, names as answers."""
        if self._over:
            return []
        if self._free:
            return None
        names = self._names()
        known = [n for n in names if n not in self._read]
        reads = [f"read {n}" for n in self._listed if n not in self._read]
        searches = [f"search {self.corpus.titles[n]}" for n in known]
        return [*searches, *reads, *(f"answer {self.corpus.titles[n]}" for n in names)]

    def _names(self) -> list[int]:
        """Return the pages named by the question or by what was read."""
        named = {n for page in self._read for n in self.corpus.links[page].values()}
        return sorted({self.question.pages[0], *named})

    def steps_left(self) -> int:
        """Return the rest of the horizon."""
        return self._horizon - len(self._given)

    def reseed(self, seed: int) -> None:
        """Nothing here is left to chance."""

    def seen(self) -> str:
        """Return the question, the pages read, and what the last search listed."""
        pages = [f"Page {n}, {self.corpus.titles[n]}: {self.corpus.texts[n]}" for n in sorted(self._read)]
        listed = "; ".join(f"{n} {self.corpus.titles[n]}" for n in self._listed)
        parts = [f"Question: {self.question.text}", *pages, f"Results: {listed or 'none'}"]
        options = self.actions()
        return "\n".join(parts if options is None else [*parts, COMMANDS + ", ".join(options)])

    def key(self) -> str:
        """Return the pages read, the pages listed, and the answer."""
        read, listed = (",".join(map(str, some)) or "-" for some in (sorted(self._read), self._listed))
        return f"read {read} | listed {listed} | {'open' if self._answer is None else self._answer}"

    def snapshot(self) -> Any:
        """Return the actions so far."""
        self.cost.snapshots += 1
        return self._given

    def restore(self, token: Any) -> str:
        """Take the actions of a snapshot again."""
        self.cost.restores += 1
        self.reset(0)
        for action in token:
            self._take(action)
            self.cost.environment_steps += 1
        return self.seen()


def normal(text: str) -> str:
    """Return an answer in small letters, without articles and punctuation.

    Example:
        >>> normal("The Kalo-Mi!")
        'kalo mi'
    """
    words = re.findall(r"\w+", text.lower())
    return " ".join(word for word in words if word not in ("a", "an", "the"))


@lru_cache(maxsize=16)
def corpus(seed: int, pages: int = 12) -> Corpus:
    """Return pages whose relations lead to one another.

    Args:
        seed: of names and relations.
        pages: of each of the four kinds.

    Returns:
        Pages in an order that says nothing of their kinds.
    """
    rng = np.random.default_rng([seed, 71])
    kinds = [kind for kind in _RELATIONS for _ in range(pages)]
    kinds = [kinds[i] for i in rng.permutation(len(kinds)).tolist()]
    titles = _named(rng, len(kinds))
    of_kind = {kind: [n for n, k in enumerate(kinds) if k == kind] for kind in _RELATIONS}
    links, texts = list[dict[str, int]](), list[str]()
    for n, kind in enumerate(kinds):
        said, to = [f"{titles[n]} is a {kind}."], dict[str, int]()
        for relation, other, sentence in _RELATIONS[kind]:
            choices = [m for m in of_kind[other] if m != n]
            to[relation] = choices[int(rng.integers(len(choices)))]
            said.append(sentence.format(a=titles[n], b=titles[to[relation]]))
        said.insert(1, _FILL[int(rng.integers(len(_FILL)))])
        links.append(to)
        texts.append(" ".join(said))
    return Corpus(tuple(titles), tuple(texts), tuple(links), tuple(kinds))


def _named(rng: np.random.Generator, n: int) -> list[str]:
    """Return n different names of two words."""
    found: dict[str, None] = {}
    while len(found) < n:
        parts = rng.integers(len(_SYLLABLES), size=5).tolist()
        first, last = (_SYLLABLES[parts[0]] + _SYLLABLES[parts[1]], "".join(_SYLLABLES[p] for p in parts[2:]))
        found[f"{first.capitalize()} {last.capitalize()}"] = None
    return list(found)


def _question(pages: Corpus, rng: np.random.Generator, hops: int) -> Question:
    """Return a question that follows relations over different pages."""
    while True:
        path = [int(rng.integers(len(pages.titles)))]
        words = pages.titles[path[0]]
        for _ in range(hops):
            ways = sorted(pages.links[path[-1]])
            relation = ways[int(rng.integers(len(ways)))]
            path.append(pages.links[path[-1]][relation])
            words = f"the {relation} of {words}"
        if len(set(path)) == len(path):
            return Question(f"Who or what is {words}?", tuple(path[:-1]), pages.titles[path[-1]])


def _index(pages: Corpus) -> sqlite3.Connection:
    db = sqlite3.connect(":memory:")
    db.execute("CREATE VIRTUAL TABLE pages USING fts5(title, body)")
    rows: Sequence[tuple[int, str, str]] = [
        (n, title, text) for n, (title, text) in enumerate(zip(pages.titles, pages.texts, strict=True))
    ]
    db.executemany("INSERT INTO pages (rowid, title, body) VALUES (?, ?, ?)", rows)
    return db
