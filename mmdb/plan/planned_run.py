"""A run as a plan sees it: its candidates and what they freeze, its partitions, hops like its."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from mmdb.data.dataset import StoredDataset, dataset_of
from mmdb.data.functions import find_factories, find_functions
from mmdb.data.names import found_run
from mmdb.db.connection import Connection, Row
from mmdb.db.queries import Query, load
from mmdb.errors import DatasetDropped, EmptySearch, InvalidOption
from mmdb.plan.profile.measurements import Stamp
from mmdb.store import stored_features
from mmdb.store.stored_features import FeatureUse, StoredFeature, find_of_run
from mmdb.train.candidate.config import Config, architecture_hash, parse_config
from mmdb.train.hops.turn import workload
from mmdb.train.ledger.run_options import SAME, RunOptions, parse_run_options
from mmdb.train.ledger.shards import shard_runs
from mmdb.train.schedule import Workload
from mmdb.train.values.feature_options import FrozenOptions, parse_frozen_options, unshared
from mmdb.train.values.feature_spec import READY
from mmdb.train.values.spec import stack_of

#: Of hops whose rows are features that lie in the node's cache.
READ = "read"

#: Hyper-parameters that decide, beside the architecture and the batch size, what a step costs.
COSTLY = ("optimizer", "loss", "class_weights", "accumulate", "clip_norm", "clip_value", "amp",
          "augment")  # fmt: skip

RawConfig = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Shared:
    """Features of a run, and how they come to its candidates."""

    feature: StoredFeature
    use: FeatureUse


@dataclass(frozen=True, slots=True, kw_only=True)
class FrozenLayers:
    """The layers that a candidate freezes, and where their outputs come from.

    Attributes:
        source: see `source_of`; None until it is settled.
        shape: of the features of a row; None until it is settled.
        row_s: seconds in which a hop computes the features of a row; 0 where it reads them.
    """

    transfer: FrozenOptions
    source: str | None = None
    shape: tuple[int, ...] | None = None
    row_s: float = 0.0

    @property
    def tail_shape(self) -> tuple[int, ...] | None:
        """Of the rows of what trains by itself; None where the whole network is in the hop."""
        return None if self.source == "whole" else self.shape

    @property
    def is_computed(self) -> bool:
        """Whether hops compute what is frozen, beside what trains."""
        return self.source in ("recomputed", "streamed")


def source_of(config: RawConfig, choice: str | None) -> str | None:
    """Return where the features come from that hops train on; those that differ do not compare.

    Args:
        config: of the candidate.
        choice: of its features, which others may share though it cannot; None: not settled.
    Returns:
        READ, "recomputed", "streamed" or "whole"; None where nothing is frozen, or settled.
    """
    if choice is None or config.get("freeze_up_to") is None:
        return None
    if not _shares(config):
        choice = _unshared(config)
    return READ if choice in READY else choice


def _shares(config: RawConfig) -> bool:
    return not config.get("augment") and _unshared(config) != "whole"


def _unshared(config: RawConfig) -> str:
    transfer = parse_frozen_options(config)
    assert transfer is not None
    return unshared(transfer)


def cost_key(
    architecture_hash: bytes,
    config: Mapping[str, Any],
    source: str | None = None,
    stack: int = 1,
) -> str:
    """Return what candidates have in common whose steps of as many rows cost the same.

    Args:
        source: of the features that they train on; see `mmdb.plan.planned_run.source_of`.
        stack: how many candidates of their run train in one pass, at most.
    """
    costly = {key: config[key] for key in COSTLY if config.get(key) is not None}
    decays = bool(config.get("weight_decay"))
    found = f"{architecture_hash.hex()} {json.dumps([costly, decays], sort_keys=True)}"
    found = found if source is None else f"{found} {source}"
    return found if stack == 1 else f"{found} in stacks of {stack}"


class CostKeys:
    """`cost_key` of rows of hops, each distinct one found once."""

    def __init__(self) -> None:
        self._known: dict[tuple[bytes, str, str | None, str | None], str] = {}

    def of(self, row: Row) -> str:
        """Return the cost key of a hop's candidate, as the queries of hops return it."""
        named, text, choice, stack = (
            bytes(row["architecture_hash"]),
            row["config"],
            row.get("feature_choice"),
            row.get("stack"),
        )
        key = named, text, choice, stack
        if key not in self._known:
            config, members = json.loads(text), stack_of({"stack": stack} if stack else {})
            self._known[key] = cost_key(named, config, source_of(config, choice), members)
        return self._known[key]


def shared_of(connection: Connection, run_id: int) -> dict[int, Shared]:
    """Return the features of a run, by number."""
    uses = stored_features.find_uses(connection, run_id)
    features = [one for one in find_of_run(connection, run_id) if one.feature_id in uses]
    return {one.feature_id: Shared(feature=one, use=uses[one.feature_id]) for one in features}


