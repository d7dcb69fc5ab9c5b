"""uniopsd: the card's example, a plain loop, history, reductions to gigpo, traps."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import accredit as ac
from accredit.methods._peer_fusion import lower_median
from tests.dear import dear
from tests.methods.teacher_oracles import Record, sample_std, slow_uniopsd, taught


def row(name: str, reward: float, state: str, gaps: tuple[float, float]) -> Record:
    step: Record = {"state": state, "logprobs": [-1.0, -1.0]}
    if any(gaps):
        step["logprobs_teacher"] = [-1.0 + d for d in gaps]
    return {"id": name, "group": "g", "reward": reward, "steps": [step]}


EXAMPLE = [
    row("1", 1, "a", (0, 0)),
    row("2", 0, "a", (0.2, 0.4)),
    row("3", 0, "a", (-0.3, -0.1)),
    row("4", 0, "b", (-0.2, -0.2)),
]


def test_card_example() -> None:
    credit = ac.assign(EXAMPLE, "uniopsd", rho_hat=0.4)
    extras = credit.extras
    near = lambda values: pytest.approx(values, abs=6e-5)  # noqa: E731
    assert near([0.75, -0.25, -0.25, -0.25]) == extras["episode_part"].tolist()
    assert near([2 / 3, -1 / 3, -1 / 3, 0]) == extras["step_part"].tolist()
    assert near([-0.0256, 0.2051, -0.1795, 0]) == extras["peer_part"].tolist()
    assert near([0.7692]) == extras["scale"].tolist()
    assert near([1, 0.68, 0.68, 0.68]) == extras["c"].tolist()
    assert near([0.6667, -0.1610, -0.2841, 0]) == extras["fused"].tolist()
    expected = [1.4167, 1.4167, -0.3964, -0.3949, -0.5625, -0.5490, -0.25, -0.25]
    assert near(expected) == credit.tokens.tolist()


def has_teacher(records: list[Record]) -> bool:
    return any("logprobs_teacher" in s for r in records for s in r["steps"])


rhos = st.sampled_from([0.0, 0.3, 0.6, 0.9])


@dear
@given(taught().filter(has_teacher), rhos)
def test_uniopsd_equals_a_plain_loop(records, rho) -> None:
    """Seen failing with numpy's median, and with the variance of d over all rows."""
    expected = slow_uniopsd(records, rho)
    credit = ac.assign(records, "uniopsd", rho_hat=rho)
    np.testing.assert_allclose(credit.extras["c"], expected["c"], atol=2e-4)
    np.testing.assert_allclose(credit.extras["fused"], expected["F"], atol=2e-3)
    np.testing.assert_allclose(credit.tokens, expected["tokens"], atol=2e-3)


@dear
@given(taught().filter(has_teacher), rhos, st.sampled_from([0.0, 0.2, 0.5]))
def test_bounds_of_the_fusion(records, rho, lam) -> None:
    credit = ac.assign(records, "uniopsd", rho_hat=rho, lam=lam)
    own, peer, fused = (credit.extras[k] for k in ("step_part", "peer_part", "fused"))
    assert (np.minimum(own, peer) - 1e-9 <= fused).all()
    assert (fused <= np.maximum(own, peer) + 1e-9).all()
    n = np.diff(credit.batch.token_start_S1)
    whole, fused_T = (np.repeat(x, n) for x in (credit.extras["episode_part"] + fused, fused))
    assert (np.abs(credit.tokens - whole) <= lam * 0.2 * np.abs(fused_T) + 1e-9).all()


@dear
@given(taught().filter(has_teacher), st.sampled_from(["rows", "rollouts"]))
def test_without_trust_and_token_share_it_is_gigpo(records, baseline) -> None:
    over = {"rows": "steps", "rollouts": "rollouts"}[baseline]
    expected = ac.assign(records, "gigpo", episode_stats=over)
    for how in ({"rho_hat": 0}, {"form": "decoupled", "rho_hat": 0.9}, {}):
        credit = ac.assign(records, "uniopsd", lam=0, baseline=baseline, **how)
        np.testing.assert_allclose(credit.tokens, expected.tokens, atol=1e-12)
        assert (credit.extras["c"] == 1).all()


