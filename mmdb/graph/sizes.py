"""How large a model's inputs and outputs are: one number or shape, or several by name."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

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
