"""`python -m tests.bench NAME`: experiments that are too long for the test suite."""

from __future__ import annotations

import argparse
import sys

from mmdb.bench.command import show
from mmdb.bench.figures import report, write_json
from tests.bench.search.campaigns import ATTACKS, CAMPAIGNS, search


def main(arguments: list[str] | None = None) -> int:
    """Run an experiment; return 0 if every bar holds, else 1."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description=__doc__)
    names = parser.add_subparsers(dest="name", required=True)
    for name, campaigns, what in (
        ("search", CAMPAIGNS, "search for wrong answers with random cases"),
        ("attack", ATTACKS, "attack a server with the rights of a trainer and of a reader"),
    ):
        one = names.add_parser(name, help=what)
        one.set_defaults(campaigns=list(campaigns))
        one.add_argument("--only", nargs="+", choices=list(campaigns), help="these campaigns alone")
        one.add_argument("--seed", type=int, default=0, help="of the random cases")
        one.add_argument("--cases", type=int, help="of each campaign, in place of its full number")
        one.add_argument("--json", metavar="FILE", help="write the figures here")
    options = parser.parse_args(arguments)
    figures = search(options.only or options.campaigns, seed=options.seed, cases=options.cases)
    show(f"bench {options.name}", figures)
    if options.json:
        write_json(options.json, report(options.name, figures))
    return 0 if all(figure.holds is not False for figure in figures) else 1


if __name__ == "__main__":
    sys.exit(main())
