"""verl's DataProto, written as tensors (``.safetensors``, ``.npz``) with a JSON file of the rest beside them.

verl dumps a DataProto as a pickle, which runs code when it is read, so pickles are refused; docs/formats.md
has the lines that write the safe form. ``batch.npz`` goes with ``batch.json``: the ``non_tensor_batch``, a
list of one value a row by name, and ``meta_info`` if wanted.

A row is a rollout, unless ``traj_uid`` (verl-agent) or V1's keys in a list ``keys`` say that several are
one. Group: ``uid``, else equal prompts. A step is a run of ones in ``response_mask``; a list ``accredit``
(what the agent loop recorded of each row) says more: borders, states, status. State: the record's,
``anchor_obs``, else a hash of the ids that were observed since the turn before. Outcome: sum of
``token_level_rewards`` (else ``token_level_scores``, ``rm_scores``); where rewards are paid before the last
step they are step rewards. Log-probabilities are ``old_log_probs``, else ``rollout_log_probs``, as the
trainer's estimators have them.
Missing: texts.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from accredit.data import Rollout, Step
from accredit.errors import DataError
from accredit.readers.foreign import Origin, letters, mapping_of, number_of, task_group, text_of
from accredit.readers.formats import Format, Head, Item, Reading, register
from accredit.readers.tensors import holds_tensors, read_tensors
from accredit.store.streams import Source
from accredit.typing import Array, BoolArray, Floats, Ints

__all__ = ["DATAPROTO", "side_file"]

_KEY = re.compile(r"(?P<rollout>.+_\d+)_(?P<index>\d+)", re.DOTALL)
_REWARDS = ("token_level_rewards", "token_level_scores", "rm_scores")
_SIGNALS = {
    "logprobs": ("old_log_probs", "rollout_log_probs"),
    "entropies": ("entropys", "entropy", "accredit_entropy"),
    "token_values": ("values",),
    "logprobs_reference": ("ref_log_prob",),
}
_ORDER = ("step", "step_idx", "turn")
_OWN = {
    *("uid", "traj_uid", "keys", "accredit", "anchor_obs", "rewards", "episode_rewards", "active_masks"),
    *("meta_info", *_ORDER),
}


def side_file(path: Any) -> Any:
    """Return the path of the JSON file that belongs to a file of tensors."""
    return path.with_suffix(".json")


def _score(head: Head) -> int:
    return 3 if holds_tensors(head) else 0


@dataclass(frozen=True)
class _Proto:
    """The tensors of the response, checked to fit each other, and the lists beside them.

    Args:
        mask: policy tokens ``[B, L]``.
        ids: token ids ``[B, L]``; None where there are none.
        prompt: of each row, the ids of its prompt without padding.
        signals: token signals ``[B, L]`` by field name.
        rewards: ``[B, L]``; None = unscored.
        lists: one value a row, by name.
        step: of training, "" where it is not told.
    """

    mask: BoolArray
    ids: Ints | None
    prompt: list[Ints]
    signals: Mapping[str, Floats]
    rewards: Floats | None
    lists: Mapping[str, list[Any]]
    step: str

    def of(self, name: str, row: int) -> Any:
        return self.lists[name][row] if name in self.lists else None


def _items(reading: Reading) -> Iterator[Item]:
    source = reading.source
    proto = _proto(read_tensors(source, reading.limits), _side(reading), source)
    paid = [_paid(proto, b, counts) for b, counts in enumerate(_all_counts(proto))]
    places = _places(proto, reading)
    dense = _dense(paid, places)
    last: dict[str, int] = {}
    for b in sorted(range(len(places)), key=lambda b: places[b][1] or 0):
        last[places[b][0]] = b
    for b, (rollout, row) in enumerate(places):
        where = f"{source.name} row {b}"
        origin = Origin(source.path, where, b, reading.builder.log, reading)
        if proto.of("active_masks", b) in (False, 0) or not proto.mask[b].any():
            origin.note("ACC855", "rows that are not active, or have no policy token, are padding")
            continue
        outcome = _outcome(proto, last[rollout], paid)
        try:
            yield Item(where, _rollout(proto, b, origin, rollout, row, outcome, paid[b] if dense else None))
        except DataError as error:
            yield Item(where, error)


# -- what the files hold ----------------------------------------------------------------------------


def _side(reading: Reading) -> Mapping[str, Any]:
    path = side_file(reading.source.path)
    if not path.is_file():
        reading.builder.log.add(
            "ACC857",
            "warning",
            f"{reading.source.name} has no {path.name} beside it: whatever is no tensor is missing",
            where=reading.source.name,
            hint="Write the non_tensor_batch as JSON beside the tensors (docs/formats.md)",
        )
        return {}
    side = Source(path, reading.limits)
    reading.limits.check(f"{side.name} has bytes:", side.size, "line_bytes", str(path))
    return mapping_of(reading.decoder.decode(path.read_bytes(), side.name))


def _proto(tensors: Mapping[str, Array], side: Mapping[str, Any], source: Source) -> _Proto:
    mask = _mask(tensors, source)
    rows, length = mask.shape
    ids = _fitting(tensors, "responses", mask, source)
    signals = {name: _first(tensors, names, mask, source) for name, names in _SIGNALS.items()}
    known = {"responses", "response_mask", *_REWARDS, *(n for names in _SIGNALS.values() for n in names)}
    more = {n for n, v in tensors.items() if v.shape == mask.shape and v.dtype.kind == "f"} - known
    signals |= {name: tensors[name].astype(np.float64) for name in more}
    if {"old_log_probs", "rollout_log_probs"} <= tensors.keys():
        signals["rollout_logprobs"] = _first(tensors, ("rollout_log_probs",), mask, source)
    given = side.get("non_tensor_batch") if isinstance(side.get("non_tensor_batch"), Mapping) else side
    lists = {str(k): v for k, v in mapping_of(given).items() if isinstance(v, list)}
    for name, values in lists.items():
        if len(values) != rows:
            raise _unfit(source, f"{name} has {len(values)} values for {rows} rows")
    return _Proto(
        mask,
        None if ids is None else ids.astype(np.int64),
        _prompts(tensors, rows, length, source),
        {name: values for name, values in signals.items() if values is not None},
        _first(tensors, _REWARDS, mask, source),
        lists,
        text_of(mapping_of(side.get("meta_info")).get("global_steps")),
    )


def _unfit(source: Source, what: str) -> DataError:
    return DataError(
        f"{source.name}: {what}",
        code="ACC110",
        where=source.name,
        hint="Write all tensors and lists of one DataProto, one entry a row",
    )


def _mask(tensors: Mapping[str, Array], source: Source) -> BoolArray:
    """The response mask; verl computes it from the attention mask where it is not there yet."""
    found = tensors.get("response_mask")
    if found is None and {"attention_mask", "responses"} <= tensors.keys():
        length = tensors["responses"].shape[-1]
        found = tensors["attention_mask"][..., tensors["attention_mask"].shape[-1] - length :]
    if found is None or found.ndim != 2:
        names = ", ".join(sorted(tensors)[:20])
        raise _unfit(source, f"there is no response_mask of rows and positions; the tensors are {names}")
    if not np.isin(found, (0, 1)).all():
        raise _unfit(source, "response_mask has values other than 0 and 1")
    return found.astype(bool)


def _fitting(tensors: Mapping[str, Array], name: str, mask: BoolArray, source: Source) -> Array | None:
    found = tensors.get(name)
    if found is not None and found.shape != mask.shape:
        raise _unfit(source, f"{name} has shape {list(found.shape)}, response_mask {list(mask.shape)}")
    return found


def _first(
    tensors: Mapping[str, Array], names: tuple[str, ...], mask: BoolArray, source: Source
) -> Floats | None:
    name = next((n for n in names if n in tensors), None)
    found = None if name is None else _fitting(tensors, name, mask, source)
    return None if found is None else found.astype(np.float64)


def _prompts(tensors: Mapping[str, Array], rows: int, length: int, source: Source) -> list[Ints]:
    prompts, attention = tensors.get("prompts"), tensors.get("attention_mask")
    if prompts is None or attention is None:
        return [np.zeros(0, np.int64)] * rows
    if prompts.ndim != 2 or attention.shape != (rows, prompts.shape[1] + length) or len(prompts) != rows:
        raise _unfit(
            source, f"prompts and attention_mask have shapes {list(prompts.shape)}, {list(attention.shape)}"
        )
    there = attention[:, : prompts.shape[1]].astype(bool)
    return [row[kept].astype(np.int64) for row, kept in zip(prompts, there, strict=True)]


# -- which rows are one rollout, and what they were paid -----------------------------------------------


def _places(proto: _Proto, reading: Reading) -> list[tuple[str, int | None]]:
    """Rollout and row number of each row; None: the row is the rollout."""
    source, rows = reading.source, len(proto.mask)
    stem = source.path.name.split(".")[0]
    if "keys" in proto.lists:
        parts = [_KEY.fullmatch(text_of(key)) for key in proto.lists["keys"]]
        if None in parts:
            raise _unfit(source, "keys are not of the form uid_session_index")
        return [(part["rollout"], int(part["index"])) for part in parts if part is not None]
    if "traj_uid" in proto.lists:
        if not any(name in proto.lists for name in _ORDER):
            reading.builder.log.add(
                "ACC863",
                "info",
                "rows have no number of the step: the steps of a rollout are taken in order of the rows",
                where=source.name,
                hint="Write a list `step` beside the tensors; discounted returns need the order",
            )
        names = [text_of(name) for name in proto.lists["traj_uid"]]
        return [(name, _number(proto, b)) for b, name in enumerate(names)]
    return [(f"{stem}-{b}", None) for b in range(rows)]


def _number(proto: _Proto, b: int) -> int:
    found = next((proto.of(name, b) for name in _ORDER if name in proto.lists), b)
    return found if type(found) is int else b


def _all_counts(proto: _Proto) -> Iterator[Ints]:
    return (_counts(proto, b) for b in range(len(proto.mask)))


def _counts(proto: _Proto, b: int) -> Ints:
    """Policy tokens of each step: as the row's record says, else a step is a run of ones."""
    steps = mapping_of(proto.of("accredit", b)).get("steps")
    given = [_size(step) for step in steps] if isinstance(steps, list) else []
    if given and None not in given:
        return np.array(given, np.int64)
    if "anchor_obs" in proto.lists:
        return np.array([int(proto.mask[b].sum())])
    where = np.flatnonzero(proto.mask[b])
    starts = np.flatnonzero(np.diff(where, prepend=-2) > 1)
    return np.diff(np.append(starts, where.size)) if starts.size else np.zeros(1, np.int64)


