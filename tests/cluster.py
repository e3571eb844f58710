"""A throw-away PostgreSQL whose Python sees this checkout and the packages of this environment.

    with Cluster() as cluster:
        cluster.create_database("trial")
        psycopg.connect(cluster.url("trial"))

It has a directory and a port of its own, keeps its data in memory where there is enough, accepts
connections from this machine only, and is gone with the process that started it (but for its
directories, if that process is killed by SIGKILL; the next cluster frees the memory).
`python -m tests.cluster` starts one by hand.
"""

from __future__ import annotations

import atexit
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import sysconfig
import tempfile
import time
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from types import FrameType
from typing import IO, Self

import psycopg
from psycopg import sql

from mmdb.db.server_programs import find_server
from tests.bench.train.memory import tree
from tests.memory_folder import MemoryFolder, NoRoom
from tests.server_user import as_user, copy_readable, server_owner

ROOT = Path(__file__).resolve().parent.parent
SOURCES = ("mmdb", "sql", "udf", "tests")  # tests: for the factories in tests/broken.py

SETTINGS = {
    "listen_addresses": "127.0.0.1",
    "timezone": "UTC",
    "max_connections": "60",
    "shared_buffers": "256MB",
    "jit": "off",
    # A killed process loses nothing by these two; a power cut would, which no test tries.
    "fsync": "off",
    "full_page_writes": "off",
    "synchronous_commit": "on",
    "log_line_prefix": "%m [%p] %d ",
}
START_TIMEOUT_S = 180
STOP_TIMEOUT_S = 30
DROP_TRIES = 10
READY = ("ready", "standby")  # for clients, in the last line of its pid file


