"""A flipped bit is found and named; a save that is cut off leaves the whole model or nothing."""

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
from mmdb.db.connection import Connection
from mmdb.db.duck import DuckConnection
from mmdb.db.postgres import PostgresConnection
from mmdb.store import chunks, writing
from mmdb.store.models import find_model
from mmdb.store.reading import digest
from mmdb.store.recover import ModelReader, Verify, load_tensors
from mmdb.store.save import save_model
from tests import savers
from tests.cluster import Cluster
from tests.tensors import same_bits

TABLES = ("model", "tensor", "tensor_chunk", "encoding", "manifest", "manifest_tensor")
CHUNK = 4 << 10


@pytest.fixture
def db(database_url: str) -> Iterator[Database]:
    """Yield an open database, once on each engine."""
    with mmdb.connect(database_url) as opened:
        yield opened


@pytest.fixture
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cut tensors into more chunks than usual."""
    monkeypatch.setattr(chunks, "CHUNK_BYTES", CHUNK)


def counts(db: Database) -> dict[str, int]:
    """Return how many rows the store's tables have."""
    return {t: int(db.sql(f"SELECT count(*) AS n FROM mmdb.{t}")[0]["n"]) for t in TABLES}


NOTHING = dict.fromkeys(TABLES, 0)


def change(db: Database, table: str, key: str, column: str, value: object) -> None:
    """Put a value into one column of some rows; there is no way to do this but by hand."""
    assert isinstance(db.connection, (DuckConnection, PostgresConnection))
    mark = "$value" if isinstance(db.connection, DuckConnection) else "%(value)s"
    db.connection.select(f"UPDATE mmdb.{table} SET {column} = {mark} WHERE {key}", {"value": value})


def flip(db: Database, table: str, key: str, column: str, place: float) -> None:
    """Flip a bit at a place between 0, the first, and 1, the last byte."""
    (row,) = db.sql(f"SELECT {column} AS value FROM mmdb.{table} WHERE {key}")
    data = bytearray(row["value"])
    data[round(place * (len(data) - 1))] ^= 1 << random.Random(place).randrange(8)
    change(db, table, key, column, bytes(data))


def tensor_id(db: Database, path: str, version: int = 1) -> int:
    """Return the tensor of a path of the model net."""
    reader = ModelReader(db.connection)
    catalog = reader.catalog(find_model(db.connection, f"net@{version}"))
    holder = catalog.holder(catalog.select([path])[0])
    assert holder is not None
    return holder


def weights() -> dict[str, torch.Tensor]:
    """Return a model with tensors that compress, that do not, and that lie in the pack."""
    generator = torch.Generator().manual_seed(0)
    noise = torch.randint(0, 256, (100, 300), generator=generator, dtype=torch.uint8)
    return {
        "layer.weight": torch.randn(100, 300, generator=generator) * 0.02,
        "noise": noise,
        "constant": torch.full((100, 300), 0.5),
        "layer.bias": torch.randn(300, generator=generator),
        "norm.weight": torch.randn(1000, generator=generator),
    }


def tuned() -> dict[str, torch.Tensor]:
    """Return the model with every number moved a little."""
    return {p: t + 1 if p == "noise" else t + 1e-5 * t.abs() for p, t in weights().items()}


# -- flipped bits -------------------------------------------------------------