def _size(step: Any) -> int | None:
    fields = mapping_of(step)
    if isinstance(fields.get("tokens"), list):
        return len(fields["tokens"])
    return fields["n_tokens"] if type(fields.get("n_tokens")) is int else None


def _paid(proto: _Proto, b: int, counts: Ints) -> Floats:
    """Reward of each step: what is paid at a position belongs to the last step that has begun there."""
    paid = np.zeros(counts.size)
    if proto.rewards is None:
        return paid
    at = np.flatnonzero(proto.rewards[b])
    where = np.flatnonzero(proto.mask[b])
    begun = np.searchsorted(where, at, side="right") - 1
    ends = np.cumsum(counts)
    step = np.minimum(np.searchsorted(ends, np.maximum(begun, 0), side="right"), counts.size - 1)
    np.add.at(paid, step, proto.rewards[b][at])
    return paid


def _dense(paid: list[Floats], places: list[tuple[str, int | None]]) -> bool:
    """Whether rewards of single rows are paid before the last step, so that they say more than an outcome."""
    return places[:1] != [] and places[0][1] is None and any(p[:-1].any() for p in paid)


def _outcome(proto: _Proto, b: int, paid: list[Floats]) -> float | None:
    """The episode's reward, else what the rollout's last row was paid."""
    if (episode := number_of(proto.of("episode_rewards", b))) is not None:
        return episode
    return None if proto.rewards is None else float(paid[b].sum())


