"""verpo: the card's example, properties of Fisher Evidence Contrast, both sources of moments."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import accredit as ac
from accredit import losses
from accredit.data import Column
from tests.dear import dear
from tests.methods.teacher_oracles import Record

NAMES = ("student_logits", "teacher_none_logits", "teacher_pos_logits", "teacher_neg_logits")
CARD = dict(
    zip(NAMES, np.log([[0.5, 0.3, 0.2], [0.4, 0.35, 0.25], [0.2, 0.6, 0.2], [0.6, 0.2, 0.2]]), strict=True)
)


def record(name: str, reward: float, tokens: list[int], **logits: Any) -> Record:
    return {"id": name, "group": "g", "reward": reward, "steps": [{"tokens": tokens, **logits}]}


def card_records(tokens: list[int] | None = None) -> list[Record]:
    """Two successes and two failures, A = +-0.5, each with the card's distributions at words 0, 1, 2."""
    words = [0, 1, 2] if tokens is None else tokens
    logits = {name: [row.tolist()] * len(words) for name, row in CARD.items()}
    return [record(f"r{i}", reward, words, **logits) for i, reward in enumerate((1, 1, 0, 0))]


def test_card_example() -> None:
    credit = ac.assign(card_records(), "verpo")
    near = lambda values: pytest.approx(values, abs=5e-6)  # noqa: E731
    assert near([5.224447] * 3) == credit.extras["projection"][:3].tolist()
    assert near([0.0881633] * 3) == credit.extras["fisher_cost"][:3].tolist()
    assert near([-0.146939, 0.122450, 0.183672]) == credit.extras["benefit"][:3].tolist()
    assert near([0, 0.998000, 0.998666]) == credit.extras["weights"][:3].tolist()
    assert near([0.5, 0.999000, 0.999333]) == credit.tokens[:3].tolist()
    assert near([-0.999166, -0.5, -0.5]) == credit.tokens[-3:].tolist()
    assert near([0, 0, 0.998333]) == credit.extras["weights"][[-1, -2, -3]].tolist()


