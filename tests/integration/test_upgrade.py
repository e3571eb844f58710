"""A database of an older schema, with runs and models in it, gets the migrations that it lacks."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

import mmdb
from mmdb.db.doctor import examine
from mmdb.db.install import install, migrations
from mmdb.db.url import connect
from mmdb.errors import MigrationMismatch
from mmdb.store.verify import verify_at
from tests import trained
from tests.catalogs import described
from tests.integration.test_privileges import listing

#: Digests of the migrations that a release has brought, by number: such a file is never edited.
PUBLISHED: dict[int, str] = {}
#: Migrations that no release has brought yet.
UNPUBLISHED: frozenset[int] = frozenset()

#: Migrations, and what makes the older schema that lacks them of the present one.
MADE_UP = {
    "0001_memory.sql": (
        "ALTER TABLE mmdb.role_limit ADD COLUMN memory_bytes bigint;\n"
        "COMMENT ON COLUMN mmdb.role_limit.memory_bytes"
        " IS 'Bytes of memory that one call of its may take.';\n"
        "UPDATE mmdb.role_limit SET memory_bytes = 2 * bytes;\n"
    ),
    "0002_requests.postgres.sql": (
        "CREATE INDEX run_request_run_idx ON mmdb.run_request (run_id);\n"
    ),
    "0003_hops.duckdb.sql": "CREATE INDEX hop_candidate_idx ON mmdb.hop (candidate_id);\n",
}
OLDER = {
    "postgres": "DROP INDEX mmdb.run_request_run_idx",
    "duckdb": "DROP INDEX mmdb.hop_candidate_idx",
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a folder with the made-up migrations."""
    target = tmp_path / "migrations"
    target.mkdir()
    for name, text in MADE_UP.items():
        (target / name).write_text(text)
    return target


def whole(url: str) -> tuple[dict[str, list[str]], list[str]]:
    """Return what the catalog says of schema mmdb, and who may do what with it."""
    return described(url), listing(url) if url.startswith("postgresql") else []


def make_older(url: str) -> None:
    """Take back what the migrations add, and give a role a limit."""
    with closing(connect(url)) as connection:
        connection.select(OLDER[connection.engine])
        connection.select("ALTER TABLE mmdb.role_limit DROP COLUMN memory_bytes")
        connection.select("INSERT INTO mmdb.role_limit (role, bytes) VALUES ('intern', 7000)")


def test_an_older_database_comes_over(database_url: str, folder: Path) -> None:
    fresh = whole(database_url)
    with mmdb.connect(database_url) as db:
        trained.fill(db)
        before = trained.answers(db)
    make_older(database_url)
    assert whole(database_url) != fresh
    install(database_url, directory=folder)
    for now, then in zip(whole(database_url), fresh, strict=True):
        assert now == then
    checks = verify_at(database_url)
    assert [check.name for check in checks if not check.detail.startswith("0 ")] == [
        "blocks", "tensors", "models", "checkpoints"
    ]  # fmt: skip
    assert all(check.ok for check in checks)
    with closing(connect(database_url)) as connection:  # which this version lacks
        connection.select("DELETE FROM mmdb.migration WHERE number > 0")
    with mmdb.connect(database_url) as db:
        assert trained.answers(db) == before
        assert [*db.sql("SELECT memory_bytes FROM mmdb.role_limit")] == [{"memory_bytes": 14000}]
        db.run("later").train(workers=1)
        rows = db.sql("SELECT run, status FROM mmdb.run_progress ORDER BY run")
        assert [tuple(row.values()) for row in rows] == [
            ("later", "finished"),
            ("search", "finished"),
        ]


@pytest.mark.parametrize("applied", [[], [1, 2, 26]])
def test_a_schema_of_before_the_baseline_is_refused_and_can_be_made_anew(
    database_url: str, applied: list[int], folder: Path
) -> None:
    with closing(connect(database_url)) as connection:
        connection.select("UPDATE mmdb.migration SET name = 'schema' WHERE number = 0")
        for number in applied:
            connection.select(
                "INSERT INTO mmdb.migration (number, name, digest)"
                f" VALUES ({number}, 'model_store', 'unknown')"
            )
    for use in (install, mmdb.connect, lambda url: install(url, directory=folder)):
        with pytest.raises(MigrationMismatch, match="older than the oldest") as caught:
            use(database_url)
        assert "mmdb export --all" in caught.value.hint
    (check,) = [check for check in examine(database_url) if check.name == "schema"]
    assert not check.ok and check.mend == caught.value.hint
    with closing(connect(database_url)) as connection:
        connection.select("DROP SCHEMA mmdb CASCADE")
    install(database_url)
    with mmdb.connect(database_url) as db:
        trained.fill(db)


def test_every_migration_is_as_it_was_published_or_not_published_yet() -> None:
    known = {m.number: m.digest for engine in OLDER for m in migrations(engine)}
    assert known.keys() == PUBLISHED.keys() | UNPUBLISHED
    assert {number: known[number] for number in PUBLISHED} == PUBLISHED
