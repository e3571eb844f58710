"""Features of one partition, read out of the database or computed in one pass."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from time import perf_counter

from mmdb.data import node_cache
from mmdb.data.feature_files import pack_features, unpack_features, writing_features
from mmdb.db.connection import Connection
from mmdb.errors import FeatureCorrupt
from mmdb.store import stored_features
from mmdb.store.stored_features import FeatureUse, StoredFeature
from mmdb.train.features.prefix_groups import arguments_of, network_of, partition_key
from mmdb.train.ledger.ledger import CandidateRecord
from mmdb.train.values.feature_spec import READY, STORAGES, Wanted
from mmdb.train.values.jobs import Executor, MapPartition, MaterializeSpec
from mmdb.train.values.spec import CandidateSpec


@dataclass(slots=True)
class Spent:
    """What features took since it was last written down.

    Attributes:
        seconds: by run_id and feature_id.
        errors: of a storage, the largest and the mean, by feature_id.
    """

    seconds: dict[tuple[int, int], Counter[str]] = field(default_factory=dict)
    errors: dict[int, tuple[float, float]] = field(default_factory=dict)

    def note(self, run_id: int, feature_id: int, **seconds: float) -> None:
        """Add to compute_s, store_s or read_s of a run's features."""
        self.seconds.setdefault((run_id, feature_id), Counter()).update(seconds)

    def note_error(self, feature_id: int, largest: float, mean: float) -> None:
        """Keep the worst error of a storage."""
        before = self.errors.get(feature_id, (0.0, 0.0))
        self.errors[feature_id] = max(before[0], largest), max(before[1], mean)

    def write(self, connection: Connection) -> None:
        """Write it down, in the caller's transaction and always in the same order."""
        for (run_id, feature_id), seconds in sorted(self.seconds.items()):
            stored_features.add_seconds(connection, run_id, feature_id, **seconds)
        for feature_id, (largest, mean) in sorted(self.errors.items()):
            stored_features.note_error(connection, feature_id, largest, mean)


@dataclass(frozen=True, slots=True, kw_only=True)
class FeaturedPartition:
    """A partition whose features a candidate is to train on.

    Attributes:
        source: key of its rows in the node's cache.
    """

    candidate: CandidateRecord
    part_id: int
    source: bytes

    @property
    def run_id(self) -> int:
        """The candidate's run."""
        return int(self.candidate.row["run_id"])

    @property
    def key(self) -> bytes:
        """Key of the candidate's features in the node's cache."""
        row = self.candidate.row
        return partition_key(bytes(row["feature_key"]), row["feature_owner"], self.source)


