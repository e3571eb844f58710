"""The dataset, run and hops behind a model, and whether its recipe can be followed elsewhere.

Numbers are those of the target; hashes, names, seeds and times stay. A dataset that the target
lacks is registered there as one that was dropped, unless its blocks are sent too.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import blake3

from mmdb.data.functions import find_factories
from mmdb.db.connection import Connection, Row
from mmdb.db.queries import load
from mmdb.db.totals import unseal
from mmdb.errors import BlockCorrupt
from mmdb.graph.spec.parse import factories_in
from mmdb.store import states
from mmdb.store.sync.exchange import CopyProgress

_Q = load("sync")
_D = load("datasets")
_ALL_BLOCKS = {"low": 0, "high": 2**31 - 1}
#: Seconds by which two times may differ that are the same one.
_SAME_TIME_S = 0.001


@dataclass(frozen=True, slots=True)
class CopiedDataset:
    """Where a dataset is at the target."""

    dataset_id: int
    is_dropped: bool


def find_dataset(source: Connection, target: Connection, dataset_id: int) -> CopiedDataset | None:
    """Return the target's dataset with the content of one of the source's."""
    (row,) = source.rows(_Q.read_dataset, dataset_id=dataset_id)
    return _find(target, row)


def _find(target: Connection, row: Row) -> CopiedDataset | None:
    given = {"content_hash": bytes(row["content_hash"]), "query_text": row["query_text"]}
    found = target.rows(_Q.find_same_dataset, **given)
    return CopiedDataset(**found[0]) if found else None


def put_dataset(
    source: Connection, target: Connection, dataset_id: int, progress: CopyProgress | None = None
) -> CopiedDataset:
    """Return the target's dataset of some content, which is added where it is new.

    Args:
        progress: send the blocks too, if the source has them; None: rows alone.
    Raises:
        BlockCorrupt
    """
    (row,) = source.rows(_Q.read_dataset, dataset_id=dataset_id)
    with_blocks = progress is not None and not row["is_dropped"]
    found = _find(target, row)
    if found is not None and not (found.is_dropped and with_blocks):
        return found
    name = _free_name(target, row) if with_blocks else row["name"]
    values = dict(row) | {"name": name, "is_dropped": not with_blocks}
    own = target.rows(_Q.add_copied_dataset, **values)[0]["dataset_id"]
    columns = source.rows(_D.find_columns, dataset_id=dataset_id)
    added = [(own, k, c["name"], c["kind"], c["width"]) for k, c in enumerate(columns)]
    target.append(_D.add_column, added)
    given = ("transform", "source", "parameters", "statistics", "categories")
    fitted = [(own, k, *(c[n] for n in given)) for k, c in enumerate(columns) if c["transform"]]
    target.append(_D.add_transform, fitted)
    sources = source.rows(_Q.read_sources, dataset_id=dataset_id)
    target.append(_D.add_source, [(own, *each.values()) for each in sources])
    for part in source.rows(_D.find_partitions, dataset_id=dataset_id):
        (new,) = target.rows(
            _D.add_partition, **{k: v for k, v in part.items() if k != "part_id"} | _own(own)
        )
        if with_blocks and progress is not None and part["row_count"]:
            _put_blocks(source, target, part["part_id"], new["part_id"], progress)
    return CopiedDataset(own, not with_blocks)


def _own(dataset_id: int) -> dict[str, int]:
    return {"dataset_id": dataset_id}


def _free_name(target: Connection, row: Row) -> str:
    """Return a dataset's name, made longer by its hash where another one in use has it."""
    there = target.rows(_D.find_dataset, name=row["name"], is_first=False)
    taken = bool(there) and not there[0]["dropped"]
    return f"{row['name']}/{bytes(row['content_hash']).hex()[:8]}" if taken else row["name"]


def _put_blocks(
    source: Connection, target: Connection, part_id: int, own: int, progress: CopyProgress
) -> None:
    """Copy a partition's blocks, those too that it shares, with which of their rows are left out.

    The target does not know the rows again: their hashes stay behind.
    """
    masks: list[tuple[object, ...]] = []
    target.append(_D.add_block, _blocks(source, part_id, own, progress, masks))
    if any(masked for *_, masked in masks):
        target.append(_D.add_shared_block, masks)


