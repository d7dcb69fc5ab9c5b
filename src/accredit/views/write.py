"""The report: results as one offline HTML file, or a folder of such files past 10,000 rollouts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from accredit.errors import ParamError, StoreError
from accredit.store.atomic import atomic_file
from accredit.typing import Array, Ints
from accredit.views.blocks import Block, pack
from accredit.views.contrast import contrasts
from accredit.views.explanations import explained_steps
from accredit.views.headline import concentrations
from accredit.views.health import health
from accredit.views.judged import Judged, judged, truth_arrays, truth_head
from accredit.views.page import write_page
from accredit.views.payload import (
    Detail,
    TextMode,
    group_block,
    index_arrays,
    method_heads,
    words_block,
)
from accredit.views.plain import one_line
from accredit.views.sheet import Sheet, sheet_of

if TYPE_CHECKING:
    from accredit.against import TruthLike
    from accredit.data import Credit, Finding

__all__ = ["check_target", "report"]

FOLDER_PAST = 10_000
PART_ROLLOUTS = 2_000
PREVIEW_PAST = 20_000_000
SAMPLED_ROLLOUTS = 300


def report(
    results: Credit | Sequence[Credit],
    path: str | Path,
    *,
    text: TextMode | None = None,
    title: str | None = None,
    decode: Callable[[int], str] | None = None,
    findings: Iterable[Finding] | None = None,
    truth: TruthLike | None = None,
) -> Path:
    """Write results as an HTML report that opens by double click and needs no network.

    Args:
        results: one result, or several over the same batch (at most 8): then methods are compared.
        path: the file to write, ``.html``. Past 10,000 rollouts a folder of that name (without ``.html``).
        text: ``"full"``: whole texts and tokens; ``"preview"``: the first 160 to 200 characters and
            no tokens. None: full, and preview where full would be over 20 MB (the report says so).
        title: one line above the first sentence; None names the sizes.
        decode: token id -> its text, for the token strip; None shows ids.
        findings: what `check` says of the rollouts; None: only what reading and the methods noticed,
            and the report says so.
        truth: true advantages of these steps, or some (a Truth, or a file of schema
            ``accredit.truth/1``): each method beside them, with the numbers of `compare`, and each step.

    Returns:
        The file to open.

    Raises:
        ParamError: results over different rollouts, none, or too many.
        DataError: if the truth cannot be read, or knows no step of these rollouts.
        StoreError: if the name does not end in ``.html``, or the file cannot be written.

    Example:
        >>> import accredit as ac
        >>> won = {"id": "a", "group": "g", "reward": 1, "steps": [{"action": "go"}]}
        >>> lost = {"id": "b", "group": "g", "reward": 0, "steps": [{"action": "wait"}]}
        >>> credit = ac.assign([won, lost], "grpo")
        >>> report(credit, getfixture("tmp_path") / "report.html").name
        'report.html'
    """
    if text not in (None, "full", "preview"):
        raise ParamError(f"text must be 'full' or 'preview', got {text!r}", code="ACC824")
    sheet = sheet_of(results)
    target = Path(path)
    check_target(target, len(sheet.ids))
    given = None if findings is None else tuple(findings)
    found = None if truth is None else judged(sheet, truth)
    writer = _Writer(sheet, title or _title(sheet), decode, given, found)
    if len(sheet.ids) > FOLDER_PAST:
        return _write_folder(writer, target, text)
    return _write_file(writer, target, text)


def check_target(path: str | Path, rollouts: int | None = None) -> None:
    """Refuse a name that a report of so many rollouts cannot have, before anything is computed.

    Args:
        path: the file to write.
        rollouts: that the report is to hold; None where they are not read yet.

    Raises:
        StoreError: if the name does not end in ``.html``; past 10,000 rollouts it may have no ending.
    """
    target = Path(path)
    folder = ("",) if rollouts is None or rollouts > FOLDER_PAST else ()
    if target.suffix.lower() not in (".html", ".htm", *folder):
        raise StoreError(
            f"a report is an HTML file, and the name {target.name!r} does not end in .html",
            code="ACC913",
            where=str(target),
            hint=f"Write {target.with_suffix('.html').name}",
        )


@dataclass(frozen=True, slots=True)
class _Writer:
    """What all pages of one report share."""

    sheet: Sheet
    title: str
    decode: Callable[[int], str] | None
    findings: tuple[Finding, ...] | None
    truth: Judged | None = None

    def arrays(self, sheet: Sheet) -> dict[str, Array]:
        """Return the arrays of a page's index block."""
        more = {} if self.truth is None else truth_arrays(sheet, self.truth)
        return index_arrays(sheet) | more


