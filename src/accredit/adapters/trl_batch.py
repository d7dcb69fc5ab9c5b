"""A generation batch of TRL as padded rows: what was sampled, scored and recorded, on every process.

Source: TRL 1.16.0 ``GRPOTrainer._generate``, ``_calculate_rewards``, ``_generate_and_score_completions``.
"""

from __future__ import annotations

import inspect
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, NamedTuple

import numpy as np

from accredit.adapters.arrays import as_mask, as_numpy
from accredit.adapters.echo import Layout, check_row
from accredit.adapters.padded import PaddedRows
from accredit.errors import DataError, ParamError, VersionError
from accredit.typing import Array, BoolArray, Floats, Ints

__all__ = ["TESTED", "Row", "Sampled", "Scores", "check_trainer", "loss_mask", "padded_rows", "rows_of"]

TESTED = ("1.16", "1.16.0")  # first series that is accepted, release that the tests run
FIELD = "accredit"
_HOOKS = {  # what the adapter calls or watches, and the arguments it has there
    "_generate": ("prompts",),
    "_calculate_rewards": ("inputs", "prompts", "completions", "completion_ids_list"),
    "_generate_and_score_completions": ("inputs",),
}
_GENERATED = 8  # prompt ids, ids, tool mask, completions, log-probabilities, extra fields, images twice


def check_trainer(mixin: type, trainer: type) -> None:
    """Do nothing for a subclass of TRL's GRPOTrainer, in a TRL that the adapter knows.

    Args:
        mixin: our class.
        trainer: class of the trainer.

    Raises:
        VersionError: naming the installed and the tested version, or the hook that changed.
        ParamError: if ``trainer`` is no GRPOTrainer behind the mixin.
    """
    import trl

    series = tuple(int(part) for part in trl.__version__.split(".")[:2])
    first = tuple(int(part) for part in TESTED[0].split("."))
    if not first <= series < (first[0] + 1,):
        raise _unknown(f"this adapter knows {TESTED[0]} and later of series {first[0]} (tested: {TESTED[1]})")
    for name, arguments in _HOOKS.items():
        hook = getattr(trl.GRPOTrainer, name, None)
        if hook is None or not {*arguments} <= set(inspect.signature(hook).parameters):
            raise _unknown(
                f"its GRPOTrainer has no {name}({', '.join(arguments)}), as {TESTED[1]} had, which was tested"
            )
    order = trainer.__mro__
    if trl.GRPOTrainer not in order or order.index(trl.GRPOTrainer) < order.index(mixin):
        raise ParamError(
            f"{mixin.__name__} stands before a GRPOTrainer",
            hint=f"class Trainer({mixin.__name__}, GRPOTrainer): ...",
        )


def _unknown(what: str) -> VersionError:
    import trl

    return VersionError(
        f"trl {trl.__version__} is installed; {what}",
        code="ACC874",
        hint=f"Install 'trl=={TESTED[0]}.*', or hand over advantages with accredit.adapters.padded",
    )


class Sampled(NamedTuple):
    """What a generation gave on this process, before TRL pads and masks it.

    Args:
        ids: token ids of each completion, observation tokens among them.
        policy: of each, True at the tokens that the model sampled.
        logprobs: of each, as the sampler gave them; None = not all are known.
        records: of each, the native record in the extra field ``accredit``; None = there are none.
    """

    ids: list[Ints]
    policy: list[BoolArray]
    logprobs: list[Floats] | None
    records: Sequence[Any] | None

    @classmethod
    def of(cls, generated: Sequence[Any], size: int) -> Sampled:
        """Return what ``GRPOTrainer._generate`` gave for ``size`` prompts, checked.

        Raises:
            VersionError: if it is not what the tested version gives.
            DataError: if completions, masks and records do not fit each other.
        """
        if len(generated) != _GENERATED:
            raise _unknown(
                f"its _generate gives {len(generated)} things, not {_GENERATED} as {TESTED[1]} did"
            )
        _, given, mask, _, logprobs, extra, *_ = generated
        records = extra.get(FIELD)
        for name, value in (("completion_ids", given), ("env_mask", mask), (FIELD, records)):
            if value is not None and len(value) != size:
                code = "ACC872" if len(value) < size else "ACC873"
                raise DataError(f"{name} has {len(value)} rows for {size} prompts", code=code)
        ids = [np.asarray(row, np.int64) for row in given]
        policy = [np.ones(row.size, bool) for row in ids] if mask is None else _policy(mask, ids)
        return cls(ids, policy, _logprobs(logprobs, policy), records)


