"""Reads below the model: one tensor, a range of rows, many clients at once."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from statistics import median, quantiles
from threading import Barrier
from time import perf_counter
from typing import Any

import torch
from torch import Tensor

from mmdb.api import Database, connect
from mmdb.bench import store_subject
from mmdb.bench.figures import Figure, at_least, at_most, is_so, least, take_turns
from mmdb.bench.networks import SMALL
from mmdb.bench.store_subject import Subject, reference

NETWORK = "resnet152"
LARGEST, SMALLEST = 1 << 20, 256 << 10  # bytes of the tensors that are read
TENSOR_BAR_MS, ROWS_BAR_MS, TORCH_BAR, RATE_BAR = 2.0, 1.0, 50.0, 1.6
READS, CLIENTS, CLIENT_S, ROUNDS = 300, 16, 4.0, 3
FEW, LOADS = 20, 9  # reads that take turns with one torch.load, and how often
ROWS_OF = "layer3.{}.conv1.weight"  # (256, 1024, 1, 1): a row of float32 is 4 KiB
#: Of each network: tensors of rows, in which parts of it they are, and how many rows each has.
ROWS = {
    NETWORK: (ROWS_OF, range(1, 36), 256),
    SMALL: ("features.{}.conv.2.weight", range(15, 18), 160),  # (160 or 320, 960, 1, 1)
}

State = Mapping[str, Tensor]


def measure_access(subject: Subject) -> Iterator[Figure]:
    """Yield the times of single reads, and the rates of one client and of sixteen."""
    (network,) = subject.networks(NETWORK)
    module = store_subject.filled(network, 50)
    state: State = module.state_dict()
    saved = subject.save("access", network, module)
    name, where = reference(saved), f"{subject.engine}, {network}"
    yield from _tensors(subject, name, state, where)
    yield from _rows(subject, name, state, f"{where}: 4 KiB of rows", *ROWS[network])
    yield from _clients(subject, name, medium(state), where)


def medium(state: State) -> list[str]:
    """Return the paths of the tensors of SMALLEST to LARGEST bytes."""
    return [path for path, tensor in state.items() if SMALLEST <= tensor.nbytes <= LARGEST]


def _tensors(subject: Subject, name: str, state: State, where: str) -> Iterator[Figure]:
    reads, where = subject.share.of(READS, 2), f"{where}: one tensor"
    file = subject.folder / "access.pt"
    store_subject.torch_save(dict(state), file)
    order = random.Random(0).choices(medium(state), k=READS * 4)
    paths = iter(order)
    one = take_turns({"mmdb": lambda: subject.db.tensor(name, next(paths))}, reads, warm=20)["mmdb"]
    yield _p50(f"{where}, p50", one, TENSOR_BAR_MS)
    yield _percentile(f"{where}, p99", one)
    turns = take_turns(
        {
            "torch": lambda: store_subject.torch_load(file),
            "mmdb": lambda: [subject.db.tensor(name, next(paths)) for _ in range(FEW)],
        },
        subject.share.of(LOADS),
    )
    faster = median(turns["torch"]) / (median(turns["mmdb"]) / FEW)
    yield at_least(f"{where}, faster than torch.load", [faster], "x", TORCH_BAR, "torch.load")
    yield least(f"{where}, torch.load of the file", turns["torch"])
    yield _same(f"{where}, same bits", {p: subject.db.tensor(name, p) for p in order[:5]}, state)


def _rows(
    subject: Subject, name: str, state: State, where: str, of: str, parts: range, rows: int
) -> Iterator[Figure]:
    draw = random.Random(1)

    def read() -> tuple[str, int, Tensor]:
        path, row = of.format(draw.choice(parts)), draw.randrange(rows)
        return path, row, subject.db.tensor(name, path, rows=(row, row + 1))

    seconds = take_turns({"mmdb": read}, subject.share.of(READS, 2), warm=20)["mmdb"]
    yield _p50(f"{where}, p50", seconds, ROWS_BAR_MS)
    yield _percentile(f"{where}, p99", seconds)
    path, row, found = read()
    yield _same(f"{where}, same bits", {path: found}, {path: state[path][row : row + 1]})


def _clients(subject: Subject, name: str, paths: Sequence[str], where: str) -> Iterator[Figure]:
    """One client and sixteen take turns: processes on PostgreSQL, threads on DuckDB."""
    together = _processes if subject.engine == "postgres" else _threads
    many, rounds = subject.share.of(CLIENTS, 2), subject.share.of(ROUNDS)
    rates: dict[int, list[float]] = {1: [], many: []}
    errors = 0
    for _ in range(rounds):
        for clients, found in rates.items():
            reports = together(subject, name, paths, clients)
            found.append(sum(report["reads"] / report["seconds"] for report in reports))
            errors += sum(report["errors"] for report in reports)
    yield at_most(f"{where}: {many} clients, errors", [errors], "", 0)
    share = max(rates[many]) / max(rates[1])
    yield at_least(f"{where}: {many} clients, rate / one client's", [share], "x", RATE_BAR)
    for clients, found in rates.items():
        label = f"{where}: tensors a second, {clients} client(s)"
        yield Figure(label, max(found), "1/s", runs=found)


def _processes(
    subject: Subject, name: str, paths: Sequence[str], clients: int
) -> list[dict[str, Any]]:
    """Run clients in processes of their own; they start to read at the same moment."""
    command = [sys.executable, "-m", "mmdb.bench.store_access", subject.db.connection.url, name]
    running = [
        subprocess.Popen(
            [*command, str(subject.share.time(CLIENT_S)), str(seed)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for seed in range(clients)
    ]
    try:
        for process in running:
            assert process.stdin is not None and process.stdout is not None
            process.stdin.write(json.dumps(list(paths)) + "\n")
            process.stdin.flush()
        for process in running:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n", "a client did not start"
        for process in running:
            assert process.stdin is not None
            process.stdin.write("go\n")
            process.stdin.flush()
        return [json.loads(process.communicate()[0]) for process in running]
    finally:
        for process in running:
            process.kill()
            process.wait()


def _threads(
    subject: Subject, name: str, paths: Sequence[str], clients: int
) -> list[dict[str, Any]]:
    """Run clients in threads, each with a session of its own: one process owns a DuckDB file."""
    barrier, seconds = Barrier(clients), subject.share.time(CLIENT_S)

    def client(seed: int) -> dict[str, Any]:
        with subject.db.session() as db:
            return read_at_random(db, name, paths, seconds, seed, barrier.wait)

    with ThreadPoolExecutor(clients) as pool:
        return list(pool.map(client, range(clients)))


def read_at_random(
    db: Database,
    name: str,
    paths: Sequence[str],
    seconds: float,
    seed: int,
    ready: Callable[[], object],
) -> dict[str, Any]:
    """Read random tensors for some seconds; return reads, seconds and errors.

    Args:
        ready: called after the first reads, which fill caches; returns when all are to start.
    """
    draw, reads, errors = random.Random(seed), 0, 0
    for _ in range(5):
        db.tensor(name, draw.choice(paths))
    ready()
    started = perf_counter()
    while (taken := perf_counter() - started) < seconds:
        try:
            db.tensor(name, draw.choice(paths))
            reads += 1
        except Exception:  # what a client meets is counted, whatever it is
            errors += 1
    return {"reads": reads, "seconds": taken, "errors": errors}


def _p50(name: str, seconds: Sequence[float], bar_ms: float) -> Figure:
    return at_most(name, [median(seconds) * 1e3], "ms", bar_ms)


def _percentile(name: str, seconds: Sequence[float]) -> Figure:
    return Figure(name, quantiles(seconds, n=100)[98] * 1e3, "ms")


def _same(name: str, found: State, expected: State) -> Figure:
    same = all(torch.equal(tensor, expected[path]) for path, tensor in found.items())
    return is_so(name, same, "= 1")


def main() -> None:
    """One of many clients: read the paths, say ready, wait for the word, read, print a report."""
    url, name, seconds, seed = sys.argv[1:]
    torch.set_num_threads(1)  # sixteen clients share a few cores
    paths = json.loads(sys.stdin.readline())

    def ready() -> None:
        print("ready", flush=True)
        sys.stdin.readline()

    with connect(url) as db:
        print(json.dumps(read_at_random(db, name, paths, float(seconds), int(seed), ready)))


if __name__ == "__main__":
    main()
