"""Heads on each layer of a small transformer encoder, with sharing and without."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from mmdb.bench.figures import Figure
from mmdb.graph.factories import transformer
from tests.bench.feature.saving import WORKERS, saving_figures, train_both
from tests.bench.feature.subject import CLASSES, HEADS, Subject
from tests.bench.feature.timing import row_seconds, rows_for

SHAPE, LAYERS, WIDTH, EPOCHS = (32, 16), 4, 128, 3
#: Before them are the projection and the positions.
CUTS = tuple(str(2 + layer) for layer in range(LAYERS))
#: Two heads for each layer.
USED = (HEADS[0], HEADS[3])
BAR = 3.0
#: Of the seconds of ResNet-18's run.
SHARE = 0.4


def measure_transformer(subject: Subject, seconds: float) -> Iterator[Figure]:
    """Yield what sharing saves.

    Args:
        seconds: about what the run of the part `resnet` takes without sharing.
    """
    torch.manual_seed(0)
    module = transformer(SHAPE, CLASSES, d_model=WIDTH, layers=LAYERS)
    cuts, epochs = subject.share.first(CUTS), subject.share.of(EPOCHS, 2)
    passes = len(USED) * epochs * row_seconds(module, cuts, SHAPE)
    rows = rows_for(SHARE * seconds, passes / WORKERS)
    dataset = subject.dataset("transformer", SHAPE, rows)
    architecture = {"factory": "transformer", "arguments": {"d_model": WIDTH, "layers": LAYERS}}
    space = {"freeze_up_to": list(cuts), "head": list(USED)}
    pair = train_both(subject, dataset, architecture, space, epochs)
    yield from saving_figures(subject, pair, f"{subject.engine}, transformer", BAR)
