"""Sessions that save and read at once neither deadlock nor fail, and store nothing twice."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from functools import partial

import pytest
import torch

import mmdb
from mmdb import errors
from mmdb.db.duck import DuckConnection
from mmdb.db.postgres import PostgresConnection
from mmdb.store.models.model_rows import find_model
from mmdb.store.models.recover import ModelReader, load_tensors
from mmdb.store.models.save import Saved, save_model
from tests.tensors import same_bits

Tensors = dict[str, torch.Tensor]
SESSIONS, ROUNDS = 4, 20


def layer(seed: int) -> torch.Tensor:
    """Return one of the tensors that the models here share."""
    return torch.randn(60, 60, generator=torch.Generator().manual_seed(seed))


def model(*seeds: int) -> Tensors:
    """Return a model of shared tensors, large ones and small ones."""
    large = {f"{k}.weight": layer(seed) for k, seed in enumerate(seeds)}
    return large | {f"{k}.bias": layer(seed)[0] for k, seed in enumerate(seeds)}


@contextmanager
def sessions(url: str, number: int) -> Iterator[list[PostgresConnection]]:
    """Open several sessions of the same database."""
    opened = [PostgresConnection(url) for _ in range(number)]
    try:
        yield opened
    finally:
        for connection in opened:
            connection.close()


def at_once(*work: Callable[[], Saved]) -> list[Saved]:
    """Return what several functions return that begin at the same time."""
    barrier = threading.Barrier(len(work))

    def run(each: Callable[[], Saved]) -> Saved:
        barrier.wait(120)
        return each()

    with ThreadPoolExecutor(len(work)) as pool:
        return list(pool.map(run, work))


def check_store(connection: PostgresConnection, expected: dict[str, Tensors]) -> None:
    """Assert that every model is there, bit for bit, and every tensor once."""
    names = connection.select("SELECT name || '@' || version AS reference FROM mmdb.model")
    assert {row["reference"] for row in names} == set(expected)
    for reference, tensors in expected.items():
        found = load_tensors(connection, find_model(connection, reference))
        assert all(same_bits(found[path], tensors[path]) for path in tensors), reference
    (rows,) = connection.select(
        "SELECT count(*) AS tensors, count(DISTINCT tensor_hash) AS hashes FROM mmdb.tensor"
    )
    assert rows["tensors"] == rows["hashes"]
    (rows,) = connection.select(
        "SELECT (SELECT sum(chunks) FROM mmdb.encoding) AS said, count(*) AS there, "
        "count(DISTINCT (c.tensor_id, c.ordinal)) AS apart FROM mmdb.tensor_chunk AS c"
    )
    assert rows["said"] == rows["there"] == rows["apart"]


@pytest.mark.parametrize("name", ["same", "different"])
def test_overlapping_models_saved_at_once_are_all_there_and_stored_once(
    postgres_url: str, name: str
) -> None:
    source = random.Random(0)
    expected: dict[str, Tensors] = {}
    with sessions(postgres_url, SESSIONS) as opened:
        for number in range(ROUNDS):
            models = [model(*source.sample(range(8 * number, 8 * number + 6), 4)) for _ in opened]
            names = [name if name == "same" else f"{name}{k}" for k in range(SESSIONS)]

            each = zip(opened, names, models, strict=True)
            saved = at_once(*(partial(save_model, *arguments) for arguments in each))
            expected |= {s.reference: m for s, m in zip(saved, models, strict=True)}
        assert len(expected) == SESSIONS * ROUNDS
        check_store(opened[0], expected)
        chunked = {
            t.numpy().tobytes() for m in expected.values() for t in m.values() if t.dim() > 1
        }
        (rows,) = opened[0].select(
            "SELECT count(*) AS n FROM mmdb.encoding AS e JOIN mmdb.tensor AS t "
            "ON e.tensor_id = t.tensor_id WHERE t.dtype = 'float32'"
        )
        assert rows["n"] == len(chunked)


def test_updates_of_one_parent_at_once_are_all_there(postgres_url: str) -> None:
    base = model(1, 2, 3)
    expected = {"net@1": base}
    with sessions(postgres_url, SESSIONS) as opened:
        save_model(opened[0], "net", base)
        for number in range(5):
            # Two and two are equal.
            moves = [1e-5 * (SESSIONS * number + k // 2 + 1) for k in range(SESSIONS)]
            tuned = [{path: t + move for path, t in base.items()} for move in moves]
            update = partial(save_model, parent="net@1", approach="update")
            each = zip(opened, tuned, strict=True)
            saved = at_once(*(partial(update, session, "net", new) for session, new in each))
            expected |= {s.reference: m for s, m in zip(saved, tuned, strict=True)}
        check_store(opened[0], expected)


def test_a_version_that_two_sessions_ask_for_is_given_to_one(postgres_url: str) -> None:
    with sessions(postgres_url, 2) as opened:

        def save(connection: PostgresConnection) -> Saved | None:
            try:
                return save_model(connection, "net", model(1), version=7)
            except errors.AlreadyExists:
                return None

        with ThreadPoolExecutor(2) as pool:
            saved = list(pool.map(save, opened))
        assert sorted(s is None for s in saved) == [False, True]
        check_store(opened[0], {"net@7": model(1)})


def test_a_save_waits_for_another_that_names_the_same_tensors(postgres_url: str) -> None:
    with sessions(postgres_url, 2) as (first, second), ThreadPoolExecutor(1) as pool:
        with first.transaction():
            save_model(first, "a", model(1, 2))
            waiting = pool.submit(save_model, second, "b", model(2, 1))
            while not first.select(
                "SELECT pid FROM pg_stat_activity WHERE wait_event_type = 'Lock' "
                "AND datname = current_database()"
            ):
                assert not waiting.done()
        assert waiting.result(30).version == 1
        check_store(first, {"a@1": model(1, 2), "b@1": model(2, 1)})


def test_a_save_that_waited_for_one_that_failed_stores_the_tensors(postgres_url: str) -> None:
    with sessions(postgres_url, 2) as (first, second), ThreadPoolExecutor(1) as pool:
        with pytest.raises(ZeroDivisionError), first.transaction():
            save_model(first, "a", model(1, 2))
            waiting = pool.submit(save_model, second, "b", model(2, 1))
            while not first.select(
                "SELECT pid FROM pg_stat_activity WHERE wait_event_type = 'Lock' "
                "AND datname = current_database()"
            ):
                assert not waiting.done()
            _ = 1 / 0
        waiting.result(30)
        check_store(first, {"b@1": model(2, 1)})


def test_saves_in_transactions_of_several_that_cross_end_in_one_error_at_most(
    postgres_url: str,
) -> None:
    """Only here can sessions wait in a circle; the server ends one, which may try again."""
    with sessions(postgres_url, 2) as opened:
        save_model(opened[0], "first", model(0))  # the environment's row, which all share
        barrier = threading.Barrier(2)

        def save(connection: PostgresConnection, order: tuple[int, int]) -> str:
            try:
                with connection.transaction():
                    save_model(connection, f"net{order[0]}", model(order[0]))
                    barrier.wait(120)
                    save_model(connection, f"net{order[1]}", model(order[1]))
            except errors.WriteConflict:
                return "conflict"
            return "saved"

        with ThreadPoolExecutor(2) as pool:
            found = sorted(pool.map(save, opened, [(1, 2), (2, 1)]))
        assert found == ["conflict", "saved"]
        there = {"first@1": model(0), "net1@1": model(1), "net2@1": model(2)}
        check_store(opened[0], there)


def test_sixteen_readers_at_once_get_what_was_saved(postgres_url: str) -> None:
    expected = {f"net{k}": model(k, k + 1, 99) for k in range(6)}
    with sessions(postgres_url, 16) as opened:
        for name, tensors in expected.items():
            save_model(opened[0], name, tensors)

        def read(number: int) -> int:
            reader, source = ModelReader(opened[number]), random.Random(number)
            for _ in range(40):
                name = source.choice(list(expected))
                path = source.choice(list(expected[name]))
                net, tensor = find_model(opened[number], name), expected[name][path]
                assert same_bits(reader.tensors(net, [path])[path], tensor)
                lo = source.randrange(len(tensor))
                assert same_bits(reader.rows(net, path, lo, lo + 1), tensor[lo : lo + 1])
            return number

        with ThreadPoolExecutor(16) as pool:
            assert list(pool.map(read, range(16))) == list(range(16))


def test_readers_are_not_disturbed_by_saves(postgres_url: str) -> None:
    net = model(1, 2, 3)
    with sessions(postgres_url, 4) as opened:
        save_model(opened[0], "net", net)
        done = threading.Event()

        def read(connection: PostgresConnection) -> int:
            times = 0
            while not done.is_set():
                found = load_tensors(connection, find_model(connection, "net@1"))
                assert all(same_bits(found[path], net[path]) for path in net)
                newest = load_tensors(connection, find_model(connection, "net"))
                assert list(newest) == list(net)
                times += 1
            return times

        with ThreadPoolExecutor(3) as pool:
            reading = [pool.submit(read, connection) for connection in opened[1:]]
            for k in range(30):
                save_model(opened[0], "net", model(k, 2, 3), parent="net")
            done.set()
            assert min(r.result(60) for r in reading) > 0


def test_two_sessions_of_one_file_save_one_after_the_other(duckdb_url: str) -> None:
    with mmdb.connect(duckdb_url) as db:
        assert isinstance(db.connection, DuckConnection)
        other = db.connection.cursor()
        with closing(other.raw):
            save_model(db.connection, "net", model(1))
            save_model(other, "net", model(1, 2))
            found = load_tensors(db.connection, find_model(db.connection, "net@2"))
            assert all(same_bits(found[path], t) for path, t in model(1, 2).items())
            assert len(db.sql("SELECT tensor_id FROM mmdb.encoding")) == 4  # two, and two packs
