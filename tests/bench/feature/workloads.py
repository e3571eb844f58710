"""Runs on which a choice is to be the best one: cheap and costly backbones, narrow features and
wide ones, few uses and many."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tests.bench.feature.networks import FEATURES
from tests.bench.feature.subject import HEADS

#: Numbers of a row.
COLUMNS = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """A run.

    Attributes:
        cuts: modules of `tower` to freeze up to.
        heads: of each cut.
        memory_bytes, disk_bytes: of the run option; None: as it is without.
    """

    width: int = 512
    depth: int = 2
    features: int = 64
    rows: int = 4_000
    heads: int = 4
    epochs: int = 3
    fuse: int = 8
    cuts: tuple[str, ...] = (FEATURES,)
    memory_bytes: int | None = None
    disk_bytes: int | None = None

    def __str__(self) -> str:
        """Return what tells it from others."""
        told = [
            f"{self.depth}x{self.width}->{self.features}",
            f"{len(self.cuts)} cuts x {self.heads} heads x {self.epochs} epochs",
            f"{self.rows} rows",
        ]
        for name, size in (("memory", self.memory_bytes), ("disk", self.disk_bytes)):
            if size is not None:
                told.append(f"{name} {size / 1e6:g} MB")
        return ", ".join([*told, *([] if self.fuse > 1 else ["not fused"])])

    @property
    def arguments(self) -> dict[str, int]:
        """Of the factory `tower`."""
        return {"width": self.width, "depth": self.depth, "features": self.features}

    @property
    def space(self) -> dict[str, Any]:
        """Of the search."""
        return {"freeze_up_to": list(self.cuts), "head": list(HEADS[: self.heads])}

    @property
    def options(self) -> dict[str, int]:
        """The run option `features`."""
        given = {"memory_bytes": self.memory_bytes, "disk_bytes": self.disk_bytes}
        sizes = {name: size for name, size in given.items() if size is not None}
        return {"fuse": self.fuse, "reuse": 0} | sizes


WORKLOADS = (
    # Costly layers, narrow features: anything but streaming them.
    Workload(width=1024, depth=4),
    Workload(width=1024, depth=4, fuse=1),
    Workload(width=1024, depth=3, memory_bytes=0),
    Workload(width=1024, depth=3, cuts=("layer1", FEATURES)),
    # Wide features of layers that cost little: writing them may not pay.
    Workload(width=256, depth=1, features=2048, heads=2, rows=8_000),
    Workload(width=256, depth=1, features=2048, memory_bytes=0, rows=8_000),
    Workload(width=128, depth=1, features=4096, heads=1, epochs=2, memory_bytes=0, rows=6_000),
    # Room for a partition on each of two workers, and for no more.
    Workload(width=1024, depth=3, features=256, heads=8, memory_bytes=3_700_000, disk_bytes=0),
    Workload(width=64, depth=1, features=1024, heads=8, memory_bytes=44_000_000, rows=12_000),
    # Hardly any work before the cut, or hardly any use of it.
    Workload(width=64, depth=1, features=32, rows=10_000),
    Workload(width=512, depth=2, heads=1, epochs=1, rows=10_000),
    Workload(width=1024, depth=4, heads=1, epochs=2, fuse=1, rows=6_000),
    # Several cuts that share a pass, with room for all or for the last.
    Workload(width=768, depth=3, cuts=("layer0", "layer1", "layer2"), heads=3),
    Workload(width=768, depth=3, cuts=("layer1", FEATURES), memory_bytes=4_000_000),
)
