"""Candidates that freeze layers, as a plan sees them: where their features come from, and when."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mmdb.db.connection import Connection
from mmdb.store import feature_uses
from mmdb.store.feature_uses import Use
from mmdb.store.features import Feature, find_of_run
from mmdb.train.values.feature_options import FrozenOptions, parse_frozen_options, unshared
from mmdb.train.values.feature_spec import READY

#: Of hops whose rows are features that lie in the node's cache.
READ = "read"

Config = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Shared:
    """Features of a run, and how they come to its candidates."""

    feature: Feature
    use: Use


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """What a candidate freezes.

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


def source_of(config: Config, choice: str | None) -> str | None:
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


def _shares(config: Config) -> bool:
    return not config.get("augment") and _unshared(config) != "whole"


def _unshared(config: Config) -> str:
    transfer = parse_frozen_options(config)
    assert transfer is not None
    return unshared(transfer)


def shared_of(connection: Connection, run_id: int) -> dict[int, Shared]:
    """Return the features of a run, by number."""
    uses = feature_uses.find_uses(connection, run_id)
    features = [one for one in find_of_run(connection, run_id) if one.feature_id in uses]
    return {one.feature_id: Shared(feature=one, use=uses[one.feature_id]) for one in features}


def parts_of(
    configs: Mapping[int, Config],
    taken: Mapping[int, int],
    shared: Mapping[int, Shared],
    visits: int,
) -> dict[int, Part]:
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
            found[candidate_id] = Part(transfer=transfer)
            continue
        number = one.feature.feature_id
        fellows = [given for c, given in configs.items() if taken.get(c) == number]
        found[candidate_id] = Part(
            transfer=transfer,
            source=source_of(config, one.use.choice),
            shape=one.feature.shape,
            row_s=_computing_s(config, one.use, fellows) / max(visits, 1),
        )
    return found


def _computing_s(config: Config, use: Use, fellows: Sequence[Config]) -> float:
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
