"""Write the page of all codes: ``python -m accredit.findings docs/findings.md``."""

from __future__ import annotations

import sys
from pathlib import Path

from accredit.findings.codes import page

if __name__ == "__main__":
    Path(sys.argv[1]).write_text(page(), encoding="utf-8")
