"""The built page matches its source, holds no foreign address, and stays small."""

from __future__ import annotations

import gzip
import hashlib
import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

import accredit.views
from accredit.views.page import asset

VIEWS = Path(accredit.views.__file__).parent
WEB = VIEWS / "web"
MANIFEST = json.loads(asset("report.json"))
ASSETS = ("report.js", "report.css", "report.json", "LICENSES.txt")


def source_hash() -> str:
    """The hash that build.mjs takes of the source."""
    names = sorted(
        [
            *(f"src/{p.name}" for p in (WEB / "src").iterdir()),
            "build.mjs",
            "package.json",
            "package-lock.json",
        ]
    )
    found = hashlib.sha256()
    for name in names:
        found.update(f"{name}\0{(WEB / name).read_text(encoding='utf-8')}\0".encode())
    return found.hexdigest()


def test_the_asset_was_built_from_this_source():
    assert source_hash() == MANIFEST["source"], "run `npm ci && npm run build` in src/accredit/views/web"
    assert f"sha256:{MANIFEST['source']}" in asset("report.js")


def test_the_assets_are_those_of_the_manifest():
    for name, key in (("report.js", "script"), ("report.css", "style")):
        assert hashlib.sha256(asset(name).encode()).hexdigest() == MANIFEST[key]


def test_script_and_style_are_at_most_60_kb_gzipped():
    assert sum(len(gzip.compress(asset(n).encode(), 9)) for n in ("report.js", "report.css")) <= 60_000


def test_every_bundled_package_has_a_licence_and_an_exact_version():
    known = {"MIT", "ISC", "Apache-2.0", "BSD-3-Clause"}
    assert {p["license"] for p in MANIFEST["packages"]} <= known
    licences = asset("LICENSES.txt")
    for package in MANIFEST["packages"]:
        assert f"{package['name']} {package['version']}" in licences
    wanted = json.loads((WEB / "package.json").read_text())
    for version in (wanted["dependencies"] | wanted["devDependencies"]).values():
        assert re.fullmatch(r"\d+\.\d+\.\d+", version)


def test_rollout_text_is_never_set_as_html():
    for source in (WEB / "src").glob("*.js"):
        found = re.search(
            r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|dangerouslySet|eval\(|new Function",
            source.read_text(),
        )
        assert found is None, (source.name, found)


def test_the_style_sheet_loads_nothing():
    assert re.search(r"url\((?!#)|@import|@font-face", asset("report.css")) is None


@pytest.mark.slow
def test_building_again_gives_the_identical_asset(tmp_path: Path):
    assert shutil.which("npm"), "building the report's script needs npm (Debian: apt-get install npm)"
    web = tmp_path / "views" / "web"
    shutil.copytree(WEB, web, ignore=shutil.ignore_patterns("node_modules"))
    for command in (["npm", "ci", "--no-audit", "--no-fund"], ["npm", "run", "build"]):
        subprocess.run(command, cwd=web, check=True, capture_output=True)
    built = tmp_path / "views" / "assets"
    assert {n: asset(n) for n in ASSETS} == {n: (built / n).read_text(encoding="utf-8") for n in ASSETS}
