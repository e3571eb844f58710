"""Programs of the environments that `scripts/bi_environments.py` makes, and how tests run them.

What they bring cannot lie beside mmdb's own packages: Superset needs SQLAlchemy 1.4, MLflow
another pyarrow. So a test runs a client there as a script, which prints JSON.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.cluster import ROOT

CLIENTS = Path(__file__).with_name("clients")
START_S, STOP_S = 120.0, 20.0


def program(environment: str, name: str) -> Path:
    """Return a program of `.venv-ENVIRONMENT`.

    Raises:
        AssertionError: it is not there.
    """
    path = ROOT / f".venv-{environment}" / "bin" / name
    assert path.exists(), f"{path} is missing. Run: .venv/bin/python -m scripts.bi_environments"
    return path


def ask(environment: str, script: str, *arguments: str, limit_s: float = 120) -> Any:
    """Run a script of `clients/` with the Python of an environment; return the JSON it prints."""
    python = program(environment, "python")
    return json.loads(output(python, CLIENTS / script, *arguments, limit_s=limit_s))


def output(
    *command: str | Path,
    limit_s: float = 120,
    folder: Path | None = None,
    variables: Mapping[str, str] | None = None,
) -> str:
    """Run a command, which must succeed, and return what it prints."""
    done = subprocess.run(
        command,
        cwd=folder,
        env=outside() | dict(variables or {}),
        capture_output=True,
        text=True,
        timeout=limit_s,
    )
    assert done.returncode == 0, f"{command}: {done.stdout[-4000:]}{done.stderr[-4000:]}"
    return done.stdout


def outside() -> dict[str, str]:
    """Return this process's variables without those that would lead to mmdb's environment."""
    mine = {"MMDB_URL", "PYTHONPATH", "VIRTUAL_ENV"}
    return {name: value for name, value in os.environ.items() if name not in mine}


class Service:
    """A server of an environment on a free port of the loopback address; a context.

    Args:
        command: starts it; `{port}` in it stands for the port.
        log: the file that takes what it prints.
    """

    def __init__(
        self, *command: str | Path, log: Path, variables: Mapping[str, str] | None = None
    ) -> None:
        self.port = _free_port()
        self.log = log
        with log.open("ab") as file:
            self._process = subprocess.Popen(
                [str(part).replace("{port}", str(self.port)) for part in command],
                cwd=log.parent,
                env=outside() | dict(variables or {}),
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=file,
            )

    def __enter__(self) -> Service:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        try:
            self._process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    @property
    def url(self) -> str:
        """Return where it listens."""
        return f"http://127.0.0.1:{self.port}"

    def wait(self, limit_s: float = START_S) -> None:
        """Return when it accepts connections.

        Raises:
            AssertionError: it ended before, or does not in time; the message ends with its log.
        """
        deadline = time.monotonic() + limit_s
        while time.monotonic() < deadline and self._process.poll() is None:
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", self.port)) == 0:
                    return
            time.sleep(0.1)
        raise AssertionError(f"{self.url} does not answer.\n{self.log.read_text()[-4000:]}")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
