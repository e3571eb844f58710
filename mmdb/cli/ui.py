"""The command `mmdb ui`."""

from __future__ import annotations

import argparse
import os

from mmdb.cli.models import Add
from mmdb.errors import EngineError


def add_ui_command(add: Add) -> None:
    """Add to the parser."""
    command = add("ui", _ui, "Serve runs, models and lineage as live pages that only read.")
    url = os.environ.get("MMDB_URL")
    command.add_argument(
        "url", nargs="?" if url else None, default=url, help="MMDB_URL if left out"
    )
    command.add_argument("--host", default="127.0.0.1", help="to listen on (127.0.0.1)")
    command.add_argument("--port", type=int, default=8765, help="0 for any that is free (8765)")
    command.add_argument(
        "--token", help="ask for it; made and printed where other machines reach the host"
    )


def _ui(given: argparse.Namespace) -> int:
    try:
        from mmdb.ui.serve import serve
    except ModuleNotFoundError as error:
        if error.name not in ("starlette", "uvicorn"):
            raise
        raise EngineError(
            f"Pages are served by {error.name}, which is not installed.",
            hint="pip install 'mmdb-learn[ui,report]'",
        ) from error

    def say(address: str) -> None:
        print(f"{address}\nStop it with Ctrl+C.", flush=True)

    serve(given.url, given.host, given.port, given.token, say)
    return 0
