"""What a factory is called by and with: 'package.module:callable', sizes in and out.

Imports no torch.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable, Sequence
from typing import Protocol, cast

from mmdb.errors import FactoryFailed, stops_the_caller
from mmdb.messages import explain, show

_TARGET = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*", re.ASCII)


def resolve(target: str) -> Callable[..., object]:
    """Return the callable that 'package.module:callable' names.

    Raises:
        FactoryFailed: the target is malformed, or cannot be imported or called.
    """
    if not isinstance(target, str) or len(target) > 500 or not _TARGET.fullmatch(target):
        raise FactoryFailed(
            f"{show(target)} is not the target of a factory",
            hint="Write package.module:callable.",
        )
    module_name, _, name = target.partition(":")
    try:
        found = getattr(importlib.import_module(module_name), name)
    except BaseException as exc:  # importing runs the owner's code, which may raise anything
        if stops_the_caller(exc):
            raise
        raise FactoryFailed(
            f"cannot import {target}: {type(exc).__name__}: {explain(exc)}",
            hint="Install the package where the workers' Python finds it, and check the spelling.",
        ) from exc
    if not callable(found):
        raise FactoryFailed(
            f"{target} is a {type(found).__name__}, which cannot be called",
            hint="Name a function or a class: package.module:callable.",
        )
    return cast("Callable[..., object]", found)


#: Of one row, without the batch: of the only input, or of each by name.
Shape = tuple[int, ...] | dict[str, tuple[int, ...]]
#: Numbers of the only output, or of each by name.
Outputs = int | dict[str, int]
#: "float32" or "int64": of the only input, or of each by name.
Dtypes = str | dict[str, str]


class Sized(Protocol):
    """A label that a model predicts."""

    @property
    def name(self) -> str:
        """Its column."""

    @property
    def size(self) -> int:
        """Numbers that predict it."""


def outputs_asked(targets: Sequence[Sized]) -> Outputs:
    """Return what a factory is asked for: a number for one target, for several each by its name."""
    if len(targets) == 1:
        return targets[0].size
    return {target.name: target.size for target in targets}
