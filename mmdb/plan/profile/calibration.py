"""Calibration: what is measured where, in which order, and for how long."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, replace
from statistics import median
from time import monotonic, time

from mmdb.errors import InvalidOption, MmdbError
from mmdb.graph.values import show
from mmdb.plan.profile.measures.orders import COMPUTE, DATABASE, MAX_BUDGET_S, Order
from mmdb.plan.profile.places import Place
from mmdb.plan.profile.row import Row
from mmdb.train.parallel.rendezvous import Rendezvous
from mmdb.train.threads import start_without_signals

#: Shares of the budget. What a step's time is made of gets most of it.
SHARES = {
    "products": 12.0,
    "thin_products": 8.0,
    "convolutions": 12.0,
    "depthwise": 6.0,
    "memory": 8.0,
    "dispatch": 4.0,
    "updates": 8.0,
    "states": 8.0,
    "decoding": 6.0,
    "queries": 1.0,
    "reading": 4.0,
    "hops": 8.0,
    "busy": 10.0,
    "group": 6.0,
}
#: Sizes of groups of workers that are measured, where there are as many.
GROUPS = (2, 4)
#: Seconds until several sessions begin at the same moment, and between two looks at a cancel.
_LEAD_S, _POLL_S = 0.2, 0.05
#: Seconds that are spent on a thing however small the budget is.
_LEAST_S = 0.05
#: Below this nothing could be measured.
MIN_BUDGET_S = 1.0

OnWait = Callable[[], None]


def check_budget(budget_s: object) -> float:
    """Return the seconds that may be measured.

    Raises:
        InvalidOption
    """
    is_number = isinstance(budget_s, int | float) and not isinstance(budget_s, bool)
    if not is_number or not MIN_BUDGET_S <= budget_s <= MAX_BUDGET_S:  # type: ignore[operator]
        raise InvalidOption(
            f"budget_s is {show(budget_s)}.",
            hint=f"It is a number of seconds from {MIN_BUDGET_S:g} to {MAX_BUDGET_S:g}.",
        )
    return float(budget_s)  # type: ignore[arg-type]


def calibrate(
    places: Sequence[Place],
    budget_s: float,
    *,
    database: Place | None = None,
    part_id: int | None = None,
    seed: int = 0,
    device: str = "cpu",
    on_wait: OnWait = lambda: None,
) -> Iterator[Row]:
    """Yield rows as they are measured.

    Args:
        places: sessions that compute as workers would, at least one; nothing else may be busy.
        database: the place that measures what needs the database; None where there is none.
        part_id: a partition that may be read; what is like one is made and read if left out.
        on_wait: called often; what it raises ends the calibration.
    Raises:
        InvalidOption, WorkerLost, GroupBroken
    """
    check_budget(budget_s)
    alone = [*COMPUTE, *(DATABASE if database is not None else ())]
    counts = range(1, len(places) + 1) if len(places) > 1 else ()
    sizes = [size for size in GROUPS if size <= len(places)]
    wanted = [*alone, *(f"busy {n}" for n in counts), *(f"group {n}" for n in sizes)]
    purse = _Purse(budget_s, {name: _share(name, len(counts), len(sizes)) for name in wanted})
    order = Order(what="", budget_s=budget_s, seed=seed, device=device, part_id=part_id)
    # First what needs its whole time; the others measure less where they get less.
    for count in counts:
        one = replace(order, what="busy", budget_s=purse.take(f"busy {count}"), count=count)
        yield from _busy(places[:count], one, on_wait)
    for size in sizes:
        one = replace(order, what="group", budget_s=purse.take(f"group {size}"))
        yield from _group(places[:size], one, on_wait)
    for what in alone:
        place = places[0] if what in COMPUTE else database
        assert place is not None
        one = replace(order, what=what, budget_s=purse.take(what))
        yield from together([place], [one], on_wait)[0]


def _share(name: str, counts: int, sizes: int) -> float:
    what, _, number = name.partition(" ")
    parts = {"busy": counts, "group": sizes}.get(what, 1) if number else 1
    return SHARES[what] / parts


class _Purse:
    """A budget that is divided anew each time: what one thing leaves is for those after it."""

    def __init__(self, budget_s: float, shares: dict[str, float]) -> None:
        self._deadline = monotonic() + budget_s
        self._shares = dict(shares)

    def take(self, name: str) -> float:
        """Return the seconds for one thing, for the last time."""
        whole = sum(self._shares.values())
        left_s = max(_LEAST_S, self._deadline - monotonic())
        return max(_LEAST_S, left_s * self._shares.pop(name) / whole)


def _busy(places: Sequence[Place], order: Order, on_wait: OnWait) -> Iterator[Row]:
    """Yield what one of several busy workers takes, the median of them."""
    lead_s = _LEAD_S if len(places) > 1 else 0.0
    lasts_s = max(_LEAST_S, order.budget_s - lead_s)
    one = replace(order, budget_s=lasts_s, begin_at=time() + lead_s)
    found = together(places, [one] * len(places), on_wait)
    kinds: dict[str, list[Row]] = {}
    for row in (row for rows in found for row in rows):
        kinds.setdefault(row.kind, []).append(row)
    for rows in kinds.values():
        yield replace(
            rows[0],
            value=median(row.value for row in rows),
            deviation=median(row.deviation for row in rows),
            samples=sum(row.samples for row in rows),
        )


def _group(places: Sequence[Place], order: Order, on_wait: OnWait) -> list[Row]:
    rendezvous = Rendezvous()
    try:
        members = rendezvous.group([str(rank) for rank in range(len(places))])
        orders = [replace(order, group=asdict(member)) for member in members]
        return together(places, orders, on_wait)[0]
    finally:
        rendezvous.close()


def together(places: Sequence[Place], orders: Iterable[Order], on_wait: OnWait) -> list[list[Row]]:
    """Let places measure at the same time; return their rows in order.

    A place that is alone measures in a thread too, so that `on_wait` is called meanwhile; but for
    one that may not, whose own queries serve interrupts.

    Raises:
        MmdbError: of the first place that failed; the others are cancelled.
    """
    if len(places) == 1 and not places[0].may_wait:
        (order,) = orders
        return [places[0].measure(order)]
    work = [_Measuring(place, order) for place, order in zip(places, orders, strict=True)]
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
    return [one.rows for one in work]


class _Measuring(threading.Thread):
    """One place at work."""

    def __init__(self, place: Place, order: Order) -> None:
        super().__init__(name="mmdb-measure", daemon=True)
        self.place, self._order = place, order
        self.rows: list[Row] = []
        self.error: BaseException | None = None

    def run(self) -> None:
        try:
            self.rows = self.place.measure(self._order)
        except MmdbError as error:
            self.error = error
        except Exception as error:  # an unknown error must end the calibration, not hang it
            self.error = MmdbError(f"{type(error).__name__}: {error}")
