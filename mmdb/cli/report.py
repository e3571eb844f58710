"""The command `mmdb report`."""

from __future__ import annotations

import argparse
import json

from mmdb.cli.models import Add
from mmdb.cli.options import database


def add_report_command(add: Add) -> None:
    """Add the command to the parser."""
    command = add(
        "report",
        _report,
        "Write what there is to say of a run or a model as a page, a picture or JSON.",
        database(),
    )
    command.add_argument("name", metavar="RUN|MODEL", help="model, model@version or model@alias")
    command.add_argument(
        "--kind", choices=("run", "model"), help="where a run and a model have the same name"
    )
    command.add_argument("--out", metavar="FILE", required=True, help="overwritten if it is there")
    command.add_argument(
        "--format", choices=("html", "json", "png"), help="as the file's name says if left out"
    )


def _report(given: argparse.Namespace) -> int:
    from mmdb.report.file import format_of, make_report, write_report
    from mmdb.report.view_session import connected_to_read

    kind = format_of(given.out, given.format)
    with connected_to_read(given.database) as connection:
        report = make_report(connection, given.name, given.kind)
    count = write_report(report, given.out, kind)
    if given.json:
        print(
            json.dumps(
                {report.kind: report.name, "file": given.out, "format": kind, "bytes": count}
            )
        )
    else:
        from mmdb.messages import bytes_text

        print(f"{given.out}: {bytes_text(count)}")
    return 0
