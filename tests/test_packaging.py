"""What a user installs: names, versions, dependencies, package data, import cost."""

from __future__ import annotations

import importlib.metadata
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from types import SimpleNamespace

import grimp
import pytest

import accredit
from tests.rooms_contract import RoomsContract

ROOT = Path(__file__).parents[1]
PACKAGE = Path(accredit.__file__).parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
CORE = {"numpy", "scipy", "pyarrow", "msgspec", "click", "rich"}
# The public API of the house style, all of it; a name is exported once its room exists.
PUBLIC = (
    "read check probe assign plan truth compare explain report catalog bench resume "
    "Rollout Step Batch Index Parts Credit method bounded check_method AccreditError"
).split()


def _name(requirement: str) -> str:
    return re.match(r"[A-Za-z0-9._-]+", requirement)[0].lower().replace("_", "-")


def _modules_after(code: str) -> set[str]:
    """The modules that a fresh interpreter has after the code."""
    done = subprocess.run(
        [sys.executable, "-c", f"import sys\n{code}\nprint('MODULES', *sys.modules)"],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return set(done.stdout.rpartition("MODULES")[2].split())


def _run_cli(*arguments: str) -> str:
    return f"""
from accredit.cli import main
try:
    main({list(arguments)!r})
except SystemExit as end:
    assert not end.code, end.code"""


def test_core_dependencies_are_the_six():
    assert set(PROJECT["project"]["dependencies"]) == {
        d for d in PROJECT["project"]["dependencies"] if _name(d) in CORE
    }
    assert {_name(d) for d in PROJECT["project"]["dependencies"]} == CORE


def test_versions_agree():
    version = PROJECT["project"]["version"]
    assert version == accredit.__version__
    assert version == importlib.metadata.version("accredit")
    assert f"\nversion: {version}\n" in (ROOT / "CITATION.cff").read_text()


def test_public_names_are_listed_ones_and_load():
    assert set(accredit.__all__) <= set(PUBLIC)
    assert sorted(accredit.__all__) == accredit.__all__
    for name in accredit.__all__:
        assert getattr(accredit, name) is not None


def test_no_room_has_the_name_of_a_public_function():
    """`import accredit.check` would put the module where the function was."""
    modules = {m.stem for m in PACKAGE.iterdir() if m.suffix in {"", ".py"}}
    assert not modules & set(PUBLIC)


@pytest.mark.parametrize(
    "code",
    ["import accredit", _run_cli("--help"), _run_cli("methods"), _run_cli("assign", "--help")],
    ids=["import accredit", "accredit --help", "accredit methods", "accredit assign --help"],
)
def test_no_number_library_is_imported_for_help(code):
    assert not _modules_after(code) & {"numpy", "scipy", "pyarrow"}


def test_the_numbers_need_no_optional_package():
    """A trainer image takes the core alone: no module may import an extra when it is imported."""
    extras = {"torch", "transformers", "numba", "textworld", "pandas", "matplotlib", "ray", "verl", "trl"}
    code = "import accredit\nfor n in accredit.__all__: getattr(accredit, n)\nimport accredit.cli"
    assert not _modules_after(code) & extras


def test_package_data_are_installed():
    assert (PACKAGE / "py.typed").exists()
    assert (PACKAGE / "catalog.json").exists()
    assert list((PACKAGE / "samples").glob("*.gz"))


def test_constraints_pin_every_package_and_name_no_host():
    for name in (
        "constraints.txt",
        "constraints-llm.txt",
        "constraints-verl.txt",
        "constraints-trainers.txt",
    ):
        lines = [line for line in (ROOT / name).read_text().splitlines() if line and not line.startswith("#")]
        assert [] == [line for line in lines if not re.fullmatch(r"[A-Za-z0-9._-]+==[A-Za-z0-9.+!_-]+", line)]


def test_constraints_cover_what_is_declared():
    pinned = {
        _name(line) for line in (ROOT / "constraints.txt").read_text().splitlines() if line[:1].isalnum()
    }
    extras = PROJECT["project"]["optional-dependencies"]
    declared = {_name(d) for d in [*PROJECT["project"]["dependencies"], *extras["dev"], *extras["docs"]]}
    assert set() == declared - pinned


def test_changelog_fragments_have_a_known_kind_and_one_sentence():
    kinds = {kind["directory"] for kind in PROJECT["tool"]["towncrier"]["type"]}
    fragments = [f for f in (ROOT / "changelog.d").iterdir() if f.suffix == ".md" and f.name != "README.md"]
    assert fragments
    for fragment in fragments:
        assert fragment.name.split(".")[1] in kinds, fragment.name
        assert len(fragment.read_text().strip().splitlines()) == 1, fragment.name


def _contract(rooms: list[str], exceptions: list[str] = ()) -> RoomsContract:
    options = {"rooms": rooms, "exceptions": list(exceptions)}
    return RoomsContract("rooms", {"root_packages": ["house"]}, options)


@pytest.fixture
def house(tmp_path, monkeypatch):
    """The import graph of a package whose `data` imports `views`, and `views` imports `data`."""
    for room, text in {"data": "from house import views", "views": "import house.data.deep"}.items():
        (tmp_path / "house" / room).mkdir(parents=True)
        (tmp_path / "house" / room / "__init__.py").write_text(text)
    (tmp_path / "house" / "data" / "deep.py").write_text("")
    (tmp_path / "house" / "__init__.py").write_text("")
    monkeypatch.syspath_prepend(tmp_path)
    yield SimpleNamespace(graph=grimp.build_graph("house", cache_dir=None))
    sys.modules.pop("house", None)


def test_room_contract_breaks_on_an_arrow_that_points_down(house):
    check = _contract(["public:", "data:", "views: data"]).check(house.graph, verbose=False)
    assert not check.kept
    assert check.metadata["offences"] == ["house.data -> house.views (l.1)"]


def test_room_contract_keeps_a_named_exception(house):
    contract = _contract(["public:", "data:", "views: data"], ["data -> views"])
    assert contract.check(house.graph, verbose=False).kept


def test_room_contract_breaks_on_a_room_without_a_row(house):
    check = _contract(["public:", "data: views"]).check(house.graph, verbose=False)
    assert "room views has no row" in check.metadata["offences"]
