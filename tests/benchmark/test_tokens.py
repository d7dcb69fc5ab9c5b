"""The token benchmark: signals against enumeration, measures against loops, its run and its section."""

from __future__ import annotations

import itertools
import json

import numpy as np
import pytest
from scipy import stats

from accredit.benchmark import token_cells, tokens
from accredit.benchmark.equipment import Entry
from accredit.benchmark.journal import Cell, Place
from accredit.benchmark.token_cells import Rollouts, trials
from accredit.benchmark.token_signals import CONTROLS, PLANTED, Known, _planted, controlled, supplied, unmoved
from accredit.benchmark.tokens import ALL, TOKEN_SCALES, TokenScale, bench_tokens
from accredit.benchmark.uncertainty import Difference
from accredit.cli import run
from accredit.errors import DataError, ParamError
from accredit.worlds import make, sample
from accredit.worlds.dynamic import success_values
from accredit.worlds.families.toklm import RULES

TINY = TokenScale("tiny", 2, 2, (0.5,), ("brackets", "copy"))


@pytest.fixture(scope="module", params=RULES)
def known(request):
    """Strings of four tokens out of four: 256 of them, all enumerated by the tests."""
    task = make("toklm", seed=3, rule=request.param, vocabulary=4, length=4, tokens_per_step=2, mistakes=1)
    return Known(sample(task, groups=3, group_size=4, success_rate=0.4))


def _strings(known, probs):
    """Every string with its probability, its states, and whether it obeys the rule."""
    task = known.sample.task
    found = []
    for string in itertools.product(range(task.n_actions), repeat=task.horizon):
        node, chance, path = 0, 1.0, [0]
        for token in string:
            chance *= probs[node, token]
            edge = task.edge_start_M1[node * task.n_actions + token]
            node = int(task.edge_to_E[edge])
            path.append(node)
        found.append((string, chance, path, bool(task.success_N[node])))
    return found


def _written(known):
    """The string of each rollout."""
    return known.sample.flat.action_D.reshape(-1, known.sample.task.horizon).tolist()


def _conditioned(strings, prefix, token, success):
    """P(token | prefix, how it ends) by sums over strings; None where that end is impossible."""
    here = [(s, p) for s, p, _, won in strings if won == success and list(s[: len(prefix)]) == prefix]
    whole = sum(p for _, p in here)
    return sum(p for s, p in here if s[len(prefix)] == token) / whole if whole > 1e-12 else None


@pytest.mark.parametrize("success", [True, False])
def test_what_is_given_the_end_equals_the_sum_over_all_strings(known, success):
    strings = _strings(known, known.sample.policy.probs_NA)
    shown = known.of(known.given(success=success)).reshape(-1, known.sample.task.horizon)
    own = known.of(known.sample.policy.probs_NA).reshape(shown.shape)
    for r, string in enumerate(_written(known)):
        for t, token in enumerate(string):
            expected = _conditioned(strings, string[:t], token, success)
            assert shown[r, t] == pytest.approx(own[r, t] if expected is None else expected, abs=1e-9)


def test_teacher_and_counterfactual_prompt_are_the_policy_given_success_and_given_failure(known):
    strings = _strings(known, known.sample.policy.probs_NA)
    batch = supplied(known)
    failed = controlled(batch, known, "counterfactual")
    teacher = batch.column("logprobs_teacher_T").values.reshape(-1, known.sample.task.horizon)
    counter = failed.column("perturbed_logprobs.wording_T").values.reshape(teacher.shape)
    for r, string in enumerate(_written(known)):
        for shown, success in ((teacher, True), (counter, False)):
            expected = _conditioned(strings, string[:2], string[2], success)
            if expected is not None:
                assert shown[r, 2] == pytest.approx(np.log(max(expected, 1e-6)), abs=1e-5)


def test_logits_of_student_and_teachers_stand_in_the_order_of_the_token_ids(known):
    batch = supplied(known)
    chosen = batch.column("token_T").values
    rows = np.arange(chosen.size)
    for logits, told in (("teacher_logits_T", "logprobs_teacher_T"), ("student_logits_T", "logprob_T")):
        values = batch.column(logits).values
        np.testing.assert_allclose(values[rows, chosen], batch.column(told).values, atol=1e-5)


