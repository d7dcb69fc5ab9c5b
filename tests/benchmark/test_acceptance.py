"""What the benchmark must show if it is right (specification of ground truth, "Acceptance")."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import norm

from accredit.benchmark import Scale, bench
from accredit.benchmark.equipment import entries
from accredit.benchmark.plan import TASKS, Setting
from accredit.benchmark.repeats import collect
from accredit.benchmark.uncertainty import holm
from accredit.methods import catalog
from accredit.worlds import Noise

BROADCAST = [card.id for card in catalog() if "broadcast" in card.tags]
NONCE = Setting("nonce", "no revisits", noise=Noise(nonce=True))
MANY = Setting("many", "independent batches", draws=100)


@pytest.mark.parametrize("family", TASKS)
def test_the_truth_scores_perfectly(smoke, family):
    found = smoke[0].board(family).row("truth").metrics
    assert found["nmse"].value == pytest.approx(0, abs=1e-12)
    for name in ("tau", "spearman", "sign", "sign_weighted", "alternatives"):
        assert found[name].value == pytest.approx(1, abs=1e-9), name


@pytest.mark.parametrize("family", TASKS)
def test_noise_scores_nothing(smoke, family):
    found = smoke[0].board(family).row("random").metrics
    assert found["nmse"].value > 0.98
    assert abs(found["tau"].value) < 0.06
    assert found["sign"].value == pytest.approx(0.5, abs=0.06)


@pytest.mark.parametrize("family", TASKS)
def test_a_broadcast_orders_nothing_within_a_rollout(smoke, family):
    for method in BROADCAST:
        found = smoke[0].board(family).row(method).metrics
        assert found["tau"].value == 0, method
        if "auroc" in found:
            assert found["auroc"].value == 0.5, method


def test_shared_states_beat_the_broadcast_in_rooms(smoke):
    board = smoke[0].board("rooms")
    for method in ("gigpo", "hgpo", "crbc", "graft", "graph-hca"):
        assert board.row(method).verdict == "better", method


def test_without_revisits_state_methods_are_broadcasts_or_silent():
    found = bench("rooms", "all", Scale("nonce", 3, 4, (NONCE,)))
    board = found.board("rooms", "nonce")
    plain = board.row("rloo").metrics["nmse"].value  # the unscaled broadcast
    assert board.row("gigpo").metrics["nmse"].value == pytest.approx(plain, abs=1e-9)
    grpo = board.row("grpo").metrics["nmse"].value
    for method in ("crbc", "gaca", "graph-hca", "price", "relace"):
        assert board.row(method).metrics["nmse"].value == pytest.approx(grpo, abs=1e-4), method
    for method in ("graft", "hgpo"):
        assert board.row(method).metrics["coverage"].value == 0, method


def _p_of(z):
    return holm([float(2 * norm.sf(abs(v))) for v in z])


@pytest.mark.parametrize("family", ["lock", "team"])
def test_the_gradient_of_the_leave_one_out_broadcast_is_unbiased(family):
    own = collect(family, MANY, 0, 2, entries(["rloo"]))["rloo"]
    gradients = np.stack(own.gradients)
    error = gradients.std(axis=0, ddof=1) / np.sqrt(len(gradients))
    judged = error > 1e-9
    # Cells that few batches visit are far from normal: judge sums along directions, too.
    rng = np.random.default_rng(0)
    directions = rng.standard_normal((20, gradients.shape[1]))
    off = (gradients - own.exact) @ directions.T
    z = off.mean(axis=0) / (off.std(axis=0, ddof=1) / np.sqrt(len(off)))
    assert min(_p_of(z).values()) > 0.01
    assert judged.any()
    assert own.quality().cosine_of_mean > own.quality().mean_cosine


@pytest.mark.parametrize("family", ["rooms", "lock"])
def test_credit_from_unbiased_values_is_unbiased_in_every_cell(family):
    methods = ["td", "gae:lam=1"]
    collected = collect(family, MANY, 0, 4, entries(methods))
    for method in methods:
        found = collected[method].moments(rescale=False)
        assert len(found.z) > 5, method
        # Rare cells have skewed means: 3 standard errors after Holm, as the specification says.
        assert min(_p_of(found.z).values()) > 2 * norm.sf(3), method


def test_a_broadcast_is_biased_step_by_step():
    own = collect("rooms", MANY, 0, 2, entries(["rloo"]))["rloo"]
    assert min(_p_of(own.moments(rescale=False).z).values()) < 1e-6