def frozen_layers_of(
    configs: Mapping[int, RawConfig],
    taken: Mapping[int, int],
    shared: Mapping[int, Shared],
    visits: int,
) -> dict[int, FrozenLayers]:
    """Return what candidates freeze; those that freeze nothing are left out.

    Args:
        configs: candidate -> its configuration.
        taken: candidate -> its features, where they are settled.
        visits: rows that a candidate passes in a run.
    """
    found = {}
    for candidate_id, config in configs.items():
        transfer = parse_frozen_options(config)
        if transfer is None:
            continue
        one = shared.get(taken.get(candidate_id, -1))
        if one is None:
            found[candidate_id] = FrozenLayers(transfer=transfer)
            continue
        number = one.feature.feature_id
        fellows = [given for c, given in configs.items() if taken.get(c) == number]
        found[candidate_id] = FrozenLayers(
            transfer=transfer,
            source=source_of(config, one.use.choice),
            shape=one.feature.shape,
            row_s=_computing_s(config, one.use, fellows) / max(visits, 1),
        )
    return found


def _computing_s(config: RawConfig, use: FeatureUse, fellows: Sequence[RawConfig]) -> float:
    """Return the seconds in which a candidate's hops compute the features that they train on.

    Args:
        fellows: configurations of those that train on them, its own among them.
    """
    source = source_of(config, use.choice)
    if source not in ("recomputed", "streamed"):
        return 0.0
    # Those that share decide how features are kept, and what that takes; if none does, all count.
    share = sum(map(_shares, fellows)) / len(fellows) or 1.0
    of_all_s = use.planned_s
    if source != use.choice and not _shares(config):  # it streams what others share
        of_all_s += use.saved_s
    return of_all_s / max(use.candidates * share, 1.0)


def ready_s(shared: Mapping[int, Shared]) -> float:
    """Return the seconds of all workers in which features are made and read before hops begin."""
    return sum(one.use.planned_s for one in shared.values() if one.use.choice in READY)


_Q = load("explain")
#: Runs, the last ones, that show what a machine takes beside the steps of what is planned.
LATELY = 20
#: Hops of like candidates that a plan looks at, the last: at least, for each candidate, at most.
LEAST_HOPS, HOPS_OF_EACH, MOST_HOPS = 800, 40, 4_000
_KINDS_OF_PIXELS = ("bytes",)


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """A candidate that is planned for."""

    candidate_id: int
    ordinal: int
    config: Config
    cost_key: str  # what candidates have in common whose steps cost the same
    frozen: FrozenLayers | None = None  # what does not train; None: all of it trains


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedRun:
    """A run that is planned for."""

    run_id: int
    name: str
    strategy: str  # "auto" until it is decided how it is trained
    workers: int | None  # that were decided on
    metric: str | None  # what its candidates are compared by, if anything is held out
    options: RunOptions
    architecture: Mapping[str, Any]
    search: Mapping[str, Any]
    dataset: StoredDataset
    workload: Workload
    candidates: tuple[Planned, ...]
    factories: Mapping[str, str]
    finished: bool
    shared: Mapping[int, Shared] = field(default_factory=dict)  # its features, by number
    shares_base: bool = False  # whether states leave out what the network that is adapted has

    @property
    def architectures(self) -> tuple[Mapping[str, Any], ...]:
        """Of the run, and of heads that its candidates put on frozen layers."""
        parts = [one.frozen for one in self.candidates if one.frozen]
        return (self.architecture, *(p.transfer.head for p in parts if p.transfer.head))

    @property
    def unsettled(self) -> tuple[Planned, ...]:
        """The candidates whose features have no source yet."""
        return tuple(one for one in self.candidates if one.frozen and not one.frozen.source)

    @property
    def rows(self) -> tuple[int, ...]:
        """Rows of each train partition."""
        return tuple(p.row_count for p in self.dataset.partitions if p.role == "train")

    @property
    def validation_rows(self) -> int:
        """Rows that are held out."""
        return sum(p.row_count for p in self.dataset.partitions if p.role == "validation")

    @property
    def row_bytes(self) -> float:
        """Bytes of a row, as it is kept in a block."""
        parts = self.dataset.partitions
        rows = sum(p.row_count for p in parts)
        return sum(p.byte_count for p in parts) / rows if rows else 0.0

    @property
    def has_pixels(self) -> bool:
        """Whether rows are byte strings, which become four times as large."""
        return any(column.kind in _KINDS_OF_PIXELS for column in self.dataset.columns)


