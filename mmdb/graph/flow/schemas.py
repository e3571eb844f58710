"""What torch's schema of an operation says, read once per operation."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import torch
from torch._ops import OpOverload

from mmdb.graph.flow.canonical import NO_CHANGE, ONLY_SIZES, WHOLE


@dataclass(frozen=True, slots=True, kw_only=True)
class Schema:
    """An operation's schema.

    Attributes:
        name: aten's, without overload: "aten::add_".
        arguments: name and default, in order.
        writes: the arguments that it writes into.
        decomposes: it stands for others, and is not recorded as one.
        keeps_values: its result holds the values of its first argument.
        only_sizes: its result depends on sizes, not on values.
        takes_device: it has an argument "device".
        has_new_results: its results share no memory with its arguments, or are the first of them,
            which it writes into.
        is_random: it draws from a generator.
        changes_view: it changes the shape of its argument in place.
    """

    name: str
    arguments: tuple[tuple[str, object], ...]
    writes: tuple[str, ...]
    decomposes: bool
    keeps_values: bool
    only_sizes: bool
    takes_device: bool
    has_new_results: bool
    is_random: bool
    changes_view: bool


@lru_cache(maxsize=4096)
def schema_of(func: OpOverload) -> Schema:
    """Return the schema of an operation."""
    found = func._schema
    plain = found.name.removeprefix("aten::").rstrip("_")
    arguments = tuple((arg.name, arg.default_value) for arg in found.arguments)
    writes = (a.name for a in found.arguments if a.alias_info and a.alias_info.is_write)
    return Schema(
        name=found.name,
        arguments=arguments,
        writes=tuple(writes),
        decomposes=plain not in WHOLE and func._can_decompose(),
        keeps_values=plain in NO_CHANGE,
        only_sizes=plain in ONLY_SIZES,
        takes_device=any(name == "device" for name, _ in arguments),
        has_new_results=_has_new_results(func),
        is_random=torch.Tag.nondeterministic_seeded in func.tags,
        changes_view=torch.Tag.inplace_view in func.tags,
    )


def _has_new_results(func: OpOverload) -> bool:
    found = func._schema
    if all(one.alias_info is None for one in (*found.returns, *found.arguments)):
        return True
    written = [one.alias_info is not None and one.alias_info.is_write for one in found.arguments]
    in_place = found.name.endswith("_") and torch.Tag.inplace_view not in func.tags
    return in_place and sum(written) == written[0] == len(found.returns)
