"""Token methods against exact token truth, as tables and as a section of the page of results."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from accredit.views.sections import section
from accredit.views.tables import Line, Table

__all__ = ["token_blocks", "token_section"]

_ALL = "all rules"
_MAIN = "0.5"
_MARK = {"better": " ▲", "worse": " ▼"}
_ORDER = (
    ("spearman_group", "Spearman, group"),
    ("spearman", "Spearman, rollout"),
    ("pearson_group", "Pearson, group"),
    ("pearson", "Pearson, rollout"),
)
_OUTCOME = (
    ("spearman_success", "Spearman, successes"),
    ("spearman_failure", "Spearman, failures"),
    ("pearson_success", "Pearson, successes"),
    ("pearson_failure", "Pearson, failures"),
)
_DIRECTION = (
    ("gradient", "gradient"),
    ("gradient_success", "gradient of successes"),
    ("gradient_failure", "gradient of failures"),
    ("sign", "sign"),
    ("sign_success", "sign, successes"),
    ("sign_failure", "sign, failures"),
)


def token_blocks(document: Mapping[str, Any]) -> list[Table | Line]:
    """Return one table a success rate, hapo against eapo, and what the columns mean.

    Args:
        document: ``Tokens.to_dict()``.
    """
    shown = (*_ORDER[:2], *_OUTCOME[:2], _DIRECTION[3], _DIRECTION[0])
    blocks: list[Table | Line] = [Line(_plan(document), "bold")]
    for rate in _rates(document):
        rows = _sorted(_rows(document, _ALL, rate))
        lines = [[r["method"], *(_estimate(r, name) for name, _ in shown)] for r in rows]
        title = f"success rate {rate}"
        blocks += [Line(""), Table(title, ["method", *(f">{h}" for _, h in shown)], lines)]
    blocks += [Line(""), *(Line(said.replace("`", "")) for said in _verdicts(document))]
    lacking = [f"could not run: {r['method']}: {r['unable']}" for r in _unable(document)]
    return [*blocks, Line(""), *map(Line, lacking), *map(Line, _MEANING.splitlines())]


def token_section(document: Mapping[str, Any]) -> str:
    """Return the section in Markdown, between its marks.

    Args:
        document: ``Tokens.to_dict()``.
    """
    parts = [
        f"## Tokens\n\n{_WORDS}\n\n{_plan(document)}\n{_made_by(document)}",
        _measured(document, "Order of tokens", _ORDER, _ORDER_WORDS),
        _measured(document, "In successes and in failures", _OUTCOME, _OUTCOME_WORDS),
        _measured(document, "Sign, and what it does to the policy", _DIRECTION, _DIRECTION_WORDS),
        _by_rule(document),
        _by_rate(document),
        _controls(document),
        _contradiction(document),
        _absent(document),
    ]
    return section("tokens", "accredit bench --tokens", "\n\n".join(part for part in parts if part))


_MEANING = """\
Group: the tokens of a group pooled. Rollout: inside each rollout, where grpo's one number is 0.
Sign: share of tokens with |A| > 0.1 whose credit has the true sign; 0 counts one half.
Gradient: cosine of the batch's policy gradient with the exact one.
▲ ▼: more or less than grpo on the same tasks, at the 5 % level after Holm over the rows.
Brackets: 95 % bootstrap intervals over tasks."""
_WORDS = f"""\
Policies that are tables write strings for a rule (`toklm`: parity, brackets, copy), so the advantage of
every token is exact, and so is every signal that token methods read:

- entropies and log-probabilities of the policy;
- a teacher that is the policy given success: exact hindsight. No teacher is better, so what a method
  does with it is an upper bound. `verpo` gets logits given success and given failure;
- for `scapo`, a prompt of other wording: it moves the policy in a third of the states, and leaves the
  chance of success as it was in every state;
- embeddings of (place, memory, last token) with noise, as hidden states;
- for `dcsd`, log-odds of success at step boundaries;
- for `siop`, what the string comes to as the answer, with its support along the way.

Critics are wrong by N(0, 0.1): `gae`, `prm`, `spo-chain`.
Parameters are the defaults, but for windows that are longer than the strings: `pepo` 5, `shear` 4 by 2.