@pytest.mark.usefixtures("small_chunks")
@pytest.mark.parametrize("place", [0.0, 0.01, 0.5, 1.0])
@pytest.mark.parametrize("path", ["layer.weight", "noise", "constant"])
def test_a_flipped_bit_in_a_chunk_is_found_and_named(db: Database, path: str, place: float) -> None:
    save_model(db.connection, "net", weights())
    chunk = 5
    flip(db, "tensor_chunk", f"tensor_id = {tensor_id(db, path)} AND ordinal = 5", "data", place)
    net, reader = find_model(db.connection, "net"), ModelReader(db.connection)
    message = rf"Model net@1, tensor '{path}', chunk {chunk}: "
    rows = CHUNK // weights()[path][0].nbytes
    for read in (
        lambda: reader.tensors(net),
        lambda: reader.tensors(net, [path]),
        lambda: reader.many([(net, path)]),
        lambda: reader.rows(net, path, chunk * rows, chunk * rows + 1),
        lambda: reader.rows(net, path, 0, None),
    ):
        with pytest.raises(errors.CorruptTensor, match=message):
            read()
    others = [other for other in weights() if other != path]
    found = reader.tensors(net, others)
    assert all(same_bits(found[other], weights()[other]) for other in others)
    assert same_bits(reader.rows(net, path, 0, rows), weights()[path][:rows])


@pytest.mark.usefixtures("small_chunks")
@pytest.mark.parametrize("place", [0.0, 0.5, 1.0])
def test_a_flipped_bit_in_a_base_is_found_and_named(db: Database, place: float) -> None:
    save_model(db.connection, "net", weights())
    save_model(db.connection, "net", tuned(), parent="net", approach="update")
    base = tensor_id(db, "layer.weight")
    assert base != tensor_id(db, "layer.weight", 2)
    flip(db, "tensor_chunk", f"tensor_id = {base} AND ordinal = 3", "data", place)
    net, reader = find_model(db.connection, "net@2"), ModelReader(db.connection)
    rows = CHUNK // 1200
    for read in (
        lambda: reader.tensors(net),
        lambda: reader.rows(net, "layer.weight", 3 * rows, 3 * rows + 1),
    ):
        with pytest.raises(errors.CorruptTensor, match="net@2, tensor 'layer.weight', chunk 3: "):
            read()
    assert same_bits(reader.rows(net, "layer.weight", 0, 1), tuned()["layer.weight"][:1])
    # Nothing may be made a difference to it any more.
    before = counts(db)
    third = {path: tensor * 1.0001 for path, tensor in tuned().items()}
    with pytest.raises(
        errors.CorruptTensor, match=r"The parent net@2, tensor 'layer.weight'"
    ) as caught:
        save_model(db.connection, "net", third, parent="net", approach="update")
    assert "snapshot" in caught.value.hint
    assert counts(db) == before
    save_model(db.connection, "net", third, parent="net", approach="snapshot")
    found = load_tensors(db.connection, find_model(db.connection, "net@3"))
    assert all(same_bits(found[path], third[path]) for path in third)


def test_a_flipped_bit_in_the_pack_is_found_and_the_tensors_there_are_named(db: Database) -> None:
    save_model(db.connection, "net", weights())
    flip(db, "tensor_chunk", f"tensor_id = {tensor_id(db, 'layer.bias')}", "data", 0.9)
    net, reader = find_model(db.connection, "net"), ModelReader(db.connection)
    both = "net@1, tensors 'layer.bias', 'norm.weight', which lie together, chunk 0: "
    for read in (
        lambda: reader.tensors(net),
        lambda: reader.tensors(net, ["layer.bias"]),
        lambda: reader.rows(net, "norm.weight", 3, 4),
    ):
        with pytest.raises(errors.CorruptTensor, match=both):
            read()


def test_a_flipped_bit_in_the_hash_or_the_digest_is_found(db: Database) -> None:
    save_model(db.connection, "net", weights())
    tensor = tensor_id(db, "layer.weight")
    reader, net = ModelReader(db.connection), find_model(db.connection, "net")
    flip(db, "tensor_chunk", f"tensor_id = {tensor} AND ordinal = 0", "digest", 0.5)
    with pytest.raises(errors.CorruptTensor, match="tensor 'layer.weight', chunk 0: "):
        reader.rows(net, "layer.weight", 0, 1)
    assert same_bits(reader.tensors(net)["layer.weight"], weights()["layer.weight"])
    change(db, "tensor_chunk", f"tensor_id = {tensor}", "digest", None)  # as before version 0.2
    assert same_bits(reader.rows(net, "layer.weight", 0, 1), weights()["layer.weight"][:1])


