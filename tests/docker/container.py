"""What a container of docker/Dockerfile would hold, in a folder of this machine.

The steps of the Dockerfile are scripts. Here they run without Docker: those that make the image
into a throw-away prefix, those that run in a container as a user that is not root, with the
variables that the Dockerfile sets.
"""

from __future__ import annotations

import os
import pwd
import re
import secrets
import shutil
import signal
import subprocess
import sys
import sysconfig
import tempfile
import time
from pathlib import Path
from typing import Self
from urllib.parse import quote

from mmdb.db.server_programs import find_server
from tests.cluster import ROOT
from tests.server_user import as_user, copy_readable, server_owner

DOCKER = ROOT / "docker"
ENTRY = DOCKER / "entry"
HERE = "here.pth"  # names the folder of the packages that are here
_START_S = 180
_SETTING = re.compile(r"^(?:ENV|   ) (\w+)=(\S+)", re.MULTILINE)


def dockerfile_variables(dockerfile: Path) -> dict[str, str]:
    """Return what the ENV of a Dockerfile sets."""
    return dict(_SETTING.findall(dockerfile.read_text()))


def make_prefix(prefix: Path) -> None:
    """Run the step that makes the environment, on the packages that are here, without a network."""
    packages = Path(sysconfig.get_path("purelib"))
    if not _can_enter(packages):
        packages = copy_readable(packages, prefix.parent / "packages")
    run(sys.executable, "-m", "venv", "--without-pip", prefix)
    inside = prefix / "lib" / f"python{sys.version_info.major}.{sys.version_info.minor}"
    (inside / "site-packages" / HERE).write_text(f"{packages}\n")
    done = run(DOCKER / "install-mmdb.sh", prefix, PIP_NO_INDEX="1", TORCH_INDEX_URL="file:///none")
    assert done.returncode == 0, done.stderr
    shutil.copytree(ENTRY, prefix / "entry")


def _can_enter(folder: Path) -> bool:
    """Return whether the server's user may: not every home is open to it."""
    return subprocess.run(["test", "-x", folder], **as_user(server_owner())).returncode == 0


def run(*command: str | Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run a command that makes an image, as this user."""
    environment = os.environ | {"PATH": f"{find_server().bin}:/usr/bin:/bin"} | variables
    return subprocess.run(
        command, capture_output=True, text=True, env=environment, cwd="/", timeout=120
    )


class Container:
    """A folder that stands for one container's volume, and the server in it.

    Args:
        prefix: what `make_prefix` made.
        settings: of the server.
        passwords: of the roles, as another container has them; new ones if left out.
    """

    def __init__(
        self,
        prefix: Path,
        settings: dict[str, str] | None = None,
        passwords: dict[str, str] | None = None,
    ) -> None:
        self.port = str(20_000 + secrets.randbelow(12_000))
        self.owner: pwd.struct_passwd = server_owner()
        self.volume = Path(tempfile.mkdtemp(prefix="mmdb-docker-"))
        self.log = self.volume / "log"
        self._settings = {"listen_addresses": "127.0.0.1", "fsync": "off"} | (settings or {})
        self._process: subprocess.Popen[bytes] | None = None
        for name in ("secrets", "sockets"):
            (self.volume / name).mkdir()
        self.passwords = passwords or {
            # with the characters that mean something in password files and in SQL
            who: f"{secrets.token_urlsafe(9)}:\\'"
            for who in ("postgres", "worker", "reader")
        }
        for who, password in self.passwords.items():
            path = self.volume / "secrets" / f"{who}_password"
            path.write_text(f"{password}\n")
            path.chmod(0o644)
        here = {
            "/opt/mmdb": str(prefix),
            "/var/lib/postgresql": str(self.volume),
            "/var/run/postgresql": str(self.volume / "sockets"),
            "$PATH": f"{find_server().bin}:/usr/bin:/bin",
        }
        self.variables = {"LANG": "C.UTF-8", "HOME": str(self.volume)}
        for name, value in dockerfile_variables(DOCKER / "Dockerfile").items():
            for there, instead in here.items():
                value = value.replace(there, instead)
            self.variables[name] = value
        packages = (prefix / "packages" / HERE).read_text().strip()
        self.variables["PYTHONPATH"] += f":{packages}"
        self.variables["PGPORT"] = self.port
        for path in (self.volume, *self.volume.iterdir()):
            os.chown(path, self.owner.pw_uid, self.owner.pw_gid)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop(signal.SIGQUIT)
        shutil.rmtree(self.volume, ignore_errors=True)

    @property
    def pid(self) -> int:
        """Return the process id of the container's first process."""
        assert self._process is not None
        return self._process.pid

    def entry(self, name: str) -> str:
        """Return the path of a script of the image's entry."""
        return f"{self.variables['PATH'].split(':')[0]}/{name}"

    def secret(self, name: str) -> str:
        """Return the path of a file with a password."""
        return str(self.volume / "secrets" / name)

    def url(self, role: str, password: str | None = None) -> str:
        """Return the URL by which a login reaches the database from outside."""
        of_role = {"postgres": "postgres", "worker": "worker", "dashboard": "reader"}[role]
        quoted = quote(password or self.passwords[of_role])
        return f"postgresql://{role}:{quoted}@127.0.0.1:{self.port}/shop"

    def start(self, **variables: str) -> None:
        """Run the image's entry and command, and wait until it is healthy."""
        given = {"POSTGRES_PASSWORD_FILE": self.secret("postgres_password")} | variables
        options = [text for pair in self._settings.items() for text in ("-c", "=".join(pair))]
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                ["with-passwords.sh", "serve.sh", *options],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=self.variables | given,
                cwd=self.volume,
                **as_user(self.owner),
            )
        deadline = time.monotonic() + _START_S
        while self.run("healthy.sh").returncode != 0:
            assert self._process.poll() is None and time.monotonic() < deadline, self.log_text()
            time.sleep(0.1)

    def stop(self, how: signal.Signals = signal.SIGINT) -> None:
        """End the server as Docker does: SIGINT is the image's stop signal."""
        process, self._process = self._process, None
        if process is not None:
            process.send_signal(how)
            process.wait(120)

    def run(self, *command: str, **variables: str) -> subprocess.CompletedProcess[str]:
        """Run a command in the container, as its user."""
        return subprocess.run(
            command,
            capture_output=True,
            text=True,
            env=self.variables | variables,
            cwd=self.volume,
            timeout=120,
            **as_user(self.owner),
        )

    def install(self, **variables: str) -> subprocess.CompletedProcess[str]:
        """Run what the service `install` of the compose files runs."""
        given = {
            "PGHOST": "127.0.0.1",
            "PGDATABASE": "shop",
            "PGPASSFILE": str(self.volume / "sockets" / "passwords-of-install"),
            "LOGINS": f"postgres={self.secret('postgres_password')}",
            "WORKER_PASSWORD_FILE": self.secret("worker_password"),
            "READER_PASSWORD_FILE": self.secret("reader_password"),
        }
        return self.run("with-passwords.sh", "install.sh", **(given | variables))

    def log_text(self) -> str:
        """Return all that the container has written."""
        return self.log.read_text(errors="replace")
