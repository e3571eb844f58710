"""The user that a throw-away server runs as, and files that it can read."""

from __future__ import annotations

import os
import pwd
import shutil
from contextlib import suppress
from pathlib import Path
from typing import TypedDict


class NoUser(Exception):
    """This machine has no user that PostgreSQL would run as."""


def server_owner() -> pwd.struct_passwd:
    """Return the user that the server runs as: this one, unless it is root, which it refuses."""
    if os.geteuid() != 0:
        return pwd.getpwuid(os.geteuid())
    for name in ("postgres", "nobody"):
        try:
            return pwd.getpwnam(name)
        except KeyError:
            continue
    raise NoUser("PostgreSQL refuses to run as root; create a user named postgres.")


class User(TypedDict, total=False):
    """Arguments of `subprocess` that choose a user."""

    user: int
    group: int
    extra_groups: list[int]


def as_user(user: pwd.struct_passwd) -> User:
    """Return the arguments that make `subprocess` run a program as `user`."""
    if user.pw_uid == os.geteuid():
        return {}
    return {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}


def copy_readable(source: Path, target: Path) -> Path:
    """Return `target`, a copy of a folder that every user can read."""
    shutil.copytree(source, target, copy_function=_link_or_copy)
    for folder, _, _ in os.walk(target):
        os.chmod(folder, 0o755)
    return target


def _link_or_copy(source: str, target: str) -> None:
    """Link a file that every user can read already; copy any other."""
    if os.stat(source).st_mode & 0o004:
        with suppress(OSError):  # not across file systems
            os.link(source, target)
            return
    shutil.copy2(source, target)  # with its time, by which Python finds compiled modules valid
    os.chmod(target, 0o644)
