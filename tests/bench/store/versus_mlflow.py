"""mmdb beside MLflow's registry: a network that is fine-tuned over and over."""

from __future__ import annotations

from collections.abc import Iterator
from time import perf_counter
from typing import Any

from mmdb.bench.figures import Figure, least
from mmdb.bench.store_models import CHAIN_NETWORK, chain
from mmdb.bench.store_subject import MB, Subject
from tests.bench.store.peer_mlflow import registry


def measure_mlflow(subject: Subject, server_url: str, versions: int) -> Iterator[Figure]:
    """Yield bytes and seconds of the same chain in both; the two take turns, version by version.

    Args:
        server_url: a PostgreSQL server where MLflow may have a database of its own.
    """
    folder = subject.folder / "mlflow"
    folder.mkdir()
    ours, theirs = list[float](), list[float]()
    saved: Any = None
    with registry(server_url, folder) as mlflow:
        files, rows = mlflow.stored_bytes()
        before = subject.stored()
        for module in chain(versions):
            started = perf_counter()
            saved = subject.save("mlflow", CHAIN_NETWORK, module, saved)
            between = perf_counter()
            mlflow.save("chain", module)
            ours.append(between - started)
            theirs.append(perf_counter() - between)
        stored = subject.stored() - before
        files_after, rows_after = mlflow.stored_bytes()
    where = f"{subject.engine}, {CHAIN_NETWORK}, {versions} versions in a chain"
    taken = files_after - files + rows_after - rows
    yield Figure(name=f"{where}: stored", value=stored.total / MB, unit="MB")
    yield Figure(name=f"{where}: space on the disk", value=stored.space / MB, unit="MB")
    yield Figure(name=f"{where}: MLflow, files + database", value=taken / MB, unit="MB")
    yield Figure(name=f"{where}: stored / MLflow's", value=stored.total / taken, unit="x")
    yield least(f"{where}: save", ours[1:])
    yield least(f"{where}: MLflow, save (no fsync)", theirs[1:])
