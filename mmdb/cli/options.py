"""Options that several commands have, as parents of their parsers."""

from __future__ import annotations

import argparse
import json
import math
import os
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mmdb.api import Database


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


def opened(given: argparse.Namespace) -> AbstractContextManager[Database]:
    """Return the open database that a command names."""
    from mmdb.api import connect  # --help does without it

    return connect(given.database)


def say(given: argparse.Namespace, found: Any, text: str) -> int:
    """Print what was done: JSON if it is asked for, else a text; return the exit code 0."""
    print(json_text(found) if given.json else text)
    return 0


def json_text(found: Any) -> str:
    r"""Return JSON, with what JSON lacks written as PostgreSQL writes it.

    >>> json_text({"a": [float("nan"), -math.inf], "b": b"ab"})
    '{"a": ["NaN", "-Infinity"], "b": "\\\\x6162"}'
    """
    return json.dumps(_plain(found), default=str)


def _plain(value: Any) -> Any:
    match value:
        case float() if not math.isfinite(value):
            return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
        case bytes():
            return f"\\x{value.hex()}"
        case dict():
            return {key: _plain(one) for key, one in value.items()}
        case list() | tuple():
            return [_plain(one) for one in value]
    return value
