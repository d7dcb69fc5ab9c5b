"""sdar and skill-sd: advantages of the base, a loss term beside them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given

import accredit as ac
from accredit import losses
from tests.dear import dear
from tests.methods.teacher_oracles import Record, gaps, logs, taught


def has_teacher(records: list[Record]) -> bool:
    return any("logprobs_teacher" in s and s["logprobs"] for r in records for s in r["steps"])


def flat(records: list[Record], name: str) -> np.ndarray:
    found = [s.get(name, s["logprobs"]) for r in records for s in r["steps"]]
    return np.array([x for part in found for x in part], np.float32).astype(float)


def taught_T(records: list[Record]) -> np.ndarray:
    return np.array(["logprobs_teacher" in s for r in records for s in r["steps"] for _ in s["logprobs"]])


@dear
@given(taught().filter(has_teacher))
def test_advantages_are_the_bases_and_never_the_teachers(records) -> None:
    for id in ("sdar", "skill-sd"):
        assert (
            ac.assign(records, "gigpo").tokens.tolist()
            == ac.assign(records, id, base="gigpo").tokens.tolist()
        )


@dear
@given(taught().filter(has_teacher))
def test_the_channel_is_the_reference_loss_of_taught_tokens(records) -> None:
    """Seen failing with the gate of the student instead of the gap."""
    for gate in losses.GATES:
        extras = ac.assign(records, "sdar", gate=gate, beta=3, top=0.3).extras
        weight = taught_T(records).astype(float)
        student, teacher = flat(records, "logprobs"), flat(records, "logprobs_teacher")
        expected = losses.sdar(student, teacher, weight, gate=gate, beta=3, top=0.3)
        np.testing.assert_allclose(extras["aux_loss"], expected.loss_T * weight, atol=1e-9)
        np.testing.assert_allclose(extras["aux_grad"], expected.grad_T, atol=1e-9)
        np.testing.assert_allclose(
            extras["gap"], [d for r in records for s in r["steps"] for d in gaps(s)], atol=1e-6
        )


@dear
@given(taught(old_logprobs=logs).filter(has_teacher))
def test_skill_sd_is_the_reference_loss_of_taught_tokens(records) -> None:
    credit = ac.assign(records, "skill-sd")
    names = ("logprobs", "logprobs_teacher", "old_logprobs")
    expected = losses.skill_sd(*(flat(records, n) for n in names), taught_T(records).astype(float))
    np.testing.assert_allclose(credit.extras["aux_loss"], expected.loss_T * taught_T(records), atol=1e-9)
    np.testing.assert_allclose(credit.extras["aux_grad"], expected.grad_T, atol=1e-9)
    assert 0 == credit.fallbacks["old_is_current"]


def test_without_old_log_probs_the_student_sampled() -> None:
    steps = [{"logprobs": [-1.0], "logprobs_teacher": [-1.5]}]
    records = [{"id": n, "group": "g", "reward": r, "steps": steps} for n, r in (("a", 1), ("b", 0))]
    credit = ac.assign(records, "skill-sd")
    assert 2 == credit.fallbacks["old_is_current"]
    k3 = np.exp(-0.5) - 1 + 0.5
    np.testing.assert_allclose(credit.extras["aux_loss"], [k3, k3])
    records[0]["steps"] = [steps[0] | {"old_logprobs": [-1.0]}]
    with pytest.raises(ac.AccreditError, match="'b' step 0 has no old_logprobs"):
        ac.assign(records, "skill-sd")


def test_the_card_names_the_loss_and_it_exists() -> None:
    cards = {card.id: card for card in ac.catalog()}
    assert "sdar" == cards["sdar"].loss
    asked = {card.loss for card in cards.values() if card.loss}
    assert asked <= set(losses.__all__)