def _write_file(writer: _Writer, target: Path, text: TextMode | None, notice: str = "") -> Path:
    head = _head(writer, notice)
    blocks = (
        None if text == "preview" else _blocks(writer, head, "full", PREVIEW_PAST if text is None else None)
    )
    mode: TextMode = "full"
    if blocks is None:
        mode = "preview"
        blocks = _blocks(writer, head, mode, None)
    assert blocks is not None
    head["textNote"] = _text_note(mode, chosen=text is not None)
    index = pack(Block(head, writer.arrays(writer.sheet)))
    _write_whole(target, write_page(writer.title, index, blocks))
    return target


def _write_whole(target: Path, text: Iterable[str]) -> None:
    """Write a file that appears whole or not at all, also when the run is interrupted."""
    with atomic_file(target) as out:
        out.writelines(piece.encode() for piece in text)


def _blocks(
    writer: _Writer, head: dict[str, Any], mode: TextMode, most: int | None
) -> list[tuple[str, str]] | None:
    """Return all blocks but the index, or None as soon as they are over ``most`` characters."""
    linked = {s for steps in _linked(head) for s in steps}
    detail = Detail(mode, writer.decode, explained_steps(writer.sheet, linked))
    blocks = [("words", pack(words_block(writer.sheet)))]
    size = len(blocks[0][1])
    for g in range(len(writer.sheet.names)):
        blocks.append((f"g{g}", pack(group_block(writer.sheet, g, detail))))
        size += len(blocks[-1][1])
        if most is not None and size > most:
            return None
    return blocks


def _head(writer: _Writer, notice: str = "") -> dict[str, Any]:
    """Return the index head: names, methods, comparisons, health."""
    sheet = writer.sheet
    reward, ok = sheet.rollout_column("reward_R")
    head: dict[str, Any] = {
        "format": "accredit.report/1",
        "title": one_line(writer.title),
        "made": f"accredit {sheet.credits[0].provenance.get('accredit', '')}".strip(),
        "notice": notice,
        "ids": _distinct(sheet.ids),
        "groups": [_group(sheet, g, reward, ok) for g in range(len(sheet.names))],
        "rewardRange": [float(reward[ok].min()), float(reward[ok].max())] if ok.any() else [0.0, 0.0],
        "methods": method_heads(sheet),
        "concentration": concentrations(sheet),
        "pairs": contrasts(sheet),
        "health": health(sheet, writer.findings),
        "counts": _counts(sheet),
        "facts": _facts(sheet, reward, ok),
        "agents": list(sheet.texts("agent").words),
    }
    if writer.truth is not None:
        head["truth"] = truth_head(sheet, writer.truth)
    for group, name in zip(head["groups"], _distinct(sheet.names), strict=True):
        group["name"] = name
    return head


def _tops(head: dict[str, Any]) -> list[list[int]]:
    """The most decisive steps of each method."""
    return [method["top"] for method in head["methods"]]


def _linked(head: dict[str, Any]) -> list[list[int]]:
    """The steps on which methods differ most, from each other and from the truth."""
    return [*(pair["worst"] for pair in head["pairs"]), *head.get("truth", {}).get("worst", [])]


def _group(sheet: Sheet, g: int, reward: Any, ok: Any) -> dict[str, Any]:
    rows = slice(int(sheet.first_G1[g]), int(sheet.first_G1[g + 1]))
    scored = reward[rows][ok[rows]]
    n = int(rows.stop - rows.start)
    if not scored.size:
        return {"n": n, "scored": 0, "mean": None, "low": None, "high": None}
    return {
        "n": n,
        "scored": int(scored.size),
        "mean": float(scored.mean()),
        "low": float(scored.min()),
        "high": float(scored.max()),
    }


def _counts(sheet: Sheet) -> dict[str, int]:
    return {
        "rollouts": len(sheet.ids),
        "steps": len(sheet.order_S),
        "tokens": int(sheet.batch.n_tokens),
        "groups": len(sheet.names),
    }


def _facts(sheet: Sheet, reward: Any, ok: Any) -> list[tuple[float, str]]:
    """Return the few numbers beside the first sentence, as [number, what it is]."""
    counts = _counts(sheet)
    facts: list[tuple[float, str]] = [(counts[k], k) for k in ("groups", "rollouts", "steps")]
    if counts["tokens"]:
        facts.append((counts["tokens"], "policy tokens"))
    if ok.any():
        facts.append((float(reward[ok].mean()), "mean reward"))
    return facts


