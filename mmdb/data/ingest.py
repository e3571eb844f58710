"""From a SELECT to packed partitions in a file: scanned, shuffled, cut, packed, hashed."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass
from itertools import chain, count
from pathlib import Path
from typing import IO

import numpy as np
from blake3 import blake3

from mmdb.data.column_layout import ClassCounts, Field, Request, view
from mmdb.data.decoding import Decoding, class_text
from mmdb.data.pack import dataset_hash, digest, pack, partition_hash, rows_per_block
from mmdb.data.packing import PLACE, packed
from mmdb.data.query import Engine
from mmdb.data.rows import ROUGH, RowPacker
from mmdb.data.shuffle import Shuffle, cut
from mmdb.data.split import ROLES, Role, Split
from mmdb.data.tokenize import Encoder
from mmdb.db.connection import Batch, Connection, Kind, NullFound, RaggedFound
from mmdb.db.queries import quote_name
from mmdb.db.row_formats import NULLABLE
from mmdb.errors import (
    DataError,
    NotFinite,
    NullValues,
    QueryFailed,
    RaggedArray,
    TooFewRows,
    UnsupportedType,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SealedBlock:
    """A packed block, kept in a file until it is written to the database."""

    row_count: int
    digest: bytes
    offset: int
    byte_count: int
    hash_bytes: int  # of the rows' hashes, which follow it in the file


@dataclass(frozen=True, slots=True, kw_only=True)
class SealedPartition:
    """A partition all of whose blocks are packed."""

    role: Role
    ordinal: int
    row_count: int
    content_hash: bytes
    blocks: tuple[SealedBlock, ...]

    @property
    def byte_count(self) -> int:
        """Bytes of its blocks."""
        return sum(block.byte_count for block in self.blocks)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sealed:
    """A dataset that is ready to be written."""

    decoding: Decoding
    row_count: int
    partitions: tuple[SealedPartition, ...]  # test, train by ordinal, validation
    class_counts: Mapping[str, list[int]]  # train rows by class, for each label that has any
    path: Path  # holds the blocks
    skipped: Mapping[str, int]  # rows left out for a damaged picture, by column

    @property
    def byte_count(self) -> int:
        """Bytes of all blocks."""
        return sum(partition.byte_count for partition in self.partitions)

    @property
    def content_hash(self) -> bytes:
        """The dataset's content hash."""
        return dataset_hash(partition.content_hash for partition in self.partitions)


def read_sealed(path: Path, block: SealedBlock) -> tuple[bytes, bytes]:
    """Return the bytes of a block, and the hashes of its rows."""
    with path.open("rb") as file:
        file.seek(block.offset)
        return file.read(block.byte_count), file.read(block.hash_bytes)


def seal(
    connection: Connection,
    select: str,
    request: Request,
    split: Split,
    directory: Path,
    encoders: Mapping[str, Encoder],
) -> Sealed:
    """Read the rows of a SELECT once and return them as packed partitions.

    Args:
        directory: takes two files, each as large as the rows; the caller removes it.
        encoders: of the columns that become tokens, by name.
    Raises:
        NullValues, RaggedArray, NotFinite, OneClass, TooFewRows, TooManyCategories, FunctionFailed
    """
    packer = RowPacker(request, split, encoders)
    with ExitStack() as files:
        spill = files.enter_context((directory / "rows").open("w+b", buffering=0))
        try:
            shuffle = gather(connection, select, request, packer, spill)
        except NotFinite:
            # PostgreSQL's cast to real ends the query at a double that is too large or too small:
            # read again, with those made NaN, which are counted, and 0.
            spill.truncate(0)
            packer = RowPacker(request, split, encoders)
            shuffle = _gather_clamped(connection, select, request, packer, spill)
        if shuffle is None:
            raise TooFewRows("The query returned no rows.", hint="Check its WHERE clause.")
        packer.check_finite()
        shuffle = files.enter_context(spread_copies(shuffle, split, directory))
        slices = packer.slices()
        held_out = sum(rows for role, rows in slices if role != "train")
        transforms = packer.fit(lambda: _train_rows(shuffle, held_out), packer.row_count - held_out)
        for name in packer.rough:
            _check_rounding(connection, select, name)
        decoding = packer.decoding(transforms)
        counts = ClassCounts(decoding.labels)
        path = directory / "blocks"
        with path.open("wb") as file:
            partitions = pack_slices(shuffle, packer, slices, decoding, counts, file)
    if split.column is not None:
        _check_classes(decoding, counts.by_label())
    return Sealed(
        decoding=decoding,
        row_count=packer.row_count,
        partitions=tuple(partitions),
        class_counts=counts.by_label(),
        path=path,
        skipped={name: rows for name, rows in packer.skipped.items() if rows},
    )