def planned_run(connection: Connection, name: str) -> PlannedRun:
    """Return a run with its candidates that have not failed.

    Raises:
        RunNotFound, DatasetDropped
        EmptySearch: every candidate has failed.
    """
    row = found_run(connection.rows(_Q.find_run, name=name), name)
    if row["dropped"]:
        raise DatasetDropped(f"Dataset {row['dataset']!r} of run {name!r} has been dropped.")
    if shards := shard_runs(row):
        raise InvalidOption(
            f"Run {name!r} is made of {len(shards)} runs, one for each shard of its dataset.",
            hint=f"Explain one of them, such as {shards[0]!r}.",
        )
    dataset = dataset_of(connection, row["dataset_id"])
    functions = find_functions(connection)
    architecture = json.loads(row["architecture"])
    members = connection.rows(_Q.find_candidates, run_id=row["run_id"])
    configs = {member["candidate_id"]: json.loads(member["config"]) for member in members}
    shared, parts = _frozen(connection, row, dataset, configs)
    options = parse_run_options(json.loads(row["options"]), row["asked_strategy"])
    candidates = []
    for member in members:
        candidate_id, raw = member["candidate_id"], configs[member["candidate_id"]]
        named = member["architecture_hash"] or architecture_hash(architecture, raw)
        part = parts.get(candidate_id)
        candidates.append(
            Planned(
                candidate_id=candidate_id,
                ordinal=member["ordinal"],
                config=parse_config(raw, dataset.targets, functions),
                cost_key=cost_key(bytes(named), raw, part.source if part else None, options.stack),
                frozen=part,
            )
        )
    if not candidates:
        raise EmptySearch(
            f"Run {name!r} has no candidate that could be trained.",
            hint="SELECT candidate_id, error FROM mmdb.leaderboard shows why.",
        )
    return PlannedRun(
        run_id=row["run_id"],
        name=name,
        strategy=row["strategy"],
        workers=row["workers"],
        metric=row["metric"],
        options=options,
        architecture=architecture,
        search=json.loads(row["search"]),
        dataset=dataset,
        workload=workload(row, _parts(dataset), len(candidates)),
        candidates=tuple(candidates),
        factories=find_factories(connection),
        finished=row["finished"],
        shared=shared,
        shares_base="adapted" in architecture
        and row["warm_start"] != "off"
        and row["strategy"] in (*SAME, "auto"),
    )


def _frozen(
    connection: Connection,
    row: Row,
    dataset: StoredDataset,
    configs: Mapping[int, Mapping[str, Any]],
) -> tuple[dict[int, Shared], dict[int, FrozenLayers]]:
    """Return the features of a run, and what its candidates freeze."""
    if all(config.get("freeze_up_to") is None for config in configs.values()):
        return {}, {}
    shared = shared_of(connection, row["run_id"])
    taken = stored_features.find_candidates(connection, row["run_id"])
    visits = row["epochs"] * sum(part.row_count for part in dataset.partitions)
    return shared, frozen_layers_of(configs, taken, shared, visits)


def hops_like(connection: Connection, run: PlannedRun, here: Stamp) -> list[Row]:
    """Return hops of candidates with the architectures of a run, on a machine as it is."""
    most = min(max(LEAST_HOPS, HOPS_OF_EACH * len(run.candidates)), MOST_HOPS)
    return _found(connection, _Q.find_measured, run, here, most=most)


def turns_on(connection: Connection, here: Stamp) -> list[Row]:
    """Return what the last runs' workers did on a machine as it is."""
    return connection.rows(_Q.find_turns, most=LATELY, **place_of(here))


def paces_on(connection: Connection, here: Stamp) -> list[Row]:
    """Return what steps of the last runs' candidates took on a machine as it is."""
    return connection.rows(_Q.find_paces, most=LATELY, **place_of(here))


def steps_like(connection: Connection, run: PlannedRun, here: Stamp) -> list[Row]:
    """Return steps that plans have timed, as if they were hops; their role is "steps"."""
    return _found(connection, _Q.find_timed, run, here)


def _found(
    connection: Connection, query: Query, run: PlannedRun, here: Stamp, **given: int
) -> list[Row]:
    return connection.rows(
        query,
        run_id=run.run_id,
        dataset_id=run.dataset.dataset_id,
        **place_of(here),
        **given,
    )


def place_of(here: Stamp) -> dict[str, str]:
    """Return what tells a machine as it is, as queries of hops ask for it."""
    return {
        "node": here.machine.node,
        "device": here.machine.device,
        "environment": f"torch {here.versions.torch}, {here.machine.capability}, %",
    }


def _parts(dataset: StoredDataset) -> list[Row]:
    return [{"role": p.role, "ordinal": p.ordinal} for p in dataset.partitions]
