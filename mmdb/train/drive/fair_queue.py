"""How runs share the workers, and whom an error of a hop is blamed on. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from mmdb.errors import (
    BackboneMismatch,
    BackboneMissing,
    BlockCorrupt,
    Cancelled,
    CandidateBusy,
    CandidateStopped,
    DatasetDropped,
    EngineError,
    EnvironmentChanged,
    FeatureCorrupt,
    HopTimedOut,
    NotANumber,
    PartitionEvicted,
    RanOnCoordinator,
    ReplayMismatch,
    RightsMissing,
    StateCorrupt,
    StateNotFound,
)

#: Seconds that a hop is taken to last before any was measured.
FIRST_S = 1.0


@dataclass(slots=True)
class _Account:
    weight: float
    clock: float  # used worker-seconds / weight, from where the run joined
    place: int  # order of joining, which decides among equals
    hops: int = 0
    seconds: float = 0.0
    running: int = 0


class FairQueue:
    """The worker-seconds that each run has used, and whose turn it is."""

    def __init__(self) -> None:
        self._accounts: dict[str, _Account] = {}
        self._joined = 0

    def add(self, run: str, priority: int = 0) -> None:
        """Let a run join, or change its priority: its share is 2 ** priority.

        It starts where the present run that is furthest behind stands: what was used before it
        came is neither held against the others nor made up for.
        """
        weight = 2.0**priority
        if run in self._accounts:
            self._accounts[run].weight = weight
            return
        clock = min((a.clock for a in self._accounts.values()), default=0.0)
        self._accounts[run] = _Account(weight=weight, clock=clock, place=self._joined)
        self._joined += 1

    def remove(self, run: str) -> None:
        """Let a run leave."""
        self._accounts.pop(run, None)

    def begin(self, run: str, workers: int = 1) -> None:
        """Note that `workers` begin a hop of a run; it counts before its seconds are known."""
        self._accounts[run].running += workers

    def end(self, run: str, seconds: float, workers: int = 1) -> None:
        """Note that a hop of a run ended, well or not, after `seconds` on each of its workers."""
        account = self._accounts.get(run)
        if account is None:  # it left while its last hops were under way
            return
        account.running -= workers
        account.hops += 1
        account.seconds += seconds
        account.clock += seconds * workers / account.weight

    def order(self, runs: Iterable[str]) -> list[str]:
        """Return runs that have a hop to do, the one whose turn it is first."""
        return sorted(runs, key=self._standing)

    def _standing(self, run: str) -> tuple[float, int]:
        account = self._accounts[run]
        expected = account.running * self._hop_s(account) / account.weight
        return account.clock + expected, account.place

    def _hop_s(self, account: _Account) -> float:
        """Seconds that a hop of a run is expected to take: its mean, else that of all runs."""
        for accounts in ([account], list(self._accounts.values())):
            hops = sum(a.hops for a in accounts)
            if hops:
                return sum(a.seconds for a in accounts) / hops
        return FIRST_S


#: Errors of a candidate that a second try cannot mend.
FINAL = (NotANumber, CandidateStopped, HopTimedOut)
#: Errors that end the run and leave its candidates as they are.
ENDING = (
    *(Cancelled, EnvironmentChanged, ReplayMismatch, RightsMissing, DatasetDropped),
    *(BackboneMissing, BackboneMismatch),
)
#: Errors of the engine, such as a full disk or a partition that has just moved: the hop is done
#: again.
TROUBLE = (
    EngineError,
    PartitionEvicted,
    CandidateBusy,
    StateNotFound,
    StateCorrupt,
    BlockCorrupt,
    FeatureCorrupt,
    RanOnCoordinator,
)
#: After so many of them in a row the run ends.
MAX_TROUBLES = 5
