"""One small run shared by the tests of the benchmark."""

from __future__ import annotations

import time

import pytest

from accredit.benchmark import SCALES, bench


@pytest.fixture(scope="session")
def smoke():
    """The smoke scale over all families and methods, and the processor time that it took."""
    begin = time.process_time()
    found = bench(scale=SCALES["smoke"])
    return found, time.process_time() - begin
