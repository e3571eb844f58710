"""Datasets registered and dropped: a query's rows into the database, spread over its nodes."""

from __future__ import annotations

import json
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from mmdb.arguments import check_flag, is_number, is_whole, unfit
from mmdb.data import functions
from mmdb.data.column_layout import SPLIT, Request, cast_select
from mmdb.data.forms import add_columns, decoding_row
from mmdb.data.ingest import Sealed, SealedPartition, read_sealed, seal
from mmdb.data.keys import with_keys
from mmdb.data.names import check_name
from mmdb.data.options import Options
from mmdb.data.packing import ordered_select, split_field
from mmdb.data.parts import Columns, steps_of, with_parts
from mmdb.data.pictures import with_pictures
from mmdb.data.query import SourceColumn, analyse
from mmdb.data.query.names import fold
from mmdb.data.roles import plan_request
from mmdb.data.split import Split, parse_split
from mmdb.data.tokenize import Encoder
from mmdb.db.citus import find_cluster, places
from mmdb.db.connection import Connection, Kind
from mmdb.db.owners import acting_as, check_bytes, require_owner
from mmdb.db.queries import load, quote_name
from mmdb.errors import AlreadyExists, DatasetInUse, DatasetNotFound, InvalidOption
from mmdb.messages import show

_Q = load("datasets")
#: Numbers drawn for each partition at a time: enough for each to have a shard of its own.
DRAWN = 8


@dataclass(frozen=True, slots=True)
class Number:
    """A partition number that is free, and where its rows would lie."""

    part_id: int
    node: str
    shard: int


def draw_numbers(
    connection: Connection, roles: Sequence[str], sources: Sequence[int] = ()
) -> Sequence[int | None]:
    """Return a number for each partition of a new dataset; None where the tables lie on one server.

    They are those that `choose` takes, out of numbers that nobody else draws.

    Args:
        roles: of the partitions.
        sources: of the first partitions, the one whose blocks each reads.
    """
    none = [None] * len(roles)
    if find_cluster(connection) is None:
        return none
    nodes = {str(row["node"]) for row in connection.rows(load("nodes").find_block_nodes)}
    if not nodes:
        return none

    def draw() -> list[Number]:
        rows = connection.rows(load("nodes").draw_part_ids, numbers=DRAWN * len(roles))
        return [Number(row["part_id"], row["node"], row["shard"]) for row in rows]

    # The first numbers are spread evenly by themselves: they are for train.
    order = sorted(range(len(roles)), key=lambda place: roles[place] != "train")
    found = places(connection, sources) if sources else {}
    near = [min(found.get(s, [""])) for s in sources] + [""] * (len(roles) - len(sources))
    numbers = choose(len(roles), nodes, draw, [near[place] for place in order])
    number_of = dict(zip(order, numbers, strict=True))
    return [number_of[place] for place in range(len(roles))]


def choose(
    partitions: int,
    nodes: set[str],
    draw: Callable[[], Sequence[Number]],
    near: Sequence[str] = (),
) -> list[int]:
    """Return numbers that spread partitions evenly over nodes, and over the shards of each.

    So do the first of them, however many.

    Args:
        nodes: those that hold shards; every one of them comes up among numbers sooner or later.
        draw: returns numbers that were not drawn before, at least one.
        near: the node that each partition had better lie on, among equals.
    """
    free: list[Number] = []
    on_node: Counter[str] = Counter()
    on_shard: Counter[int] = Counter()
    chosen: list[int] = []
    while len(chosen) < partitions:
        fewest = min(on_node[node] for node in nodes)
        wanted = near[len(chosen)] if near else ""
        is_free = wanted in nodes and on_node[wanted] == fewest
        fitting = [
            number
            for number in free
            if (number.node == wanted if is_free else on_node[number.node] == fewest)
        ]
        if not fitting:
            free += draw()
            continue
        # Of equals the first that was drawn: small datasets then do not all begin on one node.
        best = min(fitting, key=lambda number: on_shard[number.shard])
        free.remove(best)
        on_node[best.node] += 1
        on_shard[best.shard] += 1
        chosen.append(best.part_id)
    return chosen


_FEATURES = load("features")
Digest = bytes  # `bytes` is also the name of a field


@dataclass(frozen=True, slots=True, kw_only=True)
class DatasetSummary:
    """A dataset that create_dataset has made."""

    dataset_id: int
    name: str
    rows: int
    partitions: int
    bytes: int
    content_hash: Digest


