"""Sees to the PostgreSQL that the tests need: finds it, else installs it or says how.

Run as `python -m scripts.system_packages`. It touches no database cluster and starts none.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.server_files import OLDEST_VERSION, NoServer, find_server, installed_servers

# Debian's packages create and start a cluster named "main" unless a file here says no.
CREATECLUSTER = Path("/etc/postgresql-common/createcluster.d/mmdb-tests.conf")


def main() -> int:
    """Return 0 when a usable PostgreSQL is there, 1 when the user must act."""
    try:
        if not any(server.has_plpython for server in installed_servers()):
            _install()
        server = find_server()
    except NoServer as missing:
        print(f"system packages: {missing}", file=sys.stderr)
        return 1
    print(f"==> PostgreSQL {server.version} with PL/Python ({server.bin})")
    return 0


def _install() -> None:
    if not shutil.which("apt-get"):
        raise NoServer(f"Install PostgreSQL {OLDEST_VERSION} or newer and its PL/Python.")
    as_root = _root_prefix()
    if as_root is not None:
        _apt_get(as_root, "update", "-qq")
    packages = _wanted_packages()
    if as_root is None:
        raise NoServer(f"Run as root: apt-get install {' '.join(packages)}")
    print(f"==> Installing {' and '.join(packages)}", flush=True)
    install = ("install", "-qq", "-y", "--no-install-recommends", "--no-upgrade")
    _apt_get(as_root, *install, "postgresql-common")
    with _no_main_cluster(as_root):
        _apt_get(as_root, *install, *packages)


def _root_prefix() -> list[str] | None:
    """Return what to put before a command to run it as root; None where that is not allowed."""
    if os.geteuid() == 0:
        return []
    with suppress(OSError):
        if subprocess.run(["sudo", "-n", "true"], capture_output=True).returncode == 0:
            return ["sudo", "-n"]
    return None


def _wanted_packages() -> list[str]:
    """Return what to install: PL/Python for a server that is there, else the newest of both.

    PL/Python of another patch release would upgrade the server and restart its clusters.
    """
    servers = installed_servers()
    major = servers[0].major if servers else _newest_major()
    server, plpython = f"postgresql-{major}", f"postgresql-plpython3-{major}"
    format = "--showformat=${db:Status-Status} ${Version}"
    status, _, version = _query("dpkg-query", "--show", format, server).partition(" ")
    if status != "installed":
        return [server, plpython]
    if not _query("apt-cache", "show", f"{plpython}={version}"):
        raise NoServer(
            f"apt has no {plpython} for the installed {server} {version}. "
            "A newer one upgrades the server and restarts its clusters. "
            f"If it may, run as root: apt-get install {plpython}"
        )
    return [f"{plpython}={version}"]


def _newest_major() -> int:
    names = _query("apt-cache", "search", "--names-only", "^postgresql-plpython3-[0-9]+$")
    majors = [int(major) for major in re.findall(r"^postgresql-plpython3-(\d+)", names, re.M)]
    if not majors or max(majors) < OLDEST_VERSION:
        raise NoServer(
            f"apt knows no PostgreSQL {OLDEST_VERSION} or newer with PL/Python. "
            "Run apt-get update, or add the repository of the PostgreSQL project "
            "(package postgresql-common has a script for it)."
        )
    return max(majors)


def _query(*command: str) -> str:
    """Return what a command prints, nothing if it fails."""
    done = subprocess.run(command, capture_output=True, text=True)
    return done.stdout.strip() if done.returncode == 0 else ""


def _apt_get(as_root: list[str], *arguments: str) -> None:
    command = [*as_root, "env", "DEBIAN_FRONTEND=noninteractive", "apt-get", *arguments]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        raise NoServer(f"apt-get {arguments[0]} failed:\n{done.stdout}{done.stderr}")


@contextmanager
def _no_main_cluster(as_root: list[str]) -> Iterator[None]:
    with tempfile.NamedTemporaryFile("w", suffix=".conf") as setting:
        setting.write("create_main_cluster = false\n")
        setting.flush()
        install = ["install", "-D", "-m", "644", setting.name, str(CREATECLUSTER)]
        subprocess.run([*as_root, *install], check=True)
    try:
        yield
    finally:
        subprocess.run([*as_root, "rm", "-f", str(CREATECLUSTER)], check=True)


if __name__ == "__main__":
    sys.exit(main())