@pytest.mark.parametrize("harmless", [False, True])
def test_other_wording_moves_a_third_of_the_states_and_the_chance_of_success_of_none(known, harmless):
    task, probs = known.sample.task, known.sample.policy.probs_NA
    moved = _planted(known, harmless=harmless)
    before, after = (sum(p for _, p, _, won in _strings(known, x) if won) for x in (probs, moved))
    assert after == pytest.approx(before, abs=1e-12)
    values = success_values(task, moved).V[known.place_N, np.arange(task.n_states)]
    np.testing.assert_allclose(values, known.value_N, atol=1e-12)
    changed = (np.abs(moved - probs) > 1e-9).any(1)
    for place in range(task.horizon):
        here = known.place_N == place
        assert changed[here].sum() <= round(PLANTED * here.sum())
    assert changed.any()


def test_harmless_wording_moves_where_the_choice_matters_least():
    rich = Rollouts("copy", 0.5, 0, 1).known
    probs, spread = rich.sample.policy.probs_NA, np.ptp(rich.q_NA, axis=1)
    at = rich.place_N == 5
    changed = (np.abs(_planted(rich, harmless=True) - probs) > 1e-9).any(1)
    assert spread[at & changed].max() <= spread[at & ~changed].min() + 1e-12


def test_a_tilt_of_nothing_moves_nothing():
    probs = np.array([[0.2, 0.3, 0.5], [1.0, 0.0, 0.0]])
    q = np.array([[0.0, 0.4, 1.0], [0.7, 0.7, 0.7]])
    np.testing.assert_allclose(unmoved(probs, q, np.zeros((2, 3))), probs, atol=1e-12)


def test_odds_answers_and_their_support_equal_sums_over_all_strings(known):
    strings = _strings(known, known.sample.policy.probs_NA)
    memory = [m for _, m, _ in known.states]
    batch = supplied(known)
    odds, scores = (batch.column(f"{name}_logprobs_R") for name in ("candidate", "ref"))
    for r, string in enumerate(_written(known)):
        end = next(path[-1] for s, _, path, _ in strings if list(s) == string)
        assert batch.column("answer_R").item(r) == f"comes to {memory[end]}"
        support = [scores.item(r)["baseline"], *scores.item(r)["after_step"]]
        for b, prefix in enumerate((string[:0], string[:2], string)):
            here = [(p, path[-1], won) for s, p, path, won in strings if list(s[: len(prefix)]) == prefix]
            whole = sum(p for p, _, _ in here)
            win = sum(p for p, _, won in here if won) / whole
            same = sum(p for p, last, _ in here if memory[last] == memory[end]) / whole
            shown = [np.log(max(x, 1e-6)) for x in (win, 1 - win, same)]
            assert [*odds.item(r)[b], support[b][0][1]] == pytest.approx(shown, abs=1e-6)
            assert support[b][0][0] == 1.0


@pytest.mark.parametrize(
    ("control", "column", "right"),
    [
        ("shuffled drift", "perturbed_logprobs.wording_T", "perturbed_logprobs.wording_T"),
        ("shuffled teacher", "logprobs_teacher_T", "logprobs_teacher_T"),
    ],
)
def test_shuffling_deals_the_same_distances_out_anew_inside_each_rollout(known, control, column, right):
    batch = supplied(known)
    own = known.of(known.sample.policy.probs_NA)
    drift, dealt = (
        (b.column(name).values - np.log(np.maximum(own, 1e-6))).reshape(len(batch), -1)
        for b, name in ((batch, right), (controlled(batch, known, control), column))
    )
    np.testing.assert_allclose(np.sort(dealt, 1), np.sort(drift, 1), atol=1e-5)
    assert not np.allclose(dealt, drift, atol=1e-5)


def test_surprisal_stands_in_for_entropy_and_a_static_skill_knows_nothing_of_the_end(known):
    batch = supplied(known)
    swapped = controlled(batch, known, "surprisal")
    np.testing.assert_allclose(
        swapped.column("entropy_T").values, -np.log(known.of(known.sample.policy.probs_NA)), atol=1e-5
    )
    skilled = controlled(batch, known, "skill")
    first, second = (skilled.column(f"teacher_{who}_logits_T").values for who in ("pos", "neg"))
    assert not np.allclose(first, second)
    same = skilled.column("student_logits_T").values == batch.column("student_logits_T").values
    assert same.all()


