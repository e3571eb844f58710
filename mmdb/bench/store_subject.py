"""Networks that look trained, files, a database and a relay for the store's bench."""

from __future__ import annotations

import math
import os
import socket
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self
from urllib.parse import urlsplit, urlunsplit

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from mmdb.api import Database
from mmdb.bench.networks import FACTORIES, SMALL, empty
from mmdb.bench.workload import FULL, BenchShare, bench_names
from mmdb.db.login import parameters_of
from mmdb.errors import InvalidInput

BATCHES_SEEN = 450_360  # 90 epochs of 5,004 batches: 1,281,167 pictures by 256

#: What one fine-tuning step moves a weight by, in units of its tensor's standard deviation.
STEP = 0.005


def filled(name: str, seed: int) -> nn.Module:
    """Return a network for ImageNet with weights as after training, the same for a seed."""
    module = empty(name).to_empty(device="cpu")
    draw = torch.Generator().manual_seed(seed)
    for layer in module.modules():
        if isinstance(layer, nn.BatchNorm2d):
            _fill_norm(layer, draw)
        elif isinstance(layer, nn.Conv2d | nn.Linear):
            he = math.sqrt(2 / layer.weight[0].numel())  # He et al. 2015, equation 10
            layer.weight.detach().normal_(0, he, generator=draw)
            if layer.bias is not None:
                layer.bias.detach().normal_(0, 0.02, generator=draw)
    return module.eval()


def classifier_changed(module: nn.Module, seed: int, sigma: float = STEP) -> nn.Module:
    """Return a copy whose last linear layer a fine-tuning step has moved."""
    return _moved(module, seed, sigma, lambda path: path.startswith(last_linear(module)))


def last_block_changed(module: nn.Module, seed: int, sigma: float = STEP) -> nn.Module:
    """Return a copy whose last convolutional block and classifier a step has moved."""
    parts = (f"{last_block(module)}.", last_linear(module))
    return _moved(module, seed, sigma, lambda path: path.startswith(parts))


def every_weight_moved(module: nn.Module, seed: int, sigma: float = STEP) -> nn.Module:
    """Return a copy that a fine-tuning step has moved, BatchNorm's statistics with it."""
    return _moved(module, seed, sigma, lambda path: True)


def in_bfloat16(module: nn.Module) -> nn.Module:
    """Return a copy with its floats rounded to bfloat16.

    Round the two versions of a network after the step, not before: on weights that are bfloat16
    already most of a small step would round away.
    """
    return deepcopy(module).to(torch.bfloat16)


def last_linear(module: nn.Module) -> str:
    """Return the path prefix of the classifier, such as "fc."."""
    linear: list[str] = [
        path for path, layer in module.named_modules() if isinstance(layer, nn.Linear)
    ]
    return linear[-1] + "."


def last_block(module: nn.Module) -> str:
    """Return the path of the last block of the last stage, such as "layer4.2"."""
    head = last_linear(module).partition(".")[0]
    blocks: list[str] = [name for name, _ in module.named_modules() if name.count(".") == 1]
    *_, last = (name for name in blocks if name.partition(".")[0] != head)
    return last


def raw_bytes(module: nn.Module) -> int:
    """Return the bytes of a module's state dict."""
    return sum(tensor.nbytes for tensor in module.state_dict().values())


def changed_bytes(before: nn.Module, after: nn.Module) -> int:
    """Return the raw bytes of the tensors that differ."""
    old = before.state_dict()
    return sum(t.nbytes for p, t in after.state_dict().items() if not torch.equal(t, old[p]))


def _fill_norm(layer: nn.BatchNorm2d, draw: torch.Generator) -> None:
    assert layer.running_mean is not None and layer.running_var is not None
    assert layer.num_batches_tracked is not None
    layer.weight.detach().normal_(1, 0.2, generator=draw)
    layer.bias.detach().normal_(0, 0.2, generator=draw)
    layer.running_mean.normal_(0, 0.5, generator=draw)
    layer.running_var.log_normal_(0, 0.5, generator=draw)  # positive, skewed
    layer.num_batches_tracked.fill_(BATCHES_SEEN)


def _moved(module: nn.Module, seed: int, sigma: float, chosen: Callable[[str], bool]) -> nn.Module:
    copy, draw = deepcopy(module), torch.Generator().manual_seed(seed)
    for path, tensor in copy.state_dict().items():
        if not chosen(path):
            continue
        if not tensor.is_floating_point():
            tensor += 1  # a batch seen
        elif tensor.numel() > 1:
            std = sigma * float(tensor.float().std())
            tensor += torch.empty_like(tensor, dtype=torch.float32).normal_(0, std, generator=draw)
    return copy


State = dict[str, Tensor]
Save = Callable[[State, Path], int]
Load = Callable[[Path], State]


def torch_save(state: State, path: Path) -> int:
    """Write a state dict with torch.save, on the disk when it returns; return the file's bytes."""
    with path.open("wb") as file:
        torch.save(state, file)
        os.fsync(file.fileno())
    _commit_folder(path)
    return path.stat().st_size


def safetensors_save(state: State, path: Path) -> int:
    """Write a state dict as safetensors, on the disk when it returns; return the file's bytes."""
    save_file(state, path)
    with path.open("rb") as file:
        os.fsync(file.fileno())
    _commit_folder(path)
    return path.stat().st_size


def torch_load(path: Path) -> State:
    """Read a state dict into memory of its own."""
    state: State = torch.load(path, weights_only=True)
    return state