@st.composite
def groups(draw: st.DrawFn) -> list[Record]:
    """Three successes and two failures with random logits over four words."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    size = draw(st.sampled_from([0.1, 1.0, 3.0]))
    found = []
    for i, reward in enumerate((1.0, 1.0, 0.0, 0.0, 1.0)):
        n = draw(st.integers(0, 2)) if i else 1
        logits = {name: rng.normal(0, size, (n, 4)).tolist() for name in NAMES}
        found.append(record(f"r{i}", reward, rng.integers(0, 4, n).tolist(), **logits))
    return found


forms = st.sampled_from(["forward_kl", "reverse_kl"])
shifts = st.sampled_from(["fec", "ctr", "fixed"])


def stacked(records: list[Record]) -> tuple[list[np.ndarray], np.ndarray]:
    steps = [s for r in records for s in r["steps"]]
    logits = [np.array([x for s in steps for x in s[name]], np.float32).astype(float) for name in NAMES]
    return logits, np.array([y for s in steps for y in s["tokens"]])


def slow_verpo(records: list[Record], form: str, displacement: str) -> dict[str, np.ndarray]:
    """Whole vectors over the vocabulary, token by token, as the card writes them."""
    logits, y = stacked(records)
    rewards = [r["reward"] for r in records]
    advantage = [r["reward"] - sum(rewards) / len(rewards) for r in records for _ in r["steps"][0]["tokens"]]
    out: dict[str, list[float]] = {
        "weights": [],
        "benefit": [],
        "fisher_cost": [],
        "projection": [],
        "tokens": [],
    }
    for i, a in enumerate(advantage):
        lp, l0, l1, l2 = (losses.log_softmax(x[i]) for x in logits)
        p = np.exp(lp)
        F = np.diag(p) - np.outer(p, p)
        if form == "forward_kl":
            t, n = np.exp(l1) - np.exp(l2), (np.exp(l1) + np.exp(l2)) / 2 - np.exp(l0)
            fixed = np.exp(l1) - np.exp(l0)
        else:
            t, n, fixed = (p * (r - p @ r) for r in (l1 - l2, (l1 + l2) / 2 - l0, l1 - l0))
        alpha = float(t @ F @ n) / (float(n @ F @ n) + 1e-8)
        s = {"fec": t - alpha * n, "ctr": t, "fixed": fixed}[displacement]
        b, c = a * float(s[y[i]] - p @ s), max(float(s @ F @ s), 0.0)
        h = max(b, 0.0)
        w = h / (h + 0.0025 * c + 2.5e-5)
        for name, value in zip(out, (w, b, c, alpha, a * (1 + w)), strict=True):
            out[name].append(value)
    return {name: np.array(values) for name, values in out.items()}


@given(groups(), forms, shifts)
def test_verpo_equals_whole_vectors_and_matrices(records, form, displacement) -> None:
    """Seen failing with the projection of `fec` left out of the cost."""
    expected = slow_verpo(records, form, displacement)
    credit = ac.assign(records, "verpo", divergence=form, displacement=displacement)
    for name in ("benefit", "fisher_cost"):
        size = np.maximum(1.0, expected["projection"] ** 2)
        assert (np.abs(credit.extras[name] - expected[name]) <= 1e-8 * size).all()
    sure = expected["benefit"] > 1e-4
    np.testing.assert_allclose(credit.extras["weights"][sure], expected["weights"][sure], rtol=1e-3)
    np.testing.assert_allclose(credit.tokens[sure], expected["tokens"][sure], rtol=1e-3)


def with_moments(records: list[Record], form: str, field: str) -> ac.Batch:
    """The batch with moments in place of logits, kept in float64 (a stored column is float32)."""
    logits, y = stacked(records)
    bare = [
        r | {"steps": [{k: v for k, v in s.items() if k not in NAMES} for s in r["steps"]]} for r in records
    ]
    moments = Column("token", losses.fisher_moments(*logits, y, divergence=form))
    batch = ac.Batch.from_records(bare)
    return batch._replace(columns={**batch.columns, field: moments})


def same(one: ac.Credit, two: ac.Credit, tolerance: float = 1e-9) -> None:
    for name in ("weights", "benefit", "fisher_cost", "projection"):
        np.testing.assert_allclose(one.extras[name], two.extras[name], rtol=tolerance, atol=tolerance)
    np.testing.assert_allclose(one.tokens, two.tokens, atol=tolerance)


@dear
@given(groups(), forms, shifts)
def test_logits_and_streamed_moments_agree(records, form, displacement) -> None:
    field = "fisher_moments_T" if form == "forward_kl" else "fisher_moments_reverse_T"
    how = {"divergence": form, "displacement": displacement}
    same(ac.assign(records, "verpo", **how), ac.assign(with_moments(records, form, field), "verpo", **how))


def test_moments_stored_in_float32_agree_to_their_digits() -> None:
    records = card_records()
    steps = [s for r in records for s in r["steps"]]
    logits = [np.array([x for s in steps for x in s[name]]) for name in NAMES]
    y = np.array([t for s in steps for t in s["tokens"]])
    bare = [r | {"steps": [{"tokens": [0, 1, 2]}]} for r in records]
    batch = ac.Batch.from_records(bare).with_column("fisher_moments_T", losses.fisher_moments(*logits, y))
    same(ac.assign(records, "verpo"), ac.assign(batch, "verpo"), 2e-4)


@dear
@given(groups())
def test_moments_of_either_form_are_taken_by_name_only(records) -> None:
    """A probe's forward moments must not stand in for the reverse ones unasked."""
    batch = with_moments(records, "reverse_kl", "fisher_moments_T")
    with pytest.raises(ac.AccreditError, match="no step has student_logits"):
        ac.assign(batch, "verpo", divergence="reverse_kl")
    named = ac.assign(batch, "verpo", divergence="reverse_kl", source="moments")
    same(ac.assign(records, "verpo", divergence="reverse_kl"), named)


@given(groups(), forms, st.sampled_from([0.0, 0.5, 1.0]))
def test_bounds_of_the_modulation(records, form, lam) -> None:
    credit = ac.assign(records, "verpo", divergence=form, lam=lam)
    base, weight = credit.extras["base"], credit.extras["weights"]
    assert ((weight >= 0) & (weight < 1)).all()
    assert (weight[credit.extras["benefit"] <= 0] == 0).all()
    assert (credit.tokens[weight == 0] == base[weight == 0]).all()
    assert (np.sign(credit.tokens) == np.sign(base)).all()
    assert (np.abs(credit.tokens) >= np.abs(base)).all()
    assert (np.abs(credit.tokens) <= (1 + lam) * np.abs(base)).all()


