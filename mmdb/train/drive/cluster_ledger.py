"""What a driver knows of the nodes of a cluster: where partitions lie, which states are dead."""

from __future__ import annotations

from dataclasses import replace
from time import perf_counter

from mmdb.train.drive.cleanup import Sweeper
from mmdb.train.drive.worker_pool import OrderRound
from mmdb.train.hops.orders import HopOrder, Order
from mmdb.train.values.seeds import MERGE, VALIDATION

#: Seconds between two looks at where the partitions lie.
LOOK_S = 3.0


class ClusterLedger:
    """Notes what orders leave on nodes, and lets go of what they have made useless."""

    def __init__(self, url: str) -> None:
        """Args: url: of the coordinator."""
        self._sweeper = Sweeper(url)
        self._looked_at = perf_counter()

    def close(self) -> None:
        """Let go of what is left, as far as it can be done soon."""
        self._sweeper.close()

    def look_soon(self) -> None:
        """Take partitions for moved."""
        self._looked_at = 0.0

    def is_due(self) -> bool:
        """Return whether it is time to look where the partitions lie; that look is noted."""
        is_due = perf_counter() - self._looked_at > LOOK_S
        if is_due:
            self._looked_at = perf_counter()
        return is_due

    def begun(self, round: OrderRound, orders: list[Order]) -> list[Order]:
        """Return the orders of a round that begins; one tells its node what it may drop."""
        if not isinstance(orders[0], HopOrder):
            return orders
        node = round.job.schedule.node_of(round.assignment.worker)
        round.useless = self._sweeper.useless_at(node)
        return [replace(orders[0], useless=tuple(one.key for one in round.useless))]

    def failed(self, round: OrderRound) -> None:
        """Drop what the orders of a round were to say."""
        self._sweeper.drop(round.useless)

    def done(self, round: OrderRound) -> None:
        """Let go of what a round has made useless."""
        job, assignment = round.job, round.assignment
        part, averages = assignment.hop.part, job.run.workload.merges
        if part == MERGE:
            (row,) = round.rows
            self._sweeper.merged(row, job.run.workload.partitions)
            return
        # Of a group's round the first rank has the state.
        for candidate, row in zip(assignment.candidates, round.rows, strict=False):
            if part != VALIDATION and row["node"] not in job.run.placement[part]:
                self.look_soon()
            if part != VALIDATION:
                (self._sweeper.part_done if averages else self._sweeper.hop_done)(row)
            ends = job.ends_epoch(candidate, len(round.members))
            if ends and (part == VALIDATION or not averages):
                self._sweeper.epoch_done(row)
