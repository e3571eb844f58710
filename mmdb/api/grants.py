"""What a team lets others read; docs/roles.md."""

from __future__ import annotations

from typing import Literal

from mmdb.db.install import has_teams
from mmdb.db.queries import load
from mmdb.db.url import AnyConnection
from mmdb.errors import InvalidOption

_Q = load("owners")
Kind = Literal["model", "dataset", "run"]


class GrantCalls:
    """Part of `Database`."""

    connection: AnyConnection

    def share_model(self, model: str, role: str, *, shared: bool = True) -> int:
        """Let a role and its members read `name@version`, or every version the name has by now.

        Args:
            role: a role of the server, or "public" for everybody.
            shared: False takes it back.
        Returns:
            How many versions changed hands.
        Raises:
            InvalidOption: the database has no teams, or the server no such role.
            ModelNotFound: it is not this role's own.
        """
        return self._share("model", model, role, shared)

    def share_dataset(self, dataset: str, role: str, *, shared: bool = True) -> int:
        """Let a role read a dataset's rows, and train on them; see `share_model`.

        Raises:
            InvalidOption, DatasetNotFound
        """
        return self._share("dataset", dataset, role, shared)

    def share_run(self, run: str, role: str, *, shared: bool = True) -> int:
        """Let a role see a run with its candidates and hops; see `share_model`.

        Raises:
            InvalidOption, RunNotFound
        """
        return self._share("run", run, role, shared)

    def _share(self, kind: Kind, name: str, role: str, shared: bool) -> int:
        if self.connection.engine != "postgres" or not has_teams(self.connection):
            raise InvalidOption(
                "This database has no teams: everybody reads everything.",
                hint="The owner makes it one by `mmdb install --teams URL`, on PostgreSQL.",
            )
        query = {"model": _Q.share_model, "dataset": _Q.share_dataset, "run": _Q.share_run}[kind]
        (row,) = self.connection.rows(query, name=name, role=role, shared=shared)
        return int(row["changed"])
