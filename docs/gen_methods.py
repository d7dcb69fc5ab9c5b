"""Make the pages that repeat what the code says: `make docs`.

One page a method from the registry, and the field tables of `data.md` from the vocabulary.
A method's page is its card (what it needs, its parameters, the named sets of parameters that
reproduce other code), its docstring, its credit on four rollouts, and the hand-written
`methods/_notes/<id>.md`.
MkDocs loads this file as a hook, which lists the pages in the navigation.
"""

from __future__ import annotations

import json
import re
import sys
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

DOCS = Path(__file__).parent
PAGES = DOCS / "methods"
NOTES = PAGES / "_notes"
DATA = DOCS / "data.md"
GROUP = "open the chest"
MARK = "<!-- Made by docs/gen_methods.py; the notes come from docs/methods/_notes/. -->"
SECTION = re.compile(r"^(Args|Returns|Raises|Source|Example|Note|Yields):[ ]*(.*)$")


def pages() -> dict[str, str]:
    """The text of every generated page and picture by its path under `docs/methods/`."""
    from accredit.methods.__main__ import catalog_text

    entries = json.loads(catalog_text())["methods"]
    made = {"index.md": _index(entries)}
    for e in entries:
        example = _example(e)
        made[f"{e['id']}.md"] = _page(e, example)
        if example is not None:
            made[f"img/{e['id']}.svg"] = str(example.plot.matrix(GROUP)) + "\n"
    return made


def main() -> None:
    """Write the pages, and the static catalogue that they are made from."""
    from accredit.methods.__main__ import CATALOG, catalog_text

    made = pages()
    DATA.write_text(data_page(), encoding="utf-8")
    (PAGES / "img").mkdir(exist_ok=True)
    for name, text in made.items():
        (PAGES / name).write_text(text, encoding="utf-8")
    for stale in there() - set(made):
        (PAGES / stale).unlink()
    CATALOG.write_text(catalog_text(), encoding="utf-8")
    print(f"{len(made)} pages and pictures of methods", file=sys.stderr)


def there() -> set[str]:
    """The generated files that lie in `docs/methods/`."""
    return {str(p.relative_to(PAGES)) for p in [*PAGES.glob("*.md"), *PAGES.glob("img/*.svg")]}


def data_page() -> str:
    """The text of `data.md` with its field tables anew."""
    from accredit.data.vocabulary import ROLLOUT_FIELDS, STEP_FIELDS

    text = DATA.read_text(encoding="utf-8")
    for level, fields in (("rollout", ROLLOUT_FIELDS), ("step", STEP_FIELDS)):
        rows = [f"| `{f.name}` | {f.kind} | `{f.column}` | {f.meaning} |" for f in fields.values()]
        table = "\n".join(["| field | kind | column | meaning |", "|---|---|---|---|", *rows])
        block = re.compile(rf"(<!-- {level} fields: [^\n]*\n).*?(<!-- end -->)", re.DOTALL)
        text = block.sub(lambda found, table=table: f"{found[1]}\n{table}\n\n{found[2]}", text)
    return text


def on_config(config: Any) -> Any:
    """Put every method page under "Methods" in the navigation (MkDocs hook)."""
    names = sorted(p.name for p in PAGES.glob("*.md") if p.name != "index.md")
    for section in config.nav:
        if "Methods" in section:
            section["Methods"] = ["methods/index.md", *({n[:-3]: f"methods/{n}"} for n in names)]
    return config


def _index(entries: Sequence[Mapping[str, Any]]) -> str:
    lines = [MARK, "", "# Methods", ""]
    lines += [
        "Each method is one pure function from the index of a batch to credit.",
        "`accredit methods` prints this list, `accredit methods ID` one method with its parameters.",
        "",
        "| method | what a step gets | needs | family |",
        "|---|---|---|---|",
    ]
    for e in entries:
        lines.append(f"| [{e['id']}]({e['id']}.md) | {e['title']} | {_needs(e['needs'])} | {e['family']} |")
    aliases = [(a, e["id"], preset) for e in entries for a, preset in e["aliases"].items()]
    if aliases:
        lines += ["", "## Other names", "", "| name | stands for |", "|---|---|"]
        lines += [f"| `{a}` | `{_call(id, preset)}` |" for a, id, preset in sorted(aliases)]
    lines += ["", "## Policies for odd groups and rollouts", "", _POLICIES]
    lines += ["", "## Tags", "", "A tag is a promise that `check_method` tests.", ""]
    lines += ["| tag | means |", "|---|---|"]
    used = sorted({t for e in entries for t in e["tags"]})
    lines += [f"| `{t}` | {TAGS.get(t, '')} |" for t in used]
    return "\n".join(lines) + "\n"


