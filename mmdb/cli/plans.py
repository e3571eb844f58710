"""The command `mmdb calibrate`."""

from __future__ import annotations

import argparse
import json

from mmdb.cli.models import Add
from mmdb.cli.options import database


def add_plan_commands(add: Add) -> None:
    """Add the command to the parser."""
    command = add(
        "calibrate",
        _calibrate,
        "Measure what this machine and a database cost, for plans.",
        database(),
    )
    command.add_argument(
        "--budget", type=float, default=60.0, metavar="S", help="seconds to measure for (60)"
    )


def _calibrate(given: argparse.Namespace) -> int:
    from mmdb.api import connect
    from mmdb.terminal import console, show_rows

    with connect(given.database) as db:
        if given.json:
            print(json.dumps([dict(row) for row in db.calibrate(given.budget)]))
            return 0
        with console.status(f"Measuring for about {given.budget:g} s; nothing else should be busy"):
            rows = [dict(row) for row in db.calibrate(given.budget)]
    names = ("kind", "size", "size_unit", "value", "unit", "deviation", "samples")
    show_rows("", [{n: row[n] for n in names} for row in rows if row["note"] is None])
    for row in rows:
        if row["note"] is not None:
            subject = f"{row['kind']}: " if row["kind"] else ""
            console.print(f"{subject}{row['note']}", highlight=False, markup=False)
    return 0
