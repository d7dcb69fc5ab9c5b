"""Pictures as SVG, the notebook view and the terminal views."""

from __future__ import annotations

import io
import re
import xml.etree.ElementTree as ET

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

import accredit as ac
from accredit.errors import DataError, StoreError
from accredit.views import terminal
from accredit.views.matrix import matrix_of
from accredit.views.plain import one_line, shorten, visible
from accredit.views.turns import waterfall_of
from tests.views.made import HOSTILE, hostile_records, made, result, value_result


def printed(show, *args, width=100, height=30, terminal_=False, **kw) -> str:
    out = io.StringIO()
    console = Console(
        file=out,
        width=width,
        height=height,
        force_terminal=terminal_,
        color_system="truecolor" if terminal_ else None,
    )
    show(console, *args, **kw)
    return out.getvalue()


def test_a_waterfall_of_values_arrives_at_the_reward():
    batch = made()
    fall = waterfall_of(value_result(batch), batch.ids[3])
    assert fall.start == pytest.approx(batch.value_S[batch.step_start_R1[3]])
    assert fall.end == pytest.approx(batch.reward_R[3])
    assert fall.residual == 0
    assert "the bars add to R − V(s0)" in fall.check


def test_what_does_not_add_up_is_its_own_bar():
    batch = made()
    credit = value_result(batch, broken=True)
    fall = waterfall_of(credit, batch.ids[0])
    assert fall.residual == pytest.approx(batch.reward_R[0] - fall.start - credit.by_rollout()[0].sum())
    assert "url(#hatch)" in credit.plot.waterfall(batch.ids[0])
    assert "url(#hatch)" not in value_result(batch).plot.waterfall(batch.ids[0])


def test_other_methods_start_at_zero_and_promise_nothing():
    batch = made()
    credit = ac.assign(batch, "gigpo")
    fall = waterfall_of(credit, batch.ids[2])
    assert (fall.start, fall.goal, fall.residual) == (0, None, 0)
    assert fall.end == pytest.approx(credit.by_rollout()[2].sum())


def test_a_truncated_rollout_arrives_at_reward_plus_final_value():
    rows = [
        {
            "id": "cut",
            "group": "g",
            "reward": 0.5,
            "status": "truncated",
            "final_value": 0.25,
            "steps": [{"value": 0.1, "action": "a"}],
        }
    ]
    rows.append(
        {"id": "b", "group": "g", "reward": 1.0, "final_value": 9.0, "steps": [{"value": 0.1, "action": "a"}]}
    )
    batch = ac.Batch.from_records(rows)
    credit = result(batch, np.array([0.65, 0.9]), "v", needs=frozenset({"value|token_values"}))
    assert waterfall_of(credit, "cut").goal == pytest.approx(0.75)
    assert waterfall_of(credit, "b").goal == pytest.approx(1.0)


def test_rows_of_a_matrix_are_sorted_by_reward_and_mark_shared_states():
    batch = made()
    matrix = matrix_of(ac.assign(batch, "gigpo"), "game-00")
    rewards = [r.reward for r in matrix.rows]
    assert rewards == sorted(rewards, reverse=True)
    states = {
        r.rollout: [batch.column("state_S").item(s) for s in batch.steps_of(batch.position(r.rollout))]
        for r in matrix.rows
    }
    for row in matrix.rows:
        others = {s for name, known in states.items() if name != row.rollout for s in known}
        assert [s in others for s in states[row.rollout]] == row.shared.tolist()


def test_an_unknown_group_or_rollout_is_named_with_its_neighbour():
    credit = value_result(made())
    with pytest.raises(DataError, match=r"game-0x.*Did you mean 'game-0\d'"):
        credit.plot.matrix("game-0x")
    with pytest.raises(DataError, match="g00-x"):
        credit.plot.waterfall("g00-x")


