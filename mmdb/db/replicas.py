"""Reads of saved models spread over a primary's streaming replicas, with fail-over."""

from __future__ import annotations

import random
import threading
import time
import warnings
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import TypeVar

import psycopg
from psycopg.conninfo import make_conninfo

from mmdb.db.check import shown
from mmdb.db.connection import Connection, OneSession, Source
from mmdb.db.duck import DuckConnection
from mmdb.db.login import parameters_of
from mmdb.db.postgres import PostgresConnection
from mmdb.db.queries import load
from mmdb.db.server_sessions import (
    LAST_PAUSE_S,
    Identity,
    Server,
    ServerStatus,
    Session,
    Sessions,
    least_loaded,
)
from mmdb.db.url import AnyConnection
from mmdb.errors import Cancelled, ConnectionLost, CorruptTensor, MmdbError, MmdbWarning, WrongUrl

_Result = TypeVar("_Result")


#: What a server answered; None where it does not have the models yet, or failed.
_Answer = tuple[_Result] | None

_Q = load("replicas")
#: The name of the read sessions in pg_stat_activity.
APPLICATION_NAME = "mmdb read"
#: What a read counts beside the bytes that it asks for, when servers are compared.
REQUEST_BYTES = 64 << 10
#: The primary is tried again soon: meanwhile names come from a replica.
PRIMARY_PAUSE_S = 2.0
#: How libpq notices within ten seconds or so that a host is gone; the URL may say otherwise.
LIVENESS = {
    "keepalives_idle": "5",
    "keepalives_interval": "2",
    "keepalives_count": "3",
    "tcp_user_timeout": "10000",
}


