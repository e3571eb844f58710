"""A server that has torch loaded: its sessions, which are forked from it, need not do it each."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from mmdb.db.server_programs import find_server

_SOURCE = Path(__file__).with_name("preload.c")


def preloaded(folder: Path) -> dict[str, str]:
    """Return the settings of such a server; none where it cannot be had, which costs time alone.

    Args:
        folder: where the library is made, which the server's user may read.
    """
    server, compiler = find_server(), shutil.which("cc")
    asked = [str(server.bin / "pg_config"), "--includedir-server"]
    done = subprocess.run(asked, capture_output=True, text=True)
    headers = Path(done.stdout.strip())
    major, minor = map(int, (server.python_version or "3.12").split("."))
    if not compiler or not (headers / "postgres.h").exists() or (major, minor) >= (3, 12):
        return {}
    library = folder / "preload.so"
    command = [compiler, "-O1", "-Wall", "-fPIC", "-shared", f"-I{headers}", "-o"]
    done = subprocess.run([*command, str(library), str(_SOURCE)], capture_output=True, text=True)
    return {} if done.returncode else {"shared_preload_libraries": str(library.with_suffix(""))}
