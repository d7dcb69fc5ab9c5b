"""The table of codes: what each means and how to mend it; `codes.toml` is its only source."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib.resources import files

from accredit.data import Finding
from accredit.typing import Severity

__all__ = ["CODES", "FAMILIES", "Code", "page"]

FAMILIES: Mapping[str, str] = {
    "1": "Records, ids and groups",
    "2": "Rewards",
    "3": "Tokens, masks and signals",
    "4": "The chosen method",
    "5": "Branches",
    "6": "Roles",
    "7": "States",
    "8": "Comparing, reporting, foreign formats",
    "9": "Files",
}


@dataclass(frozen=True, slots=True)
class Code:
    """One kind of finding.

    Args:
        code: ``ACC`` and three digits; the first names the family.
        severity: error, warning or info.
        title: a few words.
        meaning: what is seen, and what follows for the numbers.
        mend: what to do about it.
    """

    code: str
    severity: Severity
    title: str
    meaning: str
    mend: str

    @property
    def family(self) -> str:
        """Heading under which the code is listed."""
        return FAMILIES[self.code[3]]

    def finding(
        self, message: str, *, count: int = 1, examples: Iterable[str] = (), mend: str = ""
    ) -> Finding:
        """Return a finding of this code.

        Args:
            message: one sentence with names and numbers.
            count: how many places show it.
            examples: the first places.
            mend: a mend that fits this case better than the table's.
        """
        places = tuple(examples)
        where = places[0] if places else ""
        return Finding(self.code, self.severity, message, where, mend or self.mend, count, places)


def _load() -> dict[str, Code]:
    text = (files("accredit.findings") / "codes.toml").read_text(encoding="utf-8")
    return {code: Code(code, **fields) for code, fields in sorted(tomllib.loads(text).items())}


CODES: Mapping[str, Code] = _load()

_HEAD = """\
<!-- Made from src/accredit/findings/codes.toml by `python -m accredit.findings`. -->

# Findings

A finding has a code, a severity, a place and a mend.
`accredit check` prints them; `Batch.findings`, `Credit.findings` and the report carry them.
Errors that stop a command use the same codes.

| severity | means |
|---|---|
| error | numbers would be wrong, a rollout is left out, or the method cannot run |
| warning | a fallback is taken, or the data look unlike what the field says |
| info | worth knowing |

`accredit check` exits with 0 when there is no error and no warning, else with 1.
"""


def page() -> str:
    """Return the text of ``docs/findings.md``: every code by family, with meaning and mend."""
    lines = [_HEAD]
    for digit, family in FAMILIES.items():
        lines += [f"## {family}", ""]
        for code in CODES.values():
            if code.code[3] == digit:
                lines += [f"### {code.code}: {code.title}", ""]
                lines += [f"*{code.severity}.* {code.meaning}", "", f"Mend: {code.mend}", ""]
    return "\n".join(lines).rstrip() + "\n"
