"""Policies taught by credit: exact scores, equal budgets, the verb and its section of the page."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest

from accredit import metrics
from accredit.benchmark import Scale, bench, learning
from accredit.benchmark.curves import learn, learned_rows
from accredit.benchmark.equipment import Entry
from accredit.benchmark.journal import Cell, Place
from accredit.benchmark.learning import LESSONS, Lesson, courses, highest, score_of, taught
from accredit.benchmark.plan import PLAIN
from accredit.benchmark.structure import influence
from accredit.cli import run
from accredit.errors import DataError, ParamError
from accredit.views import bench_page
from accredit.views.sections import with_sections
from accredit.worlds import make, make_policy

TINY = Lesson("tiny", seeds=2, updates=12, calibrated=4)
GRPO, TRUTH = Entry("grpo", "grpo"), Entry("truth")


def test_the_optimum_of_a_chain_without_choices_but_the_key_is_one():
    assert highest(make("keydoor", seed=4)) == pytest.approx(1.0)


def test_the_optimum_is_no_less_than_any_policy_and_less_than_one_where_doors_slip():
    task = make("rooms", seed=0, rooms=6, slip=0.4)
    best = highest(task)
    assert best < 1
    for rate in (0.05, 0.5, 0.8):
        assert score_of(task, make_policy(task, rate).probs_NA) <= best + 1e-9


def test_the_score_equals_the_share_of_many_rollouts():
    from accredit.worlds import sample

    task = make("rooms", seed=2)
    drawn = sample(task, groups=500, group_size=8, success_rate=0.5, seed=7)
    share = float(drawn.batch.column("reward_R").values.mean())
    assert score_of(task, drawn.policy.probs_NA) == pytest.approx(share, abs=4 * math.sqrt(0.25 / 4000))


def test_one_update_equals_the_sum_of_scores_by_hand():
    """Plain loop over decisions: logits move by rate * credit * (1 - pi) and -pi, over rollouts."""
    task = make("keydoor", seed=1)
    start = make_policy(task, 0.5)
    lesson = Lesson("one", 1, updates=1, success_rate=0.5, calibrated=3)
    scorer = learning._batch(task, TRUTH, start, lesson, 0)
    logits = start.logits_NA.copy()
    rate = learning._rate(task, TRUTH, start, lesson)
    flat = scorer.sample.flat
    for credit, s, a in zip(scorer.truth_D, flat.node_D, flat.action_D, strict=True):
        for b in range(task.n_actions):
            logits[s, b] += rate / lesson.group_size * credit * ((b == a) - start.probs_NA[s, b])
    after = learning.softmax(logits, task.allowed_NA)
    curve = taught("keydoor", 1, TRUTH, lesson).curve
    assert curve[0][0] == pytest.approx(0.5, abs=1e-8)
    assert curve[1][0] == pytest.approx(score_of(task, after), abs=1e-8)
    assert curve[0][1] == scorer.batch.n_tokens


def test_the_truth_teaches_and_equal_seeds_give_equal_courses():
    curve = np.array(taught("rooms", 0, TRUTH, TINY).curve)
    assert (np.diff(curve[:, 0]) > 0).mean() > 0.5
    assert curve[-1, 0] > curve[0, 0]
    once, again = (taught("rooms", 0, GRPO, TINY).curve for _ in range(2))
    assert once == again


def test_the_scale_of_credit_does_not_matter(monkeypatch):
    plain = np.array(taught("rooms", 0, GRPO, TINY).curve)
    credit_of = learning.credit_of
    monkeypatch.setattr(learning, "credit_of", lambda *args: 7.0 * credit_of(*args))
    assert np.array(taught("rooms", 0, GRPO, TINY).curve) == pytest.approx(plain, abs=1e-8)


def test_a_blind_policy_moves_all_states_of_a_key_together():
    task = make("keydoor", seed=1, shows_key=False)
    assert task.blind
    start = make_policy(task, 0.5)
    scorer = learning._batch(task, GRPO, start, TINY, 0)
    single = scorer.gradient(learning.credit_of(scorer, GRPO, task.seed)).reshape(task.n_states, -1)
    tied = learning._gradient(task, GRPO, scorer)
    for s in range(task.n_states):
        same = [i for i in range(task.n_states) if task.keys[i] == task.keys[s]]
        assert tied[s] == pytest.approx(sum(single[i] for i in same), abs=1e-12)


def test_continuations_and_scored_tokens_are_charged():
    task = make("rooms", seed=0)
    start = make_policy(task, 0.2)
    for entry, extra in ((Entry("remax", "remax"), "continuations"), (Entry("hcapo", "hcapo"), "scored")):
        scorer = learning._batch(task, entry, start, TINY, 0)
        own = scorer.batch.n_tokens
        expected = own + (own / len(scorer.batch) if extra == "continuations" else own)
        assert learning._tokens(entry, scorer) == pytest.approx(expected)


def _courses(method, seeds, scores, tokens):
    curve = [*([s, t] for s, t in zip(scores, tokens, strict=False)), [scores[-1], 0.0]]
    return [Cell(Place("rooms", "learning", i, method), {"optimum": 1.0}, curve=curve) for i in range(seeds)]


def test_the_table_by_hand():
    """The dear course gets half of its updates at equal tokens, and so the worse half of its scores."""
    lesson = Lesson("hand", seeds=20, updates=2, groups=1, group_size=8)
    cells = [
        *_courses("grpo", 20, [0.0, 0.5, 0.95], [10, 10]),
        *_courses("dear", 20, [0.0, 1.0, 1.0], [20, 20]),
    ]
    rows = {row.method: row for row in learned_rows(cells, lesson)}
    grpo, dear = rows["grpo"], rows["dear"]
    assert (0.75, 0.75) == (grpo.metrics["regret"].value, grpo.metrics["token_regret"].value)
    assert (0.5, 1.0) == (dear.metrics["regret"].value, dear.metrics["token_regret"].value)
    assert (16.0, 20.0) == (grpo.metrics["rollouts"].value, grpo.metrics["tokens"].value)
    assert (8.0, 20.0) == (dear.metrics["rollouts"].value, dear.metrics["tokens"].value)
    assert ("better", "worse") == (dear.verdict("regret"), dear.verdict("token_regret"))
    assert list(rows) == ["dear", "grpo"]


def test_a_course_that_never_learns_counts_with_all_it_spent():
    cells = _courses("grpo", 3, [0.1, 0.1, 0.1], [10, 10])
    (row,) = learned_rows(cells, Lesson("hand", seeds=3, updates=2))
    assert (0.0, 2.0, 16.0, 20.0) == tuple(
        row.metrics[n].value for n in ("reached", "updates", "rollouts", "tokens")
    )


def test_a_killed_run_goes_on_and_another_plan_is_refused(tmp_path):
    whole = courses("keydoor", "grpo", TINY, out=tmp_path / "a")
    lines = (tmp_path / "a" / learning.JOURNAL).read_bytes().splitlines(keepends=True)
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / learning.JOURNAL).write_bytes(b"".join(lines[:3]) + b'{"torn')
    resumed = courses("keydoor", "grpo", TINY, out=tmp_path / "b")
    assert [c.curve for c in whole] == [tuple(map(tuple, c.curve)) for c in resumed]
    with pytest.raises(DataError, match=r"ACC840.*holds another job: lesson was"):
        courses("keydoor", "grpo", Lesson("tiny", 2, updates=13), out=tmp_path / "a")


def test_a_family_without_success_and_an_unknown_scale_are_refused():
    with pytest.raises(ParamError, match="no success rate"):
        courses("team", "grpo", TINY)
    with pytest.raises(ParamError, match="no scale"):
        learn("rooms", "grpo", "huge")


def test_a_method_that_cannot_run_keeps_its_reason():
    row = next(r for r in learn("rooms", "scad", TINY).rows if r.method == "scad")
    assert "needs agent" in row.unable


def test_the_verb_shows_the_table_and_puts_its_section_into_the_page(tmp_path, capsys, monkeypatch):
    monkeypatch.setitem(LESSONS, "smoke", TINY)
    page = tmp_path / "page.md"
    page.write_text("# Benchmark\n\nwords\n")
    args = ["bench", "--learning", "--families", "rooms", "--methods", "gigpo", "-o", str(tmp_path / "out")]
    assert run([*args, "--docs", str(page)]) == 0
    assert "regret, equal tokens" in capsys.readouterr().out
    once = page.read_text()
    assert "words" in once
    assert "| `gigpo` |" in once
    assert run([*args, "--docs", str(page), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert {"truth", "grpo", "gigpo"} == {r["method"] for r in document["rows"]}
    assert once == page.read_text()
    assert json.loads((tmp_path / "out" / "learning.json").read_text()) == document


def test_a_new_page_keeps_the_section_on_learning():
    section = "<!-- learning: begin, made by accredit bench --learning -->\nx\n<!-- learning: end -->"
    assert f"new\n\n{section}\n" == with_sections("new\n", f"old\n\n{section}\n")
    assert with_sections("new\n", "old\n") == "new\n"


def test_influence_is_nothing_where_nobody_listens_and_something_where_they_do():
    deaf, keen = (make("team", seed=3, agents=3, rho=rho) for rho in (0.0, 1.0))
    assert influence(deaf, make_policy(deaf).probs_NA) == pytest.approx(0, abs=1e-12)
    assert influence(keen, make_policy(keen).probs_NA) > 0.01


def test_influence_equals_the_sum_over_prefixes():
    """Three agents by enumeration: I of (a0, a1), then of (a1, a2) given a0, mean over the two."""
    task = make("team", seed=5, agents=3, choices=3)
    probs = make_policy(task).probs_NA
    node = {(): 0}
    for s in range(task.n_states):
        if "Agent 1." in task.keys[s] or "Agent 2." in task.keys[s]:
            heard = task.keys[s].split("Before you: ")[1].rstrip(".").split(", ")
            node[tuple(int(w.split()[1]) for w in heard)] = s

    def information(prefix):
        joint = [[probs[node[prefix], a] * probs[node[(*prefix, a)], b] for b in range(3)] for a in range(3)]
        rows, columns = [sum(r) for r in joint], [sum(c) for c in zip(*joint, strict=True)]
        return sum(
            p * math.log(p / (rows[a] * columns[b])) for a, r in enumerate(joint) for b, p in enumerate(r)
        )

    second = sum(probs[0, a] * information((a,)) for a in range(3))
    assert influence(task, probs) == pytest.approx((information(()) + second) / 2, abs=1e-10)


def test_the_bench_tells_influence_with_the_truth_and_peak_memory_with_each_method():
    found = bench("rooms,team", ["gigpo"], Scale("tiny", 3, 2, (PLAIN,)))
    team = found.board("team").row("truth")
    tasks = [make("team", seed=i) for i in range(3)]
    expected = np.mean([influence(t, make_policy(t, 0.5).probs_NA) for t in tasks])
    assert team.metrics["influence"].value == pytest.approx(expected)
    assert "influence" not in found.board("rooms").row("truth").metrics
    assert "influence" not in found.board("team").row("gigpo").metrics
    gigpo = found.board("rooms").row("gigpo")
    assert 10**4 < gigpo.memory < 10**8
    assert found.board("rooms").row("truth").memory is None
    watched = [c.place.seed for c in found.cells if c.memory is not None]
    assert {0} == set(watched)
    page = bench_page.page(found.to_dict())
    assert "| team | 0.0" in page
    assert "peak MB" in page


def test_variance_within_a_context_is_that_of_the_scaled_credit_over_the_truths():
    """Two states; credit twice the truth comes to scale 1/2, so both have the truth's own spread."""
    truth = np.array([1.0, -1.0, 0.5, 0.5])
    zero = np.zeros(4, int)
    facts = metrics.Facts(truth, zero, zero, state_S=np.array([0, 0, 1, 1]), action_S=np.array([0, 1, 0, 0]))
    found = metrics.measure(2 * truth, facts)["within"]
    assert found == pytest.approx(0.5 * (1.0 + 0.0) / np.var(truth))
