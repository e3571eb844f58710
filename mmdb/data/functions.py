"""Functions that the owner has registered, and the tokenizers among them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from mmdb.data.names import check_name
from mmdb.data.tokenize import BUILT_IN, Encoder, Tokenizer, encoder
from mmdb.db.connection import Connection
from mmdb.db.queries import load
from mmdb.errors import (
    AlreadyExists,
    FactoryFailed,
    FunctionFailed,
    FunctionNotFound,
    InvalidOption,
)
from mmdb.graph.spec.factory_call import resolve

_Q = load("functions")
KINDS = ("tokenizer", "augmentation", "loss", "metric")


def register_function(connection: Connection, name: str, target: str, kind: str) -> None:
    """Put a function on the allow-list; the engine's rights say who may.

    Raises:
        InvalidName, InvalidOption: the kind is unknown. AlreadyExists
        FunctionFailed: the target cannot be imported or called.
    """
    check_name(name)
    if kind not in KINDS:
        raise InvalidOption(
            f"There is no kind {kind!r} of function.", hint=f"Kinds: {', '.join(KINDS)}."
        )
    taken = kind == "tokenizer" and name in BUILT_IN
    if taken or name in find_functions(connection).get(kind, {}):
        raise AlreadyExists(f"There is a {kind} {name!r} already.", hint="Choose another name.")
    with connection.transaction():  # what the caller may not register is not imported
        connection.run(_Q.add_function, name=name, kind=kind, target=target)
        resolve_function(target, kind)


def find_factories(connection: Connection) -> dict[str, str]:
    """Return the registered factories: name -> target."""
    return {row["name"]: row["target"] for row in connection.rows(load("catalog").find_factories)}


def find_functions(connection: Connection) -> dict[str, dict[str, str]]:
    """Return the registered functions: kind -> name -> target."""
    found: dict[str, dict[str, str]] = {}
    for row in connection.rows(_Q.find_functions):
        found.setdefault(row["kind"], {})[row["name"]] = row["target"]
    return found


def resolve_function(target: str, kind: str) -> Callable[..., object]:
    """Return the callable that 'package.module:callable' names.

    Raises:
        FunctionFailed: the target is malformed, or cannot be imported or called.
    """
    try:
        return resolve(target)
    except FactoryFailed as error:
        message = error.message.replace("the target of a factory", f"the target of a {kind}")
        raise FunctionFailed(message, hint=error.hint) from error


def with_targets(
    connection: Connection, tokenizers: Mapping[str, Tokenizer]
) -> dict[str, Tokenizer]:
    """Return tokenizers with the targets that are registered for their functions.

    Raises:
        FunctionNotFound
    """
    return {
        column: replace(tokenizer, target=_target(connection, tokenizer))
        for column, tokenizer in tokenizers.items()
    }


def encoders(connection: Connection, tokenizers: Mapping[str, Tokenizer]) -> dict[str, Encoder]:
    """Return what turns texts into tokens, by column.

    Whoever may create datasets writes the targets that are kept with them, so only those that are
    registered are imported.

    Raises:
        FunctionNotFound, FunctionFailed
    """
    found = {}
    for column, tokenizer in tokenizers.items():
        target = _target(connection, tokenizer)
        if target != tokenizer.target:
            raise FunctionFailed(
                f"Tokenizer {tokenizer.function!r} is {target} now; the dataset was made with "
                f"{tokenizer.target}.",
                hint="Register that one under this name again.",
            )
        function = None if target is None else resolve_function(target, "tokenizer")
        found[column] = encoder(tokenizer, function)  # type: ignore[arg-type]
    return found


def _target(connection: Connection, tokenizer: Tokenizer) -> str | None:
    if tokenizer.function in BUILT_IN:
        return None
    known = find_functions(connection).get("tokenizer", {})
    if tokenizer.function not in known:
        raise FunctionNotFound(
            f"There is no tokenizer {tokenizer.function!r}.",
            hint=f"Known: {', '.join((*BUILT_IN, *known))}. {FunctionNotFound.default_hint}",
        )
    return known[tokenizer.function]