def create_dataset(
    connection: Connection,
    name: str,
    query: str,
    *,
    label: str = "y",
    partitions: int = 4,
    validation: float = 0.2,
    seed: int = 0,
    options: Mapping[str, object] | None = None,
    say: Callable[[str], None] = lambda _: None,
) -> DatasetSummary:
    """Read a query once and store its rows as shuffled partitions.

    The same multiset of rows, seed and options give the same content on every engine, whatever
    order the query returns its rows in.

    Args:
        label: the output column that models predict; every other one is a feature, but for the
            option `labels`.
        partitions: train slices.
        validation: share of the rows held out, 0 or more and less than 1.
        options: see `Options`.
        say: is told what the caller may not expect.
    Raises:
        InvalidName, InvalidOption, AlreadyExists, QueryError, DataError
        FunctionNotFound, FunctionFailed: a text column's tokenizer cannot be used.
        LimitReached: its owner may not keep so many bytes.
    """
    _check_arguments(name, partitions, validation, seed)
    check_free(connection, name)
    parsed = Options.parse(options)
    prepared = prepare(connection, query, label, parsed, say)
    split = parse_split(
        parsed.split, partitions=partitions, validation=float(validation), seed=seed
    )
    row = {"name": name, "query_text": query, "label": label, "version": 1, "origin_id": None}
    row |= {"options": json.dumps(dict(options or {}), ensure_ascii=False), "changes": None}
    return register(connection, prepared, split, row, say, lambda: check_free(connection, name))


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedQuery:
    """A query as it is read: each part of its columns with its role."""

    select: str
    request: Request
    encoders: Mapping[str, Encoder]
    sources: list[SourceColumn]


def prepare(
    connection: Connection,
    query: str,
    label: str,
    options: Options,
    say: Callable[[str], None],
    keys: Sequence[str] | None = None,
) -> PreparedQuery:
    """Return how a query is read: each part of its columns with its role, and what it reads.

    Args:
        keys: columns that are known to be keys; None: as the options say, or a unique id.
    """
    tokenizers = functions.with_targets(connection, options.tokenize, label)
    analysis = analyse(query, connection.engine, connection)
    with connection.snapshot():
        wanted = dict.fromkeys([label, *sorted(options.named)])
        written = _spelled(connection, analysis.select, wanted)
        select, columns = with_parts(connection, analysis.select, written, wanted)
    if keys is None:
        options = with_keys(connection, query, select, columns, label, options, say)
    else:
        options = replace(options, roles={**options.roles, **dict.fromkeys(keys, "key")})
    options = with_pictures(connection, select, columns, options)
    options = replace(options, tokenize=tokenizers)
    return PreparedQuery(
        select=select,
        request=plan_request(columns, label, options, connection.engine),
        encoders=functions.encoders(connection, tokenizers),
        sources=[
            replace(source, output=part)
            for source in analysis.sources_of([column for column, _ in written])
            for part in (
                [name for name, _ in columns if steps_of(name, source.output or "")]
                or (source.output,)
            )
        ],
    )


def _spelled(connection: Connection, select: str, wanted: Iterable[str]) -> Columns:
    """Return a query's columns; DuckDB tells no cases apart: a name is as the caller spells it."""
    columns, folded = connection.columns(select), {}
    if connection.engine == "duckdb":
        folded = {fold(name, "duckdb"): name for name in wanted}
        folded |= {fold(name, "duckdb"): name for name, _ in columns if name in wanted}
    return [(folded.get(fold(name, "duckdb"), name), kind) for name, kind in columns]


def register(
    connection: Connection,
    prepared: PreparedQuery,
    split: Split,
    row: Mapping[str, object],
    say: Callable[[str], None],
    check: Callable[[], object],
    owner: str | None = None,
) -> DatasetSummary:
    """Read a query's rows, fit their transforms, and keep them as a dataset.

    Args:
        row: what mmdb.dataset says of it besides what the rows say.
        check: raises where the dataset may not be added any more; called as it is added.
        owner: see `add_dataset`.
    """
    if split.by == "time":
        split = _timed(connection, prepared.select, prepared.request, split)
    if prepared.request.packs:
        prepared, split = _packed(prepared, split)
    with tempfile.TemporaryDirectory(prefix="mmdb-dataset-") as directory:
        sealed = seal(
            connection,
            prepared.select,
            prepared.request,
            split,
            Path(directory),
            prepared.encoders,
        )
        with connection.transaction():
            check()
            values = {**_dataset_row(sealed, split), **row}
            dataset_id = add_dataset(connection, values, owner)
            add_columns(connection, dataset_id, sealed.decoding, prepared.sources)
            numbers = draw_numbers(connection, [one.role for one in sealed.partitions])
            for partition, drawn in zip(sealed.partitions, numbers, strict=True):
                add_partition(connection, dataset_id, partition, sealed.path, drawn)
            check_bytes(connection)
    for column, rows in sealed.skipped.items():
        say(f"{rows} rows are left out: column {column!r} holds no picture that can be decoded.")
    return DatasetSummary(
        dataset_id=dataset_id,
        name=str(row["name"]),
        rows=sealed.row_count,
        partitions=split.partitions,
        bytes=sealed.byte_count,
        content_hash=sealed.content_hash,
    )


