"""The import-linter contract behind the room table in `pyproject.toml`.

import-linter's own types need each layer to exist and forbid pairs; here each room has one row with
the rooms that it may import, and a room without a row is an error, so that a new room cannot forget.
"""

from __future__ import annotations

from typing import Any

from importlinter import Contract, ContractCheck, fields, output

PUBLIC = "public"  # the package itself: `import accredit`


class RoomsContract(Contract):
    """Fails where a module imports a room that the row of its own room does not name."""

    rooms = fields.ListField(subfield=fields.StringField())
    exceptions = fields.ListField(subfield=fields.StringField(), required=False, default=[])

    def check(self, graph: Any, verbose: bool) -> ContractCheck:
        """The contract is kept if every direct import between rooms is allowed by a row."""
        (package,) = self.session_options["root_packages"]
        allowed = _table(self.rooms, self.exceptions)
        offences = []
        for importer in sorted(m for m in graph.modules if _inside(m, package)):
            room = _room(importer, package)
            known = {room, *allowed.get(room, ())}
            for imported in sorted(graph.find_modules_directly_imported_by(importer)):
                if _inside(imported, package) and _room(imported, package) not in known:
                    details = graph.get_import_details(importer=importer, imported=imported)
                    offences += [f"{importer} -> {imported} (l.{d['line_number']})" for d in details]
        present = {_room(m, package) for m in graph.modules if _inside(m, package)}
        offences += [f"room {room} has no row" for room in sorted(present - set(allowed))]
        return ContractCheck(kept=not offences, metadata={"offences": offences})

    def render_broken_contract(self, check: ContractCheck) -> None:
        """Prints one line an offence."""
        for offence in check.metadata["offences"]:
            output.print_error(offence, bold=False)


def _table(rooms: list[str], exceptions: list[str]) -> dict[str, set[str]]:
    """The rooms that each room may import, by name."""
    table = {name.strip(): set(names.split()) for name, _, names in (row.partition(":") for row in rooms)}
    for exception in exceptions:
        importer, _, imported = exception.partition("->")
        table[importer.strip()].add(imported.strip())
    return table


def _inside(module: str, package: str) -> bool:
    return module == package or module.startswith(package + ".")


def _room(module: str, package: str) -> str:
    return module.removeprefix(package).split(".")[1] if module != package else PUBLIC
