"""A slot of a worker process, as the dispatcher sees it: a `Worker`."""

from __future__ import annotations

import threading
import time

from mmdb.db.connection import Row
from mmdb.db.postgres import PostgresConnection
from mmdb.db.queries import load
from mmdb.errors import (
    Cancelled,
    ConnectionLost,
    DatabaseFailed,
    MmdbError,
    ServerCrashed,
    TrainingFailed,
    WorkerDragged,
    WorkerLost,
    from_sqlstate,
)
from mmdb.train.service.registry import BEAT_S, is_alive
from mmdb.train.workers.orders import (
    FusedOrder,
    GroupOrder,
    HopOrder,
    Order,
    answer,
    to_json,
)
from mmdb.train.workers.postgres_worker import SETTINGS

#: Seconds between two looks at whether a hop was cancelled meanwhile.
LOOK_S = 0.1

_Q = load("service")


class RemoteWorker:
    """Gives hops to a slot by rows of `assignment`, and waits for their ends."""

    def __init__(self, url: str, slot: Row) -> None:
        """Take a row of `live_workers`."""
        self.worker_id: int = slot["worker_id"]
        self.name = f"{slot['name']} ({self.worker_id})"  # a name may come back; an id does not
        self.node: str = slot["node"]
        self.device: str = slot["device"]
        self.is_busy = False
        self._url = url
        self._connection: PostgresConnection | None = None
        self._cancelled, self._closed = threading.Event(), False

    def open(self) -> None:
        """Make sure that the slot serves; it keeps its session in order by itself."""
        if self._connection is None:
            self._connection = PostgresConnection(
                self._url, application_name=f"mmdb for {self.name}", settings=SETTINGS
            )
        elif not self._connection.alive():
            self._connection.reconnect()
        self._connection.run(_Q.listen_outcomes)
        if not is_alive(self._connection, self.worker_id):
            raise WorkerLost(f"Worker {self.name} has gone.")
        self._cancelled.clear()

    def do(self, order: Order) -> list[Row]:
        connection = self._connection
        assert connection is not None
        self.is_busy = True
        try:
            return self._do(connection, order)
        except ServerCrashed as error:
            raise WorkerDragged(error.message) from error
        except ConnectionLost as error:
            raise WorkerLost(error.message) from error
        finally:
            self.is_busy = False
            if self._closed:
                connection.close()

    def cancel(self) -> None:
        self._cancelled.set()

    def close(self) -> None:
        self._closed = True
        self._cancelled.set()
        if self._connection is not None and not self.is_busy:
            self._connection.close()

    def _do(self, connection: PostgresConnection, order: Order) -> list[Row]:
        (given,) = connection.rows(
            _Q.assign,
            worker_id=self.worker_id,
            candidate_id=order.candidate_id,
            epoch=order.epoch,
            part_id=part_of(order),
            detail=to_json(order),
        )
        ended = self._wait(connection, given["assignment_id"])
        if ended["sqlstate"] is not None:
            raise _error(ended)
        found: list[Row] = []
        for part_id, candidate_id in recorded_by(order):
            place = {"part_id": part_id, "candidate_id": candidate_id, "epoch": order.epoch}
            found += connection.rows(load("hops").find_hop, **place)
        return [answer(row) for row in found]

    def _wait(self, connection: PostgresConnection, assignment_id: int) -> Row:
        """Return how an assignment ended.

        Raises:
            Cancelled, WorkerLost: the slot fell silent.
        """
        looked_at = 0.0
        while True:
            if time.monotonic() - looked_at > BEAT_S:
                looked_at = time.monotonic()
                (found,) = connection.rows(_Q.find_assignment, assignment_id=assignment_id)
                if found["finished"]:
                    return found
                if not is_alive(connection, self.worker_id):
                    self._give_up(connection, assignment_id, "The worker fell silent.")
                    lost = WorkerLost if found["taken"] else WorkerDragged
                    raise lost(f"Worker {self.name} fell silent.")
            if self._cancelled.is_set():
                self._give_up(connection, assignment_id, "The hop was cancelled.")
                raise Cancelled("The hop was cancelled.")
            if str(assignment_id) in connection.notifications(LOOK_S):
                looked_at = 0.0

    def _give_up(self, connection: PostgresConnection, assignment_id: int, why: str) -> None:
        connection.run(_Q.give_up, assignment_id=assignment_id, message=why)


def part_of(order: Order) -> int | None:
    """Return the partition that the slot visits; None for a merge."""
    if isinstance(order, HopOrder | FusedOrder):
        return order.part_id
    return order.part_ids[order.group.rank] if isinstance(order, GroupOrder) else None


def recorded_by(order: Order) -> list[tuple[int, int]]:
    """Return partition and candidate of the hops that the order records.

    A group's first rank does it for all.
    """
    if isinstance(order, HopOrder):
        return [(order.part_id, order.candidate_id)]
    if isinstance(order, FusedOrder):
        return [(order.part_id, candidate_id) for candidate_id in order.candidate_ids]
    if isinstance(order, GroupOrder) and order.group.rank == 0:
        return [(part_id, order.candidate_id) for part_id in order.part_ids]
    return []


def give_up_all(connection: PostgresConnection) -> None:
    """End what a dispatcher that is gone has left under way: nobody waits for it."""
    connection.run(_Q.give_up, assignment_id=None, message="The dispatcher has gone.")


def _error(ended: Row) -> MmdbError:
    known = from_sqlstate(ended["sqlstate"], ended["message"] or "", ended["hint"] or "")
    if isinstance(known, TrainingFailed):
        known.trace = ended["trace"] or ""
    return known or DatabaseFailed(ended["message"] or "")
