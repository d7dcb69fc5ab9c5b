"""Adapters on the real classes: verifiers, Tinker cookbook, ART, torchrl.  All on a CPU, no network."""

from __future__ import annotations

import numpy as np
import pytest

import accredit as ac
from accredit.adapters import art as art_adapter
from accredit.adapters import export
from accredit.adapters import tinker as tinker_adapter
from accredit.adapters import torchrl as torchrl_adapter
from accredit.adapters import verifiers as verifiers_adapter
from accredit.errors import DataError, MissingSignal
from tests.adapters.made import MUTATIONS, recorded, spoiled, tensors_of

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]

RECORDS = recorded(rows=False)
ECHO = {"ACC870", "ACC871", "ACC872", "ACC873"}


# -- verifiers ----------------------------------------------------------------------------------


def trace_of(record, *, forked=False):
    """A trace of user and assistant turns; forked: the last answer has a sibling."""
    from verifiers.v1 import Trace
    from verifiers.v1.graph import MessageNode
    from verifiers.v1.trace import AgentInfo, Reward, TraceTask, WireAgentConfig, WireTaskData
    from verifiers.v1.types import AssistantMessage, UserMessage

    nodes = []
    for step in record["steps"]:
        parent = len(nodes) - 1 if nodes else None
        ids = list(step["context_tokens"])
        nodes.append(
            MessageNode(
                parent=parent, message=UserMessage(content="?"), token_ids=ids, mask=[False] * len(ids)
            )
        )
        scaffold, sampled = [3, 4], list(step["tokens"])
        nodes.append(
            MessageNode(
                parent=len(nodes) - 1,
                message=AssistantMessage(content="go"),
                sampled=True,
                token_ids=scaffold + sampled,
                mask=[False] * 2 + [True] * len(sampled),
                logprobs=[-0.5] * len(sampled),
            )
        )
    if forked:
        nodes.append(
            nodes[-1].model_copy(update={"token_ids": [3, 4, 70, 71], "mask": [False] * 2 + [True] * 2})
        )
        nodes[-1].logprobs = [-0.1, -0.2]
    return Trace(
        id=record["id"],
        task=TraceTask(type="T", data=WireTaskData(idx=0, prompt=None), key=record["group"]),
        agent=AgentInfo(config=WireAgentConfig()),
        nodes=nodes,
        rewards={"solved": Reward(score=record["reward"])},
    )


def state_of(trace, i):
    return f"s{i // 2}"


def test_verifiers_nodes_get_the_credit_of_their_steps():
    traces = [trace_of(r) for r in RECORDS]
    verifiers_adapter.assign_traces(traces, "gigpo", state=state_of)
    expected = ac.assign(RECORDS, "gigpo").tokens_by_rollout()
    for trace, steps in zip(traces, expected, strict=True):
        assert [list(v) for v in steps] == [n.advantages for n in trace.nodes if n.sampled]
        assert [None] * 3 == [n.advantages for n in trace.nodes if not n.sampled]


def test_verifiers_own_branches_spread_the_credit_to_the_right_positions():
    traces = [trace_of(r, forked=True) for r in RECORDS]
    verifiers_adapter.assign_traces(traces, "gigpo", state=state_of)
    for trace in traces:
        assert 2 == len(trace.branches)
        for branch in trace.branches:
            given = dict(zip(branch.token_ids, branch.advantages, strict=True))
            for node in branch.nodes:
                sampled = [t for t, m in zip(node.token_ids, node.mask, strict=True) if m]
                assert [given[t] for t in sampled] == (node.advantages or [])


def test_a_forked_trace_is_one_rollout():
    traces = [trace_of(r, forked=True) for r in RECORDS]
    credit = verifiers_adapter.assign_traces(traces, "grpo")
    assert 8 == len(credit.batch)
    assert 4 == len(credit.batch.steps_of(0))