def safetensors_load(path: Path) -> State:
    """Read a state dict into memory of its own, as a model that is to be trained needs it.

    `load_file` alone maps the file: its tensors are read when they are first used.
    """
    return {name: tensor.clone() for name, tensor in load_file(path).items()}


def _commit_folder(path: Path) -> None:
    """Make the file's name durable too."""
    descriptor = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def own_cache(folder: Path, limit_bytes: int = 8 << 30) -> Iterator[None]:
    """Let this process keep what it recovers in a folder of the bench's, which may be emptied."""
    before = dict(os.environ)
    os.environ.update(MMDB_CACHE_DIR=str(folder), MMDB_CACHE_BYTES=str(limit_bytes))
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


MB = 1e6

#: Tables whose rows a saved model adds to, beside its chunks.
ROW_TABLES = (
    "tensor encoding environment architecture architecture_node architecture_edge definition "
    "manifest manifest_tensor model model_change recipe recipe_tensor model_metric"
).split()

#: Bytes of a row `t`. PostgreSQL says them, header included; of DuckDB's columns, which are packed
#: together, the row as JSON is more than they take.
ROW_BYTES = {
    "postgres": "pg_column_size(t.*)",
    "duckdb": "octet_length(encode(to_json(t)::varchar))",
}


@dataclass(frozen=True, slots=True)
class StoredBytes:
    """Bytes in the store."""

    chunks: int  # of tensors, as they are encoded
    rows: int  # of the rows that describe them
    space: int  # that the relations, or the file, take up

    @property
    def total(self) -> int:
        """The cost of a save: encoded bytes and rows."""
        return self.chunks + self.rows

    def __sub__(self, other: StoredBytes) -> StoredBytes:
        return StoredBytes(
            self.chunks - other.chunks, self.rows - other.rows, self.space - other.space
        )


@dataclass(frozen=True, slots=True)
class Subject:
    """A database, a prefix for the names of what the bench makes there, and a scratch folder."""

    db: Database
    prefix: str
    folder: Path
    share: BenchShare = FULL

    @property
    def engine(self) -> str:
        """The engine's name, with which the figures start."""
        return self.db.connection.engine

    def networks(self, *names: str) -> tuple[str, ...]:
        """Return the networks to measure: these, or the smallest one for a share."""
        return names if self.share.is_full else (SMALL,)

    def name(self, label: str) -> str:
        """Return the name of a model of this bench."""
        return f"{self.prefix}-{label}"

    def register_factories(self) -> None:
        """Let the database build the bench's networks."""
        targets = {name: f"mmdb.bench.networks:{name}" for name in FACTORIES}
        for name, target in (targets | {"stack": "mmdb.bench.store_catalog:stack"}).items():
            self.db.register_factory(f"{self.prefix}_{name}", target)

    def save(self, label: str, network: str, module: nn.Module, parent: Any = None) -> Any:
        """Save a network in the default configuration, as a version of the model `label`."""
        of = None if parent is None else reference(parent)
        return self.db.save(self.name(label), module, parent=of)

    def stored(self) -> StoredBytes:
        """Return the bytes in the store now."""
        return StoredBytes(
            chunks=self._number(
                "SELECT sum(octet_length(c.data)) AS n FROM mmdb.tensor_chunk AS c"
            ),
            rows=sum(map(self._row_bytes, ROW_TABLES)),
            space=self._space(),
        )

    def _row_bytes(self, table: str) -> int:
        return self._number(f"SELECT sum({ROW_BYTES[self.engine]}) AS n FROM mmdb.{table} AS t")

    def _space(self) -> int:
        if self.engine == "postgres":
            return self._number(
                "SELECT sum(pg_total_relation_size(c.oid)) AS n FROM pg_class AS c "
                "WHERE c.relnamespace = 'mmdb'::regnamespace AND c.relkind = 'r'"
            )
        self.db.sql("CHECKPOINT")
        return self._number("SELECT sum(used_blocks * block_size) AS n FROM pragma_database_size()")

    def _number(self, statement: str) -> int:
        return int(self.db.sql(statement)[0]["n"] or 0)


def reference(saved: Any) -> str:
    """Return `name@version` of a saved model."""
    return f"{saved.name}@{saved.version}"


def settle(subject: Subject, tables: Sequence[str] = ROW_TABLES) -> None:
    """Bring the planner's statistics up to date after many rows were added at once."""
    if subject.engine == "postgres":
        for table in tables:
            subject.db.sql(f"ANALYZE mmdb.{table}")


@contextmanager
def subject_in(db: Database, share: BenchShare = FULL) -> Iterator[Subject]:
    """Yield a database with the networks' factories, and delete afterwards all that it made."""
    with tempfile.TemporaryDirectory(prefix="mmdb-bench-") as folder, bench_names(db) as prefix:
        subject = Subject(db, prefix, Path(folder), share)
        subject.register_factories()
        yield subject


class Wire:
    """Listens on a port of this machine and passes everything on to a server; use it in `with`.

    Attributes:
        url: the server's URL, by way of the relay.
    Raises:
        InvalidInput: the URL names several hosts, or a socket.
    """

    def __init__(self, url: str) -> None:
        parts, given = urlsplit(url), parameters_of(url)
        host = given.get("host", "localhost")
        if "," in host or "host=" in parts.query:
            raise InvalidInput(
                "Bytes are counted on the way to one host.",
                hint="Give one, as in postgresql://user@host:port/database.",
            )
        self._server = (host, int(given.get("port", 5432)))
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

    def __exit__(self, *error: object) -> None:
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
                    passed = (source, target, sent)
                    threading.Thread(target=self._pump, args=passed, daemon=True).start()

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