@dear
@given(taught().filter(has_teacher), rhos)
def test_untaught_rows_get_both_environment_terms_exactly(records, rho) -> None:
    credit = ac.assign(records, "uniopsd", rho_hat=rho)
    untaught = credit.extras["has_peer"] == 0
    expected = credit.extras["episode_part"] + credit.extras["step_part"]
    np.testing.assert_allclose(credit.steps[untaught], expected[untaught], atol=1e-12)


@dear
@given(taught().filter(has_teacher))
def test_the_peers_part_sums_to_0_over_a_state_and_ignores_a_shift_of_it(records) -> None:
    plain = ac.assign(records, "uniopsd").extras["peer_part"]
    at = [(r["group"], s["state"]) for r in records for s in r["steps"]]
    for state in set(at):
        assert 0 == pytest.approx(sum(x for x, a in zip(plain, at, strict=True) if a == state), abs=1e-6)


def test_a_shift_of_the_gap_on_every_row_of_a_state_changes_no_contrast() -> None:
    shifted = [
        row(r["id"], r["reward"], "a", (g[0] + 0.3, g[1] + 0.3))
        for r, g in zip(EXAMPLE[:3], ((0.1, 0.1), (0.2, 0.4), (-0.2, -0.1)), strict=True)
    ]
    plain = [
        row(r["id"], r["reward"], "a", g)
        for r, g in zip(EXAMPLE[:3], ((0.1, 0.1), (0.2, 0.4), (-0.2, -0.1)), strict=True)
    ]
    one, two = (ac.assign(x, "uniopsd").extras["peer_part"] for x in (plain, shifted))
    np.testing.assert_allclose(one, two, atol=1e-6)


def test_scaling_rewards_scales_the_parts_and_leaves_the_weights() -> None:
    big = [r | {"reward": 100 * r["reward"]} for r in EXAMPLE]
    one, two = (ac.assign(x, "uniopsd", rho_hat=0.5).extras for x in (EXAMPLE, big))
    for name in ("episode_part", "step_part", "peer_part"):
        np.testing.assert_allclose(100 * one[name], two[name], rtol=1e-4, atol=1e-9)
    np.testing.assert_allclose(one["c"], two["c"], atol=1e-4)


def test_the_sign_of_the_whole_may_flip() -> None:
    """The card: A^E = .95, F = -1, lambda .5, w .8 turns -0.05 into +0.05."""
    taught_step = {"state": "a", "logprobs": [-2.0], "logprobs_teacher": [-1.0]}
    records = [
        {"id": "x", "group": "g", "reward": 1.0, "steps": [taught_step, {"state": "z"}]},
        {"id": "y", "group": "g", "reward": 2.0, "steps": [{"state": "a"}]},
        *({"id": f"n{i}", "group": "g", "reward": 0.0, "steps": [{"state": "b"}]} for i in range(77)),
    ]
    credit = ac.assign(records, "uniopsd", gamma=0.0)
    parts = [float(credit.extras[k][0]) for k in ("episode_part", "fused", "factor")]
    assert [0.95, -1.0, 0.8] == pytest.approx(parts)
    assert [0.05] == pytest.approx(credit.tokens.tolist())


# -- history ----------------------------------------------------------------------------------------


def walks(seed: int, n: int = 12) -> list[Record]:
    """Rollouts whose gaps follow their reward: the two estimates correlate."""
    rng = np.random.default_rng(seed)
    found = []
    for r in range(n):
        reward = float(rng.integers(0, 2))
        steps = []
        for _ in range(3):
            student = -rng.exponential(1, 4) - 1
            teacher = student + 0.3 * reward + rng.normal(0, 0.1, 4)
            steps.append(
                {
                    "state": str(rng.integers(0, 3)),
                    "logprobs": student.tolist(),
                    "logprobs_teacher": teacher.tolist(),
                }
            )
        found.append({"id": f"r{r}", "group": f"g{r % 2}", "reward": reward, "steps": steps})
    return found


