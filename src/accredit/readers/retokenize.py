"""Token ids made from text, where the user asks for it: marked, and never beside recorded ones.

A sampler's ids cannot be got back from its text: ``encode(decode(ids))`` may differ, templates and tool
parsers change what was said. So ids are made only on demand, of rollouts that have none at all, and the
rollouts are marked (column ``tokens_inferred_R``, provenance, finding ACC864).

What a rollout said and saw is joined in order and encoded as one text; a token belongs to the piece that
owns its first character. The template's own marks are not in the text, so neither are their tokens.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from itertools import accumulate
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from accredit.data import Batch, FindingLog
from accredit.data.builder import BatchBuilder
from accredit.data.header import header_of, parse_header
from accredit.data.vocabulary import TOKEN_FIELDS
from accredit.errors import BackendError, DataError

__all__ = ["Retokenize", "retokenized"]

Retokenize: TypeAlias = str | Path | Callable[[str], Any]

_COUNTED = ("n_tokens", "context_tokens", *TOKEN_FIELDS)


class _Encoder(NamedTuple):
    """Text to ids and the offset of each id's first character, and who does it."""

    encode: Callable[[str], Any]
    account: dict[str, str]


def retokenized(batch: Batch, retokenize: Retokenize) -> Batch:
    """Return the batch with ids made from text for the rollouts that have none.

    A turn's text is what it said, and the calls it made as its action tells them; what was observed after
    it is context of the next step. Rollouts with any recorded ids, counts or token signals stay as they are.

    Args:
        batch: the rollouts.
        retokenize: path of a Hugging Face ``tokenizer.json``, or a callable that returns for a text: an
            object with ``ids`` and ``offsets``, a mapping with ``input_ids`` and ``offset_mapping``, or a
            pair of both lists.

    Raises:
        DataError: if the tokenizer cannot be read, or what it returns fits no text.
        BackendError: if the package ``tokenizers`` is needed and is not installed.

    Example:
        >>> records = [{"id": "a", "group": "g", "reward": 1, "steps": [{"text": "go on"}]}]
        >>> words = lambda text: ([len(w) for w in text.split()], [(0, 2), (3, 5)])
        >>> retokenized(Batch.from_records(records), words).token_T.tolist()
        [2, 2]
    """
    encoder = _encoder(retokenize)
    bare = _bare(batch)
    builder = BatchBuilder(str(batch.provenance.get("source", "")))
    builder.open(parse_header(header_of(batch)))
    for record in batch.records():
        if record["id"] in bare:
            record = _with_tokens(record, encoder)
        builder.add(record)
    made = builder.build()
    log = FindingLog()
    kept = len(batch) - len(bare)
    log.add(
        "ACC864",
        "warning",
        f"token ids of {len(bare)} rollouts were made from their text by {encoder.account['tokenizer']}"
        + (f"; {kept} with tokens of their own stay as they are" if kept else ""),
        hint="They are not the sampler's: record ids while sampling",
    )
    inferred = {**encoder.account, "rollouts": len(bare)}
    marked = made.with_provenance({**batch.provenance, "tokens_inferred": inferred})
    return marked.annotated((*made.findings, *log.findings()), made.excluded)


def _bare(batch: Batch) -> set[str]:
    """Ids of the rollouts that have neither tokens nor context tokens."""
    count_R = np.diff(batch.token_start_S1[batch.step_start_R1])
    if batch.context_start_S1 is not None:
        count_R = count_R + np.diff(batch.context_start_S1[batch.step_start_R1])
    return {name for name, count in zip(batch.ids, count_R.tolist(), strict=True) if not count}


def _with_tokens(record: Mapping[str, Any], encoder: _Encoder) -> dict[str, Any]:
    steps = [{k: v for k, v in step.items() if k not in _COUNTED} for step in record["steps"]]
    pieces = [text for step in steps for text in (_said(step), step.get("observation") or "")]
    ids_of = _ids_by_piece(pieces, encoder, str(record["id"]))
    for t, step in enumerate(steps):
        step["tokens"] = ids_of[2 * t]
        step["context_tokens"] = ids_of[2 * t - 1] if t else []
    return {**record, "steps": steps, "tokens_inferred": 1}


