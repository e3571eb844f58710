"""The doctor, beside databases that are well and databases that are broken in one way each."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

import psycopg
import pytest

from mmdb.db.check import Check
from mmdb.db.doctor import examine
from mmdb.db.install import install
from mmdb.db.server_python import Package, PythonProbe, judge
from tests.cluster import Cluster

HOLD_FILE = (
    "import duckdb, sys; held = duckdb.connect(sys.argv[1]); print('held', flush=True); input()"
)


def failed(url: str) -> dict[str, Check]:
    """Return the failed checks by name; each of them says how to mend it.

    Not durability: a throw-away server would lose all by a power cut, as its settings say.
    """
    checks = [check for check in examine(url) if not check.ok and check.name != "durability"]
    assert all(check.mend for check in checks)
    return {check.name: check for check in checks}


def execute(url: str, *statements: str) -> None:
    """Run statements as the superuser, each committed."""
    with psycopg.connect(url, autocommit=True) as connection:
        for statement in statements:
            connection.execute(statement.encode())


# -- all is well --------------------------------------------------------------


def test_an_installed_postgresql_is_well(postgres_url: str) -> None:
    assert [check.name for check in examine(postgres_url)] == [
        "connection",
        "server version",
        "plpython3u",
        "server Python",
        "mmdb in the server",
        "torch in the server",
        "numpy in the server",
        "pyarrow in the server",
        "schema",
        "functions and views",
        "rows",
        "indexes",
        "sequences",
        "rights",
        "roles",
        "worker login",
        "durability",
        "vacuum",
        "transactions",
        "sessions",
        "replicas",
        "archive",
        "disk",
    ]
    assert failed(postgres_url) == {}


def test_an_installed_duckdb_file_is_well(duckdb_url: str) -> None:
    install(duckdb_url)
    names = [check.name for check in examine(duckdb_url)]
    assert names == ["connection", "schema", "functions and views", "rows"]
    assert failed(duckdb_url) == {}


def test_no_check_shows_the_password(postgres_url: str, cluster: Cluster) -> None:
    execute(postgres_url, "DROP SCHEMA mmdb CASCADE")
    assert cluster.password not in str(examine(postgres_url))


def test_the_doctor_leaves_no_trace(cluster: Cluster) -> None:
    url = cluster.create_database("untouched", "template0")
    examine(url)
    with psycopg.connect(url) as connection:
        extensions = connection.execute("SELECT extname FROM pg_extension").fetchall()
    cluster.drop_database("untouched")
    assert extensions == [("plpgsql",)]


# -- no way in ----------------------------------------------------------------


@pytest.mark.parametrize(
    ("url", "command"),
    [
        ("postgresql://nobody@127.0.0.1:1/nowhere", "psql postgresql://nobody@127.0.0.1:1/nowhere"),
        ("postgresql://[nowhere", "psql"),
        ("mysql://nobody@nowhere/", "postgresql://user@host:port/database"),
        ("nonsense", "postgresql://user@host:port/database"),
        ("", "postgresql://user@host:port/database"),
        ("duckdb:////nowhere/zoo.duckdb", "mmdb install duckdb:////nowhere/zoo.duckdb"),
        ("duckdb:////", "ls -l /"),
    ],
)
def test_a_url_that_leads_nowhere(url: str, command: str) -> None:
    checks = failed(url)
    assert list(checks) == ["connection"]
    assert command in checks["connection"].mend


def test_a_wrong_password(cluster: Cluster) -> None:
    checks = failed(cluster.url().replace(cluster.password, "wrong"))
    assert "password authentication failed" in checks["connection"].detail


def test_a_file_that_is_no_database(tmp_path: Path) -> None:
    file = tmp_path / "notes.txt"
    file.write_text("not a database " * 1000)
    assert "is no DuckDB file" in failed(f"duckdb:///{file}")["connection"].detail
    sqlite3.connect(file.with_suffix(".db")).executescript("CREATE TABLE t (x)")
    os.mkfifo(file.with_suffix(".pipe"))  # which nobody would ever write to
    for suffix in (".db", ".pipe"):  # for the first, DuckDB would fetch an extension
        name = file.with_suffix(suffix)
        assert "is no DuckDB file" in failed(f"duckdb:///{name}")["connection"].detail


def test_a_duckdb_file_that_another_process_holds(tmp_path: Path) -> None:
    file = tmp_path / "zoo.duckdb"
    install(f"duckdb:///{file}")
    with subprocess.Popen(
        [sys.executable, "-c", HOLD_FILE, str(file)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as holder:
        assert holder.stdout is not None and holder.stdout.readline() == "held\n"
        check = failed(f"duckdb:///{file}")["connection"]
        holder.communicate("\n")
    assert "is open in another process" in check.detail
    assert failed(f"duckdb:///{file}") == {}


# -- the schema ---------------------------------------------------------------


def test_an_empty_postgresql_database(cluster: Cluster) -> None:
    url = cluster.create_database("empty", "template0")
    checks = failed(url)
    cluster.drop_database("empty")
    assert list(checks) == ["plpython3u", "schema"]
    assert "mmdb install postgresql://postgres@127.0.0.1" in checks["schema"].mend


def test_an_empty_duckdb_file(tmp_path: Path) -> None:
    url = f"duckdb:///{tmp_path / 'zoo.duckdb'}"
    checks = failed(url)
    assert list(checks) == ["connection"]  # and it does not make the file
    assert failed(url) == checks


def test_a_dropped_schema(postgres_url: str) -> None:
    execute(postgres_url, "DROP SCHEMA mmdb CASCADE")
    assert list(failed(postgres_url)) == ["schema"]


def test_a_dropped_function_and_a_dropped_view(postgres_url: str) -> None:
    execute(
        postgres_url,
        "DROP FUNCTION mmdb.train_hop",
        "DROP VIEW mmdb.leaderboard, mmdb.hop_timeline",
    )
    check = failed(postgres_url)["functions and views"]
    assert check.detail == "missing: hop_timeline, leaderboard, train_hop"


def test_functions_of_another_version(postgres_url: str) -> None:
    execute(postgres_url, "UPDATE mmdb.migration SET digest = 'other' WHERE number = -1")
    check = failed(postgres_url)["functions and views"]
    assert check.detail == "They are of another version of mmdb."


def test_a_schema_from_the_future(postgres_url: str) -> None:
    execute(
        postgres_url,
        "INSERT INTO mmdb.migration (number, name, digest) VALUES (9999, 'future', 'unknown')",
    )
    check = failed(postgres_url)["schema"]
    assert "Migration 9999" in check.detail
    assert "newer" in check.mend


def test_a_missing_migration(
    postgres_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from mmdb.db.queries import sql_directory

    (tmp_path / "9999_note.sql").write_text("ALTER TABLE mmdb.factory ADD COLUMN note text;")
    real = "mmdb.db.install.sql_directory"

    monkeypatch.setattr(
        real, lambda part: tmp_path if part == "sql/migrations" else sql_directory(part)
    )
    assert failed(postgres_url)["schema"].detail == "Not applied: 9999_note."


# -- roles --------------------------------------------------------------------


@pytest.fixture
def role_url(postgres_url: str, cluster: Cluster) -> Iterator[str]:
    """Yield the URL of a role that may connect and nothing else."""
    execute(cluster.url(), f"CREATE ROLE ann LOGIN PASSWORD '{cluster.password}'")
    yield postgres_url.replace("postgres:", "ann:", 1)
    execute(cluster.url(), "DROP ROLE ann")


def test_a_trainer_is_well(role_url: str, cluster: Cluster) -> None:
    execute(cluster.url(), "GRANT mmdb_trainer TO ann")
    checks = examine(role_url)
    assert [check.name for check in checks if not check.ok] == ["durability"]
    (packages,) = [check for check in checks if check.name == "packages in the server"]
    assert "torch" in packages.detail


def test_a_reader_may_not_train(role_url: str, cluster: Cluster) -> None:
    execute(cluster.url(), "GRANT mmdb_reader TO ann")
    check = failed(role_url)["rights"]
    assert check.detail == "ann may only read the views."
    assert 'GRANT mmdb_trainer TO "ann"' in check.mend


def test_a_role_without_rights(role_url: str) -> None:
    assert failed(role_url)["rights"].detail == "ann may do nothing with mmdb."


def test_a_role_that_may_not_install(role_url: str, postgres_url: str) -> None:
    execute(postgres_url, "DROP SCHEMA mmdb CASCADE")
    checks = failed(role_url)
    assert list(checks) == ["schema", "rights"]
    assert "mmdb install postgresql://postgres@127.0.0.1" in checks["rights"].mend


# -- the server's Python ------------------------------------------------------


@pytest.fixture(scope="module")
def misled_cluster() -> Iterator[Cluster]:
    """Yield a server whose Python path each test sets."""
    with Cluster() as running:
        yield running


def restart(cluster: Cluster, python_path: str) -> str:
    """Give a server another Python path and return its URL."""
    cluster.halt()
    cluster._environment["PYTHONPATH"] = python_path
    cluster.start()
    return cluster.url()


def make_package(
    folder: Path, name: str, text: str, number: str, distribution: str | None = None
) -> None:
    """Write a package with its metadata; the distribution has its name unless another is given."""
    (folder / name / "server").mkdir(parents=True)
    (folder / name / "__init__.py").write_text(text)
    (folder / name / "server" / "__init__.py").touch()
    (folder / name / "server" / "hop_functions.py").touch()
    distribution = distribution or name
    metadata = folder / f"{distribution.replace('-', '_')}-{number}.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: {distribution}\nVersion: {number}\n"
    )


def test_a_server_that_finds_no_package(misled_cluster: Cluster) -> None:
    checks = failed(restart(misled_cluster, ""))
    assert "No module named 'mmdb'" in checks["mmdb in the server"].detail
    mend = checks["mmdb in the server"].mend
    assert f"/etc/postgresql/{misled_cluster.server.major}/main/environment" in mend
    assert "PYTHONPATH = '" in mend and "/mmdb.pth" in mend


def test_a_server_that_finds_another_mmdb_and_a_broken_numpy(misled_cluster: Cluster) -> None:
    folder = misled_cluster.directory / "packages"
    make_package(folder, "mmdb", "", "0.0.1", "mmdb-learn")
    make_package(folder, "numpy", "raise ImportError('compiled for another Python')", "9.9")
    os.chmod(folder, 0o755)
    checks = failed(restart(misled_cluster, str(folder)))
    assert checks["mmdb in the server"].detail == (
        f"0.0.1 from {folder}/mmdb; here it is {version('mmdb-learn')}"
    )
    assert checks["numpy in the server"].detail == "ImportError: compiled for another Python"
    assert "venv" in checks["numpy in the server"].mend


def test_a_package_that_ends_the_session(misled_cluster: Cluster) -> None:
    folder = misled_cluster.directory / "deadly"
    make_package(folder, "mmdb", "import os; os.abort()", "0.0.1")
    os.chmod(folder, 0o755)
    checks = failed(restart(misled_cluster, str(folder)))
    assert "server Python" in checks["session"].detail


def test_a_trainer_is_sent_to_one_who_sees_more(
    misled_cluster: Cluster,
) -> None:
    restart(misled_cluster, "")
    url = misled_cluster.create_database("installed", "template0")
    install(url)
    execute(url, f"CREATE ROLE bob LOGIN PASSWORD '{misled_cluster.password}'")
    execute(url, "GRANT mmdb_trainer TO bob")
    check = failed(url.replace("postgres:", "bob:", 1))["packages in the server"]
    assert "No module named 'mmdb'" in check.detail
    assert "mmdb doctor postgresql://postgres@127.0.0.1" in check.mend


def probe(python: tuple[int, int], error: str = "") -> PythonProbe:
    """Return what a server with that Python and one package would say."""
    numpy = Package(version="2.4", folder="/opt/numpy", error=error)
    return PythonProbe(python=list(python), site="/opt", packages={"numpy": numpy})


def test_a_python_that_is_too_old() -> None:
    check, _ = judge(probe((3, 9)), where="there")
    assert (check.ok, check.detail) == (False, "Python 3.9")
    assert "3.11" in check.mend


def test_packages_made_for_another_python() -> None:
    _, check = judge(probe((3, 99), "No module named 'numpy'"), where="there")
    assert "python3.99 -m venv" in check.mend
