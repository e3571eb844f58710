"""`mmdb bench`: what this machine and this database do."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

from mmdb.cli.models import WrongUse

#: What `mmdb bench` measures.
BENCHES = ("hop", "ingest", "load", "store", "train")
#: Options of the bench `load` alone.
LOAD_OPTIONS = ("minutes", "clients", "rate", "readers", "savers", "workers", "through")


def add_bench_command(add: Any) -> None:
    """Add the command `bench`."""
    bench = add("bench", _bench, "Measure this machine and this database.")
    bench.add_argument("name", choices=BENCHES)
    add_bench_options(bench)
    one, none = at_least(1), at_least(0)
    bench.add_argument("--minutes", type=above_0, help="of load: for how long (5)")
    bench.add_argument("--clients", type=one, help="of load: sessions that predict (32)")
    bench.add_argument("--rate", type=above_0, help="of load: predictions a second, in all (50)")
    bench.add_argument("--readers", type=none, help="of load: sessions that read views (4)")
    bench.add_argument("--savers", type=none, help="of load: sessions that save models (2)")
    workers = "of load: that train meanwhile (one per processor)"
    bench.add_argument("--workers", type=none, help=workers)
    through = "of load: where clients connect, such as a pooler"
    bench.add_argument("--through", metavar="URL", help=through)


def add_bench_options(bench: argparse.ArgumentParser) -> None:
    """Add the options that every bench has."""
    bench.add_argument("--json", metavar="FILE", help="also write the figures to FILE")
    bench.add_argument(
        "--database",
        metavar="URL",
        action="append",
        help="measure this one, may be given again; a fresh DuckDB file if left out",
    )
    small = "about this share of the full size, above 0 and below 1; figures then have no bars"
    bench.add_argument("--share", type=_share, help=small)


def at_least(least: int) -> Callable[[str], int]:
    """Return what reads an option that is an integer of at least `least`."""

    def integer(text: str) -> int:
        if int(text) < least:
            raise argparse.ArgumentTypeError(f"it is {least} or more")
        return int(text)

    return integer


def above_0(text: str) -> float:
    """Read an option that is a number above 0."""
    if not 0 < float(text) < float("inf"):
        raise argparse.ArgumentTypeError("it is above 0")
    return float(text)


def _share(text: str) -> float:
    if not 0 < float(text) <= 1:
        raise argparse.ArgumentTypeError("it is above 0, and 1 at most")
    return float(text)


def _bench(given: argparse.Namespace) -> int:
    own = LOAD_OPTIONS if given.name == "load" else ()
    for option in sorted({*LOAD_OPTIONS} - {*own}):
        if getattr(given, option) is not None:
            raise WrongUse(f"--{option} is of the bench load, not of {given.name}.")
    from mmdb.bench.command import run_bench

    options = {name: getattr(given, name) for name in ("share", *own)}
    return run_bench(given.name, given.database, given.json, options)