@contextmanager
def spread_copies(shuffle: Shuffle, split: Split, directory: Path) -> Iterator[Shuffle]:
    """Yield rows that are split by chance so that copies of one, where many are, are not together.

    Else whole kinds of rows would be held out, with their labels, and none of others.
    """
    if split.column is not None or not shuffle.has_many_copies():
        yield shuffle
        return
    seed = blake3(f"mmdb copies {split.seed}".encode()).digest(length=8)
    with (directory / "copies").open("w+b", buffering=0) as file:
        yield shuffle.spread(file, np.frombuffer(seed, "<u8")[0])


def _check_classes(decoding: Decoding, counts: Mapping[str, list[int]]) -> None:
    for label in decoding.labels:
        found = counts.get(label.name, []) if label.classes is not None else []
        if label.classes is not None and 0 in found:
            shown = class_text(label.classes[found.index(0)])
            raise DataError(
                f"No train row has the class {shown} of label {label.name!r}.",
                hint="Split the rows otherwise, or leave the rows of this class out.",
            )


def _gather_clamped(
    connection: Connection, select: str, request: Request, packer: RowPacker, spill: IO[bytes]
) -> Shuffle | None:
    try:
        return gather(connection, select, request, packer, spill, clamped=True)
    except NotFinite as error:
        arrays = [field.name for field in request.fields if field.scanned == "reals"]
        if not arrays:  # the query's own arithmetic
            raise QueryFailed(f"The database refused the query: {error.message}") from error
        named = ", ".join(arrays)
        raise NotFinite(f"An array of {named} does not fit float32: {error.message}") from error


def gather(
    connection: Connection,
    select: str,
    request: Request,
    packer: RowPacker,
    spill: IO[bytes],
    *,
    admits: Callable[[np.ndarray, Batch], np.ndarray] | None = None,
    clamped: bool = False,
) -> Shuffle | None:
    """Read the rows of a SELECT and return them, to be read in their order; None: there are none.

    Args:
        admits: returns which rows of a batch are kept, a mask, given their hashes; None: all.
        clamped: see `Request.cast_select`.
    """
    shuffle = None
    with closing(_scan(connection, select, request, clamped=clamped)) as scanned:
        given: Iterator[Batch] = scanned
        if request.packs:
            given = packed(scanned, request.label.name, packer.encoders[request.label.name])
        for batch in given:
            rows, keys = packer.pack(batch)
            if admits is not None:
                kept = admits(packer.layout.hashes_of(rows), batch)
                if not kept.any():
                    continue
                rows, keys = rows[kept], keys[kept]
            packer.keep(keys)
            if shuffle is None:
                shuffle = Shuffle(spill, packer.layout.stride)
            shuffle.add(rows, keys)
    return shuffle


def _scan(
    connection: Connection, select: str, request: Request, *, clamped: bool
) -> Generator[Batch, None, None]:
    try:
        with connection.snapshot():
            statement = request.cast_select(select, clamped=clamped)
            if request.packs:
                statement += f" ORDER BY q.{quote_name(PLACE)}"
            yield from connection.scan(statement, request.kinds())
    except NullFound:
        raise _count_nulls(connection, select, request) from None
    except QueryFailed as error:
        found = None
        with suppress(QueryFailed):  # the error may have ended a transaction
            found = _too_wide(connection, select, request)
        raise found or error from None
    except RaggedFound as error:
        raise RaggedArray(
            f"Column {error.column!r} holds arrays or byte strings of different lengths."
        ) from None


def _too_wide(connection: Connection, select: str, request: Request) -> UnsupportedType | None:
    """Return what to say of a column of DuckDB's that int64 cannot hold; None: there is none."""
    for one in request.scanned:
        if (request.engine, one.scanned, one.type) == ("duckdb", "bigint", "integer"):
            name = quote_name(one.name)
            lost = f"count({name}) - count(TRY_CAST({name} AS bigint))"
            (batch,) = connection.scan(
                f"SELECT ({lost})::bigint AS lost FROM ({select}\n) AS q", [("lost", "bigint")]
            )
            if batch["lost"][0]:
                return UnsupportedType(
                    f"Column {one.name!r} holds whole numbers that no bigint holds.",
                    hint="Cast it to text in the query.",
                )
    return None