def test_bytes_that_are_not_those_of_the_hash_are_found(db: Database) -> None:
    """A chunk that was swapped with its digest: only the tensor's hash tells."""
    save_model(db.connection, "net", weights())
    tensor = tensor_id(db, "noise")
    data = bytes(30_000)
    change(db, "tensor_chunk", f"tensor_id = {tensor}", "data", data)
    change(db, "tensor_chunk", f"tensor_id = {tensor}", "digest", digest(data))
    reader, net = ModelReader(db.connection), find_model(db.connection, "net")
    with pytest.raises(errors.CorruptTensor, match="net@1, tensor 'noise': each chunk is as it"):
        reader.tensors(net)
    assert not reader.tensors(net, verify="none")["noise"].any()


@pytest.mark.usefixtures("small_chunks")
def test_a_chunk_that_is_missing_or_too_many_is_named(db: Database) -> None:
    save_model(db.connection, "net", weights())
    tensor = tensor_id(db, "noise")
    reader, net = ModelReader(db.connection), find_model(db.connection, "net")
    change(db, "tensor_chunk", f"tensor_id = {tensor} AND ordinal = 2", "ordinal", 77)
    kinds: tuple[Verify, ...] = ("full", "sampled", "none")
    for verify in kinds:
        with pytest.raises(errors.CorruptTensor, match="net@1, tensor 'noise', chunk (2|77): "):
            reader.tensors(net, verify=verify)
    db.sql(f"DELETE FROM mmdb.tensor_chunk WHERE tensor_id = {tensor} AND ordinal = 77")
    for verify in kinds:
        with pytest.raises(errors.CorruptTensor, match="tensor 'noise', chunk 2: .* missing"):
            reader.tensors(net, verify=verify)
    with pytest.raises(errors.CorruptTensor, match="tensor 'noise', chunk 2: .* missing"):
        reader.rows(net, "noise", 0, None)
    db.sql(f"DELETE FROM mmdb.tensor_chunk WHERE tensor_id = {tensor}")
    db.sql(f"DELETE FROM mmdb.encoding WHERE tensor_id = {tensor}")
    for read in (
        lambda: ModelReader(db.connection).tensors(net),
        lambda: ModelReader(db.connection).rows(net, "noise", 0, 1),
    ):
        with pytest.raises(errors.CorruptTensor, match="net@1, tensor 'noise': .* missing"):
            read()


@pytest.mark.usefixtures("small_chunks")
def test_unverified_garbage_gives_a_tensor_or_an_error_never_a_crash(db: Database) -> None:
    save_model(db.connection, "net", weights())
    save_model(db.connection, "net", tuned(), parent="net", approach="update")
    reader, source = ModelReader(db.connection), random.Random(0)
    net = find_model(db.connection, "net@2")
    rows = db.sql("SELECT tensor_id, ordinal, codec, data FROM mmdb.tensor_chunk ORDER BY 1, 2")
    outcomes = {"tensor": 0, "error": 0}
    for _ in range(60):
        row = source.choice(rows)
        key = f"tensor_id = {row['tensor_id']} AND ordinal = {row['ordinal']}"
        data = bytearray(row["data"])
        if source.random() < 0.5:
            for _ in range(source.randint(1, 8)):
                if data:
                    data[source.randrange(len(data)) % 64] = source.randrange(256)
        else:
            data = bytearray(source.randbytes(source.randint(0, 2 * len(data) + 8)))
        change(db, "tensor_chunk", key, "data", bytes(data))
        change(db, "tensor_chunk", key, "codec", source.randint(-1, 8))
        try:
            found = reader.tensors(net, verify="none")
            assert {p: t.shape for p, t in found.items()} == {
                p: t.shape for p, t in weights().items()
            }
            outcomes["tensor"] += 1
        except errors.CorruptTensor:
            outcomes["error"] += 1
        change(db, "tensor_chunk", key, "data", row["data"])
        change(db, "tensor_chunk", key, "codec", row["codec"])
    assert min(outcomes.values()) > 0, outcomes
    assert same_bits(reader.tensors(net)["noise"], tuned()["noise"])


