"""Architectures and their outlines as rows, each once, and the longest beginning that two share."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass

from mmdb.db.connection import Connection
from mmdb.db.queries import load
from mmdb.errors import ArchitectureError, DefinitionMissing, WriteConflict
from mmdb.graph.match.pack import PackedSkeleton, pack
from mmdb.graph.match.packed_zoo import Stack, stack, unpack
from mmdb.graph.ops.node_contraction import skeleton_of_architecture
from mmdb.graph.trace.structure import GraphEdge, GraphNode, NetworkGraph, TensorSpec
from mmdb.store.models.model_rows import SavedModel

_ZOO_QUERIES, _ARCHITECTURE_QUERIES = load("zoo"), load("architectures")
#: Of how a structure becomes an outline, and an outline bytes.
VERSION = 1
#: Outlines that are read in one query, and unpacked while they are in the processor's cache.
_BATCH = 2000


def put_outline(connection: Connection, architecture_id: int, structure: NetworkGraph) -> None:
    """Store the outline of an architecture; one that is too large has none.

    Such a model is never found as a parent.
    """
    try:
        packed = outlined(structure)
    except ArchitectureError:
        return
    connection.run(_ZOO_QUERIES.add_outline, **_row(architecture_id, packed))


def outlined(structure: NetworkGraph) -> PackedSkeleton:
    """Return the packed outline of a structure.

    Raises:
        ArchitectureError: it has more than 50,000 nodes.
    """
    return pack(skeleton_of_architecture(structure))


def read_outlines(
    connection: Connection, architecture_ids: Sequence[int]
) -> dict[int, PackedSkeleton]:
    """Return outlines by architecture, in the order of their numbers.

    Those that are missing, or of another version, are made from the architectures' rows and stored
    where the session may write. Architectures that are too large are left out.
    """
    return {
        architecture_id: found[number]
        for ids, found in stacked_outlines(connection, architecture_ids)
        for number, architecture_id in enumerate(ids)
    }


def stacked_outlines(
    connection: Connection, architecture_ids: Sequence[int]
) -> Iterator[tuple[list[int], Stack]]:
    """Yield what `read_outlines` returns, many at once; the numbers rise if the given ones do."""
    for start in range(0, len(architecture_ids), _BATCH):
        ids = list(architecture_ids[start : start + _BATCH])
        rows = connection.rows(_ZOO_QUERIES.read_outlines, architecture_ids=ids, version=VERSION)
        numbers, found = unpack([row["packed"] for row in rows])
        there = [rows[number]["architecture_id"] for number in numbers.tolist()]
        if there != ids:
            by_id = {one: found[number] for number, one in enumerate(there)}
            by_id |= _make(connection, [one for one in ids if one not in by_id])
            there = [one for one in ids if one in by_id]
            found = stack(by_id[one] for one in there)
        yield there, found


def _make(connection: Connection, architecture_ids: Sequence[int]) -> dict[int, PackedSkeleton]:
    made: dict[int, PackedSkeleton] = {}
    for architecture_id in architecture_ids:
        structure = read_structure(connection, architecture_id)
        with suppress(ArchitectureError):  # too large
            if structure.nodes:  # else it has just been deleted
                made[architecture_id] = outlined(structure)
    if made and not _is_read_only(connection):
        rows = [_row(architecture_id, packed) for architecture_id, packed in made.items()]
        with suppress(WriteConflict), connection.transaction():
            connection.run_many(_ZOO_QUERIES.add_outline, rows)
    return made


def _is_read_only(connection: Connection) -> bool:
    if connection.engine == "duckdb":
        return False
    return bool(connection.rows(_ZOO_QUERIES.is_read_only)[0]["read_only"])


def read_structure(connection: Connection, architecture_id: int) -> NetworkGraph:
    """Return an architecture as it is stored: without paths."""
    nodes = connection.rows(_ARCHITECTURE_QUERIES.read_nodes, architecture_id=architecture_id)
    edges = connection.rows(load("sync").read_edges, architecture_id=architecture_id)
    return NetworkGraph(
        nodes=tuple(
            GraphNode(
                ordinal=row["ordinal"],
                path="",
                op=row["op"],
                attributes=json.loads(row["attributes"]),
                parameters=tuple(
                    TensorSpec(**(spec | {"shape": tuple(spec["shape"])}))
                    for spec in json.loads(row["parameters"])
                ),
                parameter_bytes=row["parameter_bytes"],
            )
            for row in nodes
        ),
        edges=tuple(GraphEdge(row["source"], row["target"], row["position"]) for row in edges),
    )


def saved_architecture(connection: Connection, model: SavedModel) -> NetworkGraph:
    """Return a model's architecture as it is stored.

    Raises:
        DefinitionMissing: it is not known.
    """
    return read_structure(connection, architecture_id_of(model))


def architecture_id_of(model: SavedModel) -> int:
    """Return the number of a model's architecture.

    Raises:
        DefinitionMissing: it is not known.
    """
    if model.architecture_id is None:
        raise DefinitionMissing(
            f"The architecture of model {model.reference} is not known.",
            hint="Name a model that was saved with its module or architecture.",
        )
    return model.architecture_id


def _row(architecture_id: int, packed: PackedSkeleton) -> dict[str, object]:
    return {
        "architecture_id": architecture_id,
        "version": VERSION,
        "layer_count": len(packed),
        "parameter_count": int(packed.parameters @ packed.counts),
        "packed": packed.to_bytes(),
    }


_Q = load("architectures")
#: Architectures looked at for each one asked for: those with the longest single branch in common.
_LOOKED_AT = 4


#: Hash of a beginning -> nodes of the architecture that it ends in; 1 but for parallel branches.
Beginnings = Mapping[bytes, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedPrefix:
    """What a model's architecture has in common with another, from the inputs on."""

    model: str  # name@version, the newest of that architecture
    nodes: int
    parameter_bytes: int


