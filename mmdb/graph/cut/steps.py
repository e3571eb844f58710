"""What a forward does, step by step."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

Kind = Literal["input", "tensor", "constant", "module", "function", "method"]


@dataclass(eq=False, slots=True, kw_only=True)
class Step:
    """One thing that a forward does; steps stand for tensors among the arguments.

    Attributes:
        target: name of an input, path of a tensor or module, function, or name of a method.
        rewrites: the step whose result this one changes in place.
        modes: as `torch_modes`, while it ran.
    """

    kind: Kind
    target: Any
    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] = field(default_factory=dict)
    rewrites: Step | None = None
    modes: tuple[bool, ...] = ()

    @property
    def name(self) -> str:
        """What a message calls it."""
        return str(getattr(self.target, "__name__", self.target))

    @property
    def sources(self) -> Iterator[Step]:
        """The steps whose results it reads."""
        return steps_in((self.args, self.kwargs))


@dataclass(slots=True, kw_only=True)
class Followed:
    """What a forward did.

    Attributes:
        inputs: the names of its tensors.
        steps: in the order in which they ran, inputs first.
        output: what it returned, with steps in place of tensors.
        results: (path, what the module there returned), in the order in which they ended.
        modes: as `torch_modes`, where the forward began.
    """

    inputs: tuple[str, ...]
    steps: list[Step]
    output: Any
    results: list[tuple[str, Any]]
    modes: tuple[bool, ...]

    def results_of(self, path: str) -> list[Any]:
        """Return what each call of the module at `path` returned."""
        return [result for at, result in self.results if at == path]


def steps_in(value: object) -> Iterator[Step]:
    """Yield the steps in an argument, in their order."""
    if isinstance(value, Step):
        yield value
    elif isinstance(value, list | tuple):
        for item in value:
            yield from steps_in(item)
    elif isinstance(value, dict):
        for item in value.values():
            yield from steps_in(item)
    elif isinstance(value, slice):
        yield from steps_in((value.start, value.stop, value.step))


def replaced(value: Any, change: Callable[[Any], Any]) -> Any:
    """Return an argument with `change` of each value in it that holds no others."""
    if isinstance(value, list | tuple):
        items = [replaced(item, change) for item in value]
        if isinstance(value, tuple) and hasattr(value, "_fields"):  # a namedtuple
            return type(value)(*items)
        return tuple(items) if isinstance(value, tuple) else items
    if isinstance(value, dict):
        return {key: replaced(item, change) for key, item in value.items()}
    if isinstance(value, slice):
        return slice(*(replaced(end, change) for end in (value.start, value.stop, value.step)))
    return change(value)
