"""What serves schedules in a worker process: a thread for each login that looks what is due."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress

from mmdb.db.connection import Row
from mmdb.db.postgres import PostgresConnection
from mmdb.errors import EngineError, MmdbError, RightsMissing
from mmdb.train.drive.schedules import clock_of, find_due, run_schedule
from mmdb.train.values.runtime import start_without_signals

#: Seconds between two looks at what is due.
LOOK_S = 1.0
#: Statements of one login that run at a time.
MOST = 4
#: A statement ends soon after its worker, so that another can take it over.
SETTINGS: Mapping[str, str] = {
    "client_connection_check_interval": "500ms",
    "tcp_keepalives_idle": "10",
    "tcp_keepalives_interval": "5",
    "tcp_keepalives_count": "3",
}


def run_due(url: str, *, now_s: float | None = None) -> list[Row]:
    """Run what is due of a login's schedules, one after another, each in a session of its own.

    Args:
        now_s: what counts as now, in seconds since 1970; None: the server's clock.
    Returns:
        What `run_schedule` returns of each that ran.
    """
    looking = PostgresConnection(url, application_name="mmdb schedules")
    try:
        clock = clock_of(looking) if now_s is None else lambda: now_s
        due = find_due(looking, clock)
    finally:
        looking.close()
    ended = [_Running(url, key, now_s).work() for key in due]
    return [row for row in ended if row is not None]


class _Running(threading.Thread):
    """A run of a schedule, in a session that nothing else uses before or after."""

    def __init__(self, url: str, schedule_id: int, now_s: float | None = None) -> None:
        super().__init__(name=f"mmdb schedule {schedule_id}", daemon=True)
        self.schedule_id, self._url, self._now_s = schedule_id, url, now_s
        self._connection: PostgresConnection | None = None
        self.ended: Row | None = None

    def run(self) -> None:
        with suppress(MmdbError):  # nobody could write down how it went: it is taken over
            self.ended = self.work()

    def work(self) -> Row | None:
        """Run it; return how it went, if it did."""
        name = f"mmdb schedule {self.schedule_id}"
        connection = PostgresConnection(self._url, application_name=name, settings=SETTINGS)
        self._connection = connection
        try:
            clock = clock_of(connection) if self._now_s is None else lambda: float(self._now_s or 0)
            return run_schedule(connection, self.schedule_id, clock)
        finally:
            connection.close()

    def cancel(self) -> None:
        """Cancel the statement."""
        if self._connection is not None:
            self._connection.cancel()


class ScheduleServer(threading.Thread):
    """Serves the schedules of the role that a URL logs in as, until it is told to stop."""

    def __init__(
        self, url: str, stop_at: Callable[[], float | None], say: Callable[[str], None]
    ) -> None:
        """Take the login; the thread opens the sessions.

        Args:
            stop_at: asked often: None, or until when statements under way may last, in monotonic
                seconds; no other one is begun then.
        """
        super().__init__(name="mmdb schedules", daemon=True)
        self._url, self._stop_at, self._say = url, stop_at, say
        self._running: dict[int, _Running] = {}

    def run(self) -> None:
        try:
            connection = PostgresConnection(self._url, application_name="mmdb schedules")
        except MmdbError as error:
            self._say(f"Schedules of a login are not served: {error.message}")
            return
        try:
            while self._stop_at() is None:
                self._look(connection)
                time.sleep(LOOK_S / 4)
            self._end()
        except MmdbError as error:
            self._say(f"Schedules of a login are served no longer: {error.message}")
        finally:
            connection.close()

    def _look(self, connection: PostgresConnection) -> None:
        self._running = {k: one for k, one in self._running.items() if one.is_alive()}
        try:
            due = find_due(connection, clock_of(connection))
        except RightsMissing:
            raise
        except EngineError:
            connection.reconnect()
            return
        for key in due:
            if key not in self._running and len(self._running) < MOST:
                self._running[key] = _Running(self._url, key)
                start_without_signals(self._running[key])

    def _end(self) -> None:
        """Wait for the statements under way, and cancel those that outlast the grace."""
        for one in self._running.values():
            while one.is_alive():
                one.join(LOOK_S / 4)
                until = self._stop_at()
                if until is not None and time.monotonic() > until:
                    one.cancel()
