"""Ways to give a child its first weights."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor, nn

from tests.bench.warm.trial import COLD


class Refused(Exception):
    """The arm will not use the parent; its message says why."""


class Arm(Protocol):
    """Sets a freshly built child's weights from a trained parent's, in place.

    `example` are inputs of the child, for arms that trace the modules. Raises Refused.

    Attributes:
        refuses_unlearned: whether it is not given parents whose own score is no better than chance,
            which the zoo refuses by the metric that it keeps beside each model.
        gentle: whether its children learn more slowly at first, as their recipe says.
    """

    @property
    def name(self) -> str: ...

    @property
    def refuses_unlearned(self) -> bool: ...

    @property
    def gentle(self) -> bool: ...

    def initialise(
        self, child: nn.Module, parent: nn.Module, seed: int, example: Tensor
    ) -> None: ...


@dataclass(frozen=True, slots=True)
class Cold:
    """The child's own initial weights."""

    name: str = COLD
    refuses_unlearned: bool = False
    gentle: bool = False

    def initialise(self, child: nn.Module, parent: nn.Module, seed: int, example: Tensor) -> None:
        pass


@dataclass(frozen=True, slots=True)
class CopyByName:
    """Every tensor that has the same path and shape in both."""

    name: str = "copy by name"
    refuses_unlearned: bool = False
    gentle: bool = False

    def initialise(self, child: nn.Module, parent: nn.Module, seed: int, example: Tensor) -> None:
        theirs = parent.state_dict()
        with torch.no_grad():
            for path, tensor in child.state_dict().items():
                if path in theirs and theirs[path].shape == tensor.shape:
                    tensor.copy_(theirs[path])


@dataclass(frozen=True, slots=True)
class Transferred:
    """What a function does: (child, parent, seed, example) -> nothing, the child changed."""

    function: Callable[[nn.Module, nn.Module, int, Tensor], None]
    name: str = "mmdb"
    refuses_unlearned: bool = True
    gentle: bool = False

    def initialise(self, child: nn.Module, parent: nn.Module, seed: int, example: Tensor) -> None:
        self.function(child, parent, seed, example)
