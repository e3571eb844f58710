"""Reads spread over streaming replicas: balance, fail-over, lag, and what is refused."""

from __future__ import annotations

import os
import re
import signal
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from functools import partial
from itertools import count
from pathlib import Path

import psycopg
import pytest
import torch

from mmdb import errors
from mmdb.api import connect
from mmdb.db.connection import Connection, Source
from mmdb.db.install import install
from mmdb.db.postgres import PostgresConnection
from mmdb.db.queries import load
from mmdb.db.replicas import APPLICATION_NAME, Replicas, source_of
from mmdb.db.server_sessions import ServerStatus
from mmdb.store.garbage import gc
from mmdb.store.models.recover import ModelReader
from mmdb.store.models.registry import drop_model, set_alias
from mmdb.store.models.save import save_model
from tests.cluster import Cluster, ClusterError

Tensors = dict[str, torch.Tensor]
DATABASE = "zoo"
#: Seconds after which something that should happen by itself fails the test.
PATIENCE_S = 120
SLEEP = "SELECT pg_sleep%"
_numbers = count(1)


class Replica(Cluster):
    """A streaming replica of another cluster."""

    def __init__(self, primary: Cluster) -> None:
        self._primary = primary
        super().__init__({"wal_retrieve_retry_interval": "100ms"})

    def _initdb(self) -> None:
        self.password = self._primary.password
        command: list[str | Path] = [self.server.bin / "pg_basebackup", "-D", self.data]
        command += ["-d", self._primary.url(), "-R", "--checkpoint=fast", "--no-sync"]
        done = self._run_as_owner(command)
        if done.returncode != 0:
            raise ClusterError(f"pg_basebackup failed.\n{done.stderr}")

    @property
    def is_running(self) -> bool:
        """Return whether it was started and not halted."""
        return self._process is not None


class Group:
    """A primary with two replicas, all running and level, and a session with the primary."""

    def __init__(self, primary: Cluster, replicas: tuple[Replica, Replica]) -> None:
        self.primary, self.replicas = primary, replicas
        self.url = primary.url(DATABASE)
        self.connection = PostgresConnection(self.url)
        self._number = next(_numbers)
        self.name = f"net{self._number}"

    @property
    def urls(self) -> list[str]:
        """Return the replicas' URLs."""
        return [replica.url(DATABASE) for replica in self.replicas]

    def reads(self, urls: list[str] | None = None) -> Replicas:
        """Return reads spread over the replicas."""
        return Replicas(self.connection, self.urls if urls is None else urls, seed=0)

    def save(self, seed: int = 0, rows: int = 600) -> Tensors:
        """Save a version of the test's model, which shares no tensor with another's."""
        tensors = model(100 * self._number + seed, rows)
        save_model(self.connection, self.name, tensors)
        return tensors

    def level(self) -> None:
        """Wait until both replicas have replayed what the primary has written."""
        sql = "SELECT pg_current_wal_insert_lsn()::text AS lsn"
        lsn = self.connection.select(sql)[0]["lsn"]
        for replica in self.replicas:
            wait_until(partial(ask, replica, "pg_last_wal_replay_lsn() >= %s::pg_lsn", lsn))

    def checkpoint(self) -> None:
        """Bring what the servers hold to their disks; a replica does not at its end."""
        for server in (self.primary, *self.replicas):
            with psycopg.connect(server.url(), autocommit=True) as session:
                session.execute("CHECKPOINT")
            self.level()

    def pause(self, *replicas: Replica) -> None:
        """Let replicas fall behind."""
        for replica in replicas:
            with psycopg.connect(replica.url(), autocommit=True) as session:
                session.execute("SELECT pg_wal_replay_pause()")
            wait_until(partial(self._is_paused, replica))

    def _is_paused(self, replica: Replica) -> object:
        # Only something to replay lets it notice.
        self.connection.select("SELECT pg_logical_emit_message(false, 'mmdb', '')")
        return ask(replica, "pg_get_wal_replay_pause_state() = 'paused'")

    def mend(self) -> None:
        """Bring everything up and level."""
        if not self.is_primary_up:
            self.primary.start()
        if not self.connection.alive():
            self.connection.reconnect()
        for replica in self.replicas:
            if not replica.is_running:
                replica.start()
            with psycopg.connect(replica.url(), autocommit=True) as session:
                session.execute("SELECT pg_wal_replay_resume()")
        self.level()

    @property
    def is_primary_up(self) -> bool:
        """Return whether the primary was not halted."""
        return self.primary._process is not None


