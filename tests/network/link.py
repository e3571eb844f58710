"""A cable between a host and the switch: it can be cut, made slow and lossy, and is counted."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


class NoLink(Exception):
    """`ip` did not do what was asked; the message is its own."""


@dataclass(frozen=True, slots=True)
class Traffic:
    """Bytes of a host's frames, with their headers."""

    sent: int
    received: int

    def __sub__(self, earlier: Traffic) -> Traffic:
        return Traffic(self.sent - earlier.sent, self.received - earlier.received)


class Link:
    """A port of the switch and the cable in it.

    A shaped cable ends in a process (`tests.network.shaper`) that passes its frames on late, or not
    at all. `tc netem` does the same inside the kernel, but is a module that small kernels lack.
    """

    def __init__(self, switch: str, port: str) -> None:
        self.port = port
        self._switch = switch
        self._shaper: subprocess.Popen[str] | None = None

    def cut(self) -> None:
        """Let no frame through, in silence: neither end hears of it."""
        ip("link", "set", self.port, "down", namespace=self._switch)

    def mend(self) -> None:
        """Let frames through again."""
        ip("link", "set", self.port, "up", namespace=self._switch)

    def shape(
        self, *, delay_s: float = 0.0, loss: float = 0.0, bytes_per_s: float = 0.0, seed: int = 0
    ) -> None:
        """Make the cable slow or lossy; connections stay open.

        Args:
            delay_s: of each frame, in each direction.
            loss: share of the packets that are dropped, in each direction.
            bytes_per_s: that pass in each direction; 0 for no limit.
            seed: of the losses.
        """
        self.straighten()
        slow, inner = f"{self.port}s", f"{self.port}i"
        self._ip("link", "add", inner, "type", "veth", "peer", "name", slow)
        self._ip("link", "set", inner, "up")
        self._ip("link", "set", self.port, "nomaster")
        arguments = [self.port, inner, str(delay_s), str(loss), str(bytes_per_s), str(seed)]
        command = [sys.executable, "-m", "tests.network.shaper", *arguments]
        self._shaper = subprocess.Popen(
            ["ip", "netns", "exec", self._switch, *command],
            stdin=subprocess.PIPE,  # whose end tells it that this process has ended
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
            start_new_session=True,
        )
        assert self._shaper.stdout is not None
        if not self._shaper.stdout.readline():
            raise NoLink("The shaper did not start.")
        self._ip("link", "set", slow, "master", "switch", "up")

    def straighten(self) -> None:
        """Make a shaped cable plain again."""
        if self._shaper is None:
            return
        shaper, self._shaper = self._shaper, None
        shaper.kill()
        shaper.communicate()
        self._ip("link", "del", f"{self.port}i")
        self._ip("link", "set", self.port, "master", "switch")

    def traffic(self) -> Traffic:
        """Return what the host has sent and received so far."""
        (shown,) = json.loads(self._ip("-s", "-j", "link", "show", "dev", self.port))
        counted = shown["stats64"]
        return Traffic(sent=counted["rx"]["bytes"], received=counted["tx"]["bytes"])

    def _ip(self, *words: str) -> str:
        return ip(*words, namespace=self._switch)


def ip(*words: str, namespace: str | None = None) -> str:
    """Run `ip`, in a namespace if one is given, and return what it prints.

    Raises:
        NoLink
    """
    command = ["ip", *(("-n", namespace) if namespace else ()), *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise NoLink(f"{' '.join(command)}: {done.stderr.strip()}")
    return done.stdout
