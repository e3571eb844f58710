"""Features on their way to hops: out of the cache, out of the database, or computed now."""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import replace
from time import perf_counter, sleep

from mmdb.data import node_cache
from mmdb.data.feature_codec import FeatureBlock, pack_features, unpack_features
from mmdb.data.feature_files import writing_features
from mmdb.data.functions import find_functions
from mmdb.data.reader import ensure_partition
from mmdb.db.connection import Connection, Row
from mmdb.db.owners import acting_for
from mmdb.db.queries import load
from mmdb.errors import BackboneMissing, FeatureCorrupt, WriteConflict
from mmdb.store import feature_uses, features
from mmdb.store.feature_uses import Use
from mmdb.store.features import Block, Feature
from mmdb.train.dispatch.ledger import Candidate, Ledger
from mmdb.train.dispatch.performer import Performer
from mmdb.train.features.keys import partition_key
from mmdb.train.features.settle import Settler, arguments_of, network_of
from mmdb.train.features.spec import READY, STORAGES, MaterializeSpec, Wanted
from mmdb.train.spec import CandidateSpec, HopSpec, HopStep

#: Seconds between two tries to get a lock that another session has.
_WAIT_S = 0.05
#: DuckDB has no such locks: one thread at a time settles and computes.
_working = threading.RLock()