def test_hidden_states_differ_by_noise_alone_where_the_states_are_the_same():
    rich = Rollouts("parity", 0.5, 0, 8)
    flat, hidden = rich.known.sample.flat, rich.batch.column("hidden_T").values
    after = rich.known.after_NA[flat.node_D, flat.action_D]
    within = [
        np.var(hidden[after == n], axis=0, ddof=1).mean()
        for n in set(after.tolist())
        if (after == n).sum() > 1
    ]
    assert np.mean(within) == pytest.approx(0.09, rel=0.2)
    assert np.var(hidden, axis=0).mean() > 0.5


def test_cut_points_lie_before_unsure_tokens_and_at_the_beginning(known):
    batch = supplied(known)
    unsure = (known.of(known.sample.policy.probs_NA) < 0.9).reshape(-1, 2)
    for s in range(batch.n_steps):
        expected = [i - 1 for i in range(2) if unsure[s, i] or (s % 2 == 0 and i == 0)]
        assert list(batch.column("cutpoints_S").values[s]) == expected
        assert len(batch.column("cutpoint_values_S").values[s]) == len(expected)


def test_measures_equal_plain_loops():
    rich = Rollouts("brackets", 0.5, 1, 3)
    credit = rich.credit(next(t for t in trials(["eapo"]) if t.entry.label == "eapo"))
    found = rich.score(credit)
    truth = rich.known.sample.truth.token_advantage
    reward = rich.batch.column("reward_R").values
    by = {"": [], "_success": [], "_failure": []}
    for r, won in enumerate(reward > 0.5):
        own = slice(12 * r, 12 * r + 12)
        one = stats.spearmanr(credit[own], truth[own])[0], stats.pearsonr(credit[own], truth[own])[0]
        by[""].append(one)
        by["_success" if won else "_failure"].append(one)
    for name, values in by.items():
        assert found["spearman" + name] == pytest.approx(np.mean(values, axis=0)[0], abs=1e-9)
        assert found["pearson" + name] == pytest.approx(np.mean(values, axis=0)[1], abs=1e-9)
    pooled = [stats.spearmanr(credit[g : g + 96], truth[g : g + 96])[0] for g in range(0, credit.size, 96)]
    assert found["spearman_group"] == pytest.approx(np.mean(pooled), abs=1e-9)
    failed = [t for t in range(truth.size) if abs(truth[t]) > 0.1 and reward[t // 12] < 0.5]
    right = [credit[t] * truth[t] > 0 for t in failed]
    assert found["sign_failure"] == pytest.approx(np.mean(right), abs=1e-12)


def test_the_truth_is_right_everywhere_and_grpo_says_nothing_inside_a_rollout():
    found = bench_tokens(["opsd"], TINY)
    assert {1.0} == {found.row("truth").metrics[n].value for n in ("spearman", "pearson_group", "sign")}
    assert found.row("grpo").metrics["spearman"].value == 0.0
    assert found.row("opsd").metrics["spearman"].value > 0.95
    assert found.row("opsd, static skill").metrics["spearman"].value < 0.3
    control = found.row("opsd, static skill").against["spearman"]
    assert (control.value, control.n) == (
        pytest.approx(
            found.row("opsd, static skill").metrics["spearman"].value
            - found.row("opsd").metrics["spearman"].value
        ),
        4,
    )


def test_a_run_goes_on_from_its_journal_and_equals_one_in_memory(tmp_path, monkeypatch):
    whole = bench_tokens(["hapo"], TINY)
    bench_tokens(["hapo"], TINY, out=tmp_path)
    monkeypatch.setattr(tokens, "token_cells", lambda task, asked: [1 / 0 for _ in asked])
    again = bench_tokens(["hapo"], TINY, out=tmp_path)
    numbers = {c.place: c.metrics for c in whole.cells}
    assert numbers == {c.place: c.metrics for c in again.cells}
    assert json.loads((tmp_path / "tokens.json").read_text()) == json.loads(json.dumps(again.to_dict()))
    with pytest.raises(DataError):
        bench_tokens(["hapo"], TINY, out=tmp_path, seed=1)


def test_a_method_that_cannot_run_keeps_its_reason():
    row = bench_tokens(["scad"], TINY).row("scad")
    assert "agent" in row.unable
    assert not row.metrics


def test_an_unknown_scale_is_an_error():
    with pytest.raises(ParamError, match="no scale"):
        bench_tokens(scale="huge")


def _cell(rule, seed, method, value):
    names = {
        "spearman_failure": value,
        "gradient_failure": -value,
        "spearman_group": value,
        "gradient": value,
    }
    return Cell(Place(f"toklm {rule}", "0.5", seed, method), names)


def test_the_one_with_the_higher_number_on_failures_is_nearer_and_equals_are_not_told_apart():
    cells = [_cell("copy", s, "hapo", 0.1 + s / 1000) for s in range(12)]
    cells += [_cell("copy", s, "eapo", 0.4 + s / 900) for s in range(12)]
    cells += [_cell("parity", s, m, 0.2 + s / 500) for s in range(12) for m in ("hapo", "eapo")]
    found = {(c.rule, c.measure): c for c in tokens._contrasts(cells)}
    assert found["copy", "spearman_failure"].nearer == "eapo"
    assert found["copy", "gradient_failure"].nearer == "hapo"
    assert found["parity", "spearman_failure"].nearer == ""
    assert found[ALL, "spearman_failure"].apart.n == 24


def test_verdicts_against_grpo_are_of_the_corrected_p():
    zero, low = Difference(0.1, 0.0, 0.2, 0.01, 9), {"gradient": 0.2}
    row = tokens.TokenRow(ALL, "0.5", "m", "m", "method", "", 9, {}, {"gradient": zero}, low)
    assert (row.verdict("gradient"), row.verdict("spearman")) == ("same", "")
    sure = tokens.TokenRow(ALL, "0.5", "m", "m", "method", "", 9, {}, {"gradient": zero}, {"gradient": 0.04})
    assert sure.verdict("gradient") == "better"


def test_trials_are_the_token_methods_with_the_controls_of_those_that_are_asked_for():
    every = {t.entry.label: t for t in trials()}
    assert {"grpo", "hapo", "eapo", "scapo", "shear", "opsd", "verpo", "siop", "entropy"} <= set(every)
    assert {t.control for t in every.values() if t.control} == set(CONTROLS)
    assert "truth-by-key" not in every
    few = [t.entry.label for t in trials(["shear"])]
    assert few == ["truth", "random", "entropy", "grpo", "shear", "shear, cosine"]
    assert all(t.note for t in every.values() if t.kind == "control")
    assert set(token_cells.TOKEN_MEASURES) >= set(tokens.CONTRASTED)


def test_the_verb_puts_its_section_into_the_page_and_leaves_the_others(tmp_path, capsys, monkeypatch):
    monkeypatch.setitem(TOKEN_SCALES, "smoke", TINY)
    page = tmp_path / "page.md"
    other = "<!-- learning: begin, made by accredit bench --learning -->\n\nx\n\n<!-- learning: end -->"
    page.write_text(f"# Benchmark\n\nwords\n\n{other}\n")
    args = ["bench", "--tokens", "--methods", "hapo,eapo", "-o", str(tmp_path / "out"), "--docs", str(page)]
    assert run(args) == 0
    assert "Spearman, failures" in capsys.readouterr().out
    once = page.read_text()
    assert "words" in once
    assert other in once
    assert "### hapo against eapo on failures" in once
    assert run([*args, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["schema"] == "accredit.tokens/1"
    assert once == page.read_text()
    assert once.count("## Tokens") == 1


@pytest.mark.parametrize("more", [["--learning"], ["--families", "rooms"]])
def test_the_verb_refuses_what_does_not_go_with_tokens(more, capsys):
    assert run(["bench", "--tokens", *more]) == 2
    assert "--tokens" in capsys.readouterr().err


def test_an_entry_of_a_base_is_given_to_the_method():
    plain, over = (
        Rollouts("copy", 0.5, 0, 2).credit(token_cells.Trial(Entry("x", "hapo", params)))
        for params in ({}, {"base": "gigpo"})
    )
    assert not np.allclose(plain, over)
