"""What a method needs, and who makes it."""

from __future__ import annotations

import ast
import dataclasses
import pkgutil
import re
import shlex
from pathlib import Path

import click
import pytest

import accredit as ac
from accredit.cli import VERBS, verbs
from accredit.data import Batch
from accredit.data.vocabulary import ROLLOUT_FIELDS, STEP_FIELDS, is_named_signal
from accredit.engine import missing_needs
from accredit.errors import MissingSignal, ParamError
from accredit.methods import get_method
from accredit.signals import Divergence, FisherMoments, Want, asks_belief
from accredit.signals.columns import column_name

COMMAND = re.compile(rf"`(accredit (?:{'|'.join(VERBS)})\b[^`]*)`")
MADE = [f for f in (*ROLLOUT_FIELDS.values(), *STEP_FIELDS.values()) if f.probe]


def lacking(step, need):
    card = dataclasses.replace(get_method("grpo")[0].card, needs=frozenset({need}))
    return missing_needs(Batch.from_records([{"id": "a", "group": "g", "steps": [step]}]), card)


def test_any_perturbation_meets_the_need_of_perturbed_logprobs():
    need = "perturbed_logprobs"
    assert [] == lacking({"perturbed_logprobs": {"mask": [-1.0]}}, need)
    assert [need] == lacking({"logprobs": [-1.0]}, need)
    assert [need] == lacking({"perturbed_logprobs": {"mask": None}, "n_tokens": 1}, need)


@pytest.mark.parametrize("need", ["hidden", "student_logits", "fisher_moments"])
def test_vectors_of_tokens_meet_their_need(need):
    assert [] == lacking({need: [[0.5, 1.0]]}, need)
    assert [need] == lacking({"logprobs": [-1.0]}, need)


def _parsed(line):
    """What the real command line makes of a line; nothing is run."""
    verb, *arguments = shlex.split(line)[1:]
    command = verbs.get_command(click.Context(verbs), verb)
    with command.make_context(verb, arguments) as context:
        return verb, dict(context.params)


def _columns(line):
    """The columns that a probe's command line writes."""
    verb, given = _parsed(line)
    assert "probe" == verb
    contexts = given["context"].split(",")
    assert given["paired"] or len(contexts) == 1
    if asks_belief(given["want"]):
        return {"answer_lens_S" if given["want"] == "lens" else "belief_S"}
    return {column_name(kind, context) for kind in Want.parse(given["want"]).kinds for context in contexts}


COMMANDS = [(f, line) for f in MADE for line in COMMAND.findall(f.probe)]


@pytest.mark.parametrize(("field", "line"), COMMANDS, ids=[f.name for f, _ in COMMANDS])
def test_the_command_that_a_hint_names_makes_the_column(field, line):
    """Hints named a context that is none, left out `-o`, and said that `logits` makes `student_logits`."""
    made = _columns(line)
    if field.name == "perturbed_logprobs":
        assert made
        assert all(is_named_signal(column) for column in made)
    else:
        assert {field.column} == made


def test_a_hint_of_another_column_or_a_want_that_is_none_is_seen():
    """What the test above is worth: the lines that once stood there."""
    probe = "accredit probe FILE --model MODEL --want"
    assert {"logits_T"} == _columns(f"{probe} logits:1/2 -o OUT")
    with pytest.raises(click.UsageError, match="parameter: out"):
        _columns(f"{probe} logprob")
    with pytest.raises(ParamError):
        _columns(f"{probe} logits:IDS -o OUT")
    assert not is_named_signal(*_columns(f"{probe} logprob --context perturbed.NAME -o OUT"))


def test_the_names_that_a_hint_gives_in_python_are_there():
    said = {name for f in MADE for name in re.findall(r"\baccredit(?:\.\w+)+", f.probe)}
    assert "accredit.signals.joint" in said
    assert all(callable(pkgutil.resolve_name(name)) for name in said)
    assert ("jsd_T", "fisher_moments_T") == (Divergence().column, FisherMoments().column)


def test_missing_signal_names_the_command_that_makes_it():
    records = [{"id": n, "group": "g", "reward": 1, "steps": [{"n_tokens": 1}]} for n in "ab"]
    told = {}
    for card in ac.catalog():
        try:
            ac.assign(records, card.id)
        except MissingSignal as error:
            told[card.id] = COMMAND.findall(str(error))
        except ac.AccreditError:
            pass
    asked = {"gaca": "logprob_T", "hcapo": "logprobs_hindsight_T", "sdar": "logprobs_teacher_T"}
    for method, column in {**asked, "shear": "hidden_T", "hapo": "entropy_T"}.items():
        assert column in set.union(*map(_columns, told[method])), method
    for lines in told.values():
        for line in lines:
            _columns(line)


def test_the_verbs_that_errors_send_to_are_verbs():
    """`hint=...` anywhere, and the mends of findings."""
    root = Path(ac.__file__).parent
    said = []
    told = re.compile(r"\baccredit (?!import\b|as\b)[a-z]")
    for text in filter(told.search, (file.read_text() for file in root.rglob("*.py"))):
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.keyword) and node.arg == "hint":
                said += [c.value for c in ast.walk(node.value) if isinstance(c, ast.Constant)]
    said += re.findall(r'^mend = "(.*)"', (root / "findings" / "codes.toml").read_text(), re.MULTILINE)
    found = {verb for text in map(str, said) for verb in re.findall(r"(?:^|`|: )accredit ([a-z]+)\b", text)}
    assert {"convert", "methods"} & found
    assert found <= set(VERBS)


def test_named_signals_are_not_taken_for_a_misspelling():
    step = {"tokens": [1], "perturbed_logprobs": {"x": [-1.0]}}
    assert "ACC124" not in [f.code for f in ac.check([{"id": "a", "group": "g", "steps": [step]}]).findings]