def test_pictures_are_well_formed_even_for_hostile_text(tmp_path):
    credit = ac.assign(hostile_records(), "grpo")
    for name in credit.batch.ids:
        root = ET.fromstring(credit.plot.waterfall(name))
        assert {e.tag.rpartition("}")[2] for e in root.iter()} <= {
            "svg",
            "title",
            "rect",
            "text",
            "line",
            "circle",
            "path",
        }
    saved = credit.plot.matrix(str(credit.batch.group_names[0])).save(tmp_path / "m.svg")
    ET.parse(saved)


def test_a_picture_that_cannot_be_saved_says_why(tmp_path):
    with pytest.raises(StoreError, match=r"cannot write .*no.*Give a path"):
        value_result(made()).plot.matrix("game-00").save(tmp_path / "no" / "m.svg")


def test_the_notebook_view_is_small_static_and_escaped():
    batch = ac.Batch.from_records(hostile_records())
    page = result(batch, np.arange(batch.n_steps, 0.0, -1), "first ones most")._repr_html_()
    assert "&lt;script&gt;" in page
    assert len(page) < 100_000
    assert not re.search(r"<script|<img|onerror=.window|<iframe", re.sub(r"&lt;.*?&gt;", "", page))
    big = value_result(made(groups=20, rollouts=16, steps=100))._repr_html_()
    assert len(big) < 100_000
    assert "more turns" in big


def test_terminal_views_never_pass_on_control_characters_or_markup():
    credit = ac.assign(hostile_records(), "grpo")
    out = "".join(printed(terminal.show_waterfall, credit, name) for name in credit.batch.ids)
    out += "".join(printed(terminal.show_matrix, credit, str(g)) for g in credit.batch.group_names)
    out += printed(terminal.show_explanation, credit.explain(credit.batch.ids[0], 0))
    assert not set(out) & {chr(c) for c in (*range(9), *range(11, 32), *range(127, 160), 0x202E)}
    assert "[bold red]markup[/]" in out


def test_a_terminal_gets_one_screen_and_a_pipe_gets_everything():
    batch = made(steps=60)
    credit = value_result(batch)
    longest = batch.ids[int(np.argmax(np.diff(batch.step_start_R1)))]
    n = int(np.diff(batch.step_start_R1).max())
    seen = printed(terminal.show_waterfall, credit, longest, height=20, terminal_=True)
    assert seen.count("\n") <= 20
    assert f"… {n - 14} more turns" in seen
    assert "more turns" not in printed(terminal.show_waterfall, credit, longest, height=20)


def test_no_colour_without_a_terminal_or_under_no_color(monkeypatch):
    credit = value_result(made())
    assert "\x1b" not in printed(terminal.show_matrix, credit, "game-00")
    assert "\x1b[" in printed(terminal.show_matrix, credit, "game-00", terminal_=True)
    monkeypatch.setenv("NO_COLOR", "1")
    out = printed(terminal.show_matrix, credit, "game-00", terminal_=True)
    assert not re.search(r"\x1b\[[0-9;]*[34]8;", out)


def test_the_bars_of_the_terminal_keep_to_their_columns():
    batch = made(seed=5)
    credit = value_result(batch)
    for name in batch.ids[:6]:
        lines = printed(terminal.show_waterfall, credit, name, width=90).splitlines()
        assert max(len(line) for line in lines[2:]) <= 90
        assert all("│" in line or "█" in line or "┃" in line for line in lines[2:])


@given(st.text() | st.text(st.characters(categories=["Cc"])))
def test_visible_text_holds_no_control_character(text):
    shown = visible(text)
    assert not set(shown) & {chr(c) for c in (*range(9), *range(11, 32), *range(127, 160))}
    assert "\n" not in one_line(text)
    shown.encode("utf-8")


@pytest.mark.parametrize("text", HOSTILE)
def test_shortened_text_keeps_its_width(text):
    assert len(shorten(visible(text), 10)) <= 10