def _packed(prepared: PreparedQuery, split: Split) -> tuple[PreparedQuery, Split]:
    """Return what reads texts in the order in which they fill rows, each with its slice.

    Raises:
        InvalidOption: the split is none by chance.
    """
    if split.by != "random":
        raise InvalidOption(
            f"Texts are packed, and split by {split.by}.",
            hint="Split them by chance, or leave pack out.",
        )
    request = prepared.request
    select = ordered_select(prepared.select, request.label.name, split)
    request = replace(request, split=split_field(), keys=())
    split = replace(split, by="column", column=SPLIT)
    return replace(prepared, select=select, request=request), split


def add_dataset(connection: Connection, row: Mapping[str, object], owner: str | None = None) -> int:
    """Add a row of mmdb.dataset; return its number.

    Args:
        owner: whose it is, as a version is the dataset's owner's; None: the caller's.
    Raises:
        RightsMissing: the caller may not act for that role.
    """
    with acting_as(connection, owner, or_refuse=True):
        return int(connection.rows(_Q.add_dataset, **row)[0]["dataset_id"])


def _timed(connection: Connection, select: str, request: Request, split: Split) -> Split:
    """Return a split by time with the times from which the last rows are held out."""
    assert request.split is not None
    name = quote_name(request.split.output)
    times = f"({cast_select((request.split,), request.engine, select)}) AS q"

    def read(query: str, kind: Kind) -> float:
        with connection.snapshot():
            (batch,) = connection.scan(query, [("found", kind)])
        return float(batch["found"][0])

    def at(place: int) -> float:
        ranks = f"row_number() OVER (ORDER BY {name}) AS k"
        ranked = f"(SELECT {name} AS found, {ranks} FROM {times}) AS r"
        return read(f"SELECT found FROM {ranked} WHERE k = {place}", "number")

    def until(time: float) -> int:
        known = f"CAST('{time!r}' AS double precision)"
        counted = f"SELECT count(*)::bigint AS found FROM {times} WHERE {name} <= {known}"
        return int(read(counted, "bigint"))

    count = int(read(f"SELECT count({name})::bigint AS found FROM {times}", "bigint"))
    return split.with_times(count, split.wanted(count), at, until)


def _check_arguments(name: object, partitions: object, validation: object, seed: object) -> None:
    check_name(name)
    if not is_whole(partitions, 1, 2**31 - 1):
        raise unfit("partitions", partitions, "It is a whole number from 1; 4 if left out.")
    if not is_number(validation, 0) or validation >= 1:
        raise InvalidOption(
            f"validation is {show(validation)}.",
            hint="It is the share of the rows held out: a number from 0 to below 1.",
        )
    if not is_whole(seed, -(2**63), 2**63 - 1):
        raise unfit("seed", seed, "It is a whole number of 64 bits.")


def check_free(connection: Connection, name: str) -> None:
    """Refuse the name of a dataset that is in use.

    Raises:
        AlreadyExists
    """
    found = connection.rows(_Q.find_dataset, name=name, is_first=False)
    if found and not found[0]["dropped"]:
        raise AlreadyExists(f"There is a dataset {name!r} already.")


def _dataset_row(sealed: Sealed, split: Split) -> dict[str, object]:
    return {
        "seed": split.seed,
        "partitions": split.partitions,
        "validation": float(split.validation),
        "row_count": sealed.row_count,
        "byte_count": sealed.byte_count,
        "content_hash": sealed.content_hash,
        "class_counts": json.dumps(sealed.class_counts, ensure_ascii=False),
        **decoding_row(sealed.decoding),
    }


def add_partition(
    connection: Connection,
    dataset_id: int,
    partition: SealedPartition,
    path: Path,
    drawn: int | None = None,
) -> int:
    """Add a partition with its blocks, by the number drawn for it if there is one.

    Args:
        path: of the file that the blocks are in.
    """
    row = {
        "dataset_id": dataset_id,
        "ordinal": partition.ordinal,
        "role": partition.role,
        "row_count": partition.row_count,
        "byte_count": partition.byte_count,
        "content_hash": partition.content_hash,
    }
    part_id = describe_partition(connection, row, drawn)
    connection.run_many(_Q.add_block, block_rows(part_id, partition, path))
    return part_id


