"""What frozen layers are: names by content, time, and whether their features can be shared."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from statistics import median
from time import perf_counter

import torch
from blake3 import blake3
from torch import nn

from mmdb.errors import NotACut
from mmdb.graph.cut.pool import pooled_shape, resolve_pool
from mmdb.train.batch import Inputs, call, inputs_to, row_count, take_inputs, tensors_in
from mmdb.train.compute.device import synchronize
from mmdb.train.compute.exact import environment, exact
from mmdb.train.compute.hop import blaming_the_model
from mmdb.train.features.backbone import Backbone
from mmdb.train.features.compute import features_in
from mmdb.train.features.identity import Identities
from mmdb.train.features.reusable import doubts_of, unchanged
from mmdb.train.features.spec import Examined, ExamineSpec, Prefix

#: Seconds that looking at rows may take, about; and how many passes over them that is.
_BUDGET_S, _PASSES = 1.5, 7
#: Rows that are looked at where a row takes long, and runs of which one is timed.
_FEWEST_ROWS, _TIMED = 8, 3
#: Rows whose features are a part of the layers' name.
_NAMING_ROWS = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class _Time:
    """Seconds of a row; see `Prefix`."""

    shape: tuple[int, ...]  # of a row's outputs at the cut
    row_s: float
    stage_s: float
    source: str | None


def examine(spec: ExamineSpec, backbone: Backbone, x: Inputs, device: torch.device) -> Examined:
    """Look at the layers up to each cut, and time them on rows.

    Args:
        x: rows of the dataset, on any device.
    Raises:
        CutNotFound, NotACut, BackboneMismatch, TrainingFailed, OutputMismatch
    """
    running = {path: place for place, path in enumerate(backbone.cuts)}
    for cut, _ in spec.cuts:
        backbone.prefix(cut)  # says what is no cut
    cuts = sorted({cut for cut, _ in spec.cuts}, key=lambda cut: (running.get(cut, 0), cut))
    with blaming_the_model(), unchanged(backbone.network):
        rows = _few(backbone.chain([(cut, "none") for cut in cuts]), x, spec.rows, device)
        doubts = doubts_of(backbone, cuts, rows, device)
        times = _times(backbone, cuts, rows, device)
    identities = Identities(spec.candidate)
    found = []
    for cut, pool in spec.cuts:
        time, doubt = times[cut], doubts.get(cut)
        pool = resolve_pool(pool, time.shape, has_head=True)
        layers = backbone.prefix(cut)
        tensors = blake3(identities.tensors(layers))
        if doubt is None:
            tensors.update(_made_of(layers, x, device))
        found.append(
            Prefix(
                cut=cut,
                pool=pool,
                architecture_hash=identities.architecture(layers, cut, pool).hex(),
                tensors_hash=tensors.hexdigest(),
                shape=pooled_shape(pool, time.shape),
                row_s=time.row_s,
                stage_s=time.stage_s,
                order=running.get(cut, len(running)),
                source=time.source,
                not_reusable=doubt.reason if doubt else None,
                learns=doubt is not None and doubt.learns,
            )
        )
    with exact(0, device=device):
        return Examined(prefixes=tuple(found), environment=environment(device))


def _made_of(layers: nn.Module, x: Inputs, device: torch.device) -> bytes:
    """Return what layers make of a few rows, as bytes: always the same for the same layers.

    What a forward has besides tensors of the module (constants, hooks, the code itself) shows in
    nothing else.
    """
    with exact(0, device=device), torch.no_grad(), blaming_the_model():
        rows = _first(x, min(row_count(x), _NAMING_ROWS), device)
        made = features_in(call(layers, rows), row_count(rows))
    return made.cpu().contiguous().numpy().tobytes()


def _few(layers: nn.Module, x: Inputs, most: int, device: torch.device) -> Inputs:
    """Return as many rows, on the device, as can be looked at in the time."""
    count = min(row_count(x), most)
    few = _first(x, min(count, _FEWEST_ROWS), device)
    with exact(0, device=device), torch.no_grad():
        call(layers, few)  # what is loaded and allocated at first does not count
        begun = perf_counter()
        call(layers, few)
        synchronize(device)
    row_s = (perf_counter() - begun) / row_count(few)
    fit = int(_BUDGET_S / _PASSES / max(row_s, 1e-9))
    return _first(x, min(count, max(fit, _FEWEST_ROWS)), device)


def _first(x: Inputs, count: int, device: torch.device) -> Inputs:
    index = torch.arange(count, device=tensors_in(x)[0].device)
    return inputs_to(take_inputs(x, index), device)


def _times(
    backbone: Backbone, cuts: Sequence[str], x: Inputs, device: torch.device
) -> dict[str, _Time]:
    """Return what a row takes up to each cut: from the cut before it, where that is possible."""
    rows = row_count(x)
    found: dict[str, _Time] = {}
    with exact(0, device=device), torch.no_grad():
        outputs = call(backbone.chain([(cut, "none") for cut in cuts]), x)
        assert isinstance(outputs, tuple)
        features = {c: features_in(o, rows) for c, o in zip(cuts, outputs, strict=True)}
        for place, cut in enumerate(cuts):
            source, run = _way(backbone, cuts[:place], cut, x, features)
            stage_s = _seconds(run, device) / rows
            before_s = found[source].row_s if source is not None else 0.0
            found[cut] = _Time(
                shape=tuple(features[cut].shape[1:]),
                row_s=before_s + stage_s,
                stage_s=stage_s,
                source=source,
            )
    return found


def _way(
    backbone: Backbone,
    before: Sequence[str],
    cut: str,
    x: Inputs,
    features: dict[str, torch.Tensor],
) -> tuple[str | None, Callable[[], object]]:
    """Return the nearest cut from which features can be computed, and what does it."""
    for source in reversed(before):
        try:
            stage = backbone.stages(source, [(cut, "none")])
        except NotACut:
            continue
        return source, partial(stage, features[source])
    return None, partial(call, backbone.prefix(cut), x)


def _seconds(run: Callable[[], object], device: torch.device) -> float:
    """Return the median of some runs."""
    taken = []
    for _ in range(_TIMED):
        begun = perf_counter()
        run()
        synchronize(device)
        taken.append(perf_counter() - begun)
    return median(taken)
