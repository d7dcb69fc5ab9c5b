"""The page of a benchmark run, in Markdown, from its JSON-ready fields."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from accredit.views.bench_tables import estimate_cell, megabytes

__all__ = ["page"]

PLAIN = "plain"
_MARK = {"better": " ▲", "worse": " ▼"}


def page(document: Mapping[str, Any]) -> str:
    """Return the page: who is near the truth where, under what, at what cost, and who could not run.

    Args:
        document: ``Bench.to_dict()``.
    """
    parts = [
        _head(document),
        _measure_section(document, "nmse", "Distance from the truth", _NMSE),
        _measure_section(document, "tau", "Order within a rollout", _TAU),
        _measure_section(document, "useful", "Useful steps of failed rollouts", _USEFUL),
        _measure_section(document, "gradient", "What it does to the policy", _GRADIENT),
        _repeated(document),
        _against(document),
        _settings(document),
        _influence(document),
        _orderings(document),
        _costs(document),
        _absent(document),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


_NMSE = (
    "Squared error after the best scale, over that of no credit at all: 0 is the truth, 1 is nothing.\n"
    "▲ is nearer to the truth than grpo, ▼ farther: at the 5 % level after Holm over the methods of the\n"
    "column, and by 0.001 or more."
)
_TAU = (
    "Kendall's tau-b of credit with the true advantages inside a rollout: 1 is the right order, 0 chance.\n"
    "A method that gives every step of a rollout the same number has 0 by construction."
)
_USEFUL = "Share of the good steps of failed rollouts that get credit above 0 (credit 0 counts one half)."
_GRADIENT = (
    "Mean cosine of the policy gradient that one batch of rollouts gives with the exact gradient.\n"
    "What is wrong in single steps can be right in the sum: unbiased noise turns a gradient little."
)


def _head(document: Mapping[str, Any]) -> str:
    plan = document["plan"]
    scale, settings = plan["scale"], plan["scale"]["settings"]
    return f"""# Benchmark

How far the credit of each method is from the exact truth, on tasks whose truth is known to machine precision.

This page is generated: `accredit bench --scale {scale["name"]} --docs docs/benchmark.md`.
It shows {scale["seeds"]} task seeds a family, {scale["groups"]} groups a task and {len(settings)} \
setting{"s" if len(settings) != 1 else ""}: {document["cells"]:,} measurements in \
{document["seconds"] / 60:.0f} minutes on {document["machine"]}, version {plan["version"]}.

The truth is the advantage Q − V of a critic that sees everything, step count included.
`truth-by-key` is the best that a method which sees only state keys could do, `random` is noise.
Brackets hold 95 % intervals of a bootstrap over task seeds (2,000 resamples, BCa below 30 seeds).
Signals come with stated errors: values V + N(0, 0.1), success probabilities P + N(0, 0.1) for `prm`, exact
log-probabilities before and after the outcome is known, the exact return of the greedy policy for `remax`.
Parameters are each method's defaults."""


def _measure_section(document: Mapping[str, Any], name: str, title: str, words: str) -> str:
    boards = _boards(document, PLAIN)
    families = [b["family"] for b in boards if any(name in r["metrics"] for r in b["rows"])]
    kept = [b for b in boards if b["family"] in families]
    methods = _methods(document)
    rows = [[f"`{m}`", *(_cell(_row(board, m), name) for board in kept)] for m in methods]
    return f"## {title}\n\n{words}\n\n" + _table(["method", *families], rows)


def _cell(row: Mapping[str, Any] | None, name: str) -> str:
    if row is None or row["unable"]:
        return "–"
    value, interval = estimate_cell(row["metrics"].get(name))
    if value == "-":
        return "–"
    mark = _MARK.get(row["verdict"], "") if name == "nmse" else ""
    return f"{value}{mark}" + (f" ({interval})" if interval != "-" else "")


def _repeated(document: Mapping[str, Any]) -> str:
    boards = _boards(document, "repeated")
    if not boards:
        return ""
    names = ("bias2", "variance", "cosine_of_mean", "gradient", "snr")
    rows = []
    for method in _methods(document):
        found = [row["metrics"] for b in boards if (row := _row(b, method)) and not row["unable"]]
        if found:
            rows.append([f"`{method}`", *(_mean(found, name) for name in names)])
    return (
        "## Bias and noise\n\n"
        "Over independent batches of one task, credit after its best scale, mean over families.\n"
        "Bias and variance are of the credit of one (step, state, action), over the variance of the truth.\n"
        "Where the cosine of the mean gradient is 1, only noise separates a method's update from the exact "
        "one.\n\n" + _table(["method", "bias²", "variance", "cos of the mean", "mean cos", "SNR, dB"], rows)
    )


def _mean(found: Sequence[Mapping[str, Any]], name: str) -> str:
    values = [metrics[name]["value"] for metrics in found if name in metrics]
    return f"{sum(values) / len(values):.2f}" if values else "–"


def _against(document: Mapping[str, Any]) -> str:
    boards = _boards(document, PLAIN)
    lines = []
    for method in _methods(document):
        told = {b["family"]: row["verdict"] for b in boards if (row := _row(b, method)) and row["verdict"]}
        if told:
            lines.append(f"- `{method}` {_spoken(told)}.")
    best = [f"- {b['family']}: {_leaders(b)}." for b in boards]
    return (
        "## Where each method beats grpo, and where not\n\n"
        + "\n".join(lines)
        + "\n\nThe best of each family, and what cannot be separated from it:\n\n"
        + "\n".join(best)
    )


