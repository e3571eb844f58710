"""What keeps a database running: metrics, vacuum, compared bytes, and a doctor for each."""

from __future__ import annotations

import json
import shutil
import socket
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import psycopg
import pytest
import torch

import mmdb
from mmdb.cli import main
from mmdb.db import doctor_server
from mmdb.db.check import Check
from mmdb.db.doctor_schema import (
    broken_objects,
    extensions,
    orphans,
    roles,
    sequences,
    worker_login,
)
from mmdb.db.doctor_server import server
from mmdb.db.install import install
from mmdb.db.postgres import PostgresConnection
from mmdb.errors import InvalidOption
from mmdb.standards.prometheus import read_metrics, serve_metrics
from mmdb.store.verify import verify_at
from tests.cluster import Cluster
from tests.points import fill
from tests.prometheus_text import parse

Look = Callable[[PostgresConnection], Iterator[Check]]


def fill_with_one_of_each(url: str) -> None:
    """Make a dataset, a run with a hop, and two versions of a model, the second a difference."""
    torch.manual_seed(0)
    with mmdb.connect(url) as db:
        fill(db, rows=40)
        run = db.create_run("r", dataset="d", architecture="linear", epochs=1)
        if db.connection.engine == "duckdb":
            run.train(workers=1)
        weights = {"large": torch.randn(300, 300), "small": torch.arange(5.0)}
        db.save("m", weights)
        db.save("m", weights | {"small": torch.arange(5.0) + 1}, parent="m@1")


@pytest.fixture(scope="module")
def filled(cluster: Cluster, template: str) -> Iterator[str]:
    """Yield the name of a database with one of each, to be copied."""
    name = "mmdb_operations"
    fill_with_one_of_each(cluster.create_database(name, template))
    yield name
    cluster.drop_database(name)


