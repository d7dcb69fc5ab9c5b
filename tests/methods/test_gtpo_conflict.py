"""gtpo-conflict: the card's hand example, a slow oracle, what the code's slip does."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import accredit as ac
from tests.dear import dear
from tests.methods.token_rollouts import BASE, base_of, before_masks, told, walk


def ids(name, reward, *steps, group="g", **more):
    return {"id": name, "group": group, "reward": reward, "steps": [{"tokens": s} | more for s in steps]}


def test_card_example():
    credit = ac.assign([ids("a", 1, [7, 1, 2, 3]), ids("b", 0, [7, 4, 5])], "gtpo-conflict")
    assert [2, 1, 1, 1, 0, 1, 1] == credit.extras["weight"].tolist()
    a = 1 / np.sqrt(2)
    assert pytest.approx([2 * a, a, a, a, 0, -a, -a], abs=1e-5) == credit.tokens.tolist()
    assert [1, 1] == credit.extras["n_conflict"].tolist()


def slow(batch):
    """Weights, conflict as it lies, and as the code puts it, of each token."""
    tokens, base = walk(batch), base_of(batch)
    rows = {}
    for token, a in zip(tokens, base, strict=True):
        rows.setdefault(token.r, []).append((token, a))
    signs = {
        r: float(np.sign(sum(a for _, a in row))) if any(t.counted for t, _ in row) else 0.0
        for r, row in rows.items()
    }

    def run(r, end):
        own = [t.id for t, _ in rows[r]]
        for k in range(len(own)):
            at = k if end == "start" else -1 - k
            here = set()
            for q, row in rows.items():
                if row[0][0].group == rows[r][0][0].group and len(row) > k and row[at][0].id == own[at]:
                    here.add(signs[q])
            if signs[r] == 0 or not {1.0, -1.0} <= here:
                return k
        return len(own)

    weight, conflict, slip = [], [], []
    for r, row in rows.items():
        forward, backward, n = run(r, "start"), run(r, "end"), len(row)
        factor = 2.0 if signs[r] > 0 else 0.0
        for k in range(n):
            first, last = k < forward, n - 1 - k < backward
            weight.append((factor if first else 1.0) * (factor if last else 1.0))
            conflict.append(first or last)
            slip.append(first or k < backward)
    return weight, conflict, slip


@dear
@given(told())
def test_equals_the_slow_form(records):
    batch = ac.Batch.from_records(records)
    weight, conflict, slip = slow(batch)
    credit = ac.assign(batch, "gtpo-conflict")
    np.testing.assert_array_equal(weight, credit.extras["weight"])
    np.testing.assert_array_equal(conflict, credit.extras["conflict"])
    np.testing.assert_array_equal(base_of(batch) * weight, before_masks(credit))
    code = ac.assign(batch, "gtpo-conflict", compat="code")
    np.testing.assert_array_equal(slip, code.extras["conflict"])
    np.testing.assert_array_equal(credit.tokens, code.tokens)


def test_steps_are_put_together_and_the_suffix_is_aligned_from_the_end():
    rows = [ids("a", 1, [1, 2], [], [9]), ids("b", 0, [3], [9])]
    assert [1, 1, 2, 1, 0] == ac.assign(rows, "gtpo-conflict").extras["weight"].tolist()
    assert [1, 0, 0, 1, 0] == ac.assign(rows, "gtpo-conflict", compat="code").extras["conflict"].tolist()


def test_overlapping_runs_multiply_and_are_told():
    rows = [ids("a", 1, [5]), ids("b", 0, [5])]
    credit = ac.assign(rows, "gtpo-conflict")
    assert [4, 0] == credit.extras["weight"].tolist()
    assert ["ACC444"] == [f.code for f in credit.findings]


def test_a_tie_and_other_groups_are_nobodys_partner():
    tie = [ids("a", 1, [5, 6]), ids("b", 1, [5, 6])]
    assert [1] * 4 == ac.assign(tie, "gtpo-conflict").extras["weight"].tolist()
    apart = [ids("a", 1, [5]), ids("b", 0, [6]), ids("c", 1, [6], group="h"), ids("d", 0, [5], group="h")]
    assert [1] * 4 == ac.assign(apart, "gtpo-conflict").extras["weight"].tolist()


def test_ids_of_any_size_are_told_apart():
    big = 2**63 - 1
    rows = [ids("a", 1, [big, 1]), ids("b", 0, [big, 2]), ids("c", 0, [big - 1, 1])]
    assert [4, 4, 0, 1, 1, 0] == ac.assign(rows, "gtpo-conflict").extras["weight"].tolist()


@dear
@given(told(), st.floats(0, 3), st.floats(0, 3))
def test_weights_of_one_are_the_base_and_weights_are_parameters(records, up, down):
    one = ac.assign(records, "gtpo-conflict", w_pos=1, w_neg=1)
    np.testing.assert_array_equal(ac.assign(records, BASE).tokens, one.tokens)
    weight = ac.assign(records, "gtpo-conflict", w_pos=up, w_neg=down).extras["weight"]
    assert {1.0, up, down, up * up, down * down} >= set(weight.tolist())


def test_options_divide_and_entropy_terms():
    rows = [
        ids("a", 1, [7, 8, 2], entropies=[0.1, 0.2, 0.6]),
        ids("b", 0, [7, 8, 5], entropies=[0.5, 0.9, 1.0]),
    ]
    a = ac.assign(rows, "grpo").tokens[0]
    divided = ac.assign(rows, "gtpo-conflict", divide=True)
    assert pytest.approx([a, a, a / 2, 0, 0, -a / 2]) == divided.tokens.tolist()
    termed = ac.assign(rows, "gtpo-conflict", entropy_terms=True)
    assert pytest.approx([2 * (a - 0.03)] * 2 + [a - 0.03, 0, 0, 0]) == termed.tokens.tolist()
    with pytest.raises(ac.AccreditError, match="no step has entropies"):
        ac.assign([ids("a", 1, [1]), ids("b", 0, [1])], "gtpo-conflict", entropy_terms=True)


def test_a_run_ends_at_its_first_gap_but_its_tokens_stay_partners():
    rows = [ids("a", 1, [5, 1, 6, 0]), ids("b", 0, [5, 2, 6, 7]), ids("c", 1, [5, 2, 9, 9])]
    weight = ac.assign(rows, "gtpo-conflict").extras["weight"]
    assert [2, 1, 1, 1, 0, 0, 0, 1, 2, 2, 1, 1] == weight.tolist()
