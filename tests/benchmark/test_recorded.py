"""Methods on recorded rollouts against a truth: numbers by plain loops, the page, the command line."""

from __future__ import annotations

import json

import numpy as np
import pytest
from scipy.stats import spearmanr

import accredit as ac
from accredit.benchmark.recorded import recorded
from accredit.cli import run
from accredit.errors import DataError
from accredit.store import save_truth
from accredit.views.sections import with_sections
from accredit.worlds import make, make_policy, sample
from accredit.worlds.truth import truth_rows


@pytest.fixture(scope="module")
def played():
    """Rollouts of three games with what a step could do and how likely, and their truth."""
    records, truths = [], []
    for seed in (1, 2, 3):
        task = make("rooms", seed)
        policy = make_policy(task, 0.4)
        found = sample(task, policy=policy, groups=1, group_size=6, seed=seed)
        for record in found.batch.records():
            for step in record["steps"]:
                n = task.keys.index(step["state"])
                legal = np.flatnonzero(task.allowed_NA[n])
                step["metadata"] = {
                    "commands": [task.actions[a] for a in legal],
                    "choice_logprobs": np.log(policy.probs_NA[n, legal]).tolist(),
                }
            records.append(record)
        truths.append(truth_rows(found.batch, found.truth, {"kind": "exact"}))
    batch = ac.Batch.from_records(records)
    whole = type(truths[0])(
        *(sum((getattr(t, name) for t in truths), ()) for name in ("rollout", "step")),
        *(
            {k: np.concatenate([getattr(t, name)[k] for t in truths]) for k in truths[0].numbers}
            for name in ("numbers", "known")
        ),
        *(sum((getattr(t, name) for t in truths), ()) for name in ("n", "source")),
        {"kind": "exact"},
    )
    return batch, whole


def test_numbers_are_those_of_plain_loops(played):
    batch, truth = played
    found = {row.method: row for row in recorded(batch, truth, ["grpo", "crbc"]).rows}
    credit, true = ac.assign(batch, "crbc").steps, truth.numbers["advantage"]
    ranks, signs, cosines = [], [], []
    step = 0
    games: dict[object, list[int]] = {}
    for r in range(len(batch)):
        for _ in batch.steps_of(r):
            games.setdefault(batch.group_R[r], []).append(step)
            step += 1
    for steps in games.values():
        ranks.append(spearmanr(credit[steps], true[steps]).statistic)
        clear = [s for s in steps if abs(true[s]) > 0.05]
        signs.append(np.mean([np.sign(credit[s]) == np.sign(true[s]) for s in clear]))
        cosines.append(plain_cosine(batch, steps, credit, true))
    row = found["crbc"]
    assert row.rank.value == pytest.approx(np.mean(ranks), abs=1e-12)
    assert row.sign.value == pytest.approx(np.mean(signs), abs=1e-12)
    assert row.cosine.value == pytest.approx(np.mean(cosines), abs=1e-9)
    assert row.rank.low < row.rank.value < row.rank.high
    assert found["truth"].rank.value == found["truth"].cosine.value == pytest.approx(1.0)
    assert row.rank.value > found["grpo"].rank.value


def plain_cosine(batch, steps, credit, true):
    """Cosine of two gradients, each a dictionary over (state, action)."""
    grads = []
    for values in (credit, true):
        grad: dict[tuple[str, str], float] = {}
        for s in steps:
            told = batch.column("metadata_S").item(s)
            state, action = batch.column("state_S").item(s), batch.column("action_S").item(s)
            for name, log in zip(told["commands"], told["choice_logprobs"], strict=True):
                move = values[s] * (float(name == action) - np.exp(log))
                grad[state, name] = grad.get((state, name), 0.0) + move
        grads.append(grad)
    a, b = (np.array([grad[k] for k in grads[0]]) for grad in grads)
    return a @ b / np.linalg.norm(a) / np.linalg.norm(b)


def test_a_method_that_lacks_a_signal_is_told_with_the_reason(played):
    rows = recorded(*played, ["td", "grpo"]).rows
    assert rows[-1].method == "td"
    assert "value" in rows[-1].unable


def test_truth_of_other_rollouts_is_refused(played):
    other = ac.Batch.from_records([{"id": "x", "group": "g", "reward": 1, "steps": [{"action": "a"}]}])
    with pytest.raises(DataError, match="none of the 1 steps: its rollouts are others"):
        recorded(other, played[1])


def test_the_section_takes_its_own_place_on_the_page(played, tmp_path):
    page = tmp_path / "page.md"
    page.write_text("# Benchmark\n\ntext\n")
    first = recorded(*played, ["grpo"], name="Games")
    first.save_page(page)
    recorded(*played, ["grpo", "crbc"], name="Games").save_page(page)
    recorded(*played, ["rloo"], name="Others").save_page(page)
    text = page.read_text()
    assert text.startswith("# Benchmark\n\ntext\n")
    assert [text.count(word) for word in ("Real rollouts: Games", "Real rollouts: Others", "`crbc`")] == [
        1,
        1,
        1,
    ]
    assert with_sections("# new", text).count("Real rollouts") == 2


def test_the_command_line_measures_recorded_rollouts(played, tmp_path, capsys):
    batch, truth = played
    rollouts = tmp_path / "rollouts.jsonl"
    rollouts.write_text("".join(json.dumps(r) + "\n" for r in batch.records()))
    where = save_truth(truth, tmp_path / "truth.jsonl")
    args = ["bench", "--recorded", str(rollouts), "--truth", str(where), "--methods", "crbc"]
    assert run([*args, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert [row["method"] for row in told["rows"]] == ["truth", "crbc", "grpo"]
    assert (told["games"], told["rollouts"]) == (3, 18)
    assert run(args[:3]) == 2


def test_methods_with_several_parameters_are_listed_with_commas(played, tmp_path, capsys):
    batch, truth = played
    rollouts = tmp_path / "rollouts.jsonl"
    rollouts.write_text("".join(json.dumps(r) + "\n" for r in batch.records()))
    where = save_truth(truth, tmp_path / "truth.jsonl")
    methods = "hgpo:mode=mean_norm,length_weight_alpha=2"
    args = ["bench", "--recorded", str(rollouts), "--truth", str(where), "--methods", methods, "--json"]
    assert run(args) == 0
    told = json.loads(capsys.readouterr().out)
    names = {row["method"]: row["unable"] for row in told["rows"]}
    assert names == {"truth": "", "hgpo:mode=mean_norm,length_weight_alpha=2": "", "grpo": ""}