def put_architecture(connection: Connection, structure: NetworkGraph) -> int:
    """Return the number of an architecture, which is stored where it is new."""
    name = structure.canonical_hash
    if known := connection.rows(_Q.find_architecture, canonical_hash=name):
        return int(known[0]["architecture_id"])
    added = connection.rows(
        _Q.add_architecture,
        canonical_hash=name,
        is_traced=structure.is_traced,
        node_count=len(structure.nodes),
        parameter_count=structure.parameter_count,
        parameter_bytes=structure.parameter_bytes,
    )
    if not added:
        if not (known := connection.rows(_Q.find_architecture, canonical_hash=name)):
            raise WriteConflict("An architecture that was just found has been deleted.")
        return int(known[0]["architecture_id"])
    architecture_id = int(added[0]["architecture_id"])
    connection.run_many(_Q.add_prefix, _prefix_rows(structure))
    connection.append(_Q.add_node, _node_rows(architecture_id, structure))
    connection.append(
        _Q.add_edge,
        [(architecture_id, e.source, e.target, e.position) for e in structure.edges],
    )
    put_outline(connection, architecture_id, structure)
    return architecture_id


def _prefix_rows(structure: NetworkGraph) -> list[dict[str, object]]:
    """Return the beginnings in the order of their hashes, as every session adds them."""
    sizes = dict.fromkeys(structure.prefix_hashes, (0, 0))  # an input is nothing in common
    sizes |= {p.prefix_hash: (p.depth, p.prefix_bytes) for p in structure.prefixes}
    return [
        {"prefix_hash": name, "node_count": sizes[name][0], "parameter_bytes": sizes[name][1]}
        for name in sorted(sizes)
    ]


def _node_rows(architecture_id: int, structure: NetworkGraph) -> list[tuple[object, ...]]:
    return [
        (
            architecture_id,
            node.ordinal,
            node.op,
            json.dumps(node.attributes),
            json.dumps([asdict(p) for p in node.parameters]),
            node.parameter_bytes,
            prefix_hash,
        )
        for node, prefix_hash in zip(structure.nodes, structure.prefix_hashes, strict=True)
    ]


def beginnings(structure: NetworkGraph) -> Beginnings:
    """Return the beginnings of an architecture."""
    return {p.prefix_hash: p.nodes for p in structure.prefixes}


def stored_beginnings(connection: Connection, architecture_id: int) -> Beginnings:
    """Return the beginnings of an architecture that is stored."""
    rows = connection.rows(_Q.find_beginnings, architecture_id=architecture_id)
    return {bytes(row["prefix_hash"]): row["nodes"] for row in rows}


def common_prefix(connection: Connection, own: Beginnings, k: int = 10) -> list[SharedPrefix]:
    """Return the k models that share the longest beginnings with an architecture, longest first.

    Each beginning is one row of an index, so that the zoo's size counts little: the longest one
    that the zoo has is found first, then the architectures that have it.
    """
    found: dict[int, None] = {}
    for row in connection.rows(_Q.find_prefixes, hashes=list(own)):
        beginning = {"prefix_hash": bytes(row["prefix_hash"]), "count": _LOOKED_AT * k}
        for other in connection.rows(_Q.find_beginning, **beginning):
            found.setdefault(other["architecture_id"])
        if len(found) >= _LOOKED_AT * k:
            break
    return _count_shared(connection, own, list(found))[:k]


def _count_shared(
    connection: Connection, own: Beginnings, architecture_ids: list[int]
) -> list[SharedPrefix]:
    nodes = dict.fromkeys(architecture_ids, 0)
    sizes = dict.fromkeys(architecture_ids, 0)
    shared = connection.rows(_Q.count_shared, architecture_ids=architecture_ids, hashes=list(own))
    for row in shared:
        both = min(row["nodes"], own[bytes(row["prefix_hash"])])
        nodes[row["architecture_id"]] += both
        sizes[row["architecture_id"]] += both * row["parameter_bytes"]
    models: dict[int, str] = {}
    for row in connection.rows(_Q.find_models_of, architecture_ids=architecture_ids):
        models.setdefault(row["architecture_id"], f"{row['name']}@{row['version']}")
    found = [
        SharedPrefix(model=models[a], nodes=nodes[a], parameter_bytes=sizes[a])
        for a in architecture_ids
        if a in models
    ]
    return sorted(found, key=lambda p: (-p.nodes, -p.parameter_bytes, p.model))
