"""The pages and the catalogue that are made from the registry say what it says."""

import importlib.util
from pathlib import Path

import pytest

from accredit.methods import catalog
from accredit.methods.__main__ import CATALOG, catalog_text

DOCS = Path(__file__).parents[2] / "docs"


@pytest.fixture(scope="module")
def generator():
    spec = importlib.util.spec_from_file_location("gen_methods", DOCS / "gen_methods.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_catalogue_is_current():
    """Mend it with: make docs"""
    assert catalog_text() == CATALOG.read_text(encoding="utf-8")


def test_method_pages_are_current(generator):
    """Mend it with: make docs"""
    made = generator.pages()
    assert set(made) == generator.there()
    texts = {name: (DOCS / "methods" / name).read_text(encoding="utf-8") for name in made}
    assert [name for name in made if made[name] != texts[name]] == []


def test_field_tables_of_the_data_page_are_current(generator):
    """Mend it with: make docs"""
    assert generator.data_page() == generator.DATA.read_text(encoding="utf-8")


def test_every_method_has_notes():
    notes = {p.stem for p in (DOCS / "methods" / "_notes").glob("*.md")} - {"README"}
    assert notes == {card.id for card in catalog()}


def test_every_parameter_says_what_it_is():
    bare = [f"{c.id}.{p.name}" for c in catalog() for p in c.params if not (p.doc and p.bounds)]
    assert bare == []


def test_every_tag_is_explained(generator):
    assert {tag for card in catalog() for tag in card.tags} - set(generator.TAGS) == set()
