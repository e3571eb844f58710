"""Features in the database: what they are, their blocks, and who uses them.

A partition's features are stored whole or not at all. What is stored may go at any time, by `gc`,
an eviction or the end of its dataset, and can be computed again; whoever needs it looks with
`find_parts` after `touch`, and computes what is missing. Features belong to the owner of the run
that computed them: with teams, none trains on what another team calls the features of its rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields

from mmdb.data.dataset import find_dataset
from mmdb.data.feature_files import PackedFeatures
from mmdb.data.pack import digest
from mmdb.db.connection import Connection, Row
from mmdb.db.queries import load
from mmdb.errors import FeatureCorrupt, InvalidOption, RunNotFound
from mmdb.messages import show

_Q = load("features")
#: Blocks that one query reads: some MB.
BLOCKS = 4
_HASHES = ("feature_key", "prefix_key", "architecture_hash", "tensors_hash", "network_hash")


@dataclass(frozen=True, slots=True, kw_only=True)
class FeatureSpec:
    """What features are, before they have a number.

    Attributes:
        feature_key: 32 bytes: over the dataset's content, the prefix and the storage.
        owner: as `owner_of` says it of the run.
        prefix_key: 32 bytes: over the frozen layers, the pooling and their tensors.
        layer: path of the cut.
        shape: of one row, pooled.
        backbone: "name@version" of the model that the tensors are of; None: drawn from `seed`.
        model_id: that model's number.
        network_hash: names the network that the layers were found in first.
        depth: place of the cut in the order in which that network runs.
        row_bytes: of one row as it is stored.
    """

    feature_key: bytes
    dataset_id: int
    owner: str
    prefix_key: bytes
    layer: str
    pool: str
    storage: str
    shape: tuple[int, ...]
    architecture_hash: bytes
    tensors_hash: bytes
    network_hash: bytes
    depth: int
    backbone: str | None
    model_id: int | None
    seed: int | None
    row_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredFeature(FeatureSpec):
    """Features that the database knows, whether or not any of them are stored."""

    feature_id: int
    max_error: float | None  # of the storage, as a share of the largest magnitude
    mean_error: float | None

    @classmethod
    def from_row(cls, row: Row) -> StoredFeature:
        """Return the features of a row of mmdb.feature."""
        same = {name: bytes(row[name]) for name in _HASHES}
        return cls(**(dict(row) | same | {"shape": tuple(row["shape"])}))


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredPart:
    """A partition whose features are stored."""

    row_count: int
    byte_count: int
    digest: bytes  # BLAKE3-256 over its blocks' digests


def owner_of(connection: Connection, run_id: int) -> str:
    """Return whose a run's features are; empty where there are no teams.

    Raises:
        RunNotFound
    """
    found = connection.rows(_Q.find_owner, run_id=run_id)
    if not found:
        raise RunNotFound(f"There is no run {run_id}.")
    return str(found[0]["owner"])


def find(
    connection: Connection, dataset_id: int, owner: str, keys: Iterable[bytes]
) -> dict[bytes, StoredFeature]:
    """Return those features of a dataset that are known already, by key."""
    wanted = list(keys)
    rows = connection.rows(_Q.find, dataset_id=dataset_id, owner=owner, feature_keys=wanted)
    return {bytes(row["feature_key"]): StoredFeature.from_row(row) for row in rows}


def find_of_run(connection: Connection, run_id: int) -> list[StoredFeature]:
    """Return the features that a run uses, by number."""
    return [StoredFeature.from_row(row) for row in connection.rows(_Q.find_of_run, run_id=run_id)]


def put(connection: Connection, features: Sequence[FeatureSpec]) -> dict[bytes, StoredFeature]:
    """Make features known, and return them by key; several sessions may do so at a time.

    Args:
        features: of one dataset and owner.
    """
    if not features:
        return {}
    # In the order of their keys: two sessions that add the same ones do not wait for each other.
    rows = [
        asdict(feature) | {"shape": list(feature.shape)}
        for feature in sorted(features, key=lambda feature: feature.feature_key)
    ]
    connection.run_many(_Q.add, rows)
    first = features[0]
    keys = [feature.feature_key for feature in features]
    return find(connection, first.dataset_id, first.owner, keys)


def touch(connection: Connection, feature_ids: Iterable[int]) -> None:
    """Note that a run begins to use features: `gc` leaves them for its grace period."""
    connection.run(_Q.touch, feature_ids=sorted(feature_ids))


def note_error(
    connection: Connection, feature_id: int, max_error: float, mean_error: float
) -> None:
    """Note the error of a partition's features, as shares of the largest magnitude."""
    connection.run(_Q.note_error, feature_id=feature_id, max_error=max_error, mean_error=mean_error)


