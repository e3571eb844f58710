"""Profiles in the database: calibrations that are kept, and the one that holds here and now."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime

from mmdb.db.connection import Connection
from mmdb.db.queries import load
from mmdb.plan.profile.fits.line import Line, fit_line
from mmdb.plan.profile.fits.points import Point
from mmdb.plan.profile.kinds import KINDS
from mmdb.plan.profile.profile import Profile, profile_of
from mmdb.plan.profile.row import HINT, Row, row_of
from mmdb.plan.profile.stamp import Machine, Stamp, Versions, stale

_Q = load("plan")
#: Hops that tell more of what a hop costs than a calibration does.
MIN_HOPS = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """The profile that holds where it is asked for."""

    profile: Profile
    warnings: tuple[str, ...]  # why it may not be believed; a row each


def put(connection: Connection, stamp: Stamp, rows: Iterable[Row]) -> None:
    """Keep what a calibration has measured, whole or not at all; assumed rows are left out."""
    shared = {
        "fingerprint": stamp.fingerprint,
        "measured_at": stamp.measured_at,
        "machine": json.dumps(asdict(stamp.machine)),
        "versions": json.dumps(asdict(stamp.versions)),
    }
    measured = [row for row in rows if not row.assumed]
    with connection.transaction():
        connection.run_many(
            _Q.add_row,
            [
                {
                    **shared,
                    "kind": row.kind,
                    "size": row.size,
                    "size_unit": KINDS[row.kind].size_unit,
                    "value": row.value,
                    "unit": row.unit,
                    "deviation": row.deviation,
                    "samples": row.samples,
                }
                for row in measured
            ],
        )


def find(connection: Connection, now: Stamp) -> tuple[list[Row], Stamp | None]:
    """Return each kind's last rows of this machine and these versions, with their stamp.

    Kinds that a later version of mmdb knows, and this one does not, are left out.
    """
    found = connection.rows(_Q.find_rows, fingerprint=now.fingerprint)
    known = [row for row in found if row["kind"] in KINDS]
    if not known:
        return [], None
    measured = max(float(row["measured"]) for row in known)
    stamp = replace(now, measured_at=datetime.fromtimestamp(measured, UTC))
    return [row_of(row) for row in known], stamp


def known_profile(connection: Connection, now: Stamp) -> Known:
    """Return the profile of this machine and these versions, and what whoever plans should know.

    What was measured with other versions, or on what the machine was before, is not used.
    """
    rows, stamp = find(connection, now)
    profile = profile_of(rows, stamp)
    if stamp is None:
        changed = "; ".join(changes(connection, now))
        said = f"What was measured here no longer counts: {changed}. Costs are assumed, and high."
        return Known(profile=profile, warnings=(f"{said} {HINT}",) if changed else profile.warnings)
    old = [f"The profile may no longer hold: {why}. {HINT}" for why in stale(stamp, now)]
    return Known(profile=profile, warnings=(*old, *profile.warnings))


def changes(connection: Connection, now: Stamp) -> list[str]:
    """Return what is no longer as it was when this node was last measured."""
    found = connection.rows(_Q.find_latest, node=now.machine.node, engine=now.versions.engine)
    if not found:
        return []
    try:
        then = Stamp(
            machine=Machine(**json.loads(found[0]["machine"])),
            versions=Versions(**json.loads(found[0]["versions"])),
            measured_at=now.measured_at,
        )
    except TypeError:  # another version of mmdb knows other things of a machine
        return ["it was measured by another version of mmdb"]
    return stale(then, now)


def hop_costs(connection: Connection, node: str) -> Line | None:
    """Return what hops on a node have cost beside computing and reading, over a state's bytes.

    None where too few were done. A hop that went on with a state it had is among them.
    """
    found = connection.rows(_Q.find_hop_costs, node=node)
    points = [
        Point(float(row["size"]), float(row["seconds"])) for row in found if row["seconds"] > 0
    ]
    return fit_line(points) if len(points) >= MIN_HOPS else None
