"""The command `mmdb lineage`."""

from __future__ import annotations

import argparse
import json

from mmdb.cli.models import Add
from mmdb.cli.options import database


def add_lineage_command(add: Add) -> None:
    """Add to the parser."""
    about = "Show what a model, dataset, table or column came from, or what came of it."
    command = add("lineage", _lineage, about, database())
    command.add_argument("entity", help="name, model:name@version, column:schema.table.column, ...")
    command.add_argument("--down", action="store_true", help="what came of it")
    command.add_argument("--hops", action="store_true", help="show partitions and hops too")
    command.add_argument("--max-depth", type=int, metavar="N", help="edges away at most")


def _lineage(given: argparse.Namespace) -> int:
    from mmdb.lineage.reading import lineage
    from mmdb.report.view_session import connected_to_read
    from mmdb.terminal import show_rows

    direction = "down" if given.down else "up"
    with connected_to_read(given.database) as connection:
        steps = lineage(
            connection, given.entity, direction, hops=given.hops, max_depth=given.max_depth
        )
    rows = [step._asdict() for step in steps]
    if given.json:
        print(json.dumps(rows))
    else:
        show_rows(f"Lineage of {given.entity}, {direction}", rows, spare=("kind",))
    return 0
