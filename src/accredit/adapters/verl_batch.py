"""A verl batch as padded rows, its ``algorithm`` section as options, and the credit of both."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

import accredit as ac
from accredit.adapters.arrays import as_mask, as_numpy
from accredit.adapters.padded import PaddedCredit, PaddedRows, padded_credit
from accredit.adapters.running import card_of, log_findings
from accredit.adapters.trackers import scalars
from accredit.errors import DataError, ParamError, VersionError

__all__ = [
    "ENTROPY",
    "HERE",
    "LAST",
    "PREFIX",
    "TESTED",
    "RowFacts",
    "check_version",
    "credit_rows",
    "forget",
]

PREFIX = "accredit/"
TESTED = ("0.9", "0.9.1")  # series that is accepted, release that the tests run
FIELD = "accredit"
ENTROPY = "accredit_entropy"
_VERL_DEFAULT = 1.0  # of algorithm.gamma and algorithm.lam
_SIGNALS = ("old_log_probs", "rollout_log_probs", "ref_log_prob", "values", "entropy", ENTROPY)

logger = logging.getLogger("accredit.verl")
_MEMORY: dict[str, Any] = {}


@dataclass(frozen=True, slots=True)
class RowFacts:
    """What a trainer knows of its rows beside the DataProto.

    Args:
        keys: ``{uid}_{session}_{index}`` of each row, V1's own.
        fields: of each row, the agent loop's ``extra_fields``.
        tensors: ``responses``, ``entropy``, and ``response_mask`` as it was before any rejection.
        padding: rows that fill the batch up.
    """

    keys: Sequence[str] | None = None
    fields: Sequence[Mapping[str, Any]] | None = None
    tensors: Mapping[str, Any] | None = None
    padding: Sequence[bool] | None = None


HERE: ContextVar[RowFacts] = ContextVar("accredit_verl_rows", default=RowFacts())  # noqa: B039
LAST: ContextVar[dict[str, float]] = ContextVar("accredit_verl_summary", default={})  # noqa: B039


def check_version() -> None:
    """Do nothing in a verl that the adapter knows.

    Raises:
        VersionError: naming the installed and the tested version.
    """
    import verl

    if ".".join(verl.__version__.split(".")[:2]) != TESTED[0]:
        raise VersionError(
            f"verl {verl.__version__} is installed; this adapter knows {TESTED[0]} (tested: {TESTED[1]})",
            code="ACC874",
            hint=f"Install 'verl=={TESTED[0]}.*', or hand over advantages with accredit.adapters.padded",
        )


def forget() -> None:
    """Drop the memory of stateful methods, as at the start of a run."""
    _MEMORY.clear()


def credit_rows(
    method: str, tensors: Mapping[str, Any], extras: Mapping[str, Any], config: Any, per_group: int = 1
) -> PaddedCredit:
    """Return the advantages of a verl batch.

    Args:
        method: id or alias of the catalogue.
        tensors: ``DataProto.batch``: token_level_rewards, response_mask, and where present
            responses, old_log_probs or rollout_log_probs, values, ref_log_prob.
        extras: ``DataProto.non_tensor_batch``: uid, and where present ``accredit`` (a record of
            each row), or verl-agent's traj_uid and anchor_obs (a step a row).
        config: the trainer's ``algorithm`` section.
        per_group: rollouts that a group should have (``rollout.n``): fewer are a warning, an error
            under ``algorithm.accredit.strict``.

    Raises:
        VersionError: for a verl that this adapter does not know.
        DataError: if the batch lacks uids, or its rows do not fit together.
        ParamError: for an unknown parameter under ``algorithm.accredit``.
    """
    check_version()
    here = HERE.get()
    rows = _padded_rows(tensors, extras, here)
    options = _options(method, config)
    if "stateful" in card_of(method).tags:
        options["state"] = _MEMORY.get(method)
    found = padded_credit(rows, method, **options)
    _MEMORY[method] = found.credit.state
    short = _short_groups(found.credit.batch, per_group, strict=bool(options.get("strict")))
    log_findings(logger, f"{PREFIX}{method}", found.credit)
    LAST.set(scalars(found.credit) | {"accredit/short_groups": float(short)})
    return _masked(found, tensors["response_mask"])


def _masked(found: PaddedCredit, mask: Any) -> PaddedCredit:
    """Tokens that verl rejected after sampling get nothing; they were part of their steps."""
    return replace(found, advantages=found.advantages * mask, returns=found.returns * mask)


def _padded_rows(tensors: Mapping[str, Any], extras: Mapping[str, Any], here: RowFacts) -> PaddedRows:
    if extras.get("uid") is None:
        raise DataError("the batch has no uid, so nothing says which rollouts share a task", code="ACC103")
    known = dict(tensors) | dict(here.tensors or {})
    mask = known["response_mask"]
    size, length = as_mask(mask).shape
    records = _records(extras, here, size)
    states, rewards = _verl_agent(extras)
    rollout, order = _rollouts(extras, here)
    values = {name: _fitting(known.get(name), size, length) for name in _SIGNALS}
    logprobs = values["old_log_probs"] if values["old_log_probs"] is not None else values["rollout_log_probs"]
    reference = values["ref_log_prob"]
    return PaddedRows(
        rewards=tensors["token_level_rewards"],
        mask=tensors["response_mask"].new_tensor(as_mask(mask)) if hasattr(mask, "is_nested") else mask,
        group=list(extras["uid"]),
        rollout=rollout,
        order=order,
        keep=[not p for p in here.padding] if here.padding is not None else [True] * size,
        tokens=_fitting(known.get("responses"), size, length),
        spans=None if states is None else [[(0, length)]] * size,
        states=states,
        step_rewards=rewards,
        records=records,
        logprobs=logprobs,
        entropies=values[ENTROPY] if values[ENTROPY] is not None else values["entropy"],
        values=values["values"],
        signals={} if reference is None else {"logprobs_reference": reference},
        row_rewards="last",
    )


def _fitting(value: Any, size: int, length: int) -> Any:
    """Return a tensor in the width of the mask: V1's ragged ones are padded each to its own."""
    if value is None:
        return None
    found = as_numpy(value)
    if found.shape[1] == length:
        return found
    wide = np.zeros((size, max(length, found.shape[1])), found.dtype)
    wide[:, : found.shape[1]] = found
    return wide[:, :length]


