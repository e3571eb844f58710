"""Where and with what a profile was measured, and whether it still holds."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from statistics import median
from typing import Any

import blake3

from mmdb.plan.profile.row import Row

#: Of how things are measured; rows of another method are no longer compared with new ones.
METHOD = 2
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
    """What a profile's rows are valid for."""

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

    from mmdb.store.environment import fingerprint

    found = fingerprint()
    if device != "cpu":
        device = torch.cuda.get_device_name(device)
    machine = Machine(
        node=platform.node(),
        cpu=str(found["cpu"]),
        capability=str(found["cpu_capability"]),
        cores=_cores(),
        memory_bytes=os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        device=device,
    )
    versions = Versions(torch=str(found["torch"]), python=str(found["python"]), engine=engine)
    return Stamp(machine=machine, versions=versions, measured_at=now)


def _cores() -> int:
    """Return the processors that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


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


def drift(stored: Iterable[Row], fresh: Iterable[Row]) -> dict[str, float]:
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


def drifted(stored: Iterable[Row], fresh: Iterable[Row], limit: float = MAX_DRIFT) -> list[str]:
    """Return which kinds have changed by more than `limit`, in words."""
    return [
        f"{kind} takes {abs(change):.0%} {'longer' if change > 0 else 'less'} than it did"
        for kind, change in sorted(drift(stored, fresh).items())
        if abs(change) > limit
    ]
