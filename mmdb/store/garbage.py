"""Garbage collection: what nothing needs any more is found, and deleted beside running saves.

Rows are marked from the references to them, each time anew; nothing is counted. A batch is one
short transaction: its rows are locked, those that a save holds are left out, and what is locked is
checked again, in a statement that sees what was committed meanwhile. From then on a save that
would refer to a row waits, finds the row gone, and begins again. What was collected when a call
is cut off stays collected; a batch is whole or not at all.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from mmdb.arguments import check_flag, unfit
from mmdb.db.citus import find_cluster
from mmdb.db.connection import Connection
from mmdb.db.queries import Query, load
from mmdb.db.space import merge, reclaim, used_bytes
from mmdb.db.url import AnyConnection
from mmdb.errors import stops_the_caller

_Q = load("gc")

#: Why a tensor that no model needs stays or goes, by its place in the query `plan_tensors`.
REASONS = {
    1: "their model was dropped within the grace period",
    2: "differences of other tensors are kept against them",
    3: "a list of tensors that another model shares names them",
    4: "stored within the grace period",
    5: "nothing names them",
}
GARBAGE = 5
#: Why features stay or go, by their place in the query `plan_features`; they can be computed again.
FEATURE_REASONS = {
    1: "their dataset was dropped",
    2: "no run has used them within the grace period",
    3: "a run that has not finished uses them",
    4: "a run used them within the grace period",
}
FEATURES_GO = {1, 2}
_DROPPED = "dropped before the grace period"
_NO_MODEL = "no model has them"
_NO_DATASET = "their dataset was dropped before the grace period"

Grace = str | timedelta


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundGarbage:
    """Rows of one kind that are garbage, or are kept though no model needs them."""

    what: str  # "model", "manifest", "tensor", "architecture", "checkpoint", "feature", "stray"
    items: int
    bytes: int | None  # stored; None for kinds that hold none
    goes: bool
    reason: str


@dataclass(frozen=True, slots=True)
class GarbageKind:
    """How rows of one kind are found, locked, checked again and deleted."""

    what: str
    reason: str
    find: Query
    deletes: Sequence[Query]
    lock: Query | None = None  # PostgreSQL's: nobody else writes to a DuckDB file
    recheck: Query | None = None  # rows with id, and bytes where the kind holds some


MODELS = GarbageKind(
    "model",
    _DROPPED,
    _Q.find_garbage_models,
    (_Q.delete_changes, _Q.delete_recipe_tensors, _Q.empty_models),
    _Q.lock_models,
)
MANIFESTS = GarbageKind(
    "manifest",
    _NO_MODEL,
    _Q.find_garbage_manifests,
    (_Q.delete_manifest_tensors, _Q.delete_manifests),
    _Q.lock_manifests,
    _Q.recheck_manifests,
)
TENSORS = GarbageKind(
    "tensor",
    REASONS[GARBAGE],
    _Q.find_garbage_tensors,
    (_Q.delete_chunks, _Q.delete_encodings, _Q.delete_tensors),
    _Q.lock_tensors,
    _Q.recheck_tensors,
)
ARCHITECTURES = GarbageKind(
    "architecture",
    _NO_MODEL,
    _Q.find_garbage_architectures,
    (
        _Q.delete_architecture_nodes,
        _Q.delete_architecture_edges,
        _Q.delete_outlines,
        _Q.delete_architectures,
    ),
    _Q.lock_architectures,
    _Q.recheck_architectures,
)
PREFIXES = GarbageKind(
    "prefix",
    "no architecture has them",
    _Q.find_garbage_prefixes,
    (_Q.delete_prefixes,),
    _Q.lock_prefixes,
    _Q.recheck_prefixes,
)
FEATURES = GarbageKind(
    "feature",
    "no run needs them",
    _Q.find_garbage_features,
    (_Q.delete_feature_blocks, _Q.delete_feature_parts),
    _Q.lock_features,
    _Q.recheck_features,
)
CHECKPOINTS = GarbageKind(
    "checkpoint",
    _NO_DATASET,
    _Q.find_garbage_checkpoints,
    (_Q.delete_checkpoint_chunks, _Q.delete_checkpoints),
    recheck=_Q.find_checkpoints,
)


#: Rows, and stored bytes, that one transaction deletes at most; one row may be larger. Saves wait
#: for PostgreSQL's; DuckDB's have nobody to wait, and cost milliseconds however few their rows are.
BATCH = {"postgres": 1024, "duckdb": 16384}
BATCH_BYTES = 256 << 20
#: Freeing less than this share of the store would cost more than it gives.
RECLAIM_SHARE = 0.02


def gc(
    connection: Connection, *, dry_run: bool = True, grace: Grace = "7 days"
) -> list[FoundGarbage]:
    """Delete what no model or run needs, or say what would go; then what is kept, and why.

    Aliases pin models: `drop_model` refuses them. A dropped model's row stays as lineage.

    Args:
        grace: how long ago a model or dataset must have been dropped, and a tensor that nothing
            names stored, so that the parts of an unfinished transfer are left alone.
    Raises:
        InvalidOption: `dry_run` is neither true nor false, or `grace` is no interval.
    """
    _check_grace(connection, grace)
    if check_flag(dry_run, "dry_run"):
        return plan(connection, grace)
    went = collect(connection, grace)
    return went + [found for found in plan(connection, grace) if not found.goes]


def _check_grace(connection: Connection, grace: Grace) -> None:
    try:
        connection.rows(_Q.find_deadline, grace=grace)
    except Exception as error:
        if stops_the_caller(error):
            raise
        raise unfit("grace", grace, "It is a time before now, such as '7 days'.") from error


def plan(connection: Connection, grace: Grace) -> list[FoundGarbage]:
    """Return what `collect` would delete, and what it would keep though no model needs it."""
    models = len(connection.rows(MODELS.find, grace=grace))
    (manifests,) = connection.rows(_Q.plan_manifests, grace=grace)
    (architectures,) = connection.rows(_Q.plan_architectures, grace=grace)
    candidates = [row["id"] for row in connection.rows(CHECKPOINTS.find, grace=grace)]
    checkpoints = connection.rows(_Q.find_checkpoints, ids=candidates)
    found = [
        _found(MODELS, models),
        _found(MANIFESTS, manifests["items"]),
        *(
            FoundGarbage(
                what="tensor",
                items=row["items"],
                bytes=row["bytes"],
                goes=row["place"] == GARBAGE,
                reason=REASONS[row["place"]],
            )
            for row in connection.rows(_Q.plan_tensors, grace=grace)
        ),
        _found(ARCHITECTURES, architectures["items"]),
        _found(CHECKPOINTS, len(checkpoints), sum(row["bytes"] for row in checkpoints)),
        *(
            FoundGarbage(
                what="feature",
                items=row["items"],
                bytes=row["bytes"],
                goes=row["place"] in FEATURES_GO,
                reason=FEATURE_REASONS[row["place"]],
            )
            for row in connection.rows(_Q.plan_features, grace=grace)
        ),
        *_strays(connection),
    ]
    return [each for each in found if each.items]


def _strays(connection: Connection) -> list[FoundGarbage]:
    """Return rows of a cluster that refer to nothing: where tables lie on nodes, no key holds them.

    They are damage, not garbage: the doctor says what to restore.
    """
    if find_cluster(connection) is None:
        return []
    return [
        FoundGarbage(what="stray", items=row["items"], bytes=None, goes=False, reason=row["what"])
        for row in connection.rows(load("operations").find_orphans)
    ]


def collect(connection: Connection, grace: Grace) -> list[FoundGarbage]:
    """Delete what no model needs, in batches, and return what went."""
    found = [
        _found(MODELS, _delete(connection, MODELS, grace)[0]),
        *collect_unused(connection, grace),
        _found(CHECKPOINTS, *_delete(connection, CHECKPOINTS, grace)),
        _found(FEATURES, *_delete(connection, FEATURES, grace)),
    ]
    return [each for each in found if each.items]


def collect_unused(connection: Connection, grace: Grace) -> list[FoundGarbage]:
    """Delete what no row of a model refers to, and return what went."""
    found = [
        _found(MANIFESTS, _delete(connection, MANIFESTS, grace)[0]),
        _sweep_tensors(connection, grace),
        _found(ARCHITECTURES, _delete(connection, ARCHITECTURES, grace)[0]),
    ]
    _delete(connection, PREFIXES, grace)  # a part of the architectures, and not worth a line
    return found


def _found(kind: GarbageKind, items: int, size: int | None = None) -> FoundGarbage:
    return FoundGarbage(what=kind.what, items=items, bytes=size, goes=True, reason=kind.reason)


def _sweep_tensors(connection: Connection, grace: Grace) -> FoundGarbage:
    """Delete tensors; with the last difference against it, a base becomes garbage too."""
    items = size = 0
    while True:
        deleted, freed = _delete(connection, TENSORS, grace)
        if not deleted:
            return _found(TENSORS, items, size)
        items, size = items + deleted, size + freed


def _delete(connection: Connection, kind: GarbageKind, grace: Grace) -> tuple[int, int]:
    """Delete what is garbage now; return the number of rows and their stored bytes."""
    items = size = 0
    for batch in _batches(connection, kind, grace):
        with connection.transaction():
            ids, freed = _still_garbage(connection, kind, batch, grace)
            if ids:
                for query in kind.deletes:
                    connection.run(query, ids=ids)
        items, size = items + len(ids), size + freed
    return items, size


def _given(query: Query, grace: Grace) -> dict[str, Grace]:
    """Return the grace period where a query asks for it."""
    return {"grace": grace} if "grace" in query.parameters else {}


def _batches(connection: Connection, kind: GarbageKind, grace: Grace) -> Iterator[list[Any]]:
    batch: list[Any] = []
    size = 0
    for row in connection.rows(kind.find, **_given(kind.find, grace)):
        more = row.get("bytes", 0)
        if batch and (len(batch) == BATCH[connection.engine] or size + more > BATCH_BYTES):
            yield batch
            batch, size = [], 0
        batch.append(row["id"])
        size += more
    if batch:
        yield batch


def _still_garbage(
    connection: Connection, kind: GarbageKind, ids: list[Any], grace: Grace
) -> tuple[list[Any], int]:
    """Return those rows of a batch that can be deleted, locked, and their stored bytes."""
    if kind.lock is not None and connection.engine == "postgres":
        ids = [row["id"] for row in connection.rows(kind.lock, ids=ids)]
    if kind.recheck is None or not ids:
        return ids, 0
    rows = connection.rows(kind.recheck, ids=ids, **_given(kind.recheck, grace))
    return [row["id"] for row in rows], sum(row.get("bytes", 0) for row in rows)


@dataclass(frozen=True, slots=True, kw_only=True)
class GarbageReport:
    """What `gc_and_reclaim` found, and the bytes of the store's tables before and after."""

    found: list[FoundGarbage]
    bytes_before: int
    bytes_after: int

    @property
    def freed(self) -> int:
        """Stored bytes that went, or would go."""
        return sum(each.bytes or 0 for each in self.found if each.goes)


def gc_and_reclaim(
    connection: AnyConnection, *, dry_run: bool = True, grace: Grace = "7 days"
) -> GarbageReport:
    """Collect garbage as `gc` does, and make its space free; see `mmdb.db.space.reclaim`.

    Inside a transaction that the caller has begun, the space stays as it is.
    """
    may_reclaim = not dry_run and not connection.in_transaction
    if may_reclaim:
        merge(connection)  # before the first look: what only a log holds is in the file then
    before = used_bytes(connection)
    found = gc(connection, dry_run=dry_run, grace=grace)
    freed = sum(each.bytes or 0 for each in found if each.goes)
    if may_reclaim and freed >= RECLAIM_SHARE * before:
        reclaim(connection)
    return GarbageReport(found=found, bytes_before=before, bytes_after=used_bytes(connection))