class Cluster:
    """One PostgreSQL server with a data directory of its own, started by the constructor.

    Args:
        settings: server settings, added to or put over `SETTINGS`.
        password: of the superuser; one of its own if left out.
        address: by which it is reached.
        in_memory: whether it may keep its data in memory.
        port: where it listens; a free one if left out.
    Raises:
        ServerMissing: no usable PostgreSQL is installed.
        NoUser: there is no user for it to run as.
        ClusterError: the server did not start; the message ends with its log.
    """

    def __init__(
        self,
        settings: dict[str, str] | None = None,
        *,
        password: str | None = None,
        address: str = "127.0.0.1",
        in_memory: bool = True,
        port: int = 0,
    ) -> None:
        self.server = find_server()
        self.settings = SETTINGS | (settings or {})
        self.password = password or secrets.token_urlsafe(16)
        self.address = address
        self.port = port
        self._owner = server_owner()
        self._creator_pid = os.getpid()
        self._process: subprocess.Popen[bytes] | None = None
        self._session: psycopg.Connection | None = None
        self.directory = Path(tempfile.mkdtemp(prefix="mmdb-cluster-"))
        self._memory = _memory_folder() if in_memory else None
        self.data = (self._memory.path if self._memory else self.directory) / "data"
        _stop_at_exit(self)
        try:
            for folder in {self.directory, self.data.parent}:
                os.chown(folder, self._owner.pw_uid, self._owner.pw_gid)
            self._environment = self._server_environment()
            self._initdb()
            self.start()
        except BaseException:
            self.stop()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def pid(self) -> int:
        """Return the process id of the running server."""
        if self._process is None:
            raise ClusterError("The server does not run.")
        return self._process.pid

    def url(self, database: str = "postgres") -> str:
        """Return the URL by which the superuser reaches `database`."""
        return f"postgresql://postgres:{self.password}@{self.address}:{self.port}/{database}"

    def create_database(self, name: str, template: str = "template1") -> str:
        """Return the URL of a new database, a copy of `template`, which nobody may be using.

        Copying files takes half of the computing that logging their pages does.
        """
        self._execute(
            sql.SQL("CREATE DATABASE {} TEMPLATE {} STRATEGY FILE_COPY").format(
                sql.Identifier(name), sql.Identifier(template)
            )
        )
        return self.url(name)

    def drop_database(self, name: str) -> None:
        """Drop a database, ending the sessions that use it.

        A session that is loading torch ends when it has; the statement waits 5 s for it.
        """
        drop = sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(sql.Identifier(name))
        for _ in range(DROP_TRIES - 1):
            with suppress(psycopg.errors.ObjectInUse):
                return self._execute(drop)
        self._execute(drop)

    def keep_password(self, role: str = "*", password: str = "") -> None:
        """Let the server's user know a role's password, and for all others the superuser's."""
        path = self.directory / ".pgpass"
        path.write_text(f"*:*:*:{role}:{password or self.password}\n*:*:*:*:{self.password}\n")
        path.chmod(0o600)
        os.chown(path, self._owner.pw_uid, self._owner.pw_gid)

    def log_tail(self, lines: int = 40) -> str:
        """Return the last lines of the server's log."""
        log = self.directory / "log"
        return "\n".join(log.read_text(errors="replace").splitlines()[-lines:])

    def start(self) -> None:
        """Start the server on a free port (the same one when it ran before)."""
        for _ in range(3):  # another program may take the port first
            port = self.port or _free_port()
            self._process = self._spawn(port)
            if self._becomes_ready():
                self.port = port
                return
            self._end_process(signal.SIGQUIT)
        raise ClusterError(f"PostgreSQL did not start.\n{self.log_tail()}")

    def halt(self, how: signal.Signals = signal.SIGQUIT) -> None:
        """End the server and keep its data: SIGINT is a clean end, SIGKILL a crash."""
        self._end_process(how)

    def kill(self) -> None:
        """End all its processes at once, as a power cut would."""
        os.kill(self.pid, signal.SIGSTOP)  # it would start others
        doomed = tree([self.pid])
        for pid in doomed:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.halt(signal.SIGKILL)
        deadline = time.monotonic() + STOP_TIMEOUT_S  # they hold memory that the next one needs
        while any(Path(f"/proc/{pid}").exists() for pid in doomed):
            if time.monotonic() > deadline:
                raise ClusterError("Processes of a killed server do not end.")
            time.sleep(0.01)

    def stop(self) -> None:
        """End the server and remove its directory; a second call does nothing."""
        if os.getpid() != self._creator_pid:  # a forked child holds a copy of this object
            return
        self._end_process(signal.SIGQUIT)
        shutil.rmtree(self.directory, ignore_errors=True)
        if self._memory:
            self._memory.remove()
            self._memory = None
        _running.discard(self)

    def _execute(self, statement: sql.Composed) -> None:
        """Execute a statement in a session that is kept: to open one takes longer than most do."""
        if self._session is not None:
            try:
                self._session.execute(statement)
                return
            except psycopg.OperationalError:
                if not self._session.closed:  # a test may have ended all sessions
                    raise
        self._session = psycopg.connect(self.url(), autocommit=True)
        self._session.execute(statement)

    def _initdb(self) -> None:
        password_file = self.directory / "password"
        password_file.write_text(self.password)
        os.chown(password_file, self._owner.pw_uid, self._owner.pw_gid)
        options = ["--username=postgres", f"--pwfile={password_file}", "--auth=scram-sha-256"]
        options += ["--encoding=UTF8", "--locale=C", "--no-sync", "--no-instructions"]
        done = self._run_as_owner([self.server.bin / "initdb", "-D", self.data, *options])
        if done.returncode != 0:
            raise ClusterError(f"initdb failed.\n{done.stderr}")
        password_file.unlink()
        self.keep_password()

    def _spawn(self, port: int) -> subprocess.Popen[bytes]:
        options = self.settings | {
            "port": str(port),
            "unix_socket_directories": str(self.directory),
        }
        command: list[str | Path] = [self.server.bin / "postgres", "-D", self.data]
        for name, value in options.items():
            command += ["-c", f"{name}={value}"]
        if shutil.which("setpriv"):  # Linux: the server goes even if this process is killed
            command = ["setpriv", "--pdeathsig", "QUIT", "--", *command]
        with (self.directory / "log").open("ab") as log:
            return self._run_server(command, log)

    def _run_server(self, command: list[str | Path], log: IO[bytes]) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd=self.directory,
            env=self._environment,
            start_new_session=True,  # Ctrl-C in the terminal is for us alone
            **as_user(self._owner),
        )

    def _becomes_ready(self) -> bool:
        """Return whether the server came up; its pid file says so."""
        process, deadline = self._process, time.monotonic() + START_TIMEOUT_S
        pid_file = self.data / "postmaster.pid"
        while process and process.poll() is None and time.monotonic() < deadline:
            if pid_file.exists():
                lines = pid_file.read_text().split()
                if lines and lines[0] == str(process.pid) and lines[-1] in READY:
                    return True
            time.sleep(0.02)
        return False

    def _end_process(self, how: signal.Signals) -> None:
        process, self._process = self._process, None
        session, self._session = self._session, None
        if session is not None:
            session.close()
        if process is None:
            return
        if process.poll() is None:
            process.send_signal(how)
        try:
            process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def _server_environment(self) -> dict[str, str]:
        """Return a small environment: a PATH with other Pythons on it would mislead PL/Python."""
        gpu = ("CUDA_VISIBLE_DEVICES", "CUBLAS_WORKSPACE_CONFIG")
        kept = ("MMDB_NICE", "MMDB_GROUP_HOST", *gpu)
        libraries = [*self.server.libraries, os.environ.get("LD_LIBRARY_PATH", "")]
        return {name: os.environ[name] for name in kept if name in os.environ} | {
            "HOME": str(self.directory),
            "LANG": "C.UTF-8",
            "LD_LIBRARY_PATH": os.pathsep.join(filter(None, libraries)),
            "PATH": f"{self.server.bin}:/usr/bin:/bin",
            "PYTHONPATH": os.pathsep.join([*map(str, self.python_path), *_more_paths()]),
            "TMPDIR": str(self.directory),  # for the node's cache, which would outlive the server
        }

    @cached_property
    def python_path(self) -> list[Path]:
        """Return the folders for the server's Python: this checkout, this environment's packages.

        What the server's user may not read is copied into the cluster's directory.
        """
        packages = Path(sysconfig.get_path("purelib"))
        if not self._can_read(packages):
            packages = copy_readable(packages, self.directory / "site-packages")
        sources = [ROOT / name for name in SOURCES if (ROOT / name).is_dir()]
        if self._can_read(*sources):
            return [ROOT, packages]
        checkout = self.directory / "checkout"
        for source in sources:
            copy_readable(source, checkout / source.name)
        checkout.chmod(0o755)
        return [checkout, packages]

    def _can_read(self, *folders: Path) -> bool:
        if self._owner.pw_uid == os.getuid():
            return True
        unreadable = ["(", "!", "-readable", "-o", "-type", "d", "!", "-executable", ")"]
        done = self._run_as_owner(
            ["find", *folders, "-name", "__pycache__", "-prune", "-o", *unreadable, "-print"]
        )
        return done.returncode == 0 and not done.stdout

    def _run_as_owner(self, command: list[str | Path]) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command,
            capture_output=True,
            text=True,
            cwd=self.directory,
            env={"PATH": "/usr/bin:/bin", "LANG": "C.UTF-8"},
            **as_user(self._owner),
        )


