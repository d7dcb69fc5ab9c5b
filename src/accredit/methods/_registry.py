"""The catalogue of methods: registration, look-up, third parties."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from importlib.metadata import entry_points
from typing import Any, TypeAlias, TypeVar

from accredit.data import MethodCard, Parts
from accredit.data.parts import Yields
from accredit.errors import ParamError, suggest
from accredit.methods._params import make_params, specs

__all__ = ["Method", "MethodFunction", "catalog", "get_method", "method"]

MethodFunction: TypeAlias = Callable[..., Parts]
F = TypeVar("F", bound=MethodFunction)
ENTRY_POINTS = "accredit.methods"


@dataclass(frozen=True, slots=True)
class Method:
    """A registered method: its card, its function, its parameters."""

    card: MethodCard
    function: MethodFunction
    params: type[Any]

    def make_params(self, values: Mapping[str, Any], compat: str | None = None) -> Any:
        """Return checked parameters: the compat preset first, then the caller's own.

        Raises:
            ParamError: for an unknown preset or parameter, or a value out of bounds.
        """
        preset: Mapping[str, Any] = {}
        if compat is not None:
            if compat not in self.card.compat:
                raise ParamError(
                    f"method {self.card.id!r} has no compat {compat!r}",
                    hint=suggest(compat, self.card.compat),
                )
            preset = self.card.compat[compat]
        return make_params(self.params, {**preset, **values}, self.card.id)


_METHODS: dict[str, Method] = {}
_ALIASES: dict[str, tuple[str, Mapping[str, Any]]] = {}


def method(
    id: str,
    *,
    title: str,
    params: type[Any],
    needs: Iterable[str],
    yields: Yields,
    tags: Iterable[str] = (),
    cites: str = "",
    compat: Mapping[str, Mapping[str, Any]] | None = None,
    aliases: Mapping[str, Mapping[str, Any]] | None = None,
    family: str = "",
    loss: str = "",
) -> Callable[[F], F]:
    """Return a decorator that registers ``f(index, params) -> Parts`` as a method.

    Args:
        id: its name; must be free.
        title: one line in field terms.
        params: frozen dataclass whose fields are made by `bounded` and its siblings.
        needs: record fields that must be there; ``"value|token_values"`` names alternatives.
        yields: ``"step"``, ``"token"`` or ``"table"``.
        tags: declared properties (``group``, ``cross_group``, ``conserves``, ``shift_invariant``,
            ``scale_invariant``, ``no_reward``, ``stateful``, ``stochastic`` …); `check_method` tests them.
        cites: the source.
        compat: named parameter sets that reproduce another implementation.
        aliases: other published names, each with the parameters it stands for.
        family: heading under which it is listed.
        loss: the term of `accredit.losses` that a trainer is to add beside the advantages.

    Raises:
        ParamError: if the id or an alias is taken, or a parameter's name belongs to `assign`.
    """

    def register(function: F) -> F:
        for name in (id, *(aliases or {})):
            if name in _METHODS or name in _ALIASES:
                raise ParamError(f"method name {name!r} is taken", hint="Choose another id or alias")
        card = MethodCard(
            id,
            title,
            frozenset(needs),
            yields,
            frozenset(tags),
            cites,
            specs(params),
            dict(compat or {}),
            dict(aliases or {}),
            family,
            loss,
        )
        _METHODS[id] = Method(card, function, params)
        for alias, preset in card.aliases.items():
            _ALIASES[alias] = (id, preset)
        return function

    return register


def get_method(name: str) -> tuple[Method, dict[str, Any]]:
    """Return the method of an id or alias, and the parameters that the name implies.

    Args:
        name: ``"gigpo"``, an alias such as ``"dr-grpo"``, or ``"gigpo:gamma=0.9,step_weight=2"``.

    Raises:
        ParamError: naming the nearest id.
    """
    if not isinstance(name, str):
        raise ParamError(
            f"a method is named by a string, got {repr(name)[:60]}",
            hint="For example 'grpo' or 'gigpo:gamma=0.9'",
        )
    head, _, tail = name.partition(":")
    _load_entry_points(head)
    implied: dict[str, Any] = {}
    if head in _ALIASES:
        head, preset = _ALIASES[head]
        implied |= preset
    if head not in _METHODS:
        raise ParamError(f"no method {head!r}", hint=suggest(head, [*_METHODS, *_ALIASES]))
    for item in filter(None, tail.split(",")):
        key, eq, text = item.partition("=")
        if not eq:
            raise ParamError(f"{item!r} in {name!r} is not of the form name=value")
        implied[key.strip()] = parse_value(text.strip())
    return _METHODS[head], implied


def parse_value(text: str) -> Any:
    """Return the number, true/false/none or name that a command-line value means.

    Example:
        >>> [parse_value(t) for t in ("0.5", "3", "true", "none", "batch", "inf")]
        [0.5, 3, True, None, 'batch', inf]
    """
    named = {"true": True, "false": False, "none": None, "null": None}
    if text.lower() in named:
        return named[text.lower()]
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def _load_entry_points(name: str) -> None:
    if name in _METHODS or name in _ALIASES:
        return
    for point in entry_points(group=ENTRY_POINTS, name=name):
        point.load()


def catalog() -> tuple[MethodCard, ...]:
    """Return the cards of all methods, by family and id, third parties' included.

    Example:
        >>> "grpo" in {card.id for card in catalog()}
        True
    """
    for point in entry_points(group=ENTRY_POINTS):
        if point.name not in _METHODS:
            point.load()
    cards = (m.card for m in _METHODS.values())
    return tuple(sorted(cards, key=lambda card: (card.family, card.id)))
