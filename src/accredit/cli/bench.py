"""``accredit bench``: which method is near the truth, on tasks whose truth is known."""

from __future__ import annotations

import re
from pathlib import Path

import click

from accredit.cli.options import as_json, key_option
from accredit.cli.output import emit_json, keep_this_command, note, progress
from accredit.errors import ParamError

__all__ = ["command"]


@click.command("bench")
@click.option("--families", metavar="NAME,…", default="all", show_default=True, help="Task families.")
@click.option(
    "--methods",
    metavar="METHOD,…",
    default="all",
    show_default=True,
    help="Method ids; grpo and the truth itself are always measured.",
)
@click.option(
    "--scale",
    type=click.Choice(["smoke", "full"]),
    default="smoke",
    show_default=True,
    help="smoke: a minute; full: every setting, 20 task seeds, up to an hour.",
)
@click.option("--seed", type=int, default=0, show_default=True, help="Other numbers measure other tasks.")
@click.option(
    "-o", "--out", metavar="DIR", type=click.Path(), help="Folder of results; a killed run goes on there."
)
@click.option("--no-resume", is_flag=True, help="Begin anew, whatever the folder holds.")
@click.option("--docs", metavar="FILE", type=click.Path(), help="Write the page of results, in Markdown.")
@click.option(
    "--learning", is_flag=True, help="Teach policies by each credit instead: rooms and keydoor, four methods."
)
@click.option(
    "--recorded",
    metavar="FILE",
    type=click.Path(),
    help="Measure on these rollouts instead; needs --truth or --tables.",
)
@click.option("--truth", metavar="FILE", type=click.Path(), help="Of --recorded, by accredit truth.")
@click.option(
    "--tables",
    metavar="FILE",
    type=click.Path(),
    help="Explored worlds of --recorded, by accredit truth --tables: measure methods that buy continuations.",
)
@click.option(
    "--continue",
    "budgets",
    metavar="K,…",
    help="Budgets of --tables: continuations a state, forks a rollout.  [default: 4,16,64]",
)
@click.option("--name", metavar="TEXT", default="", help="Of --recorded, on the page.")
@key_option
@click.option(
    "--tokens",
    is_flag=True,
    help="Measure token methods against the exact advantage of every token instead, with negative controls.",
)
@as_json
def command(
    families: str,
    methods: str,
    scale: str,
    seed: int,
    out: str | None,
    no_resume: bool,
    docs: str | None,
    learning: bool,
    recorded: str | None,
    truth: str | None,
    tables: str | None,
    budgets: str | None,
    name: str,
    key: str | None,
    tokens: bool,
    as_json: bool,
) -> None:
    """Measure methods against exact truth: a leaderboard a task family, with intervals and costs."""
    if tables is not None:
        if recorded is None or truth is not None or key is not None:
            raise ParamError("--tables goes with --recorded, without --truth and --key")
        _continued(recorded, tables, budgets or "4,16,64", methods, name, seed, docs, as_json)
        return
    if budgets is not None:
        raise ParamError("--continue belongs to --tables", hint="accredit truth --tables makes the tables")
    if recorded is not None or truth is not None:
        _recorded(recorded, truth, methods, key, name, docs, as_json)
        return
    if out is not None:
        Path(out).mkdir(parents=True, exist_ok=True)
        keep_this_command(out, not_again="--no-resume")
    if tokens:
        _refuse_with_tokens(families, learning=learning)
        _tokens(methods, scale, seed, out, no_resume, docs, as_json)
        return
    if learning:
        _learning(families, methods, scale, seed, out, no_resume, docs, as_json)
        return
    import accredit as ac
    from accredit.views.bench_tables import bench_blocks
    from accredit.views.tables import show

    with progress("bench") as tell:
        found = ac.bench(families, methods, scale, seed=seed, out=out, resume=not no_resume, progress=tell)
    document = found.to_dict()
    if found.resumed:
        note(f"{found.resumed} of {len(found.cells)} cells were there already")
    if docs is not None:
        note(f"wrote {found.save_page(docs)}")
    emit_json(document) if as_json else show(bench_blocks(document))


def _recorded(
    file: str | None,
    truth: str | None,
    methods: str,
    key: str | None,
    name: str,
    docs: str | None,
    as_json: bool,
) -> None:
    import accredit as ac
    from accredit.benchmark.recorded import recorded
    from accredit.views.bench_recorded import recorded_blocks
    from accredit.views.tables import show

    if file is None or truth is None:
        raise ParamError("--recorded and --truth belong together", hint="accredit truth makes the truth")
    chosen = _chosen(methods)
    if "grpo" not in chosen and methods != "all":
        chosen = ["grpo", *chosen]
    with progress("bench") as tell:
        found = recorded(ac.read(file), truth, chosen, key=key, name=name, progress=tell)
    document = found.to_dict()
    if docs is not None:
        note(f"wrote {found.save_page(docs)}")
    emit_json(document) if as_json else show(recorded_blocks(document))


def _chosen(methods: str) -> str | list[str]:
    return methods if methods == "all" else re.split(r",(?!\w+=)", methods)  # id:name=value,name=value


def _continued(
    file: str,
    tables: str,
    budgets: str,
    methods: str,
    name: str,
    seed: int,
    docs: str | None,
    as_json: bool,
) -> None:
    import accredit as ac
    from accredit.benchmark.continued import continued
    from accredit.views.bench_recorded import recorded_blocks
    from accredit.views.tables import show

    if not re.fullmatch(r"[0-9]{1,4}(,[0-9]{1,4})*", budgets):
        raise ParamError(
            f"--continue takes whole numbers up to 9999, got {budgets!r}", hint="--continue 4,16,64"
        )
    asked = [int(k) for k in budgets.split(",")]
    with progress("bench") as tell:
        found = continued(ac.read(file), tables, asked, _chosen(methods), name=name, seed=seed, progress=tell)
    document = found.to_dict()
    if docs is not None:
        note(f"wrote {found.save_page(docs)}")
    emit_json(document) if as_json else show(recorded_blocks(document))


def _learning(
    families: str,
    methods: str,
    scale: str,
    seed: int,
    out: str | None,
    no_resume: bool,
    docs: str | None,
    as_json: bool,
) -> None:
    from accredit.benchmark.curves import learn
    from accredit.views.bench_learning import learning_blocks
    from accredit.views.tables import show

    with progress("bench") as tell:
        found = learn(families, methods, scale, seed=seed, out=out, resume=not no_resume, progress=tell)
    document = found.to_dict()
    if docs is not None:
        note(f"wrote {found.save_page(docs)}")
    emit_json(document) if as_json else show(learning_blocks(document))


def _refuse_with_tokens(families: str, *, learning: bool) -> None:
    if learning:
        raise click.UsageError("--tokens and --learning are two runs: give one of them")
    if families != "all":
        raise click.UsageError("--tokens plays toklm alone: leave --families out")


def _tokens(
    methods: str, scale: str, seed: int, out: str | None, no_resume: bool, docs: str | None, as_json: bool
) -> None:
    from accredit.benchmark.tokens import bench_tokens
    from accredit.views.bench_tokens import token_blocks
    from accredit.views.tables import show

    with progress("bench") as tell:
        found = bench_tokens(methods, scale, seed=seed, out=out, resume=not no_resume, progress=tell)
    document = found.to_dict()
    if docs is not None:
        note(f"wrote {found.save_page(docs)}")
    emit_json(document) if as_json else show(token_blocks(document))