def test_prime_rl_gets_one_list_a_trace():
    taken = {}
    traces = [trace_of(r) for r in RECORDS]
    verifiers_adapter.assign_traces(
        traces, "rloo", assign_advantages=lambda trace, values: taken.update({trace.id: values})
    )
    expected = ac.assign(RECORDS, "rloo")
    assert [v for r in RECORDS for v in taken[r["id"]]] == expected.tokens.tolist()
    assert all(n.advantages is None for t in traces for n in t.nodes)


def test_unscored_and_failed_traces_are_told_apart():
    trace = trace_of(RECORDS[0])
    trace.rewards = {"solved": None}
    trace.is_timeout = True
    record = verifiers_adapter.trace_record(trace)
    assert "reward" not in record
    assert "truncated" == record["status"]


@pytest.mark.parametrize(("kind", "seed"), MUTATIONS)
def test_spoiled_traces_are_caught(kind, seed):
    records = recorded(seed, rows=False)
    credit = ac.assign([verifiers_adapter.trace_record(trace_of(r)) for r in records], "grpo")
    verifiers_adapter.write_traces(credit, [trace_of(r) for r in records])
    traces = [trace_of(r) for r in records]
    own = traces[seed % len(traces)]
    node = own.nodes[1 + 2 * (seed % 3)]
    ids, mask = node.token_ids, node.mask
    if kind == "shifted":
        (node.token_ids, node.mask) = (ids[1:] + ids[:1], mask) if seed % 2 else (ids, mask[1:] + mask[:1])
    elif kind == "dropped" and seed % 2:
        traces.pop()
    elif kind == "dropped":
        del ids[-1], mask[-1]
    elif kind == "duplicated" and seed % 2:
        traces.append(own)
    elif kind == "duplicated":
        own.nodes.append(node.model_copy(deep=True))
    elif kind == "retokenised":
        ids[-1 - seed % 2] += 100_000
    else:
        mask[seed % len(mask)] = not mask[seed % len(mask)]
    with pytest.raises(DataError) as caught:
        verifiers_adapter.write_traces(credit, traces)
    assert caught.value.code in ECHO


# -- Tinker -------------------------------------------------------------------------------------


def tinker_groups(records, *, masked=()):
    import tinker
    from tinker_cookbook.completers import TokensWithLogprobs
    from tinker_cookbook.rl.types import Trajectory, TrajectoryGroup, Transition

    groups = {}
    for record in records:
        history, transitions = [], []
        for t, step in enumerate(record["steps"]):
            history = history + step["context_tokens"]
            transitions.append(
                Transition(
                    ob=tinker.ModelInput.from_ints(history),
                    ac=TokensWithLogprobs(
                        tokens=list(step["tokens"]), maybe_logprobs=[-0.5] * len(step["tokens"])
                    ),
                    reward=0.0,
                    episode_done=t == len(record["steps"]) - 1,
                    metrics={"parse_error_masked": 1.0} if (record["id"], t) in masked else {},
                )
            )
            history = history + step["tokens"]
        trajectory = Trajectory(transitions=transitions, final_ob=tinker.ModelInput.from_ints(history))
        group = groups.setdefault(record["group"], ([], []))
        group[0].append(trajectory)
        group[1].append(record["reward"])
    return [TrajectoryGroup(t, f, [{}] * len(t)) for t, f in groups.values()]


def datums_of(groups):
    from tinker_cookbook.rl.data_processing import assemble_training_data, compute_advantages

    return assemble_training_data(groups, compute_advantages(groups))


def test_tinker_datums_of_dr_grpo_are_those_that_tinker_makes():
    groups = tinker_groups(RECORDS)
    datums, metadata = datums_of(groups)
    own = [d.loss_fn_inputs["advantages"].to_numpy().copy() for d in datums]
    tinker_adapter.assign_datums(groups, datums, metadata, "dr-grpo")
    for before, datum in zip(own, datums, strict=True):
        after = datum.loss_fn_inputs["advantages"].to_numpy()
        assert np.float32 == after.dtype
        assert np.allclose(before, after, atol=1e-7)


