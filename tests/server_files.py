"""Finds a PostgreSQL server with PL/Python among the programs of this machine."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

OLDEST_VERSION = 15


class NoServer(Exception):
    """This machine has no PostgreSQL that the tests can use; the message says what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerFiles:
    """One installed PostgreSQL."""

    bin: Path
    version: str  # "15.20"
    extensions: Path  # the folder of control files
    has_plpython: bool
    python_version: str | None  # "3.11", of the libpython that PL/Python is linked with

    @property
    def major(self) -> int:
        """Return the major version."""
        return int(self.version.split(".")[0])


def find_server() -> ServerFiles:
    """Return the newest usable server.

    Raises:
        NoServer: none is installed with PL/Python, or it runs another Python than this one.
    """
    usable = [server for server in installed_servers() if server.has_plpython]
    if not usable:
        raise NoServer(
            f"There is no PostgreSQL {OLDEST_VERSION} or newer with PL/Python. "
            "Run: .venv/bin/python -m scripts.system_packages"
        )
    ours = f"{sys.version_info.major}.{sys.version_info.minor}"
    for server in usable:
        if server.python_version in (ours, None):
            return server
    theirs = usable[0].python_version
    raise NoServer(
        f"PostgreSQL {usable[0].version} runs Python {theirs}, this environment Python {ours}; "
        "packages with compiled parts need the same. "
        f"Run: make clean && make setup PYTHON=/usr/bin/python{theirs}"
    )


def installed_servers() -> list[ServerFiles]:
    """Return the servers of this machine that are new enough, newest first."""
    servers = {server.bin: server for server in map(_describe, _bin_directories()) if server}
    return sorted(servers.values(), key=lambda server: server.major, reverse=True)


def _bin_directories() -> Iterator[Path]:
    named = os.environ.get("PG_CONFIG") or shutil.which("pg_config")
    if named:
        with suppress(subprocess.CalledProcessError):  # Debian's is a script that may find none
            yield Path(_ask(named, "--bindir"))
    for pattern in ("lib/postgresql/*/bin", "pgsql-*/bin"):  # Debian; Red Hat
        yield from Path("/usr").glob(pattern)


def _describe(bin_directory: Path) -> ServerFiles | None:
    pg_config = bin_directory / "pg_config"
    programs = [pg_config, bin_directory / "postgres", bin_directory / "initdb"]
    if not all(program.exists() for program in programs):
        return None
    version = _ask(pg_config, "--version").split()[1]
    major = re.match(r"\d+", version)
    if major is None or int(major[0]) < OLDEST_VERSION:
        return None
    extensions = Path(_ask(pg_config, "--sharedir"), "extension")
    return ServerFiles(
        bin=bin_directory.resolve(),
        version=version,
        extensions=extensions,
        has_plpython=(extensions / "plpython3u.control").exists(),
        python_version=_linked_python(Path(_ask(pg_config, "--pkglibdir"), "plpython3.so")),
    )


def _linked_python(library: Path) -> str | None:
    """Return the "3.x" of the libpython that `library` loads; None where ldd cannot tell."""
    if not library.exists() or not shutil.which("ldd"):
        return None
    match = re.search(r"libpython(3\.\d+)", _ask("ldd", library))
    return match[1] if match else None


def _ask(*command: str | Path) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()
