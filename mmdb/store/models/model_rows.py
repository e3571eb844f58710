"""The rows of models: named, versioned, immutable lists of tensors, and where they came from."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import blake3

from mmdb.data.names import find_model_id as find_model_id
from mmdb.db.connection import Connection, Row
from mmdb.db.queries import Queries, load
from mmdb.errors import ModelNotFound
from mmdb.graph.spec.factory_call import Outputs, Shape
from mmdb.store.tensors.state_entries import Entry

_Q = load("models")


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelDefinition:
    """What it takes to build a module."""

    architecture: dict[str, Any]  # a factory with its arguments, or a layer graph
    arguments: dict[str, Any]
    input_shape: Shape
    outputs: Outputs

    def row(self) -> dict[str, object]:
        """Return the parameters of `add_definition`; equal definitions have equal hashes."""
        shape, outputs = _listed(self.input_shape), _listed(self.outputs)
        values = [self.architecture, self.arguments, shape, outputs]
        is_named = isinstance(self.input_shape, dict) or isinstance(self.outputs, dict)
        return {
            "definition_hash": blake3.blake3(_json_text(values).encode()).digest(),
            "architecture": _json_text(self.architecture),
            "arguments": _json_text(self.arguments),
            "input_shape": [] if isinstance(self.input_shape, dict) else shape,
            "outputs": 0 if isinstance(self.outputs, dict) else self.outputs,
            "named": _json_text([shape, outputs]) if is_named else None,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedModel:
    """A model's row."""

    model_id: int
    name: str
    version: int
    approach: str
    parent_id: int | None
    manifest_id: int | None
    pack_id: int | None
    weights_hash: bytes
    dataset_id: int | None
    candidate_id: int | None
    epoch: int | None
    architecture_id: int | None
    environment_id: int | None
    definition_id: int | None
    architecture: str | None  # JSON, as are the arguments
    arguments: str | None
    input_shape: list[int] | None
    outputs: int | None
    named: str | None  # JSON: input shape and outputs, where there are several of either
    calibration: str | None  # JSON: see `mmdb.data.calibration`

    @property
    def reference(self) -> str:
        """The model as `name@version`."""
        return f"{self.name}@{self.version}"

    @property
    def definition(self) -> ModelDefinition | None:
        """What builds the module; read here, for the graph of a large one is long."""
        if self.architecture is None or self.arguments is None or self.input_shape is None:
            return None
        shape: list[Any] = self.input_shape
        outputs: Any = self.outputs or 0
        if self.named is not None:
            shape, outputs = json.loads(self.named)
        return ModelDefinition(
            architecture=json.loads(self.architecture),
            arguments=json.loads(self.arguments),
            input_shape=_shape(shape),
            outputs=dict(outputs) if isinstance(outputs, list) else outputs,
        )

    @classmethod
    def from_row(cls, row: Row) -> SavedModel:
        """Return the value of a row of `find_model`."""
        return cls(**(dict(row) | {"weights_hash": bytes(row["weights_hash"])}))


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredEntry(Entry):
    """A tensor of a saved model."""

    tensor_id: int
    listed_id: int  # the tensor that its manifest has in this place
    tensor_hash: bytes

    @classmethod
    def from_row(cls, row: Row) -> StoredEntry:
        """Return the value of a row of `find_entries`."""
        return cls(
            ordinal=row["ordinal"],
            path=row["path"],
            dtype=row["dtype"],
            shape=tuple(row["shape"]),
            byte_count=row["byte_count"],
            kind=row["kind"],
            trainable=row["trainable"],
            tied_to=row["tied_to"],
            layout=None if row["layout"] is None else json.loads(row["layout"]),
            tensor_id=row["tensor_id"],
            listed_id=row["listed_id"],
            tensor_hash=bytes(row["tensor_hash"]),
        )


def find_model(connection: Connection, reference: str) -> SavedModel:
    """Return the model that `name` (its newest version), `name@version` or `name@alias` names.

    Raises:
        ModelNotFound
    """
    return model_of(connection, find_model_id(connection, reference))


def model_of(connection: Connection, model_id: int) -> SavedModel:
    """Return a model by its number.

    Raises:
        ModelNotFound
    """
    rows = connection.rows(_Q.find_model, model_id=model_id)
    if not rows:
        raise ModelNotFound(f"There is no model {model_id}.")
    return SavedModel.from_row(rows[0])


def find_members(connection: Connection, model_id: int) -> list[tuple[int, int]]:
    """Return the candidates whose mean a model is, each with its epoch; of all others nothing."""
    rows = connection.rows(_Q.find_members, model_id=model_id)
    return [(row["candidate_id"], row["epoch"]) for row in rows]


def find_entries(connection: Connection, model_id: int) -> list[StoredEntry]:
    """Return a model's tensors, in the order of its state dict; none where it has a recipe."""
    return [
        StoredEntry.from_row(row) for row in connection.rows(_Q.find_entries, model_id=model_id)
    ]


def weights_hash(entries: Iterable[tuple[Entry, bytes]]) -> bytes:
    """Return a model's name: BLAKE3-256 over path, kind and tensor hash of each entry, in order."""
    hasher = blake3.blake3()
    for entry, name in entries:
        hasher.update(json.dumps([entry.path, entry.kind]).encode())
        hasher.update(name)
    return hasher.digest()


