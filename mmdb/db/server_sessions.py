"""Sessions with one PostgreSQL server, who it is, how busy it is, and how it fared."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TypeVar

from mmdb.db.check import shown
from mmdb.db.postgres import PostgresConnection
from mmdb.db.queries import load
from mmdb.errors import ConnectionLost, WrongUrl

_Result = TypeVar("_Result")

_Q = load("replicas")
#: Sessions kept open for the next reader; a peak of more readers closes the rest.
KEPT_SESSIONS = 16
#: Models that a session is remembered to have.
KNOWN_MODELS = 10_000


@dataclass(slots=True, kw_only=True)
class Session:
    """A connection, with what has been seen in it."""

    connection: PostgresConnection
    was_idle: bool = False
    known: set[int] = field(default_factory=set)

    def has(self, model_ids: Collection[int]) -> bool:
        """Return whether models are there; once they are, so are all of their tensors.

        A save is one transaction, and a replica commits in the primary's order.
        """
        asked = set(model_ids) - self.known
        if asked:
            (row,) = self.connection.rows(_Q.count_models, model_ids=list(asked))
            if row["models"] < len(asked):
                return False
            if len(self.known) > KNOWN_MODELS:
                self.known.clear()
            self.known |= asked
        return True


class Sessions:
    """A pool: opens a session where all are lent out, and keeps those that come back."""

    def __init__(self, open_session: Callable[[], PostgresConnection]) -> None:
        self._open = open_session
        self._idle: list[Session] = []
        self._lock = threading.Lock()
        self._is_closed = False

    def use(self, work: Callable[[Session], _Result]) -> _Result:
        """Return what `work` does with a session that no other thread has.

        An idle session may have ended with a restart of its server: `work` is then run again, in
        another one.

        Raises:
            WrongUrl, ConnectionLost: the server cannot be reached, or broke the session.
        """
        while True:
            session = self._take()
            try:
                result = work(session)
            except ConnectionLost:
                session.connection.close()
                if not session.was_idle:
                    raise
                self.forget()
            except BaseException:
                session.connection.close()  # a statement may be under way in it
                raise
            else:
                self._give_back(session)
                return result

    def forget(self) -> None:
        """Close the idle sessions."""
        with self._lock:
            idle, self._idle = self._idle, []
        for session in idle:
            session.connection.close()

    def close(self) -> None:
        """Close the idle sessions now, and those lent out as they come back."""
        self._is_closed = True
        self.forget()

    def _take(self) -> Session:
        with self._lock:
            if self._idle:
                return self._idle.pop()
        return Session(connection=self._open())

    def _give_back(self, session: Session) -> None:
        session.was_idle = True
        with self._lock:
            if not self._is_closed and len(self._idle) < KEPT_SESSIONS:
                self._idle.append(session)
                return
        session.connection.close()


#: Seconds for which a server that failed is left alone: the first time, and at most.
FIRST_PAUSE_S, LAST_PAUSE_S = 0.5, 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """Which server and database a session is with."""

    system_identifier: int  # a base backup has that of its primary
    database_oid: int
    is_replica: bool
    started_at: datetime

    @classmethod
    def of(cls, connection: PostgresConnection) -> Identity:
        """Ask a session."""
        (row,) = connection.rows(load("replicas").identify)
        return cls(**row)

    def check(self, primary: Identity, url: str) -> None:
        """Hold a URL to the primary's database.

        Raises:
            WrongUrl: it is another database.
        """
        same = ("system_identifier", "database_oid")
        if any(getattr(self, name) != getattr(primary, name) for name in same):
            raise WrongUrl(
                f"The read URL {shown(url)} is another database, not a replica of this one.",
                hint="Give streaming replicas of the primary, and the same database on them.",
            )

    def check_replica(self, primary: Identity, url: str) -> None:
        """Hold a read URL to the primary.

        Raises:
            WrongUrl: it is another database, or takes writes of its own and is not the primary.
        """
        self.check(primary, url)
        if not self.is_replica and self.started_at != primary.started_at:
            raise WrongUrl(
                f"The read URL {shown(url)} is a server that takes writes of its own.",
                hint="A replica that was promoted goes its own way: make it a replica again.",
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerStatus:
    """What one server has done for the readers of this process."""

    url: str  # without its password
    reads: int
    load: int  # bytes that readers are waiting for
    failures: int  # in a row
    wait_s: float  # until it is tried again; 0 where it is in use
    error: str  # the last one; empty where there was none


class Server:
    """A server's sessions with its load and failures. Its owner holds a lock around each call."""

    def __init__(self, url: str, sessions: Sessions, longest_pause_s: float) -> None:
        self.url, self.sessions, self._longest_pause_s = url, sessions, longest_pause_s
        self.load = self.reads = self.failures = 0
        self.retry_at = 0.0
        self.error = ""

    def begin(self, size: int, now: float) -> int:
        """Count a read; return the failures before it.

        After a failure one read at a time tries the server: it is put off for the others.
        """
        self.load += size
        if self.failures:
            self._put_off(now)
        return self.failures

    def end(self, size: int, *, reads: int = 0, error: str = "") -> None:
        """Count a read that the server answered, be it with an error."""
        self.load -= size
        self.reads += reads
        self.failures, self.retry_at = 0, 0.0
        self.error = error or self.error

    def fail(self, size: int, error: str, failures: int, now: float) -> None:
        """Set the server aside; reads that fail together count as one.

        Args:
            failures: what `begin` returned to this read.
        """
        self.load -= size
        self.error = error
        if self.failures == failures:
            self.failures += 1
            self._put_off(now)

    def status(self, now: float) -> ServerStatus:
        """Return how the server fared."""
        return ServerStatus(
            url=shown(self.url),
            reads=self.reads,
            load=self.load,
            failures=self.failures,
            wait_s=max(self.retry_at - now, 0.0),
            error=self.error,
        )

    def _put_off(self, now: float) -> None:
        self.retry_at = now + pause_s(self.failures, self._longest_pause_s)


def pause_s(failures: int, longest: float = LAST_PAUSE_S) -> float:
    """Return for how long a server is left alone after some failures in a row.

    >>> [pause_s(n) for n in (1, 2, 3, 60)]
    [0.5, 1.0, 2.0, 30.0]
    """
    return float(min(FIRST_PAUSE_S * 2 ** min(failures - 1, 16), longest))


def least_loaded(loads: Sequence[int], generator: random.Random) -> int:
    """Return the place of the least load; among equals any, with the same chance.

    Taking turns would send all lists of tensors to one replica and all their bytes to the other.
    """
    least = min(loads)
    return generator.choice([place for place, load in enumerate(loads) if load == least])
