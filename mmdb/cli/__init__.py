"""The command `mmdb`. Exit codes: 0 done, 1 failed, 2 wrong use."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from contextlib import closing
from typing import Any

from mmdb.cli.bench import add_bench_command
from mmdb.cli.models import WrongUse, add_commands
from mmdb.cli.options import URL, WORKERS, database, json_text, opened, say
from mmdb.cli.pages import add_lineage_command, add_report_command, add_ui_command
from mmdb.cli.runs import add_plan_commands, add_run_commands
from mmdb.cli.service import add_operation_commands, add_worker_command
from mmdb.cli.standards import add_standard_commands
from mmdb.errors import MmdbError


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    parser = _parser()
    given = parser.parse_args(arguments)
    command: Callable[[argparse.Namespace], int] = given.command
    try:
        return command(given)
    except MmdbError as error:
        from mmdb.terminal import show_error

        show_error(error)
        return 1
    except WrongUse as error:
        print(f"mmdb: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("interrupted; committed hops are kept", file=sys.stderr)
        return 130
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="mmdb", description="Train, keep and explain deep-learning models in your database."
    )
    commands = parser.add_subparsers(metavar="COMMAND", required=True)

    def add(name: str, run: Any, about: str, *parents: Any) -> argparse.ArgumentParser:
        command = commands.add_parser(name, help=about, description=about, parents=parents)
        command.set_defaults(command=run)
        return command

    about = "Train 8 candidates on handwritten digits and show what came out."
    demo = add("demo", _demo, about, WORKERS)
    about = "where to make the table digits; a fresh DuckDB file"
    demo.add_argument("--database", metavar="URL", help=about)

    install = add("install", _install, "Install or upgrade mmdb in a database.", URL)
    about = "leave out PL/Python and mmdb's functions: they then run in the clients"
    install.add_argument("--client", action="store_true", help=about)
    install.add_argument(
        "--engine",
        choices=("postgres", "citus"),
        help="citus spreads the tables over the nodes of a cluster (done by itself on a coordinator"
        " with nodes), postgres keeps them on the one server",
    )
    install.add_argument(
        "--teams",
        action=argparse.BooleanOptionalAction,
        help="each role sees its own datasets, runs and models alone, and what is shared with it",
    )

    add_operation_commands(add)
    add_run_commands(add)

    predict = add("predict", _predict, "Predict every row of a SELECT.", database())
    predict.add_argument("model", help="name or name@version")
    predict.add_argument("query")
    predict.add_argument("--key", help="column that names a row: the dataset's key, or id")
    about = "add the predictions to this table, made as needed"
    predict.add_argument("--into", metavar="TABLE", help=about)

    generate = add("generate", _generate, "Go on with a text by a language model.", database())
    generate.add_argument("model", help="name or name@version")
    generate.add_argument("prompt")
    about = "tokens at most, 50 if left out"
    generate.add_argument("--max-tokens", type=int, default=50, metavar="N", help=about)
    about = "0, the likeliest token each time, if left out; else tokens are drawn"
    generate.add_argument("--temperature", type=float, default=0.0, metavar="T", help=about)
    about = "draw from so many tokens, the likeliest ones"
    generate.add_argument("--top-k", type=int, metavar="K", help=about)
    generate.add_argument("--seed", type=int, default=0, help="of what is drawn")
    generate.add_argument("--time-limit", type=float, metavar="SECONDS")

    add_plan_commands(add)
    add_lineage_command(add)
    add_report_command(add)
    add_ui_command(add)
    add_standard_commands(add)
    add_worker_command(add)
    add_commands(add)

    sql = add("sql", _sql, "Run a statement and print its rows.", database())
    sql.add_argument("statement")

    add_bench_command(add)
    return parser


def _demo(given: argparse.Namespace) -> int:
    from mmdb.cli.demo import run_demo

    run_demo(given.database, given.workers)
    return 0


def _install(given: argparse.Namespace) -> int:
    from mmdb.db.citus import unspread_hint
    from mmdb.db.install import install
    from mmdb.db.url import connect

    mode = install(
        given.url, mode="client" if given.client else None, engine=given.engine, teams=given.teams
    )
    print("mmdb is installed and up to date")
    if mode == "client":
        print("without functions in the server: connect from Python, train with `mmdb worker`")
    with closing(connect(given.url)) as connection:
        hint = unspread_hint(connection)
    if hint and given.engine is None:
        print(hint)
    return 0


def _predict(given: argparse.Namespace) -> int:
    with opened(given) as db:
        if given.into is not None:
            count = db.predict_into(given.model, given.query, given.into, key=given.key)
            found = {"model": given.model, "target": given.into, "rows": count}
            return say(given, found, f"{count} rows added to {given.into}")
        rows = db.predict_query(given.model, given.query, key=given.key)
    return _print_rows(f"Predictions of {given.model}", rows, given.json)


def _generate(given: argparse.Namespace) -> int:
    names = ("max_tokens", "temperature", "top_k", "seed", "time_limit")
    with opened(given) as db:
        found = db.generate(
            given.model, given.prompt, **{name: getattr(given, name) for name in names}
        )
    return say(given, dict(found), f"{given.prompt}{found['generated']}")


def _sql(given: argparse.Namespace) -> int:
    with opened(given) as db:
        return _print_rows("", db.sql(given.statement), given.json)


def _print_rows(title: str, rows: Sequence[Any], as_json: bool) -> int:
    from mmdb.terminal import show_rows

    if as_json:
        print(json_text([dict(row) for row in rows]))
    else:
        show_rows(title, rows)
    return 0
