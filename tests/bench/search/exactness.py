"""Children of random parents: each that is called exact is, and none is left that could be.

A pair is carried over as warm starts do it, with an example of any batch size; then both modules
are run on other inputs, in float64.
"""

from __future__ import annotations

import os
import random
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from itertools import chain
from multiprocessing import get_context

import torch
from torch import Tensor, nn

from mmdb.bench.figures import Figure, at_least
from mmdb.graph.ops.known_values import Inputs
from mmdb.store.models.model_rows import ModelDefinition
from mmdb.train.values.warm_spec import Example, ParentForm, Unfit
from mmdb.train.warm.carrying import carry
from mmdb.train.warm.first_state import fill
from tests.bench.search.campaigns import none_of
from tests.unit.graph.transfer.carried import relative_error, trained
from tests.unit.graph.transfer.pairs import CASES, FAMILIES, Pair, random_pair

LIMIT = 1e-6  # of outputs' greatest difference, of their root mean square
_PLAIN = ("perceptron", "convolutions")
_AT_ONCE = 50
#: Every kind of growth, and as many that grow nowhere or anyhow.
ALL_CASES = (*CASES, *((family, how) for family in FAMILIES for how in ("narrow", "mixed") * 2))
#: Sizes that no channel count may be taken for.
_BATCHES = (1, 2, 3, 4, 5, 7, 9, 12, 16, 32)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What became of one pair.

    Attributes:
        name: from which the pair can be made again.
        grows: the child is as wide and as deep as its parent everywhere.
        claimed: it is called exact.
        error: relative, of its outputs.
        reason: why it is not called exact.
    """

    family: str
    name: str
    grows: bool
    claimed: bool
    error: float
    reason: str = ""


def search(*, seed: int, cases: int) -> list[Figure]:
    """Return how many claims of exactness are false, and how many children are exact."""
    parts = [range(start, min(start + _AT_ONCE, cases)) for start in range(0, cases, _AT_ONCE)]
    workers = min(len(os.sched_getaffinity(0)), len(parts))
    if workers < 2:
        found = [outcomes(seed, part) for part in parts]
    else:
        with ProcessPoolExecutor(workers, get_context("spawn")) as pool:
            found = list(pool.map(outcomes, [seed] * len(parts), parts))
    return figures(list(chain.from_iterable(found)))


def figures(found: Sequence[Outcome]) -> list[Figure]:
    """Return the figures of pairs."""
    grown = [one for one in found if one.grows]
    exact = Counter(one.family for one in grown if one.claimed and one.error <= LIMIT)
    counts = Counter(one.family for one in grown)
    false = sum(one.claimed and one.error > LIMIT for one in found)
    refuted = sum("not verified" in one.reason for one in found)
    claims = sum(one.claimed for one in found)
    return [
        Figure(name=f"claims of exactness in {len(found)} pairs", value=claims, unit="claims"),
        none_of("false claims of exactness", false, "claims"),
        none_of("claims that were refused when both models were run", refuted, "claims"),
        *(
            at_least(
                f"exact of {counts[family]} larger children, {family}",
                [100 * exact[family] / counts[family]],
                "%",
                99 if family in _PLAIN else 95,
            )
            for family in FAMILIES
            if counts[family]
        ),
    ]


def outcomes(seed: int, numbers: Sequence[int]) -> list[Outcome]:
    """Return what becomes of the pairs of these numbers."""
    torch.set_num_threads(1)
    return [_outcome(f"{seed} {number}", *ALL_CASES[number % len(ALL_CASES)]) for number in numbers]


def _outcome(name: str, family: str, how: str) -> Outcome:
    pair = random_pair(family, how, name)
    rng = random.Random(name)
    parent, child = trained(pair.parent, rng.randrange(99)), trained(pair.child, 100)
    shape, dtype = tuple(pair.inputs.shape[1:]), str(pair.inputs.dtype).removeprefix("torch.")
    form = ParentForm(
        reference="parent",
        definition=ModelDefinition(
            architecture={
                "factory": "parent",
                "arguments": {"family": family, "how": how, "name": name},
            },
            arguments={},
            input_shape=shape,
            outputs=5,
        ),
        factories={"parent": f"{__name__}:parent_of"},
        examples=(Example(shape=shape, dtypes=dtype),),
    )
    example = Inputs((_drawn(pair, rng.choice(_BATCHES), rng),))
    grows = pair.grows if pair.grows is not None else (family, how) in CASES
    try:
        carried = carry(child, [example], form, parent.state_dict(), seed=1, shrink=None)
    except Unfit as error:
        return _told(family, how, name, grows, str(error))
    fill(child, carried.tensors)
    return Outcome(
        family=family,
        name=f"{family}, {how}, {name}",
        grows=grows,
        claimed=carried.exact,
        error=relative_error(child, parent, _drawn(pair, 48, rng)),
        reason="; ".join(carried.reasons[:3]),
    )


def _told(family: str, how: str, name: str, grows: bool, reason: str) -> Outcome:
    whole = f"{family}, {how}, {name}"
    return Outcome(
        family=family, name=whole, grows=grows, claimed=False, error=float("inf"), reason=reason
    )


def parent_of(
    input_shape: tuple[int, ...], outputs: int, *, family: str, how: str, name: str
) -> nn.Module:
    """Return the parent of a pair; a factory."""
    return random_pair(family, how, name).parent


def _drawn(pair: Pair, rows: int, rng: random.Random) -> Tensor:
    """Return random inputs."""
    generator = torch.Generator().manual_seed(rng.randrange(10**9))
    shape = (rows, *pair.inputs.shape[1:])
    if pair.inputs.is_floating_point():
        return torch.randn(shape, generator=generator, dtype=torch.float64)
    return torch.randint(11, shape, generator=generator)
