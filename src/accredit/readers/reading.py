"""`read`: a file, a folder or records to a Batch, whatever is in them."""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from accredit.data import Batch, Exclusion, FindingLog, Rollout
from accredit.data.builder import BatchBuilder
from accredit.errors import AccreditError, DataError
from accredit.readers.columns import check_mapping
from accredit.readers.dataproto import side_file
from accredit.readers.formats import Format, Head, Reading, get_format, recognise
from accredit.readers.parquet import parquet_head
from accredit.readers.position import grouped_by_position
from accredit.readers.retokenize import Retokenize, retokenized
from accredit.readers.tensors import is_pickle
from accredit.store.decode import Decoder
from accredit.store.limits import Limits
from accredit.store.spool import seekable
from accredit.store.streams import Source

__all__ = ["read"]

_READ_SUFFIXES = (
    ".jsonl",
    ".jsonl.gz",
    ".jsonl.zst",
    ".json",
    ".json.gz",
    ".json.zst",
    ".parquet",
    ".ndjson",
    ".traj",
    ".eval",
    ".safetensors",
    ".npz",
)
_FIRST_LINES = 16


def read(
    source: str | Path | Iterable[Mapping[str, Any] | Rollout],
    format: str | None = None,
    *,
    strict: bool = False,
    limits: Limits | None = None,
    mapping: Mapping[str, str] | None = None,
    group_size: int | None = None,
    retokenize: Retokenize | None = None,
) -> Batch:
    """Return the rollouts of a file, a folder of files, or an iterable of records.

    Everything that is read is either in the batch or in ``batch.excluded`` with its reason.

    Args:
        source: path of a file, folder or pipe (``"-"``: standard input), or records.
        format: a format by name; None: told from the content of each file.
        strict: raise at the first rollout that cannot be used, and at whatever would be mended.
        limits: bounds on what a file may ask for (see `Limits`).
        mapping: field to column, for rows of one's own: ``{"reward": "score", "messages": "chat"}``.
        group_size: each so many rollouts that follow each other are a group, whatever the file says.
        retokenize: make token ids of text where a rollout has none, and mark it: path of a
            ``tokenizer.json``, or a callable from a text to ids and offsets (see
            `accredit.readers.retokenize.retokenized`). None: ids are never made.

    Raises:
        DataError: if the source cannot be read at all, or holds no rollout that can be used.
        VersionError: if it was written in a newer schema.

    Example:
        >>> read([{"id": "a", "group": "g", "reward": 1, "steps": [{"action": "go"}]}]).n_steps
        1
    """
    check_mapping(mapping or {})
    bounds = limits or Limits()
    if isinstance(source, str | Path):
        if not str(source):
            raise DataError("the path is empty", code="ACC901", hint="Name the file; the folder here is '.'")
        batch = _read_path(
            Path(source), _chosen(format, mapping), bounds, strict=strict, mapping=mapping or {}
        )
    elif mapping:
        raise _mapped_records()
    else:
        batch = Batch.from_records(_checked(source), strict=strict)
        if len(batch) == 0 and batch.excluded:
            raise _nothing_usable("the records", "", batch)
    if retokenize is not None:
        batch = retokenized(batch, retokenize)
    return batch if group_size is None else grouped_by_position(batch, group_size)


def _read_path(
    path: Path, chosen: Format | None, limits: Limits, *, strict: bool, mapping: Mapping[str, str]
) -> Batch:
    builder = BatchBuilder(str(path), strict=strict)
    one = _read_member if path.is_dir() else _read_file
    with seekable(path, limits) as place:
        parts: list[Batch] = [
            p for file in _files(place) for p in one(file, chosen, limits, builder, mapping)
        ]
        return _joined(path, builder, parts)


def _chosen(format: str | None, mapping: Mapping[str, str] | None) -> Format | None:
    """Return the format that was asked for; a mapping is for rows of columns."""
    if mapping and format not in (None, "chat"):
        raise DataError(
            f"format={format!r} has its own fields, and takes no mapping",
            code="ACC901",
            hint='Leave format out, or give format="chat"',
        )
    name = "chat" if mapping else format
    return get_format(name) if name is not None else None


def _mapped_records() -> DataError:
    return DataError(
        "a mapping is for the columns of a file, and the source is records",
        code="ACC901",
        hint="Write the data set to a file (`dataset.to_parquet(path)`), or rename its columns",
    )


def _checked(source: Any) -> Iterable[Mapping[str, Any] | Rollout]:
    if isinstance(source, Mapping | bytes | io.IOBase) or not isinstance(source, Iterable):
        batch = "; accredit.store.save_batch(batch, path) writes one" if isinstance(source, Batch) else ""
        raise DataError(
            f"a source is a path or an iterable of records, not a {type(source).__name__}",
            code="ACC901",
            hint=f"Give a path, or a list of records{batch}",
        )
    return source


def _files(path: Path) -> list[Path]:
    if not path.is_dir():
        return [path]
    found = sorted(
        f
        for f in path.rglob("*")
        if f.is_file() and f.name.lower().endswith(_READ_SUFFIXES) and f.name[0] != "."
    )
    if not found:
        raise DataError(
            f"folder {path} has no file of rollouts",
            code="ACC901",
            where=str(path),
            hint=f"Files end in {', '.join(_READ_SUFFIXES)}",
        )
    beside = {side_file(f) for f in found if f.name.lower().endswith((".safetensors", ".npz"))}
    return [f for f in found if f not in beside]


