"""Debian's package manager, for whoever may use it."""

from __future__ import annotations

import os
import shutil
import subprocess
from contextlib import suppress


class CannotInstall(Exception):
    """Something is not installed; the message says why, or what to do."""


def has_apt() -> bool:
    """Whether packages are apt's here."""
    return shutil.which("apt-get") is not None


def root_prefix() -> list[str] | None:
    """Return what to put before a command to run it as root; None where that is not allowed."""
    if os.geteuid() == 0:
        return []
    with suppress(OSError):
        if subprocess.run(["sudo", "-n", "true"], capture_output=True).returncode == 0:
            return ["sudo", "-n"]
    return None


def query(*command: str) -> str:
    """Return what a command prints, nothing if it fails."""
    done = subprocess.run(command, capture_output=True, text=True)
    return done.stdout.strip() if done.returncode == 0 else ""


def apt_get(as_root: list[str], *arguments: str) -> None:
    """Run apt-get; it asks nothing.

    Raises:
        CannotInstall: it fails.
    """
    command = [*as_root, "env", "DEBIAN_FRONTEND=noninteractive", "apt-get", *arguments]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        raise CannotInstall(f"apt-get {arguments[0]} failed:\n{done.stdout}{done.stderr}")


def install(as_root: list[str], *packages: str) -> None:
    """Install packages, and of others only what they need.

    Raises:
        CannotInstall: apt-get fails.
    """
    apt_get(as_root, "install", "-qq", "-y", "--no-install-recommends", "--no-upgrade", *packages)
