"""Eight heads on each of four cuts of ResNet-18: with sharing, without, and by a plain loop."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from mmdb.bench.figures import Figure
from mmdb.bench.networks import resnet18
from tests.bench.feature.alone import Alone
from tests.bench.feature.compare import equal_bits, largest_difference, within
from tests.bench.feature.saving import WORKERS, Pair, saving_figures, train_both
from tests.bench.feature.subject import CLASSES, HEADS, Subject
from tests.bench.feature.timing import row_seconds, rows_for

SHAPE, EPOCHS = (3, 32, 32), 5
CUTS = ("layer1", "layer2", "layer3", "layer4")
BAR = 5.0


def measure_resnet(subject: Subject, seconds: float) -> Iterator[Figure]:
    """Yield what sharing saves, and whether each head is the one that it would be alone.

    Args:
        seconds: about what the run without sharing takes.
    """
    torch.manual_seed(0)
    module = resnet18(SHAPE, CLASSES)
    heads, cuts = subject.share.first(HEADS, 2), subject.share.first(CUTS)
    epochs = subject.share.of(EPOCHS, 2)
    passes = len(heads) * epochs * row_seconds(module, cuts, SHAPE)
    dataset = subject.dataset("resnet", SHAPE, rows_for(seconds, passes / WORKERS))
    architecture = {"factory": subject.factory("mmdb.bench.networks:resnet18")}
    space = {"freeze_up_to": list(cuts), "head": list(heads)}
    pair = train_both(subject, dataset, architecture, space, epochs)
    where = f"{subject.engine}, ResNet-18"
    yield from saving_figures(subject, pair, where, BAR)
    yield from _alone_figures(subject, pair, where)


def _alone_figures(subject: Subject, pair: Pair, where: str) -> Iterator[Figure]:
    alone = Alone(subject, pair.shared)
    same = [
        equal_bits(alone.on_features(head), subject.weights(head.spec.candidate_id))
        for head in alone.heads
    ]
    yield Figure(
        name=f"{where}: heads with the bits of a plain loop on the features, of {len(same)}",
        value=sum(same),
        unit="",
        bar=f"{len(same)}",
        holds=all(same),
    )
    as_computed = [alone.features(head)[1] for head in alone.heads]
    yield Figure(
        name=f"{where}: features with the bits of those computed apart",
        value=sum(as_computed) / len(as_computed),
        unit="",
        bar="1",
        holds=all(as_computed),
    )
    last_cut = subject.share.first(CUTS)[-1]
    (last,) = [head for head in alone.heads if head.cut == last_cut][:1]
    apart = largest_difference(alone.end_to_end(last), subject.weights(last.spec.candidate_id))
    yield within(f"{where}: weights of a head apart from a plain end-to-end loop by", apart)
