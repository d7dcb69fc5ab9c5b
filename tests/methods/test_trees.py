"""The tree methods: worked example, plain loops, the family's properties, where trees come from."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import accredit as ac
from accredit.methods import get_method
from tests.dear import dear
from tests.methods import tree_oracles as slow
from tests.methods.tree_oracles import Record, Slow, grown

ALL = ("treerl", "tree-grpo", "spo", "treepo", "at2po", "treerpo", "treeadv", "treeps", "bpo")


def rollout(path: str, reward: float | None, group: str = "g", **more: Any) -> Record:
    steps = [{"node": f"{group}{node}", "node_entropy": 1.0} for node in path.split()]
    return {"id": f"{group}: {path}", "group": group, "reward": reward, "steps": steps} | more


EXAMPLE = [rollout("A a", 1), rollout("A b", 0), rollout("B c", 0), rollout("B d", 0)]


def by_node(credit: Any) -> list[float]:
    """Credit of A, B, the leaf 1, the leaf 0 under A, a leaf under B."""
    steps = credit.steps.tolist()
    return [steps[0], steps[4], steps[1], steps[3], steps[5]]


def near(*values: float, tol: float = 5e-5) -> Any:
    return pytest.approx(values, abs=tol)


# --- the card's worked example ---------------------------------------------------------------------

WORKED = {
    "treerl": (0.3536, -0.3536, 1.25, -0.75, -0.25),
    "treerl:reweight=none": (0.5, -0.5, 1.25, -0.75, -0.25),
    "treerl:parity=code,reweight=none": (2 / 3, -2 / 3, 5 / 3, -1.0, -2 / 3),
    "spo": (0.25, -0.25, 0.5, -0.5, 0.0),
    "treepo:whiten=false": (None, -0.125, 0.625, -0.375, -0.125),
    "treepo:whiten=false,skip_flat=true": (None, -0.25, 0.625, -0.375, -0.25),
    "tree-grpo": (None, -1.0, 3.0, -1.0, -1.0),
    "at2po": (0.57735, -0.57735, 1.73205, -0.57735, -0.57735),
    "treerpo": (1.0, -1.0, 1.0, -1.0, 0.0),
    "treeadv": (0.5, -0.5, 1.5, -0.5, -0.5),
    "treeps": (0.70711, -0.70711, 1.41421, -1.41421, 0.0),
    "bpo": (0.5, -0.5, 1.0, -1.0, 0.0),
}


@pytest.mark.parametrize("name", WORKED)
def test_worked_example(name: str) -> None:
    """Credit of a whole path differs between the copies of A, so A is left out there."""
    got = by_node(ac.assign(EXAMPLE, name))
    want = WORKED[name]
    assert near(*want[want[0] is None :], tol=1e-4) == got[want[0] is None :]


def test_worked_example_before_the_code_replaces_a_difference_of_0() -> None:
    """2 v - v_p by hand: v A 1/3, B -1/3, root 0; a leaf under B has -1/3 and is replaced by -2/3."""
    parts = ac.assign(EXAMPLE, "treerl", parity="code", reweight="none").parts
    assert near(1 / 3, -1 / 3, 1.0, -1 / 3, -1 / 3) == [parts["value"][i] for i in (0, 4, 1, 3, 5)]
    assert near(1 / 3, -1 / 3, 2 / 3, -2 / 3, -1 / 3) == [parts["local"][i] for i in (0, 4, 1, 3, 5)]


# --- plain loops -----------------------------------------------------------------------------------


def same(records: list[Record], want: list[list[float]], name: str, **params: Any) -> None:
    got = ac.assign(records, name, **params).by_rollout()
    for w, g in zip(want, got, strict=True):
        # An epsilon of 1e-8 makes 1e-8 of the rounding of a plain loop's mean.
        np.testing.assert_allclose(g, w, rtol=1e-9, atol=2e-8)


KINDS = st.sampled_from(["sqrt", "uniform", "none"])


@dear
@given(grown(), KINDS, st.sampled_from(["state", "adv"]))
def test_treerl_equals_the_slow_loop(records: list[Record], reweight: str, mode: str) -> None:
    """Seen failing with unscored leaves in the divisor."""
    same(records, slow.treerl(Slow(records), reweight, mode), "treerl", reweight=reweight, mode=mode)


@dear
@given(grown(), KINDS, st.sampled_from(["token", "step", "none"]), st.sampled_from(["state", "adv", "value"]))
def test_treerl_as_the_code_equals_the_slow_loop(
    records: list[Record], reweight: str, norm: str, mode: str
) -> None:
    """Seen failing with the replacement taken from the node above before its own replacement."""
    params = {"reweight": reweight, "norm": norm, "mode": mode}
    same(records, slow.treerl_code(Slow(records), reweight, norm, mode), "treerl", parity="code", **params)


@dear
@given(grown(), st.sampled_from(["tree", "tree_inner", "tree_2norm"]))
def test_tree_grpo_equals_the_slow_loop(records: list[Record], mode: str) -> None:
    """Seen failing with population deviations."""
    same(records, slow.tree_grpo(Slow(records), mode), "tree-grpo", mode=mode)


@dear
@given(grown(), st.sampled_from(["none", "siblings"]), st.sampled_from([0.0, 0.5]))
def test_spo_equals_the_slow_loop(records: list[Record], normalise: str, prover: float) -> None:
    """Seen failing with leaf means."""
    same(records, slow.spo(Slow(records), normalise, prover), "spo", normalise=normalise, prover=prover)


@dear
@given(grown(), st.sampled_from(["average", "group_size"]), st.booleans(), st.booleans())
def test_treepo_equals_the_slow_loop(
    records: list[Record], weights: str, skip_flat: bool, whiten: bool
) -> None:
    """Seen failing with the leaf's own node among its ancestors."""
    t = Slow(records)
    want = slow.treepo(t, weights, skip_flat)
    params = {"weights": weights, "skip_flat": skip_flat, "whiten": whiten}
    if whiten and not any(s["n_tokens"] for r in records for s in r["steps"]):
        return
    same(records, slow.whitened(t, want) if whiten else want, "treepo", **params)


