"""New versions of a dataset: rows that its query has come to return are added, others masked.

A version shares the blocks of the one before. What is new is packed into partitions of its own;
rows that are gone, or have other values, are left out of the blocks that hold them.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from mmdb.arguments import check_flag
from mmdb.data.column_layout import ClassCounts
from mmdb.data.dataset import StoredDataset, StoredPartition, dataset_of, find_dataset
from mmdb.data.forms import decoding_row
from mmdb.data.growing import rows_to_read
from mmdb.data.ingest import SealedPartition, gather, pack_slices, spread_copies
from mmdb.data.options import Options
from mmdb.data.registration import (
    PreparedQuery,
    add_dataset,
    add_partition,
    draw_numbers,
    prepare,
    register,
)
from mmdb.data.row_matching import RowChanges, RowMatcher
from mmdb.data.rows import RowPacker
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
from mmdb.data.split import ROLES, Role, Split, parse_split
from mmdb.db.connection import Batch, Connection
from mmdb.db.owners import check_bytes, require_author, require_owner
from mmdb.db.queries import load
from mmdb.errors import DataError, DatasetDropped, InvalidOption
from mmdb.messages import show

_Q = load("datasets")


@dataclass(frozen=True, slots=True, kw_only=True)
class RefreshedDataset:
    """A dataset's last version, and what it has that the one before has not."""

    name: str
    version: int
    rows: int
    partitions: int
    added: int | None  # None: it was read anew as a whole, and nobody compared
    changed: int | None  # rows of a key that was there; None: the rows have no key
    deleted: int | None  # None: `grows` leaves out looking
    is_new: bool  # whether there is, or would be, a new version


def refresh_dataset(
    connection: Connection,
    name: str,
    *,
    grows: str | None = None,
    fit: bool = False,
    dry_run: bool = False,
    say: Callable[[str], None] = lambda _: None,
) -> RefreshedDataset:
    """Bring a dataset up to date with what its query returns now, as a version of its own.

    Rows are told by their values, and by their key where they have one. Transforms stay as they
    were fitted. Nothing changed: no version is added.

    Args:
        grows: an output column whose values only grow from row to row. Rows are then read from the
            greatest value on that the last refresh by this column has seen, and rows that are gone
            are not looked for. Rows must have a key, by which those are known that were read.
        fit: read all rows anew and fit transforms and classes to them.
        dry_run: say what would be done, and add nothing.
    Raises:
        DatasetNotFound, DatasetDropped, RightsMissing, InvalidOption
        DataError: the query returns other columns or classes than it did, or a key twice.
        QueryError: it can no longer be run.
    """
    check_flag(fit, "fit")
    check_flag(dry_run, "dry_run")
    while True:
        dataset = find_dataset(connection, name)
        if dataset.dropped:
            raise DatasetDropped(f"Dataset {show(name)} has been dropped.")
        if not dataset.version or name != dataset.name.removesuffix(f"@{dataset.version}"):
            raise InvalidOption(
                f"{show(name)} is one version of a dataset.", hint="Pass the dataset's name."
            )
        require_owner(connection, "dataset", dataset.name, dataset.dataset_id)
        require_author(connection, dataset.name, dataset.dataset_id)
        try:
            if fit:
                return _fit_anew(connection, dataset, say, dry_run=dry_run)
            return _Refresh(connection, dataset, grows).run(dry_run=dry_run)
        except Overtaken:
            continue


def _prepare(
    connection: Connection, dataset: StoredDataset, say: Callable[[str], None]
) -> PreparedQuery:
    keys = [column.name for column in dataset.columns if column.kind == "key"]
    options = Options.parse(dataset.options)
    return prepare(connection, dataset.query, dataset.label, options, say, keys)


def _split_of(dataset: StoredDataset, partitions: int) -> Split:
    options = Options.parse(dataset.options)
    given = dict(options.split)
    return parse_split(
        given, partitions=partitions, validation=dataset.validation, seed=dataset.seed
    )


def _hold(connection: Connection, dataset: StoredDataset) -> None:
    """Let nobody else add a version, or forget rows, in this transaction.

    Raises:
        Overtaken: somebody has.
    """
    hold(connection, dataset)
    origin = dataset.name.removesuffix(f"@{dataset.version}")
    if find_dataset(connection, origin).dataset_id != dataset.dataset_id:
        raise Overtaken


