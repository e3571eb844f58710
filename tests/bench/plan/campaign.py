"""Workloads, one after the other: warmed up, planned in every way, then trained in every way."""

from __future__ import annotations

import json
import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from operator import attrgetter
from pathlib import Path

from mmdb.api import Database, Run
from mmdb.bench.workload import bench_names, make_points
from mmdb.db.queries import Queries
from mmdb.plan.cluster import measured_cluster
from mmdb.plan.profile.machine_profile import known_profile
from mmdb.plan.profile.measurements import stamp_here
from mmdb.terminal import console
from tests.bench.plan.baselines import Known, ratings_of
from tests.bench.plan.outcome import Outcome, Runs
from tests.bench.plan.sizing import Size, size_for
from tests.bench.plan.warmed import Warmed, warmed
from tests.bench.plan.workloads import CLASSES, COLUMNS, FAMILIES, Way, Workload

_Q = Queries(Path(__file__).with_name("bench_plan.sql"))
#: Times the seconds of a workload's best way from which on another one is trained only once.
OUTCLASSED = 1.5
#: Part of the rows that is held out where a workload validates.
HELD_OUT = 0.1
_PHASES = ("compute", "read", "hop", "validation", "idle")


@dataclass(frozen=True, slots=True, kw_only=True)
class Campaign:
    """Where and how much is trained.

    Attributes:
        worker_s: about what a workload takes on one worker.
        repeats: runs of each way of training a workload.
        chooses: whether ways compete: all count as planned before any of them was trained, and
            those that are far from the best are not repeated.
        seed: of the order of runs, so that no way has the better part of a drifting machine.
    """

    database: Database
    journal: Runs
    worker_s: float
    repeats: int
    chooses: bool = False
    seed: int = 0

    def run(self, workloads: Sequence[Workload]) -> list[Outcome]:
        """Train what the journal lacks, and return what it has of these workloads.

        Runs stay in the database until the last one: plans look at what became of earlier ones.
        """
        with bench_names(self.database) as prefix:
            for number, workload in enumerate(workloads, 1):
                todo = [
                    one
                    for one in self._all(workload)
                    if not (self.journal.find(_key(*one)) or self._is_outclassed(*one[:2]))
                ]
                if todo:
                    console.print(f"{number} of {len(workloads)}: {workload}, {len(todo)} runs")
                    self._train(f"{prefix}_{number}", workload, todo)
        wanted = {_key(*one) for workload in workloads for one in self._all(workload)}
        return [outcome for outcome in self.journal.records() if outcome.key in wanted]

    def _all(self, workload: Workload) -> list[tuple[Workload, Way, int]]:
        found = [(workload, way, k) for way in workload.ways for k in range(self.repeats)]
        random.Random(f"{self.seed} {workload}").shuffle(found)
        return found

    def _train(
        self, prefix: str, workload: Workload, todo: Iterable[tuple[Workload, Way, int]]
    ) -> None:
        earlier = self.journal.of(str(workload))
        size = (
            Size(earlier[0].rows, earlier[0].epochs)
            if earlier
            else size_for(workload, workload.share * self.worker_s)
        )
        db = self.database
        make_dataset(db, prefix, workload, size.rows)
        known = Known(
            workload=workload,
            size=size,
            warmed=list(_warm_ups(db, prefix, workload)),
            bytes_per_s=_bytes_per_s(db),
        )
        # All are planned before the first is trained, which the later ones would learn from.
        planned = []
        for _, way, repeat in todo:
            made = create(db, f"{prefix}-{way.strategy}-{way.workers}-{repeat}", workload, way,
                           size.epochs, seed=repeat)  # fmt: skip
            made.explain({"strategies": "executed", "workers": way.workers})
            planned.append((made, way, repeat))
        for made, way, repeat in planned:
            if self._is_outclassed(workload, way):
                continue
            made.train(workers=way.workers)
            seen = workload.is_seen(way) and not self.chooses
            outcome = outcome_of(db, made.name, workload, way, repeat, size, last=seen)
            if outcome is None:  # a worker was lost, and hops were done again
                console.print(f"{made.name} was not trained as it was planned; it is left out")
            else:
                self.journal.add(replace(outcome, ratings=ratings_of(known, way)))
        db.sql(f"DROP TABLE {prefix}")

    def _is_outclassed(self, workload: Workload, way: Way) -> bool:
        """Whether a way was tried, and is so far from the best that it cannot be it.

        Both what it took and what was said of it must be: a single run may have been disturbed.
        """
        done = self.journal.of(str(workload))
        mine = [one for one in done if (one.strategy, one.workers) == (way.strategy, way.workers)]
        return (
            self.chooses
            and bool(mine)
            and all(
                min(map(seconds, mine)) > OUTCLASSED * min(map(seconds, done))
                for seconds in (attrgetter("actual_s"), attrgetter("p50_s"))
            )
        )


