"""Credit of paths back on the nodes of message trees: each node once, as the mean over its paths."""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import accredit as ac
from accredit.adapters.export import traces_with_advantages
from accredit.adapters.trees import node_credits, prime_rl_tokens
from accredit.adapters.verifiers import trace_advantages, write_traces
from accredit.errors import DataError
from tests.adapters.made import MUTATIONS

SAMPLES = Path(__file__).parents[3] / "shared" / "samples"
ECHO = {"ACC870", "ACC871", "ACC872", "ACC873"}


def _node(parent, ids, *, sampled=False):
    """A node as verifiers' JSON has it; a sampled one begins with a mark of the template."""
    return {
        "parent": parent,
        "message": {"role": "assistant" if sampled else "user", "content": " ".join(map(str, ids))},
        "sampled": sampled,
        "token_ids": [3, *ids] if sampled else ids,
        "mask": [False] + [True] * len(ids) if sampled else [False] * len(ids),
        "logprobs": [-float(i) / 64 for i in range(1, 1 + len(ids))] if sampled else [],
    }


def _trace(name, parents, reward, seed=0):
    """A tree of answers with a question before each; token ids differ everywhere."""
    rng = np.random.default_rng(seed)
    fresh = iter(rng.permutation(100_000).tolist())
    nodes = []
    for parent in parents:
        above = None if parent is None else 2 * parent + 1
        nodes.append(_node(above, [next(fresh)]))
        answer = [next(fresh) for _ in range(int(rng.integers(1, 4)))]
        nodes.append(_node(len(nodes) - 1, answer, sampled=True))
    return {
        "version": 1,
        "id": name,
        "task": {"type": "T", "data": {}, "key": "k"},
        "agent": {"name": "solver", "trainable": True},
        "rewards": {"ok": {"score": float(reward), "weight": 1.0}},
        "nodes": nodes,
    }


def _read(folder, traces):
    path = folder / "traces.jsonl"
    path.write_text("".join(json.dumps(t) + "\n" for t in traces))
    return ac.read(path)


FORESTS = st.lists(
    st.lists(st.floats(0, 1), min_size=1, max_size=7).map(
        lambda xs: [None if i == 0 or x > 0.95 else int(x / 0.95 * (i - 1)) for i, x in enumerate(xs)]
    ),
    min_size=2,
    max_size=4,
)


def _means_slowly(credit, trace):
    """Walk from every leaf to its root and lay each path's steps on its sampled nodes, one by one."""
    nodes = trace["nodes"]
    leaves = [i for i in range(len(nodes)) if all(n["parent"] != i for n in nodes)]
    tokens, steps = defaultdict(list), defaultdict(list)
    for k, leaf in enumerate(leaves):
        path, at = [], leaf
        while at is not None:
            path.insert(0, at)
            at = nodes[at]["parent"]
        rollout = credit.batch.position(trace["id"] + (f"#{k}" if k else ""))
        sampled = [i for i in path if nodes[i]["sampled"]]
        for i, s in zip(sampled, credit.batch.steps_of(rollout), strict=True):
            a, b = credit.batch.token_start_S1[s : s + 2]
            tokens[i].append(credit.tokens[a:b].tolist())
            steps[i].append(credit.steps[s])
    return {
        i: (len(v), sum(steps[i]) / len(v), [sum(x) / len(v) for x in zip(*v, strict=True)])
        for i, v in tokens.items()
    }


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(FORESTS, st.sampled_from(["grpo", "gigpo", "reinforce-pp"]), st.data())
def test_a_node_gets_the_mean_over_the_paths_through_it(tmp_path, forests, method, data):
    traces = [_trace(f"t{i}", f, data.draw(st.integers(0, 1)), i) for i, f in enumerate(forests)]
    credit = ac.assign(_read(tmp_path, traces), method)
    for trace in traces:
        expected = _means_slowly(credit, trace)
        found = node_credits(credit, trace)
        assert sorted(expected) == [c.node for c in found]
        for c in found:
            paths, step, tokens = expected[c.node]
            assert paths == c.paths
            assert step == pytest.approx(c.credit, rel=1e-12, abs=1e-15)
            assert tokens == pytest.approx(c.advantages, rel=1e-12, abs=1e-15)


