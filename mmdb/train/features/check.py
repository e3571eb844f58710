"""Whether what comes after a cut can train, found out before anything is written. No I/O."""

from __future__ import annotations

from dataclasses import replace

from torch import nn

from mmdb.graph.cut.pool import resolve_pool
from mmdb.train.features.backbone import Backbones
from mmdb.train.features.tail import tail_of
from mmdb.train.spec import CandidateSpec


def checked_tail(candidate: CandidateSpec, backbones: Backbones) -> nn.Module:
    """Return what trains of a candidate that freezes layers, built as for a hop.

    Raises:
        CutNotFound, NotACut, HeadMismatch, ArchitectureError
    """
    frozen = candidate.frozen
    assert frozen is not None
    shape = backbones.of(candidate).shape(frozen.cut, "none")
    pool = resolve_pool(frozen.pool, shape, has_head=frozen.head is not None)
    resolved = replace(candidate, frozen=replace(frozen, pool=pool))
    return tail_of(resolved, backbones).module
