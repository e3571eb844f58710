"""What goes from layer to layer of several networks of one shape, and how each may ask for it."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

#: Numbers of two of the processor's registers, by which torch's loops go; the rest of a loop, which
#: is computed otherwise, has none of a member's numbers then.
WIDTH = 32
#: What a layer needs beside its input: parameters and buffers of all members by path.
Tensors = Mapping[str, Tensor]
Generators = Sequence[torch.Generator]


def filled(width: int, unit: int = WIDTH) -> int:
    """Return a width filled up to a multiple.

    >>> filled(1), filled(32), filled(33)
    (32, 32, 64)
    """
    return -(-width // unit) * unit


def fill(x: Tensor, unit: int = WIDTH) -> Tensor:
    """Return what ends in a width, filled up by zeros."""
    more = filled(x.shape[-1], unit) - x.shape[-1]
    return nn.functional.pad(x, (0, more)) if more else x


def settled(x: Tensor) -> Tensor:
    """Return a tensor whose slopes come back by themselves, one after the other.

    A part of what lies elsewhere would lie for each member otherwise.
    """
    if x.requires_grad:
        x.register_hook(_by_itself)
    return x


def _by_itself(slopes: Tensor) -> Tensor:
    is_part = slopes.storage_offset() > 0
    return slopes.clone(memory_format=torch.contiguous_format) if is_part else slopes.contiguous()


def fill_rows(x: Tensor, numbers: int, unit: int = WIDTH) -> Tensor:
    """Return (members, n, ...) with rows of zeros more, until n * numbers is such a multiple."""
    more = filled(x.shape[1], unit // math.gcd(unit, numbers)) - x.shape[1]
    return nn.functional.pad(x, (0, 0) * (x.ndim - 2) + (0, more)) if more else x


@dataclass(frozen=True, slots=True)
class Flow:
    """Values of a batch of each member, (members, n, *shape), stored as the last layer made them.

    Attributes:
        x: (members, n, *shape); or, if `turned`, (members, channels, n, *space).
        width: the last dimension of the shape, where zeros fill it up; None: nothing does.
    """

    x: Tensor
    width: int | None = None
    turned: bool = False

    def plain(self) -> Tensor:
        """Return (members, n, *shape), filled up by nothing.

        What lies as another layer likes it would be a view of one member, and of more a copy: torch
        computes with either in its own way.
        """
        x = self.x.transpose(1, 2) if self.turned else self.x[..., : self.width]
        return x.contiguous()

    def wide(self, unit: int) -> Flow:
        """Return it with a last dimension that is filled up."""
        if self.width is not None:
            return self
        x = self.plain()
        return Flow(fill(x, unit), x.shape[-1])

    def channels(self) -> Tensor:
        """Return (members, channels, n, *space)."""
        return self.x.contiguous() if self.turned else self.plain().transpose(1, 2).contiguous()


#: From what goes into a layer of all members to what comes out.
Step = Callable[..., Flow]


class NotStackable(Exception):
    """A layer has no form for several members."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Layer:
    """The same layer of each member, of which a form makes a step.

    Attributes:
        modules: the layer of each member; they differ in numbers such as a dropout's alone. One
            stands for all members, and has one generator, where they do not differ.
        tensors: (members, *shape) by path; buffers are changed in place.
        draws: of each member.
        forms: of all layers that there are, by class.
        path: of the layer, with a dot at its end; empty for the whole network.
        unit: of which widths are multiples.
        settles: whether slopes may be parts of something else; see `settled`.
    """

    modules: Sequence[nn.Module]
    tensors: Tensors
    draws: Generators
    forms: Mapping[type[nn.Module], Form]
    path: str = ""
    unit: int = WIDTH
    settles: bool = True

    def step(self) -> Step:
        """Return what the layer does, in training.

        Raises:
            NotStackable
        """
        kind = type(self.modules[0])
        if kind not in self.forms:
            raise NotStackable(kind.__name__)
        run = self.forms[kind](self)
        if not self.settles:
            return run

        def step(*flows: Flow) -> Flow:
            found = run(*flows)
            return replace(found, x=settled(found.x))

        return step

    def child(self, name: str) -> Layer:
        """Return a layer inside."""
        return Layer(
            modules=[module.get_submodule(name) for module in self.modules],
            tensors=self.tensors,
            draws=self.draws,
            forms=self.forms,
            path=f"{self.path}{name}.",
            unit=self.unit,
            settles=self.settles,
        )

    def tensor(self, name: str) -> Tensor:
        """Return its own parameter or buffer, (members, *filled shape)."""
        return self.tensors[self.path + name]

    def needs(self, holds: bool) -> None:
        """Check that a form holds for its layer's arguments.

        Raises:
            NotStackable
        """
        if not holds:
            raise NotStackable(type(self.modules[0]).__name__)


#: From a layer to what it does.
Form = Callable[[Layer], Step]


def by_numbers(function: Callable[[Tensor], Tensor], *, keeps_zero: bool = True) -> Form:
    """Return the form of a function of single numbers."""

    def form(layer: Layer) -> Step:
        def run(flow: Flow) -> Flow:
            if not keeps_zero:
                flow = Flow(flow.plain())
            if flow.x.shape[-1] % layer.unit == 0 and flow.x.is_contiguous():
                return replace(flow, x=function(flow.x))
            flat = flow.x.flatten(1)
            found = function(fill(flat, layer.unit))[:, : flat.shape[1]]
            return Flow(found.reshape(flow.x.shape), flow.width, flow.turned)

        return run

    return form


def by_rows(*, exact: bool = False) -> Form:
    """Return the form of a layer without parameters that computes each row by itself.

    Args:
        exact: it rounds nothing, or only as IEEE 754 says: wherever a number lies it is the same.
    """

    def form(layer: Layer) -> Step:
        (module, *_), unit = layer.modules, 1 if exact else layer.unit

        def run(*flows: Flow) -> Flow:
            several = [flow.plain() for flow in flows]
            members, rows = several[0].shape[:2]
            flat = [fill_rows(x, 1, unit).flatten(0, 1) for x in several]
            return Flow(module(*flat).unflatten(0, (members, -1))[:, :rows])

        return run

    return form