def make_dataset(db: Database, name: str, workload: Workload, rows: int) -> None:
    """Make a dataset of random rows, so many of them to train on."""
    held_out = HELD_OUT if workload.validates else 0.0
    make_points(db, name, round(rows / (1 - held_out)), COLUMNS, CLASSES)
    features = ", ".join(f"c{k}" for k in range(COLUMNS))
    array = f"ARRAY[{features}]" if db.connection.engine == "postgres" else f"[{features}]"
    shape = FAMILIES[workload.family].shape
    db.create_dataset(
        name,
        f"SELECT {array} AS x, y FROM {name}",
        partitions=workload.partitions,
        validation=held_out,
        options={"shape": list(shape)} if shape else {},
    )


def outcome_of(
    db: Database,
    run: str,
    workload: Workload,
    way: Way,
    repeat: int,
    size: Size,
    *,
    last: bool,
) -> Outcome | None:
    """Return what the database says of a run that was planned and trained, if it went so.

    Args:
        last: whether the plan that was made right before the run began counts, or that from before
            any run of its workload.
    """
    (row,) = db.connection.rows(_Q.find_outcome, run=run, last=last)
    if not row["is_comparable"]:
        return None
    return Outcome(
        workload=str(workload),
        strategy=way.strategy,
        workers=way.workers,
        repeat=repeat,
        rows=size.rows,
        epochs=size.epochs,
        seen=workload.is_seen(way),
        hops=row["hops"],
        p10_s=row["t_p10"],
        p50_s=row["t_p50"],
        p90_s=row["t_p90"],
        actual_s=row["actual_s"],
        said={phase: row[f"{phase}_s"] for phase in _PHASES},
        took={phase: row[f"actual_{phase}_s"] for phase in _PHASES},
    )


def _key(workload: Workload, way: Way, repeat: int) -> tuple[str, str, int, int]:
    return str(workload), way.strategy, way.workers, repeat


def _warm_ups(db: Database, prefix: str, workload: Workload) -> Iterator[Warmed]:
    """Train what comes before, and yield what it has shown of hopping."""
    for one in workload.warm_ups:
        name = f"{prefix}-warm-{one.strategy}-{one.candidates}-{one.workers}"
        way = Way(strategy=one.strategy, workers=one.workers)
        made = create(db, name, workload, way, 1, candidates=one.candidates)
        made.train(workers=one.workers)
        if one.strategy == "mop":
            yield warmed(db, name, one.workers)


def _bytes_per_s(db: Database) -> float:
    """Return the bandwidth between two workers, by the profile."""
    stamp = stamp_here(db.connection.engine, datetime.now(UTC))
    profile = known_profile(db.connection, stamp).profile
    return measured_cluster(profile).local.bytes_per_s


def create(
    db: Database,
    name: str,
    workload: Workload,
    way: Way,
    epochs: int,
    *,
    seed: int = 0,
    candidates: int | None = None,
) -> Run:
    count = workload.candidates if candidates is None else candidates
    return db.create_run(
        name,
        dataset=name.partition("-")[0],
        architecture=json.dumps(workload.architecture),
        search={"space": workload.space(count)},
        epochs=epochs,
        strategy=way.strategy,
        seed=seed,
        options={"group": way.group} if way.strategy == "data_parallel" else {},
    )
