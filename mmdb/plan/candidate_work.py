"""The work of a run's candidates, found on the meta device: each distinct architecture once.

Of a candidate with frozen layers it is that of what trains, where its features are settled: a head
over them, or the layers after the cut. Else it is that of the whole network, whose frozen layers
have no backward. User-defined models are traced in a subprocess: their code may end it, or never
return.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from torch import nn

from mmdb.errors import MmdbError, stops_the_caller
from mmdb.graph.factories import SHIPPED
from mmdb.graph.ops.op_graph import CannotTrace
from mmdb.graph.spec.build import build
from mmdb.graph.spec.factory_call import Dtypes, Outputs, Shape
from mmdb.graph.spec.parse import parts_of
from mmdb.graph.trace.stand_ins import on_meta
from mmdb.plan.planned_run import FrozenLayers
from mmdb.plan.step.recording import Update, batch_of, update_of
from mmdb.plan.step.step_work import HEAP, LinearAmounts, Work, work_of
from mmdb.train.candidate.config import Config
from mmdb.train.candidate.named_choices import OPTIMIZERS
from mmdb.train.values.runtime import end
from mmdb.train.values.spec import shape_of_json

#: Architectures, and optimizers of one, whose work a process remembers.
REMEMBERED = 256
#: A module's work without its optimizer's, and the shapes of what is trained; or why not.
TracedWork = tuple[Work, tuple[tuple[int, ...], ...]] | str
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
    shares_base: bool = False  # see `PlannedRun`
    followed: Mapping[str, TracedWork] = field(default_factory=dict)  # by text, if it was already

    def text(self, config: Config, part: FrozenLayers | None = None) -> str:
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

    def texts(self, config: Config, part: FrozenLayers | None = None) -> Iterator[str]:
        """Yield all that a plan asks for of a candidate."""
        yield self.text(config, part)
        if part is not None and part.is_computed:
            yield self.text(config)

    def recorded(self, text: str) -> TracedWork:
        """Return what is found of a text; see `recorded`."""
        return self.followed.get(text) or traced_work(text)

    def work(self, config: Config, part: FrozenLayers | None = None) -> Work | str:
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
        for part in parts_of(architecture):
            yield from factories_of(part)


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
def traced_work(text: str) -> TracedWork:
    """Return a module's work without its optimizer's, and the shapes of what is trained."""
    architecture, arguments, shape, dtypes, outputs, factories, *rest = json.loads(text)
    sizes = shape_of_json(shape)
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


_known: dict[str, TracedWork] = {}
_ARRAYS: Mapping[str, Any] = {"NDArray[np.int64]": np.int64, "NDArray[np.bool_]": np.bool_}
#: Runs work that may take long, and no longer than someone allows.
Within = Callable[[Callable[[], None]], None]


def trace_in_subprocess(texts: Sequence[str], within: Within) -> Mapping[str, TracedWork]:
    """Return what `recorded` says of each text, or why there is nothing to be said.

    Args:
        within: runs the conversation with the process, which ends with it.
    """
    found = {text: _known[text] for text in texts if text in _known}
    missing = [text for text in texts if text not in found]
    if missing:
        found |= _ask_subprocess(missing, within)
    for text, one in found.items():
        if not isinstance(one, str) and len(_known) < REMEMBERED:
            _known[text] = one
    return found


def _ask_subprocess(texts: Sequence[str], within: Within) -> dict[str, TracedWork]:
    found: dict[str, TracedWork] = {}
    paths = os.pathsep.join(p for p in sys.path if p)
    process = subprocess.Popen(
        [sys.executable, "-m", "mmdb.plan.candidate_work"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": paths, "OMP_NUM_THREADS": "1"},
        start_new_session=True,  # a Ctrl-C is for the owner, which then ends it
    )

    def speak() -> None:
        assert process.stdin and process.stdout
        for text in texts:
            try:
                process.stdin.write(text + "\n")
                process.stdin.flush()
                line = process.stdout.readline()
            except (OSError, ValueError):
                return
            if not line.endswith("\n"):
                return
            found[text] = _read(json.loads(line))

    why = "its code ended the process that followed it"
    try:
        within(speak)
    except MmdbError as error:
        if stops_the_caller(error):
            raise
        why = error.message
    finally:
        end(process)
    return {text: found.get(text, why) for text in texts}


def _written(found: TracedWork) -> Any:
    if isinstance(found, str):
        return found
    work, shapes = found
    values = {field.name: _plain(getattr(work, field.name)) for field in fields(work)}
    return [values, [list(shape) for shape in shapes]]


def _plain(value: Any) -> Any:
    if isinstance(value, LinearAmounts):
        return [value.fixed.tolist(), value.row.tolist()]
    if isinstance(value, np.ndarray):
        return value.tolist()
    return asdict(value) if isinstance(value, Update) else value


def _read(raw: Any) -> TracedWork:
    if isinstance(raw, str):
        return raw
    values, shapes = raw
    made = {field.name: _typed(str(field.type), values[field.name]) for field in fields(Work)}
    return Work(**made), tuple(tuple(shape) for shape in shapes)


def _typed(kind: str, value: Any) -> Any:
    """Return a value of a field of `Work`, by its annotation, as it was before JSON."""
    if kind == "LinearAmounts":
        return LinearAmounts(*(np.array(one, dtype=float) for one in value))
    if kind in _ARRAYS:
        return np.array(value, dtype=_ARRAYS[kind])
    if kind == "Update":
        return Update(**value)
    return tuple(value) if isinstance(value, list) else value


def main() -> None:
    """Follow what comes in, a text a line, until standard input ends."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what a user's module prints must not end up among the answers
    for line in sys.stdin:
        print(json.dumps(_written(traced_work(line.rstrip("\n")))), file=out, flush=True)


if __name__ == "__main__":
    main()