def model(seed: int, rows: int = 600) -> Tensors:
    """Return a model of a large tensor, some of middle size, and small ones for the pack."""
    generator = torch.Generator().manual_seed(seed)
    found = {"body": torch.randn(rows, 1000, generator=generator)}
    found |= {f"layer{k}.weight": torch.randn(64, 64, generator=generator) for k in range(8)}
    return found | {f"layer{k}.bias": torch.randn(64, generator=generator) for k in range(8)}


def same(found: Tensors, expected: Tensors) -> bool:
    """Return whether two models are bit for bit the same."""
    return list(found) == list(expected) and all(
        torch.equal(found[path], tensor) for path, tensor in expected.items()
    )


def ask(server: Cluster, condition: str, *values: object, database: str = "postgres") -> object:
    """Return the value of an expression on a server."""
    with psycopg.connect(server.url(database)) as session:
        row = session.execute(f"SELECT {condition}".encode(), values or None).fetchone()
    return row and row[0]


def wait_until(happens: Callable[[], object]) -> None:
    """Wait for what happens by itself."""
    deadline = time.monotonic() + PATIENCE_S
    while not happens():
        assert time.monotonic() < deadline, "It did not happen."
        time.sleep(0.02)


def chunk_readers(server: Cluster) -> object:
    """Return the number of read sessions of a server whose last statement read chunks."""
    return ask(
        server,
        "count(*) FROM pg_stat_activity WHERE application_name = %s"
        " AND query LIKE '%%mmdb_call.tensors_read_chunks%%'",
        APPLICATION_NAME,
    )


def served(reads: Source) -> list[int]:
    """Return how many reads each replica answered."""
    return [server.reads for server in reads.status()[1:]]


@contextmanager
def impatient(server: Cluster) -> Iterator[None]:
    """Let replay wait for no read."""
    with psycopg.connect(server.url(), autocommit=True) as session:
        session.execute("ALTER SYSTEM SET max_standby_streaming_delay = 0")
        session.execute("SELECT pg_reload_conf()")
        try:
            yield
        finally:
            session.execute("ALTER SYSTEM RESET max_standby_streaming_delay")
            session.execute("SELECT pg_reload_conf()")


@pytest.fixture(scope="module")
def servers() -> Iterator[tuple[Cluster, tuple[Replica, Replica]]]:
    # A replica that was away for a while finds what it missed.
    with Cluster({"wal_keep_size": "1GB"}) as primary:
        url = primary.create_database(DATABASE)
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute("CREATE EXTENSION plpython3u")
        install(url)
        with Replica(primary) as first, Replica(primary) as second:
            yield primary, (first, second)


@pytest.fixture
def group(servers: tuple[Cluster, tuple[Replica, Replica]]) -> Iterator[Group]:
    made = Group(*servers)
    with closing(made.connection):
        try:
            yield made
        finally:
            made.mend()


# -- balance ------------------------------------------------------------------


def test_reads_are_spread_over_the_replicas_and_spare_the_primary(group: Group) -> None:
    expected = group.save()
    group.level()
    with closing(group.reads()) as reads:
        for _ in range(20):
            reader = ModelReader(reads)  # with a cache of its own: entries are read each time
            assert same(reader.tensors(reader.find(group.name)), expected)
        assert sum(served(reads)) == 40
        assert min(served(reads)) >= 10
        assert [chunk_readers(server) for server in group.replicas] == [1, 1]
        assert chunk_readers(group.primary) == 0


def test_a_read_goes_where_fewer_bytes_are_on_their_way(group: Group) -> None:
    group.save()
    group.level()
    with closing(group.reads()) as reads:
        model_ids = [ModelReader(reads).find(group.name).model_id]
        seen: list[int] = []

        def where(connection: Connection) -> int:
            assert isinstance(connection, PostgresConnection)
            return int(connection.raw.info.port)

        def large(connection: Connection) -> int:
            seen.extend(reads.read(where, model_ids=model_ids) for _ in range(4))
            return where(connection)

        busy = reads.read(large, model_ids=model_ids, size=100 << 20)
        assert {busy, seen[0]} == {replica.port for replica in group.replicas}
        assert len(set(seen)) == 1


def test_threads_share_one_reader_and_its_cache(group: Group) -> None:
    expected = group.save()
    group.level()
    with closing(group.reads()) as reads, ThreadPoolExecutor(16) as pool:
        reader = ModelReader(reads)
        found = reader.find(group.name)
        jobs = [pool.submit(reader.rows, found, "body", k, k + 3) for k in range(200)]
        for k, job in enumerate(jobs):
            assert torch.equal(job.result(), expected["body"][k : k + 3])
        assert len(reader.kept) == 1
        assert min(served(reads)) > 20