@dear
@given(grown(), st.sampled_from([-1.0, 0.0, 0.5, 1.0]))
def test_treepo_progress_equals_the_slow_loop(records: list[Record], eta: float) -> None:
    """Seen failing with the exponent one too small."""
    want = slow.progress(Slow(records), eta)
    same(records, want, "treepo", variant="progress", eta=eta, whiten=False)


@dear
@given(grown())
def test_treepo_sibling_norm_equals_the_slow_loop(records: list[Record]) -> None:
    """Seen failing with only children at 0."""
    same(records, slow.sibling_norm(Slow(records)), "treepo-sibling-norm")


@dear
@given(
    grown(),
    st.sampled_from(["child_softmax", "child_mean", "leaf_mean"]),
    st.sampled_from(["value", "diff_parent", "diff_root", "diff_both"]),
)
def test_at2po_equals_the_slow_loop(records: list[Record], value: str, adv: str) -> None:
    """Seen failing with weights of the parents' entropies."""
    same(records, slow.at2po(Slow(records), value, adv), "at2po", node_value=value, node_adv=adv)


@dear
@given(grown(), st.sampled_from(["population", "bernoulli"]))
def test_treerpo_equals_the_slow_loop(records: list[Record], kind: str) -> None:
    """Seen failing without the rollouts that end where others go on."""
    same(records, slow.treerpo(Slow(records), kind), "treerpo", std=kind)


@dear
@given(grown())
def test_treeadv_treeps_and_bpo_equal_the_slow_loops(records: list[Record]) -> None:
    """Seen failing with every copy of a node in treeps' deviation."""
    t = Slow(records)
    same(records, slow.treeadv(t), "treeadv")
    same(records, slow.treeps(t), "treeps")
    same(records, slow.bpo(t), "bpo")


# --- properties of the family ------------------------------------------------------------------------