def _policy(mask: Sequence[Any], ids: list[Ints]) -> list[BoolArray]:
    found = []
    for b, row in enumerate(mask):
        if len(row) != ids[b].size:
            raise DataError(f"row {b} has {ids[b].size} token ids and a mask of {len(row)}", code="ACC871")
        found.append(as_mask([row], "env_mask")[0])
    return found


def _logprobs(given: Any, policy: list[BoolArray]) -> list[Floats] | None:
    """Return the sampler's log-probabilities if every sampled token has one, else None."""
    if given is None or any(len(row) != mask.size for row, mask in zip(given, policy, strict=True)):
        return None
    found = [np.array([np.nan if p is None else p for p in row], np.float64) for row in given]
    whole = all(np.isfinite(row[mask]).all() for row, mask in zip(found, policy, strict=True))
    return found if whole else None


class Scores(NamedTuple):
    """The rewards of all processes.

    Args:
        values: ``[N, K]``, NaN where a reward function abstained.
        names: of the reward functions.
        weights: ``[K]``.
    """

    values: Floats
    names: list[str]
    weights: Floats

    def outcomes(self) -> Floats:
        """Return the weighted sum of each row ``[N]``; NaN where every function abstained."""
        total: Floats = np.nansum(self.values * self.weights, axis=1)
        total[np.isnan(self.values).all(axis=1)] = np.nan
        return total

    def named(self, row: int) -> dict[str, float]:
        """Return the rewards of a row that are there, by name; a name that is taken gets a number."""
        seen: dict[str, int] = {}
        found = {}
        for name, value in zip(self.names, self.values[row].tolist(), strict=True):
            seen[name] = seen.get(name, 0) + 1
            if np.isfinite(value):
                found[name if seen[name] == 1 else f"{name}_{seen[name]}"] = value
        return found


@dataclass(frozen=True, slots=True)
class Row:
    """One completion, as the processes exchange it.

    Args:
        prompt: digest of the dataset's prompt.
        ids: token ids ``[n]``.
        policy: True at sampled tokens ``[n]``.
        record: further fields of its native record.
        signals: numbers of the tokens ``[n]`` by record name.
    """

    prompt: str
    ids: Ints
    policy: BoolArray
    record: Mapping[str, Any] | None
    signals: Mapping[str, Array]


def loss_mask(output: Mapping[str, Any]) -> BoolArray:
    """Return the mask ``[B, T]`` of the tokens that TRL's loss counts."""
    mask = as_mask(output["completion_mask"], "completion_mask")
    return mask & as_mask(output["tool_mask"], "tool_mask") if "tool_mask" in output else mask


def rows_of(
    inputs: Sequence[Mapping[str, Any]],
    sampled: Sampled,
    output: Mapping[str, Any],
    records: Sequence[Any] | None,
    signals: Mapping[str, Any],
    *,
    may_be_masked: bool = False,
) -> list[Row]:
    """Return this process's completions, after comparing what TRL will train on with what was sampled.

    Args:
        inputs: rows of the dataset.
        sampled: of the generation.
        output: of TRL's ``_generate_and_score_completions``.
        records: native record of each completion.
        signals: ``[B, T]`` by record name.
        may_be_masked: TRL masks truncated completions whole; they keep their place in the statistics.

    Raises:
        DataError: ACC870 to ACC873, naming row and position.
    """
    ids, mask = as_numpy(output["completion_ids"]), loss_mask(output)
    if not len(inputs) == len(sampled.ids) == len(ids):
        code = "ACC872" if len(ids) < len(sampled.ids) else "ACC873"
        raise DataError(f"{len(sampled.ids)} completions were sampled, the batch has {len(ids)}", code=code)
    if records is not None and len(records) != len(ids):
        raise DataError(f"there are {len(records)} records for {len(ids)} completions", code="ACC872")
    arrays = {name: as_numpy(value) for name, value in signals.items()}
    found = []
    for b, (own, policy) in enumerate(zip(sampled.ids, sampled.policy, strict=True)):
        whole = np.pad(policy, (0, max(0, ids.shape[1] - own.size)))
        _check_sampled(b, own, policy, ids[b], whole if may_be_masked and not mask[b].any() else mask[b])
        held = {name: values[b, : own.size] for name, values in arrays.items()}
        if "logprobs" not in held and sampled.logprobs is not None:
            held["logprobs"] = sampled.logprobs[b]
        record = None if records is None else records[b]
        found.append(Row(_digest(inputs[b].get("prompt")), own, policy, record, held))
    return found


