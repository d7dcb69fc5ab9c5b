"""Drift between sampler and probe, alignment under shifts, and log-probs that must not be subtracted."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import accredit as ac
from accredit.data import Batch
from accredit.data.likeness import require_alike, unlike
from accredit.errors import DataError
from accredit.signals import FakeBackend, ProbeRequest, Span, alignment, checkup, drift
from tests.dear import dear
from tests.signals.asking import VOCABULARY, distribution, rollouts, said

SHARP = FakeBackend(VOCABULARY, sharpness=6.0)


def _sampled(n=12, temperature=1.0):
    """Rollouts that the fake model sampled itself."""
    rng, records = np.random.default_rng(0), []
    for r in range(n):
        prompt, tokens, logprobs = [int(x) for x in rng.integers(0, VOCABULARY, 3)], [], []
        for _ in range(6):
            p, _ = distribution(SHARP, prompt + tokens, temperature)
            tokens.append(int(rng.choice(VOCABULARY, p=p)))
            logprobs.append(float(np.log(p[tokens[-1]])))
        step = {"prompt_tokens": prompt, "tokens": tokens, "logprobs": logprobs}
        records.append({"id": f"r{r}", "group": "g", "reward": 1.0, "steps": [step]})
    return Batch.from_records(records)


def test_a_recording_of_the_same_model_does_not_drift_and_is_aligned():
    scored = ac.probe(_sampled(), SHARP)
    found = checkup(scored, SHARP)
    _, most, n = found.drift.overall()
    assert most < 1e-5
    assert 72 == n
    assert 0 == found.alignment.best
    assert () == found.findings()


@dear
@given(rollouts(), st.data())
def test_drift_is_the_mean_and_the_largest_difference_of_each_rollout(records, data):
    far = []
    expected = said(FakeBackend(VOCABULARY), records)[0]
    at = 0
    for record in records:
        mine = []
        for step in record["steps"]:
            step["logprobs"] = [data.draw(st.floats(-4, 0, width=32)) for _ in step["tokens"]]
            mine += [abs(x - y) for x, y in zip(step["logprobs"], expected[at:], strict=False)]
            at += len(step["tokens"])
        far += [(record["id"], len(mine), sum(mine) / len(mine), max(mine))] if mine else []
    scored = ac.probe(Batch.from_records(records), FakeBackend(VOCABULARY), "logprob")
    found = drift(scored, tolerance=1.0)
    assert tuple(name for name, *_ in far) == found.ids
    for i, (_, n, mean, most) in enumerate(far):
        assert n == found.tokens[i]
        np.testing.assert_allclose([mean, most], [found.mean[i], found.most[i]], rtol=1e-4, atol=1e-5)
    assert any(mean > 1 for _, _, mean, _ in far) == bool(found.findings())


def test_another_temperature_shows_as_drift_of_named_rollouts():
    scored = ac.probe(_sampled(temperature=3.0), SHARP)
    [finding] = drift(scored).findings()
    assert ("ACC758", "warning", 12) == (finding.code, finding.severity, finding.count)
    assert finding.where in scored.ids
    assert 2 == drift(scored, tolerance=float(np.sort(drift(scored).mean)[-3])).findings()[0].count


class _Displaced(FakeBackend):
    """A back end that shows the row of another token."""

    by = 0

    def rows(self, request, size):
        spans = tuple(Span(s.step, s.start + self.by, s.stop + self.by) for s in request.spans)
        ids = np.append(request.ids, [0, 0])
        yield from super().rows(ProbeRequest(ids, spans, request.want), size)


@pytest.mark.parametrize("by", [-1, 1])
def test_displaced_rows_are_found(by):
    backend = _Displaced(VOCABULARY, sharpness=6.0)
    backend.by = by
    found = alignment(_sampled(), backend)
    assert -by == found.best
    [finding] = found.findings()
    assert ("ACC759", "error") == (finding.code, finding.severity)
    assert f"shifted by {-by:+d}" in finding.message


@given(rollouts())
def test_shifted_means_are_those_of_plain_loops(records):
    fake, rows = FakeBackend(VOCABULARY), []
    seen = set()
    batch = Batch.from_records(records)
    for passage_ids, positions in _passages(records):
        if (passage_ids, positions) in seen:
            continue
        seen.add((passage_ids, positions))
        ids = list(passage_ids)
        late = [p for p in positions if p >= 2]
        rows += [[np.log(distribution(fake, ids[: p + s])[0][ids[p]]) for s in (-1, 0, 1)] for p in late]
    if rows and len(seen) <= 16:
        found = alignment(batch, fake)
        assert len(rows) == found.tokens
        np.testing.assert_allclose(np.mean(rows, 0), [found.logprob[s] for s in (-1, 0, 1)], rtol=1e-4)


def _passages(records):
    """Ids and policy positions of each stretch whose prompts go on from each other."""
    for record in records:
        ids, positions = [], []
        for step in record["steps"]:
            prompt = step["prompt_tokens"]
            if prompt[: len(ids)] != ids:
                yield tuple(ids), tuple(positions)
                positions = []
            ids = prompt + step["tokens"]
            positions += range(len(prompt), len(ids))
        yield tuple(ids), tuple(positions)


def test_a_batch_without_a_token_at_index_2_cannot_be_shifted():
    batch = Batch.from_records([{"id": "a", "reward": 1, "steps": [{"prompt_tokens": [1], "tokens": [2]}]}])
    with pytest.raises(DataError, match="index 2"):
        alignment(batch, SHARP)


# -- likeness -------------------------------------------------------------------------------------

COLD, WARM = FakeBackend().provenance.to_dict(), FakeBackend(temperature=2.0).provenance.to_dict()


def test_log_probs_of_unlike_origin_are_refused_unless_that_is_allowed_by_name():
    with pytest.raises(DataError, match=r"ACC754: a and b must not be subtracted.*temperature 1.0 and 2.0"):
        require_alike("a", COLD, "b", WARM)
    require_alike("a", COLD, "b", WARM, allow=("temperature",))
    require_alike("a", COLD, "b", COLD)


@pytest.mark.parametrize("name", ["temperature", "mode", "dtype", "backend", "weights"])
def test_each_of_what_must_be_alike_counts(name):
    assert {name: (COLD[name], "other")} == unlike(COLD, {**COLD, name: "other"})


def test_log_probs_of_heads_in_other_dtypes_are_refused():
    """The body is bfloat16 in both: 0.02 nat lie between them, more than many contexts move a token."""
    exact, fast = ({"dtype": "bfloat16", "head_dtype": kind} for kind in ("float32", "bfloat16"))
    with pytest.raises(DataError, match=r"ACC754.*head_dtype 'float32' and 'bfloat16'"):
        require_alike("a", exact, "b", fast)
    require_alike("a", exact, "b", {"dtype": "bfloat16"})


def test_what_a_recording_does_not_say_cannot_differ():
    assert {} == unlike({}, COLD)


def test_drift_of_columns_at_other_temperatures_is_refused():
    batch = _sampled()
    batch = batch.with_column("logprob_T", batch.logprob_T, {"temperature": 2.0})
    with pytest.raises(DataError, match="ACC754"):
        drift(ac.probe(batch, SHARP))


STEP = {"state": "s", "tokens": [1, 2]}


def _compared(**temperatures):
    """Rollouts with a policy's and a teacher's log-probs, made by fake models."""
    records = [{"id": str(i), "group": "g", "reward": i, "steps": [STEP]} for i in range(2)]
    batch = Batch.from_records(records)
    for seed, (field, temperature) in enumerate(temperatures.items()):
        made = FakeBackend(seed=seed, temperature=temperature).provenance.to_dict()
        batch = batch.with_column(field, [-1.0] * batch.n_tokens, made)
    return batch


def test_methods_refuse_log_probs_of_unlike_origin_and_take_those_of_another_teacher():
    ac.assign(_compared(logprobs=1.0, logprobs_teacher=1.0), "rlsd")
    apart = _compared(logprobs=1.0, logprobs_teacher=2.0)
    with pytest.raises(DataError, match=r"ACC754: logprob_T and logprobs_teacher_T.*temperature"):
        ac.assign(apart, "rlsd")
    unsaid = apart.with_column("logprobs_teacher", apart.logprobs_teacher_T)
    ac.assign(unsaid, "rlsd")
    ac.assign(apart, "grpo")
