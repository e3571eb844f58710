"""Statements that are run again and again."""

from __future__ import annotations

from datetime import datetime, timedelta

from mmdb.api.calls import Calls
from mmdb.db.connection import Row
from mmdb.db.duck import DuckConnection
from mmdb.train.drive import schedules


class ScheduleCalls(Calls):
    """Part of `Database`."""

    def schedule(
        self,
        name: str,
        statement: str,
        every: str | float | timedelta,
        *,
        starts: str | datetime | None = None,
    ) -> int:
        """Store a statement that is run again and again, by workers or by `run_due`.

        Args:
            every: from one due time to the next: seconds, or a text such as "1 day".
            starts: the first due time; None: now.
        Returns:
            Its number.
        Raises:
            InvalidName, AlreadyExists, InvalidOption, QueryError, RightsMissing
        """
        return schedules.schedule(self.connection, name, statement, every, starts)

    def unschedule(self, name: str) -> None:
        """Delete a schedule with its history.

        Raises:
            ScheduleNotFound
        """
        schedules.unschedule(self.connection, name)

    def run_due(self, now: datetime | None = None) -> list[Row]:
        """Run this login's schedules that are due, one after another.

        On PostgreSQL `mmdb worker` does so all the time; on DuckDB nobody else does.

        Args:
            now: what counts as now; None: this moment.
        Returns:
            schedule, due_s (seconds since 1970), outcome ("done" or "failed") and message of each.
        """
        now_s = None if now is None else now.timestamp()
        if not isinstance(self.connection, DuckConnection):
            from mmdb.train.drive.schedule_worker import run_due  # loads what workers need

            return run_due(self.connection.url, now_s=now_s)
        return schedules.run_due(self.connection, now_s)
