"""The campaign `soak`: sessions of two teams and an admin, whose work is ended again and again.

Six processes make, train, save, share and drop, and an admin collects garbage. Meanwhile statements
are cancelled, sessions terminated and processes killed; a few times a backend is killed, after
which the server starts again. Afterwards every stored byte is what its hash says, every live model
is recovered, and each hop begins with what the one before it left.
"""

from __future__ import annotations

import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import psycopg

import mmdb
from mmdb.api import Database
from mmdb.bench.figures import Figure
from mmdb.store.verify import verify_at
from tests.bench.attack.oracle import server
from tests.bench.faults.checks import hops_of
from tests.bench.search.campaigns import none_of_these
from tests.cluster import ROOT, Cluster
from tests.teams import Teams, teams_in

WHO = ("ann", "amy", "bob", "ann", "bob", "guard")
#: Seconds between two strikes at most, and for a server to come back and its sessions to end.
PAUSE_S, PATIENCE_S = 1.0, 60.0
#: One killed backend in so many seconds.
CRASH_EVERY_S = 200
STRIKES = ("cancel",) * 5 + ("terminate",) * 3 + ("kill",)


@dataclass(slots=True)
class Found:
    """What the soak came to."""

    done: Counter[str] = field(default_factory=Counter)
    strikes: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)
    models: int = 0
    hops: int = 0

    def figures(self) -> list[Figure]:
        """Return the figures of the campaign."""
        well = sum(n for name, n in self.done.items() if name.endswith(" ok"))
        counts = {
            "operations that succeeded": well,
            "operations in all": self.done.total(),
            **{f"strikes, {kind}": n for kind, n in sorted(self.strikes.items())},
            "live models recovered": self.models,
            "hops in whole chains": self.hops,
        }
        shown = [Figure(name=name, value=n, unit="") for name, n in counts.items()]
        return [*shown, none_of_these("what went wrong", self.wrong, "things")]


class Client:
    """A process that works, started again when it was killed."""

    def __init__(self, url: str, number: int, folder: Path) -> None:
        self._url, self._number, self._starts = url, number, 0
        self.output = folder / f"client-{number}"
        self.process = self.start()

    def start(self) -> subprocess.Popen[bytes]:
        """Start the process."""
        self._starts += 1
        command = [sys.executable, "-m", "tests.bench.attack.soak_client", self._url]
        with self.output.open("ab") as output:
            self.process = subprocess.Popen(
                [*command, f"{self._number}/{self._starts}"],
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd=ROOT,
                env=os.environ | {"OMP_NUM_THREADS": "1"},
            )
        return self.process

    def kill(self) -> None:
        """Kill the process."""
        self.process.kill()
        self.process.wait()


def search(*, seed: int, cases: int) -> list[Figure]:
    """Let sessions work for so many seconds; return what that came to."""
    with server() as (cluster, template), teams_in(cluster, "soak", template) as teams:
        return soak(cluster, teams, cases, random.Random(seed)).figures()


def soak(cluster: Cluster, teams: Teams, seconds: float, source: random.Random) -> Found:
    """Let sessions work and end what they do, then look at what is left."""
    found = Found()
    with tempfile.TemporaryDirectory() as folder:
        clients = [Client(teams.url_of(who), k, Path(folder)) for k, who in enumerate(WHO)]
        try:
            deadline = time.monotonic() + seconds
            crash = time.monotonic() + CRASH_EVERY_S
            while time.monotonic() < deadline:
                time.sleep(source.uniform(0.0, PAUSE_S))
                crashes = time.monotonic() > crash
                crash += CRASH_EVERY_S if crashes else 0
                strike(teams, clients, "crash" if crashes else source.choice(STRIKES), source)
                found.strikes["crash" if crashes else "ended"] += 1
                for client in clients:
                    if client.process.poll() is not None:
                        client.start()
        finally:
            for client in clients:
                client.kill()
        for client in clients:
            lines = client.output.read_text(errors="replace").splitlines()
            said = (re.match(r"\w+ (ok|MM\d+)", line) for line in lines)
            found.done.update(one[0] for one in said if one)
            # MM408 is an error of PostgreSQL's that mmdb has no name for.
            found.wrong += [line for line in lines if re.match(r"Traceback|\w+ MM408", line)]
    settle(teams)
    look(teams, found)
    return found


def strike(teams: Teams, clients: list[Client], kind: str, source: random.Random) -> None:
    """End something that is under way."""
    if kind == "kill":
        source.choice(clients).kill()
        return
    with suppress(psycopg.Error), psycopg.connect(teams.url, autocommit=True) as session:
        pids = session.execute(
            "SELECT pid FROM pg_stat_activity WHERE state = 'active' AND datname = "
            "current_database() AND pid <> pg_backend_pid() AND backend_type = 'client backend'"
        ).fetchall()
        if not pids:
            return
        (pid,) = source.choice(pids)
        if kind == "crash":
            os.kill(pid, signal.SIGKILL)
        else:
            session.execute(f"SELECT pg_{kind}_backend({int(pid)})".encode())


def settle(teams: Teams) -> None:
    """Wait until the sessions of killed processes are gone."""
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        with suppress(psycopg.Error), psycopg.connect(teams.url, autocommit=True) as session:
            row = session.execute(
                "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() "
                "AND pid <> pg_backend_pid() AND backend_type = 'client backend'"
            ).fetchone()
            if row == (0,):
                return
        time.sleep(0.1)


def look(teams: Teams, found: Found) -> None:
    """Check what is stored."""
    checks = verify_at(teams.url)
    found.wrong += [f"{one.name}: {one.detail}" for one in checks if not one.ok]
    with teams.connect() as db:
        for row in db.sql(
            "SELECT model, version FROM mmdb.model_overview WHERE dropped_at IS NULL"
        ):
            try:
                db.recover(f"{row['model']}@{row['version']}")
                found.models += 1
            except mmdb.MmdbError as error:
                found.wrong.append(f"{row['model']}@{row['version']}: {error}")
        for row in db.sql("SELECT name FROM mmdb.run"):
            try:
                found.hops += chains(db, row["name"])
            except AssertionError as error:
                found.wrong.append(f"{row['name']}: {error}")


def chains(db: Database, run: str) -> int:
    """Return how many hops a run has, each of which begins with what the one before it left.

    Raises:
        AssertionError: one does not, or is there twice.
    """
    hops: dict[int, list[tuple[Any, ...]]] = defaultdict(list)
    for (candidate, _, _), hop in hops_of(db, run).items():
        hops[candidate].append(hop)
    for candidate, all_of_it in hops.items():
        ordered = sorted(all_of_it)
        places = [place for place, *_ in ordered]
        assert places == list(range(len(places))), f"candidate {candidate}: hops {places}"
        for before, after in pairwise(ordered):
            assert before[3] == after[2], f"candidate {candidate}: hop {after[0]} begins elsewhere"
    return sum(map(len, hops.values()))
