"""Decoded partitions, kept once per node."""

import os
import shutil
import tempfile
import threading
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch

from mmdb.data import node_cache
from tests.server_user import server_owner

KEY = bytes(range(32))


class Writer:
    """Writes the same arrays each time, and counts."""

    def __init__(self, rows: int = 10) -> None:
        self.calls = 0
        self.x = np.arange(rows * 3, dtype=np.float32).reshape(rows, 3)
        self.y = np.arange(rows)

    def __call__(self, folder: Path) -> None:
        self.calls += 1
        np.save(folder / "x.npy", self.x)
        np.save(folder / "y.npy", self.y)


def test_a_partition_is_written_once_and_mapped() -> None:
    write = Writer()
    for _ in range(3):
        node_cache.ensure(KEY, write)
    x, y = node_cache.map(KEY)
    assert write.calls == 1
    np.testing.assert_array_equal(x, write.x)
    np.testing.assert_array_equal(y, write.y)


def test_torch_takes_the_mapping_without_a_warning() -> None:
    node_cache.ensure(KEY, Writer())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert torch.from_numpy(node_cache.map(KEY).plain[0]).sum() == 435


def test_writing_to_the_mapping_does_not_reach_the_file() -> None:
    node_cache.ensure(KEY, Writer())
    node_cache.map(KEY).plain[0][:] = 7
    assert node_cache.map(KEY).plain[0][0, 0] == 0


@pytest.mark.parametrize("part", ["x", "y"])
@pytest.mark.parametrize("damage", [b"", b"\x93NUMPY", b"junk" * 100])
def test_a_damaged_file_is_made_again(cache_folder: Path, part: str, damage: bytes) -> None:
    write = Writer()
    node_cache.ensure(KEY, write)
    node_cache.path_of(KEY, f"{part}.npy").write_bytes(damage)
    with pytest.raises(node_cache.NotCached):
        node_cache.map(KEY)
    node_cache.ensure(KEY, write)
    np.testing.assert_array_equal(node_cache.map(KEY).plain[0], write.x)
    assert write.calls == 2


@pytest.mark.parametrize("change", [-4, 4])
def test_a_file_of_another_size_is_made_again(cache_folder: Path, change: int) -> None:
    write = Writer()
    node_cache.ensure(KEY, write)
    path = node_cache.path_of(KEY, "x.npy")
    os.truncate(path, path.stat().st_size + change)
    node_cache.ensure(KEY, write)
    assert write.calls == 2


def test_what_fails_leaves_nothing_behind(cache_folder: Path) -> None:
    def fail(folder: Path) -> None:
        (folder / "x.npy").write_bytes(b"half")
        raise RuntimeError

    with pytest.raises(RuntimeError):
        node_cache.ensure(KEY, fail)
    assert list(cache_folder.iterdir()) == []


def test_the_least_recently_used_go_first(
    monkeypatch: pytest.MonkeyPatch, cache_folder: Path
) -> None:
    keys = [bytes([i]) * 32 for i in range(3)]
    for age, key in enumerate(keys[:2]):
        node_cache.ensure(key, Writer(1000))
        for path in cache_folder.glob(f"{key.hex()}*"):
            os.utime(path, (1000 + age, 1000 + age))
    mapped = node_cache.map(keys[1]).plain[0]
    node_cache.ensure(keys[0], Writer(1000))  # used again
    monkeypatch.setenv("MMDB_CACHE_BYTES", "50000")  # room for two
    node_cache.ensure(keys[2], Writer(1000))
    assert [node_cache.path_of(key, "x.npy").exists() for key in keys] == [True, False, True]
    assert mapped[999, 2] == 2999  # still readable where it is mapped


def test_a_partition_larger_than_the_cache_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MMDB_CACHE_BYTES", "1")
    node_cache.ensure(KEY, Writer())
    assert len(node_cache.map(KEY)[0]) == 10


def test_many_writers_at_once_leave_one_good_copy(cache_folder: Path) -> None:
    write = Writer(20_000)
    threads = [threading.Thread(target=node_cache.ensure, args=(KEY, write)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    np.testing.assert_array_equal(node_cache.map(KEY).plain[0], write.x)
    assert len(list(cache_folder.iterdir())) == 2


@pytest.mark.parametrize("by", ["a folder of others", "an open folder", "a link", "a file"])
def test_who_makes_the_private_folder_first_neither_has_the_cache_nor_blocks_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, by: str
) -> None:
    monkeypatch.delenv("MMDB_CACHE_DIR")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    private = node_cache.directory()
    assert private.stat().st_mode & 0o777 == 0o700 and node_cache.directory() == private
    node_cache.ensure(KEY, Writer())
    shutil.rmtree(private)
    planted = tmp_path / f"{private.name}.0"  # the name of another one, which is no better
    for path in (private, planted):
        if by == "a link":
            path.symlink_to(tmp_path)
        elif by == "a file":
            path.touch(mode=0o600)
        else:
            path.mkdir(mode=0o700)
            if by == "an open folder" or os.getuid() != 0:
                path.chmod(0o755)
            else:
                os.chown(path, server_owner().pw_uid, -1)
    other = node_cache.directory()
    assert other not in (private, planted) and other.stat().st_mode & 0o777 == 0o700
    assert node_cache.directory() == other and other.parent == tmp_path
    node_cache.ensure(KEY, Writer())
    assert len(node_cache.map(KEY)[0]) == 10
