"""The throw-away PostgreSQL that the other tests stand on."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from tests import memory_folder
from tests.cluster import ROOT, Cluster
from tests.memory_folder import MemoryFolder, NoRoom


@pytest.fixture
def own_cluster() -> Iterator[Cluster]:
    with Cluster() as cluster:
        yield cluster


def test_the_server_finds_the_package_and_its_dependencies(own_cluster: Cluster) -> None:
    with psycopg.connect(own_cluster.url(), autocommit=True) as connection:
        connection.execute("CREATE EXTENSION plpython3u")
        connection.execute("DO LANGUAGE plpython3u 'import mmdb.errors, pyarrow, torch'")


def test_what_was_committed_survives_a_crash(own_cluster: Cluster) -> None:
    url = own_cluster.create_database("crash")
    with psycopg.connect(url) as connection:
        connection.execute("CREATE TABLE kept AS SELECT 42 AS answer")
    own_cluster.halt(signal.SIGKILL)
    own_cluster.start()
    with psycopg.connect(url) as connection:
        assert connection.execute("SELECT answer FROM kept").fetchone() == (42,)


def test_a_killed_session_ends_the_others_and_the_server_goes_on(own_cluster: Cluster) -> None:
    with psycopg.connect(own_cluster.url()) as victim, psycopg.connect(own_cluster.url()) as other:
        os.kill(victim.info.backend_pid, signal.SIGKILL)
        with pytest.raises(psycopg.OperationalError):
            other.execute("SELECT pg_sleep(30)")
    assert "server process" in own_cluster.log_tail()


def test_a_copy_of_a_database_holds_its_tables(own_cluster: Cluster) -> None:
    with psycopg.connect(own_cluster.create_database("original")) as connection:
        connection.execute("CREATE TABLE kept ()")
    with psycopg.connect(own_cluster.create_database("copy", template="original")) as connection:
        assert connection.execute("SELECT count(*) FROM kept").fetchone() == (0,)
    own_cluster.drop_database("copy")
    with pytest.raises(psycopg.OperationalError, match="does not exist"):
        psycopg.connect(own_cluster.url("copy"))


def test_stop_leaves_no_process_and_no_directory() -> None:
    cluster = Cluster()
    pid = cluster.pid
    cluster.stop()
    cluster.stop()
    assert not cluster.directory.exists()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


# -- folders in memory --------------------------------------------------------


@pytest.fixture
def memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Let a folder on disk stand for the memory, so that no other test's folders are touched."""
    monkeypatch.setattr(memory_folder, "MEMORY", tmp_path)
    monkeypatch.setattr(memory_folder, "ROOM_BYTES", 0)
    return tmp_path


def test_a_folder_of_a_killed_process_is_removed_by_the_next(memory: Path) -> None:
    mine = MemoryFolder()
    program = (
        "import os, signal, pathlib; from tests import memory_folder as m;"
        f"m.MEMORY, m.ROOM_BYTES = pathlib.Path({str(memory)!r}), 0;"
        "(m.MemoryFolder().path / 'data').mkdir(); os.kill(os.getpid(), signal.SIGKILL)"
    )
    ended = subprocess.run([sys.executable, "-c", program], cwd=ROOT).returncode
    assert ended == -signal.SIGKILL
    assert len(list(memory.iterdir())) == 2
    MemoryFolder().remove()
    assert list(memory.iterdir()) == [mine.path]
    mine.remove()
    assert list(memory.iterdir()) == []


def test_where_memory_is_short_there_is_no_folder(
    memory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory_folder, "ROOM_BYTES", shutil.disk_usage(memory).free + (1 << 40))
    with pytest.raises(NoRoom):
        MemoryFolder()
    assert list(memory.iterdir()) == []
