"""Placeholders in the arguments of layers: "$outputs", "$width", "$width * 2", "$width // 2"."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from mmdb.arguments import is_whole
from mmdb.errors import InvalidLayerGraph
from mmdb.graph.ops import OPS
from mmdb.messages import show

_PLACEHOLDER = re.compile(
    r"\$([A-Za-z_][A-Za-z0-9_]{0,99})(?: ?(\*|//) ?([1-9][0-9]{0,5}))?", re.ASCII
)
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,99}", re.ASCII)


class _Layer(Protocol):
    @property
    def op(self) -> str: ...
    @property
    def args(self) -> Mapping[str, object]: ...
    def error(self, reason: str, hint: str = "") -> InvalidLayerGraph: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Placeholders:
    """The values that stand for "$name", and which of them have been used."""

    built_in: Mapping[str, object]
    given: Mapping[str, object]
    used: set[str] = field(default_factory=set)

    @classmethod
    def of(
        cls,
        defaults: object,
        arguments: Mapping[str, object],
        input_shape: tuple[int, ...],
        outputs: int,
    ) -> Placeholders:
        """Return the placeholders of a graph; `arguments` override `defaults`."""
        if not isinstance(defaults, Mapping):
            raise InvalidLayerGraph(f"'defaults' must be an object, not {show(defaults)}")
        built_in = {
            "outputs": outputs,
            "features": math.prod(input_shape),
            "channels": input_shape[0],
        }
        for name in (*defaults, *arguments):
            if not isinstance(name, str) or not _NAME.fullmatch(name) or name in built_in:
                raise InvalidLayerGraph(f"an argument cannot be named {show(name)}")
        return cls(built_in=built_in, given={**defaults, **arguments})

    def fill(self, layer: _Layer) -> dict[str, object]:
        """Return the layer's arguments with values in place of placeholders, each of its kind."""
        kinds = OPS[layer.op].args
        filled = {}
        for name, raw in layer.args.items():
            if name not in kinds:
                allowed = ", ".join(kinds) or "none"
                raise layer.error(f"unknown argument {show(name)}", f"Its arguments: {allowed}.")
            value = self._value(layer, raw)
            if isinstance(value, list | tuple):
                value = [self._value(layer, item) for item in value]
            try:
                filled[name] = kinds[name](value)
            except ValueError as exc:
                raise layer.error(f"{name} {exc}, not {show(value)}") from exc
        for name in OPS[layer.op].required:
            if name not in filled:
                raise layer.error(f"argument {name!r} is missing")
        return filled

    def check_all_used(self) -> None:
        """Raise InvalidLayerGraph if a given argument stands in no layer."""
        for name in self.given:
            if name not in self.used:
                raise InvalidLayerGraph(
                    f"argument {name!r} is used by no layer",
                    hint=f'Write "${name}" where its value belongs, or leave the argument out.',
                )

    def _value(self, layer: _Layer, raw: object) -> object:
        if not isinstance(raw, str) or not raw.startswith("$"):
            return raw
        match = _PLACEHOLDER.fullmatch(raw)
        if match is None:
            raise layer.error(
                f"cannot read the placeholder {show(raw)}",
                'Write "$name", "$name * 2" or "$name // 2".',
            )
        name, operator, number = match.groups()
        if name not in self.built_in and name not in self.given:
            raise layer.error(
                f"nothing gives a value to ${name}",
                'Give it in the graph\'s "defaults", or as a dimension of the search space.',
            )
        self.used.add(name)
        value = self.built_in.get(name, self.given.get(name))
        return value if operator is None else _scaled(layer, raw, value, operator, int(number))


def _scaled(layer: _Layer, raw: str, value: object, operator: str, by: int) -> object:
    if not is_whole(value):
        raise layer.error(f"{show(raw)} needs a whole number, not {show(value)}")
    return value * by if operator == "*" else value // by
