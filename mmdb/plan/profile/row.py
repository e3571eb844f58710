"""One measurement as a row, in a database or in JSON."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from mmdb.errors import InvalidOption
from mmdb.messages import show
from mmdb.plan.profile.fits.points import Point
from mmdb.plan.profile.kinds import KINDS

#: What a profile says of kinds that nobody has measured.
HINT = "Measure this machine: SELECT * FROM mmdb.calibrate(budget_s => 60);"


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
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


def row_of(raw: Mapping[str, Any]) -> Row:
    """Return the row that JSON or a table's row says; other keys are left alone.

    Raises:
        InvalidOption: it says none, or an impossible value.
    """
    try:
        row = Row(
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


def assumed_rows(kind: str) -> list[Row]:
    """Return what is assumed of a kind that was not measured."""
    return [
        Row(kind=kind, size=size, value=seconds, deviation=0.3, assumed=True)
        for size, seconds in KINDS[kind].assumed
    ]
