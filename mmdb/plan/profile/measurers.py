"""Measurers: this process, processes of its own, or sessions, each told what to measure.

A process is told an order as a line of JSON and answers with one; nothing is pickled.
"""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from importlib import import_module
from typing import Any, Protocol

import torch

from mmdb.db.connection import Connection
from mmdb.errors import Cancelled, InvalidOption, MmdbError, WorkerLost, from_sqlstate
from mmdb.messages import show
from mmdb.plan.profile.hop_measures import (
    measure_chunks,
    measure_decoding,
    measure_group,
    measure_hops,
    measure_process,
    measure_queries,
    measure_reading,
    measure_states,
)
from mmdb.plan.profile.measurements import MAX_BUDGET_S, Measurement, measurement_of
from mmdb.plan.profile.operation_measures import (
    measure_cases,
    measure_convolutions,
    measure_dispatch,
    measure_memory,
    measure_products,
    measure_updates,
)
from mmdb.plan.profile.reference_networks import measure_references
from mmdb.plan.profile.timing import Allowance, measure_busy
from mmdb.train.compute.device import device_of, synchronize
from mmdb.train.compute.exact import exact
from mmdb.train.hops.device_worker import warm_up
from mmdb.train.values.runtime import end, keep_freed_memory
from mmdb.train.values.spec import group_of

_Compute = Callable[[Allowance, int, torch.device], Iterator[Measurement]]

#: What needs nothing but a processor.
COMPUTE: Mapping[str, _Compute] = {
    "products": measure_products,
    "thin_products": partial(measure_products, thin=True),
    "convolutions": measure_convolutions,
    "depthwise": partial(measure_convolutions, depthwise=True),
    "operations": measure_cases,
    "references": measure_references,
    "memory": measure_memory,
    "dispatch": measure_dispatch,
    "updates": measure_updates,
    "states": measure_states,
    "decoding": lambda allowance, seed, device: measure_decoding(allowance, seed),
}
#: What needs the database.
DATABASE = ("queries", "reading", "hops")
#: What is measured in a process that has measured nothing else.
FIRST = "process"
#: What `torch.autograd.grad` loads at its first use, for half a second, which is no measurement.
_LOADED_LATE = "torch.fx.experimental.symbolic_shapes"
#: What several sessions measure at the same time.
TOGETHER = ("busy", "group")


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """One thing to measure; plain values that travel to a session as JSON."""

    what: str  # FIRST, or of COMPUTE, DATABASE or TOGETHER
    budget_s: float
    seed: int = 0
    device: str = "cpu"
    part_id: int | None = None  # of "reading"; None where there is no partition
    count: int = 1  # of "busy": workers that are
    begin_at: float = 0.0  # of "busy": when, in seconds since the epoch
    group: Mapping[str, Any] | None = None  # of "group": this session's place

    def to_json(self) -> dict[str, Any]:
        """Return what `order_of` reads."""
        return asdict(self)


def order_of(raw: Mapping[str, Any]) -> Order:
    """Return the order that JSON says.

    Raises:
        InvalidOption: it says none.
    """
    try:
        order = Order(**raw)
        known = order.what in (FIRST, *COMPUTE, *DATABASE, *TOGETHER)
        fits = known and 0 < order.budget_s <= MAX_BUDGET_S and math.isfinite(order.begin_at)
        fits = fits and order.count >= 1 and isinstance(order.seed, int)
    except TypeError as error:
        raise _no_order(raw) from error
    if not fits or (order.what == "group") != (order.group is not None):
        raise _no_order(raw)
    return order


def _no_order(raw: Mapping[str, Any]) -> InvalidOption:
    return InvalidOption(
        f"{show(dict(raw))} is nothing to be measured.", hint="calibrate() says what to measure."
    )


def perform(
    order: Order,
    connection: Connection | None = None,
    stopped: Callable[[], bool] = lambda: False,
) -> list[Measurement]:
    """Measure, with one thread and deterministic algorithms, as a hop computes.

    Args:
        connection: what DATABASE is measured through.
        stopped: asked between measurements, which take a tenth of a second at most.
    Raises:
        Cancelled, DeviceMissing, GroupBroken
    """
    device = device_of(order.device)
    if order.what != FIRST:
        import_module(_LOADED_LATE)
    with exact(order.seed, device=device):  # its first use loads more of torch
        allowance = Allowance(order.budget_s, stopped, synchronize=partial(synchronize, device))
        return list(_rows(order, allowance, device, connection))


