"""Plans how features come to a run's candidates, before the first of them trains."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from math import ceil
from typing import Any

from mmdb.data.dataset import StoredDataset, dataset_of
from mmdb.data.feature_files import row_bytes
from mmdb.data.reader import ensure_partition
from mmdb.db.connection import Connection, Row
from mmdb.db.queries import load
from mmdb.errors import (
    ArchitectureError,
    BackboneMissing,
    InvalidHyperparameter,
    InvalidOption,
    ModelNotFound,
    OutOfMemory,
    TrainingFailed,
)
from mmdb.store import stored_features
from mmdb.store.models.model_rows import find_model
from mmdb.store.stored_features import FeatureSpec, FeatureUse, StoredFeature
from mmdb.train.features.prefix_groups import (
    PendingCandidate,
    PrefixGroup,
    demand_of,
    feature_key,
    freezes,
    network_of,
    pending_candidate,
    prefix_key,
    use_of,
    with_more,
)
from mmdb.train.features.storage_choice import Conditions, choose
from mmdb.train.ledger.run_options import RunOptions, parse_run_options
from mmdb.train.values.feature_options import KEYS, parse_frozen_options
from mmdb.train.values.feature_spec import FrozenPrefix
from mmdb.train.values.jobs import ExamineSpec, Executor, MapPartition
from mmdb.train.values.seeds import frozen_seed
from mmdb.train.values.spec import CandidateSpec
from mmdb.train.warm.warm_options import AUTO, OFF

#: Strategies whose hops train one candidate on one worker, and nothing else.
STRATEGIES = ("mop", "task")


def with_transfer(search: Mapping[str, Any], options: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a search whose candidates all freeze what the run's options say.

    A dimension of the search goes before an option of the same name.
    """
    given = {key: options[key] for key in KEYS if options.get(key) is not None}
    space = search.get("space", {})
    if not given or not isinstance(space, Mapping):
        return search
    return {**search, "space": {key: [value] for key, value in given.items()} | dict(space)}


def check_request(strategy: str, strategies: Sequence[str], warm_start: str) -> None:
    """Check that a run that freezes layers can be trained.

    Args:
        strategies: that "auto" may choose from.
        warm_start: "off", "auto" or name@version.
    Raises:
        InvalidOption
    """
    for name in (strategy, *strategies):
        if name not in (*STRATEGIES, "auto"):
            raise InvalidOption(
                f"freeze_up_to is given with the strategy {name!r}.",
                hint=f"Frozen layers are shared with {' and '.join(STRATEGIES)}.",
            )
    if warm_start == AUTO:
        raise InvalidOption(
            "freeze_up_to is given with warm_start 'auto'.",
            hint="Name the model whose layers are to be frozen, or pass 'off'.",
        )


def check_same_frozen(config: Mapping[str, Any], changes: Mapping[str, Any]) -> None:
    """Check that a clone trains the same layers as its parent, whose state it goes on from.

    Args:
        config: the parent's; `changes`: what the clone's has in its place.
    Raises:
        InvalidHyperparameter
    """
    changed = [key for key in KEYS if key in changes and changes[key] != config.get(key)]
    if not changed:
        return
    is_same = config.get("freeze_up_to") is not None and "freeze_up_to" not in changed
    if is_same and parse_frozen_options({**config, **changes}) == parse_frozen_options(config):
        return  # the same in other words, such as a default that is spelled out
    raise InvalidHyperparameter(
        f"A clone cannot change {changed[0]!r}.",
        hint="It goes on from its parent's state, which is of what trained there: leave it out, "
        "or create a run that freezes other layers.",
    )


_Q = load("features")

#: Seconds of a byte of features where none was written or read yet: 100 and 250 MB/s.
WRITE_BYTE_S, READ_BYTE_S = 1e-8, 4e-9
#: Seconds in which a hop takes a byte of rows out of the node's cache: rows of 2 KB, 32 at a time.
MAP_BYTE_S = 1e-10

#: Errors that a network is to blame for.
_OF_NETWORKS = (ArchitectureError, TrainingFailed, OutOfMemory)