{_MEANING}"""
_ORDER_WORDS = (
    "Correlation of credit with the true advantages, half of the rollouts succeeding, all rules together."
)
_OUTCOME_WORDS = "The same inside successful and inside failed rollouts."
_DIRECTION_WORDS = "Gradients of successes and failures leave out the tokens of the others."


def _plan(document: Mapping[str, Any]) -> str:
    plan = document["plan"]
    scale = plan["scale"]
    rates = ", ".join(f"{rate:g}" for rate in scale["success_rates"])
    return (
        f"{scale['seeds']} task seeds a rule, n = {scale['seeds'] * len(scale['rules'])} tasks in all, "
        f"{scale['groups']} groups of 8 rollouts a task, success rates {rates}, version {plan['version']}."
    )


def _made_by(document: Mapping[str, Any]) -> str:
    scale = document["plan"]["scale"]["name"]
    return f"Made by `accredit bench --tokens --scale {scale} --docs docs/benchmark.md`."


def _rates(document: Mapping[str, Any]) -> list[str]:
    return list(dict.fromkeys(row["success_rate"] for row in document["rows"]))


def _rules(document: Mapping[str, Any]) -> list[str]:
    return list(document["plan"]["scale"]["rules"])


def _rows(document: Mapping[str, Any], rule: str, rate: str) -> list[Mapping[str, Any]]:
    return [r for r in document["rows"] if (r["rule"], r["success_rate"]) == (rule, rate) and not r["unable"]]


def _sorted(rows: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """References first, then by the order of tokens in a group."""
    return sorted(rows, key=lambda r: (r["kind"] != "reference", -r["metrics"]["spearman_group"]["value"]))


def _estimate(row: Mapping[str, Any], name: str) -> str:
    found = row["metrics"].get(name)
    if found is None:
        return "–"
    return _interval(found) + _MARK.get(row["verdict"].get(name, ""), "")


def _interval(found: Mapping[str, Any]) -> str:
    value = f"{found['value'] + 0.0:.2f}"
    if found["low"] is None:
        return value
    return f"{value} ({found['low'] + 0.0:.2f} to {found['high'] + 0.0:.2f})"


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)


def _measured(document: Mapping[str, Any], title: str, shown: Sequence[tuple[str, str]], words: str) -> str:
    rows = [r for r in _sorted(_rows(document, _ALL, _main(document))) if r["kind"] != "control"]
    lines = [[f"`{r['method']}`", *(_estimate(r, name) for name, _ in shown)] for r in rows]
    return f"### {title}\n\n{words}\n\n" + _table(["method", *(h for _, h in shown)], lines)


def _main(document: Mapping[str, Any]) -> str:
    rates = _rates(document)
    return _MAIN if _MAIN in rates else rates[0]


def _spread(document: Mapping[str, Any], columns: Mapping[str, tuple[str, str, str]]) -> str:
    """One row a method, one column a (rule, success rate, measure)."""
    rows = [r for r in _sorted(_rows(document, _ALL, _main(document))) if r["kind"] != "control"]
    cells: dict[str, dict[str, Mapping[str, Any]]] = {
        title: {r["method"]: r for r in _rows(document, rule, rate)}
        for title, (rule, rate, _) in columns.items()
    }
    lines = []
    for row in rows:
        shown = [
            _estimate(cells[title][row["method"]], name) if row["method"] in cells[title] else "–"
            for title, (_, _, name) in columns.items()
        ]
        lines.append([f"`{row['method']}`", *shown])
    return _table(["method", *columns], lines)


def _by_rule(document: Mapping[str, Any]) -> str:
    rate = _main(document)
    columns = {
        f"{rule}, {said}": (rule, rate, name)
        for rule in _rules(document)
        for name, said in (("spearman_group", "Spearman, group"), ("gradient", "gradient"))
    }
    return f"### By rule\n\n{_spread(document, columns)}"


def _by_rate(document: Mapping[str, Any]) -> str:
    others = [rate for rate in _rates(document) if rate != _main(document)]
    if not others:
        return ""
    columns = {
        f"{rate}, {said}": (_ALL, rate, name)
        for rate in others
        for name, said in (("spearman_group", "Spearman, group"), ("gradient", "gradient"))
    }
    return f"### At other success rates\n\n{_spread(document, columns)}"


def _controls(document: Mapping[str, Any]) -> str:
    rows = [r for r in _rows(document, _ALL, _main(document)) if r["against"]]
    if not rows:
        return ""
    lines = [
        [f"`{r['method']}`", r["note"], *(_apart(r, n) for n in ("spearman", "spearman_group", "gradient"))]
        for r in rows
    ]
    return (
        "### Negative controls\n\n"
        "Each line replaces one signal, and says what that changes against the method with the right one\n"
        "on the same tasks (difference, 95 % interval, uncorrected p). A control that changes nothing says\n"
        "that here the method's order does not come from that signal.\n\n"
        + _table(["control", "what is replaced", "Spearman, rollout", "Spearman, group", "gradient"], lines)
    )


def _apart(row: Mapping[str, Any], name: str) -> str:
    found = row["against"].get(name)
    if found is None:
        return "–"
    ends = "" if found["low"] is None else f" ({found['low']:+.3f} to {found['high']:+.3f})"
    return f"{found['value']:+.3f}{ends}, p {found['p']:.3f}"


def _contradiction(document: Mapping[str, Any]) -> str:
    contrasts = document["contrasts"]
    if not contrasts:
        return ""
    lines = [
        [
            c["rule"],
            c["success_rate"],
            _interval(c["hapo"]),
            _interval(c["eapo"]),
            _entropy(document, c),
            c["nearer"] or "not separable",
        ]
        for c in contrasts
        if c["measure"] == "spearman_failure"
    ]
    head = ["rule", "success rate", "hapo", "eapo", "entropy", "nearer to the truth"]
    verdicts = "\n".join(f"- {said}" for said in _verdicts(document))
    return (
        "### hapo against eapo on failures\n\n"
        "`hapo` blames the uncertain tokens of a failed rollout more, `eapo` less.\n"
        "Spearman inside failed rollouts of either credit, and of entropy itself, with the true advantages:\n"
        "where entropy's is positive, uncertain tokens of failures did less harm than certain ones, and\n"
        "sparing them is right. Holm over rules and success rates.\n\n"
        f"{_table(head, lines)}\n\n{verdicts}"
    )


def _entropy(document: Mapping[str, Any], contrast: Mapping[str, Any]) -> str:
    rows = _rows(document, contrast["rule"], contrast["success_rate"])
    found = [r["metrics"]["spearman_failure"] for r in rows if r["method"] == "entropy"]
    return _interval(found[0]) if found else "–"


def _verdicts(document: Mapping[str, Any]) -> list[str]:
    """One sentence for hapo, one for eapo: how often it is nearer, and how often the opposite is."""
    said = []
    for method, other, does in (("hapo", "eapo", "blaming"), ("eapo", "hapo", "sparing")):
        own = [c for c in document["contrasts"] if c["rule"] != _ALL]
        parts = [
            f"{words} nearer to the truth {_counted(own, measure, method, other)}"
            for measure, words in (("spearman_failure", "by order"), ("gradient_failure", "by the gradient"))
        ]
        if own:
            said.append(f"`{method}`: {does} uncertain tokens of failures is, {'; '.join(parts)}.")
    return said


def _counted(contrasts: Sequence[Mapping[str, Any]], measure: str, method: str, other: str) -> str:
    own = [c for c in contrasts if c["measure"] == measure]
    won, lost = (
        [f"{c['rule']} at {c['success_rate']}" for c in own if c["nearer"] == who] for who in (method, other)
    )
    where = f" ({', '.join(won)})" if won else ""
    return f"in {len(won)} of {len(own)} settings{where} and farther in {len(lost)}"


def _unable(document: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    first = _main(document)
    return [r for r in document["rows"] if r["unable"] and (r["rule"], r["success_rate"]) == (_ALL, first)]


def _absent(document: Mapping[str, Any]) -> str:
    rows = [[f"`{r['method']}`", r["unable"]] for r in _unable(document)]
    return "### Could not run on tokens\n\n" + _table(["method", "why"], rows) if rows else ""