BRANCHED = [_trace(f"t{i}", [None, 0, 0, 1, 1], i % 2, i) for i in range(4)]


def test_serialised_traces_get_every_node_once(tmp_path):
    credit = ac.assign(_read(tmp_path, BRANCHED), "gigpo")
    before = json.dumps(BRANCHED)
    found = traces_with_advantages(credit, BRANCHED)
    assert before == json.dumps(BRANCHED)
    for trace, made in zip(BRANCHED, found, strict=True):
        by_node = {c.node: c.advantages for c in node_credits(credit, trace)}
        for i, node in enumerate(made["nodes"]):
            assert by_node.get(i) == node.get("advantages")
            assert sum(node["mask"]) == len(node.get("advantages") or [])


def test_the_list_of_prime_rl_has_one_number_a_sampled_token(tmp_path):
    class Live:
        def __init__(self, fields):
            self.__dict__ |= fields

    credit = ac.assign(_read(tmp_path, BRANCHED), "grpo")
    live = [Live({**t, "nodes": [Live(n) for n in t["nodes"]]}) for t in BRANCHED]
    for trace in live:
        values = trace_advantages(credit, trace)
        assert sum(sum(n.mask) for n in trace.nodes) == len(values)
    write_traces(credit, live)
    assert [v for n in live[0].nodes for v in getattr(n, "advantages", [])] == trace_advantages(
        credit, live[0]
    )


def test_rows_of_tokens_train_every_node_once(tmp_path):
    credit = ac.assign(_read(tmp_path, BRANCHED), "grpo")
    rows = prime_rl_tokens(credit, BRANCHED)
    assert 4 * 3 == len(rows)  # three leaves a tree
    for k, trace in enumerate(BRANCHED):
        own = rows[3 * k : 3 * k + 3]
        for row in own:
            assert 1 == len({len(v) for v in row.values()})
            assert list(range(len(row["token_ids"]))) == row["position_ids"]
            assert [float(m) for m in row["loss_mask"]] == row["rl_weights"]
            assert not any(a for a, m in zip(row["advantages"], row["loss_mask"], strict=True) if not m)
        trained = sorted(i for r in own for i, m in zip(r["token_ids"], r["loss_mask"], strict=True) if m)
        held = sorted(i for n in trace["nodes"] for i, m in zip(n["token_ids"], n["mask"], strict=True) if m)
        assert held == trained
        by_id = {}
        for c in node_credits(credit, trace):
            ids = [
                i
                for i, m in zip(*(trace["nodes"][c.node][x] for x in ("token_ids", "mask")), strict=True)
                if m
            ]
            by_id |= dict(zip(ids, c.advantages, strict=True))
        for row in own:
            for i, a, m in zip(row["token_ids"], row["advantages"], row["loss_mask"], strict=True):
                assert a == (by_id[i] if m else 0.0)
        first = own[0]
        held = [p for n in (1, 5) for p in [0.0, 0.0, *trace["nodes"][n]["logprobs"]]]
        assert held == first["inference_logprobs"][: len(held)]


def test_log_probabilities_that_are_not_there_are_left_out(tmp_path):
    traces = [{**t, "nodes": [{**n, "logprobs": None} for n in t["nodes"]]} for t in BRANCHED]
    rows = prime_rl_tokens(ac.assign(_read(tmp_path, traces), "grpo"), traces)
    assert "inference_logprobs" not in rows[0]


def test_records_of_ones_own_do_not_say_their_nodes():
    records = [{"id": i, "group": "g", "reward": 1, "steps": [{"tokens": [1]}]} for i in ("t0", "t1")]
    credit = ac.assign(records, "grpo")
    assert node_credits(credit, BRANCHED[0]) is None
    with pytest.raises(DataError, match="do not say which nodes"):
        prime_rl_tokens(credit, BRANCHED[:2])