def is_listed(model: SavedModel, entries: Sequence[StoredEntry]) -> bool:
    """Return whether some entries are the model's."""
    return model.weights_hash == weights_hash((e, e.tensor_hash) for e in entries)


def add_definition(connection: Connection, definition: ModelDefinition) -> int:
    """Return the number of a definition, which is added where it is new."""
    row = definition.row()
    connection.run(_Q.add_definition, **row)
    (found,) = connection.rows(_Q.find_definition, definition_hash=row["definition_hash"])
    return int(found["definition_id"])


def queries() -> Queries:
    """Return the statements of models, for `save`."""
    return _Q


def _listed(value: Shape | Outputs) -> Any:
    """Return what is named as pairs: JSON in a database keeps no order of names."""
    if isinstance(value, dict):
        return [[name, size] for name, size in value.items()]
    return list(value) if isinstance(value, tuple) else value


def _shape(value: list[Any]) -> Shape:
    if value and isinstance(value[0], list):
        return {name: tuple(shape) for name, shape in value}
    return tuple(value)


def _json_text(value: object) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"))


#: With more tensors changed than this share, a manifest of its own is smaller and faster.
_CHANGED_SHARE = 0.5


@dataclass(frozen=True, slots=True)
class TensorList:
    """The entries of a model with the tensors that they are."""

    entries: Sequence[Entry]
    hashes: Mapping[int, bytes]  # ordinal -> tensor_hash
    ids: Mapping[bytes, int]

    def tensor_id(self, entry: Entry) -> int:
        """Return the number of an entry's tensor."""
        return self.ids[self.hashes[entry.ordinal]]


def put_manifest(
    connection: Connection,
    origin: SavedModel | None,
    ancestors: Sequence[StoredEntry],
    listed: TensorList,
) -> tuple[int, dict[int, int]]:
    """Return the manifest to use, and the tensors that differ from it by ordinal."""
    same = [a.structure for a in ancestors] == [e.structure for e in listed.entries]
    if origin is not None and origin.manifest_id is not None and same:
        ids = {e.ordinal: listed.tensor_id(e) for e in listed.entries}
        changes = {a.ordinal: ids[a.ordinal] for a in ancestors if ids[a.ordinal] != a.listed_id}
        if len(changes) <= _CHANGED_SHARE * len(ids):
            return origin.manifest_id, changes
    (added,) = connection.rows(_Q.add_manifest)
    connection.append(
        _Q.add_manifest_tensor,
        [
            (
                added["manifest_id"],
                entry.ordinal,
                entry.path,
                listed.tensor_id(entry),
                entry.kind,
                entry.trainable,
                entry.tied_to,
                None if entry.layout is None else json.dumps(entry.layout),
            )
            for entry in listed.entries
        ],
    )
    return added["manifest_id"], {}


_PREDICTION_QUERIES = load("predictions")
_DUCKDB = "duckdb:///"
#: As libpq takes a URL apart: a password may hold any sign but a slash, also ? and #.
_URL = re.compile(r"(?P<scheme>[^:]*)://(?:(?P<name>[^:/?#]*)[^/]*@)?(?P<place>[^?]*)")


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportOrigin:
    """A file or a database that models came from."""

    kind: Literal["import", "pull", "push"]
    source: str  # absolute path, or URL without password and options
    format: str | None = None
    digest: bytes | None = None  # of a file


def of_file(source: str | os.PathLike[str], format: str) -> ImportOrigin:
    """Return a file or folder as an origin; one file is known by its content, too."""
    path = Path(source).absolute()
    digest = blake3.blake3().update_mmap(path).digest() if path.is_file() else None
    return ImportOrigin(
        kind="import", source=_storable_text(str(path)), format=format, digest=digest
    )


def of_database(url: str, kind: Literal["pull", "push"]) -> ImportOrigin:
    """Return a database as an origin.

    >>> of_database("postgresql://ann:secret@db.example/zoo?sslpassword=secret", "pull").source
    'postgresql://ann@db.example/zoo'
    """
    return ImportOrigin(kind=kind, source=_storable_text(_bare(url)))


def add_origin(connection: Connection, model_id: int, origin: ImportOrigin) -> None:
    """Record where a model came from."""
    connection.run(
        _PREDICTION_QUERIES.add_origin,
        model_id=model_id,
        kind=origin.kind,
        source=origin.source,
        format=origin.format,
        digest=origin.digest,
    )


def _bare(url: str) -> str:
    """Return a URL without what may be secret: readers of the views see it."""
    if url.startswith(_DUCKDB):
        path = url.removeprefix(_DUCKDB)
        return url if path in ("", ":memory:") else _DUCKDB + str(Path(path).absolute())
    found = _URL.match(url)
    assert found is not None  # it has been connected to
    name = f"{found['name']}@" if found["name"] else ""
    return f"{found['scheme']}://{name}{found['place']}"


def _storable_text(path: str) -> str:
    """Return a path as text that every database keeps: names of files may be any bytes."""
    return path.encode(errors="backslashreplace").decode()
