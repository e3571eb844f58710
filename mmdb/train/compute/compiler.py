"""torch's compiler stays out of a process until a module is compiled.

An optimizer imports `torch._dynamo` in its first step, to ask it to leave the step alone, and
`torch.use_deterministic_algorithms` imports it to tell it too. That is 0.8 s of computing, nearly
half of what a worker takes to start.
"""

from __future__ import annotations

import sys
from importlib import import_module
from threading import Lock
from types import ModuleType
from typing import Any

import torch

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