_POLICIES = """\
| situation | what happens | parameter |
|---|---|---|
| group of one | credit 0 where the method compares within a group | `singleton` |
| group smaller than the others | as it is | `incomplete` |
| truncated rollout | its reward as recorded | `truncated` |
| unscored or rejected rollout | out of mean, deviation and group size; credit 0; counted in the result | |
| `trainable: false` | counts in the statistics, gets step credit, its tokens get 0 | |
| all rewards of a group equal | exactly 0, by a relative test of the spread (1e-12) | |
| one rollout given as several rows | counts once; its credit goes to each row under that row's mask | |"""

TAGS = {
    "amplifies_uncertain_failures": "uncertain decisions of failures are blamed more",
    "amplifies_uncertain_successes": "uncertain decisions of successes are credited more",
    "attenuates_uncertain_failures": "uncertain decisions of failures are blamed less",
    "attenuates_uncertain_successes": "uncertain decisions of successes are credited less",
    "broadcast": "every step of a rollout gets the same number",
    "conserves": "the credit of a group sums to 0 over its rollouts",
    "conserves_group_mean": "the episode part sums to 0 over the rollouts of a group",
    "cross_group": "uses statistics of the whole batch: groups cannot be split up",
    "group": "compares the rollouts of one task",
    "scale_invariant": "multiplying all rewards by a positive number changes nothing, up to eps",
    "no_reward": "reads no reward: unscored rollouts count like all others",
    "reweights": "spreads the credit of another method over tokens: give `base`",
    "scale_equivariant": "multiplying all rewards by a positive number multiplies the credit",
    "shift_invariant": "adding a constant to all rewards of a group changes nothing",
    "state_local": "compares steps taken in equal states",
    "stateful": "carries memory from call to call: `state` in, `credit.state` out",
    "stochastic": "draws random numbers: give a `seed`",
    "telescopes": "the credit of a rollout sums to its return minus the value of its first state",
}


# One task, four rollouts: reward, then (state, action, reward of the step, value of the state).
_HALL, _ROOM, _KEY, _LAMP = ("hall", 0.5), ("room", 0.6), ("room, key", 0.8), ("room, lamp", 0.2)
_ROLLOUTS = (
    (1, ((_HALL, "open door", 0), (_ROOM, "take key", 1), (_KEY, "unlock chest", 0))),
    (0, ((_HALL, "open door", 0), (_ROOM, "take lamp", 0), (_LAMP, "leave", 0))),
    (0, ((_HALL, "open door", 0), (_ROOM, "take key", 1), (_KEY, "leave", 0))),
    (1, ((_HALL, "wait", 0), (_HALL, "open door", 0), (_ROOM, "take key", 1), (_KEY, "unlock chest", 0))),
)
_WORDS = sorted({word for _, steps in _ROLLOUTS for _, action, _ in steps for word in action.split()})


def _example(e: Mapping[str, Any]) -> Any:
    """The method's credit on the four rollouts; None where they lack what it needs.

    Rewards and values of steps are given only to a method that asks for them.
    """
    import accredit as ac

    asked = {name for need in e["needs"] for name in need.split("|")}
    records = [
        {"id": f"r{i}", "group": GROUP, "reward": reward, "steps": [_step(s, asked) for s in steps]}
        for i, (reward, steps) in enumerate(_ROLLOUTS, 1)
    ]
    try:
        return ac.assign(records, e["id"])
    except ac.AccreditError:
        return None


def _step(step: tuple[Any, ...], asked: set[str]) -> dict[str, Any]:
    (state, value), action, reward = step
    fields = {"state": state, "action": action}
    if "tokens" not in asked or "n_tokens" in asked:
        fields["n_tokens"] = 2
    if "step_reward" in asked:
        fields["reward"] = reward
    if "entropies" in asked:  # the first token decides, most uncertain where the value is near a half
        fields["entropies"] = [round(4 * value * (1 - value), 2), 0.1]
    if "tokens" in asked and "n_tokens" not in asked:
        fields["tokens"] = [_WORDS.index(word) for word in action.split()]
    if "value" in asked:
        fields["value"] = value
    if "prm_logits" in asked or "step_score" in asked:
        fields["step_score"] = value
    return fields