def test_an_error_while_reading_leaves_session_and_transaction_usable(
    db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chunks, "CHUNK_BYTES", 64 << 10)
    model = {f"{k}": torch.randn(400, 1000) for k in range(12)}  # streamed, by threads
    save_model(db.connection, "net", model)
    flip(db, "tensor_chunk", f"tensor_id = {tensor_id(db, '2')} AND ordinal = 1", "data", 0.0)
    net = find_model(db.connection, "net")
    with pytest.raises(errors.CorruptTensor, match="net@1, tensor '2', chunk 1: "):
        load_tensors(db.connection, net)
    with db.connection.transaction():
        save_model(db.connection, "other", {"a": torch.ones(2)})
        with pytest.raises(errors.CorruptTensor, match="net@1, tensor '2', chunk 1: "):
            load_tensors(db.connection, net)
        save_model(db.connection, "other", {"a": torch.zeros(2)})
    assert counts(db)["model"] == 3
    rest = [path for path in model if path != "2"]
    found = load_tensors(db.connection, net, rest)
    assert all(same_bits(found[path], model[path]) for path in rest)


# -- errors in the middle of a save -------------------------------------------


class Interrupted(Mapping[str, torch.Tensor]):
    """A model of 12 tensors; as the last time that `at` is read, something happens."""

    def __init__(self, happens: Callable[[], None], at: str = "7", reads: int = 3) -> None:
        self.happens, self.at, self.reads = happens, at, reads

    def __getitem__(self, path: str) -> torch.Tensor:
        if path == self.at:
            self.reads -= 1
            if not self.reads:
                self.happens()
        return torch.randn(300, 1000, generator=torch.Generator().manual_seed(int(path)))

    def __iter__(self) -> Iterator[str]:
        return iter([str(k) for k in range(12)])

    def __len__(self) -> int:
        return 12


def usable(db: Database) -> None:
    """Assert that nothing was stored, and that the session goes on."""
    assert not db.connection.in_transaction
    assert counts(db) == NOTHING
    model = {"a": torch.randn(100, 100)}
    save_model(db.connection, "next", model)
    found = load_tensors(db.connection, find_model(db.connection, "next"))
    assert same_bits(found["a"], model["a"])


@pytest.mark.parametrize("reads", [1, 2, 3])  # the hash, the statistics, the chunks
def test_a_source_that_fails_in_the_middle_stores_nothing(db: Database, reads: int) -> None:
    def fails() -> None:
        raise OSError("the file is gone")

    with pytest.raises(OSError, match="the file is gone"):
        save_model(db.connection, "net", Interrupted(fails, reads=reads))
    usable(db)


@pytest.mark.parametrize("reads", [1, 3])
def test_ctrl_c_in_the_middle_stores_nothing(db: Database, reads: int) -> None:
    with pytest.raises(KeyboardInterrupt):
        save_model(
            db.connection,
            "net",
            Interrupted(lambda: signal.raise_signal(signal.SIGINT), reads=reads),
        )
    usable(db)


