"""A profile: rows, and the curves through them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol

from mmdb.plan.profile.fits.line import Line, fit_constant, fit_line
from mmdb.plan.profile.fits.link import LinkCurve, fit_link
from mmdb.plan.profile.fits.points import Noise, Point
from mmdb.plan.profile.fits.rate import RateCurve, fit_rate
from mmdb.plan.profile.fits.slowdown import Slowdown, fit_slowdown
from mmdb.plan.profile.fits.table import Table, fit_table
from mmdb.plan.profile.kinds import KINDS, Kind
from mmdb.plan.profile.row import HINT, Row, assumed_rows
from mmdb.plan.profile.stamp import Stamp

#: Sizes of which the median is taken for what a byte costs.
_LARGE = 1e7


class Curve(Protocol):
    """Seconds over a size."""

    @property
    def noise(self) -> Noise:
        """How much its points vary."""

    def seconds(self, size: float) -> float:
        """Return the cost at a size."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """What a machine and a database cost; made by `profile_of`."""

    curves: Mapping[str, Curve]  # by kind, where one is fitted to its points
    slowdowns: Mapping[str, Slowdown]  # by kind
    points: Mapping[str, tuple[Point, ...]]  # by kind, those that the curves are fitted to
    assumed: frozenset[str]  # kinds that were not measured
    stamp: Stamp | None = None  # None: nothing was measured

    def seconds(self, kind: str, size: float) -> float:
        """Return what something of a kind takes at a size."""
        return self.curves[kind].seconds(size)

    def table(self, kind: str) -> Table:
        """Return the interpolation between a kind's points, which follows what no formula does."""
        return fit_table(self.points[kind])

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
        return 0.0 if kind in self.assumed else self.points[kind][0].deviation

    @property
    def process_bytes(self) -> float:
        """Bytes of a worker's process before it holds anything of a candidate."""
        return self.points["process"][0].seconds

    @property
    def warnings(self) -> tuple[str, ...]:
        """What whoever reads a plan should know of it."""
        if not self.assumed:
            return ()
        if self.stamp is None:
            return (f"Nothing was measured here; costs are assumed, and high. {HINT}",)
        names = ", ".join(sorted(self.assumed))
        return (f"Not measured, and assumed to be high: {names}. {HINT}",)


def profile_of(rows: Iterable[Row], stamp: Stamp | None = None) -> Profile:
    """Return the profile of measured rows; kinds without any are assumed."""
    measured: dict[str, list[Point]] = {}
    for row in rows:
        if not row.assumed:
            measured.setdefault(row.kind, []).append(row.point)
    curves: dict[str, Curve] = {}
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
    return Profile(
        curves=curves,
        slowdowns=slowdowns,
        points={name: tuple(points) for name, points in measured.items()},
        assumed=assumed,
        stamp=stamp if assumed != KINDS.keys() else None,
    )


def _curve(kind: Kind, points: list[Point]) -> RateCurve | Table | Line | LinkCurve:
    if kind.fit == "rate":
        return fit_rate(points)
    if kind.fit == "table":
        return fit_table(points)
    if kind.fit == "link":
        return fit_link(points)
    if kind.fit == "constant":
        return fit_constant(points)
    return fit_line(points)
