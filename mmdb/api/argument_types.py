"""Names the argument whose type a call has failed at, in place of the error that Python raises."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from numbers import Integral, Real
from os import PathLike
from pathlib import Path
from types import NoneType, SimpleNamespace, UnionType
from typing import Any, Literal, ParamSpec, TypeVar, Union, get_args, get_origin, get_type_hints

from mmdb.errors import InvalidOption, MmdbError, stops_the_caller
from mmdb.messages import show

_Class = TypeVar("_Class", bound=type[Any])
_Given = ParamSpec("_Given")
_Result = TypeVar("_Result")

#: What a value of a type is called.
_WORDS: dict[Any, str] = {
    bool: "true or false",
    float: "a number",
    int: "a whole number",
    str: "a text",
    Mapping: "a mapping",
    NoneType: "None",
    Path: "a path",
    PathLike: "a path",
    Sequence: "a list",
}
#: What is taken for a number: one of numpy, too.
_NUMBERS: dict[Any, Any] = {int: Integral, float: Real}


def names_wrong_types(kind: _Class) -> _Class:
    """Let the public methods of a class, inherited ones too, name arguments of a wrong type."""
    for name, method in inspect.getmembers(kind, inspect.isfunction):
        if not name.startswith("_"):
            setattr(kind, name, _checked(method))
    return kind


def _checked(method: Callable[_Given, _Result]) -> Callable[_Given, _Result]:
    @functools.wraps(method)
    def call(*args: _Given.args, **kwargs: _Given.kwargs) -> _Result:
        try:
            return method(*args, **kwargs)
        except Exception as error:  # only then: much of another type does as well
            if not (isinstance(error, MmdbError) or stops_the_caller(error)):
                _check(method, inspect.signature(method).bind(*args, **kwargs).arguments, error)
            raise

    return call


def _check(method: Callable[..., Any], given: Mapping[str, Any], error: Exception) -> None:
    for name, value in given.items():
        said = SimpleNamespace(__annotations__={name: method.__annotations__.get(name, Any)})
        try:
            kind = get_type_hints(said, method.__globals__)[name]
        except NameError:  # a type that is imported for type checkers alone
            continue
        if not _fits(value, kind):
            kinds = get_args(kind) if get_origin(kind) in (Union, UnionType) else (kind,)
            plain = (get_origin(one) or one for one in kinds)
            words = dict.fromkeys(_WORDS.get(one) or one.__name__ for one in plain)
            is_text = isinstance(value, str) and str in kinds
            more = "; a lone surrogate is no character" if is_text else ""
            hint = f"It is {' or '.join(words)}{more}."
            raise InvalidOption(f"{name} is {show(value)}.", hint=hint) from error


def _fits(value: object, kind: Any) -> bool:
    origin = get_origin(kind) or kind
    if origin in (Union, UnionType):
        return any(_fits(value, one) for one in get_args(kind))
    if origin in _NUMBERS:
        return isinstance(value, _NUMBERS[origin]) and not isinstance(value, bool)
    if origin in (Any, Literal):
        return True
    if not isinstance(value, origin):
        return False
    if isinstance(value, str):
        return value == value.encode(errors="ignore").decode()
    return origin is not Sequence or all(_fits(one, get_args(kind)[0]) for one in value)
