"""`mmdb bench store`: models saved, recovered and read, and their bytes on the wire."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit, urlunsplit

import torch

from mmdb.api import Database, connect
from mmdb.bench import store_subject
from mmdb.bench.figures import Figure, at_most
from mmdb.bench.store_access import measure_access
from mmdb.bench.store_catalog import measure_catalog
from mmdb.bench.store_models import (
    measure_chain,
    measure_provenance,
    measure_recovery,
    measure_saves,
    measure_sizes,
    same_bits,
)
from mmdb.bench.store_subject import MB, Subject, reference, subject_in
from mmdb.bench.workload import BenchShare


class Wire:
    """Listens on a port of this machine and passes everything on to a server; use it in `with`.

    Attributes:
        url: the server's URL, by way of the relay.
    """

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self._server = (parts.hostname or "localhost", parts.port or 5432)
        self._listener = socket.create_server(("127.0.0.1", 0))
        login, at, _ = parts.netloc.rpartition("@")
        port = self._listener.getsockname()[1]
        self.url = urlunsplit(parts._replace(netloc=f"{login}{at}127.0.0.1:{port}"))
        self._lock = threading.Lock()
        self._sent = self._received = 0
        self._sockets: list[socket.socket] = [self._listener]

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for open_socket in self._sockets:
            with suppress(OSError):
                open_socket.shutdown(socket.SHUT_RDWR)
            open_socket.close()

    @property
    def passed(self) -> tuple[int, int]:
        """Bytes so far to the server and from it."""
        with self._lock:
            return self._sent, self._received

    def _accept(self) -> None:
        with suppress(OSError):  # the listener is closed
            while True:
                client, _ = self._listener.accept()
                server = socket.create_connection(self._server)
                self._sockets += [client, server]
                for source, target, sent in ((client, server, True), (server, client, False)):
                    threading.Thread(
                        target=self._pump, args=(source, target, sent), daemon=True
                    ).start()

    def _pump(self, source: socket.socket, target: socket.socket, sent: bool) -> None:
        with suppress(OSError):
            while data := source.recv(1 << 16):
                with self._lock:
                    if sent:
                        self._sent += len(data)
                    else:
                        self._received += len(data)
                target.sendall(data)
            target.shutdown(socket.SHUT_WR)


WIRE_BAR = 1.05  # of what the update stores


def measure_push(subject: Subject) -> Iterator[Figure]:
    """Yield what a node with a DuckDB file sends to the subject's server; both directions count.

    A DuckDB file is no server: nothing passes a wire there.
    """
    if subject.engine != "postgres":
        return
    for network in subject.networks("resnet18", "resnet152"):
        yield from _push(subject, network)


def _push(subject: Subject, network: str) -> Iterator[Figure]:
    fresh = store_subject.filled(network, 70)
    changed = store_subject.classifier_changed(fresh, 71)
    label = f"push-{network}"
    with connect(f"duckdb:///{subject.folder / network}.duckdb") as edge:
        node = Subject(edge, subject.prefix, subject.folder)
        node.register_factories()
        base = node.save(label, network, fresh)
        edge.push(reference(base), to=subject.db.connection.url)
        update = reference(node.save(label, network, changed, base))
        before = subject.stored()
        with Wire(subject.db.connection.url) as wire:
            edge.push(update, to=wire.url)
            passed = sum(wire.passed)
        stored = subject.stored() - before
    where = f"{subject.engine}, {network}: push, classifier changed"
    yield at_most(f"{where}, wire / stored", [passed / stored.total], "x", WIRE_BAR)
    yield Figure(name=f"{where}, on the wire", value=passed / MB, unit="MB")
    yield same_bits(f"{where}, recovered bit for bit", subject.db.recover(update), changed)


GROUPS: tuple[Callable[[Subject], Iterator[Figure]], ...] = (
    measure_sizes,
    measure_saves,
    measure_recovery,
    measure_access,
    measure_provenance,
    measure_push,
    measure_catalog,
    measure_chain,
)


def bench_store(databases: list[Database], share: BenchShare) -> Iterator[Figure]:
    """Measure every database in one run, each group of figures on both before the next."""
    for measure in GROUPS:
        for db in databases:
            with subject_in(db, share) as subject, torch.no_grad():
                yield from measure(subject)