def _blocks(
    source: Connection,
    part_id: int,
    own: int,
    progress: CopyProgress,
    masks: list[tuple[object, ...]],
) -> Iterator[tuple[object, ...]]:
    (found,) = source.rows(_D.find_partition, part_id=part_id)
    query = _D.read_shared_blocks if found["is_shared"] else _D.read_blocks
    for ordinal, rows, digest, data, *masked in source.stream(
        query, part_id=part_id, **_ALL_BLOCKS
    ):
        masks.append((own, ordinal, own, ordinal, masked[0] if masked else None))
        if blake3.blake3(data).digest() != bytes(digest):
            raise BlockCorrupt(f"Block {ordinal} of partition {part_id} is not as it was written.")
        progress.add(len(data))
        yield own, ordinal, rows, digest, data, None


def put_candidate(source: Connection, target: Connection, candidate_id: int, epoch: int) -> int:
    """Return the target's candidate, which is added with its run and its hops where they are new.

    Args:
        epoch: the last one whose hops are sent.
    """
    (row,) = source.rows(_Q.read_candidate, candidate_id=candidate_id)
    dataset = put_dataset(source, target, row["dataset_id"])
    run_id = _put_run(source, target, row, dataset.dataset_id)
    found = target.rows(_Q.find_same_candidate, run_id=run_id, ordinal=row["ordinal"])
    if not found:
        unseal(target, run_id)
        _add_candidate(source, target, row, run_id, candidate_id, dataset.dataset_id)
        found = target.rows(_Q.find_same_candidate, run_id=run_id, ordinal=row["ordinal"])
    own, last = found[0]["candidate_id"], found[0]["last_hop"]
    after = -1 if last is None else last
    hops = source.rows(_Q.read_hops, candidate_id=candidate_id, epoch=epoch, after=after)
    if hops:
        unseal(target, run_id)
        parts = _parts(source, target, row["dataset_id"], dataset.dataset_id)
        target.run_many(
            load("hops").add_hop,
            [dict(h) | {"candidate_id": own, "part_id": parts[h["part_id"]]} for h in hops],
        )
        _put_merges(source, target, candidate_id, own, epoch, parts)
    return int(own)


def _add_candidate(
    source: Connection,
    target: Connection,
    row: Row,
    run_id: int,
    candidate_id: int,
    dataset_id: int,
) -> None:
    """Add a candidate; a clone comes with the state that it began with, and its parent's name.

    So does one that began with a parent's tensors: from which model they came is not sent.
    """
    columns = ("ordinal", "config", "seed", "parent_state", "architecture_hash")
    given = {name: row[name] for name in columns}
    parent = row["parent_id"]
    given["parent_id"] = None if parent is None else put_candidate(source, target, parent, -1)
    query = load("runs").add_candidate
    (added,) = target.rows(query, run_id=run_id, **given)
    if row["has_warm_start"]:
        warm_start = {
            name: row[name] for name in ("state_hash", "lr_scale", "lr_epochs", "match_s")
        }
        target.run(
            load("warm").add_warm_start,
            candidate_id=added["candidate_id"],
            transfer_id=None,
            reason=f"in the database that it came from: {row['reason']}",
            **warm_start,
        )
    first_state = row["parent_state"] or row["state_hash"]
    if first_state is None:
        return
    parts = _parts(source, target, row["dataset_id"], dataset_id)
    name = bytes(first_state).hex()
    for checkpoint in states.checkpoints(source, candidate_id):
        if bytes(checkpoint["state_hash"]).hex() == name:
            part_id = checkpoint["part_id"]
            state = states.read_checkpoint(source, part_id, candidate_id, name)
            if state is not None:
                place = (target, parts[part_id], added["candidate_id"])
                states.write_checkpoint(*place, -1, name, state)


