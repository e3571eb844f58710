"""Experiment `tables`: mmdb's defaults beside peers on real tables, and how fast rows are read.

The peers need an environment of their own: docs/figures.md says how to make it. Each table is split
five times; every system learns from the same rows and is asked of the same.
"""

from __future__ import annotations

import json
import math
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from statistics import mean, stdev

from mmdb.api import Database, connect
from mmdb.bench.figures import Figure, at_least, at_most, is_so
from mmdb.bench.workload import BenchShare, servers_of
from mmdb.errors import InvalidInput
from mmdb.terminal import console
from tests.bench.journal import Journal
from tests.bench.tables.ingest import (
    TABLE,
    ingest_rows_per_s,
    make_mixed_table,
    pictures_per_s,
)
from tests.bench.tables.peers import FLIGHTS, PEERS, TABLES
from tests.bench.tables.subject import SYSTEM, fit

PARTS = ("quality", "flights", "reading")
#: Peers of the tables of flights: others take hours.
FLIGHT_PEERS = ("linear model", "scikit-learn MLP", "HistGradientBoosting", "LightGBM")
LINEAR, BOOSTED, MLP = "linear model", "HistGradientBoosting", "scikit-learn MLP"
_BUDGET_S = 300.0


@dataclass(frozen=True, slots=True, kw_only=True)
class TablesShare(BenchShare):
    """How much is measured.

    Attributes:
        only: of PARTS; all if empty.
        seeds: splits of each table.
        folder: finished fits are kept there and not done again; without it, they are deleted.
        peers: the Python that has the peers.
    """

    only: Sequence[str] = ()
    seeds: int = 5
    folder: Path | None = None
    peers: str = ".venv-peers/bin/python"


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """What one system made of one split of a table."""

    table: str
    system: str
    seed: int
    error: float
    seconds: float

    @property
    def key(self) -> tuple[str, str, int]:
        """What tells it from all others."""
        return (self.table, self.system, self.seed)


def bench_tables(databases: list[Database], share: TablesShare) -> Iterator[Figure]:
    """Fit what the folder lacks and yield what came of it; then read rows into `databases`.

    Of these the servers alone: a file belongs to one process.
    """
    parts = share.only or PARTS
    if "reading" in parts:
        yield from _reading(servers_of(databases) if share.only else _servers(databases), share)
    if not {"quality", "flights"} & {*parts}:
        return
    if not Path(share.peers).exists():
        raise InvalidInput(
            f"There is no Python of the peers at {share.peers}.",
            hint="docs/figures.md says how to make it; or name one with --peers.",
        )
    with ExitStack() as stack:
        folder = share.folder or Path(stack.enter_context(tempfile.TemporaryDirectory()))
        journal = Journal(folder / "fits.jsonl", "fits.jsonl", lambda row: Fit(**row), _key)
        if not (folder / "penguins.parquet").exists():
            _peers(share.peers, "write", folder)
        if "quality" in parts:
            yield from _quality(share, folder, journal)
        if "flights" in parts:
            yield from _flights(share, folder, journal)


def _servers(databases: list[Database]) -> list[Database]:
    return [db for db in databases if db.connection.engine == "postgres"]


def _reading(servers: Sequence[Database], share: TablesShare) -> Iterator[Figure]:
    for db in servers:
        rows = share.of(1_000_000, 1_000)
        make_mixed_table(db, rows)
        speed, peak_bytes = ingest_rows_per_s(db.connection.url, rows)
        db.sql(f"DROP TABLE {TABLE}")
        yield at_least("rows of 32 mixed columns into a dataset", [speed], "/s", 150_000)
        yield at_most("memory of the server's process", [peak_bytes / 2**20], "MB", 600)
        speed = pictures_per_s(db.connection.url, share.of(10_000, 500))
        yield at_least("JPEGs of 64 x 64 into a dataset", [speed], "/s", 3_000)


def _key(fit: Fit) -> tuple[str, str, int]:
    return fit.key


