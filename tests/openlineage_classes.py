"""Events against OpenLineage: its client's classes, and its published schema where that is at hand.

The classes are generated from the schema, one for each part of it. An event is put into them, which
refuses a name that the schema does not have and a part that is missing; then the client writes it,
which must give what it was made of: so the address of each facet's schema is compared too.

The schema itself is in no package. `MMDB_OPENLINEAGE_SPEC` may name a folder with it (spec/ of
OpenLineage's sources); then events are validated against it as well.
"""

from __future__ import annotations

import inspect
import json
import os
import types
import typing
from collections.abc import Iterator, Mapping
from enum import Enum
from importlib.resources import files
from pathlib import Path
from typing import Any

import attr
import jsonschema
from openlineage.client import facet_v2
from openlineage.client.event_v2 import RunEvent
from openlineage.client.generated import base
from openlineage.client.serde import Serde
from referencing import Registry, Resource

SPEC = os.environ.get("MMDB_OPENLINEAGE_SPEC")
_RUN_EVENT = "https://openlineage.io/spec/2-0-2/OpenLineage.json#/$defs/RunEvent"
#: Set by the classes themselves.
_CONSTANT = {"schemaURL", "_schemaURL"}


def check(event: Mapping[str, Any]) -> None:
    """Compare an event with what OpenLineage's client makes of it, and with the schemas at hand.

    Raises:
        AssertionError, AttributeError, TypeError, ValueError, ValidationError: it is none.
    """
    written = json.loads(Serde.to_json(_build(RunEvent, event)))
    assert _without_empty(written) == _without_empty(event)
    registry = _registry()
    for facet in facets(event):
        if facet["_schemaURL"].startswith("urn:mmdb:"):
            _validate(facet, facet["_schemaURL"], registry)
    if SPEC is not None:
        _validate(event, _RUN_EVENT, registry)
        for facet in facets(event):
            _validate(facet, facet["_schemaURL"], registry)


def facets(event: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield every facet of an event."""
    yield from event["run"]["facets"].values()
    yield from event["job"]["facets"].values()
    for dataset in (*event["inputs"], *event["outputs"]):
        for kind in ("facets", "inputFacets", "outputFacets"):
            yield from dataset.get(kind, {}).values()


def _build(kind: Any, value: Any) -> Any:
    """Return a value as the class or type that a field of a class wants."""
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin in (typing.Union, types.UnionType):
        if value is None:
            assert type(None) in arguments
            return None
        (kind,) = [a for a in arguments if a is not type(None)]
        return _build(kind, value)
    if origin is list:
        assert isinstance(value, list)
        return [_build(arguments[0], item) for item in value]
    if origin is dict:
        assert isinstance(value, dict)
        return {key: _build(arguments[1], item) for key, item in value.items()}
    if inspect.isclass(kind) and issubclass(kind, base.BaseFacet):
        return _facet(value)
    if attr.has(kind):
        return _object(kind, value)
    if inspect.isclass(kind) and issubclass(kind, Enum):
        return kind(value)
    assert isinstance(value, kind), f"{value!r} is no {kind}"
    return value


def _object(kind: Any, value: Mapping[str, Any]) -> Any:
    hints = typing.get_type_hints(kind)
    assert value.keys() <= hints.keys(), f"{kind} has no {value.keys() - hints.keys()}"
    given = {
        name.lstrip("_"): _build(hints[name], item)
        for name, item in value.items()
        if name not in _CONSTANT
    }
    return kind(**given)


def _facet(value: Mapping[str, Any]) -> Any:
    """Return a facet as its class; one that mmdb defines has none."""
    name = value["_schemaURL"].rpartition("/")[2]
    if value["_schemaURL"].startswith("urn:mmdb:"):
        return dict(value)
    return _object(_class(name), value)


def _class(name: str) -> Any:
    """Return the class of a facet, which stands in one of the client's modules."""
    for module in vars(facet_v2).values():
        if inspect.ismodule(module) and hasattr(module, name):
            return getattr(module, name)
    raise AssertionError(f"OpenLineage has no {name}")


def _without_empty(value: Any) -> Any:
    """Return a value without parts that hold nothing."""
    if isinstance(value, Mapping):
        kept = {key: _without_empty(item) for key, item in value.items()}
        return {key: item for key, item in kept.items() if item not in ({}, [], None)}
    if isinstance(value, list):
        return [_without_empty(item) for item in value]
    return value


def _registry() -> Registry[Any]:
    texts = [files("mmdb.standards").joinpath("openlineage_facets.json").read_text()]
    if SPEC is not None:
        texts += [path.read_text() for path in sorted(Path(SPEC).rglob("*.json"))]
    schemas = [s for s in map(json.loads, texts) if isinstance(s, dict) and "$id" in s]
    return Registry().with_resources((s["$id"], Resource.from_contents(s)) for s in schemas)


def _validate(value: Any, url: str, registry: Registry[Any]) -> None:
    validator = jsonschema.Draft202012Validator({"$ref": url}, registry=registry)
    validator.validate(value)
