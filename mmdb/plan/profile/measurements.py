"""Measurements of a machine: their kinds, the rows that they are kept as, and where they hold.

Every value is in seconds, but that of a factor and of a process; what differs is what its size
counts.
"""

from __future__ import annotations

import json
import math
import os
import platform
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from statistics import median
from typing import Any, Literal

import blake3

from mmdb.arguments import is_number
from mmdb.errors import InvalidOption
from mmdb.messages import show
from mmdb.plan.profile.fits import Point

#: Below the one nothing could be measured; the other is the longest that one order may take.
MIN_BUDGET_S, MAX_BUDGET_S = 1.0, 3600.0


def check_budget(budget_s: object) -> float:
    """Return the seconds that may be measured.

    Raises:
        InvalidOption
    """
    if not is_number(budget_s, MIN_BUDGET_S, MAX_BUDGET_S):
        raise InvalidOption(
            f"budget_s is {show(budget_s)}.",
            hint=f"It is a number of seconds from {MIN_BUDGET_S:g} to {MAX_BUDGET_S:g}.",
        )
    return float(budget_s)


#: How a kind's points become a curve: see `mmdb.plan.profile.fits`.
#: Points of "none" have no curve of their own.
Fit = Literal["rate", "table", "line", "slowdown", "constant", "none"]


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasurementKind:
    """One kind of measurement."""

    meaning: str
    size_unit: str
    fit: Fit
    #: (size, seconds): of an ordinary core of the last ten years, from a third to three times.
    assumed: tuple[tuple[float, float], ...]


def _rate(meaning: str, per_s: float, fixed_s: float = 2e-5) -> MeasurementKind:
    points = tuple((size, fixed_s + size / per_s) for size in (1e4, 1e6, 1e8, 1e9))
    return MeasurementKind(meaning=meaning, size_unit="flop", fit="rate", assumed=points)


def _bytes(meaning: str, per_s: float, fixed_s: float, fit: Fit = "line") -> MeasurementKind:
    points = tuple((size, fixed_s + size / per_s) for size in (1e3, 1e5, 1e7))
    return MeasurementKind(meaning=meaning, size_unit="byte", fit=fit, assumed=points)


def _busy(meaning: str) -> MeasurementKind:
    return _kind(meaning, "worker", "slowdown", (1.0, 1.0), (2.0, 1.3))


def _row(meaning: str) -> MeasurementKind:
    return _line(meaning, "byte", (4.0, 4e-7), (4e3, 2e-5))


def _line(meaning: str, size_unit: str, *points: tuple[float, float]) -> MeasurementKind:
    return _kind(meaning, size_unit, "line", *points)


def _kind(meaning: str, size_unit: str, fit: Fit, *points: tuple[float, float]) -> MeasurementKind:
    return MeasurementKind(meaning=meaning, size_unit=size_unit, fit=fit, assumed=points)