def _said(step: Mapping[str, Any]) -> str:
    """What a turn said, and its calls where the text does not hold them."""
    text, action = step.get("text") or "", step.get("action")
    done = "" if action is None else str(action)
    return text if done in text else "\n".join(part for part in (text, done) if part)


def _ids_by_piece(pieces: list[str], encoder: _Encoder, rollout: str) -> list[list[int]]:
    # A lone surrogate is one character before and after.
    text = "".join(pieces).encode("utf-8", "replace").decode()
    found: list[list[int]] = [[] for _ in pieces]
    if not text:
        return found
    ids, first = _checked(encoder.encode(text), len(text), rollout)
    start = np.array([0, *accumulate(map(len, pieces))][:-1])
    owner = np.searchsorted(start, first, side="right") - 1
    for piece, id in zip(owner.tolist(), ids, strict=True):
        found[piece].append(id)
    return found


def _checked(given: Any, size: int, rollout: str) -> tuple[list[int], list[int]]:
    """Ids, and the offset of each one's first character."""
    if isinstance(given, Mapping):
        ids, offsets = given.get("input_ids"), given.get("offset_mapping")
    elif hasattr(given, "ids") and hasattr(given, "offsets"):
        ids, offsets = given.ids, given.offsets
    else:
        ids, offsets = given if isinstance(given, tuple) and len(given) == 2 else (None, None)
    if ids is None or offsets is None:
        raise _unfit("returned no ids with character offsets", rollout)
    pairs = [tuple(pair) for pair in offsets]
    if len(ids) != len(pairs):
        raise _unfit(f"returned {len(ids)} ids and {len(pairs)} offsets", rollout)
    first = [int(pair[0]) for pair in pairs]
    if any(b < a for a, b in zip([0, *first], first, strict=False)) or (first and first[-1] > size):
        raise _unfit("returned offsets that do not run through the text", rollout)
    # Trimmed offsets put a space at the very end behind the text.
    return [int(id) for id in ids], [min(at, size - 1) for at in first]


def _unfit(what: str, rollout: str) -> DataError:
    return DataError(
        f"the tokenizer {what} for rollout {rollout!r}",
        code="ACC865",
        hint="Give a tokenizer.json, or a callable that returns (ids, [(start, end), ...]) of a text",
    )


def _encoder(retokenize: Retokenize) -> _Encoder:
    if callable(retokenize):
        name = getattr(retokenize, "__qualname__", type(retokenize).__name__)
        return _Encoder(retokenize, {"tokenizer": str(name)})
    path = Path(retokenize)
    try:
        raw = path.read_bytes()
        settings = json.loads(raw)
    except (OSError, ValueError) as error:
        raise DataError(
            f"tokenizer {str(path)!r} cannot be read: {getattr(error, 'strerror', None) or error}",
            code="ACC865",
            hint="Give the path of a tokenizer.json",
        ) from error
    tokenizer = _loaded(_untrimmed(settings), path)
    digest = hashlib.sha256(raw).hexdigest()

    def encode(text: str) -> Any:
        return tokenizer.encode(text, add_special_tokens=False)

    return _Encoder(encode, {"tokenizer": path.name, "sha256": digest})


def _untrimmed(settings: Any) -> Any:
    """The settings with offsets that hold a token's leading space, as its id does."""
    if isinstance(settings, dict):
        found = {k: _untrimmed(v) for k, v in settings.items() if k not in ("truncation", "padding")}
        return {**found, "trim_offsets": False} if "trim_offsets" in found else found
    return [_untrimmed(v) for v in settings] if isinstance(settings, list) else settings


def _loaded(settings: Any, path: Path) -> Any:
    try:
        from tokenizers import Tokenizer
    except ImportError as error:
        raise BackendError(
            "token ids are made from text by the package `tokenizers`, which is not installed",
            code="ACC865",
            hint="pip install 'accredit[tokens]'",
        ) from error
    try:
        return Tokenizer.from_str(json.dumps(settings))
    except Exception as error:  # the package raises nothing narrower
        raise DataError(
            f"tokenizer {str(path)!r} is none: {error}", code="ACC865", hint="Give a tokenizer.json"
        ) from error
