"""Commands of whoever keeps a database running: server, worker, doctor and metrics."""

from __future__ import annotations

import argparse
import json
import math
import os
import signal
from dataclasses import asdict
from pathlib import Path

from mmdb.cli.models import Add, WrongUse
from mmdb.cli.options import JSON, URL
from mmdb.errors import DeviceMissing, InvalidName, NotInstalled, WrongUrl


def add_worker_command(add: Add) -> None:
    """Add the command to the parser."""
    command = add("worker", _worker, "Serve the runs that are submitted, until it is stopped.")
    command.add_argument("url", help="postgresql://...")
    about = "cpu, cuda:0, ...; may be given again (cpu)"
    command.add_argument("--device", action="append", metavar="D", help=about)
    about = "sessions on the CPU (one per processor)"
    command.add_argument("--slots", type=int, metavar="N", help=about)
    about = (
        "where hops compute: in the server, or in processes of this machine "
        "(server, where the database has mmdb's functions)"
    )
    command.add_argument("--mode", choices=("server", "client"), help=about)
    command.add_argument("--name", help="of this process; no other may have it (host-pid)")
    about = (
        "postgresql://ann@...: a login whose schedules are served, too, with its rights alone; "
        "may be given again"
    )
    command.add_argument("--schedules", action="append", metavar="URL", default=[], help=about)
    about = "seconds that hops under way have left after SIGTERM (60)"
    command.add_argument("--grace", type=float, default=60.0, metavar="S", help=about)
    command.add_argument("--once", action="store_true", help="end when all that is submitted is")


def _worker(given: argparse.Namespace) -> int:
    devices = slots_of(given.device, given.slots)
    if not 0 <= given.grace < math.inf:
        raise WrongUse(f"--grace is {given.grace}; it is a number of seconds.")
    _check_database(given.url)
    from mmdb.data.names import check_name
    from mmdb.plan.auto_strategy import decider
    from mmdb.train.drive.worker_process import WorkerProcess

    try:
        if given.name is not None:
            check_name(given.name)
        process = WorkerProcess(
            given.url,
            devices,
            name=given.name,
            mode=given.mode,
            grace_s=given.grace,
            say=_say,
            decide=decider(say=_say),
            schedules=given.schedules,
        )
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda number, frame: process.stop())
        process.run(once=given.once)
    except (DeviceMissing, InvalidName) as error:
        raise WrongUse(str(error)) from error
    return 0


def slots_of(devices: list[str] | None, slots: int | None) -> list[str]:
    """Return the device of each slot: one for a GPU, `slots` for the CPU.

    >>> slots_of(["cuda:0", "cuda:1"], None), slots_of(["cpu", "cuda:0"], 2)
    (['cuda:0', 'cuda:1'], ['cpu', 'cpu', 'cuda:0'])
    """
    chosen = devices or ["cpu"]
    if len(set(chosen)) < len(chosen):
        raise WrongUse("A --device is given twice.")
    if slots is not None and (slots < 1 or "cpu" not in chosen):
        raise WrongUse("--slots is a number from 1, of sessions on the CPU; a GPU has one session.")
    count = slots or os.cpu_count() or 1
    return [d for device in chosen for d in [device] * (count if device == "cpu" else 1)]


def _check_database(url: str) -> None:
    """Check that there is a PostgreSQL with mmdb of this version.

    Raises:
        WrongUrl, NotInstalled, MigrationMismatch
    """
    from mmdb.db.check import shown
    from mmdb.db.install import is_up_to_date
    from mmdb.db.postgres import PostgresConnection

    if not url.startswith(("postgresql://", "postgres://")):
        raise WrongUrl(
            f"{shown(url)!r} is not PostgreSQL: a DuckDB file belongs to one process.",
            hint="Train on DuckDB by `mmdb train RUN`, which starts worker processes of its own.",
        )
    connection = PostgresConnection(url)
    try:
        if not is_up_to_date(connection):
            raise NotInstalled("mmdb in this database is of another version than this package.")
    finally:
        connection.close()


def add_operation_commands(add: Add) -> None:
    """Add the commands to the parser."""
    about = "Start or stop a PostgreSQL of your own in a folder, with mmdb in it."
    server = add("server", _server, about)
    server.add_argument("action", choices=("start", "stop"))
    about = "where it keeps everything; made as needed"
    server.add_argument("folder", type=Path, metavar="DIR", help=about)
    about = (
        "of PostgreSQL, such as 18 (what this machine has, else the newest, which is downloaded)"
    )
    server.add_argument("--version", type=int, metavar="N", help=about)

    about = "Check everything that can be wrong with a database."
    doctor = add("doctor", _doctor, about, URL, JSON)
    about = "also read every stored byte, and compare it with its hash"
    doctor.add_argument("--verify", action="store_true", help=about)

    about = "Print what a monitor reads, in Prometheus' text format."
    metrics = add("metrics", _metrics, about, URL)
    about = "answer GET /metrics there instead, until interrupted; 127.0.0.1 without a host"
    metrics.add_argument("--listen", metavar="[HOST:]PORT", help=about)


def _server(given: argparse.Namespace) -> int:
    from mmdb.db.local_server import start, stop

    if given.action == "stop":
        stop(given.folder)
        return 0
    url, programs = start(given.folder, given.version)
    print(f"PostgreSQL {programs.version} with mmdb runs in {given.folder}")
    print(f"export MMDB_URL='{url}'")
    print(f"{programs.bin / 'psql'} '{url}'")
    return 0


def _doctor(given: argparse.Namespace) -> int:
    from mmdb.db.doctor import examine
    from mmdb.terminal import show_checks

    checks = examine(given.url)
    if given.verify:
        from mmdb.store.verify import verify_at

        checks += verify_at(given.url)
    if given.json:
        print(json.dumps([asdict(check) for check in checks], indent=2))
    else:
        show_checks(checks)
    return 0 if all(check.ok for check in checks) else 1


def _say(text: str) -> None:
    from mmdb.terminal.output import errors

    line = " ".join(text.splitlines())  # a name that holds several would be read as lines of mmdb's
    errors.print(line, markup=False, highlight=False, soft_wrap=True)


def _metrics(given: argparse.Namespace) -> int:
    from mmdb.standards.prometheus import read_metrics, serve_metrics

    if given.listen is None:
        print(read_metrics(given.url), end="")
    else:
        serve_metrics(given.url, given.listen, _say)
    return 0
