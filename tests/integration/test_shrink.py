"""A DuckDB file is no longer than what it holds once garbage was deleted and it is closed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import duckdb
import pytest
import torch

import mmdb
from mmdb.db import shrink
from mmdb.store.garbage import gc_and_reclaim
from mmdb.store.models.save import save_model
from tests.stores import check


def weights(seed: int) -> dict[str, torch.Tensor]:
    """Return 8 MB that cannot be compressed."""
    source = torch.Generator().manual_seed(seed)
    return {"noise": torch.randint(0, 256, (8, 1 << 20), generator=source, dtype=torch.uint8)}


@pytest.fixture
def url(installed_duckdb_url: str) -> str:
    """Return a file with a model of 8 MB, and 16 MB of two that were dropped."""
    with mmdb.connect(installed_duckdb_url) as db:
        for k in range(3):
            save_model(db.connection, f"net{k}", weights(k))
        db.drop_model("net0@1")
        db.drop_model("net1@1")
    return installed_duckdb_url


def file_of(url: str) -> Path:
    return Path(url.removeprefix("duckdb:///"))


def used(url: str) -> int:
    """Return the bytes of a file's blocks that hold something."""
    with duckdb.connect(file_of(url), read_only=True) as session:
        (size,) = session.sql(
            "SELECT used_blocks * block_size FROM pragma_database_size()"
        ).fetchall()
    return int(size[0])


def test_a_file_is_cut_to_what_it_holds_when_it_is_closed(url: str) -> None:
    before = file_of(url).stat().st_size
    with mmdb.connect(url) as db:
        gc_and_reclaim(db.connection, dry_run=False, grace="0 days")
    assert file_of(url).stat().st_size < min(before / 2, 1.1 * used(url))
    with mmdb.connect(url) as db:
        check(db.connection, "net2", weights(2))
        assert save_model(db.connection, "net3", weights(3)).model_id == 4
        check(db.connection, "net3", weights(3))
    assert not shrink.new_file(str(file_of(url))).exists()


def test_a_file_in_which_little_is_free_is_left_alone(url: str) -> None:
    with mmdb.connect(url) as db:
        gc_and_reclaim(db.connection, dry_run=False, grace="0 days")
    before = file_of(url).stat()
    with mmdb.connect(url) as db:
        gc_and_reclaim(db.connection, dry_run=False, grace="0 days")
    assert file_of(url).stat().st_ino == before.st_ino


def test_a_kill_while_a_file_is_written_anew_leaves_the_old_one(url: str) -> None:
    path = str(file_of(url))
    program = [sys.executable, "-m", "mmdb.db.shrink", path]
    with subprocess.Popen(program) as process:
        while not shrink.new_file(path).exists() and process.poll() is None:
            pass
        process.kill()
    with mmdb.connect(url) as db:
        assert not shrink.new_file(path).exists()
        check(db.connection, "net2", weights(2))


def test_a_file_that_another_process_has_open_is_left_alone(url: str) -> None:
    before = file_of(url).stat().st_ino
    with mmdb.connect(url) as db:
        shrink.shrink(str(file_of(url)))
        check(db.connection, "net2", weights(2))
    assert file_of(url).stat().st_ino == before
