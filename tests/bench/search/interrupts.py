"""Ctrl-C in processes that own a DuckDB file: a part of the campaign `cancels`."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import mmdb
from mmdb.store.verify import verify_at
from tests.cluster import ROOT

if TYPE_CHECKING:
    from tests.bench.search.cancels import Found

ROWS, LONGEST_S = 60_000, 4.0
QUERY = f"SELECT {', '.join(f'c{k}' for k in range(1, 13))}, y FROM points"
KEYED = QUERY.replace("SELECT", "SELECT id,", 1)

#: What a process does with `db`; {n} is another number each time.
WORK = {
    "create_dataset": f"db.create_dataset('made-{{n}}', '{QUERY}')",
    "train": "db.run('open').train(workers=1)",
    "explain": "db.run('planned').explain()",
    "calibrate": "db.calibrate(4)",
    "predict_query": f"db.predict_query('m', '{KEYED}')",
    "evaluate": "db.evaluate('m', 'd')",
    "predict_into": f"db.predict_into('m', '{KEYED}', 'scored_{{n}}')",
    "save_candidate": "db.save_candidate({best}, 'saved-{n}')",
    "recover": "db.recover('m', verify='full')",
    "sql": "db.sql(\"SELECT count(*) FROM mmdb.predict_query('m', '{query}')\")",
}
_PROGRAM = """
import signal, sys
import mmdb
signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored in a shell's background
with mmdb.connect(sys.argv[1]) as db:
    print("ready", flush=True)
    try:
        {work}
    except KeyboardInterrupt:
        print("interrupted", flush=True)
    else:
        print("done", flush=True)
"""


class File:
    """A DuckDB file with a model and runs."""

    def __init__(self, folder: Path) -> None:
        self.url = f"duckdb:///{folder / 'cancels.duckdb'}"
        self.names: dict[str, object] = {"n": 0, "query": KEYED}
        self.seconds: dict[str, float] = {}
        self.whole: dict[str, list[str]] = {}
        columns = ", ".join(f"sin(i * {k}.7)::REAL AS c{k}" for k in range(1, 13))
        space = {"space": {"lr": [0.05, 0.02], "batch_size": [16]}}
        with mmdb.connect(self.url) as db:
            db.sql(
                f"CREATE TABLE points AS SELECT i AS id, {columns}, (sin(i * 1.7) > 0)::INTEGER "
                f"AS y FROM generate_series(1, {ROWS}) AS g (i)"
            )
            db.create_dataset("d", QUERY, partitions=4, seed=1)
            run = db.create_run("first", dataset="d", architecture="mlp")
            run.train(workers=1)
            best = run.leaderboard()[0]["candidate_id"]
            self.names["best"] = best
            db.save_candidate(best, "m")
            db.create_run("open", dataset="d", architecture="mlp", search=space, epochs=200)
            db.create_run("planned", dataset="d", architecture="mlp", search=space, strategy="auto")

    def content(self) -> dict[str, int]:
        """Return how many rows each table of mmdb has."""
        with mmdb.connect(self.url) as db:
            found = db.sql(
                "SELECT table_name AS name FROM duckdb_tables() WHERE schema_name = 'mmdb'"
            )
            counts = (
                (t["name"], db.sql(f"SELECT count(*) AS n FROM mmdb.{t['name']}")) for t in found
            )
            return {str(name): int(rows[0]["n"]) for name, rows in counts}

    def time(self, name: str) -> float:
        """Return how long work takes, or the most that counts; and note what tables it changes."""
        if name not in self.seconds:
            before, process = self.content(), self._start(name)
            assert process.stdout is not None
            ending = threading.Timer(LONGEST_S, process.kill)
            if name == "train":  # the only one that does not do all or nothing
                ending.start()
            started = time.perf_counter()
            said = process.stdout.readline().strip()
            self.seconds[name] = min(time.perf_counter() - started, LONGEST_S)
            rest = process.communicate()[1]
            ending.cancel()
            assert said == "done" or name == "train", f"{name}: {rest}"
            self.whole[name] = changes(before, self.content())
        return self.seconds[name]

    def interrupt(self, name: str, moment_s: float) -> tuple[float, str] | None:
        """Press Ctrl-C at a moment; as `Server.end`."""
        process = self._start(name)
        assert process.stdout is not None
        with suppress(subprocess.TimeoutExpired):
            process.wait(moment_s)
            rest = process.communicate()[1]
            return None if process.returncode == 0 else (0.0, rest[-600:])
        process.send_signal(signal.SIGINT)
        struck = time.perf_counter()
        said = process.stdout.readline().strip()
        seconds = time.perf_counter() - struck
        rest = process.communicate()[1]
        if said == "done":
            return None
        return seconds, "" if said == "interrupted" else rest[-600:] or "no answer"

    def _start(self, name: str) -> subprocess.Popen[str]:
        self.names["n"] = int(str(self.names["n"])) + 1
        program = _PROGRAM.format(work=WORK[name].format(**self.names))
        process = subprocess.Popen(
            [sys.executable, "-c", program, self.url],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=ROOT,
            env=os.environ | {"PYTHONPATH": str(ROOT)},
            start_new_session=True,  # a Ctrl-C is for it alone
        )
        assert process.stdout is not None
        process.stdout.readline()
        return process


def changes(before: Mapping[str, int], after: Mapping[str, int]) -> list[str]:
    """Return the tables that have other numbers of rows."""
    return [table for table in after if after[table] != before[table]]


def interrupt_files(cases: int, source: random.Random, found: Found) -> None:
    """Press Ctrl-C in so many processes."""
    if not cases:
        return
    with tempfile.TemporaryDirectory() as folder:
        file = File(Path(folder))
        names, struck = list(WORK), 0
        for tried in range(3 * cases):
            if struck == cases:
                break
            name = names[tried % len(names)]
            seconds = file.time(name)
            before = file.content()
            answer = file.interrupt(name, source.uniform(0.0, 0.9 * seconds))
            if answer is None:
                continue
            struck += 1
            found.note(name, *answer)
            changed = changes(before, file.content())
            # A Ctrl-C may come when all is done but the answer.
            if name != "train" and changed not in ([], file.whole[name]):
                found.half_done.append(f"{name} changed {changed}")
        bad = [f"{one.name}: {one.detail}" for one in verify_at(file.url) if not one.ok]
        found.half_done += bad
