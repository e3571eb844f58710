"""Deterministic computing: torch's switches, threads and generators, set for a hop.

Torch's compiler stays out of a process until a module is compiled.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from importlib import import_module
from threading import Lock
from types import ModuleType
from typing import Any

import numpy as np
import torch

from mmdb.errors import InvalidRecipe
from mmdb.train.compute.device import (
    CPU,
    accelerator,
    accelerators,
    described,
    drawing,
    generators,
    seed_accelerators,
    set_generator,
)

NAME = "torch._dynamo"
#: Where torch._compile keeps, on a function of torch's, what `disable` made of it.
KEPT = "__dynamo_disable"
_LOCK = Lock()


class _Absent(ModuleType):
    """Stands for the compiler while only optimizers ask for it; any other question loads it."""

    def __init__(self) -> None:
        super().__init__(NAME)
        self.__file__ = None  # `inspect` looks through all modules for one of a file
        self.left_alone: list[Any] = []

    def graph_break(self, msg: str = "") -> None:
        """Do nothing: no graph is being made."""

    def disable(self, fn: Any = None, recursive: bool = True, **more: Any) -> Any:
        """Return a function of torch's optimizers as it is: there is nothing to be disabled."""
        if more != {"wrapping": False}:  # as torch._compile asks, and nobody else
            return _real(self).disable(fn, recursive, **more)
        self.left_alone.append(fn)
        return fn

    def __getattr__(self, name: str) -> Any:
        return getattr(_real(self), name)


def _real(absent: _Absent) -> Any:
    """Return the compiler, loaded into the place of what stood for it."""
    with _LOCK:
        is_first = sys.modules.get(NAME) is absent
        if is_first:
            del sys.modules[NAME]
            vars(torch).pop("_dynamo", None)
            for function in absent.left_alone:  # the compiler is asked the next time
                vars(function).pop(KEPT, None)
    compiler = import_module(NAME)
    if is_first:  # tell it what it missed
        torch.use_deterministic_algorithms(
            torch.are_deterministic_algorithms_enabled(),
            warn_only=torch.is_deterministic_algorithms_warn_only_enabled(),
        )
    return compiler


def stays_out() -> bool:
    """Keep the compiler out of this process; return whether it is."""
    if NAME not in sys.modules:
        absent = _Absent()
        sys.modules[NAME] = vars(torch)["_dynamo"] = absent
    return isinstance(sys.modules[NAME], _Absent)


def compute_deterministically(yes: bool, *, warn_only: bool = False) -> None:
    """Do as `torch.use_deterministic_algorithms`, which loads the compiler to tell it too."""
    if stays_out():
        torch.set_deterministic_debug_mode(("warn" if warn_only else "error") if yes else "default")
    else:
        torch.use_deterministic_algorithms(yes, warn_only=warn_only)


#: torch makes this switch at run time, where no type checker sees it.
_FILL = "fill_uninitialized_memory"


def environment(device: torch.device = CPU) -> str:
    """Return what the bits of a hop depend on besides its inputs."""
    capability = torch.backends.cpu.get_cpu_capability()
    here = f"torch {torch.__version__}, {capability}, {torch.get_num_threads()} thread(s)"
    return here if device == CPU else f"{here}, {described(device)}"


def running_on(device: torch.device = CPU) -> str:
    """Return what `HopStep.ran_on` of a hop of this process is."""
    with exact(0):
        return f"{device}, {environment(device)}"


@contextmanager
def recording() -> Iterator[None]:
    """Record gradients inside the block: a DuckDB file trains in its caller's thread."""
    with torch.inference_mode(False), torch.enable_grad():
        yield


@contextmanager
def exact(seed: int, threads: int = 1, device: torch.device = CPU) -> Iterator[None]:
    """Inside the block torch is deterministic, uses `threads` threads and draws from `seed`.

    Draws are from the generators of the CPU and of `device`. Gradients are recorded, whatever the
    caller has set.
    """
    before = (
        torch.are_deterministic_algorithms_enabled(),
        torch.get_num_threads(),
        torch.get_rng_state(),
        getattr(torch.utils.deterministic, _FILL),
    )
    compute_deterministically(True)
    # Deterministic results do not read what they have not written; filling costs time.
    setattr(torch.utils.deterministic, _FILL, False)
    if before[1] != threads:
        torch.set_num_threads(threads)
    torch.default_generator.manual_seed(seed)
    try:
        with recording():
            if device == CPU:
                yield
            else:
                with _exact_on(device, seed):
                    yield
    finally:
        compute_deterministically(before[0])
        if before[1] != threads:
            torch.set_num_threads(before[1])
        torch.set_rng_state(before[2])
        setattr(torch.utils.deterministic, _FILL, before[3])


