"""The campaign `cancels`: statements are ended at random moments, and answered at once.

Every function of mmdb that takes longer than a second is cancelled by pg_cancel_backend, by
statement_timeout, by Ctrl-C in psql, or its session is terminated; on DuckDB its process gets a
Ctrl-C. Each is to be answered within a second, by the error of a cancel alone; afterwards every
table of mmdb is to hold what it held, and no session of mmdb may be left. What a `train` has
committed stays, and a run that was cancelled comes to the bits of an undisturbed one.
"""

from __future__ import annotations

import random
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import psycopg
from psycopg.conninfo import conninfo_to_dict

import mmdb
from mmdb.api import Database
from mmdb.bench.figures import Figure
from mmdb.db.check import shown
from mmdb.db.doctor import examine
from mmdb.db.install import install
from mmdb.store.verify import verify_at
from mmdb.terminal import console
from tests.bench.faults.checks import check
from tests.bench.search.campaigns import none_of
from tests.bench.search.interrupts import interrupt_files
from tests.cluster import Cluster

#: Seconds: to answer, into a statement that a moment is drawn from at most, to find sessions gone.
ANSWER_S, LONGEST_S, GONE_S = 1.0, 4.0, 10.0
#: One case of so many is one of a DuckDB file.
FILES_SHARE = 5
KINDS = ("cancel", "timeout", "interrupt", "terminate")
ROWS = 40_000
QUERY = f"SELECT {', '.join(f'c{k}' for k in range(1, 13))}, y FROM points"
KEYED = QUERY.replace("SELECT", "SELECT id,", 1)
CANCELLED = {"57014", "57P01"}
SPACE = {"space": {"lr": [0.05, 0.02], "optimizer": ["adam"], "batch_size": [64]}}
SLOW = {"space": {"batch_size": [1], "optimizer": ["adam"]}}

#: Statements; {n} is another number each time.
CALLS = {
    "warm_up": "SELECT mmdb.warm_up()",
    "create_dataset": f"SELECT * FROM mmdb.create_dataset('made-{{n}}', '{QUERY}')",
    "explain_train": "SELECT * FROM mmdb.explain_train('planned')",
    "calibrate": "SELECT * FROM mmdb.calibrate(4)",
    "train": "CALL mmdb.train('run-{n}')",
    "train_hop": "SELECT * FROM mmdb.train_hop({part}, {slow})",
    "begin_candidate": "SELECT * FROM mmdb.begin_candidate({warm})",
    "predict_query": f"SELECT * FROM mmdb.predict_query('m', '{KEYED}')",
    "predict_into": f"SELECT mmdb.predict_into('m', '{KEYED}', 'scored_{{n}}')",
    "evaluate": "SELECT * FROM mmdb.evaluate('m', 'd')",
    "save_candidate": "SELECT * FROM mmdb.save_candidate({best}, 'saved-{n}')",
    "match": "SELECT * FROM mmdb.match('mlp(hidden=[40])', 5, 'd')",
    "gc": "SELECT * FROM mmdb.gc(FALSE, '0 s')",
}


@dataclass(slots=True)
class Found:
    """What the cases came to."""

    struck: int = 0
    late: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    half_done: list[str] = field(default_factory=list)
    slowest_s: float = 0.0

    def note(self, what: str, seconds: float, error: str) -> None:
        """Note a case: how long its answer took, and what is wrong with that if anything is."""
        self.struck += 1
        self.slowest_s = max(self.slowest_s, seconds)
        if seconds > ANSWER_S:
            self.late.append(f"{what}: {seconds:.2f} s")
        if error:
            self.wrong.append(f"{what}: {error}")

    def figures(self, engine: str) -> list[Figure]:
        """Return the figures of an engine."""
        for what in (*self.wrong, *self.half_done):
            console.print(f"{engine}: {what}", markup=False)
        name = f"{engine}: {self.struck} statements cancelled"
        slowest = Figure(name=f"{name}, slowest answer", value=self.slowest_s, unit="s")
        return [
            none_of(f"{name}, answered later than {ANSWER_S:g} s", len(self.late), "statements"),
            slowest,
            none_of(f"{name}, answered otherwise", len(self.wrong), "statements"),
            none_of(f"{name}, left half done", len(self.half_done), "statements"),
        ]


