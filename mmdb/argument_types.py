"""Names the argument whose type a call has failed at, in place of the error that Python raises."""

from __future__ import annotations

import ast
import functools
import inspect
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from importlib import import_module
from numbers import Integral, Real
from os import PathLike
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, ParamSpec, TypeVar, Union, get_args, get_origin, get_type_hints

from mmdb.errors import DatabaseFailed, InvalidOption, MmdbError, stops_the_caller
from mmdb.messages import show

_Class = TypeVar("_Class", bound=type[Any])
_Given = ParamSpec("_Given")
_Result = TypeVar("_Result")

#: What a value of a type is called.
_WORDS: dict[Any, str] = {
    bool: "true or false",
    Callable: "a function",
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


def methods_name_wrong_types(kind: _Class) -> _Class:
    """Let the public methods of a class, inherited ones too, name arguments of a wrong type."""
    for name, method in inspect.getmembers(kind, inspect.isfunction):
        if not name.startswith("_"):
            setattr(kind, name, names_wrong_types(method))
    return kind


def names_wrong_types(method: Callable[_Given, _Result]) -> Callable[_Given, _Result]:
    """Let a public function name arguments of a wrong type."""

    @functools.wraps(method)
    def call(*args: _Given.args, **kwargs: _Given.kwargs) -> _Result:
        try:
            return method(*args, **kwargs)
        except Exception as error:  # only then: much of another type does as well
            known = isinstance(error, MmdbError) and not isinstance(error, DatabaseFailed)
            if not (known or stops_the_caller(error)):
                hints = get_type_hints(method, _names(method))
                with suppress(TypeError):  # too many arguments, which Python's own error says
                    given = inspect.signature(method).bind(*args, **kwargs).arguments
                    for name, value in given.items():
                        check_type(name, value, hints.get(name, Any))
            raise

    return call


def check_type(name: str, value: object, kind: Any) -> None:
    """Name an argument of another type than `kind`.

    Raises:
        InvalidOption
    """
    if not _fits(value, kind):
        kinds = get_args(kind) if get_origin(kind) in (Union, UnionType) else (kind,)
        plain = (get_origin(one) or one for one in kinds)
        words = dict.fromkeys(_WORDS.get(one) or f"a {one.__name__}" for one in plain)
        is_text = isinstance(value, str) and str in kinds
        more = "; a lone surrogate is no character" if is_text else ""
        raise InvalidOption(f"{name} is {show(value)}.", hint=f"It is {' or '.join(words)}{more}.")


def _names(method: Callable[..., Any]) -> dict[str, Any]:
    """Return the names that types are said by: those imported for type checkers alone, too."""
    names = dict(method.__globals__)
    for node in ast.parse(inspect.getsource(sys.modules[method.__module__])).body:
        is_unread = isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
        for one in ast.walk(node) if is_unread else ():
            if isinstance(one, ast.Import):
                names |= {a.name: import_module(a.name) for a in one.names}
            elif isinstance(one, ast.ImportFrom) and one.module:
                module = import_module(one.module)
                names |= {a.asname or a.name: getattr(module, a.name) for a in one.names}
    return names


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
