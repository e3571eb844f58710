"""A flipped bit and a missing chunk are found and named; garbage never crashes a reader."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import get_args

import pytest
import torch

import mmdb
from mmdb import errors
from mmdb.api import Database
from mmdb.db.duck import DuckConnection
from mmdb.db.postgres import PostgresConnection
from mmdb.store.models.model_rows import find_model
from mmdb.store.models.recover import ModelReader, Verify, load_tensors
from mmdb.store.models.save import save_model
from mmdb.store.tensors import tensor_bytes
from mmdb.store.tensors.reading import find_encodings
from tests.stores import check, counts
from tests.tensors import same_bits

CHUNK = 4 << 10
VERIFY: tuple[Verify, ...] = get_args(Verify)


@pytest.fixture
def db(database_url: str) -> Iterator[Database]:
    """Yield an open database, once on each engine."""
    with mmdb.connect(database_url) as opened:
        yield opened


@pytest.fixture
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cut tensors into more chunks than usual."""
    monkeypatch.setattr(tensor_bytes, "CHUNK_BYTES", CHUNK)


def change(db: Database, table: str, key: str, column: str, value: object) -> None:
    """Put a value into one column of some rows, as a disk might, which knows no rule of it."""
    assert isinstance(db.connection, (DuckConnection, PostgresConnection))
    if isinstance(db.connection, PostgresConnection):
        db.sql(f"ALTER TABLE mmdb.{table} DROP CONSTRAINT IF EXISTS {table}_{column}_range")
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
def test_a_flipped_bit_in_a_chunk_is_found_and_named(db: Database) -> None:
    save_model(db.connection, "net", weights())
    for path in ("layer.weight", "noise", "constant"):
        key = f"tensor_id = {tensor_id(db, path)} AND ordinal = 5"
        for place in (0.0, 0.01, 0.5, 1.0):
            flip(db, "tensor_chunk", key, "data", place)
            check_found(db, path, 5)
            flip(db, "tensor_chunk", key, "data", place)
    check(db.connection, "net", weights())


