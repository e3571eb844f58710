"""A save that is cut off, however it is, leaves the whole model or nothing."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest
import torch

import mmdb
from mmdb import errors
from mmdb.api import Database
from mmdb.db.postgres import PostgresConnection
from mmdb.store.models.model_rows import find_model
from mmdb.store.models.save import save_model
from mmdb.store.tensors import codec, writing
from mmdb.store.tensors.planes import Bytes
from tests import savers
from tests.cluster import Cluster
from tests.stores import check, check_usable, counts

KILLS = 5


@pytest.fixture
def db(database_url: str) -> Iterator[Database]:
    """Yield an open database, once on each engine."""
    with mmdb.connect(database_url) as opened:
        yield opened


# -- errors in the middle -----------------------------------------------------


class Interrupted(Mapping[str, torch.Tensor]):
    """A model of 12 tensors; when one of them is read for the n-th time, something happens."""

    def __init__(self, happens: Callable[[], None], *, reads: int) -> None:
        self.happens, self.reads = happens, reads

    def __getitem__(self, path: str) -> torch.Tensor:
        if path == "7":
            self.reads -= 1
            if not self.reads:
                self.happens()
        return torch.randn(300, 1000, generator=torch.Generator().manual_seed(int(path)))

    def __iter__(self) -> Iterator[str]:
        return iter([str(k) for k in range(12)])

    def __len__(self) -> int:
        return 12


#: Times that a tensor is read before: its hash, its statistics, its chunks.
READS = (1, 2, 3)


def test_a_source_that_fails_in_the_middle_stores_nothing(db: Database) -> None:
    def fails() -> None:
        raise OSError("the file is gone")

    for reads in READS:
        with pytest.raises(OSError, match="the file is gone"):
            save_model(db.connection, "net", Interrupted(fails, reads=reads))
    check_usable(db)


def test_ctrl_c_in_the_middle_stores_nothing(db: Database) -> None:
    # A process that was begun in the background ignores Ctrl-C.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        for reads in (1, 3):  # by this thread; a second thread makes the statistics
            source = Interrupted(lambda: signal.raise_signal(signal.SIGINT), reads=reads)
            with pytest.raises(KeyboardInterrupt):
                save_model(db.connection, "net", source)
    finally:
        signal.signal(signal.SIGINT, before)
    check_usable(db)


def test_a_thread_that_fails_ends_the_save(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    encoded = []

    def fails(raw: Bytes, itemsize: int, base: Bytes | None = None) -> codec.Encoded:
        encoded.append(1)
        if len(encoded) > 20:
            raise MemoryError("no more")
        return codec.encode(raw, itemsize, base)

    with monkeypatch.context() as patch:
        patch.setattr(writing, "encode", fails)
        with pytest.raises(MemoryError, match="no more"):
            save_model(db.connection, "net", savers.weights(1))
    check_usable(db)


def test_an_error_after_a_save_takes_it_back(db: Database) -> None:
    with pytest.raises(ZeroDivisionError), db.connection.transaction():
        save_model(db.connection, "net", {"a": torch.randn(100, 100)})
        _ = 1 / 0
    check_usable(db)


def test_a_save_is_seen_by_others_when_it_is_whole(postgres_url: str) -> None:
    with mmdb.connect(postgres_url) as one, mmdb.connect(postgres_url) as other:
        net = {"a": torch.randn(100, 100)}
        save_model(one.connection, "net", net)
        with one.connection.transaction():
            save_model(one.connection, "net", {"a": net["a"] + 1}, parent="net")
            assert find_model(other.connection, "net").version == 1
            check(other.connection, "net", net)
        assert find_model(other.connection, "net").version == 2


# -- kill -9 ------------------------------------------------------------------


def others(url: str) -> int:
    """Return how many other sessions the database still has."""
    with psycopg.connect(url) as connection:
        found = connection.execute(
            "SELECT count(*) FROM pg_stat_activity "
            "WHERE datname = current_database() AND pid <> pg_backend_pid()"
        ).fetchone()
    return int(found[0]) if found else 0


def test_a_client_that_is_killed_leaves_the_whole_model_or_nothing(database_url: str) -> None:
    with mmdb.connect(database_url):
        pass  # installs
    source = random.Random(0)
    process, pipe = savers.start(database_url, "net0", 0)
    assert [pipe.recv(), pipe.recv()] == ["begins", "saved"]
    process.join()
    for k in range(1, KILLS + 1):
        process, pipe = savers.start(database_url, f"net{k}", k, stepwise=True)
        assert pipe.recv() == "begins"
        for _ in range(source.randrange(savers.TENSORS)):
            assert pipe.recv().endswith(".weight")
            pipe.send("go on")
        assert pipe.recv().endswith(".weight")  # and it waits: the save is in its middle
        process.kill()
        process.join()
    while database_url.startswith("postgresql") and others(database_url):
        time.sleep(0.02)  # the server ends their transactions
    with mmdb.connect(database_url) as db:
        saved = [str(row["name"]) for row in db.sql("SELECT name FROM mmdb.model ORDER BY name")]
        assert saved == ["net0"]
        check(db.connection, "net0", savers.weights(0))
        each = savers.TENSORS + 2  # one small tensor lies in a pack, which is one itself
        assert counts(db) | {"tensor_chunk": 0} == {
            "model": len(saved),
            "tensor": each * len(saved),
            "tensor_chunk": 0,
            "encoding": (each - 1) * len(saved),
            "manifest": len(saved),
            "manifest_tensor": (each - 1) * len(saved),
        }
        orphans = db.sql(
            "SELECT count(*) AS n FROM mmdb.tensor_chunk AS c "
            "LEFT JOIN mmdb.encoding AS e ON c.tensor_id = e.tensor_id WHERE e.tensor_id IS NULL"
        )
        assert orphans[0]["n"] == 0
        save_model(db.connection, "after", savers.weights(99))


def test_what_a_killed_process_had_saved_is_found_by_every_later_one(duckdb_url: str) -> None:
    """Its rows are in the log: they, and their index, must get into the file."""
    with mmdb.connect(duckdb_url):
        pass
    process, pipe = savers.start(duckdb_url, "net0", 0)
    assert [pipe.recv(), pipe.recv()] == ["begins", "saved"]
    process.kill()
    process.join()
    with mmdb.connect(duckdb_url) as db:  # a process that writes, but no tensors
        db.sql("CREATE TABLE other (x integer)")
    with mmdb.connect(duckdb_url) as db:
        check(db.connection, "net0", savers.weights(0))


def test_a_backend_that_is_killed_leaves_nothing(postgres_url: str) -> None:
    connection = PostgresConnection(postgres_url)
    for reads in (2, 3):  # while tensors are named, and in the middle of a COPY
        pid = connection.raw.info.backend_pid
        source = Interrupted(lambda pid=pid: os.kill(pid, signal.SIGKILL), reads=reads)  # type: ignore[misc]
        with pytest.raises(errors.ConnectionLost):
            save_model(connection, "net", source)
        connection.reconnect()
    connection.close()
    with mmdb.connect(postgres_url) as db:
        check_usable(db)


# -- a full disk --------------------------------------------------------------


def test_a_write_that_the_server_refuses_is_named_and_nothing_is_stored(postgres_url: str) -> None:
    """From the 30th chunk on the server says what it says when the disk is full."""
    with mmdb.connect(postgres_url) as db:
        db.sql("CREATE SEQUENCE written")
        db.sql("GRANT USAGE ON SEQUENCE written TO mmdb_system")
        db.sql(
            "CREATE FUNCTION fail() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
            "IF nextval('public.written') > 30 THEN RAISE EXCEPTION 'could not extend file: "
            "No space left on device' USING ERRCODE = 'disk_full'; END IF; RETURN NEW; END $$"
        )
        db.sql(
            "CREATE TRIGGER fail BEFORE INSERT ON mmdb.tensor_chunk "
            "FOR EACH ROW EXECUTE FUNCTION fail()"
        )
        with pytest.raises(errors.DatabaseFailed, match="No space left on device"):
            save_model(db.connection, "net", savers.weights(0))
        db.sql("DROP TRIGGER fail ON mmdb.tensor_chunk")
        check_usable(db)


@contextmanager
def mounted(folder: Path, size_mib: int) -> Iterator[Path]:
    """Mount a small file system in memory, where the rights allow it."""
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={size_mib}m,mode=777", "tmpfs", str(folder)]
    try:
        done = subprocess.run(mount, capture_output=True, check=False).returncode
    except FileNotFoundError:
        done = 1
    if done:
        pytest.skip("no right to mount a small file system")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def test_a_full_tablespace_is_named_and_nothing_is_stored(
    cluster: Cluster, postgres_url: str
) -> None:
    with mounted(cluster.directory / "small", 16) as folder:
        owner = cluster.directory.stat()
        os.chown(folder, owner.st_uid, owner.st_gid)
        with mmdb.connect(postgres_url) as db:
            db.sql(f"CREATE TABLESPACE small LOCATION '{folder}'")
            for k in range(8):
                db.sql(f"ALTER TABLE mmdb.tensor_chunk_{k} SET TABLESPACE small")
            with pytest.raises(errors.DatabaseFailed, match="No space left on device"):
                save_model(db.connection, "net", savers.weights(0))
            subprocess.run(["mount", "-o", "remount,size=64m", str(folder)], check=True)
            check_usable(db)
            for k in range(8):
                db.sql(f"ALTER TABLE mmdb.tensor_chunk_{k} SET TABLESPACE pg_default")
            db.sql("DROP TABLESPACE small")


def test_a_full_disk_under_a_file_is_named_and_nothing_is_stored(tmp_path: Path) -> None:
    with mounted(tmp_path / "small", 24) as folder:
        url = f"duckdb:///{folder / 'zoo.duckdb'}"
        kept = {"a": torch.randn(100, 100)}
        with mmdb.connect(url) as db:
            save_model(db.connection, "kept", kept)
            with pytest.raises(errors.DatabaseFailed, match=r"(?i)no space left|full|out of"):
                save_model(db.connection, "net", savers.weights(0))
        with mmdb.connect(url) as db:
            assert counts(db)["model"] == 1
            check(db.connection, "kept", kept)