def _check_sampled(b: int, own: Ints, policy: BoolArray, ids: Ints, mask: BoolArray) -> None:
    """Check that a row of TRL's tensors is the completion that was sampled.

    Args:
        b: number of the row, for messages.
        own: sampled ids ``[n]``, observation tokens among them.
        policy: True at the tokens that the model sampled ``[n]``.
        ids: TRL's ``[T]``.
        mask: TRL's ``[T]``.

    Raises:
        DataError: ACC870 to ACC872, naming row and position.
    """
    if own.size > ids.size:
        raise DataError(f"row {b} has {ids.size} positions for {own.size} sampled tokens", code="ACC872")
    layout = Layout(f"completion {b}", own, policy, whole=True, step=np.zeros(own.size, np.int64))
    check_row(layout, b, mask, ids)


def _digest(prompt: Any) -> str:
    """Return a digest of a prompt: a text, or messages, whose images count by their kind only."""
    text = json.dumps(prompt, sort_keys=True, default=lambda value: type(value).__name__)
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()


def padded_rows(rows: Sequence[Row], scores: Scores, per_group: int) -> PaddedRows:
    """Return the completions of all processes as padded rows, grouped as TRL groups them.

    TRL compares blocks of ``per_group`` consecutive rows; that a block has one prompt is checked.
    A prompt that is drawn twice makes two groups, as there.

    Args:
        rows: of all processes, in their order.
        scores: of the same rows.
        per_group: ``num_generations``.

    Raises:
        DataError: if scores do not fit the rows, or a block has several prompts.
    """
    if len(scores.values) != len(rows) or len(rows) % per_group:
        raise DataError(
            f"{len(rows)} completions have {len(scores.values)} rewards, in groups of {per_group}",
            code="ACC875",
        )
    _check_groups(rows, per_group)
    shape = len(rows), max(1, *(row.ids.size for row in rows))
    tokens, mask = np.zeros(shape, np.int64), np.zeros(shape, bool)
    names = set.intersection(*(set(row.signals) for row in rows))
    signals = {name: np.zeros(shape) for name in names}
    for b, row in enumerate(rows):
        n = row.ids.size
        tokens[b, :n], mask[b, :n] = row.ids, row.policy
        for name, values in signals.items():
            values[b, :n] = row.signals[name]
    groups = [group for group in _group_names(rows[::per_group]) for _ in range(per_group)]
    return PaddedRows(
        rewards=scores.outcomes(),
        mask=mask,
        group=groups,
        rollout=[f"{group}/{b % per_group}" for b, group in enumerate(groups)],
        keep=[True] * len(rows),
        tokens=tokens,
        records=[_record(b, row, scores) for b, row in enumerate(rows)],
        signals=signals,
    )


def _check_groups(rows: Sequence[Row], per_group: int) -> None:
    for b, row in enumerate(rows):
        first = b - b % per_group
        if row.prompt != rows[first].prompt:
            raise DataError(
                f"rows {first} and {b} are one group of {per_group} and have different prompts",
                code="ACC873",
                hint="Leave the sampler to TRL: it repeats each prompt num_generations times, in a row",
            )


def _group_names(firsts: Sequence[Row]) -> list[str]:
    """Return a name for each group, the prompt's own, so that stateful methods know the task again."""
    drawn: Counter[str] = Counter()
    names = []
    for row in firsts:
        drawn[row.prompt] += 1
        again = f" ({drawn[row.prompt]})" if drawn[row.prompt] > 1 else ""
        names.append(f"prompt {row.prompt}{again}")
    return names


def _record(b: int, row: Row, scores: Scores) -> Mapping[str, Any] | None:
    if len(scores.names) == 1:
        return row.record
    record = dict(row.record or {})
    if record.get("rewards") is not None:
        raise DataError(
            f"the record of row {b} has 'rewards' of its own: those of the reward functions are used",
            code="ACC875",
            hint="Leave 'rewards' out of the records",
        )
    return record | {"rewards": scores.named(b)}
