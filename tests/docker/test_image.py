"""The steps of docker/Dockerfile and of a container's life, run without Docker."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import psycopg
import pytest

from mmdb.db.server_programs import find_server
from tests.citus_cluster import has_citus
from tests.docker.container import DOCKER, Container, make_prefix, run

ROWS = "CREATE TABLE point AS SELECT i / 200.0 AS x, i % 2 AS y FROM generate_series(1, 200) AS i"


@pytest.fixture(scope="module")
def prefix() -> Iterator[Path]:
    """Return the folder that stands for /opt/mmdb; pytest's own folders are closed to others."""
    folder = Path(tempfile.mkdtemp(prefix="mmdb-image-"))
    folder.chmod(0o755)
    make_prefix(folder / "mmdb")
    yield folder / "mmdb"
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="module")
def container(prefix: Path) -> Iterator[Container]:
    """Return a container that runs, with mmdb in its database `shop`; it logs every statement."""
    with Container(prefix, {"log_statement": "all"}) as running:
        running.start()
        done = running.install()
        assert done.returncode == 0, done.stderr
        yield running


def query(url: str, statement: str) -> list[tuple[object, ...]]:
    """Return the rows of a statement."""
    with psycopg.connect(url, autocommit=True) as connection:
        cursor = connection.execute(statement.encode())
        return cursor.fetchall() if cursor.description else []


def query_postgres(container: Container, statement: str) -> list[tuple[object, ...]]:
    """Return the rows of a statement of the superuser's."""
    return query(container.url("postgres"), statement)


def train(container: Container) -> None:
    """Train a run as the workers' login, in sessions that the server opens by itself."""
    query_postgres(container, ROWS)
    query_postgres(container, "GRANT SELECT ON point TO worker")
    with psycopg.connect(container.url("worker"), autocommit=True) as connection:
        connection.execute(
            "SELECT mmdb.create_dataset('points', 'SELECT x, y FROM point', label => 'y',"
            " partitions => 2)"
        )
        connection.execute("SELECT mmdb.create_run('first', 'points', 'linear')")
        connection.execute("CALL mmdb.train('first', workers => 1)")


# -- making the image ---------------------------------------------------------


def test_the_server_gets_pl_python_of_its_own_release(tmp_path: Path) -> None:
    server = find_server()
    plpython = f"postgresql-plpython3-{server.major}"
    if (
        not shutil.which("apt-get")
        or f"Package: {plpython}" not in run("apt-cache", "show", plpython).stdout
    ):
        pytest.skip("apt does not know the packages of this machine's server")
    simulated = tmp_path / "apt.conf"  # apt's own switch: the script has none for tests
    simulated.write_text('APT::Get::Simulate "true"; Debug::NoLocking "true";')
    done = run(DOCKER / "install-server.sh", APT_CONFIG=str(simulated))
    assert done.returncode == 0, done.stderr


def test_the_build_of_torch_is_chosen_in_words(tmp_path: Path) -> None:
    cpu = run(DOCKER / "install-mmdb.sh", tmp_path / "cpu", TORCH_INDEX_URL="")
    assert cpu.returncode == 1 and "TORCH=cpu needs TORCH_INDEX_URL" in cpu.stderr
    other = run(DOCKER / "install-mmdb.sh", tmp_path / "cpu", TORCH="rocm")
    assert other.returncode == 1 and "TORCH is cpu or cuda, not rocm." in other.stderr


def test_the_environment_holds_this_mmdb_and_not_the_checkout(prefix: Path) -> None:
    code = "import mmdb, importlib.metadata as m; print(mmdb.__file__, m.version('mmdb-learn'))"
    done = run(prefix / "bin" / "python", "-c", code)
    assert done.stdout.startswith(f"{prefix.resolve()}/lib/"), done.stderr
    assert (prefix / "packages" / "mmdb" / "_sql" / "schema").is_dir()
    assert (prefix / "packages" / "mmdb" / "_udf").is_dir()
    assert "usage: mmdb" in run(prefix / "bin" / "mmdb", "--help").stdout


# -- a container --------------------------------------------------------------


def test_the_server_is_not_root_and_holds_the_volume_alone(container: Container) -> None:
    status = Path(f"/proc/{container.pid}/status").read_text()
    (uids,) = (line.split()[1:] for line in status.splitlines() if line.startswith("Uid:"))
    assert "0" not in uids
    assert (container.volume / "mmdb").stat().st_mode & 0o077 == 0