# -- one row ---------------------------------------------------------------------------------------


def _rollout(
    proto: _Proto,
    b: int,
    origin: Origin,
    id: str,
    row: int | None,
    outcome: float | None,
    paid: Floats | None,
) -> Rollout:
    record = mapping_of(proto.of("accredit", b))
    uid = text_of(proto.of("uid", b))
    prompt = [proto.prompt[b].tolist()] if proto.prompt[b].size else []
    rest = {k: v[b] for k, v in proto.lists.items() if k not in _OWN and v[b] is not None}
    further = {k: v for k, v in record.items() if k in ("status", "final_state", "final_value", "agent")}
    return Rollout(
        id=id,
        group=uid or task_group(origin, f"step {proto.step}", *prompt),
        row=row,
        reward=outcome,
        policy_version=proto.step or None,
        steps=list(_steps(proto, b, origin, paid)),
        metadata=rest or None,
        **further,
    )


def _steps(proto: _Proto, b: int, origin: Origin, paid: Floats | None) -> Iterator[Step]:
    counts = _counts(proto, b)
    where = np.flatnonzero(proto.mask[b])
    if counts.sum() != where.size:
        raise origin.wrong("the record's steps", f"{counts.sum()} tokens", f"{where.size}, as the mask has")
    seen = list(_seen(proto, b, counts, where))
    given = mapping_of(proto.of("accredit", b)).get("steps")
    given = given if isinstance(given, list) and len(given) == counts.size else [{}] * counts.size
    keys = _states(proto, b, seen, origin)
    for t, at in enumerate(np.split(where, np.cumsum(counts)[:-1])):
        fields = {str(k): v for k, v in mapping_of(given[t]).items() if k != "n_tokens"}
        if proto.ids is None:
            fields.setdefault("n_tokens", int(at.size))
            fields.pop("tokens", None)
        else:
            fields = _checked(fields, proto.ids[b][at], t, origin) | {"context_tokens": seen[t]}
        fields = {"state": keys[t], **fields}
        fields |= {name: values[b][at].astype(np.float32) for name, values in proto.signals.items()}
        if (reward := _step_reward(proto, b, t, paid)) is not None:
            fields["reward"] = reward
        known = {k: v for k, v in fields.items() if k in Step.__struct_fields__ and k != "extra"}
        yield Step(**known, extra={k: v for k, v in fields.items() if k not in known})


