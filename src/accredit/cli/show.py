"""``accredit show``: a rollout's credit turn by turn, and why a step got its number."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

import accredit as ac
from accredit.cli.options import FILE, Settings, as_json, takes_methods
from accredit.cli.output import emit_json
from accredit.cli.running import rollouts_of
from accredit.errors import ParamError

if TYPE_CHECKING:
    from accredit.data import Credit

__all__ = ["command"]


@click.command("show")
@FILE
@takes_methods("grpo")
@click.option("--rollout", metavar="ID", help="Draw this rollout turn by turn.")
@click.option(
    "--step", metavar="N", type=click.IntRange(0), help="Explain this step of the rollout (counted from 0)."
)
@click.option("--group", metavar="ID", help="Draw this group: rollouts by steps.")
@click.option("--all", "everything", is_flag=True, help="Everything, not only a screen of it.")
@as_json
def command(
    file: str,
    run: Settings,
    rollout: str | None,
    step: int | None,
    group: str | None,
    everything: bool,
    as_json: bool,
) -> None:
    """Show what one method gave: decisive steps, a group, a rollout, or one step.

    Without --rollout or --group: the decisive steps, and the group of the first of them.
    """
    if len(run.methods) > 1:
        raise ParamError("show draws one method", hint="accredit compare sets several side by side")
    if step is not None and rollout is None:
        raise ParamError("--step needs --rollout: a step is counted inside its rollout")
    credit = ac.assign(rollouts_of(file, run), run.methods[0], **run.for_one())
    if rollout is None:
        _overview(credit, group, everything=everything, as_json=as_json)
    elif step is None:
        _rollout(credit, rollout, everything=everything, as_json=as_json)
    else:
        _step(credit, rollout, step, everything=everything, as_json=as_json)


def _overview(credit: Credit, group: str | None, *, everything: bool, as_json: bool) -> None:
    from accredit.views.console import console
    from accredit.views.credit_tables import decisive_table
    from accredit.views.summary import decisive_steps, group_credits
    from accredit.views.tables import Line, show
    from accredit.views.terminal import show_matrix

    top = decisive_steps(credit) if group is None else []
    name = group if group is not None else top[0]["group"] if top else _first_group(credit)
    if as_json:
        drawn = None if name is None else group_credits(credit, name)
        emit_json({"method": credit.method, "top": top, "group": drawn})
        return
    if top:
        show([decisive_table(f"Steps of largest |credit| under {credit.method}", top), Line("")])
    if name is None:
        show([Line("no rollouts")])
    else:
        show_matrix(console(everything=everything), credit, name)


def _first_group(credit: Credit) -> str | None:
    codes = credit.batch.group_R[:1].tolist()
    return str(credit.batch.group_names[codes[0]]) if codes else None


def _rollout(credit: Credit, rollout: str, *, everything: bool, as_json: bool) -> None:
    from accredit.views.console import console
    from accredit.views.summary import rollout_steps
    from accredit.views.terminal import show_explanation, show_waterfall

    if as_json:
        emit_json(rollout_steps(credit, rollout))
        return
    out = console(everything=everything)
    show_waterfall(out, credit, rollout, every=everything)
    steps = credit.by_rollout()[credit.batch.position(rollout)]
    if steps.size:
        out.print()
        show_explanation(out, credit.explain(rollout, int(abs(steps).argmax())))


def _step(credit: Credit, rollout: str, step: int, *, everything: bool, as_json: bool) -> None:
    from accredit.views.console import console
    from accredit.views.terminal import show_explanation

    told = credit.explain(rollout, step)
    if as_json:
        emit_json(told.to_dict())
    else:
        show_explanation(console(everything=everything), told, 10**9 if everything else 24)
