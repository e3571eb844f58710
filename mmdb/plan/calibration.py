"""Calibration: what is measured where, in which order, and for how long."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import asdict, replace
from functools import partial
from statistics import median
from time import monotonic, time
from typing import Generic, TypeVar

from mmdb.db.postgres import PostgresConnection
from mmdb.db.queries import load
from mmdb.errors import MmdbError
from mmdb.plan.profile.fits import coefficient_of_variation
from mmdb.plan.profile.measurements import Measurement, check_budget, measurement_of
from mmdb.plan.profile.measurers import COMPUTE, DATABASE, FIRST, Measurer, Order
from mmdb.plan.step.corrections import learned_rows
from mmdb.train.drive.server_worker import SETTINGS
from mmdb.train.group.rendezvous import Rendezvous
from mmdb.train.values.runtime import start_without_signals

#: Shares of the budget. What a step's time is made of gets most of it.
SHARES = {
    "operations": 26.0,
    "references": 14.0,
    "products": 4.0,
    "thin_products": 4.0,
    "convolutions": 3.0,
    "depthwise": 2.0,
    "memory": 8.0,
    "dispatch": 4.0,
    "updates": 8.0,
    "states": 8.0,
    "decoding": 6.0,
    "queries": 1.0,
    "reading": 4.0,
    "hops": 8.0,
    "busy": 20.0,
    "group": 8.0,
}
#: Sizes of groups of workers that are measured, where there are as many.
GROUPS = (2, 4)
#: Turns in which 1, 2, ... workers are busy, at most, and seconds of one at least.
_TURNS, _TURN_S = 8, 0.55
#: Seconds until several sessions begin at the same moment, and between two looks at a cancel.
_LEAD_S, _POLL_S = 0.2, 0.05
#: Seconds that are spent on a thing however small the budget is.
_LEAST_S = 0.05

OnWait = Callable[[], None]
T = TypeVar("T")


def calibrate(
    places: Sequence[Measurer],
    budget_s: float,
    *,
    database: Measurer | None = None,
    part_id: int | None = None,
    seed: int = 0,
    device: str = "cpu",
    on_wait: OnWait = lambda: None,
) -> Iterator[Measurement]:
    """Yield rows as they are measured, then what they say together.

    Args:
        places: sessions that compute as workers would, at least one; nothing else may be busy.
        database: the place that measures what needs the database; None where there is none.
        part_id: a partition that may be read; what is like one is made and read if left out.
        on_wait: called often; what it raises ends the calibration.
    Raises:
        InvalidOption, WorkerLost, GroupBroken
    """
    check_budget(budget_s)
    found: list[Measurement] = []
    order = Order(what="", budget_s=budget_s, seed=seed, device=device, part_id=part_id)
    for row in _measured(places, order, database, on_wait):
        found.append(row)
        yield row
    yield from learned_rows(found)


def _measured(
    places: Sequence[Measurer], order: Order, database: Measurer | None, on_wait: OnWait
) -> Iterator[Measurement]:
    alone = [*COMPUTE, *(DATABASE if database is not None else ())]
    counts = range(1, len(places) + 1) if len(places) > 1 else ()
    sizes = [size for size in GROUPS if size <= len(places)]
    wanted = [*alone, *(["busy"] if counts else ()), *(f"group {n}" for n in sizes)]
    time_budget = _TimeBudget(order.budget_s, {name: _share(name, len(sizes)) for name in wanted})
    if places[0].is_fresh:
        one = replace(order, what=FIRST, budget_s=_LEAST_S)
        yield from together(places[:1], [one], on_wait)[0]
    # Then what needs its whole time; the others measure less where they get less.
    if counts:
        one = replace(order, what="busy", budget_s=time_budget.take("busy"))
        yield from _busy(places, counts, one, on_wait)
    for size in sizes:
        one = replace(order, what="group", budget_s=time_budget.take(f"group {size}"))
        yield from _group(places[:size], one, on_wait)
    for what in alone:
        place = places[0] if what in COMPUTE else database
        assert place is not None
        one = replace(order, what=what, budget_s=time_budget.take(what))
        yield from together([place], [one], on_wait)[0]


def _share(name: str, sizes: int) -> float:
    what, _, number = name.partition(" ")
    return SHARES[what] / (sizes if number else 1)


class _TimeBudget:
    """A budget that is divided anew each time: what one thing leaves is for those after it."""

    def __init__(self, budget_s: float, shares: dict[str, float]) -> None:
        self._deadline = monotonic() + budget_s
        self._shares = dict(shares)

    def take(self, name: str) -> float:
        """Return the seconds for one thing, for the last time."""
        whole = sum(self._shares.values())
        left_s = max(_LEAST_S, self._deadline - monotonic())
        return max(_LEAST_S, left_s * self._shares.pop(name) / whole)


def _busy(
    places: Sequence[Measurer], counts: Sequence[int], order: Order, on_wait: OnWait
) -> Iterator[Measurement]:
    """Yield what one of 1, 2, ... busy workers takes.

    They take turns, and what is kept is how much longer than one alone they took in their turn: a
    machine's own pace may change by more between two turns than workers slow each other down. The
    deviation is that of turns.
    """
    turns = max(1, min(_TURNS, int(order.budget_s / len(counts) / _TURN_S)))
    share_s = order.budget_s / turns / len(counts)
    found = [
        {
            count: _at_once(places[:count], replace(order, budget_s=share_s, count=count), on_wait)
            for count in counts
        }
        for _ in range(turns)
    ]
    alone = counts[0]
    for kind in found[0][alone]:
        middle = median(turn[alone][kind].value for turn in found)
        for count in counts:
            rows = [turn[count][kind] for turn in found]
            ratio = median(turn[count][kind].value / turn[alone][kind].value for turn in found)
            yield replace(
                rows[0],
                value=middle * ratio,
                deviation=coefficient_of_variation([row.value for row in rows]),
                samples=sum(row.samples for row in rows),
            )


def _at_once(places: Sequence[Measurer], order: Order, on_wait: OnWait) -> dict[str, Measurement]:
    """Return by kind what one of several busy workers takes, the median of them."""
    lead_s = _LEAD_S if len(places) > 1 else 0.0
    lasts_s = max(_LEAST_S, order.budget_s - lead_s)
    one = replace(order, budget_s=lasts_s, begin_at=time() + lead_s)
    found = together(places, [one] * len(places), on_wait)
    kinds: dict[str, list[Measurement]] = {}
    for row in (row for rows in found for row in rows):
        kinds.setdefault(row.kind, []).append(row)
    return {
        kind: replace(
            rows[0],
            value=median(row.value for row in rows),
            deviation=median(row.deviation for row in rows),
            samples=sum(row.samples for row in rows),
        )
        for kind, rows in kinds.items()
    }


def _group(places: Sequence[Measurer], order: Order, on_wait: OnWait) -> list[Measurement]:
    rendezvous = Rendezvous()
    try:
        members = rendezvous.group([str(rank) for rank in range(len(places))])
        orders = [replace(order, group=asdict(member)) for member in members]
        return together(places, orders, on_wait)[0]
    finally:
        rendezvous.close()


def together(
    places: Sequence[Measurer], orders: Iterable[Order], on_wait: OnWait
) -> list[list[Measurement]]:
    """Let places measure at the same time; return their rows in order.

    A place that is alone measures in a thread too, so that `on_wait` is called meanwhile; but for
    one that may not, whose own queries serve interrupts.

    Raises:
        MmdbError: of the first place that failed; the others are cancelled.
    """
    if len(places) == 1 and not places[0].may_wait:
        (order,) = orders
        return [places[0].measure(order)]
    calls = [partial(p.measure, order) for p, order in zip(places, orders, strict=True)]
    return side_by_side(places, calls, on_wait)


def side_by_side(
    places: Sequence[Measurer], calls: Iterable[Callable[[], T]], on_wait: OnWait
) -> list[T]:
    """Let each place do its call in a thread of its own; return what they returned, in order.

    Raises:
        MmdbError: of the first place that failed; the others are cancelled.
    """
    work = [_Working(place, call) for place, call in zip(places, calls, strict=True)]
    for one in work:
        start_without_signals(one)
    try:
        for one in work:
            while one.is_alive():
                one.join(_POLL_S)
                on_wait()
            if one.error is not None:
                raise one.error
    except BaseException:
        for one in work:
            one.place.cancel()
        for one in work:
            one.join()
        raise
    return [one.done[0] for one in work]


class _Working(threading.Thread, Generic[T]):
    """One place at work."""

    def __init__(self, place: Measurer, call: Callable[[], T]) -> None:
        super().__init__(name="mmdb-measure", daemon=True)
        self.place, self._call = place, call
        self.done: list[T] = []
        self.error: BaseException | None = None

    def run(self) -> None:
        try:
            self.done.append(self._call())
        except MmdbError as error:
            self.error = error
        except Exception as error:  # an unknown error must end the calibration, not hang it
            self.error = MmdbError(f"{type(error).__name__}: {error}")


class SessionMeasurer:
    """A session that measures inside the server, as a worker's hops compute there."""

    may_wait = is_fresh = True

    def __init__(self, url: str) -> None:
        """Connect."""
        self._connection = PostgresConnection(
            url, application_name="mmdb calibrate", settings=SETTINGS
        )

    def warm_up(self) -> None:
        """Load torch: else the first thing measured pays for it."""
        self._connection.run(load("api").warm_up, device="cpu")

    def measure(self, order: Order) -> list[Measurement]:
        """Let the session measure."""
        found = self._connection.rows(load("api").measure, detail=json.dumps(order.to_json()))
        return [measurement_of(row) for row in found]

    def cancel(self) -> None:
        """End the statement under way."""
        self._connection.cancel()

    def close(self) -> None:
        """End the session."""
        self._connection.close()


@contextmanager
def sessions(url: str, count: int, on_wait: Callable[[], None]) -> Iterator[list[SessionMeasurer]]:
    """Yield sessions that have loaded torch; they end with the block.

    Raises:
        WrongUrl, MmdbError
    """
    with ExitStack() as stack:
        found = [stack.enter_context(closing(SessionMeasurer(url))) for _ in range(count)]
        side_by_side(found, [place.warm_up for place in found], on_wait)
        yield found