def test_leaf_and_child_means_differ_as_stated_and_agree_for_equal_fan_out() -> None:
    uneven = [rollout("A a", 1), rollout("B b", 0), rollout("B c", 0), rollout("B d", 0)]
    for name, root in (("treerl", 0.25), ("spo", 0.5)):
        credit = ac.assign(uneven, name)
        assert credit.explain("g: A a", 0).terms[0].inputs["root"] == pytest.approx(root)
    even = ac.assign(EXAMPLE, "spo").extras["node_value"]
    np.testing.assert_allclose(even, ac.assign(EXAMPLE, "treerl").extras["node_value"], atol=1e-15)


@dear
@given(grown(rewards=(0.0, 1.0, 0.3)))
def test_differences_to_the_parent_telescope(records: list[Record]) -> None:
    credit = ac.assign(records, "spo")
    root = Slow(records).child_mean([r["reward"] for r in records])
    for r, own in zip(records, credit.by_rollout(), strict=True):
        last = credit.extras["node_value"][credit.batch.steps_of(credit.batch.position(r["id"]))][-1:]
        if last.size:
            assert own.sum() == pytest.approx(last[0] - root[r["group"], r["tree"]], abs=1e-9)


def test_credit_of_whole_paths_over_a_shared_step_is_its_leaves_times_treeadv() -> None:
    one_tree = [r | {"tree": "t"} for r in EXAMPLE]
    paths, shared = ac.assign(one_tree, "tree-grpo"), ac.assign(one_tree, "treeadv")
    for s in (0, 4):
        same_node = paths.extras["node"] == paths.extras["node"][s]
        together = paths.parts["prompt"][same_node].sum()
        assert together == pytest.approx(shared.extras["leaves"][s] * shared.steps[s], rel=1e-9)


@dear
@given(grown())
def test_leave_one_out_leaves_have_mean_0_at_the_root(records: list[Record]) -> None:
    credit = ac.assign(records, "treerl", parity="code", norm="none", reweight="none", mode="value")
    for record in records:
        if record["steps"]:
            inputs = credit.explain(record["id"], 0).terms[0].inputs
            assert inputs["root"] == pytest.approx(0.0, abs=1e-12)


FACTORS = {
    "treerl": 2.0,
    "spo": 1.0,
    "treepo:whiten=false": 1.0,
    "treepo:variant=progress,whiten=false": 4 / 5,
    "tree-grpo": 2 / (np.std([1, 0, 0, 0.5], ddof=1) + 1e-6),
    "treeadv": 1 / (np.std([1, 0, 0, 0.5], ddof=1) + 1e-6),
    "bpo": 4 / 3,
    "at2po": 1 / (np.std([1, 0, 0, 0.5]) + 1e-6),
    "treerpo": 1 / (np.std([1, 0, 0, 0.5]) + 1e-6),
    "treeps": 1 / (np.std([1, 0, 0, 0.5], ddof=1) + 1e-6),
}


@pytest.mark.parametrize("name", FACTORS)
def test_without_branches_credit_is_a_multiple_of_the_centred_outcome(name: str) -> None:
    records = [rollout(f"n{i}", r) for i, r in enumerate([1, 0, 0, 0.5])]
    want = FACTORS[name] * (np.array([1, 0, 0, 0.5]) - 0.375)
    np.testing.assert_allclose(ac.assign(records, name).steps, want, rtol=1e-9, atol=1e-12)


def test_without_branches_treeadv_is_grpo_and_bpo_is_rloo() -> None:
    records = [rollout(f"n{i} m{i}", r) for i, r in enumerate([1, 0, 0.25])]
    np.testing.assert_allclose(
        ac.assign(records, "treeadv").steps, ac.assign(records, "grpo").steps, rtol=1e-12
    )
    first = ac.assign(records, "bpo").steps[::2]
    np.testing.assert_allclose(first, ac.assign(records, "rloo").steps[::2], rtol=1e-12)


