"""What times the continuation engine counts nested calls once, and leaves the policy out."""

from __future__ import annotations

import time

import pytest

from accredit.worlds.acting import UniformActor
from accredit.worlds.toolshop import ToolShop
from bench import continuations


class Nested:
    def outer(self) -> str:
        time.sleep(0.01)
        return self.inner()

    def inner(self) -> str:
        time.sleep(0.01)
        return "done"


def test_a_call_inside_a_call_is_counted_once():
    clock = continuations.Clock()
    thing = continuations.clocked(Nested(), ("outer", "inner"), clock)
    began = time.perf_counter()
    assert "done" == thing.outer()
    assert 0.02 <= clock.seconds <= time.perf_counter() - began


def test_a_failure_stops_the_clock():
    clock = continuations.Clock()
    with pytest.raises(ZeroDivisionError):
        clock(lambda: 1 / 0)()
    before = clock.seconds
    clock(lambda: None)()
    assert clock.seconds > before


def test_the_share_is_own_time_by_the_time_inside_the_world():
    share, own, inside = continuations.overhead(lambda: ToolShop(1), UniformActor, 4)
    assert own > 0
    assert inside > 0
    assert pytest.approx(own / inside) == share


def test_the_rate_is_of_continuations_a_minute():
    began = time.perf_counter()
    found = continuations.rate(lambda: continuations.Alone(continuations.tables()), 32)
    assert found >= 60 * 32 / (time.perf_counter() - began)