def _count_nulls(connection: Connection, select: str, request: Request) -> NullValues:
    fields = [field for field in request.scanned if field.scanned not in NULLABLE]
    counts = ", ".join(
        f"(count(*) FILTER ({where}))::bigint AS {quote_name(field.name)}"
        for field in fields
        for where in (f"WHERE {_is_null(field, request.engine)}",)
    )
    kinds: list[tuple[str, Kind]] = [(field.name, "bigint") for field in fields]
    with connection.snapshot():
        (batch,) = connection.scan(f"SELECT {counts} FROM ({select}\n) AS q", kinds)
    found = {name: int(batch[name][0]) for name, _ in kinds}
    named = ", ".join(f"{name} ({count})" for name, count in found.items() if count)
    return NullValues(f"The query returned NULLs: {named or 'inside nested arrays'}.")


def _check_rounding(connection: Connection, select: str, label: str) -> None:
    """Refuse a label that float32, as which it is kept, rounds by more than a part of its spread.

    Raises:
        DataError
    """
    name = quote_name(label)
    exact = f"{name}::double precision"
    # Of what float32 has no number for, PostgreSQL makes an error.
    kept = f"CASE WHEN abs({exact}) < 1e-44 THEN 0 ELSE {name}::real::double precision END"
    items = {
        "error": f"max(abs({exact} - {kept}))",
        "span": f"(max({name}) - min({name}))::double precision",
        "mean": f"avg({exact})",
    }
    listed = ", ".join(f"{item} AS {column}" for column, item in items.items())
    with connection.snapshot():
        (batch,) = connection.scan(
            f"SELECT {listed} FROM ({select}\n) AS q", [(column, "double") for column in items]
        )
    error, span, mean = (float(batch[column][0]) for column in items)
    if span > 0 and error > span / (4 * ROUGH):
        common = f"{mean:.0f}" if abs(mean) >= 1e6 else f"{mean:.9g}"
        raise DataError(
            f"Label {label!r} varies by {span:.3g} about {mean:.10g}; it is kept as float32, which "
            f"rounds it by up to {error:.3g}.",
            hint=f"Subtract in the query what all have in common: {name} - {common} AS {name}."
            if abs(mean) > span
            else f"Multiply it in the query: {name} / {span:.0e} AS {name}.",
        )


def _is_null(field: Field, engine: Engine) -> str:
    name = quote_name(field.name)
    if field.scanned != "reals":
        return f"{name} IS NULL"
    if engine == "duckdb":
        return f"{name} IS NULL OR len(list_filter({name}, lambda v: v IS NULL)) > 0"
    return f"{name} IS NULL OR EXISTS (SELECT FROM unnest({name}) AS u (v) WHERE v IS NULL)"


def _train_rows(shuffle: Shuffle, held_out: int) -> Iterator[np.ndarray]:
    """Yield the rows after the first `held_out`, as they were packed."""
    left = held_out
    for rows in shuffle.read(lambda _: None):
        if left < len(rows):
            yield rows[left:]
        left = max(0, left - len(rows))


def pack_slices(
    shuffle: Shuffle,
    packer: RowPacker,
    slices: Sequence[tuple[Role, int]],
    decoding: Decoding,
    counts: ClassCounts,
    file: IO[bytes],
) -> list[SealedPartition]:
    """Pack the shuffled rows into a file; return the slices by role and ordinal.

    The classes of train rows are counted in `counts`.
    """
    most = rows_per_block(packer.layout)
    row_counts = [[min(most, rows - at) for at in range(0, rows, most)] for _, rows in slices]
    pieces = cut(shuffle.read(packer.recode), chain.from_iterable(row_counts))
    partitions = []
    ordinals = {role: count() for role in ROLES}
    for (role, rows), block_counts in zip(slices, row_counts, strict=True):
        blocks = []
        for block_rows in block_counts:
            piece = next(pieces)
            if role == "train":
                for slot in packer.layout.labels:
                    counts.add(slot.field.name, view(piece.view("<u4"), slot))
            data = pack(piece, packer.layout, packer.texts)
            hashes = np.ascontiguousarray(packer.layout.hashes_of(piece).T).tobytes()
            blocks.append(_write_block(data, hashes, block_rows, file))
        partitions.append(
            SealedPartition(
                role=role,
                ordinal=next(ordinals[role]),
                row_count=rows,
                content_hash=partition_hash((block.digest for block in blocks), decoding),
                blocks=tuple(blocks),
            )
        )
    return sorted(partitions, key=lambda partition: (partition.role, partition.ordinal))


def _write_block(data: bytes, hashes: bytes, row_count: int, file: IO[bytes]) -> SealedBlock:
    offset = file.tell()
    file.write(data)
    file.write(hashes)
    return SealedBlock(
        row_count=row_count,
        digest=digest(data),
        offset=offset,
        byte_count=len(data),
        hash_bytes=len(hashes),
    )
