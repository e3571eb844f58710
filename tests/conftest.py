"""Databases for tests: a fresh one each, on DuckDB or on a throw-away PostgreSQL.

With `-n 2` (pytest-xdist) there are two processes, each with a server and with files of its own.
"""

from __future__ import annotations

import compileall
import os
import shutil
from collections.abc import Iterator
from importlib.metadata import version
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import psycopg
import pytest
from hypothesis import HealthCheck, settings

from mmdb.db.server_programs import find_server
from mmdb.errors import ServerMissing
from tests import gate, skips
from tests.cluster import ROOT, Cluster
from tests.copies import Copies

if TYPE_CHECKING:
    from xdist.remote import Producer

    from tests.spread import Spread

# Each of several processes has a core; threads that wait for each other would waste it.
if "PYTEST_XDIST_WORKER" in os.environ:
    os.environ.setdefault("OMP_NUM_THREADS", "1")

# Hops of tests take their share of a machine that other tests, or other people, keep busy.
os.environ.setdefault("MMDB_NICE", "0")

#: Folders of tests that need more than `make setup` installs, or minutes each.
LANES = [ROOT / "tests" / "bi", ROOT / "tests" / "lanes"]
TEMPLATE = "mmdb_template"
_numbers = count(1)


def pytest_configure(config: pytest.Config) -> None:
    """Refuse skips, of the doctests in mmdb/ too; let examples take their time."""
    config.pluginmanager.register(skips)
    slow = [HealthCheck.too_slow]
    settings.register_profile("busy", deadline=None, suppress_health_check=slow)
    settings.load_profile("busy")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add `--all`, which runs what the gate leaves out."""
    parser.addoption("--all", action="store_true", help="also run what tests/gate.py lists")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Pass over LANES, and what the gate leaves out, unless the command line names it."""
    left_out = collection_path in gate.PATHS and not config.option.all
    if not left_out and collection_path not in LANES:
        return None
    named = [
        (config.invocation_params.dir / argument.partition("::")[0]).resolve()
        for argument in config.args
    ]
    return None if any(collection_path in (path, *path.parents) for path in named) else True


def pytest_report_header() -> list[str]:
    """Return the versions that a result depends on."""
    names = ("torch", "numpy", "duckdb", "pyarrow", "sqlglot", "psycopg")
    try:
        server = find_server()
        postgres = f"postgres {server.version} (PL/Python {server.python_version})"
    except ServerMissing:
        postgres = "no usable postgres"
    return [", ".join([postgres, *(f"{name} {version(name)}" for name in names)])]


def pytest_sessionstart() -> None:
    """Compile the package once; the server's user, who may not write here, would in each session.

    That is 0.2 s of a session's 2 to its first hop.
    """
    if "PYTEST_XDIST_WORKER" not in os.environ:
        compileall.compile_dir(ROOT / "mmdb", quiet=2)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> Spread:
    """Return what spreads the tests over the processes, whatever `--dist` says."""
    from tests.spread import Spread  # here, so that tests run without pytest-xdist too

    return Spread(config, log)


@pytest.fixture(scope="session", autouse=True)
def own_cache() -> Iterator[Path]:
    """Let this process, and those that it starts, decode partitions into a folder of its own.

    A server of the tests keeps its own below its directory.
    """
    with TemporaryDirectory(prefix="mmdb-cache-") as folder, pytest.MonkeyPatch.context() as patch:
        patch.setenv("MMDB_CACHE_DIR", folder)
        yield Path(folder)


@pytest.fixture(autouse=True)
def cache_folder(own_cache: Path) -> Path:
    """Return the folder of decoded partitions, empty at the beginning of each test."""
    shutil.rmtree(own_cache, ignore_errors=True)
    return own_cache


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    """Return the server that all tests share."""
    with Cluster() as running:
        yield running


@pytest.fixture(scope="session")
def template(cluster: Cluster) -> str:
    """Return the name of a database with mmdb installed, to be copied."""
    from mmdb.db.install import install  # here, so that tests without a database need none of it

    url = cluster.create_database(TEMPLATE)
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("CREATE EXTENSION IF NOT EXISTS plpython3u")
    install(url)
    return TEMPLATE


@pytest.fixture
def postgres_url(cluster: Cluster, template: str) -> Iterator[str]:
    """Return the URL of a fresh PostgreSQL database with mmdb installed."""
    name = f"mmdb_test_{next(_numbers)}"
    yield cluster.create_database(name, template)
    cluster.drop_database(name)


@pytest.fixture
def duckdb_url(tmp_path: Path) -> str:
    """Return the URL of a DuckDB file that is not there yet."""
    return f"duckdb:///{tmp_path / 'mmdb.duckdb'}"


@pytest.fixture(scope="session")
def installed_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a DuckDB file with mmdb installed, to be copied."""
    from mmdb.db.install import install

    path = tmp_path_factory.mktemp("installed") / "mmdb.duckdb"
    install(f"duckdb:///{path}")
    return path


@pytest.fixture
def installed_duckdb_url(installed_file: Path, duckdb_url: str) -> str:
    """Return the URL of a fresh DuckDB file with mmdb installed."""
    shutil.copy(installed_file, duckdb_url.removeprefix("duckdb:///"))
    return duckdb_url


DATABASES = {"duckdb": "installed_duckdb_url", "postgres": "postgres_url"}


@pytest.fixture(params=list(DATABASES))
def database_url(request: pytest.FixtureRequest) -> str:
    """Return the URL of a fresh database with mmdb installed, once on each engine."""
    return str(request.getfixturevalue(DATABASES[request.param]))


@pytest.fixture(scope="module")
def copies(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Copies]:
    """Return what gives each test of a file a copy of a database that is filled once."""
    found = Copies(tmp_path_factory.mktemp("copies"), request.getfixturevalue)
    yield found
    found.close()


@pytest.fixture
def bare_postgres_url(cluster: Cluster) -> Iterator[str]:
    """Return the URL of an empty PostgreSQL database, without plpython3u."""
    name = f"mmdb_bare_{next(_numbers)}"
    yield cluster.create_database(name, "template0")
    cluster.drop_database(name)


@pytest.fixture(params=["duckdb", "bare_postgres"])
def bare_url(request: pytest.FixtureRequest) -> str:
    """Return the URL of an empty database, once on each engine."""
    return str(request.getfixturevalue(f"{request.param}_url"))


@pytest.fixture
def migrations(tmp_path: Path) -> Path:
    """Return an empty directory of migrations."""
    folder = tmp_path / "migrations"
    folder.mkdir()
    return folder
