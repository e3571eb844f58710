"""How features come to a run's candidates: decided once, before the first of them trains."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from math import ceil

from mmdb.data.dataset import Dataset, dataset_of
from mmdb.data.feature_codec import row_bytes
from mmdb.data.reader import ensure_partition
from mmdb.db.connection import Connection, Row
from mmdb.db.queries import load
from mmdb.errors import BackboneMissing, ModelNotFound
from mmdb.store import feature_uses, features
from mmdb.store.feature_uses import Use
from mmdb.store.features import Feature, FeatureSpec
from mmdb.store.models import find_model
from mmdb.train.dispatch.performer import Performer
from mmdb.train.driver.run_options import RunOptions, parse_run_options
from mmdb.train.features.choose import Conditions, choose
from mmdb.train.features.groups import (
    Group,
    Member,
    demand_of,
    freezes,
    member_of,
    network_of,
    use_of,
    with_more,
)
from mmdb.train.features.keys import feature_key, prefix_key
from mmdb.train.features.spec import ExamineSpec, Prefix
from mmdb.train.seeds import frozen_seed
from mmdb.train.spec import CandidateSpec
from mmdb.train.warm.options import OFF

_Q = load("features")

#: Seconds of a byte of features where none was written or read yet: 100 and 250 MB/s.
WRITE_BYTE_S, READ_BYTE_S = 1e-8, 4e-9
#: Seconds in which a hop takes a byte of rows out of the node's cache: rows of 2 KB, 32 at a time.
MAP_BYTE_S = 1e-10

#: From the row of a candidate to what a performer needs of it.
MakeSpec = Callable[[Row], CandidateSpec]


class Settler:
    """Settles the features of a run's candidates, in the caller's transaction."""

    def __init__(
        self,
        connection: Connection,
        performer: Performer,
        make_spec: MakeSpec,
        hold: Callable[[CandidateSpec, str], None],
    ) -> None:
        """Args: hold: has a performer hold the backbone of a candidate of the named run."""
        self._connection, self._performer = connection, performer
        self._make_spec, self._hold = make_spec, hold

    def settle(self, row: Row) -> None:
        """Settle all candidates of a run that freeze layers, but for those that are settled.

        Args:
            row: of `find_candidate`, of one of them.
        Raises:
            BackboneMissing, ArchitectureError, BlockCorrupt
        """
        run_id = row["run_id"]
        rows = self._connection.rows(_Q.find_unsettled, run_id=run_id)
        members = [member_of(one) for one in rows if freezes(one)]
        dataset = dataset_of(self._connection, row["dataset_id"])
        options = parse_run_options(json.loads(row["options"]), row["strategy"])
        groups = self._groups(row, dataset, options, members)
        known = features.put(self._connection, [group.spec for group in groups])
        taken = feature_uses.find_uses(self._connection, run_id)
        fresh = [g for g in groups if known[g.spec.feature_key].feature_id not in taken]
        uses = self._choose(row, dataset, options, fresh, known, taken)
        hops = row["epochs"] * len(dataset.partitions)
        uses += [
            with_more(taken[feature_id], group, hops)
            for group in groups
            if (feature_id := known[group.spec.feature_key].feature_id) in taken
        ]
        feature_uses.put_uses(self._connection, run_id, uses)
        ids = {g.spec.feature_key: known[g.spec.feature_key].feature_id for g in groups}
        features.touch(self._connection, ids.values())
        feature_uses.put_candidates(
            self._connection,
            run_id,
            {m.candidate_id: ids[g.spec.feature_key] for g in groups for m in g.members},
        )

    # -- what is shared ------------------------------------------------------------

    def _groups(
        self, row: Row, dataset: Dataset, options: RunOptions, members: Sequence[Member]
    ) -> list[Group]:
        """Return the distinct frozen layers of some members, found by what they compute."""
        owner = features.owner_of(self._connection, row["run_id"])
        model_id, reference = self._backbone(row)
        found: dict[bytes, Group] = {}
        for arguments in dict.fromkeys(member.arguments for member in members):
            alike = [member for member in members if member.arguments == arguments]
            network = network_of(row, json.loads(arguments), model_id)
            examined, environment = self._examined(row, dataset, alike, model_id)
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
                found[spec.feature_key] = Group(
                    prefix=prefix,
                    spec=same.spec if same else spec,
                    members=mine,
                )
        return list(found.values())

    def _examined(
        self, row: Row, dataset: Dataset, alike: Sequence[Member], model_id: int | None
    ) -> tuple[dict[tuple[str, str], Prefix], str]:
        """Let the performer look at the frozen layers of one network.

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
        self._performer.map_partition(key)
        cuts = tuple(dict.fromkeys((m.transfer.cut, m.pool) for m in alike))
        examined = self._performer.examine(ExamineSpec(candidate=spec, partition=key, cuts=cuts))
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
        dataset: Dataset,
        options: RunOptions,
        groups: Sequence[Group],
        known: Mapping[bytes, Feature],
        taken: Mapping[int, Use],
    ) -> list[Use]:
        """Return how the features that the run has not used yet come to its candidates."""
        stored = features.find_parts(
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
        dataset: Dataset,
        options: RunOptions,
        groups: Sequence[Group],
        taken: Mapping[int, Use],
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
