"""Commands that show pages and graphs: report, ui and lineage."""

from __future__ import annotations

import argparse
import os

from mmdb.cli.models import Add
from mmdb.cli.options import database, json_text, say
from mmdb.errors import EngineError
from mmdb.messages import bytes_text


def add_report_command(add: Add) -> None:
    """Add the command to the parser."""
    about = "Write what there is to say of a run or a model as a page, a picture or JSON."
    command = add("report", _report, about, database())
    command.add_argument("name", metavar="RUN|MODEL", help="model, model@version or model@alias")
    about = "where a run and a model have the same name"
    command.add_argument("--kind", choices=("run", "model"), help=about)
    command.add_argument("--out", metavar="FILE", required=True, help="overwritten if it is there")
    about = "as the file's name says if left out"
    command.add_argument("--format", choices=("html", "json", "png"), help=about)


def _report(given: argparse.Namespace) -> int:
    from mmdb.report.facts import connected_to_read
    from mmdb.report.file import format_of, make_report, write_report

    kind = format_of(given.out, given.format)
    with connected_to_read(given.database) as connection:
        report = make_report(connection, given.name, given.kind)
    count = write_report(report, given.out, kind)
    found = {report.kind: report.name, "file": given.out, "format": kind, "bytes": count}
    return say(given, found, f"{given.out}: {bytes_text(count)}")


def add_ui_command(add: Add) -> None:
    """Add to the parser."""
    command = add("ui", _ui, "Serve runs, models and lineage as live pages that only read.")
    url = os.environ.get("MMDB_URL")
    nargs = "?" if url else None
    command.add_argument("url", nargs=nargs, default=url, help="MMDB_URL if left out")
    command.add_argument("--host", default="127.0.0.1", help="to listen on (127.0.0.1)")
    command.add_argument("--port", type=int, default=8765, help="0 for any that is free (8765)")
    about = "ask for it; made and printed where other machines reach the host"
    command.add_argument("--token", help=about)


def _ui(given: argparse.Namespace) -> int:
    try:
        from mmdb.ui.app import serve
    except ModuleNotFoundError as error:
        if error.name not in ("starlette", "uvicorn"):
            raise
        raise EngineError(
            f"Pages are served by {error.name}, which is not installed.",
            hint="pip install 'mmdb-learn[ui,report]'",
        ) from error

    def say(address: str) -> None:
        print(f"{address}\nStop it with Ctrl+C.", flush=True)

    serve(given.url, given.host, given.port, given.token, say)
    return 0


def add_lineage_command(add: Add) -> None:
    """Add to the parser."""
    about = "Show what a model, dataset, table or column came from, or what came of it."
    command = add("lineage", _lineage, about, database())
    command.add_argument("entity", help="name, model:name@version, column:schema.table.column, ...")
    command.add_argument("--down", action="store_true", help="what came of it")
    command.add_argument("--hops", action="store_true", help="show partitions and hops too")
    command.add_argument("--max-depth", type=int, metavar="N", help="edges away at most")


def _lineage(given: argparse.Namespace) -> int:
    from mmdb.lineage.finding import lineage
    from mmdb.report.facts import connected_to_read
    from mmdb.terminal import show_rows

    direction = "down" if given.down else "up"
    with connected_to_read(given.database) as connection:
        most = given.max_depth
        steps = lineage(connection, given.entity, direction, hops=given.hops, max_depth=most)
    rows = [step._asdict() for step in steps]
    if given.json:
        print(json_text(rows))
    else:
        show_rows(f"Lineage of {given.entity}, {direction}", rows, spare=("kind",))
    return 0