class Server:
    """A PostgreSQL with a model, runs, and statements that take their time."""

    def __init__(self, cluster: Cluster, url: str) -> None:
        self._cluster, self.url = cluster, url
        self.names: dict[str, Any] = {"n": 0}
        self.seconds: dict[str, float] = {}
        with mmdb.connect(url) as db:
            self._fill(db)

    def _fill(self, db: Database) -> None:
        db.sql(
            "CREATE TABLE points AS SELECT i AS id, "
            + ", ".join(f"sin(i * {k}.7)::real AS c{k}" for k in range(1, 13))
            + ", (sin(i * 1.7) + sin(i * 2.7) > 0)::integer AS y "
            + f"FROM generate_series(1, {ROWS}) AS g (i)"
        )
        dsn = {"dsn": shown(self.url)}
        db.sql("INSERT INTO mmdb.setting (name, value) VALUES ('worker_dsn', %(dsn)s)", dsn)
        db.create_dataset("d", QUERY, partitions=4, validation=0.2, seed=1)
        self.create_run(db, "undisturbed").train(workers=2)
        db.create_run("planned", dataset="d", architecture="mlp", search=SPACE, strategy="auto")
        db.create_run("slow", dataset="d", architecture="mlp", search=SLOW)
        best = db.run("undisturbed").leaderboard()[0]["candidate_id"]
        db.save_candidate(best, "m")
        wider = "mlp(hidden=[96, 80])"
        db.create_run("warm", dataset="d", architecture=wider, search=SPACE, warm_start="auto")
        for run in ("slow", "warm"):
            self.names[run] = db.run(run).leaderboard()[0]["candidate_id"]
        self.names["best"] = best
        (first,) = db.sql("SELECT min(part_id) AS part FROM mmdb.partition_overview")
        self.names["part"] = first["part"]

    def create_run(self, db: Database, name: str) -> Any:
        """Create the run that is trained."""
        return db.create_run(
            name, dataset="d", architecture="mlp(hidden=[64])", search=SPACE, epochs=3, seed=5
        )

    def statement(self, call: str) -> str:
        """Return the next statement that calls a function, and make what it needs."""
        self.names["n"] += 1
        if call == "train":
            with mmdb.connect(self.url) as db:
                self.create_run(db, f"run-{self.names['n']}")
        return CALLS[call].format(**self.names)

    def time(self, call: str) -> float:
        """Return how long a call takes in a fresh session, or the most that counts."""
        if call not in self.seconds:
            text = self.statement(call)
            with psycopg.connect(self.url, autocommit=True) as session:
                session.execute(f"SET statement_timeout = '{LONGEST_S:g}s'")
                started = time.perf_counter()
                with suppress(psycopg.errors.QueryCanceled):
                    session.execute(text)
                self.seconds[call] = time.perf_counter() - started
        return self.seconds[call]

    def content(self) -> Mapping[str, tuple[int, int]]:
        """Return rows and a checksum of each table of mmdb."""
        with psycopg.connect(self.url, autocommit=True) as session:
            named = session.execute(
                "SELECT oid::regclass::text FROM pg_class WHERE relnamespace = 'mmdb'::regnamespace"
                " AND relkind IN ('r', 'p') AND NOT relispartition ORDER BY 1"
            ).fetchall()
            select = "SELECT count(*), coalesce(sum(hashtext(t::text)), 0) FROM {} AS t"
            found = {}
            for (table,) in named:
                row = session.execute(select.format(table)).fetchone()
                assert row is not None
                found[table] = row[0], row[1]
        return found

    def strays(self) -> list[str]:
        """Return what sessions of mmdb are left after some seconds."""
        deadline = time.monotonic() + GONE_S
        while True:
            with psycopg.connect(self.url, autocommit=True) as session:
                rows = session.execute(
                    "SELECT application_name, query FROM pg_stat_activity WHERE pid <> "
                    "pg_backend_pid() AND datname = current_database() AND application_name <> ''"
                ).fetchall()
            if not rows or time.monotonic() > deadline:
                return [f"{name}: {query[:80]}" for name, query in rows]
            time.sleep(0.05)

    def end(self, text: str, kind: str, moment_s: float) -> tuple[float, str] | None:
        """Run a statement and end it at a moment.

        Returns:
            Seconds until it was answered, and by what other than a cancel; None if it was done.
        """
        if kind == "interrupt":
            return self._interrupt(text, moment_s)
        with psycopg.connect(self.url, autocommit=True, application_name="") as session:
            if kind == "timeout":
                session.execute(f"SET statement_timeout = {max(1, round(moment_s * 1e3))}")
            answer = _Answer(session, text)
            answer.start()
            answer.join(moment_s)
            if kind != "timeout":
                if not answer.is_alive():
                    return None
                with psycopg.connect(self.url, autocommit=True) as other:
                    pid = session.info.backend_pid
                    struck = time.perf_counter()
                    other.execute(f"SELECT pg_{kind}_backend({pid})")
            else:
                struck = answer.started + moment_s
            answer.join()
        if answer.state == "":
            return None
        return answer.ended - struck, "" if answer.state in CANCELLED else answer.state

    def _interrupt(self, text: str, moment_s: float) -> tuple[float, str] | None:
        parts = conninfo_to_dict(self.url)
        environment = {f"PG{name.upper()}": str(parts[name]) for name in ("host", "port", "user")}
        environment |= {"PGPASSWORD": str(parts["password"]), "PGDATABASE": str(parts["dbname"])}
        psql = subprocess.Popen(
            [self._cluster.server.bin / "psql", "-XqAt", "-v", "VERBOSITY=verbose", "-c", text],
            env=environment | {"PGAPPNAME": "", "LANG": "C.UTF-8"},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        with suppress(subprocess.TimeoutExpired):
            psql.communicate(timeout=moment_s)
            return None
        psql.send_signal(signal.SIGINT)
        struck = time.perf_counter()
        said = psql.communicate()[1]
        seconds = time.perf_counter() - struck
        if psql.returncode == 0:
            return None
        return seconds, "" if "57014" in said or psql.returncode == -signal.SIGINT else said


class _Answer(threading.Thread):
    """A statement under way; afterwards its SQLSTATE, "" if it succeeded."""

    def __init__(self, session: psycopg.Connection[Any], text: str) -> None:
        super().__init__(daemon=True)
        self._session, self._text = session, text
        self.started = self.ended = time.perf_counter()
        self.state = ""

    def run(self) -> None:
        self.started = time.perf_counter()
        try:
            self._session.execute(self._text)
        except psycopg.Error as error:
            lost = isinstance(error, psycopg.OperationalError) and self._session.closed
            self.state = "57P01" if lost else f"{error.sqlstate or error}"
            if self.state not in CANCELLED:
                self.state += f" {error}"
        self.ended = time.perf_counter()


@contextmanager
def server() -> Iterator[Server]:
    """Yield a server of its own."""
    with Cluster() as cluster:
        url = cluster.create_database("cancels")
        install(url)
        yield Server(cluster, url)


def search(*, seed: int, cases: int) -> list[Figure]:
    """Cancel so many statements, on both engines; return what that came to."""
    source = random.Random(seed)
    on_files = cases // FILES_SHARE
    found, files = Found(), Found()
    with server() as subject:
        cancel_statements(subject, cases - on_files, source, found)
        cancelled = _runs(subject)
        if cancelled:
            _finish(subject, source.choice(cancelled), found)
        found.half_done += [f"{one.name}: {one.detail}" for one in _failed_checks(subject.url)]
    interrupt_files(on_files, source, files)
    return [*found.figures("PostgreSQL"), *(files.figures("DuckDB") if on_files else [])]


def cancel_statements(
    subject: Server,
    cases: int,
    source: random.Random,
    found: Found,
    say: Callable[[str], None] = lambda text: None,
) -> None:
    """Cancel statements until so many were struck."""
    calls = list(CALLS)
    number = tries = 0
    while number < cases and tries < 3 * cases:
        tries += 1
        call, kind = calls[tries % len(calls)], source.choice(KINDS)
        seconds = subject.time(call)
        before = subject.content() if call != "train" else {}
        text = subject.statement(call)
        answer = subject.end(text, kind, source.uniform(0.0, 0.9 * seconds))
        if answer is None:
            continue
        number += 1
        found.note(f"{call} by {kind}", *answer)
        say(f"{call} {kind} {answer[0]:.2f} {answer[1][:300]}")
        strays = subject.strays()
        if strays:
            found.half_done.append(f"{call} by {kind} left {strays}")
        after = subject.content() if before else {}
        changed = [table for table, held in before.items() if after[table] != held]
        if changed:
            found.half_done.append(f"{call} by {kind} changed {changed}")


def _runs(subject: Server) -> list[str]:
    with mmdb.connect(subject.url) as db:
        rows = db.sql("SELECT run FROM mmdb.run_progress WHERE run LIKE 'run-%%'", {"_": 0})
    return [str(row["run"]) for row in rows]


def _finish(subject: Server, run: str, found: Found) -> None:
    """Train a run that was cancelled to its end, and compare it with an undisturbed one."""
    with mmdb.connect(subject.url) as db:
        db.run(run).train(workers=2)
        try:
            check(db, run, "undisturbed")
        except AssertionError as error:
            found.half_done.append(f"{run}: {error}")


def _failed_checks(url: str) -> list[Any]:
    """Return the checks of `doctor` and `verify` that say that something is not as it should be."""
    known = {"rows", "schema", "stored bytes", "blocks", "tensors", "models", "checkpoints"}
    return [one for one in [*examine(url), *verify_at(url)] if not one.ok and one.name in known]
