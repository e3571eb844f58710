"""What happens to workers, as the driver tells the schedule."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Ready:
    """A worker has a fresh, warm session."""

    worker: str
    node: str = ""  # where it computes; one node where nothing is placed


@dataclass(frozen=True, slots=True)
class Done:
    """A worker's hop is committed."""

    worker: str
    seconds: float


@dataclass(frozen=True, slots=True)
class Failed:
    """A worker's hop raised; the worker is Ready again once it has a fresh session."""

    worker: str
    final: bool  # trying again cannot help


@dataclass(frozen=True, slots=True)
class Lost:
    """A worker's session broke, whatever it was doing."""

    worker: str
    bystander: bool = False  # it went down with another session, which is to blame


Event = Ready | Done | Failed | Lost
