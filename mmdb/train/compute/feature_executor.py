"""What a worker's session does for candidates with frozen layers, and what it keeps for them."""

from __future__ import annotations

import os
from contextlib import ExitStack
from time import perf_counter

import torch
from torch import Tensor

from mmdb.data import node_cache
from mmdb.data.feature_files import FeatureWriter, writing_features
from mmdb.errors import PartitionEvicted
from mmdb.train.compute.backbone import Backbones
from mmdb.train.compute.device import CPU
from mmdb.train.compute.feature_pass import compute, features_of
from mmdb.train.compute.frozen_layers import examine
from mmdb.train.values.feature_spec import Examined, Materialized, Wanted
from mmdb.train.values.jobs import ExamineSpec, MaterializeSpec
from mmdb.train.values.row_batch import Inputs
from mmdb.train.values.spec import CandidateSpec, Stopped

#: Bytes of a partition's recomputed features that a session keeps for the next hop; more are
#: computed again.
FEATURE_BYTES = int(os.environ.get("MMDB_FEATURE_BYTES", 1 << 30))


class FeatureExecutor:
    """The backbones of a session, and the features that it recomputed last."""

    def __init__(self, device: torch.device = CPU) -> None:
        self.device = device
        self.backbones = Backbones(device)
        self._last: tuple[tuple[object, ...], Tensor] | None = None

    def recomputed(
        self, candidate: CandidateSpec, partition: str, x: Inputs, stopped: Stopped
    ) -> Tensor:
        """Return the features of a partition's rows, float32 on the device.

        Args:
            partition: key in hex.
        Raises:
            Cancelled, TrainingFailed, BackboneMissing, BackboneMismatch, ArchitectureError
        """
        frozen = candidate.frozen
        assert frozen is not None
        layers = self.backbones.of(candidate).prefix(frozen.cut, frozen.pool)
        key = (layers, frozen.storage, partition)
        if self._last is not None and self._last[0] == key:
            return self._last[1]
        self._last = None  # before others take its place in memory
        found = features_of(layers, x, frozen.storage, device=self.device, stopped=stopped)
        if found.nbytes <= FEATURE_BYTES:
            self._last = key, found
        return found

    def materialize(
        self, spec: MaterializeSpec, x: Inputs, stopped: Stopped = lambda: False
    ) -> Materialized:
        """Put features of a partition into the node's cache, all in one pass.

        Args:
            x: the rows of `spec.source`, on any device.
        Raises:
            Cancelled, TrainingFailed, BackboneMissing, BackboneMismatch, ArchitectureError
            PartitionEvicted: the source left the node's cache.
            NotANumber: int8 cannot hold them.
        """
        begun = perf_counter()
        backbone = self.backbones.of(spec.candidate)
        cuts = [(wanted.cut, wanted.pool) for wanted in spec.wanted]
        if spec.source_cut is None:
            layers = backbone.chain(cuts)
        else:
            layers = backbone.stages(spec.source_cut, cuts)
        writers: list[FeatureWriter] = []
        with ExitStack() as stack:

            def take(several: tuple[Tensor, ...]) -> None:
                arrays = [one.to(CPU).numpy() for one in several]
                if not writers:
                    pairs = zip(spec.wanted, arrays, strict=True)
                    writers.extend(_writer(stack, spec, w, a.shape[1:]) for w, a in pairs)
                for writer, array in zip(writers, arrays, strict=True):
                    writer.add(array)

            compute(layers, x, take, device=self.device, stopped=stopped)
        made = list(zip(spec.wanted, writers, strict=True))
        return Materialized(
            seconds=perf_counter() - begun,
            byte_counts={wanted.key: writer.byte_count for wanted, writer in made},
            max_error={wanted.key: writer.deviation.max_error for wanted, writer in made},
            mean_error={wanted.key: writer.deviation.mean_error for wanted, writer in made},
        )

    def examine(self, spec: ExamineSpec, x: Inputs) -> Examined:
        """Look at frozen layers; see `mmdb.train.compute.frozen_layers.examine`."""
        return examine(spec, self.backbones.of(spec.candidate), x, self.device)


def _writer(
    stack: ExitStack, spec: MaterializeSpec, wanted: Wanted, shape: tuple[int, ...]
) -> FeatureWriter:
    source, key = bytes.fromhex(spec.source), bytes.fromhex(wanted.key)
    try:
        return stack.enter_context(writing_features(key, source, shape, wanted.storage))
    except node_cache.NotCached as error:
        raise PartitionEvicted(
            f"Partition {spec.source[:12]} left the node's cache before its features were computed."
        ) from error