@given(groups(), forms)
def test_the_residual_is_fisher_orthogonal_to_presence_and_the_benefit_is_0_in_the_mean(
    records, form
) -> None:
    """Cov_p(s, n) = alpha eps_proj; E_{y~p}[s_y - E_p s] = 0."""
    logits, y = stacked(records)
    m = losses.fisher_moments(*logits, y, divergence=form).T
    cov, var = m[4] - m[0] * m[1], m[3] - m[1] ** 2
    alpha = cov / (var + 1e-8)
    np.testing.assert_allclose(cov - alpha * var, alpha * 1e-8, atol=1e-12)
    p, words = np.exp(losses.log_softmax(logits[0])), range(4)
    every = [losses.fisher_moments(*logits, np.full(y.size, v), divergence=form).T for v in words]
    lift = np.array([e[5] - alpha * e[6] - (e[0] - alpha * e[1]) for e in every])
    np.testing.assert_allclose((p.T * lift).sum(axis=0), 0, atol=1e-9)


@dear
@given(groups(), forms)
def test_swapped_evidence_turns_accepted_tokens_into_rejected_ones(records, form) -> None:
    swapped = [
        r | {"steps": [s | {NAMES[2]: s[NAMES[3]], NAMES[3]: s[NAMES[2]]} for s in r["steps"]]}
        for r in records
    ]
    one, two = (ac.assign(x, "verpo", divergence=form).extras for x in (records, swapped))
    np.testing.assert_allclose(one["benefit"], -two["benefit"], atol=1e-9)
    np.testing.assert_allclose(one["projection"], -two["projection"], atol=1e-6)
    assert not ((one["weights"] > 0) & (two["weights"] > 0)).any()


def test_a_stronger_presence_along_the_same_axis_changes_nothing_under_fec_but_something_under_fixed() -> (
    None
):
    moments = np.array([[0.1, 0.05, 0.04, 0.02, 0.015, 0.4, 0.1]])
    scale = np.array([1, 3, 1, 9, 3, 1, 3])

    def benefit(values: np.ndarray, displacement: str) -> float:
        batch = ac.Batch.from_records([record(f"r{i}", r, [0]) for i, r in enumerate((1, 1, 0, 0))])
        batch = batch.with_column("fisher_moments_T", np.repeat(values, 4, axis=0))
        return float(ac.assign(batch, "verpo", displacement=displacement).extras["benefit"][0])

    assert benefit(moments, "fec") == pytest.approx(benefit(moments * scale, "fec"), abs=1e-6)
    assert benefit(moments, "ctr") == benefit(moments * scale, "ctr")
    assert abs(benefit(moments, "fixed") - benefit(moments * scale, "fixed")) > 1e-3


def test_planted_nuisance_is_accepted_by_fixed_and_not_by_fec() -> None:
    """Evidence of any kind lifts word 3 (style); right evidence lifts word 1 besides (task)."""
    base = np.zeros(5)
    style, task = np.eye(5)[3] * 1.5, np.eye(5)[1] * 0.5
    logits = dict(zip(NAMES, (base, base, base + style + task, base + style - task), strict=True))
    words = [0, 1, 2, 3, 4]
    rows = {name: [row.tolist()] * 5 for name, row in logits.items()}
    records = [record(f"r{i}", r, words, **rows) for i, r in enumerate((1, 1, 0, 0))]
    weights = {d: ac.assign(records, "verpo", displacement=d).extras["weights"][:5] for d in ("fec", "fixed")}
    assert 3 == int(ac.assign(records, "verpo", displacement="fixed").extras["benefit"][:5].argmax())
    assert 1 == int(ac.assign(records, "verpo").extras["benefit"][:5].argmax())
    assert weights["fixed"][3] > 0.9
    assert weights["fec"][3] < 0.05
    assert weights["fec"][1] > 0.9


# -- evidence, loss terms, slips ----------------------------------------------------------------------


