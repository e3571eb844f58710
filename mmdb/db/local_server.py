"""A PostgreSQL of one user's own, in a folder: nothing is installed, and no other user reaches it.

The server listens at a socket in the folder, which only its user may open; it has no password and
no port. Its database `mmdb` has mmdb's functions, run by this environment's packages.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import quote

import psycopg
from psycopg import sql

from mmdb.db.install import install
from mmdb.db.server_programs import ServerPrograms, find_server, library_path, packaged_server
from mmdb.errors import InvalidInput, ServerMissing, ServerNotStarted

#: Of what is downloaded where this machine has no server that fits.
NEWEST = 18
DATABASE = "mmdb"
_DATA, _LOG, _PROGRAMS, _SETTINGS = "data", "log", "programs", "mmdb.conf"
#: Bytes of a socket's path that systems take, and those that PostgreSQL adds to the folder's.
_LONGEST_PATH, _SOCKET_NAME = 107, len("/.s.PGSQL.5432.lock")
_START_TIMEOUT_S = "60"


def start(folder: Path, version: int | None = None) -> tuple[str, ServerPrograms]:
    """Start the server of a folder, made where there is none; bring mmdb in it up to date.

    Args:
        version: the major one; the folder's own if left out, else the newest that this machine
            has, else the newest of the package.
    Returns:
        The URL of its database, and its programs.
    Raises:
        InvalidInput: the folder's path is too long for a socket, or its server is of another
            version. ServerMissing, ServerNotStarted
    """
    folder = folder.absolute()
    if len(os.fsencode(folder)) + _SOCKET_NAME > _LONGEST_PATH:
        raise InvalidInput(
            f"The path {folder} is too long for a socket.", hint="Name a folder nearer the root."
        )
    if os.geteuid() == 0:
        raise ServerNotStarted("PostgreSQL does not run as root.", hint="Start it as another user.")
    data = folder / _DATA
    made = int((data / "PG_VERSION").read_text()) if (data / "PG_VERSION").exists() else None
    if version is not None and made not in (None, version):
        raise InvalidInput(
            f"The server in {folder} is PostgreSQL {made}.",
            hint="Leave out the version, or name another folder.",
        )
    programs = _programs(folder, made or version)
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(0o700)
    if made is None:
        _init(programs, data)
    if not _runs(programs, data):
        _write_settings(data, folder)
        options = ["--wait", f"--timeout={_START_TIMEOUT_S}", f"--log={folder / _LOG}", "start"]
        _control(programs, data, *options, failed=f"See {folder / _LOG}.")
    _create_database(folder)
    url = _url(folder, DATABASE)
    install(url)
    return url, programs


def stop(folder: Path) -> None:
    """Stop the server of a folder; its sessions end, and its data stay.

    Raises:
        ServerMissing: there is none in the folder. ServerNotStarted: it does not run.
    """
    folder = folder.absolute()
    data = folder / _DATA
    if not (data / "PG_VERSION").exists():
        raise ServerMissing(
            f"There is no server in {folder}.", hint="`mmdb server start` makes one."
        )
    programs = _programs(folder, int((data / "PG_VERSION").read_text()))
    if not _runs(programs, data):
        raise ServerNotStarted(f"The server in {folder} does not run.")
    _control(programs, data, "--wait", "--mode=fast", "stop", failed=f"See {folder / _LOG}.")


def _programs(folder: Path, major: int | None) -> ServerPrograms:
    """Return programs of a major version; of any, where the machine's own are the first choice."""
    try:
        found = find_server()
    except ServerMissing:
        found = None
    if found is not None and major in (None, found.major):
        return found
    return packaged_server(major or NEWEST, folder / _PROGRAMS)


def _init(programs: ServerPrograms, data: Path) -> None:
    """Make the data directory, whole or not at all: until it is renamed it is none."""
    made = data.with_name(f"{data.name}.new")
    shutil.rmtree(made, ignore_errors=True)
    command = [str(programs.bin / "initdb"), "-D", str(made), "--auth=peer", "--encoding=UTF8"]
    command += ["--locale=C", "--data-checksums", "--no-instructions"]
    done = subprocess.run(command, capture_output=True, text=True, env=_environment(programs))
    if done.returncode:
        raise ServerNotStarted(f"initdb failed: {done.stderr.strip()}")
    with (made / "postgresql.conf").open("a") as settings:
        settings.write(f"include '{_SETTINGS}'\n")
    made.rename(data)


def _write_settings(data: Path, folder: Path) -> None:
    """Write where the server listens, anew each time: the folder may have been moved."""
    quoted = str(folder).replace("'", "''")
    lines = [
        "listen_addresses = ''",
        f"unix_socket_directories = '{quoted}'",
        "unix_socket_permissions = 0700",
    ]
    (data / _SETTINGS).write_text("\n".join(lines) + "\n")


def _runs(programs: ServerPrograms, data: Path) -> bool:
    command = [str(programs.bin / "pg_ctl"), "-D", str(data), "status"]
    done = subprocess.run(command, capture_output=True, env=_environment(programs))
    return done.returncode == 0


def _control(programs: ServerPrograms, data: Path, *options: str, failed: str) -> None:
    # The server keeps what it is started with open: its output goes to the log.
    done = subprocess.run(
        [str(programs.bin / "pg_ctl"), "-D", str(data), *options],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=_environment(programs),
    )
    if done.returncode:
        raise ServerNotStarted(f"The server in {data.parent} does not do as told.", hint=failed)


def _environment(programs: ServerPrograms) -> dict[str, str]:
    """Return a small environment; a PATH with other Pythons on it would mislead PL/Python."""
    found = (find_spec(name) for name in ("mmdb", "torch"))
    packages = [str(Path(one.origin).parents[1]) for one in found if one and one.origin]
    return {
        "HOME": str(Path.home()),
        "LANG": "C.UTF-8",
        "LD_LIBRARY_PATH": library_path(programs.libraries),
        "PATH": f"{programs.bin}:/usr/bin:/bin",
        "PYTHONPATH": os.pathsep.join(dict.fromkeys(packages)),
    }


def _url(folder: Path, database: str) -> str:
    return f"postgresql:///{database}?host={quote(str(folder))}"


def _create_database(folder: Path) -> None:
    with psycopg.connect(_url(folder, "postgres"), autocommit=True) as connection:
        known = connection.execute("SELECT FROM pg_database WHERE datname = %s", [DATABASE])
        if known.fetchone() is None:
            name = sql.Identifier(DATABASE)
            connection.execute(sql.SQL("CREATE DATABASE {}").format(name))
