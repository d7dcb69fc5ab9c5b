"""Real files of other people's agents: their README's right answers.

The files are not part of the project. They lie beside a working checkout, at ``../shared/samples``; the
look-alikes of the other modules hold the same traps.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from accredit.readers import read
from tests.readers.lookalikes import codes, column, of, rewards, steps

SAMPLES = Path(__file__).parents[2] / ".." / "shared" / "samples"
pytestmark = pytest.mark.skipif(
    not SAMPLES.is_dir(),
    reason="THE REAL SAMPLE FILES ARE ABSENT: ../shared/samples beside the repository is not there, so only "
    "look-alikes of our own making were read",
)


def sample(name):
    return read(SAMPLES / name)


def untokened(batch):
    return batch.n_tokens == 0 and not batch.has("logprob_T")


# -- NeMo Gym -----------------------------------------------------------------------------------


def test_blackjack_is_one_group_with_five_prompts_and_no_shared_state():
    batch = sample("nemo-gym/blackjack.jsonl")
    assert [2, 1, 1, 2, 1] == steps(batch)
    assert [-1, 1, -1, 1, 1] == rewards(batch)
    assert 1 == batch.n_groups
    assert batch.n_steps == len(set(column(batch, "state_S")))
    assert untokened(batch)


def test_anyswe_groups_by_instance_and_shares_observations():
    batch = sample("nemo-gym/anyswe_pi.jsonl")
    assert ("astropy__astropy-12907",) == batch.group_names
    assert [f"anyswe_pi/0.{i}" for i in (0, 2, 1, 3, 4)] == list(batch.ids)
    assert [4, 3, 5, 5, 8] == steps(batch)
    assert [1, 0, 1, 1, 1] == rewards(batch)
    by = {i: f"anyswe_pi/0.{i}" for i in range(5)}
    calls = [
        sum(a.startswith(("bash {", "edit {", "read {", "write {")) for a in of(batch, i, "action_S"))
        for i in batch.ids
    ]
    assert [3, 2, 4, 4, 7] == calls
    seen = {i: of(batch, name, "observation_S") for i, name in by.items()}
    assert seen[2][0] == seen[3][0]
    assert of(batch, by[2], "action_S")[0] != of(batch, by[3], "action_S")[0]
    assert of(batch, by[2], "state_S")[1] == of(batch, by[3], "state_S")[1]
    assert 1 == len({seen[i][1] for i in range(4)})
    last = {i: [o for o in seen[i] if o][-1] for i in (0, 1, 3, 4)}
    assert 1 == len(set(last.values()))
    assert 9878 == max(len(o) for s in seen.values() for o in s if o)


def test_tales_are_five_groups_of_scales_that_differ_and_one_hides_its_state():
    batch = sample("nemo-gym/tales.jsonl")
    assert [f"tales/{i}.0" for i in (3, 0, 1, 2, 4)] == list(batch.ids)
    assert [3, 13, 25, 25, 25] == steps(batch)
    assert [-100, 1, 0, 0, 0] == rewards(batch)
    assert 5 == batch.n_groups
    assert ["finished", "finished", "truncated", "truncated", "truncated"] == column(batch, "status_R")
    assert [True, True, False, False, False] == column(batch, "terminated_R")
    alfworld = batch.ids[3]
    assert {"Nothing happens."} == set(of(batch, alfworld, "observation_S")[:24])
    assert 1 == len(set(of(batch, alfworld, "state_S")[1:]))
    assert 25 == len(set(of(batch, alfworld, "prefix_S")[1:])) + 1
    assert "ACC853" in codes(batch)


# -- tau-bench ----------------------------------------------------------------------------------


def test_tau_bench_has_three_groups_of_four():
    batch = sample("tau-bench/gpt-4o-airline_tasks_1_12_41.json")
    assert 12 == len(batch)
    assert 79 == batch.n_steps
    found = {}
    for r, name in enumerate(batch.ids):
        task = name.split("/")[1].split(".")[0]
        found.setdefault(task, []).append((steps(batch)[r], rewards(batch)[r]))
    assert {
        "1": [(5, 0), (10, 1), (9, 0), (7, 0)],
        "12": [(7, 1), (6, 1), (7, 1), (4, 1)],
        "41": [(6, 0), (6, 1), (5, 0), (7, 1)],
    } == found
    assert 3 == batch.n_groups
    raw = json.loads((SAMPLES / "tau-bench/gpt-4o-airline_tasks_1_12_41.json").read_text())
    calls = [
        m["tool_calls"][0]["function"]["name"] for run in raw for m in run["traj"] if m.get("tool_calls")
    ]
    assert 22 == sum(a.split(" ")[0] in calls and a.endswith("}") for a in column(batch, "action_S"))
    assert untokened(batch)


# -- Who&When -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "messages", "agent", "message", "step"),
    [
        ("algorithm-generated/1", 6, "Excel_Expert", 0, 0),
        ("algorithm-generated/10", 10, "Validation_Expert", 5, 4),
        ("algorithm-generated/102", 10, "Filmography_Expert", 1, 1),
        ("hand-crafted/12", 20, "Assistant", 16, 15),
        ("hand-crafted/24", 5, "Orchestrator", 1, 0),
        ("hand-crafted/43", 16, "Assistant", 12, 11),
        ("hand-crafted/54", 19, "WebSurfer", 15, 14),
    ],
)
def test_who_when_labels_point_at_the_labelled_message(name, messages, agent, message, step):
    batch = sample(f"who-and-when/{name}.json")
    raw = json.loads((SAMPLES / f"who-and-when/{name}.json").read_text())
    assert messages == len(raw["history"])
    assert [0.0] == rewards(batch)
    assert 1 == batch.n_groups
    assert [agent] == column(batch, "mistake_agent_R")
    assert [str(message)] == column(batch, "mistake_message_R")
    assert [step] == column(batch, "mistake_step_R")
    assert agent == column(batch, "agent_S")[step]
    assert raw["history"][message]["content"].strip() == column(batch, "action_S")[step]
    assert [t == step for t in range(batch.n_steps)] == column(batch, "mistake_S")


def test_who_when_tools_and_people_take_no_step():
    batch = sample("who-and-when")
    assert 7 == len(batch)
    agents = set(column(batch, "agent_S"))
    assert not agents & {"Computer_terminal", "human"}
    assert "Orchestrator" in agents
    assert not any("(" in agent for agent in agents)


# -- SWE-agent ----------------------------------------------------------------------------------


def test_swe_agent_takes_five_steps_in_both_generations():
    new, old = sample("swe-agent/v1_dict_state.traj"), sample("swe-agent/v0_string_state.traj")
    assert [5] == steps(new) == steps(old)
    assert column(new, "action_S")[0].startswith("find_file missing_co")
    assert "submit" == column(new, "action_S")[4] == column(old, "action_S")[4]
    assert new.group_names != old.group_names
    assert [None] == rewards(new) == rewards(old)
    assert new.has("execution_time_S")
    for batch in (new, old):
        assert "ACC852" in codes(batch)
        assert 5 == len(set(column(batch, "state_S")))


def test_swe_agent_folder_is_three_rollouts_in_three_groups():
    batch = sample("swe-agent")
    assert 3 == len(batch) == batch.n_groups
    assert [10, 5, 5] == steps(batch)


def test_mini_swe_agent_ends_in_the_diff():
    batch = sample("swe-agent/mini_swe_agent_v1.traj.json")
    assert [10] == steps(batch)
    assert "diff" in column(batch, "observation_S")[9]
    assert [None] == rewards(batch)


# -- OpenHands ----------------------------------------------------------------------------------


def test_openhands_resolver_output_is_two_issues():
    batch = sample("openhands/resolver_output.jsonl")
    assert [4, 22] == steps(batch)
    assert [1, 1] == rewards(batch)
    assert ["#5", "#1"] == [name[-2:] for name in batch.group_names]


def test_openhands_events_of_the_harness_are_no_steps():
    first, second = sample("openhands/wrong_initial_state.json"), sample("openhands/basic_gui_mode.json")
    kinds = ["read", "run", "read", "finish"]
    assert kinds == [m["kind"] for m in column(first, "metadata_S")]
    assert ["run", "edit", "edit", "run", "message"] == [m["kind"] for m in column(second, "metadata_S")]
    assert [None] == rewards(first) == rewards(second)
    assert [3, 5, 7] == [m["event"] for m in column(first, "metadata_S")][:3]
    assert column(first, "observation_S")[0].startswith("Here's the files and directories")


# -- ATIF ---------------------------------------------------------------------------------------


def test_atif_openhands_has_two_policy_steps_and_three_system_steps_of_context():
    batch = sample("atif/openhands_v1.5.json")
    assert [2] == steps(batch)
    assert ["str_replace_editor", "finish"] == [a.split(" ")[0] for a in column(batch, "action_S")]
    assert [None] == rewards(batch)


def test_atif_pair_is_one_rollout_of_seven_steps_in_two_segments():
    assert [3] == steps(sample("atif/terminus2_v1.7.json"))
    assert [4] == steps(sample("atif/trajectory.cont-1.json"))
    batch = sample("atif")
    assert [2, 7] == steps(batch)
    assert [0, 0, 0, 1, 1, 1, 1] == of(batch, batch.ids[1], "row_S")
    assert 1 == codes(batch)["ACC855"]
    assert "ACC857" not in codes(batch)


# -- Inspect ------------------------------------------------------------------------------------


def test_inspect_archive_has_two_groups_of_two_epochs():
    batch = sample("inspect/streaming_2x2_epochs.eval")
    assert 4 == len(batch)
    assert 2 == batch.n_groups
    assert [1, 1, 1, 1] == steps(batch)
    assert [0, 1, 1, 1] == rewards(batch)
    assert ["1.1", "1.2", "2.1", "2.2"] == [name.split("/")[1] for name in batch.ids]
    assert untokened(batch)


def test_inspect_cancelled_log_is_used_and_told():
    batch = sample("inspect/popularity_cancelled.json")
    assert [1, 1, 1] == steps(batch)
    assert [1, 1, 0] == rewards(batch)
    assert 1 == codes(batch)["ACC857"]
    assert any("3 samples of 100" in f.message for f in batch.findings)


# -- Langfuse -----------------------------------------------------------------------------------


def test_langfuse_microsoft_takes_two_steps_with_a_list_as_call_id():
    batch = sample("langfuse-otel/microsoft-agent-2025-10-14.json")
    assert [2] == steps(batch)
    assert 'get_weather {"location":"Portland"}' == column(batch, "action_S")[0]
    assert column(batch, "observation_S")[0].startswith("The weather in Portland is stormy")
    assert [None] == rewards(batch)


def test_langfuse_pydantic_takes_four_steps_of_two_agents_in_order_of_time():
    batch = sample("langfuse-otel/pydantic-ai-tools-2025-12-04.json")
    assert [4] == steps(batch)
    assert ["joke_agent"] * 3 + ["evaluator_agent"] == column(batch, "agent_S")
    assert 3 == len(column(batch, "action_S")[0].split("\n"))
    assert [None] == rewards(batch)


# -- FireAct ------------------------------------------------------------------------------------


def test_fireact_is_fourteen_groups_of_one_and_no_state_knows_the_outcome():
    batch = sample("react-hotpotqa/fireact_14.json")
    assert 14 == len(batch) == batch.n_groups
    assert [1] * 4 + [4] * 6 + [2] * 4 == steps(batch)
    passed = {
        batch.group_names[g] for g, reward in zip(batch.group_R, rewards(batch), strict=True) if reward == 1
    }
    assert {"6238", "2544", "5762", "4739"} == passed
    assert not any("reward =" in str(o) for o in column(batch, "observation_S"))
    assert [None] * 14 == column(batch, "final_state_R")
    assert "search[" in column(batch, "action_S")[4]
    assert untokened(batch)


@pytest.mark.parametrize(
    "folder",
    ["nemo-gym", "tau-bench", "who-and-when", "swe-agent", "openhands", "atif", "inspect", "react-hotpotqa"],
)
def test_every_file_says_which_state_keys_were_made(folder):
    for path in sorted((SAMPLES / folder).rglob("*")):
        if path.is_file():
            assert {"ACC850", "ACC851", "ACC852"} & codes(read(path)).keys(), path
