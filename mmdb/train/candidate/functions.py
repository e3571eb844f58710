"""Functions that the owner has registered, as callables."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from mmdb.data.functions import resolve_function
from mmdb.errors import FunctionNotFound
from mmdb.train.candidate.choices import Choice

#: Registered functions: kind -> name -> 'package.module:callable'.
Functions = Mapping[str, Mapping[str, str]]


def registered(functions: Functions, kind: str) -> tuple[str, ...]:
    """Return the names of the registered functions of a kind."""
    return tuple(functions.get(kind, {}))


def function_of(functions: Functions, kind: str, choice: Choice) -> Callable[..., object]:
    """Return a registered function, with the choice's arguments bound by name.

    Raises:
        FunctionNotFound: none of that kind and name is registered.
        FunctionFailed: its target cannot be imported or called.
    """
    target = functions.get(kind, {}).get(choice.name)
    if target is None:
        raise FunctionNotFound(f"There is no {kind} {choice.name!r}.")
    found = resolve_function(target, kind)
    return partial(found, **choice.arguments) if choice.arguments else found
