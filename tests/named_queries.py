"""The named queries of mmdb and of the experiments."""

from __future__ import annotations

from mmdb.db.queries import Queries, Query, sql_directory
from tests.cluster import ROOT


def named_queries() -> list[Query]:
    """Return every named query, file by file."""
    folders = sql_directory("sql/queries"), ROOT / "tests" / "bench"
    files = [file for folder in folders for file in sorted(folder.rglob("*.sql"))]
    return [query for file in files for query in Queries(file)]
