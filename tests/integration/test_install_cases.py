"""Installing mmdb where others install, roles lack rights or servers lack packages; migrations."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import psycopg
import pytest

from mmdb import errors
from mmdb.db.doctor import examine
from mmdb.db.install import install, install_in, pending
from mmdb.db.queries import sql_directory
from mmdb.db.server_programs import ServerPrograms, find_server
from mmdb.db.url import connect
from tests.cluster import Cluster
from tests.integration.test_install import (
    ADD_COLUMN,
    applied,
    execute,
    factory_columns,
    objects,
    select,
)

#: How many every install adds.
FACTORIES = (sql_directory("sql/functions") / "01_factories.sql").read_text().count("mmdb.graph.")


@pytest.mark.parametrize("isolation", ["read committed", "serializable"])
def test_installs_at_once_wait_for_each_other(bare_postgres_url: str, isolation: str) -> None:
    name = bare_postgres_url.rpartition("/")[2]
    execute(
        bare_postgres_url,
        f"ALTER DATABASE {name} SET default_transaction_isolation = '{isolation}'",
    )
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(install, [bare_postgres_url] * 4))
    assert select(bare_postgres_url, "SELECT count(*) AS n FROM mmdb.factory") == [{"n": FACTORIES}]


def test_an_install_goes_on_when_another_database_made_the_roles_just_now() -> None:
    waiting = "SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
    with Cluster() as own, psycopg.connect(own.url()) as other, ThreadPoolExecutor() as pool:
        other.execute("CREATE ROLE mmdb_reader")
        other.execute("CREATE ROLE mmdb_trainer")
        other.execute("GRANT mmdb_reader TO mmdb_trainer")
        done = pool.submit(install, own.create_database("shop"))
        while not select(own.url(), waiting) and not done.done():
            time.sleep(0.02)
        other.commit()
        done.result()


def test_an_install_calls_nobody_elses_functions(bare_postgres_url: str) -> None:
    """One that takes an integer would be nearer than the catalog's, which takes a bigint."""
    with psycopg.connect(bare_postgres_url, autocommit=True) as session:
        session.execute(
            "CREATE FUNCTION public.pg_advisory_xact_lock(integer) RETURNS void LANGUAGE plpgsql"
            " AS $$ BEGIN RAISE EXCEPTION 'called'; END $$"
        )
    install(bare_postgres_url)


def test_threads_that_install_in_one_duckdb_file_wait_for_each_other(tmp_path: Path) -> None:
    duckdb_url = f"duckdb:///{tmp_path / 'zoo.duckdb'}"
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(install, [duckdb_url] * 4))
    assert select(duckdb_url, "SELECT count(*) AS n FROM mmdb.factory") == [{"n": FACTORIES}]


def test_a_schema_of_that_name_made_by_another_is_refused(bare_url: str) -> None:
    execute(bare_url, "CREATE SCHEMA mmdb", "CREATE TABLE mmdb.theirs (a integer)")
    with pytest.raises(errors.AlreadyExists, match="mmdb did not make"):
        install(bare_url)
    assert objects(bare_url) == {("theirs", "BASE TABLE")}


@pytest.fixture
def plain_role_url(bare_postgres_url: str, cluster: Cluster) -> Iterator[str]:
    """Return the URL by which a role that owns the database, and is no superuser, reaches it."""
    database = bare_postgres_url.rpartition("/")[2]
    execute(cluster.url(), "CREATE ROLE plain LOGIN", f"ALTER DATABASE {database} OWNER TO plain")
    execute(cluster.url(), f"ALTER ROLE plain PASSWORD '{cluster.password}'")
    yield bare_postgres_url.replace("postgres:", "plain:", 1)
    execute(cluster.url(), f"ALTER DATABASE {database} OWNER TO postgres", "DROP ROLE plain")


def test_a_role_that_is_no_superuser_is_told_so(plain_role_url: str) -> None:
    with pytest.raises(errors.RightsMissing, match="permission denied") as caught:
        install(plain_role_url)
    assert "as a superuser" in caught.value.hint
    assert objects(plain_role_url) == set()


def test_a_role_that_may_not_write_python_is_told_so(
    plain_role_url: str, bare_postgres_url: str
) -> None:
    execute(bare_postgres_url, "CREATE EXTENSION plpython3u")
    with pytest.raises(errors.RightsMissing, match="plpython3u") as caught:
        install(plain_role_url)
    assert "as a superuser" in caught.value.hint
    assert objects(plain_role_url) == set()


