"""The work of a run's candidates, found on the meta device: each distinct architecture once.

Of a candidate with frozen layers it is that of what trains, where its features are settled: a head
over them, or the layers after the cut. Else it is that of the whole network, whose frozen layers
have no backward.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

import torch
from torch import nn

from mmdb.errors import MmdbError, stops_the_caller
from mmdb.graph.factories import SHIPPED
from mmdb.graph.ops.op_graph import CannotTrace
from mmdb.graph.spec.build import build
from mmdb.graph.spec.factory_call import Dtypes, Outputs, Shape
from mmdb.graph.trace.stand_ins import on_meta
from mmdb.plan.run.frozen import Part
from mmdb.plan.work.training import batch_of
from mmdb.plan.work.update import Update, update_of
from mmdb.plan.work.work import HEAP, Work, work_of
from mmdb.train.candidate.config import Config
from mmdb.train.candidate.named_choices import OPTIMIZERS

#: Architectures, and optimizers of one, whose work a process remembers.
REMEMBERED = 256
#: A module's work without its optimizer's, and the shapes of what is trained; or why not.
Recorded = tuple[Work, tuple[tuple[int, ...], ...]] | str
_OWN = "mmdb.graph.factories:"


@dataclass(frozen=True, slots=True, kw_only=True)
class Built:
    """What decides how candidates of a run are built."""

    architecture: Mapping[str, Any]
    input_shape: Shape
    input_dtype: Dtypes
    outputs: Outputs
    factories: Mapping[str, str]
    rows: int = 0  # of the largest partition
    followed: Mapping[str, Recorded] = field(default_factory=dict)  # by text, if it was already

    def text(self, config: Config, part: Part | None = None) -> str:
        """Return what decides the module that a candidate trains, as JSON.

        Args:
            part: what it freezes; None: its whole network, whatever of it is frozen.
        """
        network = self.architecture, config.arguments, self.input_shape, self.input_dtype
        if part is None:
            return self._text(*network)
        transfer, shape = part.transfer, part.tail_shape
        if shape is None and transfer.head is None:
            return self._text(*network, {"freeze": transfer.cut})
        if shape is None:
            headed = {"backbone": self.architecture, "head": transfer.head,
                      "cut": transfer.cut, "pool": transfer.pool}  # fmt: skip
            return self._text(headed, *network[1:], {"freeze": "backbone"})
        if transfer.head is not None:
            return self._text(transfer.head, {}, shape, "float32")
        after = {"after": transfer.cut, "features": shape, "adapter": transfer.adapter}
        return self._text(*network, after)

    def _text(self, architecture: Mapping[str, Any], *about: Any) -> str:
        known = {**SHIPPED, **self.factories}
        targets = {one: known[one] for one in factories_of(architecture) if one in known}
        return json.dumps([architecture, *about[:3], self.outputs, targets, *about[3:]])

    def texts(self, config: Config, part: Part | None = None) -> Iterator[str]:
        """Yield all that a plan asks for of a candidate."""
        yield self.text(config, part)
        if part is not None and part.is_computed:
            yield self.text(config)

    def recorded(self, text: str) -> Recorded:
        """Return what is found of a text; see `recorded`."""
        return self.followed.get(text) or recorded(text)

    def work(self, config: Config, part: Part | None = None) -> Work | str:
        """Return the work of a candidate's step, or why it cannot be known."""
        found = self.recorded(self.text(config, part))
        if isinstance(found, str):
            return found
        work, shapes = found
        optimizer = config.optimizer
        asked = json.dumps([optimizer.name, optimizer.arguments, bool(config.weight_decay)])
        return replace(work, update=_update(shapes, asked))

    def held_bytes(self, config: Config, rows: int) -> float:
        """Return what a process holds of a network whose layers it runs without gradients.

        Args:
            rows: that pass it at once.
        """
        found = self.recorded(self.text(config))
        if isinstance(found, str):
            return 0.0
        work, _ = found
        passing = HEAP * float(work.crossing.at(rows).max(initial=0.0))
        return work.parameter_bytes + work.buffer_bytes + passing


def factories_of(architecture: Any) -> Iterator[str]:
    """Yield the factories that an architecture names, those of its backbone and head among them."""
    if isinstance(architecture, Mapping):
        if "factory" in architecture:
            yield str(architecture["factory"])
        for inner in ("backbone", "head"):
            if "backbone" in architecture:
                yield from factories_of(architecture[inner])


def is_strange(architectures: Collection[Any], factories: Mapping[str, str]) -> bool:
    """Return whether building a module, or following it, runs code that is not mmdb's."""
    named = {name for one in architectures for name in factories_of(one)}
    return any(not factories.get(name, _OWN).startswith(_OWN) for name in named)


@lru_cache(maxsize=REMEMBERED)
def _update(shapes: tuple[tuple[int, ...], ...], asked: str) -> Update:
    name, arguments, decays = json.loads(asked)
    given = arguments | ({"weight_decay": 0.01} if decays else {})
    make: Any = OPTIMIZERS[name]
    return update_of(shapes, lambda parameters: make(parameters, lr=1e-3, **given))


@lru_cache(maxsize=REMEMBERED)
def recorded(text: str) -> Recorded:
    """Return a module's work without its optimizer's, and the shapes of what is trained."""
    architecture, arguments, shape, dtypes, outputs, factories, *rest = json.loads(text)
    sizes = _shape(shape)
    try:
        # A stranger's factory may draw numbers all the same.
        with torch.random.fork_rng(devices=[]), on_meta():
            module = build(architecture, arguments, sizes, outputs, factories)
            if rest:
                module, sizes, dtypes = _part(module, rest[0], sizes, dtypes)
        work = work_of(module, batch_of(sizes, dtypes))
    except BaseException as error:  # a stranger's module, which may call sys.exit()
        if stops_the_caller(error):
            raise
        if isinstance(error, (MmdbError, CannotTrace)):
            return str(error)
        return f"{type(error).__name__}: {error}"
    trained = (tuple(p.shape) for p in module.parameters() if p.requires_grad)
    return work, tuple(trained)


def _part(
    network: nn.Module, asked: Mapping[str, Any], shape: Shape, dtypes: Dtypes
) -> tuple[nn.Module, Shape, Dtypes]:
    """Return what of a network a candidate trains, and the rows of that."""
    from mmdb.graph.cut.adapter import adapt, freeze  # loads torch.fx
    from mmdb.graph.cut.cut import frozen_paths, rest_of

    inputs = tuple(shape) if isinstance(shape, dict) else None
    if asked.get("freeze") == "backbone":
        freeze(network, ["backbone"])
    elif "freeze" in asked:
        freeze(network, frozen_paths(network, asked["freeze"], inputs=inputs))
    else:
        network = rest_of(network, asked["after"], inputs=inputs)
        if asked["adapter"] is not None:
            adapt(network, asked["adapter"])
        return network, tuple(asked["features"]), "float32"
    return network, shape, dtypes


def _shape(raw: Any) -> Shape:
    if isinstance(raw, dict):
        return {name: tuple(shape) for name, shape in raw.items()}
    return tuple(raw)
