"""Sessions of a PostgreSQL that has mmdb's functions, as places that measure."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager

from mmdb.db.postgres import PostgresConnection
from mmdb.db.queries import load
from mmdb.plan.profile.calibration import side_by_side
from mmdb.plan.profile.measures.orders import Order
from mmdb.plan.profile.row import Row, row_of
from mmdb.train.drive.server_worker import SETTINGS


class SessionPlace:
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

    def measure(self, order: Order) -> list[Row]:
        """Let the session measure."""
        found = self._connection.rows(load("api").measure, detail=json.dumps(order.to_json()))
        return [row_of(row) for row in found]

    def cancel(self) -> None:
        """End the statement under way."""
        self._connection.cancel()

    def close(self) -> None:
        """End the session."""
        self._connection.close()


@contextmanager
def sessions(url: str, count: int, on_wait: Callable[[], None]) -> Iterator[list[SessionPlace]]:
    """Yield sessions that have loaded torch; they end with the block.

    Raises:
        WrongUrl, MmdbError
    """
    with ExitStack() as stack:
        found = [stack.enter_context(closing(SessionPlace(url))) for _ in range(count)]
        side_by_side(found, [place.warm_up for place in found], on_wait)
        yield found
