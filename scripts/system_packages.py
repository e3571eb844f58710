"""Sees to what the tests need of the system: finds it, else installs it or says how.

PostgreSQL must be there. Without Chromium the tests of pages in a browser are skipped.
Run as `python -m scripts.system_packages`. It touches no database cluster and starts none.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from mmdb.db.server_programs import OLDEST_VERSION, find_server, installed_servers
from mmdb.errors import ServerMissing
from scripts.apt import CannotInstall, apt_get, has_apt, install, query, root_prefix
from tests.browser import find_browser

# Debian's packages create and start a cluster named "main" unless a file here says no.
CREATECLUSTER = Path("/etc/postgresql-common/createcluster.d/mmdb-tests.conf")
#: Chromium without windows, and so without what draws them.
CHROMIUM = "chromium-headless-shell"


def main() -> int:
    """Return 0 when a usable PostgreSQL is there, 1 when the user must act."""
    try:
        if not any(server.has_plpython for server in installed_servers()):
            _install_postgres()
        server = find_server()
    except (CannotInstall, ServerMissing) as missing:
        print(f"system packages: {missing}", file=sys.stderr)
        return 1
    print(f"==> PostgreSQL {server.version} with PL/Python ({server.bin})", flush=True)
    try:
        print(f"==> Chromium ({find_browser() or _install_chromium()})", flush=True)
    except CannotInstall as missing:
        print(f"==> No Chromium; tests that need it are skipped: {missing}", flush=True)
    return 0


def _install_chromium() -> str:
    if not has_apt():
        raise CannotInstall("Install Chromium or Google Chrome.")
    as_root = root_prefix()
    if as_root is None:
        raise CannotInstall(f"Run as root: apt-get install {CHROMIUM}")
    apt_get(as_root, "update", "-qq")
    if not query("apt-cache", "show", CHROMIUM):
        raise CannotInstall(f"apt has no {CHROMIUM}. Install Chromium or Google Chrome.")
    print(f"==> Installing {CHROMIUM}", flush=True)
    install(as_root, CHROMIUM)
    found = find_browser()
    if found is None:
        raise CannotInstall(f"{CHROMIUM} brought no program that is on the path.")
    return found


def _install_postgres() -> None:
    if not has_apt():
        raise CannotInstall(f"Install PostgreSQL {OLDEST_VERSION} or newer and its PL/Python.")
    as_root = root_prefix()
    if as_root is not None:
        apt_get(as_root, "update", "-qq")
    packages = _wanted_packages()
    if as_root is None:
        raise CannotInstall(f"Run as root: apt-get install {' '.join(packages)}")
    print(f"==> Installing {' and '.join(packages)}", flush=True)
    install(as_root, "postgresql-common")
    with _no_main_cluster(as_root):
        install(as_root, *packages)


def _wanted_packages() -> list[str]:
    """Return what to install: PL/Python for a server that is there, else the newest of both.

    PL/Python of another patch release would upgrade the server and restart its clusters.
    """
    servers = installed_servers()
    major = servers[0].major if servers else _newest_major()
    server, plpython = f"postgresql-{major}", f"postgresql-plpython3-{major}"
    format = "--showformat=${db:Status-Status} ${Version}"
    status, _, version = query("dpkg-query", "--show", format, server).partition(" ")
    if status != "installed":
        return [server, plpython]
    if not query("apt-cache", "show", f"{plpython}={version}"):
        raise CannotInstall(
            f"apt has no {plpython} for the installed {server} {version}. "
            "A newer one upgrades the server and restarts its clusters. "
            f"If it may, run as root: apt-get install {plpython}"
        )
    return [f"{plpython}={version}"]


def _newest_major() -> int:
    names = query("apt-cache", "search", "--names-only", "^postgresql-plpython3-[0-9]+$")
    majors = [int(major) for major in re.findall(r"^postgresql-plpython3-(\d+)", names, re.M)]
    if not majors or max(majors) < OLDEST_VERSION:
        raise CannotInstall(
            f"apt knows no PostgreSQL {OLDEST_VERSION} or newer with PL/Python. "
            "Run apt-get update, or add the repository of the PostgreSQL project "
            "(package postgresql-common has a script for it)."
        )
    return max(majors)


@contextmanager
def _no_main_cluster(as_root: list[str]) -> Iterator[None]:
    with tempfile.NamedTemporaryFile("w", suffix=".conf") as setting:
        setting.write("create_main_cluster = false\n")
        setting.flush()
        placed = ["install", "-D", "-m", "644", setting.name, str(CREATECLUSTER)]
        subprocess.run([*as_root, *placed], check=True)
    try:
        yield
    finally:
        subprocess.run([*as_root, "rm", "-f", str(CREATECLUSTER)], check=True)


if __name__ == "__main__":
    sys.exit(main())
