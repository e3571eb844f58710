"""Rows that are forgotten: found in every version of their dataset, and erased from its blocks.

A block without them takes the place of the block that held them, and the hashes of partitions and
datasets are those of what is left. Transforms stay as they were fitted, but for categories that no
row is left of.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from mmdb.arguments import unfit
from mmdb.data.column_layout import ClassCounts
from mmdb.data.dataset import StoredDataset, StoredPartition, dataset_of, find_decoding
from mmdb.data.ingest import gather
from mmdb.data.options import Options
from mmdb.data.pack import dataset_hash, digest, partition_hash, unpack_columns, without_rows
from mmdb.data.reader import block_digest, read_blocks
from mmdb.data.registration import PreparedQuery, prepare
from mmdb.data.row_matching import identities, is_in
from mmdb.data.rows import RowPacker
from mmdb.data.shared_blocks import StoredBlock, count_classes, stored_blocks
from mmdb.data.split import parse_split
from mmdb.db.connection import Batch, Connection, Texts
from mmdb.db.queries import load
from mmdb.errors import DataError, InvalidOption
from mmdb.messages import show

_Q = load("forgetting")
_DATASETS = load("datasets")

Place = tuple[int, int]  # of a stored block: part_id and ordinal


@dataclass(frozen=True, slots=True, kw_only=True)
class ErasedPartition:
    """A partition of a version of a dataset that has rows which are forgotten.

    Attributes:
        part: as it was.
        blocks: that it reads, as they were.
        gone: of each block, which of the rows that the partition reads of it are forgotten.
    """

    dataset: StoredDataset
    part: StoredPartition
    blocks: tuple[StoredBlock, ...]
    gone: tuple[np.ndarray, ...]

    @property
    def rows(self) -> int:
        """How many of its rows are forgotten."""
        return sum(int(gone.sum()) for gone in self.gone)


class Erasure:
    """The rows of a dataset that are forgotten, in all of its versions and samples of them.

    Attributes:
        partitions: that read any of them.
        emptied: older versions and samples of which no row to train on is left.
    """

    def __init__(
        self, connection: Connection, dataset: StoredDataset, condition: str | None
    ) -> None:
        """Find the rows.

        Args:
            condition: SQL on the columns of the dataset's query; None: rows that the query does
                not return any more.
        Raises:
            DataError: there is no such row, it is not known which rows a version has, or of the
                last version no row to train on would be left.
            QueryError: of the condition.
        """
        self._connection = connection
        wanted = _wanted(connection, dataset, condition)
        found = connection.rows(
            _DATASETS.find_family, origin_id=dataset.origin_id or dataset.dataset_id
        )
        self._family = [dataset_of(connection, row["dataset_id"]) for row in found]
        self._gone: dict[Place, np.ndarray] = {}  # of each stored block, which of its rows go
        self._parts: list[ErasedPartition] = []  # all of them
        for one in self._family:
            for part in one.slices:
                blocks = stored_blocks(connection, one, part.part_id)
                self._parts.append(self._partition(one, part, blocks, wanted))
        self.partitions = [part for part in self._parts if part.rows]
        if not any(gone.any() for gone in self._gone.values()):
            which = "that its query does not return any more"
            hint = "Say with condition which rows are to be forgotten."
            if condition is not None:
                which = f"for which {show(condition)} holds"
                hint = "Where rows are gone from their table already, leave condition out."
            raise DataError(f"Dataset {dataset.name!r} has no row {which}.", hint=hint)
        self.emptied = [
            one
            for one in self._family
            if not any(p.part.role == "train" and p.part.row_count > p.rows for p in self._of(one))
        ]
        if any(one.dataset_id == dataset.dataset_id for one in self.emptied):
            raise DataError(
                f"No row to train on would be left of dataset {dataset.name!r}.",
                hint="drop_dataset(..., force => true) gives up all of it.",
            )

    @property
    def row_count(self) -> int:
        """Rows that go from stored blocks, each counted once."""
        return sum(int(gone.sum()) for gone in self._gone.values())

    def _partition(
        self,
        dataset: StoredDataset,
        part: StoredPartition,
        blocks: Sequence[StoredBlock],
        wanted: Callable[[np.ndarray], np.ndarray],
    ) -> ErasedPartition:
        gone = []
        for block in blocks:
            place = block.source_id, block.source_ordinal
            if place not in self._gone:
                self._gone[place] = np.zeros(block.row_count, bool)
            left = np.delete(np.arange(block.row_count), block.masked)
            gone.append(wanted(block.hashes))
            self._gone[place][left] |= gone[-1]
        # Of a hundred versions of a large dataset the hashes would not fit into memory.
        light = tuple(
            replace(block, hashes=np.empty((block.rows_left, 0), np.uint64)) for block in blocks
        )
        return ErasedPartition(dataset=dataset, part=part, blocks=light, gone=tuple(gone))

    def _of(self, dataset: StoredDataset) -> list[ErasedPartition]:
        return [part for part in self._parts if part.dataset is dataset]

    # -- what is written --------------------------------------------------------------

    def write(self) -> Mapping[int, bytes]:
        """Erase the rows; return the content hashes of partitions that differ now, by part_id.

        The caller has begun the transaction, and keeps others from adding versions.
        """
        counts = {one.dataset_id: self._class_counts(one) for one in self._family}
        held = self._held_categories()
        blocks = {place: self._rewrite(place) for place, gone in self._gone.items() if gone.any()}
        for part in self._parts:
            self._mask(part)
        found: dict[int, bytes] = {}
        for one in self._family:
            self._redact(one, held)
            found |= self._describe(one, blocks, counts[one.dataset_id])
        for one in self.emptied:
            self._connection.run(_DATASETS.mark_dropped, dataset_id=one.dataset_id)
        return found

    def _class_counts(self, dataset: StoredDataset) -> dict[str, list[int]]:
        """Return the train rows of each class that will be left, by label."""
        lost = ClassCounts(dataset.decoding.labels)
        for part in self._of(dataset):
            for block, gone in zip(part.blocks, part.gone, strict=True):
                if part.part.role == "train" and gone.any():
                    places = np.flatnonzero(gone)
                    count_classes(self._connection, dataset.decoding, block, lost, places)
        by_label = lost.by_label()
        return {
            name: [count - less for count, less in zip(counts, by_label[name], strict=True)]
            for name, counts in dataset.class_counts.items()
        }

    def _rewrite(self, place: Place) -> tuple[bytes, int]:
        """Store a block without its forgotten rows; return its digest, and the bytes saved."""
        gone = self._gone[place]
        key = {"source_id": place[0], "source_ordinal": place[1]}
        (row,) = self._connection.rows(_Q.read_whole_block, **key)
        data = without_rows(row["data"], gone)
        hashes = np.frombuffer(row["row_hashes"], "<u8").reshape(-1, len(gone))[:, ~gone]
        found = digest(data)
        self._connection.run(
            _Q.replace_block,
            **key,
            row_count=int((~gone).sum()),
            digest=found,
            data=data,
            row_hashes=np.ascontiguousarray(hashes).tobytes(),
        )
        return found, len(row["data"]) - len(data)

    def _mask(self, part: ErasedPartition) -> None:
        """Move the places of rows that a partition leaves out to where they are now."""
        for ordinal, block in enumerate(part.blocks):
            gone = self._gone[block.source_id, block.source_ordinal]
            if gone.any() and len(block.masked):
                self._connection.run(
                    _Q.mask_shared_block,
                    part_id=part.part.part_id,
                    ordinal=ordinal,
                    masked=_moved(block.masked, gone).tolist() or None,
                )

    def _describe(
        self,
        dataset: StoredDataset,
        blocks: Mapping[Place, tuple[bytes, int]],
        class_counts: Mapping[str, list[int]],
    ) -> dict[int, bytes]:
        """Record what is left of a version; return the hashes of partitions that differ."""
        found: dict[int, bytes] = {}
        decoding = find_decoding(self._connection, dataset.dataset_id)
        train = saved = 0
        parts = sorted(self._of(dataset), key=lambda part: part.part.row_count == part.rows)
        for part in parts:
            old, digests, less = part.part, [], 0
            for block in part.blocks:
                place = block.source_id, block.source_ordinal
                own, bytes_saved = blocks.get(place, (block.digest, 0))
                masked = _moved(block.masked, self._gone[place]).tolist()
                digests.append(block_digest({"digest": own, "masked": masked}))
                less += bytes_saved
                saved += bytes_saved if place[0] == old.part_id else 0
            content_hash = partition_hash(digests, decoding)
            rows = old.row_count - part.rows
            self._connection.run(
                _Q.change_partition,
                part_id=old.part_id,
                ordinal=train if old.role == "train" else old.ordinal,
                row_count=rows,
                byte_count=max(0, old.byte_count - less),
                content_hash=content_hash,
            )
            train += old.role == "train"
            if content_hash != old.content_hash:
                found[old.part_id] = content_hash
        left = dataset_of(self._connection, dataset.dataset_id).slices
        held_out = any(part.role == "validation" for part in left)
        self._connection.run(
            _Q.change_dataset,
            dataset_id=dataset.dataset_id,
            partitions=sum(part.role == "train" for part in left),
            validation=dataset.validation if held_out else 0.0,
            row_count=sum(part.row_count for part in left),
            byte_count=max(0, dataset.byte_count - saved),
            content_hash=dataset_hash(part.content_hash for part in left),
            class_counts=json.dumps(class_counts, ensure_ascii=False),
        )
        return found

    # -- categories -------------------------------------------------------------------

    def _held_categories(self) -> dict[str, set[str]]:
        """Return the texts of forgotten rows, by column."""
        found: dict[str, set[str]] = {}
        for part in self.partitions:
            for block, gone in zip(part.blocks, part.gone, strict=True):
                if gone.any() and any(_categories(part.dataset).values()):
                    left = np.delete(np.arange(block.row_count), block.masked)
                    for name, texts in self._texts(part.dataset, block, left[gone]):
                        found.setdefault(name, set()).update(texts)
        return found

    def _texts(
        self, dataset: StoredDataset, block: StoredBlock, places: np.ndarray
    ) -> Iterator[tuple[str, set[str]]]:
        key = {"source_id": block.source_id, "source_ordinal": block.source_ordinal}
        (row,) = self._connection.rows(_DATASETS.read_block, **key)
        masked = np.delete(np.arange(block.row_count), places).tolist()
        for name, values in unpack_columns(row["data"], dataset.decoding, masked).items():
            if isinstance(values, Texts):
                used = np.unique(values.places)
                yield name, {text for k in used if (text := values.distinct[k]) is not None}

    def _redact(self, dataset: StoredDataset, held: Mapping[str, set[str]]) -> None:
        """Take those of a version's categories away that no row has any more."""
        lost = {
            name: set(known) & held.get(name, set())
            for name, known in _categories(dataset).items()
            if set(known) & held.get(name, set())
        }
        for part in self._of(dataset) if lost else ():
            for block in read_blocks(self._connection, part.part.part_id):
                columns = unpack_columns(block["data"], dataset.decoding, block.get("masked"))
                for name, left in lost.items():
                    values = columns[name]
                    if isinstance(values, Texts):
                        left -= {values.distinct[k] for k in np.unique(values.places)}
                if not any(lost.values()):
                    return
        for name, left in lost.items():
            if left:
                known = _categories(dataset)[name]
                shown = [
                    f"(forgotten {place})" if text in left else text
                    for place, text in enumerate(known)
                ]
                self._connection.run(
                    _Q.change_categories,
                    dataset_id=dataset.dataset_id,
                    name=name,
                    categories=json.dumps(shown, ensure_ascii=False),
                )