@pytest.mark.parametrize(("kind", "seed"), MUTATIONS)
def test_spoiled_trees_get_nothing(tmp_path, kind, seed):
    traces = [_trace(f"t{i}", [None, 0, 0, 1], i % 2, 10 * seed + i) for i in range(4)]
    credit = ac.assign(_read(tmp_path, traces), "grpo")
    own = traces[seed % 4]
    node = own["nodes"][1 + 2 * (seed % 4)]
    ids, mask = node["token_ids"], node["mask"]
    if kind == "shifted":
        node["token_ids"] = ids[1:] + ids[:1]
    elif kind == "dropped":
        traces.remove(own) if seed % 2 else node.update(token_ids=ids[:-1], mask=mask[:-1])
    elif kind == "duplicated":
        traces.append(own) if seed % 2 else own["nodes"].append(dict(node))
    elif kind == "retokenised":
        ids[-1] += 100_000
    else:
        mask[seed % len(mask)] = not mask[seed % len(mask)]
    for export in (traces_with_advantages, prime_rl_tokens):
        with pytest.raises(DataError) as caught:
            export(credit, traces)
        assert caught.value.code in ECHO


# -- real conversations --------------------------------------------------------------------------


def _tree_of(name, conversations, reward):
    """Join conversations at equal beginnings into one tree; made-up ids stand for the words."""
    nodes, at = [], {}
    for messages in conversations:
        above = ()
        for message in messages:
            here = (*above, json.dumps(message, sort_keys=True))
            if here not in at:
                words = str(message.get("content") or "call").split() or ["-"]
                ids = [sum(map(ord, w)) * 8 + len(nodes) % 8 for w in words[:40]]
                node = _node(at.get(above), ids, sampled=message["role"] == "assistant")
                at[here] = len(nodes)
                nodes.append(node | {"message": message})
            above = here
    return _trace(name, [None], reward) | {"nodes": nodes}


@pytest.mark.skipif(not SAMPLES.exists(), reason="the samples of others are not beside this checkout")
def test_real_conversations_joined_into_trees_get_their_nodes(tmp_path):
    file = SAMPLES / "verifiers" / "math-python-578769a7" / "results.jsonl"
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    groups = defaultdict(list)
    for row in rows:
        groups[row["id"]].append(row)
    traces = []
    for key, members in groups.items():
        talks = [[*m["prompt"], *m["completion"]] for m in members]
        traces.append(_tree_of(f"tree-{key}", talks, min(m["reward"] for m in members)))
    batch = _read(tmp_path, traces)
    assert (15, ()) == (len(batch), batch.excluded)  # a path a conversation
    credit = ac.assign(batch, "grpo")
    found = traces_with_advantages(credit, traces)
    sampled = sum(n["sampled"] for t in traces for n in t["nodes"])
    assert 45 >= sampled == sum("advantages" in n for t in found for n in t["nodes"])
    assert 15 == len(prime_rl_tokens(credit, traces))


@pytest.mark.skipif(not SAMPLES.exists(), reason="the samples of others are not beside this checkout")
def test_prime_rls_own_advantages_come_out_token_by_token(tmp_path):
    """A hosted run's scalar advantage a rollout is what every token of its trace must get."""
    file = SAMPLES / "prime-rl-samples" / "h4y9" / "results.jsonl"
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    traces = []
    for i, row in enumerate(rows):
        talk = [*json.loads(row["prompt"]), *json.loads(row["completion"])]
        traces.append(_tree_of(f"r{i:02}", [talk], row["reward"]))
        traces[-1]["task"]["key"] = f"group-{i // 8}"
    credit = ac.assign(_read(tmp_path, traces), "dr-grpo")
    for row, made in zip(rows, prime_rl_tokens(credit, traces), strict=True):
        given = {a for a, m in zip(made["advantages"], made["loss_mask"], strict=True) if m}
        assert [row["advantage"]] == pytest.approx(sorted(given), rel=1e-6)
