"""Outlines as rows: made when an architecture is stored, or at the first search that needs them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import suppress

from mmdb.db.connection import Connection
from mmdb.db.queries import load
from mmdb.errors import ArchitectureError, WriteConflict
from mmdb.graph.match.pack import Packed, from_bytes, pack
from mmdb.graph.outline_of_structure import outline_of_structure
from mmdb.graph.structure import Edge, Node, Structure, TensorSpec

_Q, _A = load("zoo"), load("architectures")
#: Of how a structure becomes an outline, and an outline bytes.
VERSION = 1
#: Architectures whose outlines are read in one query.
_BATCH = 5000


def put_outline(connection: Connection, architecture_id: int, structure: Structure) -> None:
    """Store the outline of an architecture; one that is too large has none.

    Such a model is never found as a parent.
    """
    try:
        packed = outlined(structure)
    except ArchitectureError:
        return
    connection.run(_Q.add_outline, **_row(architecture_id, packed))


def outlined(structure: Structure) -> Packed:
    """Return the packed outline of a structure.

    Raises:
        ArchitectureError: it has more than 50,000 nodes.
    """
    return pack(outline_of_structure(structure))


def read_outlines(connection: Connection, architecture_ids: Sequence[int]) -> dict[int, Packed]:
    """Return outlines by architecture, in the order of their numbers.

    Those that are missing, or of another version, are made from the architectures' rows and stored
    where the session may write. Architectures that are too large are left out.
    """
    found: dict[int, Packed] = {}
    for start in range(0, len(architecture_ids), _BATCH):
        ids = list(architecture_ids[start : start + _BATCH])
        rows = connection.rows(_Q.read_outlines, architecture_ids=ids, version=VERSION)
        there = {row["architecture_id"]: _read(bytes(row["packed"])) for row in rows}
        known = {one: packed for one, packed in there.items() if packed is not None}
        known |= _make(connection, [one for one in ids if one not in known])
        found |= {one: known[one] for one in ids if one in known}
    return found


def _read(data: bytes) -> Packed | None:
    try:
        return from_bytes(data)
    except ValueError:  # damaged: it can be made again
        return None


def _make(connection: Connection, architecture_ids: Sequence[int]) -> dict[int, Packed]:
    made: dict[int, Packed] = {}
    for architecture_id in architecture_ids:
        structure = read_structure(connection, architecture_id)
        with suppress(ArchitectureError):  # too large
            if structure.nodes:  # else it has just been deleted
                made[architecture_id] = outlined(structure)
    if made and not _is_read_only(connection):
        rows = [_row(architecture_id, packed) for architecture_id, packed in made.items()]
        with suppress(WriteConflict), connection.transaction():
            connection.run_many(_Q.add_outline, rows)
    return made


def _is_read_only(connection: Connection) -> bool:
    if connection.engine == "duckdb":
        return False
    return bool(connection.rows(_Q.is_read_only)[0]["read_only"])


def read_structure(connection: Connection, architecture_id: int) -> Structure:
    """Return an architecture as it is stored: without paths."""
    nodes = connection.rows(_A.read_nodes, architecture_id=architecture_id)
    edges = connection.rows(load("sync").read_edges, architecture_id=architecture_id)
    return Structure(
        nodes=tuple(
            Node(
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
        edges=tuple(Edge(row["source"], row["target"], row["position"]) for row in edges),
    )


def _row(architecture_id: int, packed: Packed) -> dict[str, object]:
    return {
        "architecture_id": architecture_id,
        "version": VERSION,
        "layer_count": len(packed),
        "parameter_count": int(packed.parameters @ packed.counts),
        "packed": packed.to_bytes(),
    }