def test_a_thread_that_fails_ends_the_save(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    encoded = []
    encode = writing.encode

    def fails(*args: object, **more: object) -> object:
        encoded.append(1)
        if len(encoded) > 20:
            raise MemoryError("no more")
        return encode(*args, **more)  # type: ignore[arg-type]

    with monkeypatch.context() as patch:
        patch.setattr(writing, "encode", fails)
        with pytest.raises(MemoryError, match="no more"):
            save_model(db.connection, "net", savers.weights(1))
    usable(db)


def test_an_error_after_a_save_takes_it_back(db: Database) -> None:
    with pytest.raises(ZeroDivisionError), db.connection.transaction():
        save_model(db.connection, "net", weights())
        _ = 1 / 0
    usable(db)


# -- kill -9 ------------------------------------------------------------------

KILLS = 6


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
    assert pipe.recv() == "begins"
    begun = time.perf_counter()
    assert pipe.recv() == "saved"
    took = time.perf_counter() - begun
    process.join()
    for k in range(1, KILLS + 1):
        process, pipe = savers.start(database_url, f"net{k}", k)
        assert pipe.recv() == "begins"
        time.sleep(source.uniform(0.1, 0.9) * took)
        process.kill()
        process.join()
    while database_url.startswith("postgresql") and others(database_url):
        time.sleep(0.02)  # the server ends their transactions
    with mmdb.connect(database_url) as db:
        saved = [str(row["name"]) for row in db.sql("SELECT name FROM mmdb.model ORDER BY name")]
        assert len(saved) <= KILLS  # at least one was killed in time
        for name in saved:
            found = load_tensors(db.connection, find_model(db.connection, name))
            expected = savers.weights(int(name.removeprefix("net")))
            assert all(same_bits(found[path], expected[path]) for path in expected)
        each = savers.TENSORS + 2  # a pack and what lies in it; one encoding fewer
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


@pytest.mark.parametrize("reads", [2, 3])  # while tensors are named, and in the middle of a COPY
def test_a_backend_that_is_killed_leaves_nothing(postgres_url: str, reads: int) -> None:
    connection = PostgresConnection(postgres_url)
    pid = connection.raw.info.backend_pid
    source = Interrupted(lambda: os.kill(pid, signal.SIGKILL), reads=reads)
    with pytest.raises(errors.ConnectionLost):
        save_model(connection, "net", source)
    connection.reconnect()
    connection.close()
    with mmdb.connect(postgres_url) as db:
        usable(db)


# -- a full disk --------------------------------------------------------------


def test_a_disk_that_fills_up_is_named_and_nothing_is_stored(postgres_url: str) -> None:
    """The server says what it says when a write fails, from the 30th chunk on."""
    with mmdb.connect(postgres_url) as db:
        db.sql("CREATE SEQUENCE written")
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
        usable(db)


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
            db.sql("VACUUM mmdb.tensor_chunk")
            usable(db)
            for k in range(8):
                db.sql(f"ALTER TABLE mmdb.tensor_chunk_{k} SET TABLESPACE pg_default")
            db.sql("DROP TABLESPACE small")


def test_a_full_disk_under_a_file_is_named_and_nothing_is_stored(tmp_path: Path) -> None:
    with mounted(tmp_path / "small", 24) as folder:
        url = f"duckdb:///{folder / 'zoo.duckdb'}"
        with mmdb.connect(url) as db:
            kept = {"a": torch.randn(100, 100)}
            save_model(db.connection, "kept", kept)
            with pytest.raises(errors.DatabaseFailed, match="(?i)no space left|full|out of"):
                save_model(db.connection, "net", savers.weights(0))
        with mmdb.connect(url) as db:
            assert counts(db)["model"] == 1
            found = load_tensors(db.connection, find_model(db.connection, "kept"))
            assert same_bits(found["a"], kept["a"])


def test_a_reader_is_not_disturbed_by_a_save_in_another_session(postgres_url: str) -> None:
    first: Connection = PostgresConnection(postgres_url)
    second: Connection = PostgresConnection(postgres_url)
    save_model(first, "net", weights())
    with first.transaction():
        save_model(first, "net", tuned(), parent="net")
        assert find_model(second, "net").version == 1
        found = load_tensors(second, find_model(second, "net"))
        assert all(same_bits(found[path], weights()[path]) for path in weights())
    assert find_model(second, "net").version == 2
