"""Golden files of the methods on trees of rollouts: treerl, tree-grpo, spo, treepo, at2po."""

from __future__ import annotations

from typing import Any

from tests.golden.interface import Call, Golden, adapts, steps, tokens

READ = {"steps": steps, "tokens": tokens}
# The sources know one outcome a leaf, whatever the step rewards add up to.
OUTCOME: dict[str, Any] = {"outcome_in_steps": "no"}


def _same(*names: str) -> dict[Any, Any]:
    return {name: name for name in names}


@adapts("treerl")
def treerl(golden: Golden) -> Call:
    golden.no_effect("convention", "note")
    golden.must_be("selected", "all leaves")
    kwargs = OUTCOME | {
        "parity": golden.one_of("parity", _same("code", "paper"), "code"),
        "mode": golden.one_of("mode", _same("state", "adv", "value")),
        "reweight": golden.one_of("reweight", _same("sqrt", "uniform", "none")),
        "norm": golden.one_of("norm", _same("token", "step", "none")),
    }
    _drawn(golden)
    return Call("treerl", kwargs, READ)


def _drawn(golden: Golden) -> None:
    """Pass over the file's drawing of the tree: the rollouts' nodes say the same."""
    if "tree" in golden.inputs:
        golden.input("tree")


@adapts("tree-grpo")
def tree_grpo(golden: Golden) -> Call:
    golden.no_effect("convention", "note")
    golden.must_be("std", "Bessel-corrected")
    modes = {"sum": "tree", "inner": "tree_inner", "nested": "tree_2norm"}
    kwargs = OUTCOME | {
        "mode": golden.one_of("mode", modes | _same(*modes.values())),
        "eps": golden.number("epsilon", 1e-6),
        "compat": "code",
    }
    return Call("tree-grpo", kwargs, READ)


@adapts("spo")
def spo(golden: Golden) -> Call:
    golden.no_effect("convention", "note")
    variant = golden.one_of("variant", _same("tree", "chain"))
    _drawn(golden)
    if variant == "chain":
        return Call("spo-chain", OUTCOME | {"prob_mask": golden.number("prob_mask", 0.9)}, READ)
    golden.flag("only_nonzero", default=False)  # what it leaves out of training has credit 0
    names = {"none": "none", "rloo": "none", "grpo": "siblings", "siblings": "siblings"}
    kwargs = OUTCOME | {"normalise": golden.one_of("normalise", names, "none")}
    return Call("spo", kwargs, READ)


@adapts("treepo")
def treepo(golden: Golden) -> Call:
    golden.no_effect("convention", "note")
    golden.number("segment_size", 1)  # the rollouts come cut into steps of so many tokens
    names = _same("treepo", "progress", "sibling_norm") | {"sibling-norm": "sibling_norm"}
    kwargs = OUTCOME | {
        "variant": golden.one_of("variant", names),
        "whiten": golden.flag("whiten", default=True),
        "weights": golden.one_of("adv_weight_strategy", _same("average", "group_size"), "average"),
        "skip_flat": golden.flag("remove_no_std_subgroup", default=False),
        "eta": golden.number("adv_eta", -1.0),
        "merge": "equal",
    }
    return Call("treepo", kwargs, READ)


@adapts("at2po")
def at2po(golden: Golden) -> Call:
    golden.no_effect("convention", "note")
    credit = {
        "node_value": "value",
        "diff_parent": "diff_parent",
        "diff_global": "diff_root",
        "diff_localglobal": "diff_both",
    }
    kwargs = OUTCOME | {
        "leaf_norm": golden.flag("leaf_value_norm", default=True),
        "node_value": golden.one_of("node_value_mode", _same("child_softmax", "child_mean", "leaf_mean")),
        "node_adv": golden.one_of("node_adv_mode", credit),
    }
    return Call("at2po", kwargs, READ)