@contextmanager
def _exact_on(device: torch.device, seed: int) -> Iterator[None]:
    """Seed one accelerator, and let cuDNN choose its algorithms without timing them."""
    benchmark = torch.backends.cudnn.benchmark
    torch.backends.cudnn.benchmark = False
    try:
        with drawing(device, seed):
            yield
    finally:
        torch.backends.cudnn.benchmark = benchmark


#: The generators that `rng_state` knows beside those of accelerators.
_KNOWN = ("python", "numpy", "torch")


def rng_state() -> dict[str, Any]:
    """Return the states of Python's, numpy's and torch's generators, for `Recipe.state["rng"]`.

    Take it right before the training. A kind of accelerator, such as "cuda", has one state for each
    device, and is left out where it was not used yet.
    """
    found: dict[str, Any] = {
        "python": random.getstate(),
        "numpy": np.random.get_state(),
        "torch": torch.get_rng_state(),
    }
    return found | generators()


@contextmanager
def borrowed(
    seed: int, states: Mapping[str, Any] | None = None, threads: int = 1
) -> Iterator[None]:
    """Inside the block, random numbers and roundings are those of a fresh process; then as before.

    Python's, numpy's and torch's generators, those of every accelerator among them, start from
    `seed`, then from what `states` has of them. torch is deterministic, computes with `threads`
    threads, in float32 where no dtype is named, on the CPU where no device is, with gradients and
    without automatic mixed precision.

    Raises:
        InvalidRecipe: `states` is not what `rng_state` returns.
    """
    before = rng_state()
    with ExitStack() as stack:
        stack.callback(_put_back, before)
        stack.enter_context(neutral(seed, threads))
        _seed(seed)
        _set(states or {})
        yield


@contextmanager
def neutral(seed: int, threads: int = 1) -> Iterator[None]:
    """Inside the block torch computes as in a worker, whatever the caller has set; see `exact`."""
    dtype, precision = torch.get_default_dtype(), torch.get_float32_matmul_precision()
    benchmark = torch.backends.cudnn.benchmark
    with ExitStack() as stack:
        stack.callback(torch.set_default_dtype, dtype)
        stack.callback(torch.set_float32_matmul_precision, precision)
        stack.callback(setattr, torch.backends.cudnn, "benchmark", benchmark)
        torch.set_default_dtype(torch.float32)
        torch.set_float32_matmul_precision("highest")
        torch.backends.cudnn.benchmark = False
        stack.enter_context(torch.device("cpu"))
        stack.enter_context(torch.autocast("cpu", enabled=False))
        stack.enter_context(exact(seed, threads))
        yield


def _seed(seed: int) -> None:
    random.seed(seed)
    np.random.seed(seed % 2**32)  # all that it takes
    torch.default_generator.manual_seed(seed)
    seed_accelerators(seed)


def _set(states: Mapping[str, Any]) -> None:
    of_devices = {kind: states[kind] for kind in set(states) - set(_KNOWN)}
    here = accelerator()
    for kind in sorted(set(of_devices) - {here.type if here else ""}):
        raise InvalidRecipe(
            f"The recipe's state 'rng' holds {kind!r}.",
            hint=f"Known here: {', '.join([*_KNOWN, *([here.type] if here else [])])}.",
        )
    try:
        if "python" in states:
            random.setstate(states["python"])
        if "numpy" in states:
            np.random.set_state(states["numpy"])
        if "torch" in states:
            torch.set_rng_state(states["torch"])
        for found in of_devices.values():
            for device, state in zip(accelerators(), found, strict=True):
                set_generator(device, state)
    except (AttributeError, LookupError, RuntimeError, TypeError, ValueError) as error:
        raise InvalidRecipe(
            f"The recipe's state 'rng' cannot be set: {error}.",
            hint="Record it with mmdb.rng_state(), where as many GPUs are.",
        ) from error


def _put_back(before: Mapping[str, Any]) -> None:
    _set(before)
    if generators().keys() - before.keys():
        seed_accelerators(None)  # they had no state before: draw one, as a fresh process would
