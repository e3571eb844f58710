"""Sessions with one PostgreSQL server, each lent to one thread at a time."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import TypeVar

from mmdb.db.postgres import PostgresConnection
from mmdb.db.queries import load
from mmdb.errors import ConnectionLost

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
