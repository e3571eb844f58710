"""What a session is told to measure, and the measuring of it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from functools import partial
from importlib import import_module
from typing import Any

import torch

from mmdb.db.connection import Connection
from mmdb.errors import InvalidOption
from mmdb.messages import show
from mmdb.plan.profile.budget import MAX_BUDGET_S
from mmdb.plan.profile.measures.busy import measure_busy
from mmdb.plan.profile.measures.cases import measure_cases
from mmdb.plan.profile.measures.groups import measure_group
from mmdb.plan.profile.measures.hops import measure_chunks, measure_hops
from mmdb.plan.profile.measures.kernels import measure_convolutions, measure_products
from mmdb.plan.profile.measures.memory import measure_memory
from mmdb.plan.profile.measures.overheads import measure_dispatch
from mmdb.plan.profile.measures.process import measure_process
from mmdb.plan.profile.measures.reading import measure_decoding, measure_queries, measure_reading
from mmdb.plan.profile.measures.references import measure_references
from mmdb.plan.profile.measures.states import measure_states
from mmdb.plan.profile.measures.timing import Allowance
from mmdb.plan.profile.measures.updates import measure_updates
from mmdb.plan.profile.row import Row
from mmdb.train.compute.device import device_of, synchronize
from mmdb.train.compute.exact import exact
from mmdb.train.values.spec import group_of

_Compute = Callable[[Allowance, int, torch.device], Iterator[Row]]

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
) -> list[Row]:
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
) -> Iterator[Row]:
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