def test_the_primary_may_be_one_of_the_read_urls(group: Group) -> None:
    expected = group.save()
    group.level()
    with closing(group.reads([*group.urls, group.url])) as reads:
        reader = ModelReader(reads)
        for _ in range(6):
            assert same(reader.tensors(reader.find(group.name)), expected)
        assert min(served(reads)) > 0


# -- fail-over ----------------------------------------------------------------


def test_readers_do_not_notice_that_a_replica_is_killed_and_use_it_when_it_is_back(
    group: Group,
) -> None:
    expected = group.save()
    group.level()
    first, _ = group.replicas
    stop = threading.Event()
    with closing(group.reads()) as reads, ThreadPoolExecutor(8) as pool:

        def read_on() -> int:
            done = 0
            while not stop.is_set():
                reader = ModelReader(reads)
                assert same(reader.tensors(reader.find(group.name)), expected)
                done += 1
            return done

        readers = [pool.submit(read_on) for _ in range(8)]
        try:
            wait_until(lambda: min(served(reads)) > 20)
            first.halt(signal.SIGKILL)
            wait_until(lambda: reads.status()[1].failures)
            before = served(reads)
            wait_until(lambda: served(reads)[1] > before[1] + 20)
            first.start()
            wait_until(lambda: served(reads)[0] > before[0] + 20)
        finally:
            stop.set()
        assert all(reader.result() for reader in readers)
        assert reads.status()[1].failures == 0


def test_the_primary_serves_when_both_replicas_are_killed(group: Group) -> None:
    expected = group.save()
    group.level()
    with closing(group.reads()) as reads:
        reader = ModelReader(reads)
        found = reader.find(group.name)
        assert same(reader.tensors(found), expected)
        for replica in group.replicas:
            replica.halt(signal.SIGKILL)
        before = reads.status()[0].reads
        assert same(reader.tensors(found), expected)
        assert same(ModelReader(reads).tensors(found), expected)
        assert reads.status()[0].reads == before + 3  # chunks; entries and chunks
        assert all(server.failures and server.wait_s for server in reads.status()[1:])


def test_a_stream_that_breaks_in_the_middle_is_begun_again_elsewhere(group: Group) -> None:
    expected = group.save(rows=8000)
    group.level()
    with closing(group.reads()) as reads:
        found = ModelReader(reads).find(group.name)
        sql = "SELECT tensor_id FROM mmdb.tensor WHERE byte_count = 32000000"
        (row,) = group.connection.select(sql)
        begun = []

        def chunks(connection: Connection) -> list[tuple[object, ...]]:
            assert isinstance(connection, PostgresConnection)
            begun.append(connection.raw.info.port)
            rows = []
            for chunk in connection.stream(
                load("tensors").read_chunks, tensor_ids=[row["tensor_id"]]
            ):
                rows.append(chunk[:2])
                if len(begun) == 1 and len(rows) == 2:
                    os.kill(connection.raw.info.backend_pid, signal.SIGKILL)
            return rows

        rows = reads.read(chunks, model_ids=[found.model_id])
        assert len(set(begun)) == 2
        assert sorted(rows) == [(row["tensor_id"], k) for k in range(len(rows))]
        assert same(ModelReader(reads).tensors(found), expected)


def test_sessions_that_ended_with_a_restart_are_replaced(group: Group) -> None:
    expected = group.save()
    with closing(group.reads([])) as reads:
        reader = ModelReader(reads)
        assert same(reader.tensors(reader.find(group.name)), expected)
        group.primary.halt(signal.SIGINT)
        group.primary.start()
        assert same(reader.tensors(reader.find(group.name)), expected)
        assert reads.status()[0].failures == 0


def test_replicas_answer_while_the_primary_is_away_and_the_furthest_for_names(
    group: Group,
) -> None:
    group.save(seed=1)
    group.level()
    behind, _ = group.replicas
    group.pause(behind)
    newest = group.save(seed=2)
    wait_until(
        lambda: ask(
            group.replicas[1],
            "count(*) = 2 FROM mmdb.model WHERE name = %s",
            group.name,
            database=DATABASE,
        )
    )
    with closing(group.reads()) as reads:
        group.primary.halt(signal.SIGINT)
        for _ in range(4):
            reader = ModelReader(reads)
            found = reader.find(group.name)
            assert found.version == 2
            assert same(reader.tensors(found), newest)
        with pytest.raises(errors.ConnectionLost):
            reader.find("never saved")


# -- lag ----------------------------------------------------------------------