def test_with_several_steps_the_difference_to_the_parent_is_all_on_the_first_node() -> None:
    records = [rollout(f"n{i} m{i} o{i}", r) for i, r in enumerate([1, 0])]
    assert ac.assign(records, "spo").steps.tolist() == [0.5, 0.0, 0.0, -0.5, 0.0, 0.0]


@pytest.mark.parametrize("name", ["treerpo", "bpo", "spo"])
def test_a_constant_on_a_whole_subtree_changes_nothing_inside_it(name: str) -> None:
    lifted = [r | {"reward": r["reward"] + 0.25 * r["id"].startswith("g: B")} for r in EXAMPLE]
    before, after = ac.assign(EXAMPLE, name), ac.assign(lifted, name)
    np.testing.assert_allclose(after.steps[[1, 3, 5, 7]], before.steps[[1, 3, 5, 7]], atol=1e-12)
    assert not np.allclose(after.steps[[0, 4]], before.steps[[0, 4]]) or name == "treerpo"


def test_entropy_weights_are_biased_where_entropy_goes_with_the_value() -> None:
    """Two equally likely children of value 1 and 0, the better one more uncertain: above 1/2."""
    records = [rollout("A", 1), rollout("B", 0)]
    records[0]["steps"][0]["node_entropy"] = 2.0
    root = {
        value: ac.assign(records, "at2po", leaf_norm=False, node_value=value)
        .explain("g: A", 0)
        .terms[0]
        .inputs
        for value in ("child_softmax", "child_mean", "leaf_mean")
    }
    assert root["child_mean"]["root"] == root["leaf_mean"]["root"] == 0.5
    assert root["child_softmax"]["root"] == pytest.approx(np.e / (np.e + 1), abs=1e-9)


# --- edges -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ALL)
def test_a_single_leaf_an_only_child_and_equal_leaves_get_0(name: str) -> None:
    assert not ac.assign([rollout("A a", 1)], name).steps.any()
    equal = [r | {"reward": 0.3} for r in EXAMPLE]
    assert not ac.assign(equal, name).steps.any()


@pytest.mark.parametrize("name", ["spo", "treerpo", "bpo"])
def test_an_only_child_gets_0(name: str) -> None:
    steps = ac.assign([rollout("A a x", 1), rollout("A b", 0)], name).steps
    assert steps[0] == steps[2] == 0
    assert steps[1] != 0


@pytest.mark.parametrize("name", ALL)
def test_a_leaf_without_reward_changes_nothing_and_gets_0(name: str) -> None:
    more = [*EXAMPLE, rollout("A e", None), rollout("C f", None)]
    got = ac.assign(more, name)
    np.testing.assert_allclose(got.steps[:8], ac.assign(EXAMPLE, name).steps, atol=1e-12)
    assert not got.steps[8:].any()


@pytest.mark.parametrize("name", ALL)
def test_a_truncated_leaf_counts_as_given_unless_dropped(name: str) -> None:
    cut = [*EXAMPLE, rollout("A e", 1, status="truncated")]
    plain = [*EXAMPLE, rollout("A e", 1)]
    np.testing.assert_array_equal(ac.assign(cut, name).steps, ac.assign(plain, name).steps)
    dropped = ac.assign(cut, name, truncated="drop").steps
    np.testing.assert_allclose(dropped[:8], ac.assign(EXAMPLE, name).steps, atol=1e-12)
    assert not dropped[8:].any()


def test_steps_without_tokens_keep_their_place_and_weigh_nothing_among_tokens() -> None:
    tokens = {"A": 0, "B": 5, "a": 1, "b": 2, "c": 3, "d": 1}
    records = [r | {"steps": [s | {"n_tokens": tokens[s["node"][1:]]} for s in r["steps"]]} for r in EXAMPLE]
    np.testing.assert_array_equal(ac.assign(records, "treerl").steps, ac.assign(EXAMPLE, "treerl").steps)
    white = ac.assign(records, "treepo")
    assert white.tokens.sum() == pytest.approx(0.0, abs=1e-9)
    assert white.tokens.var(ddof=1) == pytest.approx(1.0, rel=1e-6)
    assert white.steps[0] == white.steps[1]