def test_tinker_datums_carry_credit_of_steps():
    groups = tinker_groups(RECORDS)
    datums, metadata = datums_of(groups)
    credit = tinker_adapter.assign_datums(groups, datums, metadata, "gigpo", state=lambda _, t: f"s{t}")
    found = [
        v
        for d in datums
        for v, m in zip(d.loss_fn_inputs["advantages"].data, d.loss_fn_inputs["mask"].data, strict=True)
        if m
    ]
    assert np.allclose(ac.assign(RECORDS, "gigpo").tokens, found, atol=1e-6)
    assert np.array_equal(credit.tokens.astype(np.float32), np.float32(found))


def test_masked_turns_stay_out_of_the_datums():
    groups = tinker_groups(RECORDS, masked={("g0r2", 1)})
    datums, metadata = datums_of(groups)
    tinker_adapter.assign_datums(groups, datums, metadata, "grpo")
    inputs = datums[2].loss_fn_inputs
    values, mask = inputs["advantages"].to_numpy(), inputs["mask"].to_numpy()
    assert len(RECORDS[2]["steps"][0]["tokens"]) + len(RECORDS[2]["steps"][2]["tokens"]) == mask.sum()
    assert not values[mask == 0].any()


@pytest.mark.parametrize(("kind", "seed"), MUTATIONS)
def test_spoiled_datums_are_caught(kind, seed):
    import tinker

    groups = tinker_groups(recorded(seed, rows=False))
    credit = ac.assign(tinker_adapter.trajectory_records(groups), "grpo")
    datums, metadata = datums_of(groups)
    tinker_adapter.write_datums(credit, groups, datums, metadata)
    d = seed % len(datums)
    inputs = datums[d].loss_fn_inputs
    ids, mask = inputs["target_tokens"].to_numpy().copy(), inputs["mask"].to_numpy().copy()
    where = np.flatnonzero(mask)
    if kind == "shifted":
        ids, mask = (np.roll(ids, 1), mask) if seed % 2 else (ids, np.roll(mask, 1))
    elif kind == "dropped" and seed % 2:
        del datums[d], metadata[d]
    elif kind == "dropped":
        ids, mask = np.delete(ids, where[0]), np.delete(mask, where[0])
    elif kind == "duplicated" and seed % 2:
        datums.append(datums[d])
        metadata.append(metadata[d])
    elif kind == "duplicated":
        ids, mask = np.insert(ids, where[0], ids[where[0]]), np.insert(mask, where[0], 1)
    elif kind == "retokenised":
        ids[where[seed % where.size]] += 100_000
    else:
        at = seed % mask.size
        mask[at] = 1 - mask[at]
    inputs["target_tokens"] = tinker.TensorData.from_numpy(ids)
    inputs["mask"] = tinker.TensorData.from_numpy(mask)
    with pytest.raises(DataError) as caught:
        tinker_adapter.write_datums(credit, groups, datums, metadata)
    assert caught.value.code in ECHO


# -- ART ----------------------------------------------------------------------------------------


def art_results(records):
    import art
    from art.preprocessing.tokenize import TokenizedResult

    t = tensors_of(records)
    groups, results = {}, []
    for b, record in enumerate(records):
        trajectory = art.Trajectory(messages_and_choices=[], reward=record["reward"])
        groups.setdefault(record["group"], []).append(trajectory)
        n = int(np.flatnonzero(t.mask[b]).max()) + 1
        results.append(
            TokenizedResult(
                advantage=0.0,
                chat="",
                token_ids=[8, 9, *t.tokens[b, :n].tolist()],
                input_pos=list(range(n + 2)),
                assistant_mask=[0, 0, *t.mask[b, :n].tolist()],
                logprobs=[float("nan")] * 2 + [-0.5 if m else float("nan") for m in t.mask[b, :n]],
                pixel_values=None,
                image_grid_thw=None,
                trajectory=trajectory,
                choice_offsets=[],
                extra_logprobs={},
                _tokenizer=None,
                weight=1.0,
                prompt_id=b,
            )
        )
    return [art.TrajectoryGroup(members) for members in groups.values()], results


