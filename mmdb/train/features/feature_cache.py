"""Features on their way to hops: out of the cache, out of the database, or computed now."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import replace
from time import sleep

from mmdb.data import node_cache
from mmdb.data.functions import find_factories, find_functions
from mmdb.data.reader import ensure_partition
from mmdb.db.connection import Connection, Row
from mmdb.db.owners import acting_for
from mmdb.errors import BackboneMissing, WriteConflict
from mmdb.store import stored_features
from mmdb.train.features.feature_planning import FeaturePlanner
from mmdb.train.features.materialize import FeaturedPartition, Producer, Spent
from mmdb.train.ledger.ledger import CandidateRecord, Ledger
from mmdb.train.values.feature_spec import READY
from mmdb.train.values.jobs import Executor, MapPartition, TakeBackbone
from mmdb.train.values.spec import CandidateSpec, HopSpec, HopStep

#: Seconds between two tries to get a lock that another session has.
_WAIT_S = 0.05
#: DuckDB has no such locks: one thread at a time settles and computes.
_working = threading.RLock()


class FeatureCache:
    """Brings the features of frozen layers to the hops of one session."""

    def __init__(self, connection: Connection, executor: Executor, ledger: Ledger) -> None:
        self._connection, self._executor, self._ledger = connection, executor, ledger
        self._producer = Producer(connection, executor, self.hold)
        self._stored: set[tuple[int, int]] = set()  # feature_id and part_id seen in the database
        self._has_settled = False  # in the statement under way

    # -- what a candidate trains on ---------------------------------------------------

    def plan_features(self, candidate_id: int) -> CandidateRecord:
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
                planner = FeaturePlanner(self._connection, self._executor, self.spec, self.hold)
                with acting_for(self._connection, candidate_id):
                    planner.plan_features(candidate.row)
                self._has_settled = True
        return self._ledger.candidate(candidate_id)

    def spec(self, row: Row) -> CandidateSpec:
        """Return what an executor needs of a candidate, a row of `find_candidate`."""
        factories = find_factories(self._connection)
        return CandidateSpec.from_row(row, factories, find_functions(self._connection))

    # -- the rows of a hop ------------------------------------------------------------

    def prepare(self, candidate_id: int, part_id: int) -> None:
        """Have the features of a partition in the node's cache, in a transaction of its own.

        Raises:
            as `settle` and `bring`
        """
        candidate = self.plan_features(candidate_id)
        if candidate.row["feature_choice"] not in READY:
            return
        source = bytes(candidate.part(part_id)["content_hash"])
        part = FeaturedPartition(candidate=candidate, part_id=part_id, source=source)
        if self._is_mapped(part):
            return
        spec = self.spec(candidate.row)
        if spec.frozen is None or spec.frozen.choice not in READY:
            return  # others share what this one cannot use
        with self._alone(), self._connection.transaction():
            self._ledger.check_alive(candidate)
            self._ready(part, spec, waits=True)

    def finish(self) -> None:
        """Write down what features took, once a hop is done.

        At the end and in one order, so that sessions which compute features of one run do not wait
        for each other's hops. What was settled in this statement may be rolled back with it.
        """
        spent, self._producer.spent = self._producer.spent, Spent()
        if spent.seconds or spent.errors:
            with suppress(WriteConflict), self._alone(), self._connection.transaction():
                spent.write(self._connection)
        if self._has_settled:
            self.forget()

    def forget(self) -> None:
        """Read again what a statement that may be rolled back has written."""
        self._has_settled = False
        self._stored.clear()
        self._ledger.forget()

    def bring(
        self,
        candidate: CandidateRecord,
        spec: CandidateSpec,
        steps: Sequence[HopStep],
        state: str | None,
    ) -> dict[str, str]:
        """Have the rows of some steps where the executor finds them.

        Args:
            state: hash of the state that is held or brought; None: the initial one.
        Returns:
            for each partition's key in hex that of the rows to train on.
        Raises:
            BackboneMissing, FeatureCorrupt, BlockCorrupt, DatasetDropped
        """
        from mmdb.train.compute.trainable_head import needs_backbone  # imports torch

        assert spec.frozen is not None
        is_ready = spec.frozen.choice in READY
        found = {}
        for step in {step.partition: step for step in steps}.values():
            if is_ready:
                source = bytes.fromhex(step.partition)
                part = FeaturedPartition(candidate=candidate, part_id=step.part_id, source=source)
                self._ready(part, spec, waits=False)
                found[step.partition] = part.key.hex()
            else:
                self._raw(step)
        if needs_backbone(spec, state):
            self.hold(spec, candidate.row["run"])
        return found

    def _raw(self, step: HopStep) -> None:
        if not self._executor.has_partition(step.partition):
            ensure_partition(self._connection, step.part_id, bytes.fromhex(step.partition))
            self._executor.compute(MapPartition(step.partition))

    def _ready(self, part: FeaturedPartition, spec: CandidateSpec, *, waits: bool) -> None:
        """Have the executor map a partition's features.

        Args:
            waits: for another session that computes them. Within a hop none does, which has locks
                that the other may wait for: it computes them, too, and stores nothing.
        """
        if self._is_mapped(part):
            return
        # For the labels; and whoever may not read the rows may not have their features.
        ensure_partition(self._connection, part.part_id, part.source)
        if not self._is_done(part):
            with self._alone():
                stores = self._lock(-2 * int(part.part_id) - 1, waits=waits)
                is_done = self._is_done(part) if stores else node_cache.holds(part.key)
                if not is_done:
                    self._producer.make(part, spec, stores=stores)
        self._executor.compute(MapPartition(part.key.hex()))

    def _is_mapped(self, part: FeaturedPartition) -> bool:
        """Return whether the executor has features, which are stored if they are to be."""
        row = part.candidate.row
        place = (row["feature_id"], part.part_id)
        is_kept = row["feature_choice"] != "stored" or place in self._stored
        return is_kept and self._executor.has_partition(part.key.hex())

    def _is_done(self, part: FeaturedPartition) -> bool:
        """Return whether features are in the cache, and stored where they are to be."""
        if not node_cache.holds(part.key):
            return False
        row = part.candidate.row
        if row["feature_choice"] != "stored":
            return True
        if stored_features.find_part(self._connection, row["feature_id"], part.part_id) is None:
            return False
        self._stored.add((row["feature_id"], part.part_id))
        return True

    # -- backbones ---------------------------------------------------------------------

    def hold(self, spec: CandidateSpec, run: str) -> None:
        """Have the executor hold the model whose layers a candidate freezes, or adapts.

        Raises:
            BackboneMissing
        """
        name = spec.base if spec.frozen is None else spec.frozen.backbone
        if name is None or self._executor.has_backbone(name):
            return
        from mmdb.train.replay.hop_replay import read_backbone  # imports torch

        try:
            tensors = read_backbone(self._connection, spec, follow=self._executor.follow)
        except BackboneMissing as error:
            error.message = f"Run {run!r}: {error.message}"
            raise
        self._executor.compute(TakeBackbone(name), (tensors,))

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


def on_features(spec: HopSpec, keys: Mapping[str, str]) -> HopSpec:
    """Return a hop whose steps visit the rows that their candidate trains on."""

    def moved(step: HopStep) -> HopStep:
        return replace(step, partition=keys.get(step.partition, step.partition))

    replays = tuple(
        replace(stage, steps=tuple(moved(step) for step in stage.steps)) for stage in spec.replays
    )
    return replace(spec, step=moved(spec.step), replays=replays)