def test_whitening_without_any_token_is_over_steps_and_counted() -> None:
    credit = ac.assign(EXAMPLE, "treepo")
    assert (credit.fallbacks["no_tokens"], credit.steps.var(ddof=1)) == (1, pytest.approx(1.0, rel=1e-6))


def test_selected_leaves_divide_in_the_authors_code_only() -> None:
    held = [r | {"trainable": not r["id"].endswith("b")} for r in EXAMPLE]
    np.testing.assert_array_equal(ac.assign(held, "treerl").steps, ac.assign(EXAMPLE, "treerl").steps)
    value = ac.assign(held, "treerl", parity="code", norm="none", mode="value").steps
    assert near(1 / 3, -1 / 3 / np.sqrt(2)) == value[[0, 4]].tolist()


def test_value_mode_and_odd_outcomes_are_refused() -> None:
    with pytest.raises(ac.AccreditError, match="parity='code'"):
        ac.assign(EXAMPLE, "treerl", mode="value")
    odd = [r | {"reward": 2.0 * r["reward"]} for r in EXAMPLE]
    with pytest.raises(ac.AccreditError, match=r"\[0, 1\]"):
        ac.assign(odd, "spo", prover=1.0)
    with pytest.raises(ac.AccreditError, match=r"\[0, 1\]"):
        ac.assign(odd, "treerpo", std="bernoulli")


def test_best_of_four_is_the_prover_addend() -> None:
    part = ac.assign(EXAMPLE, "spo", prover=0.5).parts["prover"]
    best = {v: 1 - (1 - v) ** 4 for v in (0.0, 0.25, 0.5, 1.0)}
    want = [best[0.5] - best[0.25], best[0.0] - best[0.25], best[1.0] - best[0.5], best[0.0] - best[0.5], 0.0]
    assert near(*(0.5 * w for w in want), tol=1e-12) == [part[i] for i in (0, 4, 1, 3, 5)]


def test_one_leaf_alone_keeps_its_raw_score_as_the_authors_code_has_it() -> None:
    records = [rollout("A", 0.7, tree="s"), rollout("B", 0.2, tree="t"), rollout("C", 0.2, tree="t")]
    inner = ac.assign(records, "tree-grpo", mode="tree_inner", compat="code").steps
    assert near(0.7 / (1 + 1e-6), 0.0, 0.0, tol=1e-12) == inner.tolist()
    assert not ac.assign(records, "tree-grpo", mode="tree_inner").steps.any()


# --- where trees come from ---------------------------------------------------------------------------


def linked() -> list[Record]:
    """The worked example by links: b forked from a, d from c, c from the start."""
    plain = [
        {
            "id": r["id"],
            "group": "g",
            "reward": r["reward"],
            "steps": [{"action": n, "node_entropy": 1.0} for n in r["id"][3:].split()],
        }
        for r in EXAMPLE
    ]
    ids = [r["id"] for r in plain]
    forks = {1: (0, 1), 2: (0, 0), 3: (2, 1)}
    return [
        r | ({"parent": ids[forks[i][0]], "fork_step": forks[i][1]} if i in forks else {})
        for i, r in enumerate(plain)
    ]


@pytest.mark.parametrize("name", ALL)
def test_nodes_links_and_equal_beginnings_give_the_same_credit(name: str) -> None:
    want = ac.assign(EXAMPLE, name).steps
    np.testing.assert_allclose(ac.assign(linked(), name).steps, want, atol=1e-12)
    bare = [{k: v for k, v in r.items() if k not in ("parent", "fork_step")} for r in linked()]
    np.testing.assert_allclose(ac.assign(bare, name).steps, want, atol=1e-12)
    np.testing.assert_allclose(ac.assign(linked(), name, merge="equal").steps, want, atol=1e-12)


