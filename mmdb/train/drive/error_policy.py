"""Whom an error of a hop is to be blamed on."""

from __future__ import annotations

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