KINDS: dict[str, MeasurementKind] = {
    "product": _rate("A matrix product forward, (n, n) by (n, n).", 4e10),
    "product_backward": _rate("Its gradients: two products.", 4e10, 6e-5),
    "product_thin": _rate("A product of a batch of 32 rows forward, (32, n) by (n, n).", 2e10),
    "product_thin_backward": _rate("Its gradients.", 2e10, 6e-5),
    "convolution": _rate("A convolution of 3 x 3 forward.", 4e10, 5e-5),
    "convolution_backward": _rate("Its gradients: two convolutions.", 3e10, 1e-4),
    "depthwise": _rate("A depthwise convolution of 3 x 3 forward.", 5e9, 5e-5),
    "depthwise_backward": _rate("Its gradients.", 3e9, 1e-4),
    "operation": _kind(
        "A single operation: a case of mmdb/plan/profile/cases.py, one of its ways.", "case", "none"
    ),
    "reference": _kind(
        "A step of one of the networks that a calibration trains, with Adam.", "network", "none"
    ),
    "factor": _kind(
        "What a group of operations takes in such steps, beside what it takes alone.",
        "group",
        "none",
    ),
    "process": _kind(
        "Bytes of a worker's process that is ready to compute.", "process", "none", (1.0, 3.4e8)
    ),
    "elementwise": _bytes(
        "A sum of two tensors into a new one; bytes read and written.", 1e10, 3e-6, "table"
    ),
    "copy": _bytes("A copy into memory at hand; bytes read and written.", 1e10, 3e-6, "table"),
    "dispatch": _line(
        "Modules of one tiny operation forward, recorded for gradients.",
        "operation",
        (1.0, 6e-6),
        (100.0, 6e-4),
    ),
    "dispatch_backward": _line("Their gradients.", "operation", (1.0, 3e-5), (100.0, 8e-4)),
    "update_sgd": _bytes("A step of SGD with momentum; bytes of one parameter.", 2e9, 2e-5),
    "update_adam": _bytes("A step of Adam; bytes of one parameter.", 7e8, 4e-5),
    "update_tensors": _line(
        "A step of Adam over tiny parameters.", "tensor", (1.0, 1e-4), (100.0, 2e-3)
    ),
    "state_hash": _bytes("Laying out a state where it lies and hashing it.", 2e9, 2e-4),
    "state_encode": _bytes("Writing out a state as bytes.", 3e9, 2e-4),
    "state_decode": _bytes("Loading a state's bytes into a module and its optimizer.", 2e9, 2e-4),
    "query": _kind("A small query, there and back.", "query", "constant", (1.0, 1e-3)),
    "read": _bytes("Blocks of a partition out of the database.", 1e8, 2e-3),
    "decode": _row("A row of numbers, from a block into the node's cache; bytes of the row."),
    "decode_pixels": _row("A row of a byte string, which becomes float32; bytes of the row."),
    "publish": _bytes("Leaving a state where other workers find it.", 1e8, 5e-3),
    "load": _bytes("Finding a state that another worker left.", 2e8, 3e-3),
    "checkpoint": _bytes("Making a state durable.", 5e7, 1e-2),
    "merge": _bytes("Averaging a byte of one of several states.", 5e8, 1e-3),
    "all_reduce_2": _bytes("The sum of gradients over two workers of a node.", 2e8, 1e-3),
    "all_reduce_4": _bytes("The sum of gradients over four workers of a node.", 1e8, 3e-3),
    "meet": _line(
        "Until the workers of a new group are connected.",
        "worker",
        (2.0, 5e-2),
        (4.0, 1e-1),
    ),
    "busy_product": _busy("A matrix product at a count of busy workers."),
    "busy_copy": _busy("A copy of memory at a count of busy workers."),
    "busy_step": _busy("A small model's training step at a count of busy workers."),
}


#: What a profile says of kinds that nobody has measured.
ASSUMED_SAYS = "what was not timed is assumed, and may take a third or three times as much."
HINT = "Measure this machine: SELECT * FROM mmdb.calibrate(budget_s => 60);"


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """The median of repeated measurements of one kind at one size."""

    kind: str  # of KINDS
    size: float
    value: float
    unit: str = "s"
    deviation: float = 0.0  # coefficient of variation of a single measurement
    samples: int = 1
    assumed: bool = False  # not measured: a conservative default

    @property
    def point(self) -> Point:
        """The row as fits take it."""
        return Point(self.size, self.value, self.deviation, self.samples)

    def to_json(self) -> dict[str, Any]:
        """Return what `row_of` reads."""
        return asdict(self)


def measurement_of(raw: Mapping[str, Any]) -> Measurement:
    """Return the row that JSON or a table's row says; other keys are left alone.

    Raises:
        InvalidOption: it says none, or an impossible value.
    """
    try:
        row = Measurement(
            kind=str(raw["kind"]),
            size=float(raw["size"]),
            value=float(raw["value"]),
            unit=str(raw.get("unit", "s")),
            deviation=float(raw.get("deviation") or 0.0),
            samples=int(raw.get("samples") or 1),
            assumed=bool(raw.get("assumed", False)),
        )
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise _no_row(raw) from error
    numbers = (row.size, row.value, row.deviation)
    is_possible = all(map(math.isfinite, numbers)) and row.size >= 0 and row.value > 0
    if row.kind not in KINDS or not is_possible or row.deviation < 0 or row.samples < 1:
        raise _no_row(raw)
    return row


def _no_row(raw: object) -> InvalidOption:
    return InvalidOption(
        f"{show(raw)} is no row of a profile.",
        hint="It has a kind, a size of 0 or more and a value above 0. " + HINT,
    )


def assumed_rows(kind: str) -> list[Measurement]:
    """Return what is assumed of a kind that was not measured."""
    return [
        Measurement(kind=kind, size=size, value=seconds, deviation=0.3, assumed=True)
        for size, seconds in KINDS[kind].assumed
    ]