def test_a_node_is_all_between_two_forks_or_one_step() -> None:
    records = [
        {"id": "a", "group": "g", "reward": 1, "steps": [{"action": x} for x in "pqrs"]},
        {"id": "b", "group": "g", "reward": 0, "steps": [{"action": x} for x in "pqtu"]},
        {"id": "c", "group": "g", "reward": 0, "steps": [{"action": x} for x in "v"]},
    ]
    joined = ac.assign(records, "treerl", reweight="none", mode="adv").steps
    assert near(1 / 6, 1 / 6, 0.5, 0.5, 1 / 6, 1 / 6, -0.5, -0.5, -1 / 3) == joined.tolist()
    apart = ac.assign(records, "treerl", reweight="none", mode="adv", nodes="step").steps
    assert near(1 / 6, 0, 0.5, 0, 1 / 6, 0, -0.5, 0, -1 / 3) == apart.tolist()


def test_trees_of_a_task_are_told_by_field_or_by_root() -> None:
    """Two trees of one task; the root of each is its own."""
    told = [r | {"tree": r["id"][3]} for r in EXAMPLE]
    assert ac.assign(told, "spo").steps.tolist() == [0.0, 0.5, 0.0, -0.5, 0.0, 0.0, 0.0, 0.0]
    roots = [
        {k: v for k, v in r.items() if (i, k) not in ((2, "parent"), (2, "fork_step"))}
        for i, r in enumerate(linked())
    ]
    np.testing.assert_allclose(ac.assign(roots, "spo").steps, ac.assign(EXAMPLE, "spo").steps, atol=1e-15)
    by_root = ac.assign(roots, "spo", trees="links").steps
    assert by_root.tolist() == [0.0, 0.5, 0.0, -0.5, 0.0, 0.0, 0.0, 0.0]
    both = ac.assign(roots, "tree-grpo").parts
    assert near(0.70711, -0.70711, 0.0, tol=1e-4) == both["tree"][[0, 2, 4]].tolist()


@pytest.mark.parametrize("name", ALL)
def test_a_batch_without_branches_is_told(name: str) -> None:
    alone = [rollout(f"n{i} m{i}", i % 2) for i in range(3)]
    credit = ac.assign(alone, name)
    assert [f.code for f in credit.findings if f.code == "ACC509"] == ["ACC509"]
    assert credit.fallbacks["unbranched"] == 1
    branched = ac.assign(EXAMPLE, name)
    assert not [f for f in branched.findings if f.code == "ACC509"]
    assert branched.fallbacks["unbranched"] == branched.fallbacks["single_leaf"] == 0


def test_explain_names_the_leaves_below_the_node() -> None:
    found = ac.assign(EXAMPLE, "treerl").explain("g: A a", 0)
    assert "value 0.5 of 2 leaves - 0.25 of the root's 4" in found.terms[0].formula
    assert [m.note for m in found.terms[0].members] == ["this one", "below the node", "", ""]


def test_the_entropy_of_a_turn_is_given_or_that_of_its_tokens() -> None:
    by_tokens = [
        r | {"steps": [{"node": s["node"], "logprobs": [-0.5, -1.5]} for s in r["steps"]]} for r in EXAMPLE
    ]
    by_tokens[0]["steps"][1] |= {"logprobs": [-3.0]}
    given_too = [r | {"steps": [dict(s) for s in r["steps"]]} for r in EXAMPLE]
    given_too[0]["steps"][1]["node_entropy"] = 3.0
    np.testing.assert_allclose(
        ac.assign(by_tokens, "at2po").steps, ac.assign(given_too, "at2po").steps, rtol=1e-6
    )
    by_tokens[3]["steps"][1] = {"node": "gd", "n_tokens": 2}
    assert ac.assign(by_tokens, "at2po").fallbacks["no_entropy"] == 1
    bare = [r | {"steps": [{"node": s["node"], "n_tokens": 1} for s in r["steps"]]} for r in EXAMPLE]
    with pytest.raises(ac.AccreditError, match="node_entropy"):
        ac.assign(bare, "at2po")


def test_the_family_shares_its_heading() -> None:
    assert {get_method(name)[0].card.family for name in (*ALL, "spo-chain")} == {"forks"}
