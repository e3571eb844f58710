"""The bytes of a process, and what a profile says of them."""

from __future__ import annotations

import subprocess
import sys

from mmdb.plan.profile.hop_measures import held_bytes
from mmdb.plan.profile.machine_profile import profile_of
from mmdb.plan.profile.measurements import KINDS, Measurement
from mmdb.plan.profile.measurers import FIRST, Order, order_of, perform


def test_a_process_measures_itself() -> None:
    (row,) = perform(order_of(Order(what=FIRST, budget_s=1.0).to_json()))
    assert (row.kind, row.unit) == ("process", "byte")
    assert 5e7 < row.value < 2e10


def test_what_a_process_holds_is_counted() -> None:
    """Of a process that does nothing else: this one may give back what earlier tests have held."""
    code = "print(1, flush=True); input(); kept = bytearray(2**26); print(2, flush=True); input()"
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdin is not None and child.stdout is not None
        child.stdout.readline()
        before = held_bytes(child.pid)
        child.stdin.write("\n")
        child.stdin.flush()
        child.stdout.readline()
        assert held_bytes(child.pid) - before >= 0.95 * 2**26
        child.communicate("\n")
    assert held_bytes() > 0


def test_a_plan_takes_the_measured_bytes_or_assumes_more_than_there_are() -> None:
    measured = Measurement(kind="process", size=1.0, value=2.5e8, unit="byte")
    assert profile_of([measured]).process_bytes == 2.5e8
    assert profile_of([]).process_bytes == KINDS["process"].assumed[0][1] >= 3e8
