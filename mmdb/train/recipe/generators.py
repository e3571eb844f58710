"""The process's random generators and numeric settings, borrowed and put back."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any

import numpy as np
import torch

from mmdb.errors import InvalidRecipe
from mmdb.train.compute.exact import exact

#: The generators that `rng_state` knows.
_KNOWN = ("python", "numpy", "torch", "cuda")


def rng_state() -> dict[str, Any]:
    """Return the states of Python's, numpy's and torch's generators, for `Recipe.state["rng"]`.

    Take it right before the training. "cuda" has one state for each device, and is left out where
    CUDA was not used yet.
    """
    found: dict[str, Any] = {
        "python": random.getstate(),
        "numpy": np.random.get_state(),
        "torch": torch.get_rng_state(),
    }
    if torch.cuda.is_initialized():
        found["cuda"] = torch.cuda.get_rng_state_all()
    return found


@contextmanager
def borrowed(
    seed: int, states: Mapping[str, Any] | None = None, threads: int = 1
) -> Iterator[None]:
    """Inside the block, random numbers and roundings are those of a fresh process; then as before.

    Python's, numpy's and torch's generators, those of every CUDA device among them, start from
    `seed`, then from what `states` has of them. torch is deterministic, computes with `threads`
    threads, in float32 where no dtype is named, on the CPU where no device is, with gradients and
    without automatic mixed precision.

    Raises:
        InvalidRecipe: `states` is not what `rng_state` returns.
    """
    before = rng_state()
    woken = torch.cuda.is_initialized()
    with ExitStack() as stack:
        stack.callback(_put_back, before, woken)
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
    if torch.cuda.is_available():
        torch.cuda.manual_seed_all(seed)


def _set(states: Mapping[str, Any]) -> None:
    unknown = sorted(set(states) - set(_KNOWN))
    if unknown:
        raise InvalidRecipe(
            f"The recipe's state 'rng' holds {unknown[0]!r}.", hint=f"Known: {', '.join(_KNOWN)}."
        )
    try:
        if "python" in states:
            random.setstate(states["python"])
        if "numpy" in states:
            np.random.set_state(states["numpy"])
        if "torch" in states:
            torch.set_rng_state(states["torch"])
        if "cuda" in states:
            torch.cuda.set_rng_state_all(states["cuda"])
    except (AttributeError, LookupError, RuntimeError, TypeError, ValueError) as error:
        raise InvalidRecipe(
            f"The recipe's state 'rng' cannot be set: {error}.",
            hint="Record it with mmdb.rng_state(), where as many GPUs are.",
        ) from error


def _put_back(before: Mapping[str, Any], woken: bool) -> None:
    _set(before)
    if torch.cuda.is_initialized() and not woken:
        torch.cuda.seed_all()  # it had no state before: draw one, as a fresh process would