def test_what_was_just_saved_is_read_though_the_replicas_lag(group: Group) -> None:
    old = group.save(seed=1)
    set_alias(group.connection, group.name, 1, "prod")
    group.level()
    group.pause(*group.replicas)
    new = group.save(seed=2)
    set_alias(group.connection, group.name, 2, "prod")
    with closing(group.reads()) as reads:
        reader = ModelReader(reads)
        for reference, expected in [(group.name, new), (f"{group.name}@prod", new)] * 2:
            assert same(reader.tensors(reader.find(reference)), expected)
        assert served(reads) == [0, 0]
        assert same(reader.tensors(reader.find(f"{group.name}@1")), old)
        assert sum(served(reads)) == 2  # what they have, they serve
        for replica in group.replicas:
            with psycopg.connect(replica.url(), autocommit=True) as session:
                session.execute("SELECT pg_wal_replay_resume()")
        group.level()
        primary = reads.status()[0].reads
        assert same(reader.tensors(reader.find(group.name)), new)
        assert reads.status()[0].reads == primary + 1  # the name alone


def test_a_read_that_a_replica_cancels_to_replay_a_deletion_is_begun_again(group: Group) -> None:
    group.save(seed=1)
    expected = group.save(seed=2)
    group.level()
    first, _ = group.replicas
    with impatient(first), closing(group.reads([first.url(DATABASE)])) as reads:
        found = ModelReader(reads).find(group.name)
        begun = []

        def slow(connection: Connection) -> int:
            begun.append(connection)
            if len(begun) == 1:
                assert isinstance(connection, PostgresConnection)
                deleting = pool.submit(delete_the_first)
                try:
                    connection.select("SELECT pg_sleep(20) FROM mmdb.manifest_tensor LIMIT 1")
                finally:
                    deleting.result()
            return len(connection.rows(load("models").find_entries, model_id=found.model_id))

        def delete_the_first() -> None:
            wait_until(
                lambda: ask(first, "count(*) FROM pg_stat_activity WHERE query LIKE %s", SLEEP)
            )
            drop_model(group.connection, group.name, 1)
            gc(group.connection, dry_run=False, grace="0 days")
            group.connection.select("VACUUM mmdb.manifest_tensor")

        with ThreadPoolExecutor(1) as pool:
            assert reads.read(slow, model_ids=[found.model_id]) == len(expected)
        assert len(begun) == 2
        _, replica = reads.status()
        assert "conflict with recovery" in replica.error
        assert not replica.failures


# -- models that are gone -----------------------------------------------------


def test_a_collected_model_is_not_found_though_its_entries_are_kept(group: Group) -> None:
    expected = group.save()
    group.level()
    with closing(group.reads()) as reads:
        reader = ModelReader(reads)
        found = reader.find(group.name)
        assert same(reader.tensors(found), expected)
        drop_model(group.connection, group.name, 1)
        gc(group.connection, dry_run=False, grace="0 days")
        group.level()
        for known in (reader, ModelReader(reads)):
            with pytest.raises(errors.ModelNotFound, match=rf"{group.name}@1 was dropped"):
                known.tensors(found)
        assert len(reader.kept) == 0


def test_a_collected_model_is_not_found_in_one_session(database_url: str) -> None:
    with connect(database_url) as db:
        save_model(db.connection, "net", model(0))
        reader = ModelReader(db.connection)
        found = reader.find("net")
        reader.rows(found, "body", 0, 1)
        drop_model(db.connection, "net", 1)
        gc(db.connection, dry_run=False, grace="0 days")
        with pytest.raises(errors.ModelNotFound, match="net@1 was dropped"):
            reader.rows(found, "body", 0, 1)


# -- damage -------------------------------------------------------------------


def test_a_damaged_replica_is_named_and_others_answer(group: Group) -> None:
    expected = group.save()
    group.checkpoint()
    first, _ = group.replicas
    with psycopg.connect(group.url) as session:
        row = session.execute(
            "SELECT substr(data, 1001, 64) FROM mmdb.tensor_chunk"
            " ORDER BY tensor_id DESC, ordinal LIMIT 1"
        ).fetchone()
    assert row is not None
    first.halt(signal.SIGINT)
    flip_a_bit(first, bytes(row[0]))
    first.start()
    with closing(group.reads([first.url(DATABASE)])) as reads:
        reader = ModelReader(reads)
        with pytest.warns(errors.MmdbWarning, match=rf":{first.port}/.* is damaged.*{group.name}"):
            assert same(reader.tensors(reader.find(group.name)), expected)


