"""One bench over one or several databases: table on the terminal, JSON on request."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

from mmdb.api import Database
from mmdb.bench.figures import Figure, report, write_json
from mmdb.bench.hop import bench_hop
from mmdb.bench.ingest import bench_ingest
from mmdb.bench.load import Load, bench_load
from mmdb.bench.store import bench_store
from mmdb.bench.train import bench_train
from mmdb.bench.workload import BenchShare, bench_database
from mmdb.terminal import console, show_rows

#: Measures databases; its share is a `Share`, or a subclass with options of its own.
Bench = Callable[[list[Database], Any], Iterable[Figure]]

BENCHES: dict[str, Bench] = {
    "hop": bench_hop,
    "ingest": bench_ingest,
    "load": bench_load,
    "store": bench_store,
    "train": bench_train,
}


def run_bench(
    name: str,
    urls: list[str] | None,
    json_file: str | None,
    options: Mapping[str, Any] | None = None,
) -> int:
    """Run a bench of BENCHES and print its figures; return 0 if every bar holds, else 1.

    Args:
        options: fields of the bench's share; those that are None are left out.
    """
    share = share_of(Load if name == "load" else BenchShare, options or {})
    return status(measure(name, BENCHES[name], share, urls, json_file))


def share_of(kind: type[BenchShare], options: Mapping[str, Any]) -> BenchShare:
    """Return a share with the options that are not None."""
    return kind(**{name: value for name, value in options.items() if value is not None})


def measure(
    name: str, bench: Bench, share: BenchShare, urls: list[str] | None, json_file: str | None
) -> list[Figure]:
    """Run a bench, print its figures and return them. Below the full size none has a bar."""
    figures: list[Figure] = []
    try:
        with ExitStack() as stack, console.status(f"measuring {name}"):
            chosen: list[str | None] = [*urls] if urls else [None]
            databases = [stack.enter_context(bench_database(url)) for url in chosen]
            for figure in bench(databases, share):  # kept before what it took is cleaned up
                figures.append(figure if share.is_full else replace(figure, bar="", holds=None))
                if json_file:
                    write_json(json_file, report(name, figures, share.share))
    finally:
        show(f"bench {name}", figures)
    return figures


def status(figures: Sequence[Figure]) -> int:
    """Return the exit code: 0 if every bar holds, else 1."""
    return 0 if all(figure.holds is not False for figure in figures) else 1


def show(title: str, figures: Sequence[Figure]) -> None:
    """Print figures beside their bars."""
    holds = {True: "holds", False: "MISSED", None: ""}
    rows = [
        {"figure": f.name, "value": f.value, "unit": f.unit, "bar": f.bar, "": holds[f.holds]}
        for f in figures
    ]
    show_rows(title, rows, folded="figure")
