"""How long explain_train takes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from mmdb.api import Database
from mmdb.bench.figures import Figure, at_most, seconds_of
from mmdb.bench.workload import bench_names, make_points

_COLUMNS, _ROWS_OF_PARTITION, _ROUNDS = 8, 8, 3


@dataclass(frozen=True, slots=True)
class Case:
    """A search of 100 or 1,000 candidates, of ten sizes."""

    candidates: int
    partitions: int
    bar_s: float


CASES = (Case(100, 16, 1.0), Case(1000, 1000, 10.0))
_SIZES = [[8 * k] for k in range(1, 11)]


def speed_figures(db: Database, case: Case) -> Iterator[Figure]:
    """Yield the seconds of a plan; the first of a process loads torch and builds the models."""
    engine = db.connection.engine
    with bench_names(db) as prefix:
        make_points(db, prefix, case.partitions * _ROWS_OF_PARTITION, _COLUMNS, 3)
        db.create_dataset(
            prefix, f"SELECT * FROM {prefix}", partitions=case.partitions, validation=0.0
        )
        rates = [0.1 / (k + 1) for k in range(case.candidates // len(_SIZES))]
        run = db.create_run(
            f"{prefix}-run",
            dataset=prefix,
            architecture="mlp",
            search={"space": {"lr": rates, "architecture.hidden": _SIZES}},
            epochs=5,
        )
        seconds = []
        for _ in range(_ROUNDS + 1):
            seconds.append(seconds_of(run.explain))
    name = f"{engine}: plan of {case.candidates:,} candidates x {case.partitions:,} partitions"
    yield Figure(name=f"{name}, the first", value=round(seconds[0], 3), unit="s")
    yield at_most(name, [round(one, 3) for one in seconds[1:]], "s", case.bar_s)
