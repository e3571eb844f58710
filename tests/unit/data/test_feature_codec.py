"""Features as the bytes of blocks, and back."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from mmdb.data.feature_files import (
    Deviation,
    PackedFeatures,
    coded,
    decode,
    encode,
    pack_features,
    row_bytes,
    rows_per_block,
    unpack_features,
)
from mmdb.data.pack import BLOCK_BYTES, digest
from mmdb.errors import FeatureCorrupt, NotANumber

STORAGES = ("float32", "float16", "int8")
#: Vectors, maps, sequences; also those too small for groups of their own.
SHAPES = [(), (1,), (512,), (8, 7, 7), (64, 2, 2), (16, 64)]
#: Of features of the largest magnitude 1: half a step, or half a unit in the last place.
BOUNDS = {"float32": 0.0, "float16": 2.0**-11, "int8": 0.5 / 127 * (1 + 2.0**-13)}

FINITE = st.floats(-(2.0**126), 2.0**126, width=32)
FEATURES = st.one_of(
    arrays(np.float32, (3, 5), elements=FINITE),
    arrays(np.float32, (2, 4, 3, 3), elements=FINITE),
    arrays(np.float32, (3, 40), elements=st.floats(-1, 4, width=32)),
    arrays(np.float32, (2, 2, 50), elements=st.floats(0, 2.0**-98, width=32)),
)


def normal(shape: tuple[int, ...], rows: int = 20, seed: int = 0) -> np.ndarray:
    values = np.random.default_rng(seed).standard_normal((rows, *shape), dtype=np.float32)
    scaled: np.ndarray = values / np.abs(values).max()
    return scaled


@pytest.mark.parametrize("storage", STORAGES)
@pytest.mark.parametrize("shape", SHAPES)
def test_features_come_back_nearly_as_they_were(shape: tuple[int, ...], storage: str) -> None:
    features = normal(shape)
    data = encode(features, storage)
    decoded = decode(data, shape, storage)
    assert decoded.dtype == np.float32
    assert decoded.shape == features.shape
    assert len(data) == len(features) * row_bytes(shape, storage)
    assert np.abs(decoded - features).max() <= BOUNDS[storage]
    np.testing.assert_array_equal(coded(features, storage), decoded)


@settings(max_examples=200, deadline=None)
@given(FEATURES, st.sampled_from(STORAGES))
def test_what_was_decoded_has_the_same_bytes_again(features: np.ndarray, storage: str) -> None:
    data = encode(features, storage)
    decoded = decode(data, features.shape[1:], storage)
    assert encode(decoded, storage) == data
    assert coded(decoded, storage).tobytes() == decoded.tobytes()


@settings(max_examples=100, deadline=None)
@given(FEATURES)
def test_a_step_of_8_bits_is_a_part_of_the_largest_value_of_its_group(
    features: np.ndarray,
) -> None:
    apart = np.abs(coded(features, "int8") - features)
    # Below 2**-100 everything is zero.
    assert (apart <= max(float(np.abs(features).max()) * BOUNDS["int8"], 2.0**-100)).all()


@pytest.mark.parametrize("storage", STORAGES)
@pytest.mark.parametrize("shape", SHAPES)
def test_a_row_is_coded_by_itself(shape: tuple[int, ...], storage: str) -> None:
    features = normal(shape) * np.arange(20, dtype=np.float32).reshape(-1, *(1 for _ in shape))
    alone = b"".join(encode(features[i : i + 1], storage) for i in range(20))
    assert encode(features, storage) == alone


def test_features_that_are_never_negative_have_twice_the_steps() -> None:
    features = np.maximum(normal((512,)), 0)
    assert np.abs(coded(features, "int8") - features).max() <= BOUNDS["int8"] / 2
    assert (coded(features, "int8")[features == 0] == 0).all()


def test_a_map_has_a_scale_for_each_channel() -> None:
    features = normal((2, 7, 7))
    features[:, 1] *= 1e-3  # a quiet channel beside a loud one
    apart = np.abs(coded(features, "int8") - features)
    assert apart[:, 1].max() <= 1e-3 * BOUNDS["int8"]


@pytest.mark.parametrize("storage", STORAGES)
def test_arrays_need_not_be_contiguous(storage: str) -> None:
    features = normal((6, 40)).transpose(0, 2, 1)
    assert encode(features, storage) == encode(features.copy(), storage)


def test_what_float16_cannot_hold_is_the_largest_that_it_can() -> None:
    features = np.array([[1e6, -1e6, 65504, np.inf, -np.inf, np.nan]], np.float32)
    expected = np.array([[65504, -65504, 65504, np.inf, -np.inf, np.nan]], np.float32)
    np.testing.assert_array_equal(coded(features, "float16"), expected)
    np.testing.assert_array_equal(coded(features, "float32"), features)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 3.1e38, -3.1e38])
def test_8_bits_refuse_what_is_not_finite(value: float) -> None:
    with pytest.raises(NotANumber):
        encode(np.array([[0, value]], np.float32), "int8")


def test_no_rows_are_no_bytes() -> None:
    for storage in STORAGES:
        empty = np.empty((0, 4), np.float32)
        assert encode(empty, storage) == b""
        assert decode(b"", (4,), storage).shape == (0, 4)
        assert list(pack_features(empty, storage)) == []


# -- blocks ------------------------------------------------------------------------------


@pytest.mark.parametrize("storage", STORAGES)
def test_a_partition_is_cut_into_blocks(storage: str) -> None:
    features = normal((30_000,), rows=90)
    blocks = list(pack_features(features, storage))
    assert len(blocks) > 1
    assert [block.ordinal for block in blocks] == list(range(len(blocks)))
    assert sum(block.row_count for block in blocks) == 90
    assert all(len(block.data) <= BLOCK_BYTES for block in blocks)
    assert sum(len(block.data) for block in blocks) == 90 * row_bytes((30_000,), storage)
    decoded = np.concatenate([unpack_features(block, (30_000,), storage) for block in blocks])
    np.testing.assert_array_equal(decoded, coded(features, storage))


def test_a_row_larger_than_a_block_is_one() -> None:
    shape = (BLOCK_BYTES,)
    assert rows_per_block(shape, "float32") == 1
    assert [block.row_count for block in pack_features(np.zeros((2, *shape), "f4"), "int8")] == [
        1,
        1,
    ]


def _block(data: bytes, rows: int) -> PackedFeatures:
    return PackedFeatures(ordinal=3, row_count=rows, digest=digest(data), data=data)


@pytest.mark.parametrize("storage", STORAGES)
def test_damaged_blocks_are_found(storage: str) -> None:
    (block,) = pack_features(normal((10,)), storage)
    flipped = bytes([block.data[0] ^ 1]) + block.data[1:]
    for damaged in (
        replace(block, data=flipped),
        replace(block, data=block.data[:-1]),
        replace(block, data=b""),
        _block(block.data[:-1], 20),  # a digest of its own does not make it whole
        _block(block.data, 19),
        _block(b"", 1),
    ):
        with pytest.raises(FeatureCorrupt):
            unpack_features(damaged, (10,), storage)
    assert len(unpack_features(block, (10,), storage)) == 20


# -- how far it is off -------------------------------------------------------------------


def test_deviations_are_shares_of_the_largest_magnitude() -> None:
    deviation = Deviation()
    assert (deviation.max_error, deviation.mean_error) == (0, 0)
    deviation.add(np.array([[1.0, -4.0]], "f4"), np.array([[1.0, -4.0]], "f4"))
    deviation.add(np.array([[2.0, 0.0]], "f4"), np.array([[1.0, 0.0]], "f4"))
    assert (deviation.max_error, deviation.mean_error) == (0.25, 0.0625)


def test_what_is_kept_as_it_is_does_not_deviate() -> None:
    features, deviation = normal((5,)), Deviation()
    deviation.add(features, coded(features, "float32"))
    assert (deviation.max_error, deviation.mean_error) == (0, 0)


def test_deviations_pass_over_what_is_not_finite() -> None:
    deviation = Deviation()
    computed = np.array([[np.inf, np.nan, 4.0, 1e6]], "f4")
    deviation.add(computed, coded(computed, "float16"))
    assert deviation.max_error == pytest.approx((1e6 - 65504) / 1e6)
