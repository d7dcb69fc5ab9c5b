"""opsd: the teacher's log-ratio, its baselines, its divergence channel."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import accredit as ac
from accredit import losses
from tests.dear import dear
from tests.methods.teacher_oracles import Record, gaps, mean, taught


def flat(records: list[Record]) -> list[float]:
    return [d for record in records for step in record["steps"] for d in gaps(step)]


def one(name: str = "a", **signals) -> Record:
    return {"id": name, "group": "g", "steps": [{"state": "s", **signals}]}


@dear
@given(taught())
def test_credit_is_the_gap_and_0_without_a_teacher(records) -> None:
    found = ac.assign(records, "opsd") if any_taught(records) else None
    if found is not None:
        np.testing.assert_allclose(found.tokens, flat(records), atol=1e-6)


def any_taught(records: list[Record]) -> bool:
    return any("logprobs_teacher" in step for record in records for step in record["steps"])


@dear
@given(taught(), st.sampled_from(["anchor", "group", "batch"]))
def test_a_baseline_is_the_mean_of_the_taught_tokens_of_its_level(records, centre) -> None:
    """Seen failing with the untaught zeros in the mean."""
    if not any_taught(records):
        return
    rows = [
        ({"anchor": (r["group"], s["state"]), "group": r["group"], "batch": 0}[centre], s)
        for r in records
        for s in r["steps"]
    ]
    expected = []
    for level, step in rows:
        same = [d for at, s in rows if at == level and "logprobs_teacher" in s for d in gaps(s)]
        expected += [d - mean(same) if "logprobs_teacher" in step else 0.0 for d in gaps(step)]
    np.testing.assert_allclose(ac.assign(records, "opsd", centre=centre).tokens, expected, atol=1e-6)


def logit_records(seed: int, n: int = 3, words: int = 6) -> list[Record]:
    rng = np.random.default_rng(seed)
    return [
        one(
            f"r{r}",
            tokens=rng.integers(0, words, n).tolist(),
            student_logits=rng.normal(size=(n, words)).round(3).tolist(),
            teacher_logits=rng.normal(size=(n, words)).round(3).tolist(),
        )
        for r in range(2)
    ]


def test_logits_give_the_gap_at_the_temperature_and_the_divergence_beside_it() -> None:
    records = logit_records(0)
    credit = ac.assign(records, "opsd", temperature=1.3, beta=0.3, top_k=2)
    student, teacher = (
        np.array([x for r in records for s in r["steps"] for x in s[f"{who}_logits"]])
        for who in ("student", "teacher")
    )
    tokens = np.array([x for r in records for s in r["steps"] for x in s["tokens"]])
    row = np.arange(tokens.size)
    both = [losses.log_softmax(x, 1.3)[row, tokens] for x in (teacher, student)]
    np.testing.assert_allclose(credit.tokens, both[0] - both[1], atol=1e-6)
    expected = losses.jsd(student, teacher, np.ones(tokens.size), beta=0.3, temperature=1.3, top_k=2).loss_T
    np.testing.assert_allclose(credit.extras["aux_loss"], expected, atol=1e-6)


def test_log_probs_and_logits_agree() -> None:
    records = logit_records(1)
    for record in records:
        for step in record["steps"]:
            row = np.arange(len(step["tokens"]))
            for name, who in (("logprobs", "student"), ("logprobs_teacher", "teacher")):
                log = losses.log_softmax(np.array(step[f"{who}_logits"]))
                step[name] = log[row, step["tokens"]].tolist()
    by_logits, by_logs = (ac.assign(records, "opsd", source=s).tokens for s in ("logits", "logprobs"))
    np.testing.assert_allclose(by_logits, by_logs, atol=1e-6)
    assert "aux_loss" not in ac.assign(records, "opsd", source="logprobs").extras


def test_the_probes_divergence_is_the_second_channel_where_there_are_no_logits() -> None:
    credit = ac.assign([one(logprobs=[-1.0], logprobs_teacher=[-1.0], jsd=[0.25])], "opsd")
    assert [0.25] == credit.extras["aux_loss"].tolist()
    assert [0.0] == credit.tokens.tolist()


def test_the_divergence_is_0_where_a_step_has_no_logits() -> None:
    records = logit_records(2)
    records[1]["steps"][0] = {"state": "s", "tokens": [1, 2]}
    credit = ac.assign(records, "opsd")
    assert not credit.extras["aux_loss"][3:].any()
    assert not credit.tokens[3:].any()
    assert credit.extras["aux_loss"][:3].all()


def test_the_mean_gap_is_told_with_its_interval_unless_a_mean_is_subtracted() -> None:
    records = [one(n, logprobs=[-1.0], logprobs_teacher=[x]) for n, x in (("a", -1.2), ("b", -1.4))]
    (finding,) = ac.assign(records, "opsd").findings
    assert "ACC431" == finding.code
    assert "-0.3 +/- 0.2 nat (95 %, 2 rollouts)" in finding.message
    assert () == ac.assign(records, "opsd", centre="batch").findings


def test_rejected_rollouts_get_0_and_rewards_do_not_matter() -> None:
    records = [one(n, logprobs=[-1.0], logprobs_teacher=[-0.5]) for n in "ab"]
    records[1]["status"] = "rejected"
    credit = ac.assign(records, "opsd")
    assert [0.5, 0.0] == credit.steps.tolist() == credit.tokens.tolist()


def test_lost_prefixes_are_counted() -> None:
    records = [one(logprobs=[-1.0], logprobs_teacher=[-1.0], prefix_lost=True)]
    credit = ac.assign(records, "opsd")
    assert {"prefix_lost": 1} == credit.fallbacks
    assert "ACC432" in [f.code for f in credit.findings]
    with pytest.raises(ac.AccreditError, match="prefix_lost"):
        ac.assign(records, "opsd", strict=True)


@pytest.mark.parametrize(
    ("records", "params", "words"),
    [
        ([one(logprobs=[-1.0])], {}, "logprobs_teacher"),
        ([one(logprobs_teacher=[-1.0])], {}, "logprobs"),
        (
            [one(logprobs=[-1.0], logprobs_teacher=[-1.0]), one("b", logprobs_teacher=[-1.0])],
            {},
            "'b' step 0 has no logprobs",
        ),
        ([one(student_logits=[[0.0, 1.0]], teacher_logits=[[0.0, 1.0]])], {}, "token ids"),
        ([one(tokens=[2], student_logits=[[0.0, 1.0]], teacher_logits=[[0.0, 1.0]])], {}, "2 words"),
    ],
)
def test_slips_are_named(records, params, words) -> None:
    with pytest.raises(ac.AccreditError, match=words):
        ac.assign(records, "opsd", **params)


def test_a_step_with_an_infinite_log_prob_counts_as_not_taught() -> None:
    records = [one(n, logprobs=[-1.0], logprobs_teacher=[x]) for n, x in (("a", -math.inf), ("b", -0.5))]
    batch = ac.Batch.from_records(records)
    assert ["ACC306"] == [f.code for f in batch.findings]
    assert [0.0, 0.5] == ac.assign(batch, "opsd").tokens.tolist()
