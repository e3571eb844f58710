"""What the driver tells workers: an assignment as an order for each of its members."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from mmdb.train.driver.job import Job
from mmdb.train.parallel.group import Group
from mmdb.train.schedule import Assignment
from mmdb.train.seeds import MERGE
from mmdb.train.watch import Watch
from mmdb.train.workers.orders import FusedOrder, GroupOrder, HopOrder, MergeOrder, Order
from mmdb.train.workers.worker_threads import Message


@dataclass(slots=True)
class Round:
    """An assignment under way: one worker's hop, or a group's round with a worker for each rank."""

    job: Job
    assignment: Assignment
    waits_for: set[str]  # workers that have not answered yet
    sessions: Sequence[str]  # of the members, as the rendezvous knows them
    worst: Message | None = None  # of those that failed

    @property
    def members(self) -> Sequence[str]:
        """The workers, in the order of their ranks."""
        return members_of(self.assignment)


def orders_of(
    job: Job, assignment: Assignment, meet: Callable[[Sequence[str]], Sequence[Group]]
) -> list[Order]:
    """Return what each worker of an assignment is told: one, or a group's in order of ranks."""
    hop, limit_s = assignment.hop, job.hop_limit_s
    candidate_id = job.candidate_id(hop.candidate)
    begins = job.begins_apart(hop)
    if hop.part == MERGE:
        return [MergeOrder(candidate_id=candidate_id, epoch=hop.epoch, limit_s=limit_s)]
    if len(assignment.group) > 1:  # a group of one is an ordinary hop, validation among them
        part_ids = tuple(job.run.part_ids[part] for _, part in assignment.group)
        return [
            GroupOrder(
                part_ids=part_ids,
                candidate_id=candidate_id,
                epoch=hop.epoch,
                group=group,
                limit_s=limit_s,
                begins=begins,
            )
            for group in meet([worker for worker, _ in assignment.group])
        ]
    if assignment.fused:
        return [
            FusedOrder(
                part_id=job.run.part_ids[hop.part],
                candidate_ids=tuple(map(job.candidate_id, assignment.candidates)),
                epoch=hop.epoch,
                publish=assignment.publish,
                limit_s=limit_s and limit_s * len(assignment.candidates),
            )
        ]
    return [
        HopOrder(
            part_id=job.run.part_ids[hop.part],
            candidate_id=candidate_id,
            epoch=hop.epoch,
            publish=assignment.publish,
            limit_s=limit_s,
            begins=begins,
            past=job.past(hop.candidate) if job.run.is_spread else None,
        )
    ]


def members_of(assignment: Assignment) -> Sequence[str]:
    """Return the workers of an assignment, in the order of their ranks."""
    return [worker for worker, _ in assignment.group] or [assignment.worker]


def tell_done(watch: Watch, assignment: Assignment, message: Message, now: float) -> None:
    """Tell what an order's hops have come to; those that were done together one after the other."""
    objectives = [row.get("objective") for row in message.rows] or [None]
    if assignment.fused:
        watch.hops_done(message.worker, now, [row["total_s"] for row in message.rows], objectives)
    else:
        watch.hop_done(message.worker, now, objectives[0])
