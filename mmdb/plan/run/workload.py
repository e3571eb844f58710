"""A run as a plan sees it: its candidates, its partitions, and what like hops have cost."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from mmdb.data.dataset import Dataset, dataset_of
from mmdb.data.functions import find_factories, find_functions
from mmdb.data.names import found_run
from mmdb.db.connection import Connection, Row
from mmdb.db.queries import Query, load
from mmdb.errors import DatasetDropped, EmptySearch
from mmdb.plan.profile.stamp import Stamp
from mmdb.plan.run.frozen import Part, Shared, parts_of, shared_of
from mmdb.plan.run.measured import likeness
from mmdb.store import feature_uses
from mmdb.train.candidate.config import Config, architecture_hash, parse_config
from mmdb.train.hops.turn import workload
from mmdb.train.ledger.run_options import RunOptions, parse_run_options
from mmdb.train.schedule import Workload

_Q = load("explain")
#: Runs, the last ones, that show what a machine takes beside the steps of what is planned.
LATELY = 20
_KINDS_OF_PIXELS = ("bytes",)


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """A candidate that is planned for."""

    candidate_id: int
    ordinal: int
    config: Config
    like: str  # what candidates have in common whose steps cost the same
    frozen: Part | None = None  # what does not train; None: all of it trains


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
    dataset: Dataset
    workload: Workload
    candidates: tuple[Planned, ...]
    factories: Mapping[str, str]
    finished: bool
    shared: Mapping[int, Shared] = field(default_factory=dict)  # its features, by number

    @property
    def architectures(self) -> tuple[Mapping[str, Any], ...]:
        """Of the run, and of heads that its candidates put on frozen layers."""
        parts = [one.frozen for one in self.candidates if one.frozen]
        return (self.architecture, *(p.transfer.head for p in parts if p.transfer.head))

    @property
    def unsettled(self) -> tuple[Planned, ...]:
        """Candidates of which it is not settled how their features come to them."""
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
    dataset = dataset_of(connection, row["dataset_id"])
    functions = find_functions(connection)
    architecture = json.loads(row["architecture"])
    members = connection.rows(_Q.find_candidates, run_id=row["run_id"])
    configs = {member["candidate_id"]: json.loads(member["config"]) for member in members}
    shared, parts = _frozen(connection, row, dataset, configs)
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
                like=likeness(bytes(named), raw, part.source if part else None),
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
        options=parse_run_options(json.loads(row["options"]), row["asked_strategy"]),
        architecture=architecture,
        search=json.loads(row["search"]),
        dataset=dataset,
        workload=workload(row, _parts(dataset), len(candidates)),
        candidates=tuple(candidates),
        factories=find_factories(connection),
        finished=row["finished"],
        shared=shared,
    )


def _frozen(
    connection: Connection, row: Row, dataset: Dataset, configs: Mapping[int, Mapping[str, Any]]
) -> tuple[dict[int, Shared], dict[int, Part]]:
    """Return the features of a run, and what its candidates freeze."""
    if all(config.get("freeze_up_to") is None for config in configs.values()):
        return {}, {}
    shared = shared_of(connection, row["run_id"])
    taken = feature_uses.find_candidates(connection, row["run_id"])
    visits = row["epochs"] * sum(part.row_count for part in dataset.partitions)
    return shared, parts_of(configs, taken, shared, visits)


def hops_like(connection: Connection, run: PlannedRun, here: Stamp) -> list[Row]:
    """Return hops of candidates with the architectures of a run, on a machine as it is."""
    return _found(connection, _Q.find_measured, run, here)


def turns_on(connection: Connection, here: Stamp) -> list[Row]:
    """Return what the last runs' workers did on a machine as it is."""
    return connection.rows(_Q.find_turns, most=LATELY, **place_of(here))


def paces_on(connection: Connection, here: Stamp) -> list[Row]:
    """Return what steps of the last runs' candidates took on a machine as it is."""
    return connection.rows(_Q.find_paces, most=LATELY, **place_of(here))


def steps_like(connection: Connection, run: PlannedRun, here: Stamp) -> list[Row]:
    """Return steps that plans have timed, as if they were hops; their role is "steps"."""
    return _found(connection, _Q.find_timed, run, here)


def _found(connection: Connection, query: Query, run: PlannedRun, here: Stamp) -> list[Row]:
    return connection.rows(
        query,
        run_id=run.run_id,
        dataset_id=run.dataset.dataset_id,
        **place_of(here),
    )


def place_of(here: Stamp) -> dict[str, str]:
    """Return what tells a machine as it is, as queries of hops ask for it."""
    return {
        "node": here.machine.node,
        "device": here.machine.device,
        "environment": f"torch {here.versions.torch}, {here.machine.capability}, %",
    }


def _parts(dataset: Dataset) -> list[Row]:
    return [{"role": p.role, "ordinal": p.ordinal} for p in dataset.partitions]
