"""Outlines as rows: made when an architecture is stored, or at the first search that needs them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import suppress

from mmdb.db.connection import Connection
from mmdb.db.queries import load
from mmdb.errors import ArchitectureError, DefinitionMissing, WriteConflict
from mmdb.graph.match.pack import PackedSkeleton, pack
from mmdb.graph.match.packed_zoo import Stack, stack, unpack
from mmdb.graph.ops.node_contraction import skeleton_of_architecture
from mmdb.graph.trace.structure import Architecture, GraphEdge, GraphNode, TensorSpec
from mmdb.store.models import SavedModel

_Q, _A = load("zoo"), load("architectures")
#: Of how a structure becomes an outline, and an outline bytes.
VERSION = 1
#: Outlines that are read in one query, and unpacked while they are in the processor's cache.
_BATCH = 2000


def put_outline(connection: Connection, architecture_id: int, structure: Architecture) -> None:
    """Store the outline of an architecture; one that is too large has none.

    Such a model is never found as a parent.
    """
    try:
        packed = outlined(structure)
    except ArchitectureError:
        return
    connection.run(_Q.add_outline, **_row(architecture_id, packed))


def outlined(structure: Architecture) -> PackedSkeleton:
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
        rows = connection.rows(_Q.read_outlines, architecture_ids=ids, version=VERSION)
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
            connection.run_many(_Q.add_outline, rows)
    return made


def _is_read_only(connection: Connection) -> bool:
    if connection.engine == "duckdb":
        return False
    return bool(connection.rows(_Q.is_read_only)[0]["read_only"])


def read_structure(connection: Connection, architecture_id: int) -> Architecture:
    """Return an architecture as it is stored: without paths."""
    nodes = connection.rows(_A.read_nodes, architecture_id=architecture_id)
    edges = connection.rows(load("sync").read_edges, architecture_id=architecture_id)
    return Architecture(
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


def saved_architecture(connection: Connection, model: SavedModel) -> Architecture:
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
