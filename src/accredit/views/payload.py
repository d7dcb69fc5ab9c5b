"""From results to data blocks: one index, one block of previews, one block a group.

The index is opened at load and holds what every picture needs (ids, rewards, step credit, states as
ints). A group's texts, parts, values, token numbers and explanations are opened on demand.
Step numbers are float32 (seven digits), token numbers int8 against the group's largest |value| (an
error of at most 0.4 % of it); the exact numbers stay in the Parquet file of ``credit.save``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np

from accredit.typing import Array, Floats, Ints
from accredit.views.blocks import Block
from accredit.views.decisive import decisive
from accredit.views.explanations import explanations
from accredit.views.plain import shorten, visible
from accredit.views.scores import scores_of, starts_from_value
from accredit.views.sheet import LARGEST, Sheet

if TYPE_CHECKING:
    from accredit.views.sheet import Texts

__all__ = ["Detail", "TextMode", "group_block", "index_arrays", "method_heads", "words_block"]

TextMode: TypeAlias = Literal["full", "preview"]
PREVIEW_ACTION = 160
PREVIEW_TEXT = 200
FULL_TEXT = 20_000
UNKNOWN = "▪"
_TEXTS = ("text", "action", "observation", "state")


@dataclass(frozen=True, slots=True)
class Detail:
    """How much a group block tells.

    Args:
        text: whole texts and tokens, or the first characters and no tokens.
        decode: token id -> its text; None shows ids.
        explained: sheet steps to explain, for each method; None = none.
    """

    text: TextMode = "full"
    decode: Callable[[int], str] | None = None
    explained: Sequence[set[int]] | None = None


def index_arrays(sheet: Sheet) -> dict[str, Array]:
    """Return the flat arrays of the index block, sheet order."""
    reward, reward_ok = sheet.rollout_column("reward_R")
    trainable, has_trainable = sheet.step_column("trainable_S")
    tokens = np.diff(np.asarray(sheet.batch.token_start_S1))[sheet.order_S]
    arrays: dict[str, Array] = {
        "start": sheet.start_R1.astype(np.int32),
        "first": sheet.first_G1.astype(np.int32),
        "reward": _f4(np.where(reward_ok, reward, 0)),
        "reward_ok": reward_ok,
        "state": sheet.texts("state").codes,
        "tokens": tokens.astype(np.int32),
        "frozen": has_trainable & (trainable == 0),
        **_branches(sheet),
    }
    if sheet.batch.has("agent_S"):
        arrays["agent"] = sheet.texts("agent").codes
    for m, row in enumerate(sheet.credit_MS):
        arrays[f"credit.{m}"] = _f4(row)
    return arrays


def method_heads(sheet: Sheet) -> list[dict[str, Any]]:
    """Return what the page says of each method: label, title, parameters, parts, coverage."""
    return [_method_head(sheet, m) for m in range(len(sheet.credits))]


def words_block(sheet: Sheet) -> Block:
    """Return the action previews: shown in lists and searched, opened after the first paint."""
    source = sheet.texts("action")
    if (source.codes < 0).all():
        source = sheet.texts("text")
    pool, codes = _pool(source, slice(0, len(source.codes)), PREVIEW_ACTION)
    return Block({"pool": pool}, {"action": codes})


def group_block(sheet: Sheet, group: int, detail: Detail) -> Block:
    """Return everything the page shows of one group beyond the index."""
    steps = sheet.group_steps(group)
    head: dict[str, Any] = {"name": sheet.names[group], "text": {}, "methods": []}
    arrays: dict[str, Array] = {}
    for name in _TEXTS:
        limit = FULL_TEXT if detail.text == "full" else _preview_limit(name)
        pool, codes = _pool(sheet.texts(name), steps, limit)
        if pool:
            head["text"][name], arrays[f"text.{name}"] = pool, codes
    arrays.update(_numbers(sheet, steps))
    index, offsets = sheet.group_tokens(group)
    tokens = _Tokens(index, offsets, steps)
    if detail.text == "full":
        head.update(_token_ids(sheet, tokens, detail, arrays))
    for m in range(len(sheet.credits)):
        head["methods"].append(_method_in_group(sheet, m, steps, arrays))
        if len(index):
            kind = _token_credit(sheet, m, tokens, arrays, detail.text)
            head["methods"][m]["tokens"] = kind
        if detail.explained is not None:
            head["methods"][m]["explain"] = explanations(sheet, m, steps, detail.explained[m])
    return Block(head, arrays)


@dataclass(frozen=True, slots=True)
class _Tokens:
    """The tokens of one group: batch indices, offsets of its steps, and the steps."""

    index: Ints
    offsets: Ints
    steps: slice


def _method_head(sheet: Sheet, m: int) -> dict[str, Any]:
    credit = sheet.credits[m]
    card = credit.card
    top = decisive(sheet.credit_MS[m], sheet.rollout_S, sheet.same_MS[m])
    return {
        "id": str(card.id),
        "label": sheet.labels[m],
        "title": str(card.title),
        "yields": str(card.yields),
        "cites": str(card.cites),
        "params": {str(k): _plain(v) for k, v in credit.params.items()},
        "changed": [p.name for p in card.params if credit.params.get(p.name, p.default) != p.default],
        "parts": list(credit.parts),
        "value": starts_from_value(sheet, m),
        "end": sheet.domain_M[m],
        "coverage": _plain(credit.coverage),
        "top": [f.step for f in top],
        "topTimes": [f.times for f in top],
        "flat": _is_flat(sheet, m),
    }


def _is_flat(sheet: Sheet, m: int) -> bool:
    """Whether all steps of every rollout have one credit, so that no decision stands out."""
    row = sheet.credit_MS[m]
    first = row[np.minimum(sheet.start_R1[:-1], max(len(row) - 1, 0))[sheet.rollout_S]]
    several = bool((np.diff(sheet.start_R1) > 1).any())
    return several and np.allclose(row, first, rtol=1e-9, atol=1e-12 * sheet.domain_M[m])


def _branches(sheet: Sheet) -> dict[str, Array]:
    """Parent (sheet index, -1 where none or not in the batch) and fork step of each rollout."""
    if not sheet.batch.has("parent_R"):
        return {}
    parents = sheet.texts("parent", "R")
    place = {visible(name): i for name, i in sheet.place_of.items()}
    of_word = [place.get(word, -1) for word in parents.words] + [-1]
    fork, fork_ok = sheet.rollout_column("fork_step_R")
    return {
        "parent": np.array(of_word, np.int32)[parents.codes],
        "fork": np.where(fork_ok, fork, 0).astype(np.int32),
    }


def _numbers(sheet: Sheet, steps: slice) -> dict[str, Array]:
    """Step rewards, state values and rollout totals of one group, where the batch has them."""
    arrays: dict[str, Array] = {}
    for name in ("reward", "value"):
        values, ok = sheet.step_column(f"{name}_S")
        if ok[steps].any():
            arrays[name], arrays[f"{name}_ok"] = _f4(values[steps]), ok[steps]
    rollouts = np.unique(sheet.rollout_S[steps])
    if len(rollouts):
        span = slice(int(rollouts[0]), int(rollouts[-1]) + 1)
        arrays["total"] = _f4(scores_of(sheet)[span])
    return arrays


def _method_in_group(sheet: Sheet, m: int, steps: slice, arrays: dict[str, Array]) -> dict[str, Any]:
    """Add the parts of one method to the arrays; return its entry in the head."""
    credit = sheet.credits[m]
    if len(credit.parts) > 1:
        for p, values in enumerate(credit.parts.values()):
            per_step = _token_sums(sheet, values) if credit.per_token else values
            arrays[f"part.{m}.{p}"] = _f4(per_step[sheet.order_S][steps])
    return {}


def _token_sums(sheet: Sheet, values: Floats) -> Floats:
    """Return ``[S]`` sums over each step's tokens of ``[T]`` values, batch order."""
    start = sheet.batch.token_start_S1
    owner = np.repeat(np.arange(len(start) - 1), start[1:] - start[:-1])
    return np.bincount(owner, values, minlength=len(start) - 1).astype(float)


