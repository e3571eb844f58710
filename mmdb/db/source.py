"""Where the rows of saved models are read: in one session, or spread over several servers."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Protocol, TypeVar, runtime_checkable

from mmdb.db.connection import Connection

if TYPE_CHECKING:  # loads a driver
    from mmdb.db.server_sessions import ServerStatus

_Result = TypeVar("_Result")


@runtime_checkable
class Source(Protocol):
    """Runs functions that read, each in a session of its own while it lasts."""

    def read(
        self, work: Callable[[Connection], _Result], *, model_ids: Collection[int], size: int = 0
    ) -> _Result:
        """Return what `work` reads of rows that never change once a model is saved.

        Args:
            work: may be begun again, from the start, in another session.
            model_ids: the models that `work` reads.
            size: bytes that it will ask for, about.
        """

    def newest(self, work: Callable[[Connection], _Result]) -> _Result:
        """Return what `work` reads of rows that change, such as names."""

    def status(self) -> list[ServerStatus]:
        """Return how each server fared, the primary first; none of a single session."""

    def close(self) -> None:
        """End the sessions that are its own."""


class OneSession:
    """A source that is one session, for one thread."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def read(
        self, work: Callable[[Connection], _Result], *, model_ids: Collection[int], size: int = 0
    ) -> _Result:
        """Return what `work` reads."""
        return work(self._connection)

    def newest(self, work: Callable[[Connection], _Result]) -> _Result:
        """Return what `work` reads."""
        return work(self._connection)

    def status(self) -> list[ServerStatus]:
        """Return nothing: there is no choice of servers."""
        return []

    def close(self) -> None:
        """Do nothing: the session is its caller's."""
