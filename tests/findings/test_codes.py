"""Every code: planted and found, absent from clean rollouts, documented."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import accredit as ac
from accredit.findings import CODES, FAMILIES
from accredit.findings.codes import page
from tests.findings.planted import PLANTS, clean, planted

SOURCE = Path(ac.__file__).parent
PAGE = Path(__file__).parents[2] / "docs" / "findings.md"
# Made where a file is read, or a method, a comparison or a report runs, and tested there.
OF_METHODS = {"ACC509", "ACC510", "ACC511", *(f"ACC{n}" for n in range(520, 527))}
OF_PROBES = {code for code in CODES if code[:5] in ("ACC75", "ACC76")}  # made while a model is asked
ELSEWHERE = {code for code in CODES if code[3] in "489"} - {"ACC401", "ACC403"} | OF_METHODS | OF_PROBES


def test_clean_rollouts_have_no_finding():
    assert [] == [str(finding) for finding in ac.check(clean(), method="gigpo")]


@pytest.mark.parametrize("code", sorted(PLANTS))
def test_a_planted_fault_is_found_with_severity_mend_and_count(code):
    plant = PLANTS[code]
    found = ac.check(planted(code), method=plant.method).by_code()
    assert code in found
    for finding in found[code]:
        assert CODES[code].severity == finding.severity
        assert finding.hint
        assert finding.message
    if plant.count is not None:
        assert plant.count == sum(f.count for f in found[code])


@pytest.mark.parametrize("code", sorted(PLANTS))
def test_a_fault_at_single_places_names_the_first(code):
    for finding in ac.check(planted(code), method=PLANTS[code].method).by_code()[code]:
        if finding.examples:
            assert finding.examples[0] == finding.where
            assert len(finding.examples) <= min(finding.count, 5)


def test_every_code_is_planted_or_made_elsewhere():
    assert set(CODES) - ELSEWHERE == set(PLANTS)


def test_every_code_of_a_probe_is_asked_for_by_its_tests():
    tests = Path(__file__).parents[1]
    text = "\n".join(
        f.read_text() for folder in ("signals", "cli", "slow") for f in (tests / folder).rglob("*.py")
    )
    assert [] == sorted(code for code in OF_PROBES if code not in text)


def test_every_code_in_the_source_is_in_the_table():
    used = {code for file in SOURCE.rglob("*.py") for code in re.findall(r"\bACC\d{3}\b", file.read_text())}
    assert set() == used - set(CODES)


def test_every_code_in_the_table_is_in_the_source():
    text = "\n".join(file.read_text() for file in SOURCE.rglob("*.py"))
    assert [] == [code for code in CODES if code not in text]


def test_the_page_is_the_table():
    assert page() == PAGE.read_text(encoding="utf-8"), "python -m accredit.findings docs/findings.md"


def test_every_code_belongs_to_a_family_and_ends_its_sentences():
    for code in CODES.values():
        assert code.family in FAMILIES.values()
        assert code.meaning.endswith((".", "."))
        assert code.mend.endswith(".")
        assert not code.title.endswith(".")
