"""The probe that times steps of a run's candidates before it is trained, where hops are done."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import asdict, replace
from typing import Any, Protocol

from mmdb.data.functions import find_factories, find_functions
from mmdb.data.reader import ensure_partition
from mmdb.db.connection import Connection
from mmdb.db.install import installed_mode
from mmdb.db.postgres import PostgresConnection
from mmdb.db.queries import load
from mmdb.errors import Cancelled, InvalidOption, MmdbError, WorkerLost, stops_the_caller
from mmdb.messages import show
from mmdb.plan.plan_options import MOST_PROBE_S
from mmdb.plan.planned_run import Planned, PlannedRun
from mmdb.train.drive.child import ChildProcess
from mmdb.train.drive.server_worker import SETTINGS
from mmdb.train.ledger.run_options import LARGEST_STACK
from mmdb.train.values.feature_spec import READY
from mmdb.train.values.jobs import StepTimes, TimeSteps
from mmdb.train.values.runtime import TimeLimit
from mmdb.train.values.spec import CandidateSpec, stack_size

#: What a candidate may take beyond its share of the budget, until it is broken off.
_OVER_S = 5.0

_Q = load("explain")


class StepProbe(Protocol):
    """Where steps are timed.

    Attributes:
        environment: what the bits of a hop there depend on, and its time.
    """

    environment: str

    def time(self, candidate_id: int, part_id: int, budget_s: float, members: int) -> StepTimes:
        """Time steps of a candidate on a partition, of as many at once if it stacks."""

    def end(self) -> None:
        """Break off what is timed; the place is of no use any more."""


class ChildProbe:
    """A process of its own."""

    def __init__(self, connection: Connection) -> None:
        """Start it."""
        self._connection = connection
        self._child = ChildProcess()
        self.environment = self._child.warm_up()

    def time(self, candidate_id: int, part_id: int, budget_s: float, members: int) -> StepTimes:
        """Time steps in the process, which opens no database."""
        spec, key = spec_of(self._connection, candidate_id, part_id)
        return self._child.compute(TimeSteps(spec, key, budget_s, members))[0]

    def end(self) -> None:
        """End the process."""
        self._child.kill()

    def close(self) -> None:
        """End the process."""
        self._child.close()


class SessionProbe:
    """A session of a server that has mmdb's functions."""

    def __init__(self, url: str) -> None:
        """Connect, and load torch."""
        self._connection = PostgresConnection(url, application_name="mmdb probe", settings=SETTINGS)
        (row,) = self._connection.rows(load("api").warm_up, device="cpu")
        self.environment = str(next(iter(row.values())))

    def time(self, candidate_id: int, part_id: int, budget_s: float, members: int) -> StepTimes:
        """Let the session time steps."""
        order = {"candidate_id": candidate_id, "part_id": part_id, "budget_s": budget_s}
        detail = json.dumps(order | {"what": "steps", "members": members})
        rows = self._connection.rows(load("api").measure, detail=detail)
        found = {row["kind"]: row for row in rows}
        step = found["step"]
        return StepTimes(
            rows=round(step["size"]),
            steps=step["samples"],
            seconds=step["value"],
            state_bytes=round(found["state"]["value"]),
        )

    def end(self) -> None:
        """End the statement under way."""
        self._connection.cancel()

    def close(self) -> None:
        """End the session."""
        self._connection.close()


@contextmanager
def probing(connection: Connection, url: str | None = None) -> Iterator[StepProbe]:
    """Yield where the hops of a database compute.

    Args:
        url: of a PostgreSQL with mmdb's functions; that of the connection if left out.
    """
    if isinstance(connection, PostgresConnection) and installed_mode(connection) == "server":
        url = url or connection.url
    with closing(ChildProbe(connection) if url is None else SessionProbe(url)) as probe:
        yield probe


