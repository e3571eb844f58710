"""The doctor's look at a server's Python: does it find mmdb and the packages that mmdb needs?"""

from __future__ import annotations

import json
import re
import sys
import sysconfig
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import TypedDict

from mmdb.db.check import Check, as_postgres
from mmdb.db.install import is_installed
from mmdb.db.postgres import PostgresConnection
from mmdb.db.queries import load
from mmdb.errors import MmdbError, stops_the_caller

OLDEST = (3, 11)
#: The folder that holds this mmdb: a checkout, or an environment's site-packages.
_OURS = Path(__file__).resolve().parents[2]

_Q = load("doctor")


class Package(TypedDict):
    """A package in the server's Python."""

    version: str  # empty where its metadata is not there
    folder: str
    error: str  # empty where it was imported


class PythonProbe(TypedDict):
    """The server's Python, as the query `probe_python` describes it."""

    python: list[int]  # major, minor
    site: str  # the folder where its packages and .pth files go
    packages: dict[str, Package]


def server_python(connection: PostgresConnection) -> Iterator[Check]:
    """Yield the checks of the server's Python; none where there is no PL/Python to ask."""
    extension = connection.rows(load("install").find_extension)
    (role,) = connection.rows(_Q.find_role)
    if not extension:
        return
    if role["is_superuser"]:
        probe = _probe(connection)
        yield from judge(probe, where=_where_to_set_path(connection, probe["site"]))
    elif extension[0]["installed"] and is_installed(connection):
        yield _warm_up(connection)


def _probe(connection: PostgresConnection) -> PythonProbe:
    """Import the packages in a session of the server; leaves no trace."""
    with connection.raw.transaction(force_rollback=True):
        if not connection.rows(load("install").find_extension)[0]["installed"]:
            connection.run(load("install").create_extension)  # which a replica refuses
        connection.run(_Q.probe_python)
        found: PythonProbe = json.loads(connection.rows(_Q.read_probe)[0]["found"])
    return found


def judge(probe: PythonProbe, *, where: str) -> Iterator[Check]:
    """Yield the checks of what was found in the server's Python.

    Args:
        where: how to put the folders of this Python on the server's path.
    """
    found = tuple(probe["python"])
    python, oldest = (".".join(map(str, numbers)) for numbers in (found, OLDEST))
    mend = (
        f"mmdb needs Python {oldest} or newer in the server: move to a system whose plpython3u is "
        "linked with one; `ldd $(pg_config --pkglibdir)/plpython3.so` shows which."
    )
    ok = found >= OLDEST
    yield Check(name="server Python", ok=ok, detail=f"Python {python}", mend="" if ok else mend)
    for name, package in probe["packages"].items():
        detail, mend = _judge_package(name, package, python, where)
        yield Check(name=f"{name} in the server", ok=not mend, detail=detail, mend=mend)


def _judge_package(name: str, package: Package, python: str, where: str) -> tuple[str, str]:
    """Return the detail of a package's check, and how to mend it where it is wrong."""
    if package["error"]:
        return package["error"], _mend_import(name, package["error"], python, where)
    detail = f"{package['version'] or 'unknown version'} from {package['folder']}"
    ours = version("mmdb-learn" if name == "mmdb" else name)
    if name not in ("mmdb", "torch") or _release(package["version"]) == _release(ours):
        return detail, ""
    mend = f"Remove {package['folder']} on the server. {where}"
    if name == "torch":
        mend = (
            f"Install torch {_release(ours)} there, or {_release(package['version'])} here: a hop "
            "gives the same bits only by the same build, so a replay in one place of what was "
            "trained in the other would fail."
        )
    return f"{detail}; here it is {ours}", mend


def _release(number: str) -> str:
    """Return a version without the build that it was made for.

    >>> _release("2.13.0+cpu")
    '2.13.0'
    """
    return number.partition("+")[0]


def _mend_import(name: str, error: str, python: str, where: str) -> str:
    here = f"{sys.version_info.major}.{sys.version_info.minor}"
    if name == "mmdb" or (python == here and f"No module named '{name}'" in error):
        return where
    return (
        f"{name} has compiled parts, made for one Python: run `python{python} -m venv /opt/mmdb` "
        "on the server, install mmdb there as you did here, and put "
        f"/opt/mmdb/lib/python{python}/site-packages on the server's path. {where}"
    )


def _where_to_set_path(connection: PostgresConnection, site: str) -> str:
    name = connection.rows(_Q.read_cluster_name)[0]["name"]
    major = connection.raw.info.server_version // 10000
    cluster = name if re.fullmatch(r"\d+/[\w.-]+", name) else f"{major}/main"
    path = ":".join(dict.fromkeys([str(_OURS), sysconfig.get_path("purelib")]))
    return (
        f"Either add the line `PYTHONPATH = '{path}'` "
        f"to /etc/postgresql/{cluster}/environment and run "
        f"`sudo pg_ctlcluster {cluster.replace('/', ' ')} restart`, or run "
        f"`echo '{path}' | tr : '\\n' | sudo tee {site}/mmdb.pth` and open a new session; the "
        "server's user must be able to read these folders."
    )


def _warm_up(connection: PostgresConnection) -> Check:
    """Ask a function of mmdb, as a role that may not run Python of its own."""
    name = "packages in the server"
    try:
        (row,) = connection.rows(load("api").warm_up, device="cpu")
    except MmdbError as error:
        if stops_the_caller(error):
            raise
        mend = f"As a superuser, run `mmdb doctor {as_postgres(connection.url)}`: it sees more."
        return Check(name=name, ok=False, detail=error.message, mend=mend)
    return Check(name=name, ok=True, detail=f"imported; {row['environment']}")