def _quality(share: TablesShare, folder: Path, journal: Journal[Fit]) -> Iterator[Figure]:
    names = share.first([*TABLES])
    fits = _fits(share, folder, journal, names, [*PEERS])
    yield from _rank_figures(fits, names)
    for name in names:
        ours, theirs = _errors(fits, name, SYSTEM), _errors(fits, name, LINEAR)
        worse = [a - b for a, b in zip(ours, theirs, strict=True)]
        noise = 2 * stdev(worse) / math.sqrt(len(worse)) if len(worse) > 1 else math.inf
        holds = mean(worse) <= noise
        yield Figure(f"{name}: error", mean(ours), TABLES[name].metric, runs=ours)
        yield is_so(f"{name}: not above a linear model's by more than noise", holds, "so")
    yield _slowest(fits)


def _rank_figures(fits: Sequence[Fit], names: Sequence[str]) -> Iterator[Figure]:
    systems = (SYSTEM, *PEERS)
    ranks: dict[str, list[float]] = {system: [] for system in systems}
    for name in names:
        errors = {system: mean(_errors(fits, name, system)) for system in systems}
        for system in systems:
            ranks[system].append(1.0 + sum(errors[system] > other for other in errors.values()))
    for system in systems:
        rank = mean(ranks[system])
        named = f"mean rank over {len(names)} tables: {system}"
        figure = Figure(named, rank, "", runs=ranks[system])
        yield at_most(named, [rank], "", 2.0) if system == SYSTEM else figure


def _flights(share: TablesShare, folder: Path, journal: Journal[Fit]) -> Iterator[Figure]:
    fits = _fits(share, folder, journal, [*FLIGHTS], FLIGHT_PEERS)
    late = {system: _errors(fits, "flights_late", system) for system in (SYSTEM, BOOSTED)}
    ahead = mean(late[BOOSTED]) - mean(late[SYSTEM])
    for system, errors in late.items():
        yield Figure(f"late flights, AUC: {system}", 1 - mean(errors), "", runs=[*errors])
    yield at_least("late flights, AUC above HistGradientBoosting's", [ahead], "", 0.005)
    ours = mean(_errors(fits, "flights_delay", SYSTEM))
    for peer in (BOOSTED, MLP):
        theirs = mean(_errors(fits, "flights_delay", peer))
        yield at_most(f"delay of flights, RMSE / {peer}'s", [ours / theirs], "x", 1.0)
    yield Figure("delay of flights, RMSE", ours, "min")
    yield _slowest(fits)


def _slowest(fits: Sequence[Fit]) -> Figure:
    seconds = max(fit.seconds for fit in fits if fit.system == SYSTEM)
    return at_most("slowest of mmdb's fits", [seconds], "s", _BUDGET_S)


def _errors(fits: Sequence[Fit], table: str, system: str) -> list[float]:
    return [fit.error for fit in fits if (fit.table, fit.system) == (table, system)]


def _fits(
    share: TablesShare,
    folder: Path,
    journal: Journal[Fit],
    names: Sequence[str],
    peers: Sequence[str],
) -> list[Fit]:
    """Return the fits of all systems, table by table, seed by seed."""
    keys = [
        (n, system, s) for n in names for s in range(share.seeds) for system in (SYSTEM, *peers)
    ]
    for name, system, seed in keys:
        if journal.find((name, system, seed)) is None:
            console.print(f"{name}, split {seed}: {system}")
            journal.add(_fit(share, folder, name, system, seed))
    found = [journal.find(key) for key in keys]
    return [fit for fit in found if fit is not None]


def _fit(share: TablesShare, folder: Path, name: str, system: str, seed: int) -> Fit:
    if system != SYSTEM:
        said = _peers(share.peers, "fit", folder, name, "--peers", system, "--seed", str(seed))
        return Fit(**json.loads(said.splitlines()[-1]))
    with (
        tempfile.TemporaryDirectory(prefix="mmdb-tables-") as place,
        connect(f"duckdb:///{Path(place) / 'tables.duckdb'}") as db,
    ):
        return Fit(**fit(db, folder, name, seed))


def _peers(python: str, *arguments: str | Path) -> str:
    command = [python, str(Path(__file__).with_name("peers.py")), *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        sys.stderr.write(done.stderr)
        raise InvalidInput(f"{' '.join(command)} ended with {done.returncode}.")
    return done.stdout
