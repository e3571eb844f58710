"""Samples of a dataset's versions: what is new and a share of what was there; or a shard."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from itertools import chain

import numpy as np
from blake3 import blake3

from mmdb.data.column_layout import ClassCounts
from mmdb.data.dataset import StoredDataset, dataset_of, find_dataset
from mmdb.data.forms import decoding_row
from mmdb.data.registration import add_dataset, draw_numbers
from mmdb.data.shared_blocks import (
    Overtaken,
    StoredBlock,
    add_shared_partition,
    copy_form,
    count_classes,
    hash_of,
    hold,
    shared_row,
    stored_blocks,
)
from mmdb.db.connection import Connection
from mmdb.errors import DatasetNotFound


def version_seen(connection: Connection, dataset: StoredDataset) -> StoredDataset:
    """Return the version whose rows a model of a dataset has seen: itself, but for a sample."""
    return dataset if dataset.version else dataset_of(connection, dataset.changes["of"])


def sample_since(
    connection: Connection, newest: StoredDataset, seen: StoredDataset, replay: float
) -> StoredDataset:
    """Return a dataset of the train rows that a version lacks, and a share of those that it has.

    It is made once, and shares the blocks of the newest version. Its held-out slices are those of
    the newest version.

    Args:
        replay: share of the train rows that were there before, 0 to 1.
    """
    origin = newest.name.removesuffix(f"@{newest.version}")
    name = f"{origin}/{newest.version}-since-{seen.version}-{replay:g}"
    if (found := _made(connection, name)) is not None:
        return found
    newest, seen = _again(connection, newest), _again(connection, seen)
    blocks = _chosen(connection, newest, seen, replay, name)
    most = max(part.row_count for part in newest.slices if part.role == "train")
    pieces = min(max(1, -(-_rows(blocks) // most)), len(blocks))
    trains = [blocks[ordinal::pieces] for ordinal in range(pieces)]
    changes = {"of": newest.dataset_id, "replay": replay}
    try:
        _write(connection, (newest, seen), name, trains, changes)
    except Overtaken:
        return sample_since(connection, newest, seen, replay)
    return find_dataset(connection, name)


def shard_of(
    connection: Connection, dataset: StoredDataset, shard: int, shards: int
) -> StoredDataset:
    """Return a dataset of every `shards`-th train partition of a version, from `shard` on.

    It is made once, shares the blocks of the version, and holds out what that does.
    """
    origin = dataset.name.removesuffix(f"@{dataset.version}")
    name = f"{origin}/{dataset.version}-shard-{shard + 1}-of-{shards}"
    if (found := _made(connection, name)) is not None:
        return found
    dataset = _again(connection, dataset)
    parts = [part for part in dataset.slices if part.role == "train"][shard::shards]
    trains = [stored_blocks(connection, dataset, part.part_id) for part in parts]
    changes = {"of": dataset.dataset_id, "shard": shard + 1, "shards": shards}
    try:
        _write(connection, (dataset,), name, trains, changes)
    except Overtaken:
        return shard_of(connection, dataset, shard, shards)
    return find_dataset(connection, name)


def _again(connection: Connection, dataset: StoredDataset) -> StoredDataset:
    """Return a dataset as it is now: rows may have been forgotten since."""
    return dataset_of(connection, dataset.dataset_id)


def _made(connection: Connection, name: str) -> StoredDataset | None:
    try:
        found = find_dataset(connection, name)
    except DatasetNotFound:
        return None
    return None if found.dropped else found


def _chosen(
    connection: Connection, newest: StoredDataset, seen: StoredDataset, replay: float, name: str
) -> list[StoredBlock]:
    """Return new blocks, and old ones with rows masked, in an order of chance."""
    known = {
        (block.source_id, block.source_ordinal)
        for part in seen.slices
        for block in stored_blocks(connection, seen, part.part_id)
    }
    found = [
        block
        for part in newest.slices
        if part.role == "train"
        for block in stored_blocks(connection, newest, part.part_id)
    ]
    old = [one for one in found if (one.source_id, one.source_ordinal) in known]
    new = [one for one in found if (one.source_id, one.source_ordinal) not in known]
    seed = int.from_bytes(blake3(name.encode()).digest(length=8), "little")
    random = np.random.default_rng(seed)
    left = round(replay * sum(block.rows_left for block in old))
    for place in random.permutation(len(old)):
        block = old[place]
        if left < block.rows_left:
            block = block.without(random.permutation(block.rows_left)[left:])
        if block.rows_left:
            new.append(block)
            left -= block.rows_left
    return [new[place] for place in random.permutation(len(new))]


def _write(
    connection: Connection,
    versions: Sequence[StoredDataset],
    name: str,
    trains: Sequence[Sequence[StoredBlock]],
    changes: Mapping[str, object],
) -> None:
    """Write a dataset whose train partitions are some blocks each, and its other slices as is.

    Args:
        versions: that the blocks are of, the newest first.
    Raises:
        Overtaken
    """
    newest = versions[0]
    counts = ClassCounts(newest.decoding.labels)
    for block in chain.from_iterable(trains):
        count_classes(connection, newest.decoding, block, counts)
    places: list[tuple[str, int]] = [("train", ordinal) for ordinal in range(len(trains))]
    own = [*map(list, trains)]
    for part in newest.slices:
        if part.role != "train":
            places.append((part.role, part.ordinal))
            own.append(stored_blocks(connection, newest, part.part_id))
    row_bytes = sum(part.byte_count for part in newest.slices) / newest.row_count
    described = [
        shared_row(place, some, None, newest.decoding, round(row_bytes * _rows(some)))
        for place, some in zip(places, own, strict=True)
    ]
    values = {
        **decoding_row(newest.decoding),
        "name": name,
        "version": 0,
        "origin_id": newest.origin_id or newest.dataset_id,
        "query_text": newest.query,
        "label": newest.label,
        "options": json.dumps(newest.options, ensure_ascii=False),
        "seed": newest.seed,
        "partitions": len(trains),
        "validation": newest.validation,
        "row_count": sum(one["row_count"] for one in described),
        "byte_count": 0,
        "content_hash": hash_of(described),
        "class_counts": json.dumps(counts.by_label(), ensure_ascii=False),
        "changes": json.dumps(changes),
    }
    with connection.transaction():
        hold(connection, *versions)
        dataset_id = add_dataset(connection, values, newest.owner)
        copy_form(connection, newest, dataset_id)
        roles, sources = [role for role, _ in places], [some[0].source_id for some in own]
        numbers = draw_numbers(connection, roles, sources)
        for row, some, drawn in zip(described, own, numbers, strict=True):
            add_shared_partition(connection, dataset_id, row, some, drawn=drawn)


def _rows(blocks: Sequence[StoredBlock]) -> int:
    return sum(block.rows_left for block in blocks)
