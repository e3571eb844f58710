"""The profile of a machine: curves through measurements, and the calibrations that are kept."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime

from mmdb.db.connection import Connection
from mmdb.db.queries import load
from mmdb.plan.profile.fits import (
    LineFit,
    Point,
    Slowdown,
    TableFit,
    fit_constant,
    fit_line,
    fit_rate,
    fit_slowdown,
    fit_table,
)
from mmdb.plan.profile.measurements import (
    ASSUMED_SAYS,
    HINT,
    KINDS,
    Machine,
    Measurement,
    MeasurementKind,
    Stamp,
    Versions,
    assumed_rows,
    measurement_of,
    stale,
)

#: Sizes of which the median is taken for what a byte costs.
_LARGE = 1e7
#: From run to run, until it is measured: a few percent on a quiet machine, 15 % on a busy one.
ASSUMED_DEVIATION = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineProfile:
    """The seconds that each kind of work takes on a machine; made by `profile_of`."""

    curves: Mapping[str, LineFit | TableFit]  # by kind, where one is fitted to its points
    slowdowns: Mapping[str, Slowdown]  # by kind
    points: Mapping[str, tuple[Point, ...]]  # by kind, those that the curves are fitted to
    assumed: frozenset[str]  # kinds that were not measured
    stamp: Stamp | None = None  # None: nothing was measured

    def seconds(self, kind: str, size: float) -> float:
        """Return what something of a kind takes at a size."""
        return self.curves[kind].seconds(size)

    def unit_s(self, kind: str, size: float = _LARGE) -> float:
        """Return what one more unit of size takes, around a large size."""
        curve = self.curves[kind]
        return max(0.0, curve.seconds(size) - curve.seconds(size / 2)) / (size / 2)

    def slowdown(self, workers: int, kind: str = "busy_step") -> tuple[float, ...]:
        """Return the factors of a step's time at 1, 2, ... `workers` busy workers of a node."""
        cores = self.stamp.machine.cores if self.stamp else 1
        return self.slowdowns[kind].upto(workers, cores)

    def deviation(self, kind: str = "busy_step") -> float:
        """Return the relative standard deviation of one thing that was measured again and again."""
        return ASSUMED_DEVIATION if kind in self.assumed else self.points[kind][0].deviation

    @property
    def process_bytes(self) -> float:
        """Bytes of a worker's process before it holds anything of a candidate."""
        return self.points["process"][0].seconds

    @property
    def warnings(self) -> tuple[str, ...]:
        """Warnings about it, for whoever reads a plan."""
        if not self.assumed:
            return ()
        if self.stamp is None:
            return (f"This machine was never measured: {ASSUMED_SAYS} {HINT}",)
        names = ", ".join(sorted(self.assumed))
        return (f"Not measured, and assumed: {names}. {HINT}",)


def profile_of(rows: Iterable[Measurement], stamp: Stamp | None = None) -> MachineProfile:
    """Return the profile of measured rows; kinds without any are assumed."""
    measured: dict[str, list[Point]] = {}
    for row in rows:
        if not row.assumed:
            measured.setdefault(row.kind, []).append(row.point)
    curves: dict[str, LineFit | TableFit] = {}
    slowdowns: dict[str, Slowdown] = {}
    assumed = frozenset(KINDS.keys() - measured.keys())
    for name, kind in KINDS.items():
        if name in assumed:
            measured[name] = [row.point for row in assumed_rows(name)]
        points = measured[name]
        if kind.fit == "none":
            continue
        if kind.fit == "slowdown":
            slowdowns[name] = fit_slowdown(points)
        else:
            curves[name] = _curve(kind, points)
    return MachineProfile(
        curves=curves,
        slowdowns=slowdowns,
        points={name: tuple(points) for name, points in measured.items()},
        assumed=assumed,
        stamp=stamp if assumed != KINDS.keys() else None,
    )


def _curve(kind: MeasurementKind, points: list[Point]) -> LineFit | TableFit:
    if kind.fit == "rate":
        return fit_rate(points)
    if kind.fit == "table":
        return fit_table(points)
    if kind.fit == "constant":
        return fit_constant(points)
    return fit_line(points)


_Q = load("plan")


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownProfile:
    """The profile that holds where it is asked for."""

    profile: MachineProfile
    warnings: tuple[str, ...]  # why it may not be believed; a row each


def keep_profile(connection: Connection, stamp: Stamp, rows: Iterable[Measurement]) -> None:
    """Keep what a calibration has measured, whole or not at all; assumed rows are left out."""
    shared = {
        "fingerprint": stamp.fingerprint,
        "measured_at": stamp.measured_at,
        "machine": json.dumps(asdict(stamp.machine)),
        "versions": json.dumps(asdict(stamp.versions)),
    }
    measured = [row for row in rows if not row.assumed]
    with connection.transaction():
        connection.run_many(
            _Q.add_row,
            [
                {
                    **shared,
                    "kind": row.kind,
                    "size": row.size,
                    "size_unit": KINDS[row.kind].size_unit,
                    "value": row.value,
                    "unit": row.unit,
                    "deviation": row.deviation,
                    "samples": row.samples,
                }
                for row in measured
            ],
        )


def find_profile(connection: Connection, now: Stamp) -> tuple[list[Measurement], Stamp | None]:
    """Return each kind's last rows of this machine and these versions, with their stamp.

    Kinds that a later version of mmdb knows, and this one does not, are left out.
    """
    found = connection.rows(_Q.find_rows, fingerprint=now.fingerprint)
    known = [row for row in found if row["kind"] in KINDS]
    if not known:
        return [], None
    measured = max(float(row["measured"]) for row in known)
    stamp = replace(now, measured_at=datetime.fromtimestamp(measured, UTC))
    return [measurement_of(row) for row in known], stamp


def known_profile(connection: Connection, now: Stamp) -> KnownProfile:
    """Return the profile of this machine and these versions, and what whoever plans should know.

    What was measured with other versions, or on what the machine was before, is not used.
    """
    rows, stamp = find_profile(connection, now)
    profile = profile_of(rows, stamp)
    if stamp is None:
        changed = "; ".join(profile_changes(connection, now))
        said = f"What was measured here no longer counts: {changed}; {ASSUMED_SAYS}"
        return KnownProfile(
            profile=profile, warnings=(f"{said} {HINT}",) if changed else profile.warnings
        )
    old = [f"The profile may no longer hold: {why}. {HINT}" for why in stale(stamp, now)]
    return KnownProfile(profile=profile, warnings=(*old, *profile.warnings))


def profile_changes(connection: Connection, now: Stamp) -> list[str]:
    """Return what is no longer as it was when this node was last measured."""
    found = connection.rows(_Q.find_latest, node=now.machine.node, engine=now.versions.engine)
    if not found:
        return []
    try:
        then = Stamp(
            machine=Machine(**json.loads(found[0]["machine"])),
            versions=Versions(**json.loads(found[0]["versions"])),
            measured_at=now.measured_at,
        )
    except TypeError:  # another version of mmdb knows other things of a machine
        return ["it was measured by another version of mmdb"]
    return stale(then, now)
