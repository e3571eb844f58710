"""The dispatcher: one worker process of a database, which drives all runs over all slots."""

from __future__ import annotations

import time
from collections.abc import Callable

from mmdb.db.connection import Row
from mmdb.db.postgres import PostgresConnection
from mmdb.db.queries import load
from mmdb.errors import ConnectionLost, MmdbError, RunBusy, RunFailed, stops_the_caller
from mmdb.train.driver.decision import Decide
from mmdb.train.driver.driver import Driver
from mmdb.train.driver.run_requests import add_outcome, open_requests
from mmdb.train.service.registry import BEAT_S, live_workers
from mmdb.train.service.remote import RemoteWorker, give_up_all
from mmdb.train.watch import Watch

_Q = load("service")


class Deposed(Exception):
    """This process is the dispatcher no more, or is to stop."""


def take_office(connection: PostgresConnection) -> bool:
    """Become the dispatcher for the rest of the session, where no other process is."""
    return bool(connection.rows(_Q.lock_service)[0]["locked"])


class Dispatching:
    """The term of one dispatcher; its connection holds the office."""

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
        self._control = PostgresConnection(url, application_name="mmdb dispatcher")
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
