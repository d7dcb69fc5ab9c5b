"""Every verb on well-formed rollouts: what it prints, writes and returns."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import accredit as ac
from accredit.store import save_truth
from tests.against.made import truth_rows
from tests.cli.conftest import records
from tests.views.test_report import Page


def _records(path):
    return [json.loads(line) for line in Path(path).read_text().splitlines()]


# -- assign ---------------------------------------------------------------------------------------


def test_assign_tells_sizes_coverage_fallbacks_groups_and_decisive_steps(accredit, file):
    done = accredit("assign", file, "-m", "gigpo")
    assert 0 == done.code
    for said in (
        "gigpo: 24 steps and 48 policy tokens of 8 rollouts in 2 groups",
        "coverage: ",
        "fallbacks: none",
        "rollouts: 8 read = 8 used + 0 excluded",
        "Steps of largest |credit|",
        "Groups",
        "gamma=0.95",
    ):
        assert said in done.out


def test_assign_prints_the_credit_that_the_library_gives(accredit, file):
    done = accredit("assign", file, "-m", "gigpo", "--set", "gamma=0.5", "--top", "1", "--json")
    expected = ac.assign(ac.read(file), "gigpo", gamma=0.5)
    top = done.json()["top"][0]
    at = int(np.abs(expected.steps).argmax())
    assert expected.steps[at] == top["credit"]
    assert 0.5 == done.json()["params"]["gamma"]
    assert 1 == len(done.json()["top"])


@pytest.mark.parametrize("ending", [".jsonl", ".parquet", ".jsonl.gz"])
def test_assign_writes_the_credit(accredit, file, tmp_path, ending):
    path = tmp_path / f"credit{ending}"
    done = accredit("assign", file, "-m", "grpo", "-o", path)
    assert 0 == done.code
    assert path.stat().st_size > 0
    assert f"wrote {path}" in done.err


def test_assign_of_several_methods_compares_and_writes_one_file_each(accredit, file, tmp_path):
    out = tmp_path / "credit.jsonl"
    done = accredit("assign", file, "-m", "grpo", "-m", "gigpo", "--set", "gigpo.gamma=0.5", "-o", out)
    assert 0 == done.code
    assert "Rank agreement" in done.out
    assert {"credit-grpo.jsonl", "credit-gigpo-gamma=0.5.jsonl"} == {p.name for p in tmp_path.glob("credit*")}


def test_spread_compat_and_key_reach_the_method(accredit, file):
    options = ("--spread", "normalise=batch,clip=0.5", "--compat", "verl-agent", "--key", "strip-digits")
    found = accredit("assign", file, "-m", "gigpo", *options, "--json").json()["params"]
    assert "batch" == found["spread"]["normalise"]
    assert 0.5 == found["spread"]["clip"]
    assert ("verl-agent", "strip-digits") == (found["compat"], found["key"])


def test_a_json_value_is_an_object(accredit, file):
    given = '--set=reward_baselines={"g0": 0.25, "g1": 0.5}'
    done = accredit("assign", file, "-m", "remax", given, "--json")
    assert 0 == done.code, done.err
    assert {"g0": 0.25, "g1": 0.5} == done.json()["params"]["reward_baselines"]


def test_strict_stops_at_a_fallback(accredit, write):
    records = _records(write())
    path = write([*records, {**records[0], "id": "alone", "group": "own"}])
    assert 0 == accredit("assign", path, "-m", "grpo").code
    done = accredit("assign", path, "-m", "grpo", "--strict")
    assert 3 == done.code
    assert "ACC402: strict: grpo took fallbacks: singleton 1 times\n" == done.err


# -- compare, report ------------------------------------------------------------------------------


def test_compare_prints_methods_agreement_and_disagreements(accredit, file):
    done = accredit("compare", file, "-m", "grpo", "-m", "gigpo", "--boot", "50")
    assert 0 == done.code
    for said in (
        "Compared on 8 rollouts, 2 groups, 24 steps",
        "Spearman",
        "Kendall",
        "sign flips",
        "disagree most",
    ):
        assert said in done.out


def test_compare_lists_who_could_not_run_and_says_so_in_its_exit_code(accredit, file):
    done = accredit("compare", file, "-m", "grpo", "-m", "remax")
    assert 1 == done.code
    assert "Could not run" in done.out
    assert "reward_baselines" in done.out


def test_compare_fails_where_no_method_can_run(accredit, file):
    done = accredit("compare", file, "-m", "remax")
    assert 3 == done.code
    assert "none of the 1 methods can run: remax" in done.err


def test_report_writes_a_page_and_prints_its_path(accredit, file, tmp_path):
    out = tmp_path / "page.html"
    done = accredit("report", file, "-m", "grpo", "-m", "gigpo", "-o", out)
    assert (0, f"{out}\n") == (done.code, done.out)
    assert out.read_text().lstrip().lower().startswith("<!doctype html>")
    assert str(out) == accredit("report", file, "-m", "grpo", "-o", out, "--json").json()["report"]


@pytest.fixture
def truth(file, tmp_path):
    """True advantages of the rollouts in ``file``."""
    batch = ac.read(file)
    return save_truth(truth_rows(batch, ac.assign(batch, "gigpo").steps), tmp_path / "truth.jsonl")


def test_report_shows_methods_against_a_truth_with_the_numbers_of_compare(accredit, file, truth, tmp_path):
    out = tmp_path / "page.html"
    assert 0 == accredit("report", file, "-m", "grpo", "-m", "gigpo", "--truth", truth, "-o", out).code
    index = Page(out).block("index")
    compared = accredit("compare", file, "-m", "grpo", "-m", "gigpo", "--truth", truth, "--json").json()
    theirs = {row["label"]: row for row in compared["truth"]["rows"]}
    for row in index.head["truth"]["rows"]:
        other = theirs[index.head["methods"][row["m"]]["label"]]
        for name in ("rank", "sign", "bias", "nmse", "tau"):
            assert (other[name] and list(other[name].values())) == row[name]
    assert 24 == index.head["truth"]["steps"] == len(index.arrays["truth"])


def test_report_refuses_a_truth_of_others_before_the_methods_run(
    accredit, file, truth, write, tmp_path, monkeypatch
):
    monkeypatch.setattr(ac, "compare", None)
    others = write([{**record, "id": f"x{record['id']}"} for record in records()], "others.jsonl")
    done = accredit("report", others, "-m", "grpo", "--truth", truth, "-o", tmp_path / "page.html")
    assert (3, True) == (done.code, "its rollouts are others, 'g0r0' for one" in done.err)
    done = accredit(
        "report", file, "-m", "grpo", "--truth", tmp_path / "no.parquet", "-o", tmp_path / "x.html"
    )
    assert (3, True) == (done.code, "no.parquet" in done.err)


# -- show -----------------------------------------------------------------------------------------


def test_show_draws_decisive_steps_and_a_group(accredit, file):
    done = accredit("show", file, "-m", "gigpo")
    assert 0 == done.code
    assert "Steps of largest |credit| under gigpo" in done.out
    assert all(f"{g}r{r}" in done.out for g in ("g0",) for r in range(4))


def test_show_draws_the_group_that_is_named(accredit, file):
    done = accredit("show", file, "--group", "g1")
    assert 0 == done.code
    assert "g1r3" in done.out
    assert "g0r3" not in done.out


def test_show_draws_a_rollout_and_explains_its_largest_step(accredit, file):
    done = accredit("show", file, "-m", "gigpo", "--rollout", "g0r1")
    assert 0 == done.code
    assert "act 2 1" in done.out
    assert "rollout 'g0r1' step" in done.out


def test_show_explains_one_step_so_that_it_can_be_recomputed(accredit, file):
    told = accredit("show", file, "-m", "dr-grpo", "--rollout", "g0r1", "--step", "0", "--json").json()
    members = [m["value"] for m in told["terms"][0]["members"]]
    assert [0.0, 1.0, 0.0, 1.0] == members
    assert 1.0 - np.mean(members) == told["value"]
    text = accredit("show", file, "-m", "dr-grpo", "--rollout", "g0r1", "--step", "0").out
    assert "(score 1 - mean 0.5 of 4) = +0.5" in text


def test_show_refuses_what_is_not_there(accredit, file):
    assert (3, True) == (
        (d := accredit("show", file, "--rollout", "g0r9")).code,
        "Did you mean 'g0r" in d.err,
    )
    assert (3, True) == (
        (d := accredit("show", file, "--rollout", "g0r1", "--step", "9")).code,
        "has 3 steps" in d.err,
    )
    assert (3, True) == ((d := accredit("show", file, "--group", "g7")).code, "no group 'g7'" in d.err)
    assert (2, True) == ((d := accredit("show", file, "--step", "1")).code, "--step needs --rollout" in d.err)
    assert 2 == accredit("show", file, "-m", "grpo", "-m", "gigpo").code


# -- check, convert -------------------------------------------------------------------------------


def test_check_tells_findings_and_numbers(accredit, write):
    records = _records(write())
    records[0]["reward"] = None
    done = accredit("check", write(records))
    assert 1 == done.code
    assert "7 scored, 1 unscored" in done.out
    assert "rollouts: 8 read = 8 used + 0 excluded" in done.out
    assert "mend: " in done.out


def test_check_is_content_with_good_rollouts(accredit, write):
    done = accredit("check", write(), "--json")
    assert 0 == done.code
    assert done.json()["ok"]


def test_check_for_a_method_says_what_it_lacks(accredit, write):
    records = [{**r, "steps": [{"n_tokens": 1}]} for r in _records(write())]
    done = accredit("check", write(records), "-m", "gigpo")
    assert 1 == done.code
    assert "state" in done.out


@pytest.mark.parametrize("ending", [".parquet", ".jsonl.gz", ".jsonl.zst"])
def test_convert_goes_there_and_back_without_loss(accredit, file, tmp_path, ending):
    there, back = tmp_path / f"there{ending}", tmp_path / "back.jsonl"
    done = accredit("convert", file, there)
    assert (0, True) == (done.code, "8 read = 8 used + 0 excluded" in done.out)
    assert 0 == accredit("convert", there, back).code
    assert ac.read(file) == ac.read(back)


# -- methods --------------------------------------------------------------------------------------


def test_methods_lists_the_catalogue(accredit):
    done = accredit("methods", "--json")
    ours = {c.id for c in ac.catalog()}
    assert {m["id"] for m in done.json()} <= ours
    assert "gigpo" in accredit("methods").out


def test_methods_shows_one_with_parameters_and_bounds(accredit):
    done = accredit("methods", "gigpo")
    assert 0 == done.code
    assert "gamma" in done.out
    assert "in (0, 1]" in done.out
    assert "Presets" in done.out


def test_methods_knows_aliases(accredit):
    assert "grpo" == accredit("methods", "dr-grpo", "--json").json()["id"]


def test_methods_without_a_field_that_none_needs_is_a_slip(accredit):
    """All methods were listed, as if none needed what was meant."""
    done = accredit("methods", "--without", "sate")
    assert (2, True) == (done.code, "Did you mean 'state'?" in done.err)


def test_methods_without_a_field_leaves_out_what_needs_it(accredit):
    kept = {m["id"] for m in accredit("methods", "--without", "state", "--json").json()}
    assert "grpo" in kept
    assert "gigpo" not in kept


def test_methods_for_a_file_advises_and_says_what_is_missing(accredit, file):
    advice = accredit("methods", "--for", file, "--json").json()
    found = {m["method"]: m["missing"] for m in advice["methods"]}
    assert [] == found["gigpo"]
    assert ["reward_baseline"] == found["remax"]
    shown = accredit("methods", "--for", file).out
    assert shown.startswith(f"Begin with {advice['first']}: ")
    assert "what would unlock it" in shown
    kept = accredit("methods", "--for", file, "--without", "state", "--json").json()
    assert "gigpo" not in {m["method"] for m in kept["methods"]}


# -- demo -----------------------------------------------------------------------------------------


def test_demo_compares_tells_ten_steps_and_ends_with_the_report(accredit, tmp_path, monkeypatch):
    opened = []
    monkeypatch.setattr("webbrowser.open", opened.append)
    done = accredit("demo", "--out", tmp_path / "out")
    assert 0 == done.code
    assert f"Report: {tmp_path / 'out' / 'report.html'}" == done.out.splitlines()[-1]
    assert (tmp_path / "out" / "report.html").stat().st_size > 10_000
    table = done.out.split("The ten most decisive steps under gigpo\n")[1].splitlines()
    assert 10 == len(table[1:11])
    assert "rollout" == table[0].split()[0]
    assert all("mean" in row for row in table[1:11])  # each with its reason
    assert [] == opened  # nobody sits before a pipe


def test_demo_opens_the_report_when_told(accredit, tmp_path, monkeypatch):
    opened = []
    monkeypatch.setattr("webbrowser.open", opened.append)
    monkeypatch.setattr("accredit.cli.demo.SHOWN", ("grpo", "gigpo", "rloo"))
    monkeypatch.setattr("accredit.cli.demo.REPORTED", 2)
    found = accredit("demo", "--out", tmp_path, "--open", "--json").json()
    assert [(tmp_path / "report.html").as_uri()] == opened
    assert {"grpo", "gigpo"} <= {m["label"] for m in found["comparison"]["methods"]}
    assert set(found["lacking"]).isdisjoint(m["label"] for m in found["comparison"]["methods"])
    index = Page(tmp_path / "report.html").block("index")
    shown = {index.head["methods"][row["m"]]["label"]: row for row in index.head["truth"]["rows"]}
    theirs = {row["label"]: row for row in found["comparison"]["truth"]["rows"]}
    assert {label: list(theirs[label]["rank"].values()) for label in shown} == {
        label: row["rank"] for label, row in shown.items()
    }
    ranks = [row["rank"][0] for row in shown.values()]
    assert (sorted(ranks, reverse=True), 2) == (ranks, len(ranks))
    assert index.arrays["truth_sure"].all()


def test_report_tells_what_check_tells(accredit, write, tmp_path):
    """The report's data health called rollouts sound that `check` warns of."""
    file = write([{**record, "reward": None} for record in records()[:2]] + records()[2:])
    codes = {f["code"] for f in accredit("check", file, "--json").json()["findings"]}
    assert 0 == accredit("report", file, "-m", "grpo", "-o", tmp_path / "r.html").code
    page = Page(tmp_path / "r.html").block("index").head["health"]
    assert codes
    assert codes <= {f["code"] for f in page["findings"]}


def test_methods_for_a_file_takes_a_key_and_the_options_of_reading(accredit, write):
    rows = [
        {**r, "steps": [{**s, "state": f"room {r['id']} {s['state']}"} for s in r["steps"]]}
        for r in records()
    ]
    path = write(rows)
    assert 0 == accredit("methods", "--for", path, "--json").json()["traits"]["shared"]
    told = accredit("methods", "--for", path, "--key", "strip-digits", "--group-size", "8", "--json").json()
    assert (1, 1.0) == (told["traits"]["groups"], told["traits"]["shared"])


def test_methods_takes_the_options_of_a_file_only_with_one(accredit):
    done = accredit("methods", "--key", "strip-digits")
    assert (2, True) == (done.code, "--for FILE" in done.err)


def test_report_refuses_a_name_before_the_rollouts_are_read(accredit, file, tmp_path, monkeypatch):
    monkeypatch.setattr(ac, "read", None)
    done = accredit("report", file, "-m", "grpo", "-o", tmp_path / "x.txt")
    assert (3, True) == (done.code, "Write x.html" in done.err)