def _put_merges(
    source: Connection,
    target: Connection,
    candidate_id: int,
    own: int,
    epoch: int,
    parts: Mapping[int, int],
) -> None:
    (last,) = target.rows(_Q.last_merge, candidate_id=own)
    after = -1 if last["epoch"] is None else last["epoch"]
    key = {"candidate_id": candidate_id, "epoch": epoch, "after": after}
    target.run_many(
        load("hops").add_merge,
        [
            dict(m) | {"candidate_id": own, "part_id": parts[m["part_id"]]}
            for m in source.rows(_Q.read_merges, **key)
        ],
    )


def _put_run(source: Connection, target: Connection, row: Row, dataset_id: int) -> int:
    (dataset,) = source.rows(_Q.read_dataset, dataset_id=row["dataset_id"])
    content = bytes(dataset["content_hash"])
    identity = f"{row['run_seed']} {row['created']:.3f}".encode() + content
    longer = f"{row['name']}/{blake3.blake3(identity).hexdigest()[:8]}"
    name = longer
    for name in (row["name"], longer):
        found = target.rows(_Q.find_named_run, name=name)
        if not found:
            break
        if _is_same(found[0], row, content):
            return int(found[0]["run_id"])
    columns = (
        *("architecture", "search", "epochs", "strategy", "warm_start", "options"),
        *("metric", "maximize", "created"),
    )
    values: dict[str, Any] = {column: row[column] for column in columns}
    values |= {"name": name, "seed": row["run_seed"], "dataset_id": dataset_id}
    (added,) = target.rows(_Q.add_copied_run, **values)
    events = source.rows(_Q.read_run_events, run_id=row["run_id"])
    target.run_many(
        _Q.add_copied_run_event, [dict(event) | {"run_id": added["run_id"]} for event in events]
    )
    target.run_many(
        load("runs").add_run_strategy,
        [
            dict(taken) | {"run_id": added["run_id"], "workers": None, "plan_id": None}
            for taken in source.rows(_Q.read_run_strategy, run_id=row["run_id"])
        ],
    )
    return int(added["run_id"])


def _is_same(found: Row, row: Row, content: bytes) -> bool:
    near = abs(found["created"] - row["created"]) < _SAME_TIME_S
    return near and found["seed"] == row["run_seed"] and bytes(found["content_hash"]) == content


def _parts(source: Connection, target: Connection, dataset_id: int, own: int) -> Mapping[int, int]:
    """Return the target's part_id for each of the source's; replicas become one."""
    there: dict[tuple[str, int], int] = {}
    for part in target.rows(_D.find_partitions, dataset_id=own):
        there.setdefault((part["role"], part["ordinal"]), part["part_id"])
    return {
        part["part_id"]: there[part["role"], part["ordinal"]]
        for part in source.rows(_D.find_partitions, dataset_id=dataset_id)
    }


def find_obstacle(
    source: Connection, target: Connection, model: Row, recipe: Row | None, *, data: bool
) -> str | None:
    """Return why the target could not follow a model's recipe; None if nothing is against it.

    Args:
        model: a row of `read_model`.
        data: its dataset's blocks are sent, too.
    """
    if recipe is None:
        return "it has no recipe"
    trainer = recipe["trainer"]
    if trainer is not None:
        query = load("recipes").find_trainer
        if list(source.rows(query, name=trainer)) != list(target.rows(query, name=trainer)):
            return f"trainer {trainer!r} is not registered there as it is here"
    return _data_obstacle(source, target, model, data) or _factory_obstacle(source, target, model)


def _data_obstacle(source: Connection, target: Connection, model: Row, data: bool) -> str | None:
    if model["dataset_id"] is None:
        return None
    (dataset,) = source.rows(_Q.read_dataset, dataset_id=model["dataset_id"])
    there = find_dataset(source, target, model["dataset_id"])
    if there is not None and not there.is_dropped:
        return None
    if data and not dataset["is_dropped"]:
        return None
    return f"dataset {dataset['name']!r} is not there"


def _factory_obstacle(source: Connection, target: Connection, model: Row) -> str | None:
    if model["definition_id"] is None:
        return None
    (definition,) = source.rows(_Q.read_definition, definition_id=model["definition_id"])
    here, there = find_factories(source), find_factories(target)
    for name in factories_in(json.loads(definition["architecture"])):
        if here.get(name) != there.get(name):
            return f"factory {name!r} is not registered there as it is here"
    return None