#: Of how things are measured; rows of another method are no longer compared with new ones.
METHOD = 4
#: Days after which a profile is measured anew.
MAX_AGE_DAYS = 30.0
#: Relative change of what a quick look finds, beyond which a profile no longer holds.
MAX_DRIFT = 0.10


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """The hardware that hops compute on."""

    node: str  # its name in the network
    cpu: str  # model
    capability: str  # instructions that torch uses
    cores: int  # that this process may use
    memory_bytes: int
    device: str = "cpu"  # or a GPU's model


@dataclass(frozen=True, slots=True, kw_only=True)
class Versions:
    """The software that hops compute with."""

    torch: str
    python: str
    engine: str  # postgres or duckdb
    method: int = METHOD


@dataclass(frozen=True, slots=True, kw_only=True)
class Stamp:
    """The machine and the versions that a profile was measured with, and when."""

    machine: Machine
    versions: Versions
    measured_at: datetime  # with a time zone

    @property
    def fingerprint(self) -> str:
        """A name of machine and versions: rows of another fingerprint are of another profile."""
        content = {"machine": asdict(self.machine), "versions": asdict(self.versions)}
        text = json.dumps(content, sort_keys=True, separators=(",", ":"))
        return blake3.blake3(text.encode()).hexdigest()

    def to_json(self) -> dict[str, Any]:
        """Return what `from_json` reads."""
        return {
            "machine": asdict(self.machine),
            "versions": asdict(self.versions),
            "measured_at": self.measured_at.isoformat(),
        }

    @classmethod
    def from_json(cls, raw: Mapping[str, Any]) -> Stamp:
        """Return the stamp that `to_json` wrote."""
        return cls(
            machine=Machine(**raw["machine"]),
            versions=Versions(**raw["versions"]),
            measured_at=datetime.fromisoformat(raw["measured_at"]),
        )


def stamp_here(engine: str, now: datetime, device: str = "cpu") -> Stamp:
    """Return the stamp of what this process measures now."""
    import torch  # not where rows are only read

    from mmdb.store.models.environment import fingerprint

    found = fingerprint()
    if device != "cpu":
        device = torch.get_device_module(device).get_device_name(device)
    machine = Machine(
        node=platform.node(),
        cpu=str(found["cpu"]),
        capability=str(found["cpu_capability"]),
        cores=len(os.sched_getaffinity(0)),
        memory_bytes=os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        device=device,
    )
    versions = Versions(torch=str(found["torch"]), python=str(found["python"]), engine=engine)
    return Stamp(machine=machine, versions=versions, measured_at=now)


def stale(stamp: Stamp, now: Stamp, *, max_age_days: float = MAX_AGE_DAYS) -> list[str]:
    """Return why a profile no longer holds where `now` was taken; empty where it does."""
    found = [
        f"{name} was {then}, is {here}" for name, then, here in _pairs(stamp, now) if then != here
    ]
    age = now.measured_at - stamp.measured_at
    if age > timedelta(days=max_age_days):
        found.append(f"it is {age.days} days old")
    return found


def _pairs(stamp: Stamp, now: Stamp) -> Iterable[tuple[str, object, object]]:
    then = asdict(stamp.machine) | asdict(stamp.versions)
    here = asdict(now.machine) | asdict(now.versions)
    return ((name, then[name], here[name]) for name in then)


def drift(stored: Iterable[Measurement], fresh: Iterable[Measurement]) -> dict[str, float]:
    """Return each kind's relative change since it was stored, over the sizes that both have.

    A kind whose change is within the deviation of its measurements has not changed.
    """
    before = {(row.kind, row.size): row for row in stored if not row.assumed}
    changes: dict[str, list[tuple[float, float]]] = {}
    for row in fresh:
        old = before.get((row.kind, row.size))
        if old is not None:
            noise = max(old.deviation, row.deviation)
            changes.setdefault(row.kind, []).append((row.value / old.value - 1, noise))
    found = {}
    for kind, pairs in changes.items():
        change, noise = (float(median(values)) for values in zip(*pairs, strict=True))
        found[kind] = change if abs(change) > noise else 0.0
    return found


def drifted(
    stored: Iterable[Measurement], fresh: Iterable[Measurement], limit: float = MAX_DRIFT
) -> list[str]:
    """Return which kinds have changed by more than `limit`, in words."""
    return [
        f"{kind} takes {abs(change):.0%} {'longer' if change > 0 else 'less'} than it did"
        for kind, change in sorted(drift(stored, fresh).items())
        if abs(change) > limit
    ]