def _step_reward(proto: _Proto, b: int, t: int, paid: Floats | None) -> float | None:
    if "anchor_obs" in proto.lists:
        return number_of(proto.of("rewards", b))
    return None if paid is None else float(paid[t])


def _checked(fields: dict[str, Any], ids: Ints, t: int, origin: Origin) -> dict[str, Any]:
    if isinstance(fields.get("tokens"), list) and fields["tokens"] != ids.tolist():
        raise origin.wrong(f"tokens of step {t} of the record", fields["tokens"], "the ids of the response")
    return fields | {"tokens": ids}


def _seen(proto: _Proto, b: int, counts: Ints, where: Ints) -> Iterator[Ints]:
    """Ids between the steps: the prompt and what the row begins with, then what stands before each turn."""
    if proto.ids is None:
        yield from (np.zeros(0, np.int64) for _ in counts)
        return
    ends = np.cumsum(counts)
    last = -1
    for t, (first, end) in enumerate(zip(ends - counts, ends, strict=True)):
        begin = int(where[first]) if end > first else last + 1
        between = proto.ids[b][last + 1 : begin]
        yield np.concatenate([proto.prompt[b], between]) if t == 0 else between
        last = int(where[end - 1]) if end > first else last


def _states(proto: _Proto, b: int, seen: list[Ints], origin: Origin) -> list[str | None]:
    """A key a step: the environment's observation, else a hash of the ids that were observed."""
    if "anchor_obs" in proto.lists:
        return [text_of(proto.of("anchor_obs", b)) or None] * len(seen)
    told = "state" in mapping_of(next(iter(_given_steps(proto, b)), None))
    if not told and any(ids.size for ids in seen):
        origin.note(
            "ACC850",
            "the file has no states: a step's key is a hash of the ids of its prompt or last observation",
            hint="Put the environment's state into the agent loop's extra_fields[\"accredit\"]",
        )
    return [letters("ids", *map(str, ids.tolist())) if ids.size else None for ids in seen]


def _given_steps(proto: _Proto, b: int) -> list[Any]:
    steps = mapping_of(proto.of("accredit", b)).get("steps")
    return steps if isinstance(steps, list) else []


DATAPROTO = register(Format("verl-dataproto", "verl's DataProto as tensors and JSON", _score, _items))