def rho_of(credit: ac.Credit) -> tuple[float, int]:
    """Pearson's correlation over the rows with both estimates, and their number."""
    both = (credit.extras["has_step"] > 0) & (credit.extras["has_peer"] > 0)
    a, b = (credit.extras[k][both] for k in ("step_part", "peer_part"))
    return float(np.corrcoef(a, b)[0, 1]), int(both.sum())


def test_history_goes_from_batch_to_batch() -> None:
    """Seen failing with the average taken before the batch that it is used on."""
    first = ac.assign(walks(0), "uniopsd")
    rho, rows = rho_of(first)
    assert rho > 0.5
    assert (0.0, (pytest.approx(rho), rows)) == (first.extras["rho_hat"][0], first.state)
    second = ac.assign(walks(1), "uniopsd", state=first.state)
    bound = max(0.0, rho - 2.33 / np.sqrt(10 * rows))
    assert bound == pytest.approx(second.extras["rho_hat"][0])
    now, count = rho_of(second)
    assert (pytest.approx(0.9 * rho + 0.1 * now), count) == second.state
    same = ac.assign(walks(1), "uniopsd", history=list(first.state))
    assert second.tokens.tolist() == same.tokens.tolist()


def test_one_batch_alone_can_trust_itself_within_the_error() -> None:
    credit = ac.assign(walks(0), "uniopsd", rho_hat="batch")
    rho, rows = rho_of(credit)
    assert max(0.0, rho - 2.33 / np.sqrt(rows)) == pytest.approx(credit.extras["rho_hat"][0])
    assert credit.extras["rho_hat"][0] > 0
    assert () == credit.findings


def test_without_history_the_measured_correlation_is_told() -> None:
    credit = ac.assign(walks(0), "uniopsd")
    rho, rows = rho_of(credit)
    (finding,) = credit.findings
    half = 1.96 / np.sqrt(rows - 3)
    low, high = np.tanh(np.arctanh(rho) - half), np.tanh(np.arctanh(rho) + half)
    assert "ACC433" == finding.code
    assert f"it is {rho:.3g} (95 %: {low:.3g} to {high:.3g}) over {rows} rows" in finding.message


def test_a_batch_that_measures_nothing_leaves_the_history() -> None:
    assert None is ac.assign(EXAMPLE, "uniopsd").state  # A^S is equal on both rows
    assert (0.4, 9.0) == ac.assign(EXAMPLE, "uniopsd", history=(0.4, 9)).state
    (finding,) = ac.assign(EXAMPLE, "uniopsd").findings
    assert "cannot be measured" in finding.message


@pytest.mark.parametrize(
    ("params", "words"),
    [
        ({"history": (0.4, 9), "state": (0.4, 9)}, "give one of them"),
        ({"history": (0.4,)}, "history must be two numbers"),
        ({"history": (1.4, 9)}, "correlation in"),
        ({"state": "x"}, "history must be"),
        ({"rho_hat": "group"}, "rho_hat must be a number|rho_hat must be in"),
        ({"rho_hat": 1.5}, "rho_hat must be"),
    ],
)
def test_slips_are_named(params, words) -> None:
    with pytest.raises(ac.AccreditError, match=words):
        ac.assign(EXAMPLE, "uniopsd", **params)


# -- traps and edges --------------------------------------------------------------------------------


def test_the_lower_median_is_taken() -> None:
    assert [2.0, 3.0] == [lower_median(np.array(x)) for x in ([4.0, 1, 3, 2], [3.0, 1, 5])]


def test_equal_returns_give_no_precision_whatever_their_rounding() -> None:
    """0.1 + 0.2 and 0.3 differ in the last bit: their variance is 1e-33, their precision would be n / eps."""
    rows = [row("1", 0.1 + 0.2, "a", (0, 0)), row("2", 0.3, "a", (0.2, 0.4)), row("3", 0.3, "a", (-0.3, 0.1))]
    extras = ac.assign(rows, "uniopsd", rho_hat=0.5).extras
    assert not extras["has_step"].any()
    assert not extras["z_step"].any()


