"""What sessions cost the driver and the coordinator: workers that only wait, each over its own.

    python -m tests.bench.scale.sessions --workers 1000
    python -m tests.bench.scale.sessions --workers 100 --citus 2

A hop is one statement that sleeps inside the server (on Citus: inside a function that the
coordinator delegates to the node of a shard), from a thread of this process. Nothing is trained.
Printed: processor time of this process and of the server that answers it, each per hop; memory of
its sessions, shared pages counted once (PSS).
"""

from __future__ import annotations

import argparse
import threading
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from time import perf_counter, process_time, sleep

import psycopg

from tests.citus_cluster import CitusCluster
from tests.cluster import Cluster

#: The shape of `train_hop`: one row of twenty values, after so many seconds.
ROW = ", ".join(f"{k}::bigint AS c{k}" for k in range(20))
PLAIN = f"SELECT {ROW} FROM pg_sleep(%(seconds)s)"
DELEGATED = "SELECT wait(%(place)s, %(seconds)s)"
SETUP = (
    "CREATE TABLE place (place bigint PRIMARY KEY)",
    "SELECT create_distributed_table('place', 'place')",
    "CREATE FUNCTION wait(place bigint, seconds float8) RETURNS bigint LANGUAGE plpgsql "
    "AS $$ BEGIN PERFORM pg_sleep(seconds); RETURN 1; END $$",
    "SELECT create_distributed_function('wait(bigint, float8)', 'place', colocate_with => 'place')",
)


def main(arguments: Sequence[str] | None = None) -> None:
    """Start servers, let the workers wait for a while, and print what it cost."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workers", type=int, default=1000)
    parser.add_argument("--citus", type=int, default=0, metavar="NODES")
    parser.add_argument("--hop", type=float, default=2.0, help="seconds of a hop")
    parser.add_argument("--window", type=float, default=30.0, help="seconds")
    given = parser.parse_args(arguments)
    settings = {"max_connections": str(given.workers + 50)}
    with ExitStack() as stack:
        if given.citus:
            citus = stack.enter_context(CitusCluster(given.citus, settings))
            server, url = citus.coordinator, citus.create_database("scale")
            with psycopg.connect(url, autocommit=True) as connection:
                for statement in SETUP:
                    connection.execute(statement)
        else:
            server = stack.enter_context(Cluster(settings))
            url = server.url()
        statement = DELEGATED if given.citus else PLAIN
        _measure(server, url, statement, given.workers, given.hop, given.window)


def _measure(
    server: Cluster, url: str, statement: str, workers: int, hop_s: float, window_s: float
) -> None:
    stop, hops = threading.Event(), [0] * workers

    def work(number: int) -> None:
        with psycopg.connect(url, autocommit=True) as connection:
            while not stop.is_set():
                connection.execute(statement, {"place": number, "seconds": hop_s}, binary=True)
                hops[number] += 1

    threads = [threading.Thread(target=work, args=(number,)) for number in range(workers)]
    for thread in threads:
        thread.start()
    while not all(hops):
        sleep(0.1)
    began, ours, theirs, done = perf_counter(), process_time(), _cpu_s(server.pid), sum(hops)
    sleep(window_s)
    span = perf_counter() - began
    ours, theirs = process_time() - ours, _cpu_s(server.pid) - theirs
    done, memory = sum(hops) - done, [_pss_mb(pid) for pid in _children(server.pid)]
    stop.set()
    for thread in threads:
        thread.join()
    print(f"{workers} sessions, {done / span:.1f} hops/s of {workers / hop_s:g}")
    print(f"this process: {ours / done * 1e3:.3f} ms a hop")
    print(f"its server:   {theirs / done * 1e3:.3f} ms a hop, {theirs / span:.1%} of a processor")
    print(f"its sessions: {sum(memory):.0f} MB, {sum(memory) / workers:.2f} MB each")


def _children(pid: int) -> list[int]:
    return [int(p) for p in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def _cpu_s(pid: int) -> float:
    """Return the processor seconds of a server's processes that are there now."""
    spent = (Path(f"/proc/{child}/schedstat").read_text() for child in (pid, *_children(pid)))
    return sum(int(text.split()[0]) for text in spent) / 1e9


def _pss_mb(pid: int) -> float:
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return int(next(line.split()[1] for line in lines if line.startswith("Pss:"))) / 1e3


if __name__ == "__main__":
    main()