def test_art_results_part_by_credit_and_keep_every_assistant_token():
    groups, results = art_results(RECORDS)
    parts, credit = art_adapter.assign_results(groups, results, "gigpo", state=lambda _, t: f"s{t}")
    expected = ac.assign(RECORDS, "gigpo").tokens.sum()
    assert pytest.approx(expected, abs=1e-5) == sum(p.advantage * sum(p.assistant_mask) for p in parts)
    assert credit.batch.n_tokens == sum(sum(p.assistant_mask) for p in parts)
    assert len(parts) > len(results)


def test_one_number_a_trajectory_leaves_the_results_whole():
    groups, results = art_results(RECORDS)
    parts, _ = art_adapter.assign_results(groups, results, "grpo")
    assert len(results) == len(parts)
    assert [r.assistant_mask for r in results] == [p.assistant_mask for p in parts]


def test_arts_own_packing_takes_the_parts():
    from art.preprocessing.pack import packed_tensors_from_tokenized_results

    groups, results = art_results(RECORDS)
    parts, _ = art_adapter.assign_results(groups, results, "gigpo", state=lambda _, t: f"s{t}")
    packed = packed_tensors_from_tokenized_results(parts, seq_len=64)
    mask = packed["assistant_mask"]
    assert int(mask.sum()) == sum(sum(r.assistant_mask) for r in results)
    ratio = (packed["advantages"][mask] * packed["weights"][mask]).abs().mean()
    assert pytest.approx(1.0, abs=1e-4) == float(ratio)


@pytest.mark.parametrize(("kind", "seed"), MUTATIONS)
def test_spoiled_results_are_caught(kind, seed):
    records = recorded(seed, rows=False)
    numbers = {"g0": -1, "g1": -1}
    renamed = []
    for r in records:
        numbers[r["group"]] += 1
        renamed.append(r | {"id": f"{r['group'][1]}/{numbers[r['group']]}"})
    echo = ac.Batch.from_records(renamed)
    groups, results = art_results(records)
    art_adapter.assign_results(groups, results, "grpo", echo=echo)
    result = results[seed % len(results)]
    ids, mask = result.token_ids, result.assistant_mask
    last = max(i for i, m in enumerate(mask) if m)
    if kind == "shifted":
        result.token_ids = [ids[-1], *ids[:-1]]
    elif kind == "dropped" and seed % 2:
        results.remove(result)
    elif kind == "dropped":
        for values in (ids, mask, result.logprobs):
            del values[last]
    elif kind == "duplicated" and seed % 2:
        results.append(result)
    elif kind == "duplicated":
        for values in (ids, mask, result.logprobs):
            values.insert(last, values[last])
    elif kind == "retokenised":
        ids[last] += 100_000
    else:
        mask[2 + seed % (len(mask) - 2)] ^= 1
        result.logprobs[:] = [-0.5] * len(mask)
    with pytest.raises(DataError) as caught:
        art_adapter.assign_results(groups, results, "grpo", echo=echo)
    assert caught.value.code in ECHO


# -- torchrl ------------------------------------------------------------------------------------


def torchrl_data(records):
    import torch
    from tensordict import NonTensorStack, TensorDict

    t = tensors_of(records)
    data = TensorDict(
        {
            "mask": torch.tensor(t.mask).bool(),
            "tokens": torch.tensor(t.tokens),
            "next": TensorDict({"reward": torch.tensor(t.rewards)[:, None]}, [len(records)]),
        },
        [len(records)],
    )
    data["query"] = NonTensorStack(*[f"prompt {g}" for g in t.group])
    return data


def test_torchrls_advantage_has_its_last_axis():
    import torch

    data = torchrl_data(RECORDS)
    torchrl_adapter.write_advantage(data, "grpo", tokens="tokens", echo=None)
    found = data["advantage"]
    assert (*data["mask"].shape, 1) == tuple(found.shape)
    assert torch.float32 == found.dtype
    assert np.array_equal(ac.assign(RECORDS, "grpo").padded(tensors_of(RECORDS).mask), found[..., 0].numpy())


