"""How a dataset's rows are divided into slices: by chance, by time, by a column, or by groups."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any, Literal

import numpy as np
from blake3 import blake3

from mmdb.arguments import check_known, is_number, unfit
from mmdb.errors import DataError, InvalidOption, NullValues, TooFewRows
from mmdb.messages import show

Role = Literal["train", "validation", "test"]
#: The order of the slices among the shuffled rows.
ROLES: tuple[Role, ...] = ("validation", "test", "train")
_WAYS = ("random", "time", "column", "group")


@dataclass(frozen=True, slots=True, kw_only=True)
class Split:
    """Which rows are trained on, and which are held out."""

    partitions: int
    validation: float  # share of the rows
    seed: int
    test: float = 0.0  # share of the rows
    by: str = "random"
    column: str | None = None  # whose values say it, unless it is by chance
    #: By time: seconds since 1970 from which rows are held out; None: the last rows, by the shares.
    starts: Mapping[Role, float] | None = None

    def slices(self, rows: int) -> list[tuple[Role, int]]:
        """Return role and row count of each slice of a split by chance, in the rows' order.

        Raises:
            TooFewRows: a slice would be empty.
        """
        held_out = round(rows * self.validation)
        tested = round(rows * self.test)
        return self.cut({"validation": held_out, "test": tested, "train": rows - held_out - tested})

    def cut(self, counts: Mapping[Role, int]) -> list[tuple[Role, int]]:
        """Return role and row count of each slice, in the order of `ROLES`.

        Raises:
            TooFewRows: a slice that was asked for is empty, or there are fewer train rows than
                partitions.
        """
        rows, train = sum(counts.values()), counts["train"]
        if train < self.partitions:
            raise TooFewRows(
                f"The query returned {rows} rows: {train} to train on, which is fewer than the "
                f"{self.partitions} partitions."
            )
        for role, share in (("validation", self.validation), ("test", self.test)):
            if share > 0 and not counts[role]:  # type: ignore[index]
                raise TooFewRows(
                    f"The query returned {rows} rows; a {role} share of {share} of them is no row."
                    if self.by == "random"
                    else f"The {role} slice has none of the {rows} rows.",
                    hint=f"Pass {role} => 0, or a larger share.",
                )
        bounds = [index * train // self.partitions for index in range(self.partitions + 1)]
        parts: list[tuple[Role, int]] = [("train", high - low) for low, high in pairwise(bounds)]
        held: list[tuple[Role, int]] = [(role, counts[role]) for role in ROLES[:2] if counts[role]]
        return [*held, *parts]

    def wanted(self, count: int) -> dict[Role, int]:
        """Return how many of so many rows are to be held out, by slice; none of one by a date."""
        shares: tuple[tuple[Role, float], ...] = (
            ("test", self.test),
            ("validation", self.validation),
        )
        dated = self.starts or {}
        return {role: round(count * share) for role, share in shares if role not in dated}

    def with_times(
        self,
        count: int,
        wanted: Mapping[Role, int],
        at: Callable[[int], float],
        until: Callable[[float], int],
    ) -> Split:
        """Return the split with the seconds after which rows are held out.

        Rows of one time stay together: a slice is as near to what is wanted as they let it be.

        Args:
            count: rows of the query.
            wanted: how many of them to hold out; see `wanted`.
            at: returns the time of a row by its place, from 1, among all by time.
            until: returns how many rows there are up to a time.
        """
        starts = dict(self.starts or {})
        left = count  # rows before those that are held out so far
        for role in ("test", "validation"):
            if role not in starts and wanted[role]:
                starts[role] = _start(left, wanted[role], at, until)
            if role in starts:
                left = min(left, until(starts[role]))
        return replace(self, starts=starts)

    def places(self, values: np.ndarray | Sequence[Any]) -> np.ndarray:
        """Return the place in `ROLES` of each row, by the values of the split's column.

        Raises:
            NullValues, DataError
        """
        missing = (
            np.isnan(values) if isinstance(values, np.ndarray) else [v is None for v in values]
        )
        if np.any(missing):
            raise NullValues(f"Column {self.column!r}, which splits the rows, holds NULLs.")
        if isinstance(values, np.ndarray):
            found = np.full(len(values), ROLES.index("train"), np.uint64)
            for role in ("validation", "test"):
                if self.starts and role in self.starts:
                    found[values > self.starts[role]] = ROLES.index(role)
            return found
        place = self._by_name if self.by == "column" else self._by_hash
        known = {value: place(value) for value in set(values)}
        return np.fromiter((known[value] for value in values), np.uint64, len(values))

    def _by_name(self, value: str) -> int:
        try:
            return ROLES.index(value.lower())
        except ValueError:
            raise DataError(
                f"Column {self.column!r}, which splits the rows, holds {show(value)}.",
                hint="It says of each row train, validation or test.",
            ) from None

    def _by_hash(self, value: str) -> int:
        drawn = blake3(f"mmdb group {self.seed} {value}".encode()).digest(length=8)
        share = int.from_bytes(drawn, "little") / 2**64
        bounds = self.validation, self.validation + self.test
        return sum(share >= bound for bound in bounds)


def parse_split(
    given: Mapping[str, Any], *, partitions: int, validation: float, seed: int
) -> Split:
    """Return the split that option `split` describes.

    Args:
        given: `by`, `column`, `validation` and `test`: shares, or dates of a split by time.
    Raises:
        InvalidOption
    """
    check_known(given, ("by", "column", "validation", "test"), "Option split has no")
    by, column = given.get("by", "random"), given.get("column")
    if by not in _WAYS:
        raise unfit("Option split.by", by, f"Known: {', '.join(_WAYS)}.")
    if (by == "random") != (column is None) or not isinstance(column, str | None):
        raise InvalidOption(
            f"Option split.column is {show(column)}, and the split is by {by}.",
            hint='Pass {"by": "time", "column": "flown"}, or by column or group.',
        )
    shares: dict[Role, float] = {"validation": validation, "test": 0.0}
    starts: dict[Role, float] = {}
    for role in ("validation", "test"):
        value = given.get(role, shares[role])
        if by == "time" and isinstance(value, str):
            starts[role], value = _before(role, value), 1e-9
        if not is_number(value, 0) or value >= 1:
            raise InvalidOption(
                f"Option split.{role} is {show(value)}.",
                hint="It is a share from 0 to below 1, or, by time, a date such as 2013-11-01.",
            )
        shares[role] = float(value)
    if sum(shares.values()) >= 1:
        raise InvalidOption("Validation and test are all rows.", hint="Leave some to train on.")
    return Split(
        partitions=partitions,
        validation=0.0 if by == "column" else shares["validation"],
        test=0.0 if by == "column" else shares["test"],
        seed=seed,
        by=by,
        column=column,
        starts=starts or None,
    )


def _start(
    left: int, wanted: int, at: Callable[[int], float], until: Callable[[float], int]
) -> float:
    """Return the time after which about as many of the first `left` rows are as are wanted."""
    if wanted >= left:
        return -np.inf
    last = at(left - wanted)
    before = float(np.nextafter(last, -np.inf))
    fewer, more = left - until(last), left - until(before)
    return before if more - wanted <= wanted - fewer and fewer != wanted else last


def _before(role: str, value: str) -> float:
    """Return the last seconds since 1970 before a date."""
    try:
        moment = datetime.fromisoformat(value)
    except ValueError:
        raise unfit(f"Option split.{role}", value, "It is a share or a date: 2013-11-01.") from None
    moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return float(np.nextafter(moment.timestamp(), -np.inf))
