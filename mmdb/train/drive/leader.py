"""The leader: the worker process of a database that drives all runs over all slots."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from mmdb.db.connection import Row
from mmdb.db.postgres import PostgresConnection
from mmdb.db.queries import load
from mmdb.errors import (
    Cancelled,
    ConnectionLost,
    DatabaseFailed,
    MmdbError,
    RunBusy,
    RunFailed,
    ServerCrashed,
    TrainingFailed,
    WorkerDragged,
    WorkerLost,
    from_sqlstate,
    stops_the_caller,
)
from mmdb.train.drive.driver import Driver
from mmdb.train.drive.run_requests import add_outcome, open_requests
from mmdb.train.drive.server_worker import SETTINGS
from mmdb.train.drive.slot_registry import BEAT_S, is_alive, live_workers
from mmdb.train.hops.orders import FusedOrder, GroupOrder, HopOrder, Order, to_json, wire_row
from mmdb.train.ledger.run_options import Decide
from mmdb.train.watch import Watch

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
        return [wire_row(row) for row in found]

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
    """End what a leader that is gone has left under way: nobody waits for it."""
    connection.run(_Q.give_up, assignment_id=None, message="The leader has gone.")


def _error(ended: Row) -> MmdbError:
    known = from_sqlstate(ended["sqlstate"], ended["message"] or "", ended["hint"] or "")
    if isinstance(known, TrainingFailed):
        known.trace = ended["trace"] or ""
    return known or DatabaseFailed(ended["message"] or "")


class Deposed(Exception):
    """This process is the leader no more, or is to stop."""


def take_office(connection: PostgresConnection) -> bool:
    """Become the leader for the rest of the session, where no other process is."""
    return bool(connection.rows(_Q.lock_service)[0]["locked"])


class Leader:
    """The term of one leader; its connection holds the office."""

    def __init__(
        self,
        connection: PostgresConnection,
        url: str,
        *,
        once: bool,
        stop_at: Callable[[], float | None],
        check: Callable[[], None],
        say: Callable[[str], None],
        decide: Decide | None = None,
    ) -> None:
        """Begin a term.

        Args:
            decide: how runs are to be trained that nobody has trained yet.
            once: end it when there is nothing left to train.
            stop_at: asked often: None, or until when hops under way are waited for, in monotonic
                seconds; no other hop is begun then.
            check: called often; may raise to end the term at once.
        """
        self._connection, self._url = connection, url
        self._once, self._stop_at = once, stop_at
        self._check, self._say = check, say
        self._workers: dict[int, RemoteWorker] = {}
        self._retired: list[RemoteWorker] = []  # for good, as this process stops
        self._requests: dict[str, Row] = {}  # of the runs that the driver has
        self._looked_at = 0.0
        self._control = PostgresConnection(url, application_name="mmdb leader")
        self._watch = Watch()
        self._driver = Driver(self._control, watch=self._watch, on_wait=self._tick, decide=decide)

    def run(self) -> None:
        """Drive what is submitted, until the term ends.

        Raises:
            Deposed: in order.
            EngineError: the server is gone.
        """
        try:
            give_up_all(self._connection)
            self._look()
            self._driver.drive(forever=True)
        finally:
            self._control.close()

    def _tick(self) -> None:
        self._check()
        self._note_outcomes()
        stop_at = self._stop_at()
        if stop_at is not None:
            self._wind_up(stop_at)
        elif time.monotonic() - self._looked_at > BEAT_S:
            self._look()

    def _wind_up(self, stop_at: float) -> None:
        while self._workers:
            _, worker = self._workers.popitem()
            self._driver.retire_worker(worker.name)
            self._retired.append(worker)
        is_busy = any(worker.is_busy for worker in self._retired)
        if not is_busy or time.monotonic() > stop_at:
            raise Deposed

    def _look(self) -> None:
        """Take in new slots and requests, and let go of what is gone."""
        try:
            self._add_workers()
            self._add_runs()
        except ConnectionLost:
            raise Deposed from None  # the office went with the session
        self._looked_at = time.monotonic()
        if self._once and not self._requests:
            raise Deposed

    def _add_workers(self) -> None:
        live = {row["worker_id"]: row for row in live_workers(self._connection)}
        for worker_id in [w for w in self._workers if w not in live]:
            self._driver.retire_worker(self._workers.pop(worker_id).name)
        for worker_id, row in live.items():
            if worker_id not in self._workers:
                self._workers[worker_id] = RemoteWorker(self._url, row)
                self._driver.add_worker(self._workers[worker_id])

    def _add_runs(self) -> None:
        for request in open_requests(self._connection):
            name = request["run"]
            if name in self._requests:
                self._requests[name] = request  # its priority may be another one
                continue
            try:
                self._driver.add_run(name)
                self._requests[name] = request
            except RunBusy:
                continue  # someone trains it by hand: look again later
            except Exception as error:  # one run that cannot begin must not stop the others
                if stops_the_caller(error):
                    raise
                known = error if isinstance(error, MmdbError) else RunFailed(repr(error))
                add_outcome(self._connection, request["request_id"], request["run_id"], known)

    def _note_outcomes(self) -> None:
        """Note how runs ended."""
        for run in list(self._driver.outcomes):
            request, outcome = self._requests.pop(run), self._driver.outcomes.pop(run)
            self._watch.forget(run)
            error = outcome if isinstance(outcome, MmdbError) else None
            add_outcome(self._connection, request["request_id"], request["run_id"], error)
            self._say(f"{run}: {error.message if error else 'finished'}")
