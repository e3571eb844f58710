"""A file of SQL taken apart at the ends of its statements, and nowhere else."""

from __future__ import annotations

import pytest
import sqlglot

from mmdb.db.ddl import split_statements
from mmdb.db.queries import sql_directory


@pytest.mark.parametrize(
    ("sql", "statements"),
    [
        ("", []),
        ("-- nothing; here\n;;\n", []),
        ("SELECT 1", ["SELECT 1"]),
        ("SELECT 'a;''b;'; SELECT \"c;\"\"d\";", ["SELECT 'a;''b;'", 'SELECT "c;""d"']),
        ("DO $$ BEGIN; END; $$; SELECT $x$;$$;$x$;", ["DO $$ BEGIN; END; $$", "SELECT $x$;$$;$x$"]),
        ("/* one; */ SELECT 1 -- it's; two\n + 2;", ["SELECT 1 -- it's; two\n + 2"]),
        ("SELECT 1 /* it's; */ + 2;", ["SELECT 1 /* it's; */ + 2"]),
        ("SELECT $1; SELECT 2;", ["SELECT $1", "SELECT 2"]),
    ],
)
def test_it_ends_where_a_statement_ends(sql: str, statements: list[str]) -> None:
    assert split_statements(sql) == statements


def test_every_file_is_taken_apart_as_sqlglot_does() -> None:
    files = [*sql_directory("sql/schema").glob("*.sql"), *sql_directory("sql/views").glob("*.sql")]
    assert len(files) > 20
    for file in files:
        text = file.read_text()
        parsed = [s for s in sqlglot.parse(text, read="postgres") if s is not None]
        kept = [s for s in parsed if not isinstance(s, sqlglot.exp.Semicolon)]
        assert len(split_statements(text)) == len(kept), file.name
