"""How models came to be, and what became of data."""

from __future__ import annotations

from mmdb.db.connection import Row
from mmdb.db.queries import load
from mmdb.db.url import AnyConnection

_Q = load("api")


class Lineage:
    """Part of `Zoo`."""

    connection: AnyConnection

    def lineage(self, model: str) -> list[Row]:
        """Return a model's run, candidate, dataset, tables and columns, newest version first."""
        return self.connection.rows(_Q.model_lineage, model=model.partition("@")[0])
