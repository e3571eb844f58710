"""What the features of a run are asked for, under what conditions, and what they cost. Pure."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Demand:
    """Frozen layers that candidates of a run have in common, and their features.

    Attributes:
        key: names it in the plan.
        backbone: equal for prefixes of one network with the same tensors.
        candidates: that train on its features.
        passes: over the rows, of each candidate: epochs, a mean where they differ.
        rows: of all partitions, those of validation too.
        row_s: seconds in which a row passes the layers, from the raw rows on.
        disk_bytes: of all rows in the database, as they are stored.
        cache_bytes: of all rows in a node's cache, decoded.
        partition_bytes: of the largest partition, decoded.
        raw_bytes: of all raw rows, decoded; what streaming reads instead.
        found_rows: whose features the database has already.
        is_source: deeper features can be computed from these: float32, not pooled.
        fixed: the only possible choice, and why; "streamed" or "whole".
    """

    key: str
    backbone: str
    candidates: int
    passes: float
    rows: int
    row_s: float
    disk_bytes: int
    cache_bytes: int
    partition_bytes: int
    raw_bytes: int = 0
    found_rows: int = 0
    is_source: bool = False
    fixed: tuple[str, str] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Conditions:
    """Where a run trains, and the budgets of its features.

    Attributes:
        disk_bytes: that the features may take in the database.
        memory_bytes: that they may take on each node, outside of the database.
        write_byte_s, read_byte_s: seconds in which a byte is encoded and written to the database,
            or read from it and decoded into a node's cache.
        map_byte_s: seconds in which a hop takes a byte of rows out of the cache.
        nodes: that train on each partition.
        workers: on each node.
        fuse: candidates of a fused hop, at most; 1: none is fused.
        reuse: later runs that will use what is stored now, and compute the rest again.
    """

    disk_bytes: int
    memory_bytes: int
    write_byte_s: float
    read_byte_s: float
    map_byte_s: float = 0.0
    nodes: int = 1
    workers: int = 1
    fuse: int = 1
    reuse: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """Seconds of all workers in one run.

    Attributes:
        compute_s: in the frozen layers. What a pass has in common is with the shallowest prefix
            that comes out of it.
        write_s: into the database.
        read_s: out of the database, and of rows out of the cache.
    """

    compute_s: float = 0.0
    write_s: float = 0.0
    read_s: float = 0.0

    @property
    def seconds(self) -> float:
        """Seconds altogether."""
        return self.compute_s + self.write_s + self.read_s
