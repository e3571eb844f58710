"""What a calibration's rows say together: how a step differs from the sum of its operations."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import torch

from mmdb.graph.trace.stand_ins import on_meta
from mmdb.plan.profile.measures.references import KIND, REFERENCES, Reference
from mmdb.plan.profile.profile import profile_of
from mmdb.plan.profile.row import Row
from mmdb.plan.work.factors import FEW, learn_factors
from mmdb.plan.work.operations import GROUPS
from mmdb.plan.work.roofline import group_seconds
from mmdb.plan.work.speeds import speeds_of
from mmdb.plan.work.training import batch_of
from mmdb.plan.work.work import Work, work_of


def learned_rows(rows: Sequence[Row]) -> list[Row]:
    """Return the factors of groups of operations; one of 1 where too little was measured."""
    measured = {int(row.size): row.value for row in rows if row.kind == KIND}
    speeds = speeds_of(profile_of(rows))
    if len(measured) < FEW or speeds.operations is None:
        return [_row("start", 1.0)]
    predicted = [
        group_seconds(work_of_reference(REFERENCES[number]), speeds, REFERENCES[number].batch)
        for number in measured
    ]
    found = learn_factors(predicted, list(measured.values()))
    return [_row(group, factor) for group, factor in found.items()]


def _row(group: str, factor: float) -> Row:
    return Row(kind="factor", size=float(GROUPS.index(group)), value=factor, unit="x")


def work_of_reference(reference: Reference) -> Work:
    """Return the work of a network that calibrations train."""
    with torch.random.fork_rng(devices=[]), on_meta():
        module = reference.build()
    dtype = "int64" if reference.tokens else "float32"
    adam = partial(torch.optim.Adam, lr=1e-4)
    return work_of(module, batch_of(reference.shape, dtype), optimizer=adam)
