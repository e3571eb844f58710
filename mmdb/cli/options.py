"""Options that several commands have, as parents of their parsers."""

from __future__ import annotations

import argparse
import os
from typing import Any


def option(*names: str, **settings: Any) -> argparse.ArgumentParser:
    """Return a parent with one option or argument."""
    parent = argparse.ArgumentParser(add_help=False)
    parent.add_argument(*names, **settings)
    return parent


JSON = option("--json", action="store_true", help="print JSON for machines")
WORKERS = option("--workers", type=int, help="sessions to train with (one per processor)")
MODEL = option("model", help="name, name@version or name@alias")
RUN = option("run")
URL = option("url")


def database(*, required: bool = True, json: bool = True) -> argparse.ArgumentParser:
    """Return the parent with `--database`, by default what MMDB_URL says now, and `--json`."""
    url = os.environ.get("MMDB_URL")
    parent = argparse.ArgumentParser(add_help=False, parents=[JSON] if json else [])
    parent.add_argument(
        "--database",
        metavar="URL",
        default=url,
        required=required and url is None,
        help="postgresql://... or duckdb:///file; MMDB_URL if left out",
    )
    return parent
