"""From records to columns, one record at a time.

A record is checked as a whole before any of it is kept; a record that cannot be used becomes an
exclusion with its reason, never a half-read rollout.
"""

from __future__ import annotations

import io
from array import array
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from accredit.data.column import Column
from accredit.data.context import Context
from accredit.data.finding import Exclusion
from accredit.data.header import Header
from accredit.data.layout import HIDDEN, Layout
from accredit.data.log import FindingLog, known_again
from accredit.data.parse import Parsed, Record, parse_record
from accredit.data.ragged import offsets
from accredit.data.records import Rollout
from accredit.data.rows import join_rows
from accredit.data.settle import Settler
from accredit.data.sinks import (
    JsonSink,
    ListSink,
    NumberSink,
    Sink,
    VectorSink,
    WordSink,
    as_json,
    as_vectors,
    new_sink,
)
from accredit.data.vocabulary import ROLLOUT_FIELDS, STEP_FIELDS, Field, step_field
from accredit.errors import AccreditError, DataError
from accredit.typing import Ints, Level, Scalar

if TYPE_CHECKING:
    from accredit.data.batch import Batch

__all__ = ["MAX_TOKENS", "BatchBuilder"]

# Of one batch: 64 GiB of token credit.
MAX_TOKENS = 1 << 33
_VECTORS = frozenset(f.name for f in STEP_FIELDS.values() if f.kind == "vectors")