class Features:
    """Brings the features of frozen layers to the hops of one session."""

    def __init__(self, connection: Connection, performer: Performer, ledger: Ledger) -> None:
        self._connection, self._performer, self._ledger = connection, performer, ledger
        self._stored: set[tuple[int, int]] = set()  # feature_id and part_id seen in the database
        self._seconds: dict[tuple[int, int], Counter[str]] = {}  # by run_id and feature_id
        self._errors: dict[int, tuple[float, float]] = {}  # largest and mean, by feature_id
        self._has_settled = False  # in the statement under way

    # -- what a candidate trains on ---------------------------------------------------

    def settle(self, candidate_id: int) -> Candidate:
        """Return a candidate once it is settled how features come to it.

        Raises:
            BackboneMissing, DatasetDropped, ArchitectureError
        """
        candidate = self._ledger.candidate(candidate_id)
        if candidate.row["feature_id"] is not None:
            return candidate
        with self._alone(), self._connection.transaction():
            self._lock(-2 * int(candidate.row["run_id"]))
            candidate = self._ledger.read(candidate_id)
            if candidate.row["feature_id"] is None:
                self._ledger.check_alive(candidate)
                settler = Settler(self._connection, self._performer, self.spec, self._hold)
                with acting_for(self._connection, candidate_id):
                    settler.settle(candidate.row)
                self._has_settled = True
        return self._ledger.candidate(candidate_id)

    def spec(self, row: Row) -> CandidateSpec:
        """Return what a performer needs of a candidate, a row of `find_candidate`."""
        rows = self._connection.rows(load("catalog").find_factories)
        factories = {f["name"]: f["target"] for f in rows}
        return CandidateSpec.from_row(row, factories, find_functions(self._connection))

    # -- the rows of a hop ------------------------------------------------------------

    def prepare(self, candidate_id: int, part_id: int) -> None:
        """Have the features of a partition in the node's cache, in a transaction of its own.

        Raises:
            as `settle` and `bring`
        """
        candidate = self.settle(candidate_id)
        if candidate.row["feature_choice"] not in READY:
            return
        source = bytes(candidate.part(part_id)["content_hash"])
        if self._is_mapped(candidate, part_id, _own_key(candidate, source)):
            return
        spec = self.spec(candidate.row)
        if spec.frozen is None or spec.frozen.choice not in READY:
            return  # of those that share it cannot be one
        with self._alone(), self._connection.transaction():
            self._ledger.check_alive(candidate)
            self._ready(candidate, spec, part_id, source, waits=True)

    def finish(self) -> None:
        """Write down what features took, once a hop is done.

        At the end and in one order, so that sessions which compute features of one run do not wait
        for each other's hops. What was settled in this statement may be rolled back with it.
        """
        seconds, self._seconds = self._seconds, {}
        errors, self._errors = self._errors, {}
        if seconds or errors:
            with suppress(WriteConflict), self._alone(), self._connection.transaction():
                for (run_id, feature_id), spent in sorted(seconds.items()):
                    feature_uses.add_seconds(self._connection, run_id, feature_id, **spent)
                for feature_id, (largest, mean) in sorted(errors.items()):
                    features.note_error(self._connection, feature_id, largest, mean)
        if self._has_settled:
            self.forget()

    def forget(self) -> None:
        """Read again what a statement that may be rolled back has written."""
        self._has_settled = False
        self._stored.clear()
        self._ledger.forget()

    def bring(
        self, candidate: Candidate, spec: CandidateSpec, steps: Sequence[HopStep], state: str | None
    ) -> dict[str, str]:
        """Have the rows of some steps where the performer finds them.

        Args:
            state: hash of the state that is held or brought; None: the initial one.
        Returns:
            for each partition's key in hex that of the rows to train on.
        Raises:
            BackboneMissing, FeatureCorrupt, BlockCorrupt, DatasetDropped
        """
        from mmdb.train.features.tail import needs_backbone  # imports torch

        assert spec.frozen is not None
        is_ready = spec.frozen.choice in READY
        found = {}
        for step in {step.partition: step for step in steps}.values():
            source = bytes.fromhex(step.partition)
            if is_ready:
                place = (candidate, spec, step.part_id, source)
                found[step.partition] = self._ready(*place, waits=False)
            else:
                self._raw(step)
        if needs_backbone(spec, state):
            self._hold(spec, candidate.row["run"])
        return found

    def _raw(self, step: HopStep) -> None:
        if not self._performer.has_partition(step.partition):
            ensure_partition(self._connection, step.part_id, bytes.fromhex(step.partition))
            self._performer.map_partition(step.partition)

    def _ready(
        self,
        candidate: Candidate,
        spec: CandidateSpec,
        part_id: int,
        source: bytes,
        *,
        waits: bool,
    ) -> str:
        """Have the performer map a partition's features; return their key in hex.

        Args:
            waits: for another session that computes them. Within a hop none does, which has locks
                that the other may wait for: it computes them, too, and stores nothing.
        """
        key = _own_key(candidate, source)
        if not self._is_mapped(candidate, part_id, key):
            # For the labels; and whoever may not read the rows may not have their features.
            ensure_partition(self._connection, part_id, source)
            if not self._is_done(candidate, part_id, key):
                with self._alone():
                    stores = self._lock(-2 * int(part_id) - 1, waits=waits)
                    done = self._is_done(candidate, part_id, key) if stores else False
                    if not done and (stores or not node_cache.holds(key)):
                        self._make(candidate, spec, part_id, source, key, stores=stores)
            self._performer.map_partition(key.hex())
        return key.hex()

    def _is_mapped(self, candidate: Candidate, part_id: int, key: bytes) -> bool:
        """Return whether the performer has features, which are stored if they are to be."""
        row = candidate.row
        is_kept = row["feature_choice"] != "stored" or (row["feature_id"], part_id) in self._stored
        return is_kept and self._performer.has_partition(key.hex())

    def _is_done(self, candidate: Candidate, part_id: int, key: bytes) -> bool:
        """Return whether features are in the cache, and stored where they are to be."""
        if not node_cache.holds(key):
            return False
        row = candidate.row
        if row["feature_choice"] != "stored":
            return True
        if features.find_part(self._connection, row["feature_id"], part_id) is None:
            return False
        self._stored.add((row["feature_id"], part_id))
        return True

    def _make(
        self,
        candidate: Candidate,
        spec: CandidateSpec,
        part_id: int,
        source: bytes,
        key: bytes,
        *,
        stores: bool,
    ) -> None:
        """Read a partition's features, or compute those of all the run's prefixes at once."""
        run_id = candidate.row["run_id"]
        uses = feature_uses.find_uses(self._connection, run_id)
        run = [_as_used(one, uses) for one in features.find_of_run(self._connection, run_id)]
        (own,) = [one for one in run if one.feature_id == candidate.row["feature_id"]]
        if node_cache.holds(key) or not self._read(candidate, own, part_id, source, key):
            alike = self._alike(candidate, run, own) if stores else [_own(candidate, own)]
            self._compute(candidate, spec, part_id, source, alike, uses if stores else {})

    def _read(
        self, candidate: Candidate, feature: Feature, part_id: int, source: bytes, key: bytes
    ) -> bool:
        """Decode stored features into the cache; return whether there are any."""
        if features.find_part(self._connection, feature.feature_id, part_id) is None:
            return False
        begun = perf_counter()
        blocks = features.read_blocks(self._connection, feature.feature_id, part_id)
        try:
            with writing_features(key, source, feature.shape) as writer:
                for block in blocks:
                    given = FeatureBlock(
                        ordinal=block.ordinal,
                        row_count=block.row_count,
                        digest=block.digest,
                        data=block.data,
                    )
                    writer.add(unpack_features(given, feature.shape, feature.storage))
        except ValueError as error:
            raise FeatureCorrupt(
                f"Features {feature.feature_id} of partition {part_id}: {error}"
            ) from error
        self._note(candidate, feature.feature_id, read_s=perf_counter() - begun)
        return True

    def _compute(
        self,
        candidate: Candidate,
        spec: CandidateSpec,
        part_id: int,
        source: bytes,
        alike: Sequence[Feature],
        uses: Mapping[int, Use],
    ) -> None:
        """Compute a partition's features in one pass, and store those that are to be stored.

        Args:
            alike: features that come out of the candidate's network.
            uses: how the run gets them; none where nothing is to be stored.
        """
        stored = features.find_parts(self._connection, [one.feature_id for one in alike])
        choices = {feature_id: use.choice for feature_id, use in uses.items()}
        wanted: dict[str, Feature] = {}
        there: list[Feature] = []
        for one in alike:
            name, choice = _key(one, source), choices.get(one.feature_id, "memory")
            is_stored, is_cached = part_id in stored[one.feature_id], node_cache.holds(name)
            # What is to be stored is computed now: nobody knows what became of files in a cache.
            if choice in READY and not is_stored and (choice == "stored" or not is_cached):
                wanted[name.hex()] = one
            elif (is_cached or is_stored) and one.storage == STORAGES[0] and one.pool == "none":
                there.append(one)
        if not wanted:
            return
        self._hold(spec, candidate.row["run"])
        begin, cut = self._source(candidate, part_id, source, there, wanted.values())
        self._performer.map_partition(begin)
        asked = MaterializeSpec(
            candidate=spec,
            source=begin,
            source_cut=cut,
            wanted=tuple(
                Wanted(cut=one.layer, pool=one.pool, storage=one.storage, key=name)
                for name, one in wanted.items()
            ),
        )
        done = self._performer.materialize(asked)
        self._note(candidate, candidate.row["feature_id"], compute_s=done.seconds)
        for made, one in wanted.items():
            if one.storage != "float32":
                largest, mean = self._errors.get(one.feature_id, (0.0, 0.0))
                worst = max(largest, done.max_error[made]), max(mean, done.mean_error[made])
                self._errors[one.feature_id] = worst
            if choices.get(one.feature_id) == "stored":
                self._store(candidate, one, part_id, bytes.fromhex(made))

    def _alike(self, candidate: Candidate, run: Sequence[Feature], own: Feature) -> list[Feature]:
        """Return the features of a run that come out of the same network as a candidate's."""
        row = candidate.row
        network = network_of(row, arguments_of(json.loads(row["config"])), own.model_id)
        if own.network_hash != network:  # found in another network, whose layers begin alike
            return [_own(candidate, own)]
        return [one for one in run if one.network_hash == network]

    def _source(
        self,
        candidate: Candidate,
        part_id: int,
        source: bytes,
        there: Sequence[Feature],
        wanted: Iterable[Feature],
    ) -> tuple[str, str | None]:
        """Return the key of what the pass starts from, and the cut that it is of."""
        first = min(one.depth for one in wanted)
        before = [one for one in there if one.depth < first]
        if before:
            nearest = max(before, key=lambda one: one.depth)
            name = _key(nearest, source)
            if node_cache.holds(name) or self._read(candidate, nearest, part_id, source, name):
                return name.hex(), nearest.layer
        return source.hex(), None

    def _store(self, candidate: Candidate, feature: Feature, part_id: int, key: bytes) -> None:
        begun = perf_counter()
        decoded = node_cache.map(key).input_arrays[0]
        blocks = [
            Block(ordinal=b.ordinal, row_count=b.row_count, digest=b.digest, data=b.data)
            for b in pack_features(decoded, feature.storage)
        ]
        features.add_blocks(self._connection, feature.feature_id, part_id, blocks)
        self._note(candidate, feature.feature_id, store_s=perf_counter() - begun)

    def _note(self, candidate: Candidate, feature_id: int, **seconds: float) -> None:
        spent = self._seconds.setdefault((candidate.row["run_id"], feature_id), Counter())
        spent.update(seconds)

    # -- backbones ---------------------------------------------------------------------

    def _hold(self, spec: CandidateSpec, run: str) -> None:
        """Have the performer hold the model whose layers a candidate freezes.

        Raises:
            BackboneMissing
        """
        assert spec.frozen is not None
        name = spec.frozen.backbone
        if name is None or self._performer.has_backbone(name):
            return
        from mmdb.train.features.read import read_backbone  # imports torch

        try:
            tensors = read_backbone(self._connection, spec, follow=self._performer.follow)
        except BackboneMissing as error:
            error.message = f"Run {run!r}: {error.message}"
            raise
        self._performer.take_backbone(name, tensors)

    # -- one at a time ------------------------------------------------------------------

    def _lock(self, key: int, *, waits: bool = True) -> bool:
        """Take a lock that lasts until the transaction ends; return whether it could be had."""
        while not self._connection.try_lock("hop", key):
            if not waits:
                return False
            sleep(_WAIT_S)
        return True

    @contextmanager
    def _alone(self) -> Iterator[None]:
        with _working if self._connection.engine == "duckdb" else nullcontext():
            yield


def _own_key(candidate: Candidate, source: bytes) -> bytes:
    """Return the key of the features of a partition that a candidate trains on."""
    row = candidate.row
    return partition_key(bytes(row["feature_key"]), row["feature_owner"], source)


def _as_used(feature: Feature, uses: Mapping[int, Use]) -> Feature:
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


def _own(candidate: Candidate, feature: Feature) -> Feature:
    """Return a candidate's features with the cut in its own network."""
    return replace(feature, layer=json.loads(candidate.row["config"])["freeze_up_to"])


def _key(feature: Feature, source: bytes) -> bytes:
    return partition_key(feature.feature_key, feature.owner, source)


def on_features(spec: HopSpec, keys: Mapping[str, str]) -> HopSpec:
    """Return a hop whose steps visit the rows that their candidate trains on."""

    def moved(step: HopStep) -> HopStep:
        return replace(step, partition=keys.get(step.partition, step.partition))

    replays = tuple(
        replace(stage, steps=tuple(moved(step) for step in stage.steps)) for stage in spec.replays
    )
    return replace(spec, step=moved(spec.step), replays=replays)