def spec_of(connection: Connection, candidate_id: int, part_id: int) -> tuple[CandidateSpec, str]:
    """Return what builds a candidate, and the name of a partition in the node's cache.

    Features that hops read are computed of the partition's rows instead, before steps are timed;
    the numbers in frozen layers do not matter for that.

    Raises:
        InvalidOption: there is no such candidate, or partition of its dataset.
    """
    rows = connection.rows(load("hops").find_candidate, candidate_id=candidate_id)
    parts: Sequence[Any] = []
    if rows:
        parts = connection.rows(load("hops").find_partitions, dataset_id=rows[0]["dataset_id"])
    keys = {part["part_id"]: bytes(part["content_hash"]) for part in parts}
    if part_id not in keys:
        raise InvalidOption(f"Candidate {show(candidate_id)} visits no partition {show(part_id)}.")
    ensure_partition(connection, part_id, keys[part_id])
    spec = CandidateSpec.from_row(rows[0], find_factories(connection), find_functions(connection))
    if spec.frozen is not None:
        choice = "recomputed" if spec.frozen.choice in READY else spec.frozen.choice
        spec = replace(spec, frozen=replace(spec.frozen, choice=choice, backbone=None))
    return spec, keys[part_id].hex()


def in_session(
    connection: Connection,
    order: Mapping[str, Any],
    compute: Callable[[Callable[[Callable[[], bool]], StepTimes]], StepTimes],
) -> list[dict[str, Any]]:
    """Time steps in this session, and return them as `measure` returns what it measured.

    Raises:
        InvalidOption: the order says none.
    """
    from mmdb.train.hops.device_worker import DeviceWorker

    try:
        candidate_id, part_id = int(order["candidate_id"]), int(order["part_id"])
        budget_s, members = float(order["budget_s"]), int(order["members"])
    except (KeyError, TypeError, ValueError) as error:
        raise InvalidOption(f"{show(dict(order))} is nothing to be measured.") from error
    if not 0 < budget_s <= MOST_PROBE_S:
        raise InvalidOption(f"budget_s is {show(budget_s)}.", hint="From 0 to 60.")
    if not 1 <= members <= LARGEST_STACK:
        raise InvalidOption(f"members is {members}.", hint=f"From 1 to {LARGEST_STACK}.")
    spec, key = spec_of(connection, candidate_id, part_id)
    worker = DeviceWorker("cpu")
    times = compute(lambda stopped: worker.time_steps(spec, key, budget_s, stopped, members))
    common = {"size": float(times.rows), "deviation": 0.0, "samples": times.steps}
    return [
        {**common, "kind": "step", "value": times.seconds, "unit": "s"},
        {**common, "kind": "state", "value": float(times.state_bytes), "unit": "bytes"},
    ]


def _has_steps(one: Planned) -> bool:
    return one.frozen is None or one.frozen.source not in (None, "recomputed")


def time_steps(
    connection: Connection,
    run: PlannedRun,
    known: Collection[str],
    place: StepProbe,
    budget_s: float,
    node: str,
) -> list[str]:
    """Time steps of one candidate of each cost key that nobody has measured; keep what they took.

    Where it is not settled what its hops compute, or they compute more than steps, there is nothing
    to be timed.

    Args:
        known: cost keys that were measured.
    Returns:
        Why some of them could not be timed.
    """
    missing: dict[str, Planned] = {}
    alike = Counter(one.cost_key for one in run.candidates)
    for one in run.candidates:
        if one.cost_key not in known and _has_steps(one):
            missing.setdefault(one.cost_key, one)
    part_id = next(p.part_id for p in run.dataset.partitions if p.role == "train")
    notes = []
    each_s = min(budget_s, MOST_PROBE_S) / max(len(missing), 1)
    for one in missing.values():
        try:
            with TimeLimit(each_s + _OVER_S, place.end) as limit:
                members = stack_size(alike[one.cost_key], run.options.stack)
                times = place.time(one.candidate_id, part_id, each_s, members)
        except (Cancelled, WorkerLost):
            if not limit.passed:
                raise
            notes.append(f"Steps of candidate {one.ordinal} take too long to be timed.")
            break
        except MmdbError as error:
            if stops_the_caller(error):
                raise
            notes.append(f"Steps of candidate {one.ordinal} could not be timed: {error.message}")
            continue
        row = asdict(times) | {"row_count": times.rows * times.steps}
        row |= {"seconds": times.seconds * times.steps}
        del row["rows"]
        connection.run(
            _Q.add_step_time,
            candidate_id=one.candidate_id,
            node=node,
            device="cpu",
            environment=place.environment,
            **row,
        )
    return notes