def _records(extras: Mapping[str, Any], here: RowFacts, size: int) -> list[Mapping[str, Any] | None] | None:
    if here.fields is not None:
        found = [(fields or {}).get(FIELD) for fields in here.fields]
    elif FIELD in extras:
        found = list(extras[FIELD])
    else:
        return None
    padding = here.padding or [False] * size
    return [None if pad else record for record, pad in zip(found, padding, strict=True)]


def _verl_agent(extras: Mapping[str, Any]) -> tuple[Any, Any]:
    """Return states and step rewards of verl-agent's layout: one row a step."""
    if "anchor_obs" not in extras:
        return None, None
    states = [[_plain(state)] for state in extras["anchor_obs"]]
    paid = extras.get("rewards")
    return states, None if paid is None else [[float(r)] for r in paid]


def _plain(state: Any) -> Any:
    return state.tolist() if hasattr(state, "tolist") else state


def _rollouts(extras: Mapping[str, Any], here: RowFacts) -> tuple[list[Any] | None, list[int] | None]:
    if here.keys is not None:
        parts = [key.rsplit("_", 2) for key in here.keys]
        return [f"{uid}_{session}" for uid, session, _ in parts], [int(index) for *_, index in parts]
    if extras.get("traj_uid") is not None:
        return list(extras["traj_uid"]), None
    return None, None


def _options(method: str, config: Any) -> dict[str, Any]:
    given = config.get(FIELD, None) if config is not None else None
    if given is not None and not isinstance(given, dict):
        from omegaconf import OmegaConf

        given = OmegaConf.to_container(given, resolve=True)
    if given is not None and not isinstance(given, dict):
        raise ParamError(f"algorithm.{FIELD} must be a mapping of parameters, got {given!r}")
    options: dict[str, Any] = {str(name): value for name, value in (given or {}).items()}
    takes = {spec.name for spec in card_of(method).params}
    for name in ("gamma", "lam"):
        value = config.get(name, None) if config is not None else None
        if name in takes and name not in options and value is not None and value != _VERL_DEFAULT:
            options[name] = float(value)
    return options


def _short_groups(batch: ac.Batch, per_group: int, *, strict: bool) -> int:
    """Return how many groups lost rollouts on their way: failed sessions, or rows that were dropped."""
    sizes = np.bincount(batch.group_R)
    short = np.flatnonzero((sizes > 0) & (sizes < per_group))
    if short.size:
        first = int(short[0])
        text = (
            f"{short.size} groups have fewer than {per_group} rollouts: group "
            f"{batch.group_names[first]!r} has {int(sizes[first])}"
        )
        if strict:
            raise DataError(text, code="ACC872", hint="Say strict=false where sessions may fail")
        logger.warning("ACC872: %s", text)
    return int(short.size)
