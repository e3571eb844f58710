"""Parents that must be refused, or do no harm."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial

import torch
from torch import nn

from mmdb.bench.workload import BenchShare
from tests.bench.warm import ensemble, language, nasbench
from tests.bench.warm.pairs import Network, Pair, digit_data, drawn_data, text_data
from tests.bench.warm.pictures import shuffled
from tests.bench.warm.tasks import Pictures

CHILD_CELL = nasbench.Cell.parse(
    "|nor_conv_3x3~0|+|nor_conv_3x3~0|avg_pool_3x3~1|+|skip_connect~0|nor_conv_3x3~1|nor_conv_1x1~2|"
)
PARENT_CELL = nasbench.Cell.parse(
    "|nor_conv_3x3~0|+|nor_conv_3x3~0|skip_connect~1|+|skip_connect~0|nor_conv_3x3~1|nor_conv_1x1~2|"
)
#: ALPHABET's characters, each with another one's code.
PERMUTED = language.ALPHABET[::-1]


def safety_pairs(share: BenchShare) -> Iterator[Pair]:
    """Yield a pair for each kind of unfit parent; the workload says what is wrong with it."""
    pictures, text = drawn_data(share), text_data(share)
    parent = pictures.network(
        str(PARENT_CELL),
        partial(nasbench.network, nasbench.Architecture(PARENT_CELL)),
        child=False,
    )
    child = pictures.network(
        str(CHILD_CELL), partial(nasbench.network, nasbench.Architecture(CHILD_CELL))
    )
    for what, wrong in _unrelated(share):
        yield Pair(workload=what, parent=wrong, child=child, comparable=False)
    for what, wrong in _spoilt(parent):
        yield Pair(workload=what, parent=wrong, child=child)
    shape = language.Shape(2, 64, 4)
    speaker = text.network(str(shape), partial(language.network, shape))
    for name, alphabet in (("fewer letters", language.FOLDED), ("permuted letters", PERMUTED)):
        foreign = _foreign(name, alphabet, shape, share)
        yield Pair(workload=name, parent=foreign, child=speaker, comparable=False)


def _unrelated(share: BenchShare) -> Iterator[tuple[str, Network]]:
    """Yield networks of another kind, and of the same kind for another task."""
    shape, member = language.Shape(2, 48, 3), ensemble.MEMBERS[0]
    speaker = text_data(share).network(str(shape), partial(language.network, shape), child=False)
    yield "another kind of network", speaker
    build = partial(ensemble.network, member)
    yield "another task", digit_data(share).network(str(member), build, child=False)


def _spoilt(parent: Network) -> Iterator[tuple[str, Network]]:
    """Yield a good parent's variants: labels shuffled, not a number, diverged, hardly trained."""
    task = parent.task
    assert isinstance(task, Pictures)
    chance = replace(task, y=shuffled(task.y, seed=4), held_out_y=shuffled(task.held_out_y, seed=5))
    diverging = replace(parent.recipe, lr=3.0)
    short = replace(parent.recipe, steps=8, every=8)
    variants = {
        "shuffled labels": replace(parent, task=chance),
        "not a number": replace(parent, build=partial(_without_numbers, parent)),
        "diverged": replace(parent, recipe=diverging),
        "hardly trained": replace(parent, recipe=short),
    }
    for what, network in variants.items():
        yield what, replace(network, name=f"{what} {parent.name}")


def _without_numbers(network: Network) -> nn.Module:
    module = network.build()
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.fill_(float("nan"))
    return module


def _foreign(name: str, alphabet: str, shape: language.Shape, share: BenchShare) -> Network:
    """Return a model of the same text in another vocabulary."""
    build = partial(language.network, shape, len(alphabet) + 1)
    return text_data(share, alphabet).network(f"{name}, {shape}", build, child=False)
