"""Installing mmdb, twice, at once and over an older schema."""

from __future__ import annotations

from itertools import count
from pathlib import Path
from typing import Any

import pytest

from mmdb import errors
from mmdb.db.doctor import examine
from mmdb.db.duck import DuckConnection
from mmdb.db.install import SchemaChange, ensure_duckdb, install, is_current
from mmdb.db.url import AnyConnection, connect

ADD_COLUMN = "ALTER TABLE mmdb.factory ADD COLUMN note text;\n"
RENAME_COLUMN = "ALTER TABLE mmdb.factory RENAME COLUMN note TO remark;\n"
_numbers = count(1)


def select(url: str, sql: str) -> list[dict[str, Any]]:
    """Return the rows of a query over a session of its own."""
    connection = connect(url)
    try:
        return [dict(row) for row in connection.select(sql)]
    finally:
        connection.close()


def execute(url: str, *statements: str) -> None:
    """Run statements, each committed."""
    connection = connect(url)
    try:
        for statement in statements:
            connection.select(statement)
    finally:
        connection.close()


def factory_columns(url: str) -> set[str]:
    """Return the columns of the table that the migrations of these tests change."""
    rows = select(
        url,
        "SELECT column_name FROM information_schema.columns"
        " WHERE table_schema = 'mmdb' AND table_name = 'factory'",
    )
    return {row["column_name"] for row in rows}


def applied(url: str) -> dict[int, str]:
    """Return number and digest of the migrations that a database has."""
    rows = select(url, "SELECT number, digest FROM mmdb.migration WHERE number > 0")
    return {row["number"]: row["digest"] for row in rows}


def objects(url: str) -> set[tuple[str, str]]:
    """Return the tables and views of a database with their kind."""
    rows = select(
        url,
        "SELECT table_name, table_type FROM information_schema.tables WHERE table_schema = 'mmdb'",
    )
    return {(row["table_name"], row["table_type"]) for row in rows}


# -- an empty database --------------------------------------------------------


def test_a_second_install_changes_nothing(bare_url: str) -> None:
    install(bare_url)
    first = objects(bare_url)
    execute(bare_url, "INSERT INTO mmdb.setting (name, value) VALUES ('kept', 'yes')")
    install(bare_url)
    assert objects(bare_url) == first
    assert ("leaderboard", "VIEW") in first
    assert ("hop", "BASE TABLE") in first
    assert select(bare_url, "SELECT value FROM mmdb.setting") == [{"value": "yes"}]


def test_an_install_that_fails_leaves_nothing(
    bare_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(connection: AnyConnection, migration: SchemaChange) -> None:
        raise errors.DatabaseFailed("no space left")

    monkeypatch.setattr("mmdb.db.install._record", fail)
    with pytest.raises(errors.DatabaseFailed):
        install(bare_url)
    assert objects(bare_url) == set()
    if bare_url.startswith("postgresql"):
        extensions = select(bare_url, "SELECT extname FROM pg_extension")
        assert extensions == [{"extname": "plpgsql"}]


# -- migrations ---------------------------------------------------------------


def test_a_pending_migration_is_applied_once_and_recorded(bare_url: str, migrations: Path) -> None:
    install(bare_url, directory=migrations)
    (migrations / "0001_note.sql").write_text(ADD_COLUMN)
    (migrations / "0002_remark.sql").write_text(RENAME_COLUMN)
    for _ in range(2):  # a second time, either would fail
        install(bare_url, directory=migrations)
        assert factory_columns(bare_url) == {"name", "target", "created_at", "remark"}
    digests = applied(bare_url)
    assert list(digests) == [1, 2]
    assert all(len(digest) == 64 for digest in digests.values())


def test_a_migration_is_translated_for_duckdb_or_refused(duckdb_url: str, migrations: Path) -> None:
    install(duckdb_url, directory=migrations)
    (migrations / "0001_table.sql").write_text(
        "CREATE TABLE mmdb.note (note_id bigint GENERATED ALWAYS AS IDENTITY, text text NOT NULL);"
        "INSERT INTO mmdb.note (text) VALUES ('one'), ('two');"
    )
    install(duckdb_url, directory=migrations)
    assert select(duckdb_url, "SELECT note_id FROM mmdb.note ORDER BY 1")[-1] == {"note_id": 2}
    (migrations / "0002_index.sql").write_text("CREATE INDEX note_idx ON mmdb.note (text);")
    with pytest.raises(errors.UntranslatableSql):
        install(duckdb_url, directory=migrations)
    assert list(applied(duckdb_url)) == [1]


@pytest.mark.parametrize(
    "names", [["note.sql"], ["0000_note.sql"], ["0001_a.sql", "0001_b.duckdb.sql"]]
)
def test_a_misnamed_migration_is_refused(
    names: list[str], duckdb_url: str, migrations: Path
) -> None:
    for name in names:
        (migrations / name).write_text(ADD_COLUMN)
    with pytest.raises(errors.MigrationMismatch, match="not named"):
        install(duckdb_url, directory=migrations)


def test_a_duckdb_file_of_another_version_gets_this_ones_views(duckdb_url: str) -> None:
    install(duckdb_url)
    execute(
        duckdb_url,
        "DROP VIEW mmdb.leaderboard",
        "UPDATE mmdb.migration SET digest = 'of another version' WHERE number = -1",
    )
    connection = connect(duckdb_url)
    try:
        assert isinstance(connection, DuckConnection)
        assert not is_current(connection)
        ensure_duckdb(connection)
        assert is_current(connection)
    finally:
        connection.close()
    assert ("leaderboard", "VIEW") in objects(duckdb_url)


# -- the doctor ---------------------------------------------------------------


def test_an_installed_postgresql_is_well(postgres_url: str) -> None:
    checks = examine(postgres_url)
    assert {"mmdb in the server", "functions and views", "rights"} <= {c.name for c in checks}
    # A throw-away server would lose all by a power cut, as its settings say.
    assert [check.name for check in checks if not check.ok] == ["durability"]


def test_an_installed_duckdb_file_is_well(duckdb_url: str) -> None:
    install(duckdb_url)
    checks = examine(duckdb_url)
    names = [check.name for check in checks]
    assert names == ["connection", "schema", "functions and views", "rows"]
    assert all(check.ok for check in checks)
