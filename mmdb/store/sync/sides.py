"""Two databases between which tensors are copied, and what one knows of the other's."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from mmdb.db.connection import Connection
from mmdb.db.queries import load
from mmdb.errors import CorruptTensor
from mmdb.store.recover import Verify
from mmdb.store.sync.plan import BATCH_BYTES, Described, Held

_Q = load("sync")
_T = load("tensors")

ChunkRow = tuple[int, int, int, bytes, bytes]  # tensor_id, ordinal, codec, digest, data
EncodingRow = tuple[int | None, ...]  # the parameters of `add_encoding`


@dataclass(slots=True)
class Progress:
    """What a copy has sent so far, and who is told."""

    report: Callable[[int, int], None] = lambda done, total: None
    total: int = 0  # stored bytes to be sent, as far as planned
    bytes: int = 0
    tensors: int = 0
    chunks: int = 0

    def expect(self, size: int) -> None:
        """Add to what is to be sent."""
        self.total += size
        self.report(self.bytes, self.total)

    def add(self, size: int) -> None:
        """Add to what has been sent."""
        self.bytes += size
        self.total = max(self.total, self.bytes)
        self.report(self.bytes, self.total)


@dataclass(slots=True, kw_only=True)
class Exchange:
    """Two databases, and what one knows of the other's tensors."""

    source: Connection
    target: Connection
    verify: Verify = "full"
    batch_bytes: int = BATCH_BYTES
    progress: Progress = field(default_factory=Progress)
    held: dict[bytes, Held] = field(default_factory=dict)

    @property
    def checks_at_target(self) -> bool:
        """Whether tensors are compared with their hashes where they arrive.

        That is where no wire lies before their bytes: at the source, unless only the target is a
        file.
        """
        return self.target.engine == "duckdb" and self.source.engine == "postgres"

    def ask(self, hashes: Iterable[bytes]) -> None:
        """Learn which of some tensors the target has."""
        wanted = list(dict.fromkeys(hashes))
        for row in self.target.rows(_T.find_tensors, hashes=wanted) if wanted else ():
            self.held[bytes(row["tensor_hash"])] = Held(
                row["tensor_id"], row["chunk_bytes"], row["base_id"] is not None
            )

    def own_id(self, tensor: Described) -> int:
        """Return the number that a tensor has at the target."""
        return self.held[tensor.tensor_hash].tensor_id

    def describe(self, tensor_ids: Iterable[int]) -> list[Described]:
        """Return what the source says of some tensors."""
        wanted = list(dict.fromkeys(tensor_ids))
        if not wanted:
            return []
        rows = self.source.rows(_Q.describe_tensors, tensor_ids=wanted)
        return [Described.from_row(row) for row in rows]


def name_tensors(exchange: Exchange, tensors: Sequence[Described]) -> None:
    """Name tensors at the target, in the order of their hashes as every session does."""
    columns = list(_T.add_tensor.parameters)
    by_hash = {tensor.tensor_hash: tensor for tensor in tensors}
    ordered = [by_hash[name] for name in sorted(by_hash)]
    exchange.target.run_many(
        _T.add_tensor, [dict(zip(columns, tensor.row(), strict=True)) for tensor in ordered]
    )
    exchange.ask(tensor.tensor_hash for tensor in ordered)


def check_arrival(exchange: Exchange, rows: Sequence[EncodingRow]) -> None:
    """Compare chunks and bytes at the target with what was sent. Its SQL has no BLAKE3."""
    (found,) = exchange.target.rows(_Q.measure_stored, tensor_ids=[row[0] for row in rows])
    expected = (sum(row[4] or 0 for row in rows), sum(row[5] or 0 for row in rows))
    if (found["chunks"], found["bytes"]) != expected:
        raise CorruptTensor(
            f"Of {expected[0]} chunks with {expected[1]} bytes, {found['chunks']} with "
            f"{found['bytes']} arrived.",
            hint="Push or pull it again.",
        )