class Producer:
    """Puts features of partitions into the node's cache, and some of them into the database."""

    def __init__(
        self,
        connection: Connection,
        executor: Executor,
        hold: Callable[[CandidateSpec, str], None],
    ) -> None:
        """Args: hold: has the executor hold the backbone of a candidate of the named run."""
        self._connection, self._executor, self._hold = connection, executor, hold
        self.spent = Spent()

    def make(self, part: FeaturedPartition, spec: CandidateSpec, *, stores: bool) -> None:
        """Read a partition's features, or compute those of all the run's prefixes at once.

        Args:
            spec: of the part's candidate.
            stores: whether this session may store them; else it computes the candidate's own alone.
        """
        uses = stored_features.find_uses(self._connection, part.run_id)
        run = [
            _as_used(one, uses)
            for one in stored_features.find_of_run(self._connection, part.run_id)
        ]
        (own,) = [one for one in run if one.feature_id == part.candidate.row["feature_id"]]
        if node_cache.holds(part.key) or not self._read(part, own):
            alike = _alike(part.candidate, run, own) if stores else [_own(part.candidate, own)]
            self._compute(part, spec, alike, uses if stores else {})

    def _read(self, part: FeaturedPartition, feature: StoredFeature) -> bool:
        """Decode stored features into the cache; return whether there are any."""
        number, part_id = feature.feature_id, part.part_id
        if stored_features.find_part(self._connection, number, part_id) is None:
            return False
        begun = perf_counter()
        try:
            with writing_features(_key(feature, part.source), part.source, feature.shape) as writer:
                for block in stored_features.read_blocks(self._connection, number, part_id):
                    writer.add(unpack_features(block, feature.shape, feature.storage))
        except ValueError as error:
            raise FeatureCorrupt(f"Features {number} of partition {part_id}: {error}") from error
        self.spent.note(part.run_id, number, read_s=perf_counter() - begun)
        return True

    def _compute(
        self,
        part: FeaturedPartition,
        spec: CandidateSpec,
        alike: Sequence[StoredFeature],
        uses: Mapping[int, FeatureUse],
    ) -> None:
        """Compute a partition's features in one pass, and store those that are to be stored.

        Args:
            alike: features that come out of the candidate's network.
            uses: how the run gets them; none where nothing is to be stored.
        """
        stored = stored_features.find_parts(self._connection, [one.feature_id for one in alike])
        choices = {feature_id: use.choice for feature_id, use in uses.items()}
        wanted: dict[str, StoredFeature] = {}
        there: list[StoredFeature] = []
        for one in alike:
            name, choice = _key(one, part.source), choices.get(one.feature_id, "memory")
            is_stored, is_cached = part.part_id in stored[one.feature_id], node_cache.holds(name)
            # What is to be stored is computed now: nobody knows what became of files in a cache.
            if choice in READY and not is_stored and (choice == "stored" or not is_cached):
                wanted[name.hex()] = one
            elif (is_cached or is_stored) and one.storage == STORAGES[0] and one.pool == "none":
                there.append(one)
        if wanted:
            self._materialize(part, spec, there, wanted)
        for made, one in wanted.items():
            if choices.get(one.feature_id) == "stored":
                self._store(part, one, bytes.fromhex(made))

    def _materialize(
        self,
        part: FeaturedPartition,
        spec: CandidateSpec,
        there: Sequence[StoredFeature],
        wanted: Mapping[str, StoredFeature],
    ) -> None:
        self._hold(spec, part.candidate.row["run"])
        source, cut = self._source(part, there, wanted.values())
        self._executor.compute(MapPartition(source))
        asked = MaterializeSpec(
            candidate=spec,
            source=source,
            source_cut=cut,
            wanted=tuple(
                Wanted(cut=one.layer, pool=one.pool, storage=one.storage, key=name)
                for name, one in wanted.items()
            ),
        )
        done, _ = self._executor.compute(asked)
        self.spent.note(part.run_id, part.candidate.row["feature_id"], compute_s=done.seconds)
        for made, one in wanted.items():
            if one.storage != STORAGES[0]:
                self.spent.note_error(one.feature_id, done.max_error[made], done.mean_error[made])

    def _source(
        self,
        part: FeaturedPartition,
        there: Sequence[StoredFeature],
        wanted: Iterable[StoredFeature],
    ) -> tuple[str, str | None]:
        """Return the key of what the pass starts from, and the cut that it is of."""
        first = min(one.depth for one in wanted)
        before = [one for one in there if one.depth < first]
        if before:
            nearest = max(before, key=lambda one: one.depth)
            name = _key(nearest, part.source)
            if node_cache.holds(name) or self._read(part, nearest):
                return name.hex(), nearest.layer
        return part.source.hex(), None

    def _store(self, part: FeaturedPartition, feature: StoredFeature, key: bytes) -> None:
        begun = perf_counter()
        decoded = node_cache.map(key).input_arrays[0]
        blocks = list(pack_features(decoded, feature.storage))
        stored_features.add_blocks(self._connection, feature.feature_id, part.part_id, blocks)
        self.spent.note(part.run_id, feature.feature_id, store_s=perf_counter() - begun)


def _alike(
    candidate: CandidateRecord, run: Sequence[StoredFeature], own: StoredFeature
) -> list[StoredFeature]:
    """Return the features of a run that come out of the same network as a candidate's."""
    row = candidate.row
    network = network_of(row, arguments_of(json.loads(row["config"])), own.model_id)
    if own.network_hash != network:  # found in another network, whose layers begin alike
        return [_own(candidate, own)]
    return [one for one in run if one.network_hash == network]


def _as_used(feature: StoredFeature, uses: Mapping[int, FeatureUse]) -> StoredFeature:
    """Return features as a run has found them: in its own network, of its own backbone."""
    use = uses[feature.feature_id]
    return replace(
        feature,
        layer=use.layer,
        network_hash=use.network_hash,
        depth=use.depth,
        backbone=use.backbone,
        model_id=use.model_id,
    )


def _own(candidate: CandidateRecord, feature: StoredFeature) -> StoredFeature:
    """Return a candidate's features with the cut in its own network."""
    return replace(feature, layer=json.loads(candidate.row["config"])["freeze_up_to"])


def _key(feature: StoredFeature, source: bytes) -> bytes:
    return partition_key(feature.feature_key, feature.owner, source)
