"""A worker process: it offers slots, serves them, and dispatches where no other process does."""

from __future__ import annotations

import os
import platform
import time
import traceback
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

from mmdb.db.install import Mode
from mmdb.db.postgres import PostgresConnection
from mmdb.errors import ConnectionLost, EngineError, MmdbError
from mmdb.train.driver.decision import Decide
from mmdb.train.driver.run_requests import open_requests
from mmdb.train.service.dispatcher import Deposed, Dispatching, take_office
from mmdb.train.service.registry import BEAT_S, Pulse, register, unregister
from mmdb.train.service.serving import Serving
from mmdb.train.threads import start_without_signals
from mmdb.train.workers.worker import Worker, mode_of, workers_of

#: Seconds between two looks at whether to stop.
LOOK_S = 0.1
#: Seconds that hops under way have left after the first SIGTERM.
GRACE_S = 60.0


def default_name() -> str:
    """Return a name that no other process has."""
    return f"{platform.node()}-{os.getpid()}"


class WorkerProcess:
    """Slots of one database, one for each of `devices`."""

    def __init__(
        self,
        url: str,
        devices: Sequence[str],
        *,
        name: str | None = None,
        mode: Mode | None = None,
        grace_s: float = GRACE_S,
        say: Callable[[str], None] = lambda text: None,
        decide: Decide | None = None,
    ) -> None:
        """Take the name; `run` opens the sessions.

        Args:
            decide: how runs are to be trained that nobody has trained yet.
            mode: where hops compute; None for "server" where the database has functions.
            say: told what a person who watches wants to know.
        Raises:
            WrongUrl, NotInstalled, NoServerFunctions, WorkerExists
        """
        self.name = name or default_name()
        self._url, self._grace_s, self._say = url, grace_s, say
        self._decide = decide
        self._stop_at: float | None = None
        self._serving: Serving | None = None
        self._connection = PostgresConnection(url, application_name=f"mmdb {self.name}")
        try:
            self._mode = mode_of(self._connection, mode)
            self._pulse = Pulse(url, self.name, self._heard)
        except BaseException:
            self._connection.close()
            raise
        self._workers = workers_of(
            self._connection,
            len(devices),
            mode=self._mode,
            devices=tuple(devices),
            name=self.name,
        )

    def stop(self) -> None:
        """Begin no hop more, give those under way the grace, and end; again, to end at once.

        It may be called by a signal's handler.
        """
        grace_s = self._grace_s if self._stop_at is None else 0.0
        self._stop_at = time.monotonic() + grace_s

    def run(self, *, once: bool = False) -> None:
        """Serve until stopped, or with `once` until nothing that was submitted is left.

        Raises:
            DeviceMissing: a slot has a device that is not there.
            EngineError: the server is gone, or no slot has a session any more.
        """
        try:
            slots = self._open()
            self._serving = Serving(self._url, slots, lambda: self._stop_at)
            self._pulse.start_for(list(slots))
            start_without_signals(self._serving)
            self._say(f"{self.name} serves: {len(slots)} slots, mode {self._mode}")
            try:
                self._take_turns(once)
            finally:
                if self._stop_at is None:
                    self.stop()
                self._serving.join()
                with suppress(EngineError):
                    unregister(self._connection, list(slots))
            if self._serving.error is not None:
                raise self._serving.error
        finally:
            for worker in self._workers:
                worker.close()
            self._pulse.stop()
            self._connection.close()

    def _open(self) -> dict[int, Worker]:
        with ThreadPoolExecutor(len(self._workers)) as threads:
            list(threads.map(lambda worker: worker.open(), self._workers))
        return register(self._connection, self._workers, self.name, self._mode)

    def _heard(self) -> None:
        if self._serving is not None:
            self._serving.wake()

    def _take_turns(self, once: bool) -> None:
        """Dispatch, or wait until nobody else does."""
        look_at = 0.0
        while self._goes_on():
            if time.monotonic() < look_at:
                time.sleep(LOOK_S)
                continue
            look_at = time.monotonic() + BEAT_S
            try:
                if take_office(self._connection):
                    self._dispatch(once)
                if once and not open_requests(self._connection):
                    return
            except ConnectionLost:
                self._connection.reconnect()

    def _dispatch(self, once: bool) -> None:
        self._say(f"{self.name} dispatches")
        term = Dispatching(
            self._connection,
            self._url,
            once=once,
            stop_at=lambda: self._stop_at,
            check=self._check,
            say=self._say,
            decide=self._decide,
        )
        try:
            with suppress(Deposed):
                term.run()
        except MmdbError as error:  # no slot answers, or the server is gone for the moment
            self._say(f"{self.name} stops dispatching: {error.message}")
        except Exception:  # a defect; the slots go on serving whoever takes over
            self._say(f"{self.name} stops dispatching: {traceback.format_exc()}")
        self._connection.reconnect()  # lays the office down

    def _check(self) -> None:
        if self._stop_at is None and not self._goes_on():
            raise Deposed

    def _goes_on(self) -> bool:
        if self._pulse.error is not None:
            raise self._pulse.error
        return self._stop_at is None and self._serving is not None and self._serving.is_alive()