def find_parts(
    connection: Connection, feature_ids: Iterable[int]
) -> dict[int, dict[int, StoredPart]]:
    """Return which partitions of some features are stored: feature_id -> part_id -> part."""
    wanted = sorted(feature_ids)
    found: dict[int, dict[int, StoredPart]] = {feature_id: {} for feature_id in wanted}
    for row in connection.rows(_Q.find_parts, feature_ids=wanted):
        found[row["feature_id"]][row["part_id"]] = _part(row)
    return found


def find_part(connection: Connection, feature_id: int, part_id: int) -> StoredPart | None:
    """Return what is stored of one partition; None: nothing."""
    found = connection.rows(_Q.find_part, feature_id=feature_id, part_id=part_id)
    return _part(found[0]) if found else None


def _part(row: Row) -> StoredPart:
    return StoredPart(
        row_count=row["row_count"], byte_count=row["byte_count"], digest=bytes(row["digest"])
    )


def add_blocks(
    connection: Connection, feature_id: int, part_id: int, blocks: Sequence[PackedFeatures]
) -> int:
    """Store a partition's features, and return the bytes; 0 where another session has done so.

    Args:
        blocks: all of them, with ordinals 0, 1, ...
    """
    size = sum(len(block.data) for block in blocks)
    with connection.transaction():
        added = connection.rows(
            _Q.add_part,
            feature_id=feature_id,
            part_id=part_id,
            row_count=sum(block.row_count for block in blocks),
            byte_count=size,
            blocks=len(blocks),
            digest=_whole(block.digest for block in blocks),
        )
        if not added:
            return 0
        # Blocks that nothing names would be in the way for good.
        connection.run(_Q.delete_part_blocks, feature_id=feature_id, part_id=part_id)
        connection.append(
            _Q.add_block,
            (
                (feature_id, part_id, block.ordinal, block.row_count, block.digest, block.data)
                for block in blocks
            ),
        )
    return size


def read_blocks(connection: Connection, feature_id: int, part_id: int) -> Iterator[PackedFeatures]:
    """Yield the blocks of a partition's features in order, read a few at a time; none: not stored.

    Raises:
        FeatureCorrupt: a block is missing or does not match its digest.
    """
    found = connection.rows(_Q.find_part, feature_id=feature_id, part_id=part_id)
    if not found:
        return
    (part,) = found
    digests, low = [], 0
    while low < part["blocks"]:
        given = {"feature_id": feature_id, "part_id": part_id, "low": low, "high": low + BLOCKS}
        for row in connection.rows(_Q.read_blocks, **given):
            data, expected = bytes(row["data"]), bytes(row["digest"])
            if digest(data) != expected:
                _refuse(feature_id, part_id, f"block {row['ordinal']} has changed")
            digests.append(expected)
            yield PackedFeatures(
                ordinal=row["ordinal"], row_count=row["row_count"], digest=expected, data=data
            )
        low += BLOCKS
    if _whole(digests) != bytes(part["digest"]):
        _refuse(feature_id, part_id, "blocks are missing")


def _refuse(feature_id: int, part_id: int, reason: str) -> None:
    raise FeatureCorrupt(f"Features {feature_id} of partition {part_id}: {reason}.")


def _whole(digests: Iterable[bytes]) -> bytes:
    return digest(b"".join(digests))


def _lock(connection: Connection, feature_ids: Sequence[int]) -> None:
    if connection.engine == "postgres":  # nobody else writes to a DuckDB file
        connection.rows(_Q.lock, feature_ids=feature_ids)