def _title(sheet: Sheet) -> str:
    methods = ", ".join(sheet.labels)
    return f"Credit of {len(sheet.ids):,} rollouts by {methods}"


def _text_note(mode: TextMode, *, chosen: bool) -> str:
    if mode == "full":
        return "whole texts"
    why = "as asked" if chosen else "for whole texts would pass 20 MB; write them with text='full'"
    return f"texts are cut to 160 or 200 characters and tokens left out, {why}"


def _distinct(names: Sequence[str]) -> list[str]:
    """Return names made harmless, with a number where two of them look the same."""
    seen: dict[str, int] = {}
    out = []
    for name in names:
        shown = one_line(str(name)) or "(empty)"
        seen[shown] = seen.get(shown, 0) + 1
        out.append(shown if seen[shown] == 1 else f"{shown} ({seen[shown]})")
    return out


def _write_folder(writer: _Writer, target: Path, text: TextMode | None) -> Path:
    """Write an index page over everything, and one page for every 2,000 rollouts."""
    folder = target.with_suffix("")
    sheet = writer.sheet
    of_group = np.full(len(sheet.names), -1)
    parts = list(_parts(sheet))
    for number, groups in enumerate(parts, 1):
        of_group[groups] = number
        rows = np.flatnonzero(np.isin(sheet.group_R, groups))
        notice = (
            f"Part {number} of {len(parts)}: groups {groups[0] + 1} to {groups[-1] + 1} "
            f"of {len(sheet.names)}. The whole is in index.html."
        )
        part = replace(writer, sheet=sheet.pick(rows))
        _write_file(part, folder / _part_name(number), text, notice)
    return _write_index(writer, folder, [_part_name(int(n)) for n in of_group])


def _write_index(writer: _Writer, folder: Path, pages: Sequence[str]) -> Path:
    """Write the page over all groups: whole statistics, and the rollouts that it links to."""
    sheet = writer.sheet
    head = _head(writer)
    picked = _sampled(sheet, head)
    small = sheet.pick(picked)
    where = {int(s): i for i, s in enumerate(_steps_of(sheet, picked))}
    for steps in (*_tops(head), *_linked(head)):
        steps[:] = [where[s] for s in steps]
    for finding in head["health"]["findings"]:
        finding["link"] = None
    names = _distinct(sheet.names)
    for group, page in zip(head["groups"], pages, strict=True):
        group["href"] = page
    head["ids"] = _distinct(small.ids)
    head["sampled"] = True
    head["textNote"] = "texts are in the pages of the parts"
    head["notice"] = (
        f"{len(sheet.ids):,} rollouts: this page holds the statistics of all of them; "
        "a group opens in the page of its part."
    )
    arrays = writer.arrays(small)
    # Groups keep their places; those without a linked rollout are empty here.
    rows = np.searchsorted(picked, sheet.first_G1)
    arrays["first"] = rows.astype(np.int32)
    assert len(names) == len(rows) - 1
    index = pack(Block(head, arrays))
    target = folder / "index.html"
    _write_whole(target, write_page(writer.title, index, [("words", pack(words_block(small)))]))
    return target


def _sampled(sheet: Sheet, head: dict[str, Any]) -> Ints:
    """Return the rollouts of all linked steps, and some more for the scatter, in sheet order."""
    linked = [s for steps in (*_tops(head), *_linked(head)) for s in steps]
    rollouts = sheet.rollout_S[np.array(linked, int)]
    more = np.random.default_rng(0).choice(len(sheet.ids), SAMPLED_ROLLOUTS, replace=False)
    return np.unique(np.concatenate([rollouts, more]))


def _steps_of(sheet: Sheet, rollouts: Ints) -> Ints:
    return np.flatnonzero(np.isin(sheet.rollout_S, rollouts))


def _parts(sheet: Sheet) -> Iterator[Ints]:
    """Yield runs of groups with at most 2,000 rollouts each, or one larger group."""
    sizes = np.diff(sheet.first_G1)
    begin, held = 0, 0
    for g, size in enumerate(sizes):
        if held and held + size > PART_ROLLOUTS:
            yield np.arange(begin, g)
            begin, held = g, 0
        held += int(size)
    if held:
        yield np.arange(begin, len(sizes))


def _part_name(number: int) -> str:
    return f"part-{number:03d}.html"
