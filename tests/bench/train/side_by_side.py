"""mmdb's hopping beside what a user would pick instead: same models, same rows, same two cores.

    python -m tests.bench.train.side_by_side [--database URL ...] [--ray PYTHON]

Contenders take turns, round by round; the best round of each counts, and one that takes minutes has
one. `training` runs from the first step of warm workers to the last, `whole` is the command with
its start-up. PYTHON has `ray[tune]`:

    python -m venv /tmp/peers
    /tmp/peers/bin/pip install "ray[tune]==2.60.0" torch==2.13.0 numpy
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path
from statistics import mean

import psycopg

from mmdb.bench.figures import Figure, report, write_json
from mmdb.terminal import console, show_rows
from tests.bench.train.contenders import Contender, Measured, contenders
from tests.bench.train.workload import WORKERS, WORKLOADS, Workload
from tests.cluster import Cluster

MB = 1e6
FLOOR = "plain loop"
FLOOR_BAR = 1.05
#: How many times as fast as a peer, by the name of the workload; 1 where there is no entry.
FASTER_BARS = {("PyTorch DDP", "mlp, batch 32"): 3.0}
#: Seconds of a round after which a contender gets no other.
LONG_S = 120.0
#: Accuracies of equal candidates differ by so much where only the order of the rows does.
NOISE = 0.02

Rounds = dict[str, list[Measured]]


def measure(options: argparse.Namespace, urls: Sequence[str], workload: Workload) -> Rounds:
    """Let the contenders take turns and return their rounds by name."""
    with (
        tempfile.TemporaryDirectory(prefix="mmdb-bench-") as folder,
        contenders(urls, workload, Path(folder), options.ray) as found,
    ):
        chosen = [c for c in found if not options.only or c.name in options.only]
        rounds: Rounds = {contender.name: [] for contender in chosen}
        for number in range(options.rounds):
            for contender in chosen:
                if any(measured.whole_s > LONG_S for measured in rounds[contender.name]):
                    continue
                with console.status(f"{workload.name}, round {number + 1}: {contender.name}"):
                    rounds[contender.name].append(contender.train())
        _show(workload, chosen, rounds)
        return rounds


def _show(workload: Workload, chosen: Sequence[Contender], rounds: Rounds) -> None:
    floor = min((m.train_s for m in rounds.get(FLOOR, [])), default=float("nan"))
    rows = []
    for contender in chosen:
        best = min(rounds[contender.name], key=lambda m: m.train_s)
        copies = WORKERS if contender.copies_rows else 1
        rows.append(
            {
                "contender": contender.name,
                "training, s": f"{best.train_s:.2f}",
                "of the floor": f"{best.train_s / floor:.3f}",
                "whole, s": f"{min(m.whole_s for m in rounds[contender.name]):.1f}",
                "rows on disk, MB": f"{best.data_bytes / MB:.0f}",
                f"on {WORKERS} nodes, MB": f"{copies * best.data_bytes / MB:.0f}",
                "left, MB": f"{best.left_bytes / MB:.1f}",
                "peak memory, MB": f"{max(m.peak_bytes for m in rounds[contender.name]) / MB:.0f}",
                "mean accuracy": f"{mean(best.accuracies):.4f}",
                "best accuracy": f"{max(best.accuracies):.4f}",
            }
        )
    show_rows(f"{workload.name}: 8 candidates, {workload.epochs} epochs, 2 cores", rows)


def figures(workload: Workload, rounds: Rounds) -> Iterator[Figure]:
    """Yield what was measured, with the bars."""
    for name, found in rounds.items():
        seconds = [measured.train_s for measured in found]
        yield Figure(
            name=f"{workload.name}: {name}", value=min(seconds), unit="s", runs=list(seconds)
        )
    floor = rounds.get(FLOOR)
    for name in [name for name in rounds if name.startswith("mmdb")]:
        best = min(measured.train_s for measured in rounds[name])
        where = f"{workload.name}: {name}"
        if floor:
            yield _within_floor(where, best, min(m.train_s for m in floor))
            yield _same_accuracy(where, rounds[name][0], floor[0])
        for peer in ("Ray Tune", "PyTorch DDP"):
            if peer in rounds:
                bar = FASTER_BARS.get((peer, workload.name), 1.0)
                times = min(m.train_s for m in rounds[peer]) / best
                yield Figure(
                    name=f"{where}, times as fast as {peer}",
                    value=times,
                    unit="x",
                    peer=peer,
                    bar=f">= {bar:g}",
                    holds=times >= bar,
                )


def _within_floor(where: str, best: float, floor: float) -> Figure:
    return Figure(
        name=f"{where} / plain loop",
        value=best / floor,
        unit="x",
        peer=FLOOR,
        bar=f"<= {FLOOR_BAR:g}",
        holds=best / floor <= FLOOR_BAR,
    )


def _same_accuracy(where: str, found: Measured, floor: Measured) -> Figure:
    apart = abs(mean(found.accuracies) - mean(floor.accuracies))
    return Figure(
        name=f"{where}, mean accuracy apart from the plain loop's",
        value=apart,
        unit="",
        peer=FLOOR,
        bar=f"<= {NOISE:g}",
        holds=apart <= NOISE,
    )


def _verdict(figure: Figure) -> dict[str, object]:
    holds = {True: "holds", False: "MISSED", None: ""}[figure.holds]
    return {
        "figure": figure.name,
        "value": figure.value,
        "unit": figure.unit,
        "bar": figure.bar,
        "": holds,
    }


def databases(stack: ExitStack, given: Sequence[str] | None) -> list[str]:
    """Return the databases to measure: those given, or a fresh one on each engine."""
    if given:
        return list(given)
    from mmdb.db.install import install

    folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="mmdb-bench-"))
    cluster = stack.enter_context(Cluster())
    url = cluster.create_database("bench")
    with suppress(psycopg.errors.DuplicateObject), psycopg.connect(url) as connection:
        connection.execute("CREATE EXTENSION plpython3u")
    install(url)
    return [url, f"duckdb:///{folder}/bench.duckdb"]


def main() -> int:
    """Measure, print the tables and the bars; return 1 if one is missed."""
    names = [workload.name for workload in WORKLOADS]
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--database", metavar="URL", action="append")
    parser.add_argument("--ray", metavar="PYTHON", help="one that has ray[tune]")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--scale", type=float, default=1.0, help="of the number of rows")
    parser.add_argument("--workload", choices=names, action="append")
    parser.add_argument("--only", metavar="CONTENDER", action="append")
    parser.add_argument("--json", metavar="FILE")
    options = parser.parse_args()
    found: list[Figure] = []
    with ExitStack() as stack:
        urls = databases(stack, options.database)
        for workload in WORKLOADS:
            if workload.name in (options.workload or names):
                sized = replace(workload, rows=int(workload.rows * options.scale))
                found += figures(sized, measure(options, urls, sized))
    if not options.ray:
        reason = "Ray Tune: not run, no --ray PYTHON was given"
        found.append(Figure(name=reason, value=float("nan"), unit=""))
    show_rows("training, side by side", [_verdict(figure) for figure in found])
    if options.json:
        write_json(options.json, report("training side by side", found))
    return 0 if all(figure.holds is not False for figure in found) else 1


if __name__ == "__main__":
    sys.exit(main())
