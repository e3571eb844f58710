"""What computes hops for a hop runner."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol, TypeVar

from mmdb.train.values.spec import HopResult, HopSpec

if TYPE_CHECKING:
    from mmdb.train.values.feature_spec import Examined, ExamineSpec, Materialized, MaterializeSpec
    from mmdb.train.values.warm_spec import WarmResult, WarmSpec


_T = TypeVar("_T")


class Executor(Protocol):
    """Who computes hops: this process's `DeviceWorker`, or a child process."""

    def held(self, candidate_id: int) -> str | None:
        """Return the hash in hex of the candidate's state that it holds live."""

    def has_partition(self, key: str) -> bool:
        """Return whether it has the partition mapped."""

    def map_partition(self, key: str) -> None:
        """Map a partition that is in the node's cache."""

    def perform(self, spec: HopSpec, state: bytes | None) -> tuple[HopResult, bytes | None]:
        """Compute the hop; see `DeviceWorker.perform`."""

    def average(self, states: Sequence[bytes], rows: Sequence[int]) -> tuple[str, bytes]:
        """Return the mean of states, weighted by rows, and before it its hash in hex."""

    def warm_start(self, spec: WarmSpec, tensors: bytes) -> tuple[WarmResult, bytes]:
        """Make the state that a candidate begins with; see `mmdb.train.warm.carrying.make`."""

    def has_backbone(self, name: str) -> bool:
        """Return whether it has the tensors of a model whose layers are frozen."""

    def take_backbone(self, name: str, tensors: bytes) -> None:
        """Keep the tensors of a model, as `mmdb.train.compute.live.packed` writes them."""

    def materialize(self, spec: MaterializeSpec) -> Materialized:
        """Put features of a mapped partition into the node's cache."""

    def examine(self, spec: ExamineSpec) -> Examined:
        """Look at frozen layers, on rows of a mapped partition."""

    def follow(self, work: Callable[[Callable[[], bool]], _T]) -> _T:
        """Run `work(stopped)`, the replay of a recipe, in this process; it can be interrupted."""