def _rows(
    order: Order, allowance: Allowance, device: torch.device, connection: Connection | None
) -> Iterator[Measurement]:
    if order.what == FIRST:
        return measure_process(allowance, order.seed, device)
    if order.what in COMPUTE:
        return COMPUTE[order.what](allowance, order.seed, device)
    if order.what == "busy":
        return measure_busy(
            allowance,
            order.seed,
            device,
            count=order.count,
            begin_at=order.begin_at,
            lasts_s=order.budget_s,
        )
    if order.what == "group":
        assert order.group is not None
        return measure_group(allowance, group_of(order.group), device, order.budget_s)
    assert connection is not None
    if order.what == "queries":
        return measure_queries(allowance, connection)
    if order.what == "hops":
        return measure_hops(allowance, order.seed, connection)
    if order.part_id is None:
        return measure_chunks(allowance, order.seed, connection)
    return measure_reading(allowance, connection, order.part_id)


class Measurer(Protocol):
    """A session that measures one thing at a time. `cancel` may be called from any thread."""

    @property
    def may_wait(self) -> bool:
        """Whether `measure` may be called in a thread of its own, while the caller's waits."""

    @property
    def is_fresh(self) -> bool:
        """Whether its process has done nothing but load what a worker's loads."""

    def measure(self, order: Order) -> list[Measurement]:
        """Measure.

        Raises:
            Cancelled, WorkerLost, MmdbError
        """

    def cancel(self) -> None:
        """Break off what is measured, if anything; the place may be of no use afterwards."""

    def close(self) -> None:
        """End the session."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CalibrationSetup:
    """Where a calibration measures."""

    places: Sequence[Measurer]  # that compute as workers would
    database: Measurer  # that measures what needs the database
    on_wait: Callable[[], None]
    lacking: str = ""  # why there are not several places, where there could be


class LocalMeasurer:
    """This process, with its database."""

    is_fresh = False

    def __init__(self, connection: Connection | None = None) -> None:
        """Load what measuring needs."""
        warm_up()
        self._connection = connection
        #: Inside PostgreSQL the session is the main thread's, whose queries serve interrupts.
        self.may_wait = connection is None
        self._is_cancelled = False

    def measure(self, order: Order) -> list[Measurement]:
        """Measure in the thread that calls."""
        return perform(order, self._connection, lambda: self._is_cancelled)

    def cancel(self) -> None:
        """Let the measuring end after the measurement under way."""
        self._is_cancelled = True

    def close(self) -> None:
        """Nothing is kept."""


class ProcessMeasurer:
    """A process that computes as a worker's does, and opens no database."""

    may_wait = is_fresh = True

    def __init__(self) -> None:
        """Start it; torch is loaded when it is first asked."""
        paths = os.pathsep.join(p for p in sys.path if p)
        self._process = subprocess.Popen(
            [sys.executable, "-m", "mmdb.plan.profile.measurers"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | {"PYTHONPATH": paths, "OMP_NUM_THREADS": "1"},
            start_new_session=True,  # a Ctrl-C is for the owner, which then ends it
        )
        self._is_cancelled = False

    def wait(self) -> None:
        """Wait until torch is loaded.

        Raises:
            WorkerLost
        """
        self._line()

    def measure(self, order: Order) -> list[Measurement]:
        """Let the process measure."""
        assert self._process.stdin
        try:
            self._process.stdin.write(json.dumps(order.to_json()) + "\n")
            self._process.stdin.flush()
        except OSError as error:
            raise self._lost() from error
        answer = self._line()
        if isinstance(answer, dict):
            known = from_sqlstate(answer["sqlstate"], answer["message"], answer["hint"])
            assert known is not None
            raise known
        return [measurement_of(row) for row in answer]

    def cancel(self) -> None:
        """End the process."""
        self._is_cancelled = True
        self._process.kill()

    def close(self) -> None:
        """End the process, whatever it is doing."""
        end(self._process)

    def _line(self) -> Any:
        assert self._process.stdout
        line = self._process.stdout.readline()
        if not line.endswith("\n"):
            raise self._lost()
        return json.loads(line)

    def _lost(self) -> MmdbError:
        if self._is_cancelled:
            return Cancelled("The calibration was cancelled.")
        return WorkerLost(f"Process {self._process.pid} ended while it measured.")


@contextmanager
def processes(count: int) -> Iterator[list[ProcessMeasurer]]:
    """Yield processes that have loaded torch; they end with the block.

    Raises:
        WorkerLost
    """
    with ExitStack() as stack:
        found = [stack.enter_context(closing(ProcessMeasurer())) for _ in range(count)]
        for process in found:
            process.wait()
        yield found


def main() -> None:
    """Serve orders until standard input ends."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what a library prints must not end up among the answers
    keep_freed_memory()  # as workers do
    warm_up()  # else the first thing measured pays for it
    print("[]", file=out, flush=True)
    for line in sys.stdin:
        try:
            answer: Any = [row.to_json() for row in perform(order_of(json.loads(line)))]
        except MmdbError as error:
            answer = {"sqlstate": error.sqlstate, "message": error.message, "hint": error.hint}
        print(json.dumps(answer), file=out, flush=True)


if __name__ == "__main__":
    main()