class ClusterError(Exception):
    """The throw-away server did not do what was asked."""


_running: set[Cluster] = set()


def _more_paths() -> list[str]:
    """Return where this process finds other packages, such as a simulated accelerator's."""
    given = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    return [path for path in given if path and Path(path) != ROOT]


def _memory_folder() -> MemoryFolder | None:
    try:
        return MemoryFolder()
    except NoRoom:
        return None


def _stop_at_exit(cluster: Cluster) -> None:
    if not _running:
        atexit.register(_stop_all)
        for number in (signal.SIGTERM, signal.SIGHUP):
            if signal.getsignal(number) is signal.SIG_DFL:
                signal.signal(number, _stop_all_and_end)
    _running.add(cluster)


def _stop_all() -> None:
    for cluster in tuple(_running):
        cluster.stop()


def _stop_all_and_end(number: int, _: FrameType | None) -> None:
    _stop_all()
    signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)


def _free_port() -> int:
    """Return a port that no outgoing connection gets while a server that restarts is down."""
    while True:
        port = 20_000 + secrets.randbelow(12_000)  # Linux gives those from 32768 on
        with suppress(OSError), socket.socket() as probe:
            probe.bind(("127.0.0.1", port))
            return port


def main() -> None:
    """Start a cluster with the extension plpython3u, print its URL, and stop it at Ctrl-C."""
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job ignores it
    with Cluster() as cluster:
        with psycopg.connect(cluster.url()) as connection:
            connection.execute("CREATE EXTENSION plpython3u")
        print(cluster.url(), flush=True)
        print(f"Log: {cluster.directory / 'log'}. Ctrl-C stops it.", file=sys.stderr, flush=True)
        with suppress(KeyboardInterrupt):
            while True:
                signal.pause()


if __name__ == "__main__":
    main()