def _read_member(
    path: Path, chosen: Format | None, limits: Limits, builder: BatchBuilder, mapping: Mapping[str, str]
) -> Iterator[Batch]:
    """Read a file of a folder: settings and logs lie beside rollouts, and one broken file stops no other."""
    try:
        yield from _read_file(path, chosen, limits, builder, mapping)
    except DataError as error:
        if builder.strict:
            raise
        where = error.where or str(path)
        if error.code in _NO_ROLLOUTS:
            builder.log.add(error.code, "warning", f"{error.message}: left out", where=where, hint=error.hint)
        else:
            builder.exclude(error, path.name, where)


_NO_ROLLOUTS = ("ACC902", "ACC903")


def _read_file(
    path: Path, chosen: Format | None, limits: Limits, builder: BatchBuilder, mapping: Mapping[str, str]
) -> Iterator[Batch]:
    source = Source(path, limits)
    if is_pickle(source):
        raise _pickled(source)
    reading = Reading(source, limits, builder, Decoder(limits, builder.log, strict=builder.strict), mapping)
    how = chosen or recognise(_head(source), path)
    for where, content in how.items(reading):
        if isinstance(content, Batch):
            yield content
        elif isinstance(content, AccreditError):
            builder.exclude(content, where, where)
        else:
            _add(builder, content, where, limits)
    if source.broken is not None:
        if builder.strict:
            raise source.broken
        error = source.broken
        builder.log.add(error.code, "error", error.message, where=error.where, hint=error.hint)


def _pickled(source: Source) -> DataError:
    return DataError(
        f"{source.name} is a pickle, which runs code when it is read, so it is not",
        code="ACC866",
        where=str(source.path),
        hint="If you trust it, write it in a safe form where verl is installed: "
        "data = DataProto.load_from_disk(path); "
        "arrays = {k: (v.float() if v.is_floating_point() else v).numpy() for k, v in data.batch.items()}; "
        "np.savez('batch.npz', **arrays); "
        "rest = {k: v.tolist() for k, v in data.non_tensor_batch.items()}; "
        "json.dump(rest, open('batch.json', 'w'), default=str)",
    )


def _add(builder: BatchBuilder, record: Any, where: str, limits: Limits) -> None:
    steps = record.get("steps") if isinstance(record, Mapping) else None
    if isinstance(steps, list) and len(steps) > limits.steps:
        try:
            limits.check("the record has steps:", len(steps), "steps", where)
        except DataError as error:
            builder.exclude(error, str(record.get("id", where)), where)
            return
    builder.add(record, where)


def _head(source: Source) -> Head:
    if source.size == 0:
        raise _empty(source.path)
    if source.magic.startswith(b"PAR1"):
        return parquet_head(source)
    text = source.start()
    if not text.strip():
        if source.broken is not None:
            raise source.broken
        raise _empty(source.path)
    return Head(source.name, source.magic, text, _first_value(source))


def _first_value(source: Source) -> Any:
    """Return the first JSON object among the first lines, None if there is none."""
    decoder = Decoder(source.limits, FindingLog())
    for _, line in islice(source.lines(), _FIRST_LINES):
        if isinstance(line, bytes) and line.lstrip().startswith(b"{"):
            with suppress(DataError):
                return decoder.decode(line, source.name)
    return None


def _empty(path: Path) -> DataError:
    return DataError(
        f"{path.name} is empty", code="ACC902", where=str(path), hint="Check what should have written it"
    )


def _joined(path: Path, builder: BatchBuilder, parts: list[Batch]) -> Batch:
    read = builder.build()
    whole = _concat(([read] if len(read) or read.excluded or not parts else []) + parts)
    if len(whole) == 0 and whole.excluded:
        raise _nothing_usable(path.name, str(path), whole)
    if len(whole) == 0 and not builder.header and not parts:
        raise _nothing_known(path, whole) if whole.findings else _empty(path)
    return whole


def _concat(parts: list[Batch]) -> Batch:
    """Return one batch of the files' batches; a rollout whose id is taken already is excluded."""
    seen: set[str] = set()
    fresh = []
    for part in parts:
        keep = [r for r, name in enumerate(part.ids) if name not in seen]
        fresh.append(part if len(keep) == len(part) else _without_taken(part, keep))
        seen.update(part.ids)
    return fresh[0] if len(fresh) == 1 else Batch.concat(fresh)


def _without_taken(part: Batch, keep: list[int]) -> Batch:
    where = str(part.provenance.get("source", ""))
    kept = set(keep)
    log = FindingLog()
    excluded = []
    for r, name in enumerate(part.ids):
        if r not in kept:
            reason = f"rollout id {name!r} occurs in an earlier file"
            excluded.append(Exclusion(name, reason, where, "ACC101"))
            log.add("ACC101", "error", reason, where=where, hint="Give each rollout its own id")
    left = part.take(np.array(keep, np.int64))
    return left.annotated((*part.findings, *log.findings()), (*part.excluded, *excluded))


def _nothing_known(path: Path, whole: Batch) -> DataError:
    found = whole.findings[0]
    return DataError(found.message, code=found.code, where=found.where or str(path), hint=found.hint)


def _nothing_usable(name: str, where: str, whole: Batch) -> DataError:
    broken = [f.message for f in whole.findings if f.code == "ACC909"]
    shown = "; ".join([*broken, *(f"{e.where or e.id}: {e.reason}" for e in whole.excluded[:3])])
    return DataError(
        f"none of the {len(whole.excluded)} rollouts of {name} can be used. {shown}",
        code="ACC916",
        where=where,
        hint="Mend the first of them and read again; `accredit convert` writes the native form",
    )
