"""Features of partitions in the node's cache."""

from __future__ import annotations

import os
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pytest

from mmdb.data import arrays, node_cache
from mmdb.data.feature_files import coded, pack_features, unpack_features, writing_features
from mmdb.errors import NotANumber

RAW, KEY, OTHER = (bytes([value]) * 32 for value in (1, 2, 3))
ROWS = 300


@pytest.fixture
def features() -> np.ndarray:
    return np.random.default_rng(0).standard_normal((ROWS, 8, 6), dtype=np.float32)


@pytest.fixture(autouse=True)
def raw(cache_folder: Path) -> None:
    """A partition of one input and one label."""

    def write(written: Path) -> None:
        np.save(written / "x.npy", np.zeros((ROWS, 3), np.float32))
        np.save(written / "y.npy", np.arange(ROWS))

    node_cache.ensure(RAW, write)


def place(
    features: np.ndarray, storage: str = "float32", *, key: bytes = KEY, source: bytes = RAW
) -> None:
    with writing_features(key, source, features.shape[1:], storage) as writer:
        for start in range(0, len(features), 128):
            writer.add(features[start : start + 128])


def test_features_are_mapped_with_the_labels_of_their_rows(
    cache_folder: Path, features: np.ndarray
) -> None:
    place(features)
    x, y = node_cache.map(KEY).plain
    np.testing.assert_array_equal(x, features)
    np.testing.assert_array_equal(y, np.arange(ROWS))
    assert node_cache.path_of(KEY, "y.npy").samefile(node_cache.path_of(RAW, "y.npy"))
    assert not list(cache_folder.glob("*.part"))


@pytest.mark.parametrize("storage", ["float32", "float16", "int8"])
def test_what_is_mapped_is_what_is_left_after_storing(features: np.ndarray, storage: str) -> None:
    with writing_features(KEY, RAW, (8, 6), storage) as writer:
        writer.add(features[:100])
        writer.add(features[100:])
    mapped = node_cache.map(KEY).plain[0]
    np.testing.assert_array_equal(mapped, coded(features, storage))
    assert writer.byte_count == features.nbytes
    assert (writer.deviation.max_error > 0) == (storage != "float32")
    # Through the database and back, the bits are the same on every node.
    blocks = pack_features(mapped, storage)
    place(np.concatenate([unpack_features(b, (8, 6), storage) for b in blocks]), key=OTHER)
    np.testing.assert_array_equal(node_cache.map(OTHER).plain[0], mapped)


def test_features_of_features_have_the_same_labels(features: np.ndarray) -> None:
    place(features)
    place(features[:, 0], key=OTHER, source=KEY)
    assert node_cache.path_of(OTHER, "y.npy").stat().st_nlink == 3
    np.testing.assert_array_equal(node_cache.map(OTHER).plain[1], np.arange(ROWS))


def test_several_come_out_of_one_pass(features: np.ndarray) -> None:
    with ExitStack() as stack:
        whole = stack.enter_context(writing_features(KEY, RAW, (8, 6)))
        pooled = stack.enter_context(writing_features(OTHER, RAW, (8,), "int8"))
        for start in range(0, ROWS, 128):
            whole.add(features[start : start + 128])
            pooled.add(features[start : start + 128].mean(axis=2))
    np.testing.assert_array_equal(node_cache.map(KEY).plain[0], features)
    assert node_cache.map(OTHER).plain[0].shape == (ROWS, 8)


def test_several_labels_are_shared(cache_folder: Path, features: np.ndarray) -> None:
    labels: list[np.ndarray] = [np.arange(ROWS), np.ones((ROWS, 2), np.float32)]

    def write(written: Path) -> None:  # of two inputs, which features take the place of
        arrays.write_form(written, ["left", "right"], 2)
        for name, array in zip(["x0", "x1", "y0", "y1"], [*labels, *labels], strict=True):
            np.save(written / f"{name}.npy", array)

    node_cache.ensure(OTHER, write)
    place(features, source=OTHER)
    decoded = node_cache.map(KEY)
    assert isinstance(decoded.inputs, np.ndarray)
    for found, expected in zip(decoded.label_arrays, labels, strict=True):
        np.testing.assert_array_equal(found, expected)


def test_labels_are_copied_where_files_cannot_be_linked(
    features: np.ndarray, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError

    monkeypatch.setattr(os, "link", refuse)
    place(features)
    np.testing.assert_array_equal(node_cache.map(KEY).plain[1], np.arange(ROWS))
    assert node_cache.path_of(KEY, "y.npy").stat().st_nlink == 1


def test_rows_that_leave_the_cache_meanwhile_are_still_labelled(
    cache_folder: Path, features: np.ndarray
) -> None:
    with writing_features(KEY, RAW, (8, 6)) as writer:
        for path in cache_folder.glob(f"{RAW.hex()}.*"):
            path.unlink()
        writer.add(features)
    np.testing.assert_array_equal(node_cache.map(KEY).plain[1], np.arange(ROWS))


def test_without_their_rows_there_are_no_features(features: np.ndarray) -> None:
    with pytest.raises(node_cache.NotCached):
        place(features, source=OTHER)


@pytest.mark.parametrize("count", [0, ROWS - 1, ROWS + 1])
def test_too_few_or_too_many_rows_leave_nothing(
    cache_folder: Path, features: np.ndarray, count: int
) -> None:
    with pytest.raises(ValueError, match="rows of features"):
        place(np.resize(features, (count, 8, 6)))
    assert {path.name.split(".")[0] for path in cache_folder.iterdir()} == {RAW.hex()}


@pytest.mark.parametrize(
    "wrong", [np.zeros((4, 6, 8), np.float32), np.zeros((4, 8, 6)), np.zeros((4, 48), np.float32)]
)
def test_features_of_another_form_are_refused(cache_folder: Path, wrong: np.ndarray) -> None:
    with pytest.raises(ValueError), writing_features(KEY, RAW, (8, 6)) as writer:
        writer.add(wrong)
    assert not node_cache.holds(KEY)


def test_what_fails_leaves_nothing(cache_folder: Path, features: np.ndarray) -> None:
    features[7, 0, 0] = np.nan
    with pytest.raises(NotANumber):
        place(features, "int8")
    assert {path.name.split(".")[0] for path in cache_folder.iterdir()} == {RAW.hex()}


def test_damaged_features_are_not_held(features: np.ndarray) -> None:
    place(features)
    assert node_cache.holds(KEY)
    os.truncate(node_cache.path_of(KEY, "x.npy"), 1000)
    assert not node_cache.holds(KEY)
    place(features)
    np.testing.assert_array_equal(node_cache.map(KEY).plain[0], features)


def test_the_cache_stays_within_its_bounds(
    cache_folder: Path, features: np.ndarray, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MMDB_CACHE_BYTES", str(2 * features.nbytes + 20_000))
    place(features)
    place(features, key=OTHER)
    os.utime(node_cache.path_of(OTHER, "x.npy"), (2000, 2000))
    for key in (RAW, KEY):
        os.utime(node_cache.path_of(key, "x.npy"), (1000, 1000))
    node_cache.holds(KEY)  # used again
    place(features, key=bytes([4]) * 32, source=KEY)
    held = [key for key in (RAW, KEY, OTHER, bytes([4]) * 32) if node_cache.holds(key)]
    taken_bytes = sum(path.stat().st_size for path in cache_folder.iterdir())
    assert taken_bytes <= node_cache.capacity_bytes()
    assert held[-1:] == [bytes([4]) * 32]
    assert KEY in held and OTHER not in held
