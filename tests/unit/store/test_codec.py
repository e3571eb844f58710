"""Chunks come back bit for bit, take the bytes they should, and no payload writes outside `out`."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from mmdb.store.tensors.codec import Codec, CorruptChunk, Encoded, decode, encode, needs_base

Bytes = NDArray[np.uint8]

SIGMA = 0.02
CHUNK = 256 * 1024
GUARD = 64  # bytes on both sides of `out` that no decoding may touch
FLOATS: dict[str, Any] = {
    "float16": np.float16,
    "bfloat16": ml_dtypes.bfloat16,
    "float32": np.float32,
    "float64": np.float64,
}
itemsizes = st.sampled_from([1, 2, 4, 8])
kinds = st.sampled_from(["noise", "weights", "constant", "zeros", "ramp", "sparse", "repeats"])
changes = st.sampled_from(["none", "few", "quarter", "all", "unrelated"])
examples = settings(max_examples=150, deadline=None)


def weights(dtype: str, size_bytes: int = CHUNK, moved: float = 0.0, share: float = 1.0) -> Bytes:
    """Return N(0, 0.02) weights, a share of them moved by noise of `moved` sigmas."""
    kind = np.dtype(FLOATS[dtype])
    random = np.random.default_rng(0)
    values = random.standard_normal(size_bytes // kind.itemsize) * SIGMA
    touched = random.random(values.size) < share
    values += touched * random.standard_normal(values.size) * SIGMA * moved
    return np.frombuffer(values.astype(kind), np.uint8).copy()


def structured(kind: str, size: int, seed: int) -> Bytes:
    random = np.random.default_rng(seed)
    noise = random.integers(0, 256, size + 8, dtype=np.uint8)
    if kind == "weights":
        noise = (random.standard_normal(size // 4 + 2) * SIGMA).astype("<f4").view(np.uint8)
    elif kind == "constant":
        noise = np.resize(noise[:8], size + 8)
    elif kind == "zeros":
        noise[:] = 0
    elif kind == "ramp":
        noise = np.arange(size // 8 + 2, dtype="<i8").view(np.uint8)
    elif kind == "sparse":
        noise[random.random(noise.size) < 0.98] = 0
    elif kind == "repeats":
        noise = np.resize(noise[:1000], size + 8)
    return noise[:size].copy()


def changed(raw: Bytes, how: str, seed: int) -> Bytes:
    random = np.random.default_rng(seed)
    share = {"none": 0.0, "few": 0.01, "quarter": 0.25, "all": 1.0, "unrelated": 1.0}[how]
    high = 256 if how == "unrelated" else 4
    step = random.integers(0, high, raw.size, dtype=np.uint8)
    return raw + step * (random.random(raw.size) < share)


def decoded(found: Encoded, itemsize: int, size: int, base: Bytes | None) -> Bytes:
    """Decode into the middle of a larger array, and check that its ends are left alone."""
    memory = np.full(size + 2 * GUARD, 0xA5, np.uint8)
    out = memory[GUARD : GUARD + size]
    try:
        decode(found.codec, found.data, itemsize, out, base)
    finally:
        assert (memory[:GUARD] == 0xA5).all()
        assert (memory[GUARD + size :] == 0xA5).all()
    return out


@examples
@given(itemsizes, st.binary(max_size=300), st.booleans())
def test_any_bytes_come_back(itemsize: int, data: bytes, based: bool) -> None:
    raw = np.frombuffer(data, np.uint8)
    base = raw[::-1].copy() if based else None
    found = encode(memoryview(data), itemsize, base)
    assert decoded(found, itemsize, raw.size, base).tobytes() == data
    assert len(found.data) <= raw.size


@examples
@given(itemsizes, kinds, st.integers(0, 40_000), st.none() | changes, st.integers(0, 99))
def test_chunks_come_back(
    itemsize: int, kind: str, size: int, change: str | None, seed: int
) -> None:
    raw = structured(kind, size, seed)
    base = None if change is None else changed(raw, change, seed)
    found = encode(raw, itemsize, base)
    assert decoded(found, itemsize, size, base).tobytes() == raw.tobytes()
    assert len(found.data) <= size
    assert base is not None or not needs_base(found.codec)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("based", [False, True])
def test_nan_payloads_and_negative_zeros_come_back(dtype: str, based: bool) -> None:
    raw = weights(dtype, 1 << 16)
    width = np.dtype(FLOATS[dtype]).itemsize
    words = raw.view(f"<u{width}")
    base = raw.copy() if based else None
    words[::50] = 1 << (8 * width - 1)  # -0.0
    words[1::50] = -1 - np.arange(words[1::50].size)  # NaN, each with its own payload
    found = encode(raw, width, base)
    assert found.codec == (Codec.PATCH if based else Codec.PLANES)
    assert decoded(found, width, raw.size, base).tobytes() == raw.tobytes()


@pytest.mark.parametrize(
    ("dtype", "share", "codec"),
    [
        ("float32", 0.845, Codec.PLANES),
        ("bfloat16", 0.685, Codec.PLANES),
        ("float16", 0.86, Codec.PLANES),
        ("float64", 0.89, Codec.PLANES),
    ],
)
@pytest.mark.parametrize("size", [CHUNK, 4 * CHUNK])
def test_fresh_weights_shrink(dtype: str, share: float, codec: Codec, size: int) -> None:
    raw = weights(dtype, size)
    found = encode(raw, np.dtype(FLOATS[dtype]).itemsize)
    assert found.codec == codec
    assert len(found.data) <= share * raw.size


@pytest.mark.parametrize(
    ("dtype", "touched", "share", "codec"),
    [
        ("float32", 1.0, 0.63, Codec.DELTA),
        ("bfloat16", 1.0, 0.25, Codec.DELTA),
        ("float32", 0.02, 0.02, Codec.PATCH),
        ("bfloat16", 0.02, 0.015, Codec.PATCH),
    ],
)
@pytest.mark.parametrize("size", [CHUNK, 4 * CHUNK])
def test_moved_weights_take_their_difference(
    dtype: str, touched: float, share: float, codec: Codec, size: int
) -> None:
    base = weights(dtype, size)
    raw = weights(dtype, size, moved=0.005, share=touched)
    width = np.dtype(FLOATS[dtype]).itemsize
    found = encode(raw, width, base)
    assert found.codec == codec
    assert len(found.data) <= share * raw.size
    assert decoded(found, width, raw.size, base).tobytes() == raw.tobytes()


def test_the_base_itself_takes_nothing() -> None:
    raw = weights("float32")
    assert encode(raw, 4, raw.copy()) == Encoded(Codec.SAME, b"")


def test_a_repeated_word_is_stored_once() -> None:
    raw = np.full(CHUNK // 4, 1.5, "<f4").view(np.uint8)
    assert encode(raw, 4) == Encoded(Codec.CONSTANT, raw[:4].tobytes())


def test_few_values_among_zeros_are_stored_with_their_positions() -> None:
    raw = weights("float32")
    raw.view("<u4")[np.random.default_rng(1).random(CHUNK // 4) > 0.05] = 0
    found = encode(raw, 4)
    assert found.codec == Codec.SPARSE
    assert len(found.data) < 0.055 * raw.size
    assert decoded(found, 4, raw.size, None).tobytes() == raw.tobytes()


def test_noise_is_left_raw() -> None:
    raw = structured("noise", CHUNK, 0)
    assert encode(raw, 4, structured("noise", CHUNK, 1)) == Encoded(Codec.RAW, raw.tobytes())


def test_noise_that_repeats_far_away_is_stored_once() -> None:
    raw = np.tile(weights("float32", CHUNK // 2), 2)
    assert len(encode(raw, 4).data) < 0.55 * raw.size


def test_a_base_that_hardly_helps_is_not_needed() -> None:
    raw = weights("float32")
    assert encode(raw, 4, raw[::-1].copy()).codec == Codec.PLANES


def test_a_base_may_be_decoded_over() -> None:
    base = weights("bfloat16")
    for share in (0.0, 0.02, 1.0):
        raw = weights("bfloat16", moved=0.005, share=share)
        found = encode(raw, 2, base)
        out = base.copy()
        decode(found.codec, found.data, 2, out, out)
        assert needs_base(found.codec)
        assert out.tobytes() == raw.tobytes()


def test_threads_do_not_share_scratch_memory() -> None:
    chunks = [weights("float32", (k + 1) * CHUNK // 8, moved=k) for k in range(8)]

    def same(raw: Bytes) -> bool:
        found = encode(raw, 4)
        return decoded(found, 4, raw.size, None).tobytes() == raw.tobytes()

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(same, chunks * 8))


def payloads() -> dict[Codec, tuple[Encoded, Bytes, Bytes | None]]:
    """Return one payload of each codec, with its chunk of float32 and its base."""
    fresh, base = weights("float32", 8192, moved=0.005), weights("float32", 8192)
    few, spikes = base.copy(), structured("zeros", 8192, 0)
    few[::400] += 1
    spikes[::400] = 9
    chunks: list[tuple[Bytes, Bytes | None]] = [
        (fresh[:80], None),
        (np.resize(fresh[:4], 8192), None),
        (fresh, None),
        (spikes, None),
        (base, base),
        (fresh, base),
        (few, base),
    ]
    made = [(encode(raw, 4, origin), raw, origin) for raw, origin in chunks]
    return {Codec(found.codec): (found, raw, origin) for found, raw, origin in made}


PAYLOADS = payloads()


def test_every_codec_has_a_payload_to_break() -> None:
    assert set(PAYLOADS) == set(Codec)


@pytest.mark.parametrize("codec", Codec)
def test_a_payload_of_another_length_is_refused(codec: Codec) -> None:
    found, raw, base = PAYLOADS[codec]
    for size in sorted({*range(0, len(found.data), 7), len(found.data) - 1} - {-1}):
        with pytest.raises(CorruptChunk):
            decoded(Encoded(found.codec, found.data[:size]), 4, raw.size, base)
    with pytest.raises(CorruptChunk):
        decoded(Encoded(found.codec, found.data + b"\0"), 4, raw.size, base)


@settings(max_examples=400, deadline=None)
@given(st.sampled_from(list(Codec)), st.data())
def test_a_flipped_bit_writes_inside_out_or_is_refused(codec: Codec, data: st.DataObject) -> None:
    found, raw, _ = PAYLOADS[codec]
    broken = bytearray(found.data)
    for _ in range(data.draw(st.integers(1, 3)) if broken else 0):
        # Most headers are at the start.
        bound = data.draw(st.sampled_from([min(40, len(broken)), len(broken)]))
        bit = data.draw(st.integers(0, 8 * bound - 1))
        broken[bit // 8] ^= 1 << bit % 8
    other = data.draw(st.sampled_from([codec, codec, *Codec]))
    size = data.draw(st.sampled_from([raw.size, raw.size, raw.size - 4, raw.size + 4, 3, 0]))
    try:
        decoded(Encoded(other, bytes(broken)), 4, size, np.resize(raw, size))
    except CorruptChunk:
        return


@settings(max_examples=300, deadline=None)
@given(st.sampled_from(list(Codec)), itemsizes, st.integers(0, 100), st.binary(max_size=120))
def test_any_payload_writes_inside_out_or_is_refused(
    codec: Codec, itemsize: int, size: int, data: bytes
) -> None:
    try:
        decoded(Encoded(codec, data), itemsize, size, np.zeros(size, np.uint8))
    except CorruptChunk:
        return


def test_a_frame_that_claims_to_be_huge_is_refused_unread() -> None:
    frame = bytes.fromhex("28b52ffd e0 ffffffffffffff7f 0300aa")  # 8 EiB of one byte
    tree = b"\1" + len(frame).to_bytes(4, "little") + frame
    with pytest.raises(CorruptChunk, match="not 64"):
        decoded(Encoded(Codec.PLANES, tree), 4, 64, None)


def test_an_unknown_codec_is_refused() -> None:
    with pytest.raises(CorruptChunk, match="no codec 99"):
        decoded(Encoded(99, b""), 4, 64, None)


def test_a_wrong_call_is_refused() -> None:
    raw = weights("float32", 64)
    with pytest.raises(ValueError, match="2, 4 or 8"):
        encode(raw, 3)
    with pytest.raises(ValueError, match="60 bytes"):
        encode(raw, 4, raw[:60])
    with pytest.raises(ValueError, match="needs the bytes of the base"):
        decode(Codec.SAME, b"", 4, raw)
    with pytest.raises(ValueError, match="60 bytes"):
        decode(Codec.SAME, b"", 4, raw, raw[:60])
