"""asct: the card's numbers, the actor's centre, and everything that is no ordinary decision."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import accredit as ac
from accredit.errors import DataError, MissingSignal
from tests.dear import dear

Record = dict[str, Any]
Table = dict[str, dict[str, Any]]
CARD: Table = {
    "x": {"n": 4, "mean": 0.4, "p": 0.5},
    "y": {"n": 5, "mean": 0.7, "p": 0.3},
    "z": {"n": 3, "mean": 0.55, "p": 0.2},
}


def rollout(*steps: tuple[str, Any], **fields: Any) -> Record:
    told = [{"action": a, "search": table, "n_tokens": 1} for a, table in steps]
    return {"id": "a", "group": "g", "steps": told} | fields


def raw(*steps: tuple[str, Any], **params: Any) -> list[float]:
    found: list[float] = ac.assign([rollout(*steps)], "asct", standardise="none", **params).steps.tolist()
    return found


def test_card_example() -> None:
    assert pytest.approx([-0.12, 0.18, 0.03]) == raw(*((a, CARD) for a in "xyz"))
    credit = ac.assign([rollout(("x", CARD))], "asct", standardise="none")
    np.testing.assert_allclose(credit.extras["action_advantage"], [-0.12, 0.18, 0.03])
    assert (0.4, pytest.approx(0.52), 12.0) == tuple(credit.extras[n][0] for n in ("q", "v", "trials"))


tables = st.dictionaries(
    st.sampled_from("wxyz"),
    st.fixed_dictionaries(
        {
            "n": st.integers(0, 3),
            "mean": st.sampled_from([0.0, 1.0, 0.25, -2.0]),
            "p": st.sampled_from([0.0, 0.2, 0.7]),
        }
    ),
    max_size=4,
)


@st.composite
def searched(draw: st.DrawFn) -> list[Record]:
    found = []
    for r in range(draw(st.integers(1, 4))):
        steps = [
            {"action": draw(st.sampled_from("wxyz")), "search": draw(st.none() | tables), "n_tokens": 1}
            for _ in range(draw(st.integers(1, 3)))
        ]
        status = draw(st.sampled_from(["finished", "rejected"])) if r else "finished"
        found.append({"id": f"r{r}", "group": "g", "steps": steps, "status": status})
    found[0]["steps"][0]["search"] = CARD
    return found


def plain(step: Record, uniform: bool) -> float | None:
    """A by a loop over the table; None where there is no decision."""
    table = step["search"] or {}
    tried = {a: t for a, t in table.items() if t["n"] > 0}
    if step["action"] not in tried or len(table) < 2:
        return None
    mass = {a: 1.0 if uniform else t["p"] for a, t in tried.items()}
    if not sum(mass.values()):
        mass = dict.fromkeys(tried, 1.0)
    value = sum(mass[a] * t["mean"] for a, t in tried.items()) / sum(mass.values())
    return float(tried[step["action"]]["mean"] - value)


@dear
@given(searched(), st.booleans(), st.booleans())
def test_credit_is_that_of_plain_loops(records: list[Record], uniform: bool, batchwise: bool) -> None:
    """Seen failing with weights that are not renormalised over the actions that were tried."""
    options = {"baseline": "uniform" if uniform else "actor", "standardise": "batch" if batchwise else "none"}
    credit = ac.assign(records, "asct", missing="zero", **options)
    wanted = [
        None if record["status"] == "rejected" else plain(step, uniform)
        for record in records
        for step in record["steps"]
    ]
    decided = np.array([x for x in wanted if x is not None])
    centre, scale, spread = 0.0, 1.0, True
    if batchwise and decided.size:
        centre, scale, spread = decided.mean(), decided.std() + 1e-8, np.ptp(decided) > 1e-12
    expected = [0.0 if x is None or not spread else (x - centre) / scale for x in wanted]
    np.testing.assert_allclose(expected, credit.steps, rtol=1e-7, atol=1e-9)


@given(tables.filter(lambda t: any(x["n"] for x in t.values())))
def test_the_actors_mix_of_advantages_is_nothing(table: Table) -> None:
    credit = ac.assign([rollout((next(iter(table)), table))], "asct", standardise="none", missing="zero")
    told = credit.extras
    assert pytest.approx(0.0, abs=1e-12) == float(told["action_p"] @ told["action_advantage"])


@given(st.lists(st.tuples(st.floats(-2, 2), st.floats(-1, 1)), min_size=2, max_size=4), st.integers(0, 3))
def test_it_is_the_gradient_of_the_value_by_softmax_logits(drawn: list[tuple[float, float]], at: int) -> None:
    logits, q = (np.array(x) for x in zip(*drawn, strict=True))
    a = at % logits.size

    def probs(z: np.ndarray) -> np.ndarray:
        e = np.exp(z - z.max())
        return np.asarray(e / e.sum())

    p = probs(logits)
    table = {str(i): {"n": 1, "mean": float(q[i]), "p": float(p[i])} for i in range(q.size)}
    (advantage,) = raw((str(a), table))
    nudge = np.zeros(q.size)
    nudge[a] = 1e-5
    slope = (probs(logits + nudge) @ q - probs(logits - nudge) @ q) / 2e-5
    assert pytest.approx(slope, abs=1e-7) == p[a] * advantage


def test_one_legal_action_is_no_decision() -> None:
    records = [rollout(("x", {"x": {"n": 0, "mean": None, "p": 1.0}}), ("y", CARD), ("x", CARD))]
    credit = ac.assign(records, "asct")
    assert pytest.approx([0.0, 1.0, -1.0]) == credit.steps.tolist()  # outside the standardisation
    assert "one legal action" in credit.explain("a", 0).text()


def test_what_was_not_searched_is_an_error_or_nothing() -> None:
    untried = CARD | {"x": {"n": 0, "mean": None, "p": 0.5}}
    for hole in (None, {}, untried):
        with pytest.raises(DataError, match=r"ACC420.*rollout 'a' step 1"):
            raw(("y", CARD), ("x", hole))
        credit = ac.assign([rollout(("y", CARD), ("x", hole))], "asct", missing="zero", standardise="none")
        assert pytest.approx([0.18, 0.0]) == credit.steps.tolist()
        assert 1 == credit.fallbacks["not_searched"]


def test_p_is_renormalised_over_what_was_tried() -> None:
    untried = CARD | {"x": {"n": 0, "mean": None, "p": 0.5}}
    credit = ac.assign([rollout(("y", untried))], "asct", standardise="none")
    assert pytest.approx(0.7 - (0.3 * 0.7 + 0.2 * 0.55) / 0.5) == credit.steps[0]
    assert 1 == credit.fallbacks["some_untried"]


def test_an_illegal_action_gets_nothing_or_what_its_rollout_got() -> None:
    records = [rollout(("fly", CARD), ("y", CARD), reward=0.9)]
    credit = ac.assign(records, "asct", standardise="none")
    assert pytest.approx([0.0, 0.18]) == credit.steps.tolist()
    assert 1 == credit.fallbacks["illegal"]
    assert "not legal" in credit.explain("a", 0).text()
    credit = ac.assign(records, "asct", standardise="none", illegal="rollout")
    assert pytest.approx([0.9 - 0.52, 0.18]) == credit.steps.tolist()
    with pytest.raises(MissingSignal, match="reward"):
        raw(("fly", CARD), illegal="rollout")


def test_actions_without_a_chance_are_allowed_and_without_any_all_weigh_alike() -> None:
    zero = CARD | {"x": CARD["x"] | {"p": 0.0}}
    assert pytest.approx([0.4 - (0.3 * 0.7 + 0.2 * 0.55) / 0.5]) == raw(("x", zero))
    bare = {a: {"n": t["n"], "mean": t["mean"]} for a, t in CARD.items()}
    credit = ac.assign([rollout(("y", bare))], "asct", standardise="none")
    assert pytest.approx(0.7 - 0.55) == credit.steps[0]
    assert 1 == credit.fallbacks["no_probs"]
    with pytest.raises(DataError, match="have none"):
        raw(("y", CARD | {"x": bare["x"]}))


def test_equal_values_give_exactly_nothing_and_the_way_out_is_named() -> None:
    flat = {a: t | {"mean": 0.1 + 0.2} for a, t in CARD.items()}
    credit = ac.assign([rollout(("x", flat), ("y", flat))], "asct")
    assert [0.0, 0.0] == credit.steps.tolist()
    assert [("ACC521", "warning")] == [(f.code, f.severity) for f in credit.findings]
    assert "actor_rollout" in credit.findings[0].hint
    assert not ac.assign([rollout(("x", flat), ("y", CARD), ("x", CARD))], "asct").findings


@given(st.floats(-9, 9), st.lists(st.floats(0.01, 1), min_size=2, max_size=5))
def test_actions_that_are_worth_the_same_leave_no_rounding_behind(mean: float, weights: list[float]) -> None:
    """Seen failing where ties are not told from differences of rounding."""
    table = {str(i): {"n": 1, "mean": mean, "p": p} for i, p in enumerate(weights)}
    assert [0.0] == raw(("0", table))


def test_one_decision_has_no_deviation() -> None:
    credit = ac.assign([rollout(("y", CARD))], "asct")
    assert ([0.0], pytest.approx([0.18])) == (credit.steps.tolist(), credit.extras["raw"].tolist())


def test_signs_that_a_plain_mean_would_turn_are_reported() -> None:
    skewed = {"x": {"n": 1, "mean": 0.0, "p": 0.1}, "y": {"n": 1, "mean": 0.6, "p": 0.1}}
    skewed["z"] = {"n": 1, "mean": 0.8, "p": 0.8}
    credit = ac.assign([rollout(("y", skewed), ("x", skewed))], "asct", standardise="none")
    assert [1.0, 0.0] == credit.extras["flips"].tolist()
    (finding,) = credit.findings
    assert "ACC522" == finding.code
    assert "1 of 2 decisions (50.0%)" in finding.message


def test_the_error_is_that_of_independent_trials() -> None:
    table = {a: t | {"var": v} for (a, t), v in zip(CARD.items(), (0.1, 0.2, 0.3), strict=True)}
    credit = ac.assign([rollout(("y", table))], "asct", standardise="none")
    expected = 0.7**2 * 0.2 / 5 + 0.5**2 * 0.1 / 4 + 0.2**2 * 0.3 / 3
    assert pytest.approx(expected**0.5) == credit.extras["se"][0]
    assert "se" not in ac.assign([rollout(("y", CARD))], "asct").extras


@pytest.mark.parametrize(
    "odd", [3, {"y": 1}, {"y": {"n": -1, "mean": 0}}, {"y": {"n": 1}}, {"y": {"n": 1, "mean": 0, "p": -0.1}}]
)
def test_what_is_no_table_is_refused_with_its_place(odd: Any) -> None:
    with pytest.raises(DataError, match=r"ACC110.*rollout 'a' step 0"):
        raw(("y", odd))


def test_numbers_as_actions_are_found_by_their_text() -> None:
    table = {"1": {"n": 1, "mean": 1.0, "p": 0.5}, "2": {"n": 1, "mean": 0.0, "p": 0.5}}
    assert [0.5] == ac.assign([rollout((1, table))], "asct", standardise="none").steps.tolist()  # type: ignore[arg-type]