def _categories(dataset: StoredDataset) -> dict[str, tuple[str, ...]]:
    """Return the categories that columns of a dataset have, by name."""
    return {
        column.name: column.transform.categories or ()
        for column in dataset.columns
        if column.transform is not None
    }


def _moved(masked: np.ndarray, gone: np.ndarray) -> np.ndarray:
    """Return the places of rows that are left out in a block that has lost some of its rows."""
    places = np.cumsum(~gone) - 1
    return places[masked[~gone[masked]]]  # type: ignore[no-any-return]


def _wanted(
    connection: Connection, dataset: StoredDataset, condition: str | None
) -> Callable[[np.ndarray], np.ndarray]:
    """Return what says of rows, by their hashes, which are to be forgotten.

    A row is known by its key, whatever its values were; without a key by its values.
    """
    query = dataset.query
    if condition is not None:
        columns = connection.columns(f"SELECT ({condition}\n) AS holds FROM ({query}\n) AS q")
        if [kind for _, kind in columns] != ["boolean"]:  # any number but 0 is true to DuckDB
            raise unfit("condition", condition, 'It is true or false of a row, such as "id = 3".')
        query = f"SELECT * FROM ({query}\n) AS q WHERE ({condition}\n)"
    keys = [column.name for column in dataset.columns if column.kind == "key"]
    options = Options.parse(dataset.options)
    prepared = prepare(connection, query, dataset.label, options, lambda _: None, keys)
    if prepared.request.packs:
        raise InvalidOption(
            f"Rows of dataset {dataset.name!r} hold several texts, and none is known by itself.",
            hint="Drop it and what was trained on it, and create it without them.",
        )
    found = _hashes(connection, prepared, dataset)
    if condition is None:
        known = np.sort(identities(found))
        return lambda hashes: ~is_in(identities(hashes), known)
    told = np.sort(found[:, -1])
    return lambda hashes: is_in(hashes[:, -1], told)


def _hashes(connection: Connection, prepared: PreparedQuery, dataset: StoredDataset) -> np.ndarray:
    """Return the hashes by which the rows of a query are known, uint64 (n, 1 or 2)."""
    request = prepared.request
    found = [np.empty((0, 1 + bool(request.keys)), np.uint64)]

    def admits(hashes: np.ndarray, _: Batch) -> np.ndarray:
        found.append(hashes.copy())
        return np.zeros(len(hashes), bool)

    split = parse_split({}, partitions=1, validation=0.0, seed=dataset.seed)
    packer = RowPacker(request, split, prepared.encoders)
    with tempfile.TemporaryDirectory(prefix="mmdb-forget-") as directory:
        with (Path(directory) / "rows").open("w+b", buffering=0) as spill:
            gather(connection, prepared.select, request, packer, spill, admits=admits)
    return np.concatenate(found)
