"""Traces of the real verifiers: written, read path by path, credited, and given back node by node."""

from __future__ import annotations

import json

import pytest

import accredit as ac
from accredit.adapters.export import traces_with_advantages
from accredit.adapters.trees import node_credits, prime_rl_tokens
from accredit.adapters.verifiers import trace_advantages, write_traces
from tests.adapters.made import recorded
from tests.slow.trainers.test_real import trace_of

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]

RECORDS = recorded(rows=False)


@pytest.fixture
def traces():
    made = [trace_of(record, forked=i % 2 == 0) for i, record in enumerate(RECORDS)]
    for trace in made:
        trace.is_completed = trace.ok = True
    return made


@pytest.fixture
def credit(traces, tmp_path):
    file = tmp_path / "traces.jsonl"
    file.write_text("".join(json.dumps(trace.to_record()) + "\n" for trace in traces))
    return ac.assign(ac.read(file), "gigpo")


def test_every_path_is_a_rollout_and_every_node_gets_its_mean(traces, credit):
    assert len(RECORDS) + len(RECORDS) // 2 == len(credit.batch)
    for trace in traces:
        found = node_credits(credit, trace)
        assert [i for i, node in enumerate(trace.nodes) if node.sampled] == [c.node for c in found]
        assert max(c.paths for c in found) == len(trace.branches)


def test_the_packages_own_branches_spread_the_advantages(traces, credit):
    write_traces(credit, traces)
    for trace in traces:
        for branch in trace.branches:
            assert len(branch.token_ids) == len(branch.advantages)
            given = dict(zip(branch.token_ids, branch.advantages, strict=True))
            for node in branch.nodes:
                sampled = [t for t, m in zip(node.token_ids, node.mask, strict=True) if m]
                assert [given[t] for t in sampled] == (node.advantages or [])


def test_the_list_of_prime_rl_fits_the_nodes(traces, credit):
    for trace in traces:
        values = trace_advantages(credit, trace)
        assert sum(sum(node.mask) for node in trace.nodes) == len(values)


def test_rows_of_tokens_are_the_packages_branches(traces, credit):
    rows = iter(prime_rl_tokens(credit, traces))
    for trace in traces:
        for branch in trace.branches:
            assert list(branch.token_ids) == next(rows)["token_ids"]
    assert next(rows, None) is None


def test_serialised_traces_load_again_with_their_advantages(traces, credit):
    from verifiers.v1 import Trace

    made = traces_with_advantages(credit, [trace.to_record() for trace in traces])
    write_traces(credit, traces)
    for record, trace in zip(made, traces, strict=True):
        again = Trace.model_validate(record)
        for node, own in zip(again.nodes, trace.nodes, strict=True):
            assert (own.advantages or []) == pytest.approx(node.advantages or [])
