"""Makes the environments of the BI tools that `make test-bi` tries.

Run as `python -m scripts.bi_environments`. Each is a folder `.venv-NAME` with the packages of
`constraints-NAME.txt`, made again when that file changes; beside them ODBC and JDBC drivers of
PostgreSQL are installed where they are missing. Superset and MLflow cannot share one with mmdb, nor
with each other: they want other versions of SQLAlchemy and pyarrow.
`python -m scripts.bi_environments --freeze` writes the files anew from what is installed.
"""

from __future__ import annotations

import argparse
import hashlib
import shutil
import subprocess
import sys
from pathlib import Path

from scripts.apt import CannotInstall, apt_get, has_apt, install, root_prefix

ROOT = Path(__file__).resolve().parent.parent
#: What each environment is for. Superset needs some packages that it does not name.
WANTED = {
    "bi": ("dbt-core", "dbt-postgres", "ipykernel", "jaydebeapi", "jpype1", "nbclient", "pyodbc"),
    "mlflow": ("mlflow",),
    "superset": ("apache-superset", "cachetools", "psycopg2-binary", "rich", "setuptools"),
}
#: A file that shows that a package is there, and the package.
SYSTEM = {
    "/usr/lib/*/odbc/psqlodbcw.so": "odbc-postgresql",
    "/usr/lib/*/libodbc.so.2": "libodbc2",
    "/usr/share/java/postgresql.jar": "libpostgresql-jdbc-java",
    "/usr/share/java/scram-client.jar": "libscram-java",
    "/usr/share/java/stringprep.jar": "libstringprep-java",
    "/usr/lib/jvm/*/lib/server/libjvm.so": "default-jre-headless",
}


def main() -> int:
    """Return 0 when all is there, 1 when the user must act."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--freeze", action="store_true", help="write the constraints anew")
    if parser.parse_args().freeze:
        for name in WANTED:
            _freeze(name)
        return 0
    try:
        _install_drivers()
        for name in WANTED:
            _make(name)
    except CannotInstall as missing:
        print(f"bi environments: {missing}", file=sys.stderr)
        return 1
    return 0


def _install_drivers() -> None:
    missing = [package for file, package in SYSTEM.items() if not list(Path("/").glob(file[1:]))]
    if not missing:
        return
    as_root = root_prefix()
    if not has_apt() or as_root is None:
        raise CannotInstall(f"Run as root: apt-get install {' '.join(missing)}")
    print(f"==> Installing {' and '.join(missing)}", flush=True)
    apt_get(as_root, "update", "-qq")
    install(as_root, *missing)


def _make(name: str) -> None:
    """Make an environment unless it is there, whole and of this Python and these versions."""
    folder, stamp = ROOT / f".venv-{name}", ROOT / f".venv-{name}" / ".stamp"
    digest = hashlib.sha256(
        "\n".join([sys.version, *WANTED[name], _constraints(name).read_text()]).encode()
    ).hexdigest()
    if stamp.exists() and stamp.read_text() == digest:
        print(f"==> {folder.name} is there", flush=True)
        return
    print(f"==> Making {folder.name} (a minute, and up to 900 MB)", flush=True)
    shutil.rmtree(folder, ignore_errors=True)
    _run(getattr(sys, "_base_executable", sys.executable), "-m", "venv", str(folder))
    _pip(name, "install", "--quiet", "--constraint", str(_constraints(name)), *WANTED[name])
    _pip(name, "check")
    stamp.write_text(digest)


def _freeze(name: str) -> None:
    head = (
        f"# The versions of .venv-{name}, every package of it pinned: scripts/bi_environments.py.\n"
    )
    listed = _pip(name, "list", "--format=freeze", "--exclude=pip")
    _constraints(name).write_text(head + listed.lower())


def _constraints(name: str) -> Path:
    return ROOT / f"constraints-{name}.txt"


def _pip(name: str, *arguments: str) -> str:
    python = str(ROOT / f".venv-{name}" / "bin" / "python")
    return _run(python, "-m", "pip", "--disable-pip-version-check", *arguments)


def _run(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        raise CannotInstall(f"{' '.join(command)} failed:\n{done.stdout}{done.stderr}")
    return done.stdout


if __name__ == "__main__":
    sys.exit(main())
