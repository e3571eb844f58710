"""The commands that write what other tools read."""

from __future__ import annotations

import argparse
import os
import sys
from dataclasses import asdict

from mmdb.cli.models import Add, WrongUse
from mmdb.cli.options import MODEL, database, option, say


def add_standard_commands(add: Add) -> None:
    """Add openlineage, mlflow, card, parquet and dbt to the parser."""
    about = "Write lineage as OpenLineage events."
    command = add("openlineage", _openlineage, about, _runs(), database())
    command.add_argument("--out", metavar="FILE", help="one event on each line; overwritten")
    command.add_argument("--url", help="of a collector that takes them over HTTP")
    command.add_argument("--jobs", default="mmdb", metavar="NAME", help="namespace of jobs (mmdb)")
    command.add_argument("--hops", action="store_true", help="each hop as a run of its own, too")

    about = "Copy runs and models into an MLflow tracking server."
    command = add("mlflow", _mlflow, about, _runs(), database())
    command.add_argument("--tracking-uri", required=True, metavar="URL", help="http://host:port")
    command.add_argument("--prefix", default="", help="of experiments' and models' names")

    about = "Write the model card of a version, in Markdown."
    command = add("card", _card, about, MODEL, database(json=False))
    command.add_argument("--out", metavar="FILE", help="overwritten; printed if left out")

    command = add("parquet", _parquet, "Write every view to a Parquet file.", database())
    command.add_argument("--out", metavar="FOLDER", required=True, help="files are overwritten")
    command.add_argument("--only", action="append", metavar="VIEW", help="may be given again")

    command = add("dbt", _dbt, "Write the views as a source of dbt.", database(json=False))
    command.add_argument("--out", metavar="FILE", help="overwritten; printed if left out")


def _runs() -> argparse.ArgumentParser:
    command = option("run", nargs="?", help="this run, its dataset and its models")
    command.add_argument("--all", action="store_true", help="all that the database holds")
    token = "the variable with the token to send"
    command.add_argument("--api-key-env", metavar="NAME", help=token)
    return command


def _run(given: argparse.Namespace) -> str | None:
    """Return the run that was named, None for all."""
    if given.all == (given.run is not None):
        raise WrongUse("Name a run, or pass --all.")
    run: str | None = given.run
    return run


def _key(given: argparse.Namespace) -> str | None:
    if given.api_key_env is None:
        return None
    if not os.environ.get(given.api_key_env):
        raise WrongUse(f"The variable {given.api_key_env} is not set.")
    return os.environ[given.api_key_env]


def _openlineage(given: argparse.Namespace) -> int:
    from mmdb.report.facts import connected_to_read
    from mmdb.standards.http_service import post_events, write_events
    from mmdb.standards.openlineage_events import lineage_events

    run, key = _run(given), _key(given)
    if (given.out is None) == (given.url is None):
        raise WrongUse("Pass --out or --url.")
    with connected_to_read(given.database) as connection:
        events = lineage_events(connection, run, jobs=given.jobs, hops=given.hops)
        if given.out is not None:
            count = write_events(events, given.out)
        else:
            count = post_events(events, given.url, key)
    target = given.out or given.url
    return say(given, {"events": count, "to": target}, f"{count:,} events to {target}")


def _mlflow(given: argparse.Namespace) -> int:
    from mmdb.report.facts import connected_to_read
    from mmdb.standards.mlflow_export import export_mlflow

    run, key = _run(given), _key(given)
    with connected_to_read(given.database) as connection:
        copied = export_mlflow(connection, given.tracking_uri, run, key=key, prefix=given.prefix)
    text = (
        f"{copied.runs} runs with {copied.metrics:,} metrics copied, {copied.kept_runs} there "
        f"already; {copied.versions} versions of models copied, {copied.kept_versions} there"
    )
    if not given.json:
        for note in copied.notes:
            print(f"note: {note}", file=sys.stderr)
    return say(given, asdict(copied), text)


def _card(given: argparse.Namespace) -> int:
    from mmdb.report.facts import connected_to_read
    from mmdb.standards.model_card import model_card

    with connected_to_read(given.database) as connection:
        content = model_card(connection, given.model)
    return _write(given.out, content)


def _parquet(given: argparse.Namespace) -> int:
    from mmdb.report.facts import connected_to_read
    from mmdb.standards.view_files import export_parquet

    with connected_to_read(given.database) as connection:
        found = export_parquet(connection, given.out, given.only or ())
    rows, size = sum(f.rows for f in found), sum(f.bytes for f in found)
    text = f"{given.out}: {len(found)} views, {rows:,} rows, {size:,} bytes"
    return say(given, [asdict(file) for file in found], text)


def _dbt(given: argparse.Namespace) -> int:
    from mmdb.report.facts import connected_to_read
    from mmdb.standards.view_files import dbt_sources

    with connected_to_read(given.database) as connection:
        content = dbt_sources(connection)
    return _write(given.out, content)


def _write(file: str | None, content: str) -> int:
    from mmdb.standards.http_service import write_text

    if file is None:
        sys.stdout.write(content)
    else:
        print(f"{file}: {write_text(content, file):,} bytes")
    return 0
