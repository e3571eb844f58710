"""Part `soak`: sessions that work for long, whose memory, files and tables stay what they are."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import suppress
from functools import partial

import torch
from torch import nn

from mmdb.api import Database, Run, connect
from mmdb.bench.figures import Figure, at_most
from mmdb.bench.workload import BenchShare
from mmdb.db.duck import DuckConnection
from mmdb.db.postgres import PostgresConnection
from tests.bench.servers.usage import (
    Growth,
    Measure,
    buffer_megabytes,
    children,
    command_of,
    open_files,
    private_megabytes,
    table_megabytes,
    temporary_files,
)

_HOPS, _PREDICTIONS, _SAVES = 20_000, 1_000_000, 500
_CANDIDATES, _PARTS, _NUMBERS, _AT_ONCE, _KEPT = 4, 4, 8, 1000, 3
#: What a hop writes anew, or changes; what a collection empties.
_OF_HOPS = ("state_chunk", "checkpoint", "checkpoint_chunk", "candidate", "assignment")
_OF_MODELS = ("manifest", "manifest_tensor", "tensor", "tensor_chunk", "architecture_edge")
#: In the command of a process in which hops of a DuckDB file compute.
_COMPUTES = "mmdb.train.drive.child"
#: What grows with the work, and is meant to.
_BUFFERS, _LINEAGE = "DuckDB's buffers of tables and indexes", "rows of dropped models (lineage)"


def bench_soak(db: Database, share: BenchShare, prefix: str, engine: str) -> Iterator[Figure]:
    """Do many hops, many predictions, many saves and collections."""
    before = temporary_files()
    numbers = [f"CAST(i * {7 + 2 * k} % 101 / 100.0 AS real) AS c{k}" for k in range(_NUMBERS)]
    columns = ", ".join(numbers)
    db.sql(
        f"CREATE TABLE {prefix}_rows AS SELECT {columns}, i % 3 AS y"
        f" FROM generate_series(1, {_AT_ONCE}) AS g (i)"
    )
    db.create_dataset(prefix, f"SELECT * FROM {prefix}_rows", label="y", partitions=_PARTS)
    for part in (_hops, _predictions, _saves):
        yield from part(db, share, prefix, engine)
    yield at_most(f"{engine}: temporary files left", [temporary_files() - before], "", 0)


def _hops(db: Database, share: BenchShare, prefix: str, engine: str) -> Iterator[Figure]:
    epochs = share.of(_HOPS, 400) // (_CANDIDATES * (_PARTS + 1))
    rates = [0.001 * 2**k for k in range(_CANDIDATES)]

    def create(name: str, epochs: int) -> Run:
        return db.create_run(
            name,
            dataset=prefix,
            architecture="mlp(hidden=[16])",
            epochs=epochs,
            strategy="mop",
            search={"space": {"lr": rates, "batch_size": 64}},
        )

    create(f"{prefix}-before", 1).train(workers=1)  # its end loads a thousand modules, once
    run = create(prefix, epochs)
    about, ended = f"{engine}: {epochs * _CANDIDATES * (_PARTS + 1):,} hops", threading.Event()
    watching = _second(db)
    found: list[Growth] = []

    def watch() -> None:
        growth: Growth | None = None
        while not ended.wait(0.3):
            (row,) = watching.sql(
                "SELECT hops_done AS done, hops_total AS planned FROM mmdb.run_progress"
                f" WHERE run = '{prefix}'"
            )
            at_work = _at_work(watching)
            if growth is None and row["done"] and at_work:
                pids = {"the driver": os.getpid(), "a worker": at_work[0]}
                growth = _of_processes(watching, about, pids)
                if engine == "postgres":
                    states = partial(table_megabytes, watching, _OF_HOPS)
                    growth.measures["tables and indexes of states"] = ("MB", states)
                found.append(growth)
            if growth is not None and row["done"] < row["planned"]:
                with suppress(FileNotFoundError, ProcessLookupError):  # its worker has ended
                    growth.look(row["done"] / row["planned"])

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        run.train(workers=1)
    finally:
        ended.set()
        thread.join()
        watching.close()
    for growth in found:
        yield from growth.figures()


def _second(db: Database) -> Database:
    """Return another session with the database."""
    if isinstance(db.connection, PostgresConnection):
        return connect(db.connection.url)
    assert isinstance(db.connection, DuckConnection)
    return Database(db.connection.cursor())


def _at_work(db: Database) -> list[int]:
    """Return the processes in which hops compute."""
    if isinstance(db.connection, PostgresConnection):
        rows = db.sql(
            "SELECT pid FROM pg_stat_activity WHERE datname = current_database()"
            " AND application_name LIKE 'mmdb w%'"
        )
        return [row["pid"] for row in rows]
    return [pid for pid in children(os.getpid()) if _COMPUTES in command_of(pid)]


def _of_processes(db: Database, about: str, pids: dict[str, int]) -> Growth:
    """Return what is measured of processes; one that holds a DuckDB file has a cache of it."""
    measures: dict[str, Measure] = {}
    for who, pid in pids.items():
        memory = partial(private_megabytes, pid)
        if db.connection.engine == "duckdb" and pid == os.getpid():
            measures[_BUFFERS] = ("MB", partial(buffer_megabytes, db))
            memory = partial(_without_buffers, db, pid)
        measures[f"memory of {who}"] = ("MB", memory)
        measures[f"open files of {who}"] = ("", partial(open_files, pid))
    return Growth(about, measures, frozenset({_BUFFERS, _LINEAGE}))


def _without_buffers(db: Database, pid: int) -> float:
    return private_megabytes(pid) - buffer_megabytes(db)


def _session(db: Database) -> int:
    """Return the process that answers."""
    if isinstance(db.connection, PostgresConnection):
        return int(db.sql("SELECT pg_backend_pid() AS pid")[0]["pid"])
    return os.getpid()


def _predictions(db: Database, share: BenchShare, prefix: str, engine: str) -> Iterator[Figure]:
    count = share.of(_PREDICTIONS, 20 * _AT_ONCE)
    growth = _of_processes(db, f"{engine}: {count:,} predictions", {"a session": _session(db)})
    row = ", ".join(f"c{k}" for k in range(_NUMBERS))
    for done in range(0, count, _AT_ONCE):
        # By itself, by arrays, and by a query.
        db.predict(prefix, [0.5] * _NUMBERS)
        if done // _AT_ONCE % 2:
            db.sql(f"SELECT sum((mmdb.predict('{prefix}', ARRAY[{row}]))[1]) FROM {prefix}_rows")
        else:
            query = f"SELECT row_number() OVER () AS id, {row} FROM {prefix}_rows"
            assert len(db.predict_query(prefix, query)) == _AT_ONCE
        growth.look(done / count)
    yield from growth.figures()


def _saves(db: Database, share: BenchShare, prefix: str, engine: str) -> Iterator[Figure]:
    count = share.of(_SAVES, 20)
    about = f"{engine}: {count} saves and collections"
    growth = _of_processes(db, about, {"a session": _session(db)})
    growth.measures["tables and indexes"] = ("MB", partial(table_megabytes, db, _OF_MODELS))
    if engine == "postgres":
        growth.measures[_LINEAGE] = ("MB", partial(table_megabytes, db, ("model",)))
    generator = torch.Generator().manual_seed(0)
    module = nn.Sequential(nn.Linear(256, 512), nn.Linear(512, 10))
    for k in range(count):
        with torch.no_grad():
            for parameter in module.parameters():
                parameter.copy_(torch.randn(parameter.shape, generator=generator))
        db.save(f"{prefix}_saved", module, parent=None)
        if k >= _KEPT:
            db.drop_model(f"{prefix}_saved", k + 1 - _KEPT)
            db.gc(dry_run=False, grace="0 days")
        growth.look(k / count)
    yield from growth.figures()
