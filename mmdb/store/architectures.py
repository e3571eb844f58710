"""Architectures as rows, each once; and the longest beginning that one shares with the zoo."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass

from mmdb.db.connection import Connection
from mmdb.db.queries import load
from mmdb.errors import WriteConflict
from mmdb.graph.trace.structure import Architecture
from mmdb.store.parents.outlines import put_outline

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


def put_architecture(connection: Connection, structure: Architecture) -> int:
    """Return the number of an architecture, which is stored where it is new."""
    name = structure.canonical_hash
    if known := connection.rows(_Q.find_architecture, canonical_hash=name):
        return int(known[0]["architecture_id"])
    parameters = [p for node in structure.nodes for p in node.parameters]
    added = connection.rows(
        _Q.add_architecture,
        canonical_hash=name,
        is_traced=structure.is_traced,
        node_count=len(structure.nodes),
        parameter_count=sum(math.prod(p.shape) for p in parameters if not p.is_buffer),
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


def _prefix_rows(structure: Architecture) -> list[dict[str, object]]:
    """Return the beginnings in the order of their hashes, as every session adds them."""
    sizes = dict.fromkeys(structure.prefix_hashes, (0, 0))  # an input is nothing in common
    sizes |= {p.prefix_hash: (p.depth, p.prefix_bytes) for p in structure.prefixes}
    return [
        {"prefix_hash": name, "node_count": sizes[name][0], "parameter_bytes": sizes[name][1]}
        for name in sorted(sizes)
    ]


def _node_rows(architecture_id: int, structure: Architecture) -> list[tuple[object, ...]]:
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


def beginnings(structure: Architecture) -> Beginnings:
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
