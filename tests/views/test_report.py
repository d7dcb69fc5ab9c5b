"""What a report file holds, decoded in Python."""

from __future__ import annotations

import base64
import hashlib
import os
import re
from html import unescape
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest

import accredit as ac
from accredit.data import Batch
from accredit.errors import ParamError, StoreError
from accredit.views import report
from accredit.views.blocks import Block, unpack
from tests.views.made import HOSTILE, hostile_records, made, records, result, token_result, value_result


class Page(HTMLParser):
    """Blocks, inline code and tags of a report."""

    def __init__(self, path: Path) -> None:
        super().__init__(convert_charrefs=False)
        self.raw: dict[str, str] = {}
        self.code: dict[str, str] = {}
        self.policy = ""
        self.tags: set[str] = set()
        self.links: list[str] = []
        self._at = ""
        self.text = path.read_text(encoding="utf-8")
        self.feed(self.text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        self.tags.add(tag)
        self.links += [v for k, v in values.items() if k in {"src", "href"} and v]
        if values.get("http-equiv") == "Content-Security-Policy":
            self.policy = unescape(values["content"] or "")
        self._at = values.get("id") or tag

    def handle_data(self, data: str) -> None:
        if self._at.startswith("block-"):
            self.raw[self._at] = self.raw.get(self._at, "") + data.strip()
        elif self._at in {"script", "style"}:
            self.code[self._at] = self.code.get(self._at, "") + data

    def handle_endtag(self, tag: str) -> None:
        self._at = ""

    def block(self, name: str) -> Block:
        return unpack(self.raw[f"block-{name}"])


def page_of(credits, tmp_path: Path, **options) -> Page:
    return Page(report(credits, tmp_path / "report.html", **options))


def test_the_policy_names_the_hashes_of_the_code_inside(tmp_path):
    page = page_of(value_result(made()), tmp_path)
    assert page.policy.startswith("default-src 'none';")
    for tag, rule in (("script", "script-src"), ("style", "style-src")):
        digest = base64.b64encode(hashlib.sha256(page.code[tag].encode()).digest()).decode()
        assert f"{rule} 'sha256-{digest}'" in page.policy
    assert "unsafe" not in page.policy
    assert page.links == []


def test_step_credit_comes_back_to_seven_digits(tmp_path):
    batch = made()
    credit = ac.assign(batch, "gigpo")
    index = page_of(credit, tmp_path).block("index")
    assert np.allclose(index.arrays["credit.0"], credit.steps, rtol=1e-6, atol=0)
    assert list(batch.ids) == index.head["ids"]
    assert np.array_equal(batch.step_start_R1, index.arrays["start"])
    assert np.allclose(index.arrays["reward"], batch.reward_R)


def test_groups_given_mixed_up_stand_side_by_side(tmp_path):
    rows = list(records())
    mixed = rows[::2] + rows[1::2]
    batch = Batch.from_records(mixed)
    credit = value_result(batch)
    index = page_of(credit, tmp_path).block("index")
    steps = {
        (i, t): v
        for i, values in zip(batch.ids, credit.by_rollout(), strict=True)
        for t, v in enumerate(values)
    }
    start = index.arrays["start"]
    for r, name in enumerate(index.head["ids"]):
        got = index.arrays["credit.0"][start[r] : start[r + 1]]
        assert np.allclose([steps[name, t] for t in range(len(got))], got, rtol=1e-6)
    groups = [name.split("-")[0] for name in index.head["ids"]]
    assert groups == sorted(groups)


def test_texts_parts_and_tokens_of_a_group_come_back(tmp_path):
    batch = made()
    credit = token_result(batch)
    block = page_of(credit, tmp_path).block("g1")
    first = int(np.flatnonzero(np.asarray(batch.group_R) == 1)[0])
    step = int(batch.step_start_R1[first])
    for name in ("action", "observation", "state", "text"):
        got = block.head["text"][name][block.arrays[f"text.{name}"][0]]
        assert batch.column(f"{name}_S").item(step) == got
    token = slice(int(batch.token_start_S1[step]), int(batch.token_start_S1[step + 1]))
    n = token.stop - token.start
    assert [block.head["vocab"][c] for c in block.arrays["token"][:n]] == batch.token_T[token].tolist()
    scale = block.head["methods"][0]["tokens"]["scale"]
    assert np.abs(block.arrays["token.0"][:n] * scale - credit.tokens[token]).max() <= scale / 2 * 1.001
    assert np.allclose(
        block.arrays["part.0.0"] + block.arrays["part.0.1"],
        credit.steps[step : step + len(block.arrays["part.0.0"])],
        rtol=1e-5,
    )


def test_broadcast_credit_is_one_number_a_turn(tmp_path):
    block = page_of(value_result(made()), tmp_path).block("g0")
    assert block.head["methods"][0]["tokens"] == {"kind": "turn"}
    assert "token.0" not in block.arrays


def test_decoded_tokens_are_shipped_once_a_word(tmp_path):
    block = page_of(token_result(made()), tmp_path, decode=lambda t: f"w{t}").block("g0")
    assert [f"w{t}" for t in block.head["vocab"][:-1]] == block.head["pieces"][:-1]
    assert block.head["pieces"][-1] == "▪"


def test_tokens_of_unknown_id_are_told_apart_from_token_0(tmp_path):
    rows = [
        {"id": "a", "group": "g", "reward": 1, "steps": [{"tokens": [0, 7]}, {"n_tokens": 2}]},
        {"id": "b", "group": "g", "reward": 0, "steps": [{"tokens": [2**62]}]},
    ]
    block = page_of(ac.assign(rows, "grpo"), tmp_path).block("g0")
    shown = [block.head["vocab"][c] for c in block.arrays["token"]]
    assert shown == [0, 7, "▪", "▪", str(2**62)]


def test_explanations_are_those_of_the_result(tmp_path):
    batch = made()
    credit = ac.assign(batch, "gigpo")
    page = page_of(credit, tmp_path)
    told = page.block("g0").head["methods"][0]["explain"]["0"]
    assert told["value"] == pytest.approx(credit.explain(batch.ids[0], 0).value, rel=1e-6)
    assert sum(t["value"] for t in told["terms"]) == pytest.approx(told["value"], abs=1e-6)
    rollout, step = told["terms"][0]["members"][0][:2]
    assert 0 <= rollout < len(batch)
    assert step is None or step >= 0


def test_preview_cuts_texts_and_leaves_tokens_out_and_says_so(tmp_path):
    rows = list(records())
    for row in rows:
        for step in row["steps"]:
            step["observation"] = "long " * 100
    page = page_of(token_result(Batch.from_records(rows)), tmp_path, text="preview")
    block = page.block("g0")
    assert max(len(t) for t in block.head["text"]["observation"]) == 200
    assert "token" not in block.arrays
    assert block.head["methods"][0]["tokens"] == {"kind": "sum"}
    assert "cut to 160 or 200" in page.block("index").head["textNote"]


def test_preview_is_the_default_past_the_limit(tmp_path, monkeypatch):
    full = page_of(token_result(made()), tmp_path)
    monkeypatch.setattr("accredit.views.write.PREVIEW_PAST", 10_000)
    page = page_of(token_result(made()), tmp_path)
    assert "20 MB" in page.block("index").head["textNote"]
    assert len(page.text) < len(full.text)
    assert "whole" in page_of(token_result(made()), tmp_path, text="full").block("index").head["textNote"]


def test_hostile_text_never_becomes_part_of_the_page(tmp_path):
    page = page_of(ac.assign(hostile_records(), "grpo"), tmp_path, title="</title><script>x</script>")
    assert page.tags <= {"html", "head", "meta", "title", "style", "body", "div", "p", "noscript", "script"}
    assert page.text.count("<script>") == 1
    for text in HOSTILE:
        if "<" in text:
            assert text not in page.text.replace(page.code["script"], "")
    for name, pool in page.block("g0").head["text"].items():
        assert not set("".join(pool)) & set("\x1b\x07\x00\u202e"), name
    index = page.block("index")
    assert not any(c in name for name in index.head["ids"] for c in "\x1b\x07\x00\u202e")


def test_ids_that_look_alike_stay_apart(tmp_path):
    rows = [
        {"id": i, "group": "g", "reward": r, "steps": [{"action": "a"}]} for i, r in (("a b", 1), ("a  b", 0))
    ]
    index = page_of(ac.assign(rows, "grpo"), tmp_path).block("index")
    assert index.head["ids"] == ["a b", "a b (2)"]


def test_a_rollout_without_steps_and_a_lonely_group_are_shown(tmp_path):
    rows = [
        {"id": "empty", "group": "g", "reward": 0.0, "steps": []},
        {"id": "full", "group": "g", "reward": 1.0, "steps": [{"action": "a", "tokens": [1]}]},
        {"id": "alone", "group": "h", "reward": None, "steps": [{"action": "b", "tokens": [2]}]},
    ]
    page = page_of(ac.assign(rows, "grpo"), tmp_path)
    index = page.block("index")
    assert index.head["counts"] == {"rollouts": 3, "steps": 2, "tokens": 2, "groups": 2}
    assert index.head["health"]["unscored"] == 1
    assert index.head["groups"][1]["scored"] == 0


def test_an_equal_report_is_an_equal_file(tmp_path):
    first, second = (report(value_result(made()), tmp_path / n) for n in ("a.html", "b.html"))
    assert first.read_bytes() == second.read_bytes()


def test_the_same_method_twice_is_told_apart_by_its_parameters(tmp_path):
    batch = made()
    index = page_of([ac.assign(batch, "gigpo"), ac.assign(batch, "gigpo", gamma=0.5)], tmp_path).block(
        "index"
    )
    assert [m["label"] for m in index.head["methods"]] == ["gigpo:gamma=0.95", "gigpo:gamma=0.5"]


def test_results_over_other_rollouts_are_refused(tmp_path):
    with pytest.raises(ParamError, match="same rollouts"):
        report([value_result(made(groups=2)), value_result(made(groups=3))], tmp_path / "x.html")
    with pytest.raises(ParamError, match="at least one"):
        report([], tmp_path / "x.html")
    with pytest.raises(ParamError, match="preview"):
        report(value_result(made()), tmp_path / "x.html", text="short")


def test_a_folder_holds_every_rollout_once(tmp_path, monkeypatch):
    monkeypatch.setattr("accredit.views.write.FOLDER_PAST", 40)
    monkeypatch.setattr("accredit.views.write.PART_ROLLOUTS", 16)
    monkeypatch.setattr("accredit.views.write.SAMPLED_ROLLOUTS", 10)
    batch = made(groups=7, rollouts=8)
    credit = value_result(batch)
    index_path = report([credit, token_result(batch)], tmp_path / "all.html")
    parts = sorted(index_path.parent.glob("part-*.html"))
    ids = [name for part in parts for name in Page(part).block("index").head["ids"]]
    assert sorted(batch.ids) == sorted(ids)
    index = Page(index_path).block("index")
    assert index.head["counts"]["rollouts"] == 56
    assert {g["href"] for g in index.head["groups"]} == {p.name for p in parts}
    top = index.head["methods"][0]["top"]
    assert np.abs(index.arrays["credit.0"][top[0]]) == pytest.approx(np.abs(credit.steps).max(), rel=1e-6)
    assert Page(parts[0]).block("index").head["methods"][0]["end"] == index.head["methods"][0]["end"]


def test_credit_too_large_for_float32_still_opens(tmp_path):
    batch = made()
    credit = result(batch, np.full(batch.n_steps, 1e300), "huge")
    assert np.isfinite(page_of(credit, tmp_path).block("index").arrays["credit.0"]).all()


@pytest.mark.slow
def test_a_thousand_rollouts_of_20_x_60_stay_under_8_mb(tmp_path, record_property):
    batch = made(groups=63, rollouts=16, steps=26, tokens=60)
    path = report([ac.assign(batch, "gigpo"), token_result(batch)], tmp_path / "report.html")
    size = path.stat().st_size / 1e6
    small = report(token_result(batch), tmp_path / "small.html", text="preview").stat().st_size / 1e6
    record_property("full, MB", round(size, 2))
    record_property("preview, MB", round(small, 2))
    print(
        f"{len(batch)} rollouts, {batch.n_steps} steps, {batch.n_tokens} tokens: "
        f"{size:.2f} MB, preview {small:.2f} MB"
    )
    assert size <= 8
    assert small <= 4
    assert re.search("whole", Page(path).block("index").head["textNote"])


@pytest.mark.parametrize("name", ["rollouts.jsonl", "report"])
def test_report_is_written_to_html_only(tmp_path, name):
    """A report onto ``rollouts.jsonl`` replaced the rollouts by HTML."""
    (tmp_path / name).write_text("rollouts")
    with pytest.raises(StoreError, match="does not end in"):
        report(token_result(made(1, 2)), tmp_path / name)
    assert "rollouts" == (tmp_path / name).read_text()


def test_report_does_not_replace_a_pipe(tmp_path):
    """The report was renamed onto whatever stood there."""
    os.mkfifo(tmp_path / "report.html")
    with pytest.raises(StoreError, match="it is a pipe"):
        report(token_result(made(1, 2)), tmp_path / "report.html")
    assert (tmp_path / "report.html").is_fifo()


def test_neighbour_of_another_run_is_left_alone(tmp_path):
    """Two runs wrote one report through the same hidden file, each into the other's."""
    (tmp_path / ".report.html.part").write_text("of another run")
    report(token_result(made(1, 2)), tmp_path / "report.html")
    assert "of another run" == (tmp_path / ".report.html.part").read_text()


def test_health_shows_what_check_found_once_a_code(tmp_path):
    """The report said "Nothing wrong was found" of rollouts that `check` warns of."""
    batch = Batch.from_records(
        [
            {"id": i, "group": "g", "reward": r, "steps": [{"action": "go"}]}
            for i, r in zip("abc", (1, 0, None), strict=True)
        ]
    )
    credit = ac.assign(batch, "grpo")
    checked = ac.check(batch)
    assert not checked.ok
    shown = page_of(credit, tmp_path, findings=checked).block("index").head["health"]
    assert shown["checked"]
    assert checked.by_code().keys() <= {f["code"] for f in shown["findings"]}
    assert sorted({f["code"] for f in shown["findings"]}) == sorted(f["code"] for f in shown["findings"])
    assert not page_of(credit, tmp_path).block("index").head["health"]["checked"]