def _spoken(told: Mapping[str, str]) -> str:
    words = {"better": "beats grpo in", "worse": "is worse in", "same": "cannot be told from it in"}
    parts = []
    for verdict, said in words.items():
        families = [f for f, v in told.items() if v == verdict]
        if families:
            parts.append(f"{said} {', '.join(families)}")
    return "; ".join(parts)


def _leaders(board: Mapping[str, Any]) -> str:
    names = [f"`{row['method']}`" for row in board["rows"] if row["tie"] == 1]
    return ", ".join(names)


def _settings(document: Mapping[str, Any]) -> str:
    settings = [s for s in document["plan"]["scale"]["settings"] if s["draws"] == 1]
    if len(settings) < 2:
        return ""
    rows = []
    for method in _methods(document, references=False):
        cells = [_score(_boards(document, s["name"]), method) for s in settings]
        rows.append([f"`{method}`", *cells])
    named = "\n".join(f"- {s['name']}: {s['doc']}." for s in settings)
    return (
        "## Under other settings\n\n"
        "In how many families a method is nearer to the truth than grpo / farther, and the mean difference\n"
        f"of NMSE over all families (negative is better).\n\n{named}\n\n"
        + _table(["method", *(s["name"] for s in settings)], rows)
    )


def _score(boards: Sequence[Mapping[str, Any]], method: str) -> str:
    rows = [row for board in boards if (row := _row(board, method)) and row["versus"]]
    if not rows:
        return "–"
    better, worse = (sum(r["verdict"] == v for r in rows) for v in ("better", "worse"))
    mean = sum(r["versus"]["value"] for r in rows) / len(rows)
    return f"{better} / {worse}, {mean:+.2f}"


def _influence(document: Mapping[str, Any]) -> str:
    rows = []
    for board in _boards(document, PLAIN):
        truth = _row(board, "truth")
        found = None if truth is None else truth["metrics"].get("influence")
        if found is not None:
            rows.append([board["family"], _nats(found)])
    if not rows:
        return ""
    return (
        "## Do agents listen to each other\n\n"
        "Exact mutual information of an agent's action and the next agent's, in nats: a fact of the task,\n"
        "not of a method. Where it is 0, the next agent acts as if nothing had been said.\n\n"
        + _table(["family", "influence"], rows)
    )


def _nats(found: Mapping[str, Any]) -> str:
    ends = "" if found["low"] is None else f" ({found['low']:.3f} to {found['high']:.3f})"
    return f"{found['value']:.3f}{ends}"


def _orderings(document: Mapping[str, Any]) -> str:
    if not document["orderings"]:
        return ""
    rows = [
        [
            f"`{o['better']}` over `{o['worse']}`",
            o["source"],
            _names(o["wins"]),
            _names(o["losses"]),
            _names(o["ties"]),
            f"{o['mean']:+.3f}",
        ]
        for o in document["orderings"]
    ]
    return (
        "## Published orders\n\n"
        "Papers order methods by what training with them reaches.\n"
        "Here the same order is looked for in the error of the credit itself.\n"
        "Plain setting, Holm over the families.\n\n"
        + _table(["order", "source", "holds in", "is reversed in", "not separable", "mean difference"], rows)
    )


def _names(names: Sequence[str]) -> str:
    return f"{len(names)}: {', '.join(names)}" if names else "0"


def _costs(document: Mapping[str, Any]) -> str:
    boards = _boards(document, PLAIN)
    counters = ("continuations", "scored_tokens", "judge_calls", "annotator_calls")
    rows = []
    for method in _methods(document, references=False):
        found = [row for board in boards if (row := _row(board, method)) and not row["unable"]]
        if found:
            cells = [f"{sum(r['cost'].get(c, 0) for r in found) / len(found):,.0f}" for c in counters]
            time = f"{1000 * sum(r['seconds'] for r in found) / len(found):.1f}"
            largest = max(found, key=lambda r: r.get("memory") or 0)
            rows.append([f"`{method}`", *cells, time, megabytes(largest)])
    return (
        "## Cost\n\n"
        "What the signals of a method would cost, a task of the plain setting, mean over families.\n"
        "Time is that of the arithmetic; memory is the most that it held at once in any family, in MB\n"
        "(- where it was not watched).\n\n"
        + _table(
            ["method", "continuations", "scored tokens", "judge calls", "critic calls", "ms", "peak MB"], rows
        )
    )


def _absent(document: Mapping[str, Any]) -> str:
    rows = [
        [f"`{row['method']}`", board["family"], row["unable"]]
        for board in _boards(document, PLAIN)
        for row in board["rows"]
        if row["unable"]
    ]
    if not rows:
        return ""
    return "## Could not run\n\n" + _table(["method", "family", "why"], sorted(rows))


def _boards(document: Mapping[str, Any], setting: str) -> list[Mapping[str, Any]]:
    return [board for board in document["boards"] if board["setting"] == setting]


def _row(board: Mapping[str, Any], method: str) -> Mapping[str, Any] | None:
    return next((row for row in board["rows"] if row["method"] == method), None)


def _methods(document: Mapping[str, Any], *, references: bool = True) -> list[str]:
    """Methods by mean NMSE over the families where they ran, references first."""
    boards = _boards(document, PLAIN)
    means = {}
    for method in document["plan"]["methods"]:
        found = [row["metrics"]["nmse"]["value"] for b in boards if (row := _row(b, method)) and _ran(row)]
        refer = any(row["reference"] for b in boards if (row := _row(b, method)))
        if found and (references or not refer):
            means[method] = (not refer, sum(found) / len(found))
    return sorted(means, key=lambda m: means[m])


def _ran(row: Mapping[str, Any]) -> bool:
    return "nmse" in row["metrics"]


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)
