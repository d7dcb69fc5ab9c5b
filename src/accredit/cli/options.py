"""Options that several verbs share, and what their values mean."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

import click

from accredit.errors import ParamError

__all__ = [
    "FILE",
    "Settings",
    "as_json",
    "format_option",
    "group_size_option",
    "key_option",
    "mapping_of",
    "mapping_option",
    "retokenize_option",
    "settings_of",
    "strict_option",
    "takes_endpoint",
    "takes_methods",
    "values_of",
]

Verb: TypeAlias = Callable[..., Any]

# Files are opened by the readers, whose sentence says what is wrong with one.
FILE = click.argument("file", metavar="FILE", type=click.Path())

as_json = click.option("--json", "as_json", is_flag=True, help="One JSON document on standard output.")
strict_option = click.option(
    "--strict", is_flag=True, help="Stop at the first rollout that cannot be used, and at fallbacks."
)
format_option = click.option(
    "--format", metavar="NAME", help="Format of the file; default: told from what is in it."
)
key_option = click.option("--key", metavar="KEY", help="Which states count as the same, e.g. strip-digits.")
mapping_option = click.option(
    "--map",
    "mapping",
    metavar="FIELD=COLUMN",
    multiple=True,
    help="Which column holds a field, for rows of your own: reward=score.",
)
group_size_option = click.option(
    "--group-size",
    type=click.IntRange(min=1),
    metavar="N",
    help="Each N rollouts that follow each other are a group, whatever the file says.",
)
retokenize_option = click.option(
    "--allow-retokenized",
    "retokenize",
    metavar="TOKENIZER",
    help="Make token ids of text by this tokenizer.json where a rollout has none; it is marked.",
)
_METHOD_OPTIONS = (
    click.option(
        "--set",
        "settings",
        metavar="[METHOD.]NAME=VALUE",
        multiple=True,
        help="A parameter, of every method that has it or of one.",
    ),
    key_option,
    click.option(
        "--outcome-in-steps",
        type=click.Choice(["auto", "yes", "no"]),
        default="auto",
        show_default=True,
        help="Whether step rewards already contain the outcome.",
    ),
    click.option("--spread", metavar="NAME=VALUE,…", help="Step credit to tokens: normalise=batch,clip=5."),
    click.option("--base", metavar="METHOD", help="Method under a token reweighter."),
    click.option("--compat", metavar="NAME", help="Reproduce another implementation, e.g. verl."),
    click.option("--seed", type=int, default=0, show_default=True, help="Of resamples and of chance."),
    format_option,
    mapping_option,
    group_size_option,
    retokenize_option,
    strict_option,
)


@dataclass(frozen=True, slots=True)
class Settings:
    """What the options of a run say.

    Args:
        methods: ``"id:name=value,…"`` with the parameters that were set for that one.
        shared: parameters that were set for all.
        keywords: of `assign`.
        format: of the file; None: told from what is in it.
        mapping: field to column, of rows of one's own.
        group_size: rollouts a group by position; None: by the file's ids.
        retokenize: tokenizer that makes token ids of text; None: none are made.
    """

    methods: tuple[str, ...]
    shared: Mapping[str, Any]
    keywords: Mapping[str, Any]
    format: str | None = None
    mapping: Mapping[str, str] = field(default_factory=dict)
    group_size: int | None = None
    retokenize: str | None = None

    def reading(self) -> dict[str, Any]:
        """Return the keywords of `read`."""
        return {
            "format": self.format,
            "strict": bool(self.keywords.get("strict")),
            "mapping": self.mapping,
            "group_size": self.group_size,
            "retokenize": self.retokenize,
        }

    def for_one(self) -> dict[str, Any]:
        """Return the keywords of `assign` for a single method."""
        return {**self.keywords, **self.shared}

    def for_all(self) -> dict[str, Any]:
        """Return the keywords of `compare`: those that were given, for methods that have them."""
        given = {k: v for k, v in self.keywords.items() if v not in (None, False)}
        return {**given, **self.shared}


def takes_methods(*default: str) -> Callable[[Verb], Verb]:
    """Return a decorator: the verb runs methods, and gets them and their options as ``run``.

    Args:
        default: methods that are run where none is named; none: one must be named.
    """

    def decorate(verb: Verb) -> Verb:
        @functools.wraps(verb)
        def parsed(*, methods: tuple[str, ...], settings: tuple[str, ...], **rest: Any) -> Any:
            names = ("key", "outcome_in_steps", "spread", "base", "compat", "seed", "strict")
            keywords = {name: rest.pop(name) for name in names}
            file = {name: rest.pop(name) for name in ("format", "group_size", "retokenize")}
            run = settings_of(methods, settings, **keywords)
            run = replace(run, mapping=mapping_of(rest.pop("mapping")), **file)
            return verb(run=run, **rest)

        command: Verb = parsed
        for option in reversed((_method_option(default), *_METHOD_OPTIONS)):
            command = option(command)
        return command

    return decorate


_ENDPOINT_OPTIONS = (
    click.option("--max-requests", type=click.IntRange(min=0), metavar="N", help="Budget of an endpoint."),
    click.option("--max-tokens", type=click.IntRange(min=0), metavar="N", help="Budget of an endpoint."),
    click.option(
        "--concurrency", type=click.IntRange(min=1), default=4, help="Requests under way, of an endpoint."
    ),
    click.option(
        "--timeout",
        type=click.FloatRange(min=0, min_open=True),
        default=60.0,
        help="Of an answer, in seconds.",
    ),
)


def takes_endpoint(what: str) -> Callable[[Verb], Verb]:
    """Return a decorator: the verb may ask a server, and gets its URL as ``from_endpoint`` and ``limits``.

    Args:
        what: kind of server, for the help.
    """

    def decorate(verb: Verb) -> Verb:
        @functools.wraps(verb)
        def parsed(
            *, max_requests: int | None, max_tokens: int | None, concurrency: int, timeout: float, **rest: Any
        ) -> Any:
            from accredit.signals.client import Limits

            return verb(limits=Limits(max_requests, max_tokens, concurrency, timeout), **rest)

        help = f"{what} Keys: ACCREDIT_API_KEY or OPENAI_API_KEY."
        command: Verb = parsed
        for option in reversed(
            (click.option("--from-endpoint", metavar="URL", help=help), *_ENDPOINT_OPTIONS)
        ):
            command = option(command)
        return command

    return decorate


def _method_option(default: tuple[str, ...]) -> Callable[[Verb], Verb]:
    return click.option(
        "-m",
        "--method",
        "methods",
        metavar="METHOD",
        multiple=True,
        required=not default,
        default=default or None,
        show_default=bool(default),
        help="Method id, or id:name=value; several are compared. See `accredit methods`.",
    )


def settings_of(
    methods: Iterable[str], settings: Iterable[str], format: str | None = None, **keywords: Any
) -> Settings:
    """Return what the options of a run mean.

    Args:
        methods: values of ``-m``.
        settings: values of ``--set``.
        format: of the file.
        **keywords: of `assign`; ``spread`` as it was typed.

    Raises:
        ParamError: for a value that is not ``name=value``, or a method that is not run.
    """
    own: dict[str, list[str]] = {name: [] for name in methods}
    shared: dict[str, Any] = {}
    for item in settings:
        name, value = _pair(item, "--set")
        method, dot, parameter = name.rpartition(".")
        if not dot:
            shared[name] = _value(value)
            continue
        meant = [m for m in own if m.partition(":")[0] == method]
        if not meant:
            raise ParamError(f"--set {item} is for {method!r}, which is not run", hint=f"Add -m {method}")
        for m in meant:
            own[m].append(f"{parameter}={value}")
    keywords["spread"] = _spread(keywords.get("spread"))
    return Settings(tuple(_with(m, items) for m, items in own.items()), shared, keywords, format)


def mapping_of(items: Iterable[str]) -> dict[str, str]:
    """Return what ``--map`` says: field to column.

    Raises:
        ParamError: for a value that is not ``field=column``.
    """
    return dict(_pair(item, "--map") for item in items)


def values_of(items: Iterable[str], option: str) -> dict[str, Any]:
    """Return what an option of ``name=value`` says: numbers, true and false, JSON objects, else text.

    Args:
        items: as they were typed.
        option: its name, for messages.

    Raises:
        ParamError: for a value that is not ``name=value``.
    """
    return {name: _value(value) for name, value in (_pair(item, option) for item in items)}


def _with(method: str, items: list[str]) -> str:
    if not items:
        return method
    return method + ("," if ":" in method else ":") + ",".join(items)


def _pair(item: str, option: str) -> tuple[str, str]:
    name, equals, value = item.partition("=")
    if not (equals and name.strip()):
        raise ParamError(f"{option} {item!r} is not of the form name=value")
    return name.strip(), value.strip()


def _value(text: str) -> Any:
    """Return a number, a name, or what a JSON object says (``--set 'reward_baselines={"g1": 0.5}'``)."""
    from accredit.methods import parse_value  # numbers come with numpy

    if not text.startswith("{"):
        return parse_value(text)
    try:
        return json.loads(text)
    except ValueError as error:
        raise ParamError(f"{text!r} is not JSON: {error}") from None


def _spread(text: str | None) -> Any:
    if text is None or "=" not in text:
        return text
    return {name: _value(value) for name, value in (_pair(item, "--spread") for item in text.split(","))}
