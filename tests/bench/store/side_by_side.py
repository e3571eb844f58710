"""The store beside peers that mmdb does not depend on, in one run.

    python -m tests.bench.store.side_by_side --database URL [--database URL] [--mmlib FOLDER]

h5py and MLflow are the extra `bench`; MMLib is a folder with a checkout of it. What is not there is
left out, and a figure says so. MLflow needs a PostgreSQL server: the first one among the databases.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from importlib.util import find_spec
from pathlib import Path

import torch

from mmdb.bench.figures import Figure, report, write_json
from mmdb.bench.store_subject import Subject, subject_in
from mmdb.bench.workload import bench_database
from mmdb.terminal import show_rows
from tests.bench.store.versus_h5py import measure_h5py
from tests.bench.store.versus_mlflow import measure_mlflow
from tests.bench.store.versus_mmlib import measure_mmlib

Group = Callable[[Subject], Iterator[Figure]]


def groups(given: argparse.Namespace) -> dict[str, Group]:
    """Return what can be measured with what is there."""
    found: dict[str, Group] = {}
    servers = [url for url in given.database or [] if url.startswith("postgres")]
    if find_spec("h5py"):
        found["h5py"] = measure_h5py
    if find_spec("mlflow") and servers:
        found["mlflow"] = lambda subject: measure_mlflow(subject, servers[0], given.versions)
    if given.mmlib and find_spec("bson"):
        found["mmlib"] = lambda subject: measure_mmlib(subject, given.mmlib)
    return found


def missing(found: dict[str, Group]) -> Iterator[Figure]:
    """Yield a figure for each peer that cannot be run here, with the reason in its name."""
    reasons = {
        "h5py": "the package h5py is not installed",
        "mlflow": "the package mlflow is not installed, or no PostgreSQL was given",
        "mmlib": "no --mmlib FOLDER was given, or the package pymongo is not installed",
    }
    for peer, reason in reasons.items():
        if peer not in found:
            yield Figure(name=f"{peer}: not run, {reason}", value=float("nan"), unit="")


def main() -> int:
    """Measure every database beside every peer and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--database", metavar="URL", action="append")
    parser.add_argument("--mmlib", metavar="FOLDER", type=Path)
    parser.add_argument("--versions", type=int, default=100, help="of MLflow's chain (100)")
    parser.add_argument("--only", choices=("h5py", "mlflow", "mmlib"), action="append")
    parser.add_argument("--json", metavar="FILE")
    given = parser.parse_args()
    found = groups(given)
    figures = list(missing(found))
    with ExitStack() as stack:
        databases = [stack.enter_context(bench_database(url)) for url in given.database or [None]]
        for peer, measure in found.items():
            for db in databases if peer in (given.only or found) else []:
                with subject_in(db) as subject, torch.no_grad():
                    figures += measure(subject)
    show_rows(
        "store, side by side",
        [{"figure": f.name, "value": f.value, "unit": f.unit, "bar": f.bar} for f in figures],
    )
    if given.json:
        write_json(given.json, report("store side by side", figures))
    return 0 if all(figure.holds is not False for figure in figures) else 1


if __name__ == "__main__":
    sys.exit(main())
