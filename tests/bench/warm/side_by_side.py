"""Warm starts side by side: mmdb, copies by name, ModelKeeper's semantics and iatransfer.

    python -m tests.bench.warm.side_by_side --folder FOLDER [--only nasbench]
        [--iatransfer FOLDER] [--json FILE]

What is in the folder is not trained again; experiment `warm` with the same `--folder` shares it.
"""

from __future__ import annotations

import argparse
from dataclasses import fields
from pathlib import Path

from mmdb.bench.command import show
from mmdb.bench.figures import report, write_json
from tests.bench.warm.arms import Arm
from tests.bench.warm.bench import ARMS, PARTS, WarmShare, measure
from tests.bench.warm.iatransfer import IaTransfer
from tests.bench.warm.modelkeeper import ModelKeeper


def arms(iatransfer: Path | None, *, as_shipped: bool) -> list[Arm]:
    """Return the arms beside the cold one.

    Args:
        iatransfer: a folder with the package.
        as_shipped: also ModelKeeper's matcher with its division of integers, by which each change
            of a width is a mismatch; it is divided as real numbers otherwise.
    """
    found: list[Arm] = [*ARMS, ModelKeeper(integers=False)]
    if as_shipped:
        found.append(ModelKeeper(integers=True, name="modelkeeper as shipped"))
    if iatransfer:
        found.append(IaTransfer(iatransfer))
    return found


def main() -> None:
    """Train what the folder lacks and print the figures of what was asked for."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--only", choices=list(PARTS), action="append", default=[])
    parser.add_argument("--pairs", type=int)
    parser.add_argument("--seeds", type=int, default=WarmShare().seeds)
    parser.add_argument("--processes", type=int)
    parser.add_argument("--iatransfer", type=Path, help="a folder with the package")
    parser.add_argument("--as-shipped", action="store_true", help="also ModelKeeper's matcher so")
    parser.add_argument("--json", help="also write the figures to this file")
    given = parser.parse_args()
    names = [field.name for field in fields(WarmShare) if field.name in given]
    share = WarmShare(**{name: getattr(given, name) for name in names})
    found = arms(given.iatransfer, as_shipped=given.as_shipped)
    figures = list(measure(share, found, found))
    show("warm starts side by side", figures)
    if given.json:
        write_json(given.json, report("warm", figures))


if __name__ == "__main__":
    main()