def _token_ids(sheet: Sheet, tokens: _Tokens, detail: Detail, arrays: dict[str, Array]) -> dict[str, Any]:
    if not sheet.batch.has("token_T") or not len(tokens.index):
        return {}
    column = sheet.batch.column("token_T")
    ids = np.asarray(column.values)[tokens.index]
    known = np.repeat(column.mask(sheet.batch.n_steps)[sheet.order_S[tokens.steps]], np.diff(tokens.offsets))
    vocab, codes = np.unique(ids[known], return_inverse=True)
    every = np.full(len(ids), len(vocab), np.uint16 if len(vocab) < 2**16 else np.int32)
    every[known] = codes
    arrays["token"] = every
    # Past 2^53 a JavaScript number is no longer exact. The last word stands for tokens of unknown id.
    head: dict[str, Any] = {"vocab": [*(int(v) if abs(int(v)) < 2**53 else str(v) for v in vocab), UNKNOWN]}
    if detail.decode is not None:
        head["pieces"] = [*(visible(detail.decode(int(v))) for v in vocab), UNKNOWN]
    return head


def _token_credit(
    sheet: Sheet, m: int, tokens: _Tokens, arrays: dict[str, Array], text: TextMode
) -> dict[str, Any]:
    """Add the token numbers of one method as compactly as they are; return how they are stored.

    ``turn``: every token of a turn has one number, so one number a turn is stored.
    ``token``: int8 against ``scale``. ``sum``: only the sum of each turn (previews).
    """
    values = np.asarray(sheet.credits[m].tokens, float)[tokens.index]
    counts = np.diff(tokens.offsets)
    owner = np.repeat(np.arange(len(counts)), counts)
    first = np.zeros(len(counts))
    first[counts > 0] = values[tokens.offsets[:-1][counts > 0]]
    arrays[f"tokensum.{m}"] = _f4(np.bincount(owner, values, minlength=len(counts)).astype(float))
    if np.array_equal(values, first[owner]):
        arrays[f"tokenturn.{m}"] = _f4(first)
        return {"kind": "turn"}
    if text == "preview":
        return {"kind": "sum"}
    scale = float(np.abs(values).max()) / 127
    arrays[f"token.{m}"] = np.rint(values / scale).astype(np.int8)
    return {"kind": "token", "scale": scale}


def _pool(texts: Texts, steps: slice, limit: int) -> tuple[list[str], Array]:
    """Return the distinct texts of some steps, cut to a limit, and a code for each step."""
    present, codes = np.unique(texts.codes[steps], return_inverse=True)
    absent = int((present < 0).sum())
    pool = [shorten(texts.words[w], limit) for w in present[absent:]]
    return pool, (codes - absent).astype(np.int32)


def _preview_limit(name: str) -> int:
    return PREVIEW_ACTION if name == "action" else PREVIEW_TEXT


def _f4(values: Floats) -> Array:
    """Float32: seven digits; the largest numbers a sheet holds fit."""
    return np.clip(values, -LARGEST, LARGEST).astype(np.float32)


def _plain(value: Any) -> Any:
    """Return a JSON-ready form of a parameter or a coverage figure."""
    if isinstance(value, bool | int | str) or value is None:
        return value
    if isinstance(value, float):
        return value if np.isfinite(value) else str(value)
    if isinstance(value, dict):
        return {str(k): _plain(v) for k, v in value.items()}
    if isinstance(value, np.generic):
        return _plain(value.item())
    return visible(str(value))