def describe_partition(connection: Connection, row: Mapping[str, object], drawn: int | None) -> int:
    """Add a partition's row, by the number drawn for it if there is one; return its number."""
    if drawn is None:
        return int(connection.rows(_Q.add_partition, **row)[0]["part_id"])
    connection.run(_Q.add_numbered_partition, part_id=drawn, **row)
    return drawn


def block_rows(part_id: int, partition: SealedPartition, path: Path) -> Iterator[dict[str, object]]:
    """Yield rows of mmdb.block."""
    for ordinal, block in enumerate(partition.blocks):
        data, hashes = read_sealed(path, block)
        yield {
            "part_id": part_id,
            "ordinal": ordinal,
            "row_count": block.row_count,
            "digest": block.digest,
            "data": data,
            "row_hashes": hashes,
        }


def drop_dataset(connection: Connection, name: str, *, force: bool = False) -> int:
    """Delete a dataset's blocks and features and keep its description; return the bytes freed.

    Its versions go with it, which share blocks, and samples of them.
    With teams, features that another team has computed of a shared dataset go with the next `gc`.

    Args:
        force: drop it although models or runs need it. A model that is kept as a recipe on it
            cannot be made again then, which is an error of its own (NotReplayable).
    Raises:
        DatasetNotFound: there is none, or it is dropped already.
        DatasetInUse: `force` is not given, and a model's recipe or a run needs it.
        InvalidOption: `force` is neither true nor false, or the name is that of a later version.
        RightsMissing: it is another role's.
    """
    check_flag(force, "force")
    with connection.transaction():
        found = connection.rows(_Q.find_dataset, name=name, is_first=False)
        if not found or found[0]["dropped"]:
            raise DatasetNotFound(f"There is no dataset {show(name)}.")
        dataset_id = found[0]["dataset_id"]
        require_owner(connection, "dataset", name, dataset_id)
        if found[0]["version"] > 1 and found[0]["name"] == name:
            raise InvalidOption(
                f"{name!r} is one version of a dataset.",
                hint="Pass the dataset's name: its versions share blocks, and go together.",
            )
        origin_id = found[0]["origin_id"] or dataset_id
        is_sample = found[0]["version"] == 0  # nothing reads its blocks: it has none
        family = found if is_sample else connection.rows(_Q.find_family, origin_id=origin_id)
        freed = 0
        for one in family:
            if not force:
                _check_unused(connection, one["name"], one["dataset_id"])
            freed += one["byte_count"] + _delete_features(connection, one["dataset_id"])
        for one in family:
            connection.run(_Q.delete_shared_blocks, dataset_id=one["dataset_id"])
            connection.run(_Q.delete_blocks, dataset_id=one["dataset_id"])
            connection.run(_Q.mark_dropped, dataset_id=one["dataset_id"])
    return int(freed)


def _delete_features(connection: Connection, dataset_id: int) -> int:
    """Delete the blocks of a dataset's features; return their bytes."""
    known = connection.rows(_FEATURES.find_known, dataset_id=dataset_id)
    if not known:
        return 0
    feature_ids = [row["feature_id"] for row in known]
    if connection.engine == "postgres":  # nobody else writes to a DuckDB file
        connection.rows(_FEATURES.lock, feature_ids=feature_ids)
    parts = connection.rows(_FEATURES.find_parts, feature_ids=feature_ids)
    connection.run(_FEATURES.delete_blocks, feature_ids=feature_ids)
    connection.run(_FEATURES.delete_parts, feature_ids=feature_ids)
    return sum(row["byte_count"] for row in parts)


def _check_unused(connection: Connection, name: str, dataset_id: int) -> None:
    recipes = connection.rows(_Q.find_recipe_use, dataset_id=dataset_id)
    if recipes:
        first = f"{recipes[0]['name']}@{recipes[0]['version']}"
        more = f" and {len(recipes) - 1} more" if len(recipes) > 1 else ""
        raise DatasetInUse(
            f"Dataset {name!r} is needed to make model {first}{more} again.",
            hint="Save those models by their weights first, or pass force => true to give them up.",
        )
    uses = connection.rows(_Q.find_use, dataset_id=dataset_id)
    if uses:
        raise DatasetInUse(f"Dataset {name!r} is used by run {uses[0]['name']!r}.")