class BatchBuilder:
    """Builds a Batch record by record, at the memory of its columns.

    Args:
        source: name of the source for places in findings (a file name, or "").
        strict: raise at the first record that cannot be used, instead of excluding it.

    Example:
        >>> builder = BatchBuilder()
        >>> builder.add({"id": "r1", "group": "g", "reward": 1, "steps": [{"action": "go"}]})
        True
        >>> builder.build().n_steps
        1
    """

    def __init__(self, source: str = "", *, strict: bool = False) -> None:
        self.source = source
        self.strict = strict
        self.log = FindingLog()
        self.header = Header(given=False)
        self.excluded: list[Exclusion] = []
        self._seen: dict[str, set[Scalar | None]] = {}
        self._ids: list[str] = []
        self._rows: list[Scalar | None] = []
        self._groups: dict[tuple[type, Scalar], int] = {}
        self._group_R = array("i")
        self._steps_R = array("q")
        self._tokens_S = array("q")
        self._state_words: dict[tuple[type, Scalar], int] = {}
        self._rollout: dict[str, Sink] = {}
        self._step: dict[str, Sink] = {}
        self._context: ListSink | None = None
        self._reset_S: list[int] = []
        self._n_records = 0
        self._n_tokens = 0
        self._torn: dict[str, str] = {}

    def add(self, record: Mapping[str, Any] | Rollout, where: str = "") -> bool:
        """Add one record.

        Args:
            record: a native record or a Rollout.
            where: its place, for findings (default: source and record number).

        Returns:
            Whether it is used; if not, ``excluded`` has the reason.

        Raises:
            DataError: if it cannot be used and the builder is strict.
        """
        self._n_records += 1
        place = where or f"{self.source or 'records'} record {self._n_records}"
        fields: Any = record.to_record() if isinstance(record, Rollout) else record
        try:
            parsed = parse_record(fields, place)
            self._fit(parsed, place)
            self._claim(parsed, place)
        except DataError as error:
            name = _id_of(fields)
            self.exclude(error, name or place, place)
            if name and error.code != "ACC101" and fields.get("row") is not None:
                self._torn[name] = place
            return False
        self._commit(parsed)
        for finding in parsed.findings:
            self.log.put(finding)
        return True

    def open(self, header: Header) -> None:
        """Take what the source says about itself, before its first record.

        The columns that it names exist in the batch even if no record has a value for them.
        """
        self.header = header if not self.header else self.header.joined(header)
        for layout in header.layouts:
            table = self._rollout if layout.level == "rollout" else self._step
            if layout.column not in HIDDEN and layout.field not in table:
                table[layout.field] = self._declared_sink(layout)
        if any(layout.column == "context_token_C" for layout in header.layouts):
            self._context = self._context or ListSink("i8")

    def exclude(self, error: AccreditError, rollout: str, where: str) -> None:
        """Count a rollout as read but not used (raise instead where strict)."""
        if self.strict:
            raise error
        self.excluded.append(Exclusion(rollout, error.message, where, error.code))
        self.log.add(error.code, "error", error.message, where=where, hint=error.hint)

    def build(self) -> Batch:
        """Return the Batch of all records added so far; the builder must not be used after."""
        from accredit.data.batch import Batch  # a Batch builds itself through this module

        counts = np.array(self._tokens_S, np.int64)
        context = None if self._context is None else np.maximum(self._context.lengths(counts.size), 0)
        batch = Batch(
            ids=tuple(self._ids),
            group_R=np.array(self._group_R, np.int32),
            group_names=tuple(word for _, word in self._groups),
            step_start_R1=offsets(np.array(self._steps_R, np.int64)),
            token_start_S1=offsets(counts),
            columns=self._columns(counts),
            context_start_S1=None if context is None else offsets(context),
            outcome_in_steps=self.header.outcome_in_steps,
            provenance=self._provenance(),
        )
        batch = self._whole(join_rows(batch, self._rows, self.log))
        if not batch.has("row_S") and any(layout.column == "row_S" for layout in self.header.layouts):
            columns = {**batch.columns, "row_S": WordSink().column("step", batch.n_steps)}
            batch = batch._replace(columns=columns)
        findings = known_again(self.header.findings, self.log.findings())
        return batch.annotated(findings, (*self.header.excluded, *self.excluded))

    def _whole(self, batch: Batch) -> Batch:
        """Return the batch without rollouts that lost one of their records."""
        torn = [name for name in batch.ids if name in self._torn] if self._torn else []
        for name in torn:
            error = DataError(f"another record of rollout {name!r} cannot be used", code="ACC108")
            self.exclude(error, name, self._torn[name])
        if not torn:
            return batch
        keep = [r for r, name in enumerate(batch.ids) if name not in self._torn]
        return batch.take(np.array(keep, np.int64))._replace(outcome_in_steps=batch._outcome_in_steps)

    def _provenance(self) -> dict[str, Any]:
        origin = self.header.provenance
        return {"source": self.source, **({"origin": dict(origin)} if origin else {})}

    def _fit(self, parsed: Parsed, place: str) -> None:
        if self._n_tokens + sum(parsed.counts) > MAX_TOKENS:
            raise DataError(
                f"rollout {parsed.id!r} brings the batch to more than {MAX_TOKENS} policy tokens",
                code="ACC110",
                where=place,
                hint="Mend n_tokens if it is wrong, or read the source in parts",
            )

        for name in parsed.steps.keys() & _VECTORS:
            there = getattr(self._step.get(name), "width", None)
            for step, value in zip(*parsed.steps[name], strict=True):
                if there is not None and len(value) and value.shape[1] != there:
                    raise DataError(
                        f"rollout {parsed.id!r} step {step} has {value.shape[1]} numbers a token in {name}, "
                        f"and records before it have {there}",
                        code="ACC104",
                        where=place,
                        hint=f"Give every token a list of one length, or drop {name} from the record",
                    )

    def _claim(self, parsed: Parsed, place: str) -> None:
        rows = self._seen.get(parsed.id)
        if rows is None:
            self._seen[parsed.id] = {parsed.row}
            return
        if parsed.row is None or None in rows:
            raise DataError(
                f"rollout id {parsed.id!r} occurs twice",
                code="ACC101",
                where=place,
                hint="Give each rollout its own id, or mark the records of one rollout with `row`",
            )
        if parsed.row in rows:
            raise DataError(
                f"row {parsed.row!r} of rollout {parsed.id!r} occurs twice",
                code="ACC101",
                where=place,
                hint="Give each record of one rollout its own `row`",
            )
        rows.add(parsed.row)

    def _commit(self, parsed: Parsed) -> None:
        r, s = len(self._ids), len(self._tokens_S)
        self._ids.append(parsed.id)
        self._rows.append(parsed.row)
        key = (type(parsed.group), parsed.group)
        self._group_R.append(self._groups.setdefault(key, len(self._groups)))
        self._steps_R.append(len(parsed.counts))
        self._tokens_S.extend(parsed.counts)
        self._n_tokens += sum(parsed.counts)
        for name, value in parsed.rollout.items():
            _put(self._rollout, name, self._sink("rollout", name, value), [r], [value])
        for name, (rows, values) in parsed.steps.items():
            at = [s + t for t in rows]
            _put(self._step, name, self._sink("step", name, values[0]), at, values)
        if parsed.context is not None:
            self._commit_context(parsed.context, s)

    def _commit_context(self, context: Context, first: int) -> None:
        self._context = self._context or ListSink("i8")
        self._context.add(range(first, first + len(context.pieces)), context.pieces)
        self._reset_S += [first + t for t, reset in enumerate(context.resets) if reset]

    def _sink(self, level: Level, name: str, value: Any) -> Sink:
        table = self._rollout if level == "rollout" else self._step
        if name not in table:
            if (
                level == "rollout"
                and name not in ROLLOUT_FIELDS
                and isinstance(value, list | tuple | np.ndarray)
            ):
                table[name] = JsonSink()  # a list of a rollout has no tokens to belong to
            else:
                known = ROLLOUT_FIELDS.get(name) if level == "rollout" else step_field(name)
                table[name] = self._known_sink(known, name, value)
        return table[name]

    def _declared_sink(self, layout: Layout) -> Sink:
        known = ROLLOUT_FIELDS.get(layout.field) if layout.level == "rollout" else step_field(layout.field)
        if known is not None and known.column == layout.column:
            return self._known_sink(known, layout.field, None)
        ragged = layout.level in ("token", "context")
        if layout.kind == "vector" and ragged:
            return VectorSink(_wide(layout.dtype))
        if layout.kind == "vector" or (layout.kind == "number" and ragged):
            return ListSink(_wide(layout.dtype))
        if layout.kind == "number" and layout.dtype == "float64":
            return NumberSink()
        return WordSink() if layout.kind == "word" and not ragged else JsonSink()

    def _known_sink(self, field: Field | None, name: str, value: Any) -> Sink:
        if field is None:
            return NumberSink() if name.startswith("rewards.") else new_sink(value)
        if field.kind == "number":
            return NumberSink()
        if field.kind in ("word", "flag"):
            return WordSink(self._state_words if name in ("state", "final_state") else None)
        if field.kind in ("json", "signals"):
            return JsonSink()
        if field.kind == "vectors":
            return VectorSink()
        return ListSink({"tokens": "i8", "vector": "f8"}.get(field.kind, "f4"))

    def _columns(self, counts: Ints) -> dict[str, Column]:
        full = None if self._context is None else np.maximum(self._context.lengths(counts.size), 0)
        lengths = np.zeros(0, np.int64) if full is None else full
        settler = Settler(self.header.layouts, counts, lengths, self.log)
        found = settler.rollout_columns(self._rollout, len(self._ids))
        found |= settler.step_columns(self._step)
        if self._context is not None:
            found["context_token_C"] = self._context.token_column(lengths, "context")
            reset = np.zeros(counts.size, bool)
            reset[self._reset_S] = True
            found["context_reset_S"] = Column("step", reset)
        return found