@pytest.fixture(scope="module")
def filled_file(installed_file: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a DuckDB file with one of each, and a trained run, to be copied."""
    path = Path(shutil.copy(installed_file, tmp_path_factory.mktemp("operations")))
    fill_with_one_of_each(f"duckdb:///{path}")
    return path


@pytest.fixture
def damaged(cluster: Cluster, filled: str) -> Iterator[tuple[str, PostgresConnection]]:
    """Yield the URL of a copy, and a superuser's session with it."""
    url = cluster.create_database(f"{filled}_copy", filled)
    with closing(PostgresConnection(url)) as connection:
        yield url, connection
    cluster.drop_database(f"{filled}_copy")


@pytest.fixture
def file_url(filled_file: Path, tmp_path: Path) -> str:
    """Return the URL of a copy of the file."""
    return f"duckdb:///{shutil.copy(filled_file, tmp_path)}"


@pytest.fixture(params=["duckdb", "postgres"])
def filled_url(request: pytest.FixtureRequest) -> str:
    """Return the URL of a copy, once on each engine."""
    if request.param == "duckdb":
        return str(request.getfixturevalue("file_url"))
    url, _ = request.getfixturevalue("damaged")
    return str(url)


# -- metrics ------------------------------------------------------------------


def test_metrics_count_what_is_there(filled_url: str) -> None:
    types, samples = parse(read_metrics(filled_url))
    is_trained = filled_url.startswith("duckdb")
    assert samples["mmdb_runs", "finished"] == is_trained
    assert samples["mmdb_runs", "created"] == (not is_trained)
    assert samples["mmdb_hops_total", ""] == 3 * is_trained
    assert samples["mmdb_models", ""] == 2 + is_trained  # whose best candidate is one
    assert samples["mmdb_datasets", ""] == 1
    assert samples["mmdb_model_bytes", ""] >= 2 * (300 * 300 + 5) * 4
    assert samples["mmdb_database_bytes", ""] > 0
    assert types["mmdb_hops_total"] == "counter" and types["mmdb_models"] == "gauge"
    for name, kind in types.items():
        assert name.startswith("mmdb_")
        assert name.endswith("_total") == (kind == "counter"), name


def test_a_postgresql_server_counts_its_tables_and_sessions(
    damaged: tuple[str, PostgresConnection],
) -> None:
    url, connection = damaged
    with connection.transaction():
        connection.raw.execute(b"SELECT 1")
        _, samples = parse(read_metrics(url))
    assert samples["mmdb_sessions", "idle in transaction"] == 1
    assert samples["mmdb_table_bytes", "block"] > 8192
    assert ("mmdb_table_dead_rows", "tensor_chunk_7") in samples
    assert 0 < samples["mmdb_transaction_id_age", ""] < 2**31


def test_the_command_prints_them_and_answers_scrapes(
    installed_duckdb_url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["metrics", installed_duckdb_url]) == 0
    assert ("mmdb_models", "") in parse(capsys.readouterr().out)[1]
    assert main(["metrics", "duckdb:////nowhere/zoo.duckdb"]) == 1
    said: list[str] = []
    is_up = threading.Event()

    def say(text: str) -> None:
        said.append(text)
        is_up.set()

    serving = threading.Thread(
        target=serve_metrics, args=(installed_duckdb_url, "0", say), daemon=True
    )
    serving.start()
    assert is_up.wait(120)
    with urllib.request.urlopen(said[0], timeout=120) as answer:
        assert answer.headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
        assert ("mmdb_models", "") in parse(answer.read().decode())[1]
    with pytest.raises(urllib.error.HTTPError, match="404") as caught:
        urllib.request.urlopen(said[0].removesuffix("metrics"), timeout=120)
    caught.value.close()


def test_a_database_that_is_away_is_an_error_of_its_scrape() -> None:
    said: list[str] = []
    is_up = threading.Event()

    def say(text: str) -> None:
        said.append(text)
        is_up.set()

    url = "postgresql://ann:hidden@127.0.0.1:1/nowhere"
    threading.Thread(target=serve_metrics, args=(url, "127.0.0.1:0", say), daemon=True).start()
    assert is_up.wait(120)
    with pytest.raises(urllib.error.HTTPError, match="503") as caught:
        urllib.request.urlopen(said[0], timeout=120)
    assert caught.value.read() == b"MM401\n"
    caught.value.close()


def test_an_address_of_ipv6_answers(installed_duckdb_url: str) -> None:
    said: list[str] = []
    is_up = threading.Event()

    def say(text: str) -> None:
        said.append(text)
        is_up.set()

    serve = threading.Thread(
        target=serve_metrics, args=(installed_duckdb_url, "[::1]:0", say), daemon=True
    )
    with socket.socket(socket.AF_INET6) as probe:
        try:
            probe.bind(("::1", 0))
        except OSError:
            pytest.skip("this machine has no IPv6")
    serve.start()
    assert is_up.wait(120)
    address = said[0].removeprefix("http://[::1]:").removesuffix("/metrics")
    with socket.create_connection(("::1", int(address))):  # says nothing, and nobody waits for it
        with urllib.request.urlopen(said[0], timeout=120) as answer:
            assert ("mmdb_models", "") in parse(answer.read().decode())[1]


@pytest.mark.parametrize("address", ["", "nine", "host:", "1:2:3", "99999", "host:-1"])
def test_an_address_that_is_none_is_refused(address: str) -> None:
    with pytest.raises(InvalidOption):
        serve_metrics("duckdb://", address, print)


# -- compared bytes -----------------------------------------------------------

#: What is changed behind mmdb's back, and which check names what.
DAMAGE = {
    "a block": (
        "UPDATE mmdb.block SET data = substr(data, 2) WHERE part_id = 1 AND ordinal = 0",
        "blocks",
        "dataset 'd', partition 1, block 0: changed",
    ),
    "a missing block": (
        "DELETE FROM mmdb.block WHERE part_id = 2",
        "blocks",
        "dataset 'd', partition 2: its blocks are not those of its hash",
    ),
    "a partition's hash": (
        "UPDATE mmdb.dataset SET content_hash = substr(content_hash, 2)",
        "blocks",
        "its partitions are not those of its hash",
    ),
    "a chunk": (
        "UPDATE mmdb.tensor_chunk SET codec = 0, data = substr(data, 2) WHERE ordinal = 1",
        "tensors",
        "tensor ",
    ),
    "a missing chunk": (
        "DELETE FROM mmdb.tensor_chunk WHERE ordinal = 1",
        "tensors",
        "1 of its chunks are missing",
    ),
    "a list of tensors": (
        "UPDATE mmdb.manifest_tensor SET path = 'other' WHERE path = 'small'",
        "models",
        "Model m@1: its list of tensors changed; Model m@2: its list of tensors changed",
    ),
}


def test_the_bytes_of_a_database_are_those_of_their_hashes(filled_url: str) -> None:
    checks = {check.name: check for check in verify_at(filled_url)}
    assert list(checks) == ["blocks", "tensors", "models", "checkpoints", "features"]
    assert all(check.ok for check in checks.values())
    assert checks["blocks"].detail.startswith("3 compared")
    is_trained = filled_url.startswith("duckdb")
    assert checks["models"].detail.startswith(f"{2 + is_trained} compared")
    assert checks["checkpoints"].detail.startswith(f"{1 * is_trained} compared")
    with mmdb.connect(filled_url) as db:
        found = [look for look in orphans(db.connection) if not look.ok]
    assert found == []


@pytest.mark.parametrize("kind", list(DAMAGE))
def test_bytes_that_changed_are_named(kind: str, damaged: tuple[str, PostgresConnection]) -> None:
    url, connection = damaged
    statement, name, detail = DAMAGE[kind]
    connection.raw.execute(statement.encode())
    checks = {check.name: check for check in verify_at(url) if not check.ok}
    assert name in checks, checks
    assert detail in checks[name].detail
    assert "docs/runbook/damaged-bytes.md" in checks[name].mend
    assert set(checks) <= {name, "models"}  # a pack that changed is of models, too


def test_a_checkpoint_that_changed_is_named(file_url: str) -> None:
    with mmdb.connect(file_url) as db:
        db.sql("UPDATE mmdb.checkpoint_chunk SET data = data || '\\x00'::blob")
    (wrong,) = [check for check in verify_at(file_url) if not check.ok]
    assert (wrong.name, "candidate 1, state" in wrong.detail) == ("checkpoints", True)


def test_the_doctor_compares_bytes_when_asked(
    damaged: tuple[str, PostgresConnection], capsys: pytest.CaptureFixture[str]
) -> None:
    url, connection = damaged
    connection.raw.execute(DAMAGE["a missing chunk"][0].encode())
    reader = url.replace("postgres:", "verifier:", 1)
    password = url.split(":")[2].split("@")[0]
    connection.raw.execute(f"CREATE ROLE verifier LOGIN PASSWORD '{password}'".encode())
    connection.raw.execute(b"GRANT mmdb_reader TO verifier")
    try:
        assert main(["doctor", "--verify", "--json", reader]) == 1
    finally:
        connection.raw.execute(b"DROP ROLE verifier")
    checks = {check["name"]: check for check in json.loads(capsys.readouterr().out)}
    assert "permission denied" in checks["stored bytes"]["detail"]
    (rows,) = list(orphans(connection))
    assert rows.detail == "1 tensors without all of their chunks"


# -- what the doctor sees -----------------------------------------------------

#: What is done to a database, which look finds it, the check and a part of its detail.
AILMENTS: dict[str, tuple[str, Look, str, str]] = {
    "an index that is not valid": (
        "UPDATE pg_index SET indisvalid = false"
        " WHERE indexrelid = 'mmdb.model_parent_idx'::regclass",
        broken_objects,
        "indexes",
        "not used: mmdb.model_parent_idx",
    ),
    "a constraint that was not held": (
        "ALTER TABLE mmdb.run ADD CONSTRAINT run_seed_check CHECK (seed < 9) NOT VALID",
        broken_objects,
        "constraints",
        "run_seed_check",
    ),
    "a sequence behind": (
        "SELECT setval(pg_get_serial_sequence('mmdb.model', 'model_id'), 1)",
        sequences,
        "sequences",
        "behind their tables: model (next 2)",
    ),
    "chunks of no tensor": (
        "INSERT INTO mmdb.tensor_chunk VALUES (99, 0, 0, 'x', 'y')",
        orphans,
        "rows",
        "1 chunks of no tensor",
    ),
    "a checkpoint without chunks": (
        "INSERT INTO mmdb.checkpoint VALUES (1, 1, 'x', 0, 5)",
        orphans,
        "rows",
        "1 checkpoints without chunks",
    ),
    "a table that is never vacuumed": (
        "ALTER TABLE mmdb.block SET (autovacuum_enabled = false)",
        server,
        "vacuum",
        "mmdb.block has autovacuum_enabled off",
    ),
    "an extension that is older than its files": (
        "UPDATE pg_extension SET extversion = '0.9' WHERE extname = 'plpython3u'",
        extensions,
        "extensions",
        "plpython3u is 0.9, not 1.0",
    ),
    "a login to nowhere": (
        "INSERT INTO mmdb.setting VALUES ('worker_dsn', 'postgresql://no@127.0.0.1:1/x')",
        worker_login,
        "worker login",
        "It does not work: ",
    ),
}


@pytest.mark.parametrize("ailment", list(AILMENTS))
def test_the_doctor_sees(ailment: str, damaged: tuple[str, PostgresConnection]) -> None:
    url, connection = damaged
    statement, look, name, detail = AILMENTS[ailment]
    assert [c for c in look(connection) if not c.ok and c.name != "durability"] == []
    connection.raw.execute(statement.format(url=url).encode())
    wrong = {c.name: c for c in look(connection) if not c.ok and c.name != "durability"}
    assert list(wrong) == [name]
    assert detail in wrong[name].detail
    assert wrong[name].mend


#: What is too much of everything, and the part of the detail that then names it.
LIMITS = {
    ("SESSIONS_SHARE", 0.0): ("sessions", " of "),
    ("FREE_SHARE", 2.0): ("disk", "bytes free"),
    ("LONG", "0 seconds"): ("transactions", "idle in transaction, holds a transaction of 0 s"),
    ("BEHIND_BYTES", -1): ("replicas", "slot forgotten is used by nobody"),
    ("OLD_TRANSACTIONS", 0): ("vacuum", "transactions old"),
    ("DEAD_ROWS", 0): ("vacuum", "mmdb.worker_beat has 5 dead rows"),
}


@pytest.mark.parametrize(("name", "value"), list(LIMITS))
def test_the_doctor_has_limits(
    name: str,
    value: object,
    damaged: tuple[str, PostgresConnection],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    url, connection = damaged
    execute = connection.raw.execute
    execute(
        b"INSERT INTO mmdb.worker_beat (worker_id) SELECT i FROM generate_series(1, 5) AS g (i)"
    )
    execute(b"DELETE FROM mmdb.worker_beat")
    execute(b"SELECT pg_stat_force_next_flush()")
    if name == "BEHIND_BYTES":
        execute(b"SELECT pg_create_physical_replication_slot('forgotten')")
    monkeypatch.setattr(doctor_server, name, value)
    try:
        with psycopg.connect(url) as other:
            other.execute("SELECT 1")
            wrong = {c.name: c for c in server(connection) if not c.ok and c.name != "durability"}
    finally:
        if name == "BEHIND_BYTES":
            execute(b"SELECT pg_drop_replication_slot('forgotten')")
    check, detail = LIMITS[name, value]
    assert list(wrong) == [check]
    assert detail in wrong[check].detail
    assert wrong[check].mend


@pytest.fixture(scope="module")
def lone_cluster() -> Iterator[Cluster]:
    """Yield a server whose roles and transactions are this module's own."""
    with Cluster({"max_prepared_transactions": "2", "archive_mode": "on"}) as running:
        yield running


@pytest.fixture(scope="module")
def lone_url(lone_cluster: Cluster) -> str:
    """Return the URL of a database with mmdb on that server."""
    url = lone_cluster.create_database("lone", "template0")
    install(url)
    return url


def test_the_doctor_tries_the_workers_login(lone_cluster: Cluster, lone_url: str) -> None:
    with closing(PostgresConnection(lone_url)) as connection:
        execute = connection.raw.execute
        execute(f"CREATE ROLE slot LOGIN PASSWORD '{lone_cluster.password}'".encode())
        bare = lone_url.replace(f":{lone_cluster.password}@", "@")
        said = []
        for url in (bare, bare.replace("/lone", "/postgres"), bare.replace("postgres@", "slot@")):
            execute(b"DELETE FROM mmdb.setting WHERE name = 'worker_dsn'")
            execute("INSERT INTO mmdb.setting VALUES ('worker_dsn', %s)", (url,))
            said += [check.detail for check in worker_login(connection)]
        execute(b"GRANT mmdb_trainer TO slot")
        said += [check.detail for check in worker_login(connection)]
    assert said == [
        "postgres is a superuser: whoever may train would act as one.",
        "It leads to another database.",
        "slot may not train.",
        "slot opens",
    ]


def test_the_doctor_sees_roles_that_are_not_as_they_should_be(lone_url: str) -> None:
    with closing(PostgresConnection(lone_url)) as connection:
        execute = connection.raw.execute
        assert [check.ok for check in roles(connection)] == [True]
        execute(b"ALTER ROLE mmdb_admin SUPERUSER")
        execute(b"REVOKE mmdb_reader FROM mmdb_trainer")
        (check,) = roles(connection)
        execute(b"ALTER ROLE mmdb_admin NOSUPERUSER")
        execute(b"GRANT mmdb_reader TO mmdb_trainer")
    assert check.detail == (
        "mmdb_admin is a superuser, may make roles, or row security does not hold for it; "
        "mmdb_trainer lacks the rights below it"
    )


def test_the_doctor_sees_prepared_transactions_and_a_failing_archive(
    lone_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doctor_server, "LONG_PREPARED", "0 seconds")
    with closing(PostgresConnection(lone_url)) as connection:
        execute = connection.raw.execute
        with psycopg.connect(lone_url, autocommit=True) as other:
            other.execute("BEGIN")
            other.execute("CREATE TABLE later ()")
            other.execute("PREPARE TRANSACTION 'forgotten'")
        execute(b"ALTER SYSTEM SET archive_command = 'false'")
        execute(b"SELECT pg_reload_conf()")
        execute(b"SELECT pg_switch_wal()")
        found = {check.name: check for check in server(connection)}
        for _ in range(300):
            if not found["archive"].ok:
                break
            execute(b"SELECT pg_sleep(0.1)")
            found = {check.name: check for check in server(connection)}
        execute(b"ROLLBACK PREPARED 'forgotten'")
    assert "could not be archived" in found["archive"].detail
    assert "prepared transaction 'forgotten' of postgres waits" in found["transactions"].detail
    assert "ROLLBACK PREPARED" in found["transactions"].mend


# -- vacuum -------------------------------------------------------------------


def test_chunk_tables_are_vacuumed_before_a_fifth_is_dead(postgres_url: str) -> None:
    """A new chunk table without settings of its own would grow unseen: docs/operations.md."""
    with psycopg.connect(postgres_url) as connection:
        rows = connection.execute(
            "SELECT c.relname, c.reloptions, t.reloptions FROM pg_class AS c"
            " INNER JOIN pg_class AS t ON c.reltoastrelid = t.oid"
            " INNER JOIN pg_attribute AS a ON c.oid = a.attrelid"
            " WHERE c.relnamespace = 'mmdb'::regnamespace AND c.relkind = 'r'"
            " AND a.attname = 'data' AND a.atttypid = 'bytea'::regtype"
        ).fetchall()
    shares = {}
    for name, own, toast in rows:
        for place, options in ((name, own), (f"{name}, its values", toast)):
            found = dict(option.split("=") for option in options or [])
            shares[place] = float(found.get("autovacuum_vacuum_scale_factor", 0.2))
    assert len(shares) == 2 * 12
    assert {place for place, share in shares.items() if share > 0.05} == set()
