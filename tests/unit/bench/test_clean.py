"""A bench leaves nothing: what refers to rows that it deletes is deleted before them."""

from __future__ import annotations

import re

from mmdb.bench.workload import deletions
from mmdb.db.queries import sql_directory

_TABLE = re.compile(r"CREATE TABLE mmdb\.(\w+) \((.*?)\n\);", re.DOTALL)
_REFERENCE = re.compile(r"FOREIGN KEY \([^)]*\) REFERENCES mmdb\.(\w+)")


def references() -> set[tuple[str, str]]:
    """Return (table, table that it refers to) of the whole schema."""
    files = [*sql_directory("sql/schema").glob("*.sql")]
    tables = [found for file in files for found in _TABLE.findall(file.read_text())]
    return {(table, to) for table, text in tables for to in _REFERENCE.findall(text)}


def test_rows_that_refer_to_a_bench_s_rows_are_deleted_before_them() -> None:
    order = [query.name for query in deletions()]
    known = references()
    assert ("model_origin", "model") in known
    wrong = [
        (table, to)
        for table, to in sorted(known)
        if to in order and table != to
        if table not in order or order.index(table) > order.index(to)
    ]
    assert wrong == []