def _next_row(dataset: StoredDataset) -> dict[str, object]:
    """Return what the row of the next version says besides its rows."""
    version = dataset.version + 1
    return {
        "name": f"{dataset.name.removesuffix(f'@{dataset.version}')}@{version}",
        "version": version,
        "origin_id": dataset.origin_id or dataset.dataset_id,
        "query_text": dataset.query,
        "label": dataset.label,
        "options": json.dumps(dataset.options, ensure_ascii=False),
    }


def _fit_anew(
    connection: Connection, dataset: StoredDataset, say: Callable[[str], None], *, dry_run: bool
) -> RefreshedDataset:
    row = _next_row(dataset) | {"changes": json.dumps({"fitted": True})}
    first = dataset if dataset.origin_id is None else dataset_of(connection, dataset.origin_id)
    partitions = sum(part.role == "train" for part in first.slices)
    if dry_run:
        rows = dataset.row_count
    else:
        rows = register(
            connection,
            _prepare(connection, dataset, say),
            _split_of(dataset, partitions),
            row,
            say,
            lambda: _hold(connection, dataset),
            dataset.owner,
        ).rows
    return RefreshedDataset(
        name=str(row["name"]),
        version=dataset.version + 1,
        rows=rows,
        partitions=partitions,
        added=None,
        changed=None,
        deleted=None,
        is_new=True,
    )