def test_a_state_visited_once_gets_nothing_from_state_or_peer() -> None:
    extras = ac.assign(EXAMPLE, "uniopsd", rho_hat=0.4).extras
    assert [0.0, 0.0, 0.0] == [extras[k][3] for k in ("step_part", "peer_part", "fused")]
    assert 0.68 == pytest.approx(extras["c"][3])  # a vacuum: c is the global level


def test_an_empty_step_has_no_gap_but_its_environment_credit() -> None:
    records = [*EXAMPLE, {"id": "5", "group": "g", "reward": 2.0, "steps": [{"state": "a"}]}]
    credit = ac.assign(records, "uniopsd", rho_hat=0.4)
    expected = credit.extras["episode_part"][4] + credit.extras["step_part"][4]
    assert expected == credit.steps[4] != 0
    assert 8 == credit.tokens.size


def test_groups_without_a_success_have_no_teacher_and_keep_gigpo() -> None:
    records = [row(n, 0, "a", (0, 0)) for n in "12"]
    with pytest.raises(ac.AccreditError, match="logprobs_teacher"):
        ac.assign(records, "uniopsd")
    both = [r | {"group": "h", "id": r["id"] * 2} for r in records] + EXAMPLE
    credit = ac.assign(both, "uniopsd", rho_hat=0.4)
    assert not credit.tokens[:4].any()


def test_a_group_of_one_row_gets_0_or_upstreams_raw_outcome() -> None:
    records = [*EXAMPLE, row("5", 1, "a", (0, 0)) | {"group": "alone"}]
    assert 0.0 == ac.assign(records, "uniopsd").tokens[-1]
    assert 1.0 == ac.assign(records, "uniopsd", compat="code").tokens[-1]


def test_the_token_share_decays_with_the_updates() -> None:
    def spread(**how: Any) -> float:
        credit = ac.assign(EXAMPLE, "uniopsd", rho_hat=0.4, **how)
        return float(np.abs(credit.parts["tokens"]).sum())

    seen = [spread(update=m) for m in (0, 25, 50, 100, 200)]
    np.testing.assert_allclose(seen, [seen[0], 0.75 * seen[0], 0.5 * seen[0], 0, 0], atol=1e-12)
    assert spread(update=5, decay=10) == pytest.approx(seen[2])


def test_token_forms_move_the_sum_of_both_environment_terms() -> None:
    """mult is rlsd on gigpo; add shifts by the centred gap; hybrid adds only where the advantage is 0."""
    records = walks(3)
    gigpo = "gigpo:episode_stats=steps"
    mult = ac.assign(records, "uniopsd", form="mult", lam=0.4)
    np.testing.assert_allclose(
        mult.tokens, ac.assign(records, "rlsd", base=gigpo, lam=0.4).tokens, atol=1e-12
    )
    base = ac.assign(records, gigpo).tokens
    gap = mult.extras["gap"]
    add = ac.assign(records, "uniopsd", form="add", lam=0.4).tokens
    expected = base + 0.4 * np.clip(gap - gap.mean(), -2, 2)
    np.testing.assert_allclose(add, expected, atol=1e-12)
    hybrid = ac.assign(records, "uniopsd", form="hybrid", lam=0.4).tokens
    np.testing.assert_allclose(hybrid, np.where(base == 0, expected, mult.tokens), atol=1e-12)


def test_modes_of_the_weight() -> None:
    def c(mode: str, **how: Any) -> np.ndarray:
        return ac.assign(EXAMPLE, "uniopsd", c_mode=mode, **how).extras["c"]

    assert [1, 0.5, 0.5, 0.5] == c("const").tolist()
    np.testing.assert_allclose(c("invvar"), [1, 0.5, 0.5, 0], atol=1e-6)
    raw = c("invvar_raw")
    own = 3 / sample_std([1, 0, 0]) ** 2
    peer = 1 / (0.7692307**2 * 0.01 / 2)
    np.testing.assert_allclose(raw, [1, own / (own + peer), own / (own + peer), 0], atol=1e-5)


def test_explain_names_every_term() -> None:
    found = ac.assign(EXAMPLE, "uniopsd", rho_hat=0.4).explain("2", 0)
    assert ["episode", "step", "peer", "tokens"] == [term.name for term in found.terms]
    assert -0.25 == pytest.approx(found.terms[0].value)
