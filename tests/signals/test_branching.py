"""Continuations turned into branched rollouts: their beginnings, scores, names and refusals."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from accredit.data import Batch
from accredit.errors import DataError
from accredit.index import Forks, Index
from accredit.oracle import solve
from accredit.planners import Answer, Outcome, Place, Request, Visit
from accredit.planners.growing import places_before
from accredit.signals.continuation import Alone, Engine, Player, Replay
from accredit.signals.continuation.branching import branched, with_branches
from accredit.worlds import TabularWorld, make, make_policy
from accredit.worlds.acting import TableActor


def root(rewards: bool = False) -> dict[str, Any]:
    steps = [{"state": s, "action": f"go {s}"} | ({"reward": 1.0} if rewards else {}) for s in "abc"]
    return {"id": "r", "group": "g", "reward": 5.0, "steps": steps}


def answer(step: int, *visits: Visit, rollout: str = "r", **more: Any) -> Answer:
    actions = tuple(f"go {s}" for s in "abc"[:step])
    request = Request(Place("g", f"k{step}", actions, rollout=rollout, step=step), record=True, **more)
    reward = sum(v.reward for v in visits)
    return Answer(request, (Outcome("finished", reward, len(visits), path=visits),))


def test_a_branch_begins_as_its_parent_did() -> None:
    (found,) = branched([answer(2, Visit("z", "stay", 3.0, -0.5, 4))], [root()])
    assert (found["parent"], found["fork_step"], found["reward"]) == ("r", 2, 3.0)
    assert found["steps"][:2] == root()["steps"][:2]
    own = {"state": "z", "action": "stay", "n_tokens": 4, "action_logprob": -0.5, "node_entropy": 0.125}
    assert found["steps"][2] == own


@pytest.mark.parametrize("outcome_in_steps", [False, True])
@pytest.mark.parametrize("rewards", [False, True])
def test_the_score_is_what_was_paid_before_and_the_continuation(
    rewards: bool, outcome_in_steps: bool
) -> None:
    """Seen failing with the last reward counted twice."""
    asked = [answer(2, Visit("z", "x", 0.25), Visit("y", "x", 3.0)), answer(1, arm="none")]
    found = branched(asked, [root(rewards)], outcome_in_steps=outcome_in_steps)
    index = Index(Batch.from_records(found), outcome_in_steps="yes" if outcome_in_steps else "no")
    before = [2.0, 1.0] if rewards else [0.0, 0.0]
    np.testing.assert_allclose(index.score_R, [before[0] + 3.25, before[1]])


def test_what_is_no_result_is_no_rollout_and_illegal_ones_failed() -> None:
    request = Request(Place("g", "start"), k=3, record=True)
    outcomes = (Outcome("infra_error", None), Outcome("illegal", 0.0, replicate=1), Outcome("truncated", 1.0))
    found = branched([Answer(request, outcomes)])
    assert [(r["id"], r["status"], r["reward"]) for r in found] == [
        ("g@0:.1", "failed", 0.0),
        ("g@0:.0", "truncated", 1.0),
    ]
    assert all("parent" not in r for r in found)


def test_the_same_continuation_told_twice_is_one_and_unlike_ones_of_one_name_are_refused() -> None:
    one = answer(1, Visit("z", "x", 1.0))
    assert len(branched([one, one], [root()])) == 1
    other = Answer(one.request, (Outcome("finished", 1.0, 1, seed=7, path=one.outcomes[0].path),))
    with pytest.raises(DataError, match=r"'r@1:\.0'"):
        branched([one, other], [root()])


def test_places_of_unknown_rollouts_and_missing_paths_are_refused() -> None:
    with pytest.raises(DataError, match="not there"):
        branched([answer(1, Visit("z", "x", 1.0), rollout="other")], [root()])
    with pytest.raises(DataError, match="has 1 steps"):
        branched([answer(2, Visit("z", "x", 1.0))], [root() | {"steps": root()["steps"][:1]}])
    with pytest.raises(DataError, match="record=True"):
        branched([Answer(Request(Place("g", "s")), (Outcome("finished", 1.0, steps=2),))])


@pytest.mark.parametrize("family", ["rooms", "umbrella"])
def test_branches_of_branches_make_one_tree_whose_root_is_unbiased(family: str) -> None:
    task = make(family, seed=1)
    policy = make_policy(task)
    player = Player(Replay(lambda group: TabularWorld(task)), {"actor": TableActor(task, policy)})
    engine = Engine(Alone(player))
    starts = [Place(f"g{i}", "start", start=i) for i in range(200)]
    roots = branched(engine.run([Request(p, record=True) for p in starts]), versions=engine.crew.versions)
    batch = Batch.from_records(roots)
    before = 0
    for turn in (1, 2):
        index = Index(batch)
        latest = (index.rollout_S >= before) & (index.position_S == 1)
        places, before = places_before(index, np.flatnonzero(latest)), len(batch)
        asked = [Request(p, arm=str(turn), shared=False, record=True) for p in places]
        batch = with_branches(batch, engine.run(asked))
    index = Index(batch)
    forks = Forks(index, "links")
    assert forks.leaves_N[: index.n_groups].max() == 3
    mean, _ = forks.leaf_mean(index.score_R, index.scored_R)
    roots_mean = mean[: index.n_groups]
    error = roots_mean.std(ddof=1) / np.sqrt(roots_mean.size)
    assert abs(roots_mean.mean() - solve(task, policy).value) <= 3.5 * error
    assert batch.columns["policy_version_R"].item(0) == engine.crew.versions["actor"]
