"""The work of a run's candidates, found on the meta device: each distinct architecture once."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

import torch

from mmdb.errors import MmdbError
from mmdb.graph.build import build
from mmdb.graph.callables import stops_the_caller
from mmdb.graph.flow.untraceable import CannotTrace
from mmdb.graph.meta import on_meta
from mmdb.graph.sizes import Dtypes, Outputs, Shape
from mmdb.plan.work.training import batch_of
from mmdb.plan.work.update import Update, update_of
from mmdb.plan.work.work import Work, work_of
from mmdb.train.candidate.choices import OPTIMIZERS
from mmdb.train.candidate.config import Config

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
    followed: Mapping[str, Recorded] = field(default_factory=dict)  # by text, if it was already

    def text(self, config: Config) -> str:
        """Return what decides a candidate's module, as JSON."""
        factory = str(self.architecture.get("factory", ""))
        target = {factory: self.factories[factory]} if factory in self.factories else {}
        about = [self.architecture, config.arguments, self.input_shape, self.input_dtype]
        return json.dumps([*about, self.outputs, target])

    def work(self, config: Config) -> Work | str:
        """Return the work of a candidate's step, or why it cannot be known."""
        text = self.text(config)
        found = self.followed.get(text) or recorded(text)
        if isinstance(found, str):
            return found
        work, shapes = found
        optimizer = config.optimizer
        asked = json.dumps([optimizer.name, optimizer.arguments, bool(config.weight_decay)])
        return replace(work, update=_update(shapes, asked))


def is_strange(architecture: Mapping[str, Any], factories: Mapping[str, str]) -> bool:
    """Return whether building a module, or following it, runs code that is not mmdb's."""
    return not factories.get(str(architecture.get("factory", "")), _OWN).startswith(_OWN)


@lru_cache(maxsize=REMEMBERED)
def _update(shapes: tuple[tuple[int, ...], ...], asked: str) -> Update:
    name, arguments, decays = json.loads(asked)
    given = arguments | ({"weight_decay": 0.01} if decays else {})
    make: Any = OPTIMIZERS[name]
    return update_of(shapes, lambda parameters: make(parameters, lr=1e-3, **given))


@lru_cache(maxsize=REMEMBERED)
def recorded(text: str) -> Recorded:
    """Return a module's work without its optimizer's, and the shapes of what is trained."""
    architecture, arguments, shape, dtypes, outputs, factories = json.loads(text)
    sizes = _shape(shape)
    try:
        # A stranger's factory may draw numbers all the same.
        with torch.random.fork_rng(devices=[]), on_meta():
            module = build(architecture, arguments, sizes, outputs, factories)
        work = work_of(module, batch_of(sizes, dtypes))
    except (MmdbError, CannotTrace) as error:
        return str(error)
    except BaseException as error:  # a stranger's module, which may call sys.exit()
        if stops_the_caller(error):
            raise
        return f"{type(error).__name__}: {error}"
    trained = (tuple(p.shape) for p in module.parameters() if p.requires_grad)
    return work, tuple(trained)


def _shape(raw: Any) -> Shape:
    if isinstance(raw, dict):
        return {name: tuple(shape) for name, shape in raw.items()}
    return tuple(raw)
