"""The command `mmdb ui`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mmdb.cli.models import Add


def add_ui_command(
    add: Add, add_database: Callable[..., None], add_json: Callable[[Any], None]
) -> None:
    """Add to the parser."""
