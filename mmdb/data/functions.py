"""Functions that the owner has registered, and the tokenizers among them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from blake3 import blake3

from mmdb.data.names import check_name
from mmdb.data.tokenize import (
    BUILT_IN,
    BYTES_END,
    Encoder,
    Tokenizer,
    bytes_ids,
    bytes_text,
    encoder,
)
from mmdb.data.tokenizer_json import TARGET, JsonTokenizer, read_tokenizer, target_of
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

    Args:
        target: package.module:callable; or the text of a tokenizer.json, which is kept as it is.
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
    if kind == "tokenizer" and target.lstrip().startswith("{"):
        read_tokenizer(name, target)
        connection.run(_Q.add_tokenizer, name=name, definition=target)
        return
    with connection.transaction():  # what the caller may not register is not imported
        connection.run(_Q.add_function, name=name, kind=kind, target=target)
        resolve_function(target, kind)


def keep_tokenizer(connection: Connection, name: str, definition: str) -> str:
    """Return the name under which a tokenizer.json is registered, now at the latest.

    Args:
        name: of the model that came with it; the hash is added where another one has that name.
    Raises:
        FunctionFailed: see `read_tokenizer`. RightsMissing
    """
    known = connection.rows(_Q.find_same_tokenizer, definition=definition)
    if known:
        return str(known[0]["name"])
    if name in (*BUILT_IN, *find_functions(connection).get("tokenizer", {})):
        name = f"{name}-{blake3(definition.encode()).hexdigest()[:8]}"
    register_function(connection, name, definition, "tokenizer")
    return name


def find_tokenizer(connection: Connection, name: str) -> tuple[str, JsonTokenizer]:
    """Return the text of a tokenizer.json that is registered, and the tokenizer.

    Raises:
        FunctionNotFound: there is none of this name. FunctionFailed: see `read_tokenizer`.
    """
    rows = connection.rows(_Q.find_tokenizer, name=name)
    if not rows:
        raise FunctionNotFound(f"There is no tokenizer.json {name!r}.")
    definition = str(rows[0]["definition"])
    return definition, read_tokenizer(name, definition)


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
    connection: Connection, tokenizers: Mapping[str, Tokenizer], label: str
) -> dict[str, Tokenizer]:
    """Return tokenizers with the targets that are registered for their functions.

    Args:
        label: the column that is predicted; of texts each next token.
    Raises:
        FunctionNotFound, FunctionFailed
        InvalidOption: a tokenizer has no end, or ids that cannot become a text again.
    """
    found = {}
    for column, tokenizer in tokenizers.items():
        target = _target(connection, tokenizer)
        found[column] = replace(tokenizer, target=target)
        if target is not None and target.startswith(TARGET):
            _, own = find_tokenizer(connection, tokenizer.function)
            pad = own.pad if tokenizer.pad is None else tokenizer.pad
            end = tokenizer.end
            if end is None and column == label:
                end = own.end
            found[column] = replace(found[column], vocabulary=own.vocabulary, pad=pad, end=end)
        elif tokenizer.function == "bytes" and column == label:
            found[column] = replace(found[column], vocabulary=BYTES_END + 1, end=BYTES_END)
        _check_end(column, found[column], is_label=column == label)
    return found


def _check_end(column: str, tokenizer: Tokenizer, *, is_label: bool) -> None:
    if not is_label:
        if tokenizer.end is None and not tokenizer.pack:
            return
        raise InvalidOption(
            f"Option tokenize.{column} has end or pack, which are of texts whose next tokens are "
            "predicted.",
            hint=f"Pass label => {column!r}, or leave them out.",
        )
    if tokenizer.vocabulary is None or tokenizer.function == "words":
        raise InvalidOption(
            f"Next tokens of tokenizer {tokenizer.function!r} cannot become a text again.",
            hint="Use bytes, or a tokenizer.json.",
        )
    if tokenizer.end is None or tokenizer.end >= tokenizer.vocabulary or tokenizer.length < 2:
        raise InvalidOption(
            f"Next tokens of {column!r} need a token that ends a text, and rows of 2 tokens.",
            hint=f"Pass end, an id below {tokenizer.vocabulary}, and length from 2, "
            "in option tokenize.",
        )


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
        function: Callable[..., object] | None = None
        if target is not None and target.startswith(TARGET):
            _, own = find_tokenizer(connection, tokenizer.function)
            length = None if tokenizer.pack else tokenizer.length
            function = partial(own.encode, length=length)
        elif target is not None:
            function = resolve_function(target, "tokenizer")
        found[column] = encoder(tokenizer, function)  # type: ignore[arg-type]
    return found


@dataclass(frozen=True, slots=True)
class TextCodec:
    """From a text to ids and back: of prompts and of what follows them."""

    encode: Callable[[str], list[int]]
    decode: Callable[[Sequence[int]], str]
    vocabulary: int  # ids are below it
    end: int | None


def codec(connection: Connection, tokenizer: Tokenizer) -> TextCodec:
    """Return the codec of a dataset of next tokens.

    Raises:
        FunctionNotFound, FunctionFailed: see `encoders`.
    """
    encoders(connection, {"": tokenizer})
    if tokenizer.function == "bytes":
        return TextCodec(bytes_ids, bytes_text, BYTES_END + 1, tokenizer.end)
    return codec_of(find_tokenizer(connection, tokenizer.function)[1], tokenizer.end)


def codec_of(own: JsonTokenizer, end: int | None = None) -> TextCodec:
    """Return the codec of a tokenizer.json."""
    end = own.end if end is None else end

    def encode(text: str) -> list[int]:
        (ids,) = own.encode([text])
        return ids[:-1] if ids[-1:] == [end] else ids  # the text is to go on

    return TextCodec(encode, own.decode, own.vocabulary, end)


def _target(connection: Connection, tokenizer: Tokenizer) -> str | None:
    if tokenizer.function in BUILT_IN:
        return None
    known = find_functions(connection).get("tokenizer", {})
    if tokenizer.function not in known:
        raise FunctionNotFound(
            f"There is no tokenizer {tokenizer.function!r}.",
            hint=f"Known: {', '.join((*BUILT_IN, *known))}. {FunctionNotFound.default_hint}",
        )
    if known[tokenizer.function] == TARGET:
        return target_of(find_tokenizer(connection, tokenizer.function)[0])
    return known[tokenizer.function]
