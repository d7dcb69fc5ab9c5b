"""Sheet order, and any batch whatever can be shown."""

from __future__ import annotations

import json

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from accredit.data import Batch, Credit, MethodCard, Parts
from accredit.views.blocks import Block, pack, unpack
from accredit.views.explanations import ALL_UP_TO, explained_steps
from accredit.views.notebook import notebook_html
from accredit.views.payload import Detail, group_block, index_arrays, method_heads, words_block
from accredit.views.plain import visible
from accredit.views.sheet import sheet_of
from accredit.views.write import _head, _Writer
from tests.dear import dear
from tests.strategies import batches
from tests.views.made import made, value_result


def numbered(batch: Batch, seed: int) -> Credit:
    """A result with other numbers at every step, the needs of a value method, and random tokens."""
    chance = np.random.default_rng(seed)
    steps = np.round(chance.normal(size=batch.n_steps), 2)
    card = MethodCard("numbered", "made up", frozenset({"reward", "value"}), "step", frozenset(), "none", ())
    return Credit(
        batch, card, {}, Parts(steps, parts={"a": steps}), lambda: chance.normal(size=batch.n_tokens)
    )


@dear
@given(batches(), st.integers(0, 3), st.sampled_from(["full", "preview"]))
def test_every_batch_can_be_packed_and_every_step_is_there_once(batch, seed, text):
    sheet = sheet_of(numbered(batch, seed))
    index = unpack(pack(Block(_head(_Writer(sheet, "t", None, None)), index_arrays(sheet))))
    assert np.sort(sheet.order_S).tolist() == list(range(batch.n_steps))
    assert np.allclose(index.arrays["credit.0"], sheet.credits[0].steps[sheet.order_S], rtol=1e-6)
    assert len(set(index.head["ids"])) == len(batch)
    unpack(pack(words_block(sheet)))
    for g in range(len(sheet.names)):
        block = unpack(pack(group_block(sheet, g, Detail(text, None, explained_steps(sheet, set())))))
        steps = sheet.group_steps(g)
        for name, pool in block.head["text"].items():
            codes = block.arrays[f"text.{name}"]
            expected = [_said(batch, f"{name}_S", int(s)) for s in sheet.order_S[steps]]
            assert expected == [pool[c] if c >= 0 else None for c in codes]


def _said(batch: Batch, name: str, step: int) -> str | None:
    """What a step's text should show: harmless, `true` for True, None where absent."""
    column = batch.column(name)
    if not column.mask(batch.n_steps)[step]:
        return None
    item = column.item(step)
    return visible(str(item).lower() if isinstance(item, bool) else str(item))


@dear
@given(batches(), st.data())
def test_groups_stand_side_by_side_in_order_of_appearance(batch, data):
    shuffled = batch.take(data.draw(st.permutations(range(len(batch)))))
    sheet = sheet_of(numbered(shuffled, 0))
    codes = [int(c) for c in np.asarray(shuffled.group_R)]
    appearance = list(dict.fromkeys(codes))
    expected = [r for g in appearance for r in range(len(codes)) if codes[r] == g]
    assert expected == sheet.order_R.tolist()
    assert len(appearance) == len(sheet.names)
    assert [codes.count(g) for g in appearance] == np.diff(sheet.first_G1).tolist()


@dear
@given(batches(), st.integers(0, 3))
def test_every_batch_has_a_notebook_view_without_script(batch, seed):
    page = notebook_html(numbered(batch, seed))
    assert len(page.encode("utf-8")) < 100_000
    assert "<script" not in page


@dear
@given(batches(min_rollouts=3, min_steps=1), st.data())
def test_a_part_of_a_sheet_shows_the_same_numbers(batch, data):
    sheet = sheet_of(numbered(batch, 0))
    chosen = np.array(sorted(data.draw(st.sets(st.integers(0, max(len(batch) - 1, 0))))), int)
    chosen = chosen[chosen < len(batch)]
    part = sheet.pick(chosen)
    assert [sheet.ids[r] for r in chosen] == part.ids
    expected = [sheet.order_S[sheet.start_R1[r] : sheet.start_R1[r + 1]] for r in chosen]
    assert np.concatenate([*expected, np.zeros(0, int)]).tolist() == part.order_S.tolist()
    assert sheet.domain_M == part.domain_M


def test_method_heads_are_json():
    assert json.loads(json.dumps(method_heads(sheet_of(value_result(made())))))[0]["value"] is True


def test_every_rollout_has_its_largest_step_explained_where_not_all_are():
    batch = made(groups=40, rollouts=16, steps=20, tokens=1)
    sheet = sheet_of(value_result(batch))
    assert len(sheet.order_S) > ALL_UP_TO / 2
    wanted = explained_steps(sheet_of([value_result(batch), value_result(batch, broken=True)]), {3})[0]
    assert 3 in wanted
    for r in range(len(batch)):
        steps = slice(int(sheet.start_R1[r]), int(sheet.start_R1[r + 1]))
        size = np.abs(sheet.credit_MS[0][steps])
        assert steps.start + int(np.argmax(size)) in wanted
