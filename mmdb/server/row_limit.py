"""How many rows a statement may predict: the limit of its role, and what it has predicted yet."""

from __future__ import annotations

from dataclasses import dataclass

from mmdb.db.queries import load
from mmdb.errors import LimitReached
from mmdb.server.backend import Backend
from mmdb.server.plpy_connection import PlpyConnection

_HINT = (
    "Ask for fewer rows in one statement, or have the owner of schema mmdb raise predict_rows in "
    "mmdb.role_limit: docs/roles.md."
)


@dataclass(slots=True)
class RowCount:
    """The rows that one statement has predicted, and how many it may."""

    most: int | None = None  # without limit
    rows: int = 0
    started: int | None = None  # the statement, in microseconds from 2000 on
    asked_as: object = None  # the statement, and as whom it ran when its limit was read

    def add(self, rows: int) -> None:
        """Count rows that are about to be predicted.

        Raises:
            LimitReached: they are more than the statement may predict.
        """
        self.rows += rows
        if self.most is not None and self.rows > self.most:
            raise LimitReached(
                f"This role may predict {self.most:,} rows in a statement.", hint=_HINT
            )


#: A server's process has one session. A statement that catches the error, undoes what it did or
#: takes another role does not begin anew: only the next one of the client's does.
_session = RowCount()


def row_count(backend: Backend) -> RowCount:
    """Return the count of the statement under way, for which `find_predictor` has been called."""
    connection = backend.connection
    if connection.engine != "postgres" or getattr(connection, "is_spread", False):
        return RowCount()
    statement = backend.known[0]  # None in a thread of its own, which asks PostgreSQL each time
    asked_as = (statement[0], *statement[2:]) if isinstance(statement, tuple) else None
    if asked_as is not None and asked_as == _session.asked_as:
        return _session
    (row,) = connection.rows(load("owners").find_predict_rows)
    if not isinstance(connection, PlpyConnection):
        return RowCount(most=row["predict_rows"])
    if row["started"] != _session.started:
        _session.started, _session.rows = row["started"], 0
    _session.asked_as, _session.most = asked_as, row["predict_rows"]
    return _session
