import json

import pytest

import accredit as ac
from accredit.adapters.export import otel_scores, stepwise_labels, traces_with_advantages
from accredit.errors import DataError
from tests.adapters.made import MUTATIONS, recorded

RECORDS = recorded(rows=False)


def dumped(records):
    """Traces as verifiers serialises them."""
    return [
        {
            "id": r["id"],
            "nodes": [
                node
                for s in r["steps"]
                for node in (
                    {"token_ids": s["context_tokens"], "mask": [False] * len(s["context_tokens"])},
                    {"token_ids": [3, *s["tokens"]], "mask": [False] + [True] * len(s["tokens"])},
                )
            ],
        }
        for r in records
    ]


def test_serialised_traces_get_node_advantages_and_stay_unchanged():
    traces = dumped(RECORDS)
    before = json.dumps(traces)
    credit = ac.assign(RECORDS, "gigpo")
    found = traces_with_advantages(credit, traces)
    assert before == json.dumps(traces)
    given = [v for trace in found for node in trace["nodes"] for v in node.get("advantages", [])]
    assert credit.tokens.tolist() == given
    assert "advantages" not in found[0]["nodes"][0]


@pytest.mark.parametrize(("kind", "seed"), MUTATIONS)
def test_spoiled_traces_get_nothing(kind, seed):
    records = recorded(seed, rows=False)
    credit = ac.assign(records, "grpo")
    traces = dumped(records)
    own = traces[seed % len(traces)]
    node = own["nodes"][1 + 2 * (seed % 3)]
    ids, mask = node["token_ids"], node["mask"]
    if kind == "shifted":
        node["token_ids"] = ids[1:] + ids[:1]
    elif kind == "dropped":
        traces.remove(own) if seed % 2 else own["nodes"].remove(node)
    elif kind == "duplicated":
        traces.append(own) if seed % 2 else own["nodes"].append(dict(node))
    elif kind == "retokenised":
        ids[-1] += 100_000
    else:
        mask[seed % len(mask)] = not mask[seed % len(mask)]
    with pytest.raises(DataError) as caught:
        traces_with_advantages(credit, traces)
    assert caught.value.code in {"ACC870", "ACC871", "ACC872", "ACC873"}


def test_otel_has_one_event_a_step_on_its_span():
    records = [
        r | {"steps": [s | {"metadata": {"span": f"{r['id']}-{t}"}} for t, s in enumerate(r["steps"])]}
        for r in RECORDS
    ]
    credit = ac.assign(records, "gigpo")
    events = otel_scores(credit)["resourceLogs"][0]["scopeLogs"][0]["logRecords"]
    assert credit.batch.n_steps == len(events)
    held = [{a["key"]: a["value"] for a in e["attributes"]} for e in events]
    assert credit.steps.tolist() == [a["gen_ai.evaluation.score.value"]["doubleValue"] for a in held]
    assert ["g0r0-0", "g0r0-1", "g0r0-2"] == [e["spanId"] for e in events[:3]]
    assert {"gen_ai.evaluation.result"} == {e["eventName"] for e in events}
    json.dumps(events, allow_nan=False)


def test_rows_of_a_rollout_are_joined_before_export():
    credit = ac.assign(recorded(), "grpo")
    events = otel_scores(credit)["resourceLogs"][0]["scopeLogs"][0]["logRecords"]
    assert credit.batch.n_steps == len(events)


def test_labels_are_the_signs_of_credit():
    credit = ac.assign([r | {"steps": [s | {"action": "go"} for s in r["steps"]]} for r in RECORDS], "gigpo")
    found = stepwise_labels(credit)
    assert len(found.records) + len(found.left_out) == len(RECORDS)
    for record in found.records:
        assert [c > 0 for c in record["credit"]] == record["labels"]
        assert len(record["labels"]) == len(record["completions"])


def test_rollouts_of_which_the_method_says_nothing_are_left_out_by_name():
    records = [{"id": i, "group": "g", "reward": 1, "steps": [{"state": "s", "action": "a"}]} for i in "ab"]
    assert ([], ("a", "b")) == stepwise_labels(ac.assign(records, "grpo"))


def test_a_step_without_text_is_named():
    with pytest.raises(DataError, match="rollout 'g0r0' step 0 has no 'action'"):
        stepwise_labels(ac.assign(recorded(1, rows=False), "grpo"))
