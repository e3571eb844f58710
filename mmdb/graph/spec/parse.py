"""The forms in which a user writes an architecture, read into one: plain JSON, never evaluated."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Mapping
from typing import cast

from mmdb.errors import ArchitectureError, FactoryFailed, FactoryNotAllowed, InvalidLayerGraph
from mmdb.graph.spec.layer_graph import GRAPH_KEYS
from mmdb.messages import show

_MAX_JSON_CHARACTERS = 16_000_000
_MAX_CALL_CHARACTERS = 10_000  # Python's parser recurses; this keeps it far from its limits
_FACTORY_NAME = re.compile(r"[A-Za-z0-9_./-]{1,200}", re.ASCII)
_TARGET = re.compile(r"[A-Za-z_][A-Za-z0-9_.]{0,250}:[A-Za-z_][A-Za-z0-9_.]{0,250}", re.ASCII)
#: Factories whose networks are named behind a colon: "timm:resnet18" is timm(name="resnet18").
LIBRARIES = ("timm", "torchvision", "transformers")
_LIBRARY_NETWORK = re.compile(rf"({'|'.join(LIBRARIES)}):([A-Za-z0-9_.-]{{1,200}})", re.ASCII)
_SQL_CONSTANTS = {"true": True, "false": False, "null": None}
#: Of a network with a head of its own; see `mmdb.graph.spec.head`.
_HEADED_KEYS = ("backbone", "cut", "pool", "head")
#: Of a network for each group of rows; see `mmdb.graph.grouped`.
_GROUPED_KEYS = ("per", "groups", "place", "network")
#: Of the mean of several networks; see `mmdb.graph.mean`.
_MEAN_KEYS = ("mean", "averages")
#: Of a frozen network with an adapter; see `mmdb.graph.adapted`.
_ADAPTED_KEYS = ("adapted", "adapter")
#: What a mean averages: outputs as they are, or the probabilities of a row's classes, or of each of
#: several labels, of which the network returns the logarithms, or the logits.
AVERAGES = ("outputs", "probabilities", "label_probabilities")
#: Of a candidate's arguments, those that are the adapter's; all others are the network's.
ADAPTER_ARGUMENTS = ("rank", "alpha")
#: Names of an adapter's two matrices, beside the weight of the layer that has it.
ADAPTER_TENSORS = ("adapter_a", "adapter_b")
_MOST_AVERAGED = 16
_MOST_NESTED = 8  # backbones with heads inside backbones
_EXAMPLES = (
    "Write a factory name, name(argument=value, ...), "
    '{"factory": name, "arguments": {...}} or {"layers": [...]}.'
)

# json and ast raise these for text that is malformed, too deep or too large.
_PARSE_ERRORS = (ValueError, TypeError, SyntaxError, RecursionError, MemoryError)


def parse(architecture: str | Mapping[str, object]) -> dict[str, object]:
    """Return the architecture as {"factory": name, "arguments": {...}} or as a layer graph.

    A third form puts a head on a part of another architecture:
    {"backbone": architecture, "cut": path, "pool": pool, "head": architecture}. A fourth is an
    architecture for each group of rows: {"per": column, "groups": n, "place": p, "network": ...}.
    A fifth is the mean of several: {"mean": [architecture, ...], "averages": "probabilities"}. A
    sixth is a frozen network with an adapter: {"adapted": architecture, "adapter": {...}}.

    Args:
        architecture: 'mlp', 'mlp(hidden=[64, 32], dropout=0.1)', JSON text, or a mapping.
            Values are literals: numbers, strings, true, false, null, lists and objects.
    Returns:
        What JSON can hold: tuples have become lists.
    Raises:
        InvalidLayerGraph: the JSON is malformed, or is neither a factory nor a layer graph.
        FactoryFailed: the factory call is malformed.
        FactoryNotAllowed: it names a Python callable in place of a factory.
    Example:
        >>> parse("mlp(hidden=[64, 32])")
        {'arguments': {'hidden': [64, 32]}, 'factory': 'mlp'}
    """
    if isinstance(architecture, str):
        text = architecture.strip()
        return _checked(_read_json(text) if text.startswith("{") else _read_call(text))
    return _checked(architecture)


def canonical(architecture: str | Mapping[str, object]) -> bytes:
    """Return the parsed architecture as UTF-8 JSON with sorted keys, to be hashed.

    Example:
        >>> canonical("mlp(dropout=0.1)")
        b'{"arguments":{"dropout":0.1},"factory":"mlp"}'
    """
    return _dump(parse(architecture)).encode()


def factories_in(architecture: Mapping[str, object]) -> tuple[str, ...]:
    """Return the names of the factories that a parsed architecture takes, in order.

    >>> factories_in(parse({"backbone": "resnet", "cut": "3", "head": "linear"}))
    ('resnet', 'linear')
    """
    if "factory" in architecture:
        return (str(architecture["factory"]),)
    found = [name for part in parts_of(architecture) for name in factories_in(part)]
    return tuple(dict.fromkeys(found))


def parts_of(architecture: Mapping[str, object]) -> tuple[Mapping[str, object], ...]:
    """Return the architectures that a parsed one is put together from; none of a simple one."""
    parts = [
        architecture[key]
        for key in ("backbone", "head", "network", "adapted")
        if key in architecture
    ]
    parts += cast("list[object]", architecture.get("mean", []))
    return tuple(cast("Mapping[str, object]", part) for part in parts)


def is_adapter(path: str) -> bool:
    """Return whether a tensor's path in a state dict is that of an adapter's matrix."""
    return path.rpartition(".")[2] in ADAPTER_TENSORS


def with_arguments(
    architecture: Mapping[str, object], arguments: Mapping[str, object]
) -> dict[str, object]:
    """Return a parsed architecture that has some arguments in place of its own, or its backbone's.

    Those of a layer graph are the values of its placeholders.
    """
    if "backbone" in architecture:
        inner = cast("Mapping[str, object]", architecture["backbone"])
        return {**architecture, "backbone": with_arguments(inner, arguments)}
    if "adapted" in architecture:
        own = {key: value for key, value in arguments.items() if key in ADAPTER_ARGUMENTS}
        others = {key: value for key, value in arguments.items() if key not in own}
        inner = cast("Mapping[str, object]", architecture["adapted"])
        adapter = {**cast("Mapping[str, object]", architecture["adapter"]), **own}
        return {"adapted": with_arguments(inner, others), "adapter": adapter}
    key = "arguments" if "factory" in architecture else "defaults"
    given = cast("Mapping[str, object]", architecture.get(key, {}))
    return {**architecture, key: {**given, **arguments}} if arguments else dict(architecture)


def _checked(architecture: object, nested: int = 0) -> dict[str, object]:
    if not isinstance(architecture, Mapping):
        what = "NULL" if architecture is None else f"a {type(architecture).__name__}"
        raise InvalidLayerGraph(f"an architecture is not {what}", hint=_EXAMPLES)
    if "layers" in architecture:
        known: tuple[str, ...] = GRAPH_KEYS
    elif "factory" in architecture:
        known = ("factory", "arguments")
        architecture = _named({"arguments": {}, **architecture})
        _check_factory(architecture)
    elif "backbone" in architecture:
        known = _HEADED_KEYS
        architecture = _headed(architecture, nested)
    elif "network" in architecture:
        known = _GROUPED_KEYS
        architecture = _grouped(architecture)
    elif "adapted" in architecture:
        known = _ADAPTED_KEYS
        architecture = _adapted(architecture, nested)
    elif "mean" in architecture:
        known = _MEAN_KEYS
        architecture = _averaged(architecture)
    else:
        raise InvalidLayerGraph("the architecture has no 'layers' and no 'factory'", hint=_EXAMPLES)
    for key in architecture:
        if key not in known:
            raise _error_of(architecture)(
                f"the architecture has an unknown key {show(key)}",
                hint=f"Known keys: {', '.join(known)}.",
            )
    return _plain(architecture)


def _headed(architecture: Mapping[str, object], nested: int) -> dict[str, object]:
    """Return a backbone with a head, whose own architectures are read, too."""
    found: dict[str, object] = {"pool": "auto", **architecture}
    cut, pool = found.get("cut"), found["pool"]
    if not isinstance(cut, str) or not 0 < len(cut) <= 1000:
        raise InvalidLayerGraph(
            f"the cut of a backbone is the path of a module, not {show(cut)}",
            hint='Write {"backbone": ..., "cut": "layer3", "head": ...}.',
        )
    if not isinstance(pool, str):
        raise InvalidLayerGraph(f"the pool of a backbone is a name, not {show(pool)}")
    if nested >= _MOST_NESTED:
        raise InvalidLayerGraph(f"backbones stand more than {_MOST_NESTED} deep in each other")
    for key in ("backbone", "head"):
        part = found.get(key)
        is_text = isinstance(part, str)
        found[key] = _checked(parse(part) if is_text else part, nested + 1)  # type: ignore[arg-type]
    return found


def _grouped(architecture: Mapping[str, object]) -> dict[str, object]:
    """Return a network for each group of rows, whose own architecture is read, too."""
    missing = [key for key in _GROUPED_KEYS if key not in architecture]
    if missing:
        raise InvalidLayerGraph(f"the architecture of groups has no {missing[0]!r}")
    network = architecture["network"]
    network = parse(network) if isinstance(network, str) else _checked(network)
    if "network" in network:
        raise InvalidLayerGraph("the network of a group cannot be one of groups")
    return {**architecture, "network": network}


def _averaged(architecture: Mapping[str, object]) -> dict[str, object]:
    """Return a mean of networks, whose own architectures are read, too."""
    found: dict[str, object] = {"averages": AVERAGES[0], **architecture}
    if found["averages"] not in AVERAGES:
        raise InvalidLayerGraph(
            f"a mean averages {show(found['averages'])}", hint=f"Known: {', '.join(AVERAGES)}."
        )
    given = found["mean"]
    if not isinstance(given, list | tuple) or not 2 <= len(given) <= _MOST_AVERAGED:
        raise InvalidLayerGraph(
            f"a mean is of a list of 2 to {_MOST_AVERAGED} architectures, not {show(given)}"
        )
    members = [parse(one) if isinstance(one, str) else _checked(one) for one in given]
    if any(key in member for member in members for key in ("mean", "network")):
        raise InvalidLayerGraph("what a mean is of can be neither a mean nor one of groups")
    return {**found, "mean": members}


def _named(architecture: Mapping[str, object]) -> Mapping[str, object]:
    """Return a factory's call in which a library's network is an argument."""
    name, arguments = architecture["factory"], architecture["arguments"]
    found = _LIBRARY_NETWORK.fullmatch(name) if isinstance(name, str) else None
    if found is None or not isinstance(arguments, Mapping):
        return architecture
    return {**architecture, "factory": found[1], "arguments": {**arguments, "name": found[2]}}


def _adapted(architecture: Mapping[str, object], nested: int) -> dict[str, object]:
    """Return a network with an adapter, whose own architecture is read, too."""
    if not isinstance(architecture.get("adapter"), Mapping):
        raise InvalidLayerGraph(
            f"an adapter is an object, not {show(architecture.get('adapter'))}",
            hint='Such as {"name": "lora", "rank": 8, "layers": ["*.query"], "train": ["head"]}.',
        )
    if nested >= _MOST_NESTED:
        raise InvalidLayerGraph(f"networks stand more than {_MOST_NESTED} deep in each other")
    inner = architecture["adapted"]
    network = _checked(parse(inner) if isinstance(inner, str) else inner, nested + 1)
    if any(key in network for key in ("mean", "network", "adapted")):
        raise InvalidLayerGraph("what is adapted is one network without an adapter")
    return {**architecture, "adapted": network}


def _check_factory(architecture: Mapping[str, object]) -> None:
    name, arguments = architecture["factory"], architecture["arguments"]
    _check_no_target(name)
    if not isinstance(name, str) or not _FACTORY_NAME.fullmatch(name):
        raise FactoryFailed(f"{show(name)} cannot be the name of a factory", hint=_EXAMPLES)
    if not isinstance(arguments, Mapping) or not all(isinstance(key, str) for key in arguments):
        raise FactoryFailed(f"the arguments of factory {name} must be an object", hint=_EXAMPLES)


def _check_no_target(name: object) -> None:
    if isinstance(name, str) and _TARGET.fullmatch(name):
        raise FactoryNotAllowed(
            f"{show(name)} is a Python callable, not the name of a registered factory"
        )


def _plain(architecture: Mapping[str, object]) -> dict[str, object]:
    """Return a copy that holds nothing but what JSON can."""
    try:
        text = _dump(dict(architecture))
        return cast("dict[str, object]", json.loads(text))
    except _PARSE_ERRORS as exc:
        raise _error_of(architecture)(
            f"the architecture holds what JSON cannot: {exc}",
            hint="Use finite numbers, strings, true, false, null, lists and objects.",
        ) from exc


def _dump(value: object) -> str:
    text = json.dumps(
        value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False
    )
    text.encode()  # a lone surrogate is no text: UnicodeEncodeError is a ValueError
    if len(text) > _MAX_JSON_CHARACTERS:
        raise ValueError(f"it has more than {_MAX_JSON_CHARACTERS:,} characters")
    return text


def _error_of(architecture: Mapping[str, object]) -> type[ArchitectureError]:
    is_graph = any(
        key in architecture for key in ("layers", "backbone", "network", "mean", "adapted")
    )
    return InvalidLayerGraph if is_graph else FactoryFailed


def _read_json(text: str) -> object:
    if len(text) > _MAX_JSON_CHARACTERS:
        raise InvalidLayerGraph(
            f"the architecture has more than {_MAX_JSON_CHARACTERS:,} characters"
        )
    try:
        return json.loads(text)
    except _PARSE_ERRORS as exc:
        raise InvalidLayerGraph(f"the architecture is not JSON: {exc}", hint=_EXAMPLES) from exc


def _read_call(text: str) -> dict[str, object]:
    if _FACTORY_NAME.fullmatch(text) or _LIBRARY_NETWORK.fullmatch(text):
        return {"factory": text, "arguments": {}}
    name, parenthesis, rest = text.partition("(")
    name = name.strip()
    is_library = _LIBRARY_NETWORK.fullmatch(name) is not None
    if not is_library:
        _check_no_target(name)
    is_name = is_library or _FACTORY_NAME.fullmatch(name)
    if not parenthesis or not is_name or len(text) > _MAX_CALL_CHARACTERS:
        raise FactoryFailed(f"cannot read the architecture {show(text)}", hint=_EXAMPLES)
    try:
        call = ast.parse(f"_({rest}", mode="eval").body
        arguments = {key: _literal(value) for key, value in _keywords(call)}
    except _PARSE_ERRORS as exc:
        raise FactoryFailed(
            f"cannot read the arguments of {show(text)}: {type(exc).__name__}: {exc}",
            hint="Write name(argument=value, ...) with numbers, strings, lists, true or false.",
        ) from exc
    return {"factory": name, "arguments": arguments}


def _keywords(call: ast.expr) -> list[tuple[str, ast.expr]]:
    is_call = isinstance(call, ast.Call) and isinstance(call.func, ast.Name)
    if not isinstance(call, ast.Call) or not is_call:
        raise ValueError("it is not one call")
    found = [(keyword.arg, keyword.value) for keyword in call.keywords if keyword.arg]
    if call.args or len(found) != len(call.keywords):
        raise ValueError("every argument needs a name")
    if len(dict(found)) != len(found):
        raise ValueError("an argument is given twice")
    return found


def _literal(value: ast.expr) -> object:
    if isinstance(value, ast.Name) and value.id in _SQL_CONSTANTS:
        return _SQL_CONSTANTS[value.id]
    try:
        return ast.literal_eval(value)
    except ValueError:  # whose text shows a node's address
        raise ValueError(f"{show(ast.unparse(value))} is no literal") from None