def test_evidence_needs_a_right_and_a_wrong_sibling() -> None:
    records = [
        record(f"r{i}", r, [1], **{k: [v.tolist()] for k, v in CARD.items()}) for i, r in enumerate((1, 0, 0))
    ]
    credit = ac.assign(records, "verpo")
    assert [False, True, True] == credit.extras[
        "has_evidence"
    ].tolist()  # the only success has no right sibling
    assert credit.extras["base"][0] == credit.tokens[0]
    assert credit.extras["benefit"][0] == 0
    given = ac.assign(records, "verpo", evidence="given")
    assert given.tokens[0] > credit.tokens[0]
    assert not ac.assign([r | {"reward": 0} for r in records], "verpo").tokens.any()


def test_steps_without_the_four_logits_keep_their_advantage() -> None:
    records = card_records()
    records[0]["steps"].append({"tokens": [1]})
    credit = ac.assign(records, "verpo")
    assert 0.5 == credit.tokens[3]
    assert 0 == credit.extras["aux_loss"][3]


def test_a_certain_student_has_no_direction() -> None:
    sure = {"student_logits": [[60.0, 0.0, 0.0]]} | {
        k: [v.tolist()] for k, v in CARD.items() if k != "student_logits"
    }
    records = [record(f"r{i}", r, [0], **sure) for i, r in enumerate((1, 1, 0, 0))]
    credit = ac.assign(records, "verpo")
    np.testing.assert_allclose(credit.tokens, [0.5, 0.5, -0.5, -0.5], atol=1e-12)


@given(groups(), forms, shifts)
def test_loss_terms_are_the_reference_losses(records, form, displacement) -> None:
    how = {"divergence": form, "displacement": displacement}
    credit = ac.assign(records, "verpo", use="combined", lambda_ref=0.2, lambda_evi=0.7, **how)
    (student, none, pos, neg), _ = stacked(records)
    one = np.ones(len(student))
    reference = losses.jsd(student, none, one, beta=0.0 if form == "forward_kl" else 1.0).loss_T
    task, presence = losses.directions(none, pos, neg, divergence=form)
    alpha = credit.extras["projection"][:, None]
    toward = {"fec": task - alpha * presence, "ctr": task, "fixed": presence + task / 2}[displacement]
    shown = credit.extras["weights"] * losses.evidence(student, toward, one, divergence=form).loss_T
    np.testing.assert_allclose(credit.extras["reference_loss"], reference, atol=1e-9)
    np.testing.assert_allclose(credit.extras["evidence_loss"], shown, rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(credit.extras["aux_loss"], 0.2 * reference + 0.7 * shown, rtol=1e-6, atol=1e-6)


def test_uses_turn_advantages_or_losses() -> None:
    am, lw, both = (ac.assign(card_records(), "verpo", use=use) for use in ("am", "lw", "combined"))
    assert lw.extras["base"].tolist() == lw.tokens.tolist()
    assert am.tokens.tolist() == both.tokens.tolist()
    assert not am.extras["evidence_loss"].any()
    assert lw.extras["evidence_loss"].any()
    np.testing.assert_allclose(am.extras["aux_loss"], 0.1 * am.extras["reference_loss"])


def test_the_uniform_controller_weighs_every_token_with_evidence() -> None:
    credit = ac.assign(card_records(), "verpo", controller="uniform")
    assert [1.0] * 12 == credit.extras["weights"].tolist()


@pytest.mark.parametrize(
    ("records", "params", "words"),
    [
        ([record("a", 1, [0], fisher_moments=[[0.0] * 7])], {"use": "lw"}, "needs the four logits"),
        ([record("a", 1, [0], fisher_moments=[[0.0] * 6])], {}, r"not \(tokens, 7\)"),
        (
            [record("a", 1, [0], fisher_moments=[[0.0] * 7])],
            {"source": "logits"},
            "no step has student_logits",
        ),
        ([record("a", 1, [0], student_logits=[[0.0, 1.0]])], {}, "no step has teacher_none_logits"),
        ([record("a", 1, [0])], {}, "fisher_moments"),
        (
            [{"id": "a", "group": "g", "reward": 1, "steps": [{k: [[0.0, 1.0]] for k in NAMES}]}],
            {},
            "token ids",
        ),
        ([record("a", 1, [2], **{k: [[0.0, 1.0]] for k in NAMES})], {}, "2 words"),
    ],
)
def test_slips_are_named(records, params, words) -> None:
    with pytest.raises(ac.AccreditError, match=words):
        ac.assign(records, "verpo", **params)