def _picture(e: Mapping[str, Any], credit: Any) -> list[str]:
    if credit is None:
        return []
    batch = credit.batch
    action_S = batch.column("action_S").decoded()
    lines = ["", "## Four rollouts of one task", ""]
    lines += [f"![credit of {e['id']} on four rollouts](img/{e['id']}.svg)", ""]
    lines += ["| rollout | reward | credit of its steps |", "|---|---|---|"]
    for r, values in enumerate(credit.by_rollout()):
        first = int(batch.step_start_R1[r])
        cells = [f"{action_S[first + t]} {v + 0.0:+.3f}" for t, v in enumerate(values.tolist())]
        lines.append(f"| {batch.ids[r]} | {batch.reward_R[r]:g} | {', '.join(cells)} |")
    return lines


def _page(e: Mapping[str, Any], example: Any) -> str:
    aliases = ", ".join(f"`{a}`" for a in sorted(e["aliases"]))
    facts = [
        ("needs", _needs(e["needs"])),
        ("yields", f"credit a {e['yields']}"),
        ("source", e["cites"]),
        ("other names", aliases),
        ("tags", ", ".join(f"`{t}`" for t in e["tags"])),
        ("loss term", f"[`{e['loss']}`](../losses.md)" if e["loss"] else ""),
    ]
    lines = [MARK, "", f"# {e['id']}", "", f"**{e['title']}.**", "", "| card | |", "|---|---|"]
    lines += [f"| {name} | {text} |" for name, text in facts if text]
    lines += ["", f"`accredit assign rollouts.jsonl -m {e['id']}`", ""]
    lines += [
        "## What it computes",
        "",
        *_docstring(e["doc"]),
        "",
        "## Parameters",
        "",
        *_params(e["params"]),
    ]
    lines += _presets("Same numbers as other code", "compat", e["compat"])
    lines += _presets("Other names", "name", e["aliases"])
    lines += _picture(e, example)
    notes = NOTES / f"{e['id']}.md"
    if notes.exists():
        lines += ["", notes.read_text(encoding="utf-8").strip()]
    return "\n".join(lines) + "\n"


def _needs(needs: Sequence[str]) -> str:
    return ", ".join(" or ".join(f"`{n}`" for n in need.split("|")) for need in needs)


def _params(params: Sequence[Mapping[str, Any]]) -> list[str]:
    if not params:
        return ["None."]
    rows = [
        f"| `{p['name']}` | `{p['default']}` | {_cell(p['bounds'])} | {_cell(p['doc'])} |" for p in params
    ]
    return ["| name | default | allowed | meaning |", "|---|---|---|---|", *rows]


def _presets(heading: str, column: str, presets: Mapping[str, Mapping[str, Any]]) -> list[str]:
    if not presets:
        return []
    rows = [f"| `{name}` | {_settings(preset)} |" for name, preset in presets.items()]
    return ["", f"## {heading}", "", f"| `{column}` | parameters |", "|---|---|", *rows]


def _settings(preset: Mapping[str, Any]) -> str:
    return ", ".join(f"`{k}={v}`" for k, v in preset.items()) or "the defaults"


def _call(id: str, preset: Mapping[str, Any]) -> str:
    return id + (":" + ",".join(f"{k}={v}" for k, v in preset.items()) if preset else "")


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def _docstring(doc: str) -> list[str]:
    """The docstring as Markdown: its sections become paragraphs with a bold name.

    `Args` is said by the parameter table, `Example` by the notes.
    """
    lines: list[str] = []
    section, body = "", []
    for line in [*doc.replace("``", "`").splitlines(), "Note:"]:
        found = SECTION.match(line)
        if found is None:
            body.append(line)
            continue
        lines += _section(section, body)
        section, body = found[1], [found[2]]
    return lines


def _section(name: str, body: list[str]) -> list[str]:
    text = [*body[:1], *textwrap.dedent("\n".join(body[1:])).splitlines()] if name else body
    content = "\n".join(text).strip()
    if not content or name in {"Args", "Example"}:
        return []
    return ["", f"**{name}.** {content}"] if name else content.splitlines()


if __name__ == "__main__":
    main()
