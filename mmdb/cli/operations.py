"""The commands of whoever keeps a database running: doctor and metrics."""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict

from mmdb.cli.models import Add
from mmdb.cli.options import JSON, URL


def add_operation_commands(add: Add) -> None:
    """Add the commands to the parser."""
    doctor = add(
        "doctor", _doctor, "Check everything that can be wrong with a database.", URL, JSON
    )
    doctor.add_argument(
        "--verify",
        action="store_true",
        help="also read every stored byte, and compare it with its hash",
    )

    metrics = add(
        "metrics", _metrics, "Print what a monitor reads, in Prometheus' text format.", URL
    )
    metrics.add_argument(
        "--listen",
        metavar="[HOST:]PORT",
        help="answer GET /metrics there instead, until interrupted; 127.0.0.1 without a host",
    )


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
    print(text, file=sys.stderr, flush=True)


def _metrics(given: argparse.Namespace) -> int:
    from mmdb.standards.prometheus import read_metrics, serve_metrics

    if given.listen is None:
        print(read_metrics(given.url), end="")
    else:
        serve_metrics(
            given.url, given.listen, lambda text: print(text, file=sys.stderr, flush=True)
        )
    return 0
