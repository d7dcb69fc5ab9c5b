"""Where and with what a section was measured."""

from __future__ import annotations

import datetime as dt
import os
import platform
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

__all__ = ["machine", "moment"]


def machine() -> dict[str, Any]:
    """Processor, cores, system and versions."""
    packages = ("accredit", "numpy", "scipy", "pyarrow", "msgspec", "torch", "verl")
    return {
        "processor": _processor(),
        "cores": os.cpu_count(),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "versions": {name: _version(name) for name in packages},
        "threads": 1,
    }


def moment() -> dict[str, Any]:
    """Date (UTC) and load average of the last minute."""
    now = dt.datetime.now(dt.UTC)
    return {"date": now.strftime("%Y-%m-%d %H:%M UTC"), "load": round(os.getloadavg()[0], 2)}


def _processor() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        for line in cpuinfo.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or "unknown processor"


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None