@pytest.fixture
def cluster_without_plpython(monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    """Yield a server like the others, but for plpython3u, which it lacks."""
    with TemporaryDirectory(prefix="mmdb-server-") as folder:
        os.chmod(folder, 0o755)  # the server's user is another one
        copied = copy_without_plpython(find_server(), Path(folder))
        monkeypatch.setattr("tests.cluster.find_server", lambda: copied)
        with Cluster() as running:
            yield running


def copy_without_plpython(server: ServerPrograms, target: Path) -> ServerPrograms:
    """Return a copy of a server's files below `target`, less those of plpython3u.

    A PostgreSQL finds its other files by the path of its program, so a moved copy is complete.
    """
    share, libraries = (installed_folder(server, kind) for kind in ("share", "pkglib"))
    root = os.path.commonpath([server.bin, share, libraries])
    copied = {folder: target / folder.relative_to(root) for folder in (server.bin, share)}
    for folder, copy in copied.items():
        shutil.copytree(folder, copy, ignore=shutil.ignore_patterns("plpython3u*"))
    links = target / libraries.relative_to(root)
    links.parent.mkdir(parents=True, exist_ok=True)
    links.symlink_to(libraries)
    return replace(server, bin=copied[server.bin], has_plpython=False)


def installed_folder(server: ServerPrograms, kind: str) -> Path:
    """Return one of the folders that a server was built for."""
    command = [str(server.bin / "pg_config"), f"--{kind}dir"]
    return Path(subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip())


def test_a_server_without_plpython_is_told_which_package_it_lacks(
    cluster_without_plpython: Cluster,
) -> None:
    package = f"postgresql-plpython3-{cluster_without_plpython.server.major}"
    url = cluster_without_plpython.url()
    with pytest.raises(errors.ExtensionMissing) as caught:
        install(url, mode="server")
    assert package in caught.value.hint and "--client" in caught.value.hint
    assert objects(url) == set()
    (check,) = [check for check in examine(url) if check.name == "plpython3u"]
    assert (check.ok, check.detail) == (False, "The server has no plpython3u.")
    assert package in check.mend


def test_a_fresh_database_counts_every_migration_as_applied(
    bare_url: str, migrations: Path
) -> None:
    (migrations / "0001_note.sql").write_text(ADD_COLUMN)
    install(bare_url, directory=migrations)
    assert list(applied(bare_url)) == [1]
    assert "note" not in factory_columns(bare_url)  # sql/schema would have it


def test_a_migration_of_one_engine_runs_there_alone(bare_url: str, migrations: Path) -> None:
    install(bare_url, directory=migrations)
    (migrations / "0001_here.postgres.sql").write_text(
        "ALTER TABLE mmdb.factory ALTER COLUMN target SET STORAGE EXTERNAL;"
        "ALTER TABLE mmdb.factory ADD COLUMN postgres_only text;"
    )
    (migrations / "0002_there.duckdb.sql").write_text(
        "ALTER TABLE mmdb.factory ADD COLUMN duckdb_only HUGEINT;"
    )
    install(bare_url, directory=migrations)
    engine = "postgres" if bare_url.startswith("postgresql") else "duckdb"
    assert factory_columns(bare_url) - {"name", "target", "created_at"} == {f"{engine}_only"}
    assert list(applied(bare_url)) == [1 if engine == "postgres" else 2]


def test_a_failing_migration_rolls_back_those_before_it(bare_url: str, migrations: Path) -> None:
    install(bare_url, directory=migrations)
    (migrations / "0001_note.sql").write_text(ADD_COLUMN)
    (migrations / "0002_broken.sql").write_text("ALTER TABLE mmdb.nowhere ADD COLUMN note text;")
    with pytest.raises(errors.EngineError):
        install(bare_url, directory=migrations)
    assert "note" not in factory_columns(bare_url)
    assert applied(bare_url) == {}
    (migrations / "0002_broken.sql").unlink()
    install(bare_url, directory=migrations)
    assert "note" in factory_columns(bare_url)


def test_an_edited_migration_is_refused(bare_url: str, migrations: Path) -> None:
    (migrations / "0001_note.sql").write_text(ADD_COLUMN)
    install(bare_url, directory=migrations)
    (migrations / "0001_note.sql").write_text(ADD_COLUMN + "-- edited\n")
    with pytest.raises(errors.MigrationMismatch, match="Migration 1"):
        install(bare_url, directory=migrations)


def test_a_database_that_is_ahead_is_refused(bare_url: str, migrations: Path) -> None:
    (migrations / "0007_note.sql").write_text(ADD_COLUMN)
    install(bare_url, directory=migrations)
    with pytest.raises(errors.MigrationMismatch, match="Migration 7") as caught:
        install(bare_url)
    assert "newer" in caught.value.hint


def test_pending_says_what_a_database_lacks(bare_url: str, migrations: Path) -> None:
    connection = connect(bare_url)
    try:
        with pytest.raises(errors.NotInstalled):
            pending(connection, migrations)
        install_in(connection, directory=migrations)
        assert pending(connection, migrations) == []
        (migrations / "0001_note.sql").write_text(ADD_COLUMN)
        assert [m.name for m in pending(connection, migrations)] == ["note"]
    finally:
        connection.close()
