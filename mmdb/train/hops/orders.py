"""What a worker is told to do, and what it answers."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from operator import index
from typing import TYPE_CHECKING, Any

from mmdb.db.connection import Row
from mmdb.db.queries import Query, load
from mmdb.errors import HopTimedOut, InvalidOption
from mmdb.train.values.spec import Past, WorkerGroup, group_of

if TYPE_CHECKING:
    from mmdb.train.hops.runner import HopRunner


_Q = load("api")


@dataclass(frozen=True, slots=True, kw_only=True)
class HopOrder:
    """One hop; `publish` as in `HopRunner.run_hop`."""

    part_id: int
    candidate_id: int
    epoch: int
    publish: bool = True
    limit_s: float | None = None  # seconds that it may take; None: as long as it needs
    begins: bool = False  # settle first, in another transaction, what the candidate begins with
    past: Past | None = None  # of the candidate, on a cluster
    holders: tuple[int, ...] = ()  # on a cluster, of a driver: see `HopRunner.run_hop`
    useless: tuple[tuple[int, str], ...] = ()  # states that its node drops: candidate_id, hex
    at: int | None = None  # of the held-out slice on a cluster: a partition of the node to do it

    @property
    def place(self) -> int:
        """A partition of the node that is to do it."""
        return self.part_id if self.at is None else self.at

    def run(self, runner: HopRunner) -> list[Row]:
        """Do it over a hop runner's connection."""
        if self.begins:
            runner.begin(self.candidate_id)
        row = runner.run_hop(
            self.part_id,
            self.candidate_id,
            self.epoch,
            publish=self.publish,
            past=self.past,
            holders=self.holders,
            at=self.at,
        )
        return [wire_row(row)]

    def call(self) -> tuple[Query, dict[str, Any]]:
        """Return the call of mmdb's function that does it inside the server."""
        return _Q.train_hop, {
            "part_id": self.part_id,
            "candidate_id": self.candidate_id,
            "epoch": self.epoch,
            "publish": self.publish,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class FusedOrder:
    """One hop of each of several candidates on the same partition: all of them, or none."""

    part_id: int
    candidate_ids: tuple[int, ...]
    epoch: int
    publish: bool = True
    limit_s: float | None = None  # of all together
    pasts: tuple[Past | None, ...] = ()  # of the candidates, on a cluster
    holders: tuple[int, ...] = ()  # the rest as in `HopOrder`
    at: int | None = None
    begins = False

    @property
    def candidate_id(self) -> int:
        """The first of the candidates, which stands for all."""
        return self.candidate_ids[0]

    @property
    def place(self) -> int:
        """A partition of the node that is to do it."""
        return self.part_id if self.at is None else self.at

    def run(self, runner: HopRunner) -> list[Row]:
        """Do it over a hop runner's connection; rows come in the order of the candidates."""
        rows = runner.run_hops(
            self.part_id,
            self.candidate_ids,
            self.epoch,
            publish=self.publish,
            pasts=self.pasts,
            holders=self.holders,
            at=self.at,
        )
        return [wire_row(row) for row in rows]

    def call(self) -> tuple[Query, dict[str, Any]]:
        """Return the call of mmdb's function that does it inside the server."""
        return _Q.train_hops, {
            "part_id": self.part_id,
            "candidate_ids": list(self.candidate_ids),
            "epoch": self.epoch,
            "publish": self.publish,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupOrder:
    """One member's part of a round of a group."""

    part_ids: tuple[int, ...]  # in the order of the ranks
    candidate_id: int
    epoch: int
    group: WorkerGroup
    limit_s: float | None = None
    begins: bool = False  # as in `HopOrder`, and so the rest
    past: Past | None = None
    holders: tuple[int, ...] = ()
    at: int | None = None  # on a cluster: a partition of the node that does this member's part

    @property
    def place(self) -> int:
        """A partition of the node that is to do it."""
        return self.part_ids[self.group.rank] if self.at is None else self.at

    def run(self, runner: HopRunner) -> list[Row]:
        """Do it over a hop runner's connection; the first rank alone returns rows."""
        if self.begins:
            runner.begin(self.candidate_id)
        place = (self.part_ids, self.candidate_id, self.epoch, self.group)
        rows = runner.run_group(*place, past=self.past, holders=self.holders, at=self.at)
        return [wire_row(row) for row in rows]

    def call(self) -> tuple[Query, dict[str, Any]]:
        """Return the call of mmdb's function that does it inside the server."""
        return _Q.train_group, {
            "part_ids": list(self.part_ids),
            "candidate_id": self.candidate_id,
            "epoch": self.epoch,
            "member": json.dumps(asdict(self.group)),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeOrder:
    """The mean of the states that an epoch's hops have left."""

    candidate_id: int
    epoch: int
    part_id: int | None = None  # on a cluster: its node computes, and the caller records
    limit_s: float | None = None
    begins = False

    @property
    def place(self) -> int | None:
        """A partition of the node that is to do it."""
        return self.part_id

    def run(self, runner: HopRunner) -> list[Row]:
        """Do it over a hop runner's connection."""
        row = runner.merge(self.candidate_id, self.epoch, at=self.part_id)
        return [] if self.part_id is None else [{**row, "state_out": row["state_out"].hex()}]

    def call(self) -> tuple[Query, dict[str, Any]]:
        """Return the call of mmdb's function that does it inside the server."""
        return _Q.merge_epoch, {"candidate_id": self.candidate_id, "epoch": self.epoch}


Order = HopOrder | FusedOrder | GroupOrder | MergeOrder
_KINDS: dict[str, type[Order]] = {
    "hop": HopOrder,
    "fused": FusedOrder,
    "group": GroupOrder,
    "merge": MergeOrder,
}


def to_json(order: Order) -> str:
    """Return an order as JSON."""
    (kind,) = (name for name, cls in _KINDS.items() if isinstance(order, cls))
    return json.dumps({"kind": kind} | asdict(order))


def from_json(text: str) -> Order:
    """Return the order that `to_json` wrote."""
    raw = json.loads(text)
    cls = _KINDS[raw.pop("kind")]
    raw |= {name: tuple(raw[name]) for name in _TUPLES if name in raw}
    if "group" in raw:
        raw["group"] = WorkerGroup(**raw["group"])
    if "useless" in raw:
        raw["useless"] = _useless(raw["useless"])
    if "pasts" in raw:
        raw["pasts"] = tuple(_past(one) for one in raw["pasts"])
    if "past" in raw:
        raw["past"] = _past(raw["past"])
    return cls(**raw)


_TUPLES = ("part_ids", "candidate_ids", "holders")


def driver_order(raw: Mapping[str, Any]) -> Order:
    """Return what a driver orders, from JSON that anybody may have written.

    Raises:
        InvalidOption: it is no such order.
    """
    try:
        return _driver_order(raw)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise InvalidOption(
            "detail is not the order of a hop.", hint="A driver makes it; by hand: mmdb.train_hop."
        ) from error


def _driver_order(raw: Mapping[str, Any]) -> Order:
    kind, epoch, at = raw.get("kind"), index(raw["epoch"]), raw.get("at")
    at = None if at is None else index(at)
    holders = tuple(map(index, raw.get("holders", ())))
    if kind == "group":
        return GroupOrder(
            part_ids=tuple(map(index, raw["part_ids"])),
            candidate_id=index(raw["candidate_id"]),
            epoch=epoch,
            group=group_of(raw["group"]),
            past=_past(raw.get("past")),
            holders=holders,
            at=at,
        )
    part_id = index(raw["part_id"])
    if kind == "merge":
        return MergeOrder(part_id=part_id, candidate_id=index(raw["candidate_id"]), epoch=epoch)
    publish = bool(raw.get("publish", True))
    if kind == "fused":
        return FusedOrder(
            part_id=part_id,
            candidate_ids=tuple(map(index, raw["candidate_ids"])),
            epoch=epoch,
            publish=publish,
            pasts=tuple(map(_past, raw.get("pasts", ()))),
            holders=holders,
            at=at,
        )
    return HopOrder(
        part_id=part_id,
        candidate_id=index(raw["candidate_id"]),
        epoch=epoch,
        publish=publish,
        past=_past(raw.get("past")),
        holders=holders,
        useless=_useless(raw.get("useless", ())),
        at=at,
    )


def _useless(raw: Sequence[tuple[int, str]]) -> tuple[tuple[int, str], ...]:
    return tuple((index(candidate_id), bytes.fromhex(name).hex()) for candidate_id, name in raw)


def _past(raw: Mapping[str, Any] | None) -> Past | None:
    if raw is None:
        return None
    return Past(epoch=index(raw["epoch"]), part_ids=tuple(map(index, raw["part_ids"])))


def wire_row(row: Mapping[str, Any]) -> Row:
    """Return a hop runner's hop row as workers give it: states in hex, an objective or None."""
    states = {name: bytes(row[name]).hex() for name in ("state_in", "state_out")}
    return {"objective": None} | dict(row) | states


def timed_out(order: Order) -> HopTimedOut:
    """Return the error of a hop that took longer than it may."""
    return HopTimedOut(
        f"A hop of candidate {order.candidate_id} took longer than {order.limit_s:g} s."
    )