def check_found(db: Database, path: str, chunk: int) -> None:
    """Assert that however a bad chunk is read, it is named, and that others can be read."""
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
def test_rows_of_several_tensors_are_read_together_and_each_chunk_is_verified(db: Database) -> None:
    save_model(db.connection, "net", weights())
    save_model(db.connection, "net", tuned(), parent="net", approach="update")
    reader, net = ModelReader(db.connection), find_model(db.connection, "net@2")
    for lo, hi in ((0, 1), (40, 47), (0, 100)):
        found = reader.rows_of(net, dict.fromkeys(weights(), (lo, hi)))
        assert list(found) == list(weights())
        assert all(same_bits(found[path], tuned()[path][lo:hi]) for path in found)
    row, path = 5 * (CHUNK // 1200), "layer.weight"
    key = f"tensor_id = {tensor_id(db, path)} AND ordinal = 5"
    flip(db, "tensor_chunk", key, "data", 0.5)
    reader.rows_of(net, dict.fromkeys(weights(), (0, row)))  # of other chunks
    with pytest.raises(errors.CorruptTensor, match=rf"net@2, tensor '{path}'.*chunk 5: "):
        reader.rows_of(net, dict.fromkeys(weights(), (row, row + 1)))
    flip(db, "tensor_chunk", key, "data", 0.5)
    assert same_bits(
        reader.rows_of(net, dict.fromkeys(["noise", path], (row, row + 1)))[path],
        tuned()[path][row : row + 1],
    )
    db.sql(f"DELETE FROM mmdb.tensor_chunk WHERE {key}")
    with pytest.raises(errors.CorruptTensor, match=r"chunk 5: .*missing"):
        reader.rows_of(net, dict.fromkeys(["noise", path], (row, row + 1)))


@pytest.mark.usefixtures("small_chunks")
def test_a_flipped_bit_in_a_base_is_found_and_named(db: Database) -> None:
    save_model(db.connection, "net", weights())
    save_model(db.connection, "net", tuned(), parent="net", approach="update")
    base = tensor_id(db, "layer.weight")
    assert base != tensor_id(db, "layer.weight", 2)
    flip(db, "tensor_chunk", f"tensor_id = {base} AND ordinal = 3", "data", 0.5)
    net, reader = find_model(db.connection, "net@2"), ModelReader(db.connection)
    rows = CHUNK // 1200
    for read in (
        lambda: reader.tensors(net),
        lambda: reader.rows(net, "layer.weight", 3 * rows, 3 * rows + 1),
    ):
        with pytest.raises(errors.CorruptTensor, match=r"net@2, tensor 'layer.weight', chunk 3: "):
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
    check(db.connection, "net@3", third)


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
    with pytest.raises(errors.CorruptTensor, match=r"tensor 'layer.weight', chunk 0: "):
        reader.rows(net, "layer.weight", 0, 1)
    assert same_bits(reader.tensors(net)["layer.weight"], weights()["layer.weight"])


def test_bytes_that_are_not_those_of_the_hash_are_found(db: Database) -> None:
    """A chunk that was swapped with its digest: only the tensor's hash tells."""
    save_model(db.connection, "net", weights())
    tensor = tensor_id(db, "noise")
    data, whole = bytes(30_000), find_encodings(db.connection, [tensor])[tensor].whole
    change(db, "tensor_chunk", f"tensor_id = {tensor}", "data", data)
    change(db, "tensor_chunk", f"tensor_id = {tensor}", "digest", whole.digest(0, 0, data))
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
    for verify in VERIFY:
        with pytest.raises(errors.CorruptTensor, match=r"net@1, tensor 'noise', chunk (2|77): "):
            reader.tensors(net, verify=verify)
    db.sql(f"DELETE FROM mmdb.tensor_chunk WHERE tensor_id = {tensor} AND ordinal = 77")
    for verify in VERIFY:
        with pytest.raises(errors.CorruptTensor, match=r"tensor 'noise', chunk 2: .* missing"):
            reader.tensors(net, verify=verify)
    with pytest.raises(errors.CorruptTensor, match=r"tensor 'noise', chunk 2: .* missing"):
        reader.rows(net, "noise", 0, None)
    db.sql(f"DELETE FROM mmdb.tensor_chunk WHERE tensor_id = {tensor}")
    db.sql(f"DELETE FROM mmdb.encoding WHERE tensor_id = {tensor}")
    for read in (
        lambda: ModelReader(db.connection).tensors(net),
        lambda: ModelReader(db.connection).rows(net, "noise", 0, 1),
    ):
        with pytest.raises(errors.CorruptTensor, match=r"net@1, tensor 'noise': .* missing"):
            read()


@pytest.mark.usefixtures("small_chunks")
def test_a_chunk_that_a_difference_lacks_is_named_whatever_is_verified(db: Database) -> None:
    save_model(db.connection, "net", weights())
    save_model(db.connection, "net", tuned(), parent="net", approach="update")
    base, own = (tensor_id(db, "layer.weight", version) for version in (1, 2))
    reader, net = ModelReader(db.connection), find_model(db.connection, "net@2")
    lacks = r"net@2, tensor 'layer.weight', chunk 3: it is a difference to"
    change(db, "tensor_chunk", f"tensor_id = {base} AND ordinal = 3", "ordinal", 77)
    for verify in VERIFY:
        for read in (
            lambda verify=verify: reader.tensors(net, verify=verify),
            lambda verify=verify: reader.rows(net, "layer.weight", 0, None, verify=verify),
        ):
            with pytest.raises(errors.CorruptTensor, match=lacks):
                read()
    change(db, "tensor_chunk", f"tensor_id = {base} AND ordinal = 77", "ordinal", 3)
    # A base that is a difference itself, and no base.
    for other, chunk in ((own, r", chunk \d+"), (None, r", chunk \d+")):
        change(db, "encoding", f"tensor_id = {own}", "base_id", other)
        with pytest.raises(errors.CorruptTensor, match=f"tensor 'layer.weight'{chunk}: it"):
            ModelReader(db.connection).tensors(net, verify="none")


def test_a_row_that_says_another_size_is_named_and_no_memory_is_made_up(db: Database) -> None:
    save_model(db.connection, "net", weights())
    tensor, net = tensor_id(db, "noise"), find_model(db.connection, "net")
    for table, column, value, right in (
        ("tensor", "byte_count", 0, 30_000),
        ("tensor", "byte_count", 60_000, 30_000),
        ("tensor", "shape", [100, 301], [100, 300]),
        ("tensor", "shape", [-100, -300], [100, 300]),
        ("tensor", "dtype", "float32", "uint8"),
        ("tensor", "dtype", "quint8", "uint8"),
        ("encoding", "chunk_bytes", 0, 262_144 // 300 * 300),
    ):
        change(db, table, f"tensor_id = {tensor}", column, value)
        for verify in VERIFY:
            with pytest.raises(errors.CorruptTensor, match="net@1, tensor 'noise': "):
                ModelReader(db.connection).tensors(net, verify=verify)
        with pytest.raises(errors.CorruptTensor, match="net@1, tensor 'noise': "):
            ModelReader(db.connection).rows(net, "noise", 0, 1)
        change(db, table, f"tensor_id = {tensor}", column, right)
    check(db.connection, "net", weights())


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
    monkeypatch.setattr(tensor_bytes, "CHUNK_BYTES", 64 << 10)
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


# -- saves onto what is damaged -------------------------------------------------


def damage(db: Database, kind: str, key: str) -> None:
    """Change a chunk, cut it short, or delete it."""
    if kind == "changed":
        flip(db, "tensor_chunk", key, "data", 0.5)
    elif kind == "missing":
        db.sql(f"DELETE FROM mmdb.tensor_chunk WHERE {key}")
    else:
        (row,) = db.sql(f"SELECT data FROM mmdb.tensor_chunk WHERE {key}")
        change(db, "tensor_chunk", key, "data", bytes(row["data"])[:-1])


@pytest.mark.usefixtures("small_chunks")
@pytest.mark.parametrize("kind", ["changed", "cut short", "missing"])
@pytest.mark.parametrize("parent", [None, "net"])
def test_a_save_stores_anew_what_it_has_of_damaged_tensors(
    db: Database, kind: str, parent: str | None
) -> None:
    """Its own bytes are right: the models that have them, and differences to them, are healed."""
    save_model(db.connection, "net", weights())
    save_model(db.connection, "tuned", tuned(), parent="net", approach="update")
    before = counts(db)
    for path in ("layer.weight", "layer.bias"):  # the second one lies in the pack
        damage(db, kind, f"tensor_id = {tensor_id(db, path)} AND ordinal = 0")
    again = save_model(db.connection, "again", weights(), parent=parent)
    assert again.stored_bytes > 0
    assert counts(db) == before | {"model": 3, "manifest": 3 - bool(parent)} | (
        {} if parent else {"manifest_tensor": before["manifest_tensor"] * 3 // 2}
    )
    for name, model in {"net": weights(), "tuned": tuned(), "again": weights()}.items():
        check(db.connection, name, model)
    assert save_model(db.connection, "again", weights()).stored_bytes == 0


@pytest.mark.usefixtures("small_chunks")
def test_a_damaged_difference_is_stored_anew_by_itself(db: Database) -> None:
    save_model(db.connection, "net", weights())
    save_model(db.connection, "net", tuned(), parent="net", approach="update")
    base = tensor_id(db, "layer.weight")
    db.sql(f"DELETE FROM mmdb.tensor_chunk WHERE tensor_id = {base} AND ordinal = 3")
    save_model(db.connection, "again", tuned())
    check(db.connection, "net@2", tuned())
    with pytest.raises(errors.CorruptTensor, match=r"net@1, tensor 'layer.weight', chunk 3: "):
        check(db.connection, "net@1", weights())


def test_chunks_that_nothing_says_how_to_read_are_stored_anew(db: Database) -> None:
    save_model(db.connection, "net", weights())
    db.sql(f"DELETE FROM mmdb.encoding WHERE tensor_id = {tensor_id(db, 'noise')}")
    save_model(db.connection, "again", weights())
    check(db.connection, "net", weights())


def test_a_tensor_whose_row_changed_is_not_adopted(db: Database) -> None:
    save_model(db.connection, "net", weights())
    change(db, "tensor", f"tensor_id = {tensor_id(db, 'noise')}", "shape", [300, 100])
    before = counts(db)
    with pytest.raises(errors.CorruptTensor, match=r"said to be uint8 \[300, 100\] of 30000"):
        save_model(db.connection, "again", weights())
    assert counts(db) == before


def test_who_may_not_store_anew_is_told_what_is_damaged(postgres_url: str) -> None:
    with mmdb.connect(postgres_url) as db:
        save_model(db.connection, "net", weights())
        tensor = tensor_id(db, "noise")
        damage(db, "changed", f"tensor_id = {tensor}")
        db.sql("SET ROLE mmdb_trainer")
        with pytest.raises(errors.CorruptTensor, match=f"Tensor {tensor}.* damaged") as caught:
            save_model(db.connection, "again", weights())
        assert "mmdb_admin" in caught.value.hint
        db.sql("SET ROLE mmdb_admin")
        save_model(db.connection, "again", weights())
        check(db.connection, "net", weights())