def flip_a_bit(server: Cluster, content: bytes) -> None:
    """Change a byte of what a halted server has stored."""
    for file in (server.data / "base").glob("*/*"):
        found = file.read_bytes()
        if content in found:
            with file.open("r+b") as opened:
                opened.seek(found.index(content))
                opened.write(bytes([content[0] ^ 1]))
            return
    raise AssertionError("The content lies in no file.")


def test_a_trainer_may_read_from_replicas(group: Group) -> None:
    expected = group.save()
    role = f"trainer_{group.name}"
    group.connection.select(f"CREATE ROLE {role} LOGIN PASSWORD 'secret'")
    group.connection.select(f"GRANT mmdb_trainer TO {role}")
    group.level()
    ours, *theirs = (re.sub("//.*@", f"//{role}:secret@", url) for url in (group.url, *group.urls))
    with (
        closing(PostgresConnection(ours)) as connection,
        closing(source_of(connection, theirs)) as reads,
    ):
        reader = ModelReader(reads)
        assert same(reader.tensors(reader.find(group.name)), expected)


# -- which URLs ---------------------------------------------------------------


def test_another_database_of_the_same_server_is_refused(group: Group) -> None:
    with pytest.raises(errors.WrongUrl, match="is another database, not a replica") as caught:
        group.reads([group.replicas[0].url("postgres")])
    assert group.primary.password not in str(caught.value)


def test_another_server_is_refused(group: Group, postgres_url: str) -> None:
    with pytest.raises(errors.WrongUrl, match="is another database, not a replica"):
        group.reads([group.urls[0], postgres_url])


@pytest.mark.parametrize("url", ["duckdb:///zoo.duckdb", "", "postgresql://[", 5])
def test_a_url_that_is_not_of_postgresql_is_refused(group: Group, url: str) -> None:
    with pytest.raises(errors.WrongUrl, match=r"URL .* is not (one of PostgreSQL|understood)"):
        group.reads([url])


def test_a_duckdb_file_has_no_replicas(duckdb_url: str) -> None:
    with connect(duckdb_url) as db, pytest.raises(errors.WrongUrl, match="has no replicas"):
        source_of(db.connection, ["postgresql://localhost/zoo"])


def test_a_replica_that_is_down_at_first_is_used_once_it_is_up(group: Group) -> None:
    expected = group.save()
    group.level()
    first, _ = group.replicas
    first.halt()
    with pytest.warns(errors.MmdbWarning, match=rf":{first.port}/.* is tried again later"):
        reads = group.reads()
    with closing(reads):
        reader = ModelReader(reads)
        found = reader.find(group.name)
        assert same(reader.tensors(found), expected)
        first.start()

        def first_serves() -> bool:
            assert same(reader.tensors(found), expected)
            return served(reads)[0] > 0

        wait_until(first_serves)
        assert reads.status()[1] == ServerStatus(
            url=reads.status()[1].url,
            reads=served(reads)[0],
            load=0,
            failures=0,
            wait_s=0.0,
            error=reads.status()[1].error,
        )


# -- through `connect` --------------------------------------------------------


def test_a_database_reads_from_its_replicas_and_in_a_transaction_from_itself(group: Group) -> None:
    expected = group.save()
    group.level()
    with connect(group.url, reads=group.urls) as db, db.session() as second:
        for session in (db, second):
            assert torch.equal(session.tensor(group.name, "body"), expected["body"])
        assert sum(served(db.reads)) == 4
        with db.connection.transaction():
            db.save(group.name, {"body": torch.zeros(100, 100)})
            assert not db.tensor(group.name, "body").any()
        assert sum(served(db.reads)) == 4
        assert not db.tensor(group.name, "body").any()
        assert torch.equal(second.tensor(f"{group.name}@1", "body"), expected["body"])


def test_a_module_is_recovered_while_the_primary_is_away(group: Group) -> None:
    module = torch.nn.Sequential(torch.nn.Linear(100, 50), torch.nn.Linear(50, 2))
    with connect(group.url, reads=group.urls) as db:
        db.save(group.name, module)
        group.level()
        group.primary.halt(signal.SIGKILL)
        found = db.recover(group.name)
    assert same(dict(found.state_dict()), dict(module.state_dict()))


def test_a_wrong_read_url_leaves_no_session_open(group: Group) -> None:
    with pytest.raises(errors.WrongUrl, match="is another database"):
        connect(group.url, reads=[group.urls[0], group.replicas[1].url("postgres")])
    sessions = "count(*) FROM pg_stat_activity WHERE application_name LIKE 'mmdb%%' AND 0 < %s"
    wait_until(lambda: ask(group.replicas[0], sessions, 1) == 0)
