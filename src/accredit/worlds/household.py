"""ALFWorld-style households as worlds, played by TextWorld's PDDL engine.

Needs ``pip install "accredit[worlds-more]"``: the domain and the grammar are read from the alfworld package.
Nothing here imports textworld before it is called.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from accredit.errors import BackendError, ParamError
from accredit.worlds.households import House, house
from accredit.worlds.protocol import Cost
from accredit.worlds.textworld import COMMANDS

__all__ = ["HouseholdWorld"]

HORIZON = 50  # ALFWorld's own
_IDLE = ("look", "inventory", "examine ", "help")  # what they tell is seen
# What neither actions, nor the task, nor what is seen depend on: that something was looked at; whether a lamp
# is on (that it was used, `istoggled`, decides); axioms, which follow from the rest.
_WITHOUT_EFFECT = ("checked(", "ison(", "new-axiom@")


class HouseholdWorld:
    """Plays a household in ALFWorld's words; 1 when the task is fulfilled, else 0.

    As in ALFWorld, what cannot be done changes nothing, and is a step.
    A snapshot is the list of commands so far and the planner's number of the state: the same world goes
    back to the number, another one gives the commands again.

    Args:
        seed: of the household and its task; an episode always begins the same.
        task: type of task, one of `accredit.worlds.households.TASKS`; None = drawn by the seed.
        size: number of receptacles.
        horizon: commands after which an episode is cut.
        free: any text is taken as a command, and `actions` lists none.

    Raises:
        BackendError: if textworld with its PDDL engine, or alfworld, is not installed.
        ParamError: for an unknown task, a size out of range, or a horizon below 1.
    """

    exact_snapshot = True
    snapshot_cost = 0.0
    deterministic = True
    side_effects = False

    def __init__(
        self,
        seed: int = 0,
        *,
        task: str | None = None,
        size: int = 4,
        horizon: int = HORIZON,
        free: bool = False,
    ) -> None:
        if horizon < 1:
            raise ParamError(f"horizon is {horizon}, must be at least 1")
        self.house = house(seed, task=task, size=size)
        self._engine = _Engine(self.house)
        self._mine = object()  # marks the snapshots whose number is of this engine
        self._horizon, self._free = horizon, free
        self._commands: Mapping[str, Any] = {}
        self._scene = ""
        self._given: tuple[str, ...] = ()
        self._over = True
        self.cost = Cost()

    def reset(self, seed: int) -> str:
        """Begin an episode; a household has one beginning, whatever the seed."""
        self._engine.go_to(self._engine.start)
        return self._arrived(())

    def step(self, action: str) -> tuple[str, float, bool]:
        """Give a command.

        Raises:
            ParamError: if the episode is over.
        """
        if self._over:
            raise ParamError(f"cannot {action[:80]!r} here", hint="The episode is over")
        if action in self._commands:
            self._engine.apply(self._commands[action])
        self.cost.environment_steps += 1
        seen = self._arrived((*self._given, action))
        return seen, float(self._engine.won()), self._over

    def _arrived(self, given: tuple[str, ...]) -> str:
        """Look at the state that the engine is in now."""
        self._given = given
        self._over = self._engine.won() or self.steps_left() <= 0
        self._commands = self._engine.possible()
        self._scene = f"Your task is to: {self.house.sentence}.\n\n{self._engine.told()}\n"
        return self.seen()

    def actions(self) -> list[str] | None:
        """Return the commands that can change the household; none where the episode is over."""
        if self._over:
            return []
        return None if self._free else [c for c in self._commands if not c.startswith(_IDLE)]

    def steps_left(self) -> int:
        """Return the rest of the horizon."""
        return self._horizon - len(self._given)

    def cut(self) -> bool:
        """Return whether the horizon alone ended the episode."""
        return self._over and not self._engine.won()

    def reseed(self, seed: int) -> None:
        """Nothing here is left to chance."""

    def seen(self) -> str:
        """Return the task, what is seen from here, what is carried, and possible commands."""
        options = self.actions()
        return self._scene if options is None else f"{self._scene}\n{COMMANDS}{', '.join(options)}"

    def key(self) -> str:
        """Return all facts of the household that can change and matter, sorted, and open or won."""
        facts = [fact for fact in self._engine.facts() if not fact.startswith(_WITHOUT_EFFECT)]
        told = sorted(fact.replace("_", " ") for fact in facts)
        return " | ".join([*told, "won" if self._engine.won() else "open"])

    def snapshot(self) -> Any:
        """Return the commands so far, and the number of the state."""
        self.cost.snapshots += 1
        return self._given, self._mine, self._engine.number()

    def restore(self, token: Any) -> str:
        """Go back to a snapshot, which stays usable."""
        self.cost.restores += 1
        given, whose, number = token
        if whose is self._mine:
            self._engine.go_to(number)
            return self._arrived(given)
        self.reset(0)
        for command in given:
            self.step(command)
        return self.seen()


class _Engine:
    """TextWorld's PDDL engine in a household: a planner, whose states are numbered, and a grammar."""

    def __init__(self, home: House) -> None:
        try:
            from fast_downward import load_lib
            from textworld.envs.pddl.logic import GameLogic, PddlState
            from textworld.generator.game import EntityInfo
        except ImportError as error:
            raise _missing("TextWorld's PDDL engine") from error
        domain, grammar = _rules()
        self._planner: Any = load_lib()
        self._logic: Any = GameLogic(domain=domain, grammar=grammar)
        with _argv():
            self._state: Any = PddlState(self._planner, home.problem, self._logic)
        self._infos: dict[str, Any] = {}
        for name, kind in self._state.name2type.items():
            info = self._infos[name] = EntityInfo(name, kind)
            info.name, info.definite, info.indefinite = name.replace("_", " "), "the", "a"
        self._worded: dict[int, str] = {}  # operators as commands: no fact changes what they are called
        self._told: dict[int, str] = {}  # texts of the states that were seen: to derive one takes long
        self.start = self.number()
        try:
            self.told()
        except NameError as error:  # its grammar evaluates words by `locals().update`, which 3.13 ended
            raise BackendError(
                f"TextWorld's grammar does not work on Python {sys.version.split()[0]}: {error}",
                code="ACC756",
                hint="Python 3.11 or 3.12, or a TextWorld in which it does",
            ) from error

    def number(self) -> int:
        """Return the number of the present state."""
        return int(self._planner.get_state_id())

    def go_to(self, number: int) -> None:
        """Go back to a state: the planner to its number, then the facts that the grammar reads."""
        self._planner.set_state_id(number)
        for atom in self._atoms():
            fact = atom.get_fact(self._state.name2type)
            if not self._state.is_fact(fact):
                if self._state.is_fact(fact.negate()):
                    self._state.remove_fact(fact.negate())
                self._state.add_fact(fact)

    def possible(self) -> dict[str, Any]:
        """Return what can be done here, by command, sorted."""
        found = {}
        for action in self._state.all_applicable_actions():
            if action.id not in self._worded:
                template = self._derived(action.command_template, action.mapping)
                named = {var.name: self._infos[var.name].name for var in action.mapping.values()}
                action.command_template = template
                self._worded[action.id] = action.format_command(named)
            found[self._worded[action.id]] = action
        return dict(sorted(found.items()))

    def apply(self, action: Any) -> None:
        """Do what is possible here."""
        self._state.apply(action)

    def won(self) -> bool:
        """Return whether the task is fulfilled."""
        return bool(self._planner.check_goal())

    def facts(self) -> list[str]:
        """Return the facts that can change and are true, as the planner writes them."""
        names = [str(atom.name) for atom in self._atoms()]
        return [name.removeprefix("Atom ") for name in names if name.startswith("Atom ")]

    def told(self) -> str:
        """Return what is seen from here, in ALFWorld's words, and what is carried."""
        number = self.number()
        if number not in self._told:
            self._told[number] = self._look()
        return self._told[number]

    def _look(self) -> str:
        here = [a for a in self._state.all_applicable_actions() if a.name == "examinereceptacle"]
        texts = ["#look.feedback#", *(a.feedback_rule for a in here), "#inventory.feedback#"]
        mappings = [{}, *(a.mapping for a in here), {}]
        return "\n".join(self._derived(*pair) for pair in zip(texts, mappings, strict=True))

    def _derived(self, text: str, mapping: Mapping[Any, Any]) -> str:
        context = {
            "state": self._state,
            "facts": list(self._state.facts),
            "variables": {hole.name: self._infos[var.name] for hole, var in mapping.items()},
            "mapping": mapping,
            "entity_infos": self._infos,
        }
        return str(self._logic.grammar.derive(text, context))

    def _atoms(self) -> list[Any]:
        """Return the facts that can change, as the planner holds them: ``Atom`` = true, ``NegatedAtom``."""
        from textworld.envs.pddl.logic import Atom

        atoms = (Atom * self._planner.get_state_size())()
        self._planner.get_state(atoms)
        return list(atoms)


def _rules() -> tuple[str, str]:
    """Return ALFWorld's domain (PDDL) and grammar, as its package has them."""
    found = find_spec("alfworld")  # not imported: it would make a folder in the home directory
    if found is None or found.origin is None:
        raise _missing("ALFWorld")
    data = Path(found.origin).with_name("data")
    return (data / "alfred.pddl").read_text(), (data / "alfred.twl2").read_text()


def _missing(what: str) -> BackendError:
    return BackendError(f"{what} is not installed", code="ACC756", hint="pip install 'accredit[worlds-more]'")


@contextlib.contextmanager
def _argv() -> Iterator[None]:
    """Keep the command line: the translator of PDDL writes its own into it."""
    kept = sys.argv
    try:
        yield
    finally:
        sys.argv = kept