def _put(table: dict[str, Sink], name: str, sink: Sink, rows: list[int], values: list[Any]) -> None:
    """Append values; a signal whose kind changes on the way is kept as JSON from then on."""
    if not sink.add(rows, values):
        vectors = as_vectors(sink)
        table[name] = sink = vectors if vectors is not None and vectors.add(rows, values) else as_json(sink)
        if sink is vectors:
            return
        sink.add(rows, values)


def _wide(dtype: str) -> str:
    """Return the widest dtype of a kind: numbers are narrowed at the end, if nothing is lost."""
    if dtype.startswith("float"):
        return "f8" if dtype == "float64" else "f4"
    return "u8" if dtype == "uint64" else "i8"


def _id_of(record: Any) -> str:
    found = record.get("id") if isinstance(record, Mapping) else None
    return str(found) if isinstance(found, str | int) else ""


def build(records: Iterable[Record | Rollout], source: str = "", strict: bool = False) -> Batch:
    """Return the Batch of an iterable of records (see `Batch.from_records`)."""
    if isinstance(records, str | bytes | bytearray | Mapping | io.IOBase):
        kind = "an open file" if isinstance(records, io.IOBase) else f"a {type(records).__name__}"
        raise DataError(
            f"records are an iterable of dicts or Rollouts, not {kind}",
            code="ACC901",
            hint="Give a list of records, or the path of a file to `read`",
        )
    builder = BatchBuilder(source, strict=strict)
    for record in records:
        builder.add(record)
    return builder.build()
