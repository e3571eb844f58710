"""Every stored byte, compared with the hash that names it: what `mmdb doctor --verify` does.

What a `gc` or a run deletes meanwhile is not missing: what is wrong is looked at a second time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing

import blake3

from mmdb.data.reader import verify_blocks
from mmdb.db.check import Check, Verified
from mmdb.db.connection import Connection, Row
from mmdb.db.install import is_installed
from mmdb.db.queries import load
from mmdb.db.url import connect
from mmdb.errors import CorruptTensor, FeatureCorrupt, MmdbError, ModelNotFound
from mmdb.store.models.model_rows import model_of
from mmdb.store.models.recover import ModelReader
from mmdb.store.stored_features import find_part, read_blocks
from mmdb.store.tensors.reading import BadTensor, find_encodings, read_tensors

_Q = load("verify")
#: Bytes of tensors that are read at once; one tensor may be larger.
BATCH_BYTES = 64 << 20

_COMPUTE_AGAIN = (
    "Bytes in the database changed, or are gone: look at its disk and its memory. Features are "
    "computed again after SELECT mmdb.drop_features(dataset); docs/runbook/damaged-bytes.md."
)

#: Told what is looked at, and how many bytes more have been read.
Progress = Callable[[str, int], None]


def verify_at(url: str, on_progress: Progress = lambda what, size: None) -> list[Check]:
    """Return the checks of all that is stored at `url`; never raises an MmdbError."""
    try:
        with closing(connect(url)) as connection:
            return list(verify(connection, on_progress)) if is_installed(connection) else []
    except MmdbError as error:
        mend = error.hint or "Run `mmdb doctor` again."
        return [Check(name="stored bytes", ok=False, detail=error.message, mend=mend)]


def verify(
    connection: Connection, on_progress: Progress = lambda what, size: None
) -> Iterator[Check]:
    """Yield a check each for blocks, tensors, models, checkpoints and features.

    Raises:
        RightsMissing: the role may not read them.
    """
    yield verify_blocks(connection, lambda size: on_progress("blocks", size)).check()
    for look in (verify_tensors, verify_models, verify_checkpoints, verify_features):
        yield look(connection, on_progress).check()


def verify_tensors(connection: Connection, on_progress: Progress) -> Verified:
    """Return what was read of tensors that have chunks of their own, packs among them."""
    found = Verified("tensors")
    for batch in _batches(connection.rows(_Q.find_encodings)):
        ids = [row["tensor_id"] for row in batch]
        for tensor_id in ids if _bad(connection, ids) is not None else ():
            error = _bad(connection, [tensor_id])
            if error is not None and find_encodings(connection, [tensor_id]):
                found.wrong.append(f"tensor {tensor_id}: {error.reason}")
        for row in batch:
            found.add(row["byte_count"])
        on_progress("tensors", sum(row["byte_count"] for row in batch))
    return found


def _bad(connection: Connection, tensor_ids: Sequence[int]) -> BadTensor | None:
    """Return what is wrong with one of some tensors."""
    encodings = list(find_encodings(connection, tensor_ids).values())
    try:
        read_tensors(connection, encodings, checked=tensor_ids)
    except BadTensor as error:
        return error
    return None


def _batches(rows: Sequence[Row]) -> Iterator[list[Row]]:
    batch: list[Row] = []
    size = 0
    for row in rows:
        if batch and size + row["byte_count"] > BATCH_BYTES:
            yield batch
            batch, size = [], 0
        batch.append(row)
        size += row["byte_count"]
    if batch:
        yield batch


def verify_models(connection: Connection, on_progress: Progress) -> Verified:
    """Return what was read of models: their lists of tensors, views, and the tensors in packs."""
    found = Verified("models")
    reader = ModelReader(connection)
    for row in connection.rows(_Q.find_models):
        model = model_of(connection, row["model_id"])
        try:
            own = [e for e in reader.catalog(model).entries if e.kind != "storage"]
            inner = [e for e in own if e.is_small or e.layout is not None]
            reader.tensors(model, [e.path for e in inner])
        except CorruptTensor as error:
            found.wrong.append(error.message.rstrip("."))
            continue
        except ModelNotFound:
            continue
        size = sum(e.byte_count for e in inner)
        found.add(size)
        on_progress("models", size)
    (recipes,) = connection.rows(_Q.count_recipes)
    if recipes["items"]:
        found.note = f"; {recipes['items']:,} are recipes, which only a replay can compare"
    return found


def verify_checkpoints(connection: Connection, on_progress: Progress) -> Verified:
    """Return what was read of durable states."""
    found = Verified("checkpoints")
    for row in connection.rows(_Q.find_checkpoints):
        key = {name: row[name] for name in ("part_id", "candidate_id", "state_hash")}
        hasher, size = blake3.blake3(), 0
        for (data,) in connection.stream(load("states").read_checkpoint, **key):
            hasher.update(data)
            size += len(data)
        is_right = hasher.digest() == bytes(row["state_hash"]) and size == row["byte_count"]
        if not is_right and connection.rows(_Q.is_checkpoint_there, **key):
            found.wrong.append(
                f"candidate {row['candidate_id']}, state {bytes(row['state_hash']).hex()[:16]}: "
                "its chunks are not those of its hash"
            )
        found.add(size)
        on_progress("checkpoints", size)
    return found


def verify_features(connection: Connection, on_progress: Progress) -> Verified:
    """Return what was read of stored features."""
    found = Verified("features", mend=_COMPUTE_AGAIN)
    for row in connection.rows(_Q.find_feature_parts):
        key = row["feature_id"], row["part_id"]
        reason = _bad_features(connection, row)
        if reason and find_part(connection, *key) is not None:
            found.wrong.append(f"dataset {row['dataset']!r}, layer {row['layer']!r}: {reason}")
        found.add(row["byte_count"])
        on_progress("features", row["byte_count"])
    for row in connection.rows(_Q.find_strays):
        where = f"dataset {row['dataset']!r}, layer {row['layer']!r}, partition {row['part_id']}"
        found.wrong.append(f"{where}: {row['blocks']} blocks that nothing names")
    return found


def _bad_features(connection: Connection, row: Row) -> str | None:
    """Return what is wrong with a partition's features."""
    rows = size = 0
    try:
        for block in read_blocks(connection, row["feature_id"], row["part_id"]):
            rows += block.row_count
            size += len(block.data)
    except FeatureCorrupt as error:
        return error.message.rstrip(".")
    if (rows, size) != (row["row_count"], row["byte_count"]):
        return f"the blocks of partition {row['part_id']} are not those that were stored"
    return None