def test_torchrl_names_what_a_method_misses():
    with pytest.raises(MissingSignal, match="state"):
        torchrl_adapter.write_advantage(torchrl_data(RECORDS), "gigpo")


def test_torchrls_grpo_loss_takes_the_advantage():
    """The real objective over a tiny actor: finite loss, and a gradient only where credit is."""
    import torch
    from torchrl.objectives.llm import GRPOLoss

    data = torchrl_data(RECORDS)
    shape = data["mask"].shape
    logits = torch.nn.Parameter(torch.zeros(*shape, 11))

    class Actor(torch.nn.Module):
        def get_dist(self, held, **_):
            dist = torch.distributions.Categorical(logits=logits)
            dist.mask = held["mask"]
            return dist

    data["ids"] = data["tokens"] % 11
    data["logprobs"] = torch.full(shape, -float(np.log(11)))
    torchrl_adapter.write_advantage(data, "gigpo", states=[["s0", "s1", "s2"]] * len(RECORDS))
    loss = GRPOLoss(Actor(), entropy_bonus=False, masking_strategy="generic")
    loss.set_keys(action="ids", sample_log_prob="logprobs")
    value = loss(data).loss_objective
    value.backward()
    moved = logits.grad.abs().sum(-1) > 0
    assert torch.isfinite(value)
    assert torch.equal(moved, data["advantage"][..., 0] != 0)


@pytest.mark.parametrize(("kind", "seed"), MUTATIONS)
def test_spoiled_tensordicts_are_caught(kind, seed):
    records = recorded(seed, rows=False)
    echo = ac.Batch.from_records(records)

    def write(t):
        data = torchrl_data(records)[: min(len(t.tokens), len(records))]
        if len(t.tokens) > len(records):
            data = torch_cat(data)
        import torch

        data["mask"], data["tokens"] = torch.tensor(t.mask).bool(), torch.tensor(t.tokens)
        torchrl_adapter.write_advantage(
            data, "grpo", group=t.group, rollout=t.rollout, tokens="tokens", echo=echo
        )

    write(tensors_of(records))
    with pytest.raises(DataError) as caught:
        write(spoiled(tensors_of(records), kind, seed))
    assert caught.value.code in ECHO | {"ACC107"}


def torch_cat(data):
    import torch

    return torch.cat([data, data[:1]], 0)


# -- Inspect ------------------------------------------------------------------------------------


def inspect_log(ids):
    from inspect_ai.log import EvalConfig, EvalDataset, EvalLog, EvalSample, EvalSpec

    spec = EvalSpec(
        run_id="run",
        task="task",
        model="m",
        dataset=EvalDataset(),
        config=EvalConfig(),
        created="2026-01-01T00:00:00Z",
    )
    samples = [EvalSample(id=i, epoch=1, input="?", target="!") for i in ids]
    return EvalLog(eval=spec, samples=samples)


def test_inspect_samples_carry_credit_in_a_scores_metadata(tmp_path):
    from inspect_ai.log import read_eval_log, write_eval_log

    records = [r | {"id": f"run/{r['id']}.1"} for r in RECORDS]
    credit = ac.assign(records, "gigpo")
    log = inspect_log([r["id"] for r in RECORDS])
    name = export.score_inspect_log(credit, log)
    write_eval_log(log, str(tmp_path / "log.json"))
    back = read_eval_log(str(tmp_path / "log.json"))
    found = [s.scores[name].metadata["credit"] for s in back.samples]
    assert [v.tolist() for v in credit.by_rollout()] == found
    assert pytest.approx(sum(found[0])) == back.samples[0].scores[name].value


def test_an_inspect_log_without_a_credited_sample_is_refused():
    credit = ac.assign([r | {"id": f"run/{r['id']}.1"} for r in RECORDS], "grpo")
    with pytest.raises(DataError, match="ACC872"):
        export.score_inspect_log(credit, inspect_log([r["id"] for r in RECORDS[1:]]))