#: From the row of a candidate to what an executor needs of it.
MakeSpec = Callable[[Row], CandidateSpec]


class FeaturePlanner:
    """Settles the features of a run's candidates, in the caller's transaction."""

    def __init__(
        self,
        connection: Connection,
        executor: Executor,
        make_spec: MakeSpec,
        hold: Callable[[CandidateSpec, str], None],
    ) -> None:
        """Args: hold: has an executor hold the backbone of a candidate of the named run."""
        self._connection, self._executor = connection, executor
        self._make_spec, self._hold = make_spec, hold

    def plan_features(self, row: Row) -> None:
        """Settle all candidates of a run that freeze layers, but for those that are settled.

        Others than the one asked for stay as they are where their layers cannot be computed.

        Args:
            row: of `find_candidate`, of one of them.
        Raises:
            BackboneMissing, ArchitectureError, BlockCorrupt, TrainingFailed, OutOfMemory
        """
        run_id = row["run_id"]
        rows = self._connection.rows(_Q.find_unsettled, run_id=run_id)
        members = [pending_candidate(one) for one in rows if freezes(one)]
        dataset = dataset_of(self._connection, row["dataset_id"])
        options = parse_run_options(json.loads(row["options"]), row["strategy"])
        groups = self._groups(row, dataset, options, members)
        known = stored_features.put(self._connection, [group.spec for group in groups])
        taken = stored_features.find_uses(self._connection, run_id)
        fresh = [g for g in groups if known[g.spec.feature_key].feature_id not in taken]
        uses = self._choose(row, dataset, options, fresh, known, taken)
        hops = row["epochs"] * len(dataset.partitions)
        uses += [
            with_more(taken[feature_id], group, hops)
            for group in groups
            if (feature_id := known[group.spec.feature_key].feature_id) in taken
        ]
        stored_features.put_uses(self._connection, run_id, uses)
        ids = {g.spec.feature_key: known[g.spec.feature_key].feature_id for g in groups}
        stored_features.touch(self._connection, ids.values())
        stored_features.put_candidates(
            self._connection,
            run_id,
            {m.candidate_id: ids[g.spec.feature_key] for g in groups for m in g.members},
        )

    # -- what is shared ------------------------------------------------------------

    def _groups(
        self,
        row: Row,
        dataset: StoredDataset,
        options: RunOptions,
        members: Sequence[PendingCandidate],
    ) -> list[PrefixGroup]:
        """Return the distinct frozen layers of some members, found by what they compute."""
        owner = stored_features.owner_of(self._connection, row["run_id"])
        model_id, reference = self._backbone(row)
        found: dict[bytes, PrefixGroup] = {}
        for arguments in dict.fromkeys(member.arguments for member in members):
            alike = [member for member in members if member.arguments == arguments]
            network = network_of(row, json.loads(arguments), model_id)
            try:
                examined, environment = self._examined(row, dataset, alike, model_id)
            except _OF_NETWORKS:
                if row["candidate_id"] in [member.candidate_id for member in alike]:
                    raise
                continue  # it ends those whose network it is, in their turn
            for (cut, pool), prefix in examined.items():
                architecture = bytes.fromhex(prefix.architecture_hash)
                tensors = bytes.fromhex(prefix.tensors_hash)
                named = prefix_key(architecture, tensors)
                storage = options.features.storage
                spec = FeatureSpec(
                    feature_key=feature_key(dataset.content_hash, named, storage, environment),
                    dataset_id=dataset.dataset_id,
                    owner=owner,
                    prefix_key=named,
                    layer=cut,
                    pool=prefix.pool,
                    storage=storage,
                    shape=prefix.shape,
                    architecture_hash=architecture,
                    tensors_hash=tensors,
                    network_hash=network,
                    depth=prefix.order,
                    backbone=reference,
                    model_id=model_id,
                    seed=None if model_id is not None else frozen_seed(row["run_seed"]),
                    row_bytes=row_bytes(prefix.shape, storage),
                )
                mine = tuple(m for m in alike if (m.transfer.cut, m.pool) == (cut, pool))
                same = found.get(spec.feature_key)
                if same is not None:
                    mine += same.members
                found[spec.feature_key] = PrefixGroup(
                    prefix=prefix,
                    spec=same.spec if same else spec,
                    members=mine,
                )
        return list(found.values())

    def _examined(
        self,
        row: Row,
        dataset: StoredDataset,
        alike: Sequence[PendingCandidate],
        model_id: int | None,
    ) -> tuple[dict[tuple[str, str], FrozenPrefix], str]:
        """Let the executor look at the frozen layers of one network.

        Returns:
            them by cut and pool, and the environment in which it computes.
        """
        first = self._connection.rows(
            load("hops").find_candidate, candidate_id=alike[0].candidate_id
        )[0]
        spec = self._make_spec({**first, "backbone_id": model_id})
        self._hold(spec, row["run"])
        smallest = min(dataset.partitions, key=lambda part: part.row_count)
        key = smallest.content_hash.hex()
        ensure_partition(self._connection, smallest.part_id, smallest.content_hash)
        self._executor.compute(MapPartition(key))
        cuts = tuple(dict.fromkeys((m.transfer.cut, m.pool) for m in alike))
        asked = ExamineSpec(candidate=spec, partition=key, cuts=cuts)
        examined, _ = self._executor.compute(asked)
        return dict(zip(cuts, examined.prefixes, strict=True)), examined.environment

    def _backbone(self, row: Row) -> tuple[int | None, str | None]:
        """Return the id and name@version of the model that a run freezes, if it does."""
        reference = row["warm_start"]
        if reference == OFF:
            return None, None
        try:
            return find_model(self._connection, reference).model_id, reference
        except ModelNotFound as error:
            raise BackboneMissing(
                f"Run {row['run']!r} freezes layers of {reference}, which was dropped."
            ) from error

    # -- how it is kept ------------------------------------------------------------

    def _choose(
        self,
        row: Row,
        dataset: StoredDataset,
        options: RunOptions,
        groups: Sequence[PrefixGroup],
        known: Mapping[bytes, StoredFeature],
        taken: Mapping[int, FeatureUse],
    ) -> list[FeatureUse]:
        """Return how the features that the run has not used yet come to its candidates."""
        stored = stored_features.find_parts(
            self._connection, [known[g.spec.feature_key].feature_id for g in groups]
        )
        demands = [
            demand_of(
                group, dataset, row["epochs"], stored[known[group.spec.feature_key].feature_id]
            )
            for group in groups
        ]
        conditions = self._conditions(dataset, options, groups, taken)
        plan = choose(demands, conditions, asked=options.features.choice)
        parts = len(dataset.partitions)
        return [
            use_of(group, known[group.spec.feature_key], chosen, row["epochs"] * parts, demand)
            for group, chosen, demand in zip(groups, plan.chosen, demands, strict=True)
        ]

    def _conditions(
        self,
        dataset: StoredDataset,
        options: RunOptions,
        groups: Sequence[PrefixGroup],
        taken: Mapping[int, FeatureUse],
    ) -> Conditions:
        asked = options.features
        used = Counter[str]()
        for use in taken.values():
            used[use.choice] += use.byte_count
        (pace,) = self._connection.rows(_Q.find_paces)
        fused = max((len(group.members) for group in groups), default=1)
        if options.order == "fixed":  # then they wait for each other at first, mmdb/train/schedule
            trains = sum(part.role == "train" for part in dataset.partitions)
            fused = ceil(fused * (trains + 1) / (trains + min(fused, trains)))
        return Conditions(
            disk_bytes=max(asked.disk_bytes - used["stored"], 0),
            memory_bytes=max(asked.memory_bytes - used["memory"], 0),
            write_byte_s=_pace(pace["store_s"], pace["stored_bytes"], WRITE_BYTE_S),
            read_byte_s=_pace(pace["read_s"], pace["read_bytes"], READ_BYTE_S),
            map_byte_s=MAP_BYTE_S,
            workers=os.cpu_count() or 1,
            fuse=max(1, min(asked.fuse, fused)),
            reuse=asked.reuse,
        )


def _pace(seconds: float, size: int, assumed: float) -> float:
    return seconds / size if size and seconds else assumed