class _Refresh:
    """One refresh: reads, compares, and writes what is new."""

    def __init__(self, connection: Connection, dataset: StoredDataset, grows: str | None) -> None:
        self._connection, self._dataset, self._grows = connection, dataset, grows
        self._prepared = _prepare(connection, dataset, lambda _: None)
        if self._prepared.request.packs:
            raise InvalidOption(
                f"Rows of dataset {dataset.name!r} hold several texts: which are new is not known.",
                hint="Pass fit => true, which reads all of them anew.",
            )
        self._keyed = 1 + bool(self._prepared.request.keys)
        self._keys = [column.name for column in dataset.columns if column.kind == "key"]
        if grows is not None and self._keyed == 1:
            raise InvalidOption(
                f"grows is {show(grows)}, and rows of dataset {dataset.name!r} have no key.",
                hint="New rows that equal old ones cannot be told then: leave grows out, or "
                "make the dataset with a column of the role key.",
            )
        self._parts: list[tuple[StoredPartition, list[StoredBlock]]] = []

    def run(self, *, dry_run: bool) -> RefreshedDataset:
        """Compare, and add a version if there is anything new."""
        request = self._prepared.request
        grown = rows_to_read(
            self._connection, self._prepared.select, self._grows, self._dataset.changes, self._keys
        )
        select, sees_all = grown.select, grown.sees_all
        self._parts = [
            (part, self._blocks(part, hashed=not grown.are_new)) for part in self._dataset.slices
        ]
        hashes = [] if grown.are_new else [b.hashes for _, blocks in self._parts for b in blocks]
        known = np.concatenate([np.empty((0, self._keyed), np.uint64), *hashes])
        split = _split_of(self._dataset, 1)
        with tempfile.TemporaryDirectory(prefix="mmdb-refresh-") as directory:
            folder = Path(directory)
            if split.by == "time":
                starts = self._starts(select, split, known, folder, sees_all=sees_all)
                split = replace(split, starts=starts)
            packer = RowPacker(request, split, self._prepared.encoders)
            matcher = RowMatcher(known, sees_all=sees_all)
            with (folder / "rows").open("w+b", buffering=0) as spill:
                shuffle = gather(
                    self._connection,
                    select,
                    request,
                    packer,
                    spill,
                    admits=lambda hashes, _: matcher.admit(hashes),
                )
                packer.check_finite()
                found = matcher.difference()
                new: list[SealedPartition] = []
                counts = ClassCounts(self._dataset.decoding.labels)
                if shuffle is not None:
                    packer.adopt(self._dataset.decoding)
                    slices = self._slices(split, packer, found)
                    with (
                        spread_copies(shuffle, split, folder) as spread,
                        (folder / "blocks").open("wb") as file,
                    ):
                        new = pack_slices(
                            spread, packer, slices, self._dataset.decoding, counts, file
                        )
            if not new and not len(found.gone):
                return self._told(self._dataset, found)
            changes: dict[str, Any] = {
                "added": found.added,
                "changed": found.changed,
                "deleted": found.deleted,
            }
            if grown.column is not None:
                changes |= {"grows": grown.column, "until": grown.until}
            parts = self._kept(found.gone)
            if not any(part.role == "train" for part, _ in parts) and not any(
                part.role == "train" for part in new
            ):
                raise DataError("No row to train on is left.", hint="Check the dataset's query.")
            if dry_run:
                return self._told(None, found, parts, new)
            self._write(parts, new, folder / "blocks", counts.by_label(), changes, found.gone)
        return self._told(find_dataset(self._connection, self._origin), found)

    @property
    def _origin(self) -> str:
        return self._dataset.name.removesuffix(f"@{self._dataset.version}")

    def _growing_part(
        self, parts: Sequence[StoredPartition], new: Sequence[SealedPartition]
    ) -> StoredPartition | None:
        """Return the train partition that grows: nightly handfuls get none of their own."""
        train = [part for part in parts if part.role == "train"]
        fresh = [part for part in new if part.role == "train"]
        fits = train and fresh and train[-1].row_count + fresh[0].row_count <= self._most
        return train[-1] if fits else None

    @property
    def _most(self) -> int:
        """Rows of the largest train partition."""
        return max(part.row_count for part in self._dataset.slices if part.role == "train")

    # -- what is read -----------------------------------------------------------

    def _blocks(self, part: StoredPartition, *, hashed: bool) -> list[StoredBlock]:
        return stored_blocks(self._connection, self._dataset, part.part_id, hashed=hashed)

    def _starts(
        self, select: str, split: Split, known: np.ndarray, folder: Path, *, sees_all: bool
    ) -> dict[Role, float]:
        """Return the times after which new rows are held out: the last of them."""
        times: list[np.ndarray] = []
        plain = replace(split, starts={})
        packer = RowPacker(self._prepared.request, plain, self._prepared.encoders)
        matcher = RowMatcher(known, sees_all=sees_all)

        def admits(hashes: np.ndarray, batch: Batch) -> np.ndarray:
            is_new = matcher.admit(hashes)
            times.append(np.asarray(batch[self._prepared.request.split.output])[is_new])  # type: ignore[union-attr]
            return np.zeros(len(is_new), bool)

        with (folder / "times").open("w+b", buffering=0) as spill:
            gather(self._connection, select, self._prepared.request, packer, spill, admits=admits)
        found = np.sort(np.concatenate([np.empty(0), *times]))
        timed = replace(split, starts=None).with_times(
            len(found),
            self._wanted(split, len(found), matcher.difference().gone),
            lambda place: float(found[place - 1]),
            lambda time: int(np.searchsorted(found, time, side="right")),
        )
        return dict(timed.starts or {})

    def _wanted(self, split: Split, count: int, gone: np.ndarray) -> dict[Role, int]:
        """Return how many of so many new rows to hold out, so that shares of all rows stay.

        A slice from a date on has the share that it has now.
        """
        there: dict[str, int] = dict.fromkeys(ROLES, 0)
        for part, _ in self._kept(gone):
            there[part.role] += part.row_count
        of_all = split.wanted(sum(there.values()) + count)
        left, wanted = count, {}
        for role in ROLES[:2]:
            by_date = round(count * self._share(role))
            more = of_all[role] - there[role] if role in of_all else by_date
            wanted[role] = min(left, max(0, more))
            left -= wanted[role]
        return wanted

    def _share(self, role: str) -> float:
        """Return the share of the rows that a slice has."""
        rows = sum(part.row_count for part in self._dataset.slices if part.role == role)
        return rows / self._dataset.row_count

    def _slices(self, split: Split, packer: RowPacker, found: RowChanges) -> list[tuple[Role, int]]:
        """Return role and row count of the slices of what is new."""
        count = found.added + (found.changed or 0)
        counts: dict[Role, int] = dict.fromkeys(ROLES, 0)
        if split.column is not None:
            counts = packer.role_counts()
        else:
            counts |= self._wanted(split, count, found.gone)
            counts["train"] = count - sum(counts.values())
        pieces = -(-counts["train"] // self._most)
        bounds = [counts["train"] * k // max(1, pieces) for k in range(pieces + 1)]
        held: list[tuple[Role, int]] = [(role, counts[role]) for role in ROLES[:2] if counts[role]]
        return [*held, *(("train", b - a) for a, b in pairwise(bounds))]

    # -- what is written ----------------------------------------------------------

    def _kept(self, gone: np.ndarray) -> list[tuple[StoredPartition, list[StoredBlock]]]:
        """Return the partitions of the version before without rows that are gone."""
        kept, first = [], 0
        for part, blocks in self._parts:
            left = []
            for block in blocks:
                low, high = np.searchsorted(gone, (first, first + block.rows_left))
                one = block.without(gone[low:high] - first)
                first += block.rows_left
                if one.rows_left:
                    left.append(one)
            if left:
                rows = sum(block.rows_left for block in left)
                kept.append((replace(part, row_count=rows), left))
        return kept

    def _write(
        self,
        parts: Sequence[tuple[StoredPartition, list[StoredBlock]]],
        new: Sequence[SealedPartition],
        path: Path,
        counts: dict[str, list[int]],
        changes: dict[str, Any],
        gone: np.ndarray,
    ) -> None:
        connection, dataset = self._connection, self._dataset
        grown: dict[str, SealedPartition] = {p.role: p for p in new if p.role != "train"}
        train = [part for part in new if part.role == "train"]
        last = self._growing_part([part for part, _ in parts], train)
        ordinals: dict[str, int] = dict.fromkeys(ROLES, 0)
        shared = []
        for part, blocks in parts:
            # Nightly handfuls make no partitions of their own.
            more = train.pop(0) if part is last else grown.pop(part.role, None)
            place = part.role, ordinals[part.role]
            row = shared_row(place, blocks, more, dataset.decoding, part.byte_count)
            ordinals[part.role] += 1
            shared.append((row, blocks, more))
        added = [replace(one, ordinal=ordinals["train"] + k) for k, one in enumerate(train)]
        added += grown.values()
        rows: list[dict[str, Any]] = [row for row, _, _ in shared]
        rows += [
            {name: getattr(one, name) for name in ("role", "ordinal", "row_count", "content_hash")}
            for one in added
        ]
        values = {
            **_next_row(dataset),
            **decoding_row(dataset.decoding),
            "seed": dataset.seed,
            "partitions": ordinals["train"] + len(train),
            "validation": dataset.validation,
            "row_count": sum(row["row_count"] for row in rows),
            "byte_count": sum(part.byte_count for part in new),
            "content_hash": hash_of(rows),
            "class_counts": json.dumps(
                _sums(dataset.class_counts, counts, self._gone_classes(gone)), ensure_ascii=False
            ),
            "changes": json.dumps(changes),
        }
        with connection.transaction():
            _hold(connection, dataset)
            dataset_id = add_dataset(connection, values, dataset.owner)
            copy_form(connection, dataset, dataset_id)
            sources = [blocks[0].source_id for _, blocks, _ in shared]
            numbers = iter(draw_numbers(connection, [row["role"] for row in rows], sources))
            for row, blocks, more in shared:
                add_shared_partition(connection, dataset_id, row, blocks, more, path, next(numbers))
            for one in added:
                add_partition(connection, dataset_id, one, path, next(numbers))
            check_bytes(connection)

    def _gone_classes(self, gone: np.ndarray) -> dict[str, list[int]]:
        """Return how many train rows of each class are gone, by label."""
        counts, first = ClassCounts(self._dataset.decoding.labels), 0
        for part, blocks in self._parts:
            for block in blocks:
                low, high = np.searchsorted(gone, (first, first + block.rows_left))
                if high > low and part.role == "train":
                    places = gone[low:high] - first
                    count_classes(self._connection, self._dataset.decoding, block, counts, places)
                first += block.rows_left
        return counts.by_label()

    def _told(
        self,
        dataset: StoredDataset | None,
        found: RowChanges,
        parts: Sequence[tuple[StoredPartition, Any]] = (),
        new: Sequence[SealedPartition] = (),
    ) -> RefreshedDataset:
        """Return what is said of a version; None: of one that was not added."""
        slices = [part for part, _ in parts] if dataset is None else dataset.slices
        grows = self._growing_part(slices, new) is not None
        version = self._dataset.version + 1 if dataset is None else dataset.version
        return RefreshedDataset(
            name=self._origin if version == 1 else f"{self._origin}@{version}",
            version=version,
            rows=sum(part.row_count for part in (*slices, *new)),
            partitions=sum(part.role == "train" for part in (*slices, *new)) - grows,
            added=found.added,
            changed=found.changed,
            deleted=found.deleted,
            is_new=version > self._dataset.version,
        )


def _sums(
    before: Any, added: dict[str, list[int]], gone: dict[str, list[int]]
) -> dict[str, list[int]]:
    return {
        name: [sum(c) - g for *c, g in zip(counts, added[name], gone[name], strict=True)]
        for name, counts in before.items()
    }