def test_a_worker_trains_and_a_reader_only_looks(container: Container) -> None:
    reader = container.url("dashboard")
    train(container)
    assert query(reader, "SELECT status FROM mmdb.run_progress") == [("finished",)]
    with pytest.raises(psycopg.errors.ReadOnlySqlTransaction):
        query(reader, "CREATE TABLE mine ()")


def test_a_wrong_password_is_refused(container: Container) -> None:
    with pytest.raises(psycopg.OperationalError, match="password authentication failed"):
        query(container.url("postgres", "wrong"), "SELECT 1")


def test_passwords_are_in_no_log_and_their_file_is_closed(container: Container) -> None:
    passwords = container.volume / "sockets" / "passwords-of-install"
    assert passwords.stat().st_mode & 0o077 == 0
    log = container.log_text()
    assert "ALTER ROLE" in log and "SCRAM-SHA-256" in log
    assert not [who for who, password in container.passwords.items() if password[:12] in log]


def test_a_new_container_takes_over_the_volume(container: Container) -> None:
    before = query_postgres(container, "SELECT number, digest FROM mmdb.migration ORDER BY 1")
    container.stop()
    assert container.run("healthy.sh").returncode != 0
    container.start(POSTGRES_PASSWORD_FILE="/nonexistent")  # the first start alone needs it
    done = container.install()
    assert done.returncode == 0, done.stderr
    after = query_postgres(container, "SELECT number, digest FROM mmdb.migration ORDER BY 1")
    assert after == before


def test_a_start_that_was_broken_off_is_made_anew(prefix: Path) -> None:
    with Container(prefix) as broken:
        unfinished = broken.volume / "mmdb.unfinished"
        unfinished.mkdir()
        (unfinished / "PG_VERSION").write_text("")
        done = broken.run(
            "with-passwords.sh", "serve.sh", POSTGRES_PASSWORD_FILE=broken.secret("none")
        )
        assert done.returncode != 0 and not (broken.volume / "mmdb").exists()


def test_health_is_told_by_the_exit_code(prefix: Path) -> None:
    with Container(prefix) as none:
        assert none.run("healthy.sh").returncode != 0


def test_a_password_file_has_every_login(tmp_path: Path) -> None:
    (tmp_path / "one").write_text("a:b\\c\n")
    (tmp_path / "two").write_text("plain")
    written = tmp_path / "passwords"
    subprocess.run(
        [DOCKER / "entry" / "with-passwords.sh", "true"],
        env={"PATH": "/usr/bin:/bin", "PGPASSFILE": str(written)}
        | {"LOGINS": f"ann={tmp_path / 'one'} bob={tmp_path / 'two'}"},
        check=True,
    )
    assert written.read_text() == "*:*:*:ann:a\\:b\\\\c\n*:*:*:bob:plain\n"


# -- a Citus cluster ----------------------------------------------------------


@pytest.mark.citus
@pytest.mark.skipif(not has_citus(), reason="the extension Citus is not installed")
def test_a_node_takes_part_and_trains(prefix: Path) -> None:
    """The compose file's services, each with a port for an address."""
    settings = {"shared_preload_libraries": "citus", "max_prepared_transactions": "200"}
    with ExitStack() as stack:
        coordinator = stack.enter_context(Container(prefix, settings))
        node = stack.enter_context(Container(prefix, settings, coordinator.passwords))
        for server in (coordinator, node):
            logins = ("postgres", "worker")
            files = [f"{who}={server.secret(f'{who}_password')}" for who in logins]
            server.start(LOGINS=" ".join(files))
        where = f"127.0.0.1:{node.port}"
        done = coordinator.install(NODES=where)
        assert done.returncode == 0, done.stderr
        again = coordinator.run(
            *("python3", coordinator.entry("databases.py")),
            **{"PGHOST": "127.0.0.1", "PGDATABASE": "shop", "PGUSER": "postgres", "NODES": where},
        )
        assert again.returncode == 0, again.stderr  # it finds the node there
        train(coordinator)
        assert query_postgres(coordinator, "SELECT DISTINCT node FROM mmdb.hop") == [(where,)]