class Replicas:
    """A `Source` of several servers, for any number of threads.

    A read goes to the replica with the least to send, any one of equals; if that one fails or
    does not have the model yet, to the next, and at last to the primary. Nothing of a read that
    failed is kept. Each server has sessions of its own, opened as they are needed.

    Args:
        primary: a session with it; it is asked who it is, and not used afterwards.
        urls: its streaming replicas, or none. One that cannot be reached now is tried later.
        seed: of the choice between equals; None for one of its own.
    Raises:
        WrongUrl: a URL is not of a replica of this database.
    """

    def __init__(
        self, primary: PostgresConnection, urls: Sequence[str], *, seed: int | None = None
    ) -> None:
        self._lock = threading.Lock()
        self._identity = Identity.of(primary)
        self._random = random.Random(seed)
        self._primary = self._server(primary.url, primary.url, PRIMARY_PAUSE_S)
        self._replicas = [self._server(url, primary.url, LAST_PAUSE_S) for url in urls]
        try:
            for server in self._replicas:
                self._meet(server)
        except BaseException:
            self.close()
            raise

    def read(
        self, work: Callable[[Connection], _Result], *, model_ids: Collection[int], size: int = 0
    ) -> _Result:
        """Return what `work` reads of models, from a server that has them."""

        def attempt(session: Session) -> _Answer[_Result]:
            return (work(session.connection),) if session.has(model_ids) else None

        for server in self._by_load():
            if answer := self._try(server, attempt, size):
                return answer[0]
        try:
            return self._on_primary(work, size)
        except (ConnectionLost, WrongUrl):
            for server in self._replicas:  # set aside, but there is no other
                if answer := self._try(server, attempt, size):
                    return answer[0]
            raise

    def newest(self, work: Callable[[Connection], _Result]) -> _Result:
        """Return what `work` reads on the primary.

        While the primary cannot be reached, the replica that has got furthest answers.
        """
        lost: MmdbError
        if self._primary.retry_at <= time.monotonic():
            try:
                return self._on_primary(work)
            except (ConnectionLost, WrongUrl) as error:
                lost = error
        else:
            lost = ConnectionLost(self._primary.error)
        for server in self._furthest_first():
            if answer := self._try(server, lambda session: (work(session.connection),)):
                return answer[0]
        raise lost

    def status(self) -> list[ServerStatus]:
        """Return how each server fared, the primary first."""
        now = time.monotonic()
        with self._lock:
            return [server.status(now) for server in (self._primary, *self._replicas)]

    def close(self) -> None:
        """End the sessions; those in use end with their reads."""
        for server in (self._primary, *self._replicas):
            server.sessions.close()

    def _server(self, url: str, primary_url: str, longest_pause_s: float) -> Server:
        conninfo = _with_liveness(url)
        check = Identity.check if url == primary_url else Identity.check_replica

        def open_session() -> PostgresConnection:
            connection = PostgresConnection(conninfo, application_name=APPLICATION_NAME)
            try:
                check(Identity.of(connection), self._identity, url)
            except BaseException:
                connection.close()
                raise
            return connection

        return Server(url, Sessions(open_session), longest_pause_s)

    def _meet(self, server: Server) -> None:
        """Open a first session, so that a wrong URL is an error at once.

        Raises:
            WrongUrl: it is not of a replica.
        """
        try:
            self._use(server, lambda session: None)
        except (ConnectionLost, WrongUrl) as error:
            if not isinstance(error.__cause__, psycopg.Error):  # it answered, but is not a replica
                raise
            text = f"The read URL {shown(server.url)} is tried again later. {error}"
            warnings.warn(text, MmdbWarning, stacklevel=2)

    def _on_primary(self, work: Callable[[Connection], _Result], size: int = 0) -> _Result:
        (result,) = self._use(self._primary, lambda session: (work(session.connection),), size)
        return result

    def _use(self, server: Server, work: Callable[[Session], _Result], size: int = 0) -> _Result:
        """Run `work` in a session of a server and note how the server fared."""
        size += REQUEST_BYTES
        with self._lock:
            failures = server.begin(size, time.monotonic())
        try:
            result = server.sessions.use(work)
        except BaseException as error:
            with self._lock:
                if isinstance(error, (ConnectionLost, WrongUrl)):
                    server.fail(size, str(error), failures, time.monotonic())
                else:
                    server.end(size, error=str(error))
            raise
        with self._lock:
            server.end(size, reads=result is not None)
        return result

    def _try(
        self, server: Server, work: Callable[[Session], _Answer[_Result]], size: int = 0
    ) -> _Answer[_Result]:
        """Run `work` on a replica; None where another server is to be asked.

        The replica may be down, or have cancelled the statement to replay a change: whatever it
        says, the primary has the last word.
        """
        try:
            return self._use(server, work, size)
        except Cancelled:
            raise
        except MmdbError as error:
            if isinstance(error, CorruptTensor):
                text = f"The replica {shown(server.url)} is damaged. {error}"
                warnings.warn(text, MmdbWarning, stacklevel=3)
            return None

    def _by_load(self) -> Iterator[Server]:
        """Yield the replicas that are in use, each time the one with the least to send."""
        left = list(self._replicas)
        while True:
            with self._lock:
                now = time.monotonic()
                left = [server for server in left if server.retry_at <= now]
                if not left:
                    return
                loads = [server.load for server in left]
                chosen = left.pop(least_loaded(loads, self._random))
            yield chosen

    def _furthest_first(self) -> list[Server]:
        """Return the replicas that answer, by how far they are in the primary's changes."""
        found = []
        for server in self._replicas:
            position = self._try(server, _position)
            if position:
                found.append((position[0], server))
        return [server for _, server in sorted(found, key=lambda each: each[0], reverse=True)]


def _position(session: Session) -> _Answer[int]:
    (row,) = session.connection.rows(_Q.read_position)
    return (row["position"],)


def source_of(connection: AnyConnection, urls: Sequence[str]) -> Source:
    """Return where saved models are read: in the session itself, or on replicas.

    Raises:
        WrongUrl: a URL is not of a replica of this database; a DuckDB file has none.
    """
    if not urls:
        return OneSession(connection)
    if isinstance(connection, DuckConnection):
        raise WrongUrl("A DuckDB file has no replicas to read from.", hint="Leave out `reads`.")
    return Replicas(connection, urls)


def _with_liveness(url: str) -> str:
    if not isinstance(url, str) or not url.startswith(("postgresql://", "postgres://")):
        raise WrongUrl(f"The read URL {shown(str(url))!r} is not one of PostgreSQL.")
    return make_conninfo("", **(LIVENESS | parameters_of(url)))