def evict(connection: Connection, feature_ids: Iterable[int]) -> int:
    """Delete the blocks of features and return their bytes; what the features were stays known."""
    wanted = sorted(feature_ids)
    with connection.transaction():
        _lock(connection, wanted)
        rows = connection.rows(_Q.find_parts, feature_ids=wanted)
        connection.run(_Q.delete_blocks, feature_ids=wanted)
        connection.run(_Q.delete_parts, feature_ids=wanted)
    return sum(int(row["byte_count"]) for row in rows)


def drop_features(connection: Connection, dataset: str, layer: str | None = None) -> int:
    """Delete the blocks of a dataset's features and return their bytes.

    Args:
        layer: the path of the cut; None: all of them.
    Raises:
        DatasetNotFound
        InvalidOption: nothing was ever frozen up to that layer.
    """
    dataset_id = find_dataset(connection, dataset).dataset_id
    known = {row["layer"] for row in connection.rows(_Q.find_layers, dataset_id=dataset_id)}
    if layer is not None and layer not in known:
        raise InvalidOption(
            f"No features of dataset {dataset!r} are of the layer {show(layer)}.",
            hint=f"There are: {', '.join(sorted(known)) or 'none'}.",
        )
    rows = connection.rows(_Q.find_known, dataset_id=dataset_id)
    return evict(connection, [row["feature_id"] for row in rows if layer in (None, row["layer"])])


@dataclass(frozen=True, slots=True, kw_only=True)
class FeatureUse:
    """How a run gets features.

    Attributes:
        choice: stored, memory, recomputed, streamed or whole.
        reason: one sentence.
        candidates: that train on them.
        uses: hops that are to read a partition of them.
        byte_count: that they take where they are kept; 0 where they are not.
        saved_s: seconds that sharing them is to save.
        planned_s: seconds of all workers that it is to take to compute, write and read them.
        layer: path of the cut in the run's network.
        network_hash: names that network with its tensors.
        depth: place of the cut in the order in which that network runs.
        backbone: "name@version" of the model whose layers the run freezes; None: its seed's.
        model_id: that model's number.
    """

    feature_id: int
    choice: str
    reason: str
    candidates: int
    uses: int
    byte_count: int
    saved_s: float
    planned_s: float
    layer: str
    network_hash: bytes
    depth: int
    backbone: str | None
    model_id: int | None


def put_uses(connection: Connection, run_id: int, uses: Iterable[FeatureUse]) -> None:
    """Note how a run gets its features, in place of what an earlier start of it noted."""
    connection.run_many(_Q.put_use, [{"run_id": run_id, **asdict(use)} for use in uses])


def find_uses(connection: Connection, run_id: int) -> dict[int, FeatureUse]:
    """Return how a run gets its features, by feature."""
    names = [one.name for one in fields(FeatureUse)]
    rows = connection.rows(_Q.find_uses, run_id=run_id)
    return {
        row["feature_id"]: FeatureUse(
            **({name: row[name] for name in names} | {"network_hash": bytes(row["network_hash"])})
        )
        for row in rows
    }


def add_seconds(
    connection: Connection,
    run_id: int,
    feature_id: int,
    *,
    compute_s: float = 0.0,
    store_s: float = 0.0,
    read_s: float = 0.0,
) -> None:
    """Add to what a run's features have cost."""
    connection.run(
        _Q.add_seconds,
        run_id=run_id,
        feature_id=feature_id,
        compute_s=compute_s,
        store_s=store_s,
        read_s=read_s,
    )


def put_candidates(connection: Connection, run_id: int, features: Mapping[int, int]) -> None:
    """Note the features that candidates train on: candidate_id -> feature_id."""
    rows = [
        {"candidate_id": candidate_id, "run_id": run_id, "feature_id": feature_id}
        for candidate_id, feature_id in features.items()
    ]
    connection.run_many(_Q.put_candidate, rows)


def find_candidates(connection: Connection, run_id: int) -> dict[int, int]:
    """Return the features that a run's candidates train on: candidate_id -> feature_id."""
    rows = connection.rows(_Q.find_candidates, run_id=run_id)
    return {row["candidate_id"]: row["feature_id"] for row in rows}
