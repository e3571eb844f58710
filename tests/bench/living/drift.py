"""Part `drift`: how long it takes to say how far 32 columns have moved."""

from __future__ import annotations

from collections.abc import Iterator
from time import perf_counter

from mmdb.api import Database
from mmdb.bench.figures import Figure, at_most
from mmdb.bench.workload import BenchShare

_NUMBERS, _TEXTS, _LEARNED = 28, 4, 20_000


def bench_drift(db: Database, share: BenchShare, prefix: str, engine: str) -> Iterator[Figure]:
    """Ask a model that learned from some rows about all of them, three times."""
    rows = share.of(1_000_000, _LEARNED)
    numbers = [f"(i * {37 + 2 * k} % 10007)::real / 100 AS c{k}" for k in range(_NUMBERS)]
    texts = [f"'v' || (i * {k + 3} % 17)::text AS t{k}" for k in range(_TEXTS)]
    db.sql(
        f"CREATE TABLE {prefix}_now AS SELECT i AS id, {', '.join((*numbers, *texts))},"
        f" (i % 3 + i * 37 % 10007) % 3 AS y FROM generate_series(1, {rows}) AS g (i)"
    )
    name, table = f"{prefix}_drift", f"{prefix}_now"
    learned = f"SELECT * FROM {table} WHERE id <= {_LEARNED}"
    options = {"roles": {"id": "key"}}
    db.create_dataset(name, learned, label="y", options=options)
    space = {"lr": 0.01, "batch_size": 256}
    run = db.create_run(
        name, dataset=name, architecture="mlp(hidden=[16])", search={"space": space}
    )
    run.train(workers=1)
    taken = []
    for _ in range(3):
        started = perf_counter()
        db.sql(f"SELECT * FROM mmdb.drift('{name}', 'SELECT * FROM {table}')")
        taken.append(perf_counter() - started)
    what = f"{engine}: drift of {rows:,} rows of {_NUMBERS + _TEXTS} columns"
    yield at_most(what, taken, "s", 10)
