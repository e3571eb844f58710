"""What a tensor is: its bytes whatever its layout, the hash that names them, its statistics."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import Any

import blake3
import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from mmdb.errors import UnsupportedTensor
from mmdb.store.tensors.tensor_bytes import (
    DTYPES,
    Statistics,
    check_supported,
    dtype_name,
    hash_of,
    raw_bytes,
    tensor_hash,
    word_bytes,
)
from tests.tensors import LAYOUTS, bits, laid_out, random_tensor, tensors

pytestmark = pytest.mark.filterwarnings("ignore:ComplexHalf support is experimental")
examples = settings(max_examples=300, deadline=None)
#: Dtypes that torch can compute with.
NUMBERS = [
    dtype
    for dtype in DTYPES.values()
    if Statistics.of(torch.zeros(16, dtype=torch.uint8).view(dtype)) != Statistics()
]


def element_by_element(tensor: torch.Tensor) -> bytes:
    """Return the bytes of a tensor, read one index after the other."""
    words = bits(tensor)
    flat = [words[index].item() for index in np.ndindex(*words.shape)]
    size = words.element_size()
    return b"".join((int(w) % 256**size).to_bytes(size, "little") for w in flat)


# -- bytes and hash -----------------------------------------------------------


def test_every_dtype_of_torch_is_told_by_name() -> None:
    found = {v for v in vars(torch).values() if isinstance(v, torch.dtype)}
    kept = {d for d in found if not str(d).startswith("torch.q")}
    assert set(DTYPES.values()) == kept
    assert all(getattr(torch, name) == dtype for name, dtype in DTYPES.items())
    assert all(DTYPES[dtype_name(dtype)] == dtype for dtype in kept)


@given(tensors)
@examples
def test_the_bytes_are_the_elements_in_row_major_order(tensor: torch.Tensor) -> None:
    data = raw_bytes(tensor)
    assert data.dtype == np.uint8
    assert data.shape == (tensor.numel() * tensor.element_size(),)
    if tensor.numel() <= 512:
        assert data.tobytes() == element_by_element(tensor)


@pytest.mark.parametrize("dtype", DTYPES.values(), ids=str)
def test_one_element_among_others_is_read_alone(dtype: torch.dtype) -> None:
    alone = random_tensor(dtype, (6,), seed=1)[1::2][:1]
    assert raw_bytes(alone).tobytes() == element_by_element(alone)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", DTYPES)
def test_a_tensor_has_the_hash_of_its_contiguous_copy(name: str, layout: str) -> None:
    tensor = laid_out(DTYPES[name], (2, 3, 4, 5), layout, seed=8)
    data = np.frombuffer(element_by_element(tensor), np.uint8).copy()
    assert hash_of(tensor) == tensor_hash(name, (2, 3, 4, 5), data)


def test_the_hash_is_blake3_over_dtype_shape_and_bytes() -> None:
    tensor = torch.tensor([[1.0, -0.0, math.nan]])
    head = json.dumps(["float32", [1, 3]]).encode()
    said = len(head).to_bytes(8, "little") + head + tensor.numpy().tobytes()
    assert hash_of(tensor) == blake3.blake3(said).digest()


def test_what_differs_in_dtype_shape_or_one_bit_has_another_hash() -> None:
    zeros = torch.zeros(6)
    others = [
        zeros.reshape(2, 3),
        zeros.reshape(3, 2),
        zeros.view(torch.int32),
        zeros.view(torch.complex64),
        -zeros,
        torch.zeros(0),
        torch.zeros(0, 6),
        torch.zeros(6, 1),
        torch.zeros(1)[0],
    ]
    assert len({hash_of(t) for t in [zeros, *others]}) == 1 + len(others)


def test_a_large_tensor_is_hashed_by_threads_to_the_same_name() -> None:
    tensor = torch.arange(20 << 20, dtype=torch.float32)
    head = json.dumps(["float32", [20 << 20]]).encode()
    hasher = blake3.blake3(len(head).to_bytes(8, "little") + head)
    assert hash_of(tensor) == hasher.update(tensor.numpy().tobytes()).digest()


def test_a_contiguous_tensor_is_not_copied() -> None:
    tensor = torch.arange(10.0)
    raw_bytes(tensor)[:4] = 0xFF
    assert tensor[0].isnan()
    raw_bytes(tensor[2:])[:] = 0
    assert tensor[2:].count_nonzero() == 0


def test_words_are_halves_of_complex_numbers() -> None:
    assert word_bytes(torch.complex128) == 8
    assert word_bytes(torch.complex32) == 2
    assert word_bytes(torch.bfloat16) == 2
    assert word_bytes(torch.float4_e2m1fn_x2) == 1


@pytest.mark.filterwarnings("ignore")  # torch's of sparse and of quantized tensors
@pytest.mark.parametrize(
    "kind", ["sparse_coo", "sparse_csr", "quantized", "meta", "lazy", "nested"]
)
def test_a_tensor_without_plain_memory_is_refused(kind: str) -> None:
    dense = torch.eye(3)
    made: dict[str, Callable[[], Any]] = {
        "sparse_coo": dense.to_sparse,
        "sparse_csr": dense.to_sparse_csr,
        "quantized": lambda: torch.quantize_per_tensor(dense, 0.1, 0, torch.qint8),
        "meta": lambda: dense.to("meta"),
        "lazy": torch.nn.parameter.UninitializedParameter,
        "nested": lambda: torch.nested.nested_tensor([dense, dense], layout=torch.jagged),
    }
    tensor = made[kind]()
    with pytest.raises(UnsupportedTensor):
        check_supported(tensor)
    with pytest.raises(UnsupportedTensor):
        raw_bytes(tensor)


# -- statistics ---------------------------------------------------------------


def reference(tensor: torch.Tensor) -> tuple[float, float, float, float, int, int] | None:
    """Return what the statistics should be, computed in 80-bit floats; None where all are NaN."""
    real = tensor.real if tensor.is_complex() else tensor
    with np.errstate(invalid="ignore"):
        values = real.resolve_neg().double().numpy().reshape(-1).astype(np.longdouble)
        numbers = values[~np.isnan(values)]
        if not numbers.size:
            return None
        spread = (float(numbers.mean()), float(numbers.std()))
    zeros, nans = int((values == 0).sum()), int(np.isnan(values).sum())
    return float(numbers.min()), float(numbers.max()), *spread, zeros, nans


def check(tensor: torch.Tensor) -> None:
    found, expected = Statistics.of(tensor), reference(tensor)
    if expected is None:
        nans = int(tensor.real.isnan().sum()) if tensor.is_complex() else tensor.numel()
        assert found == Statistics(zeros=0, nans=nans)
        return
    low, high, mean, deviation, zeros, nans = expected
    assert (found.minimum, found.maximum) == (low, high)
    assert (found.zeros, found.nans) == (zeros, nans)
    assert found.mean is not None and found.deviation is not None
    if math.isinf(low) or math.isinf(high):
        assert not math.isfinite(found.mean)
        assert math.isnan(found.deviation)
        return
    size = max(abs(low), abs(high))
    assert found.mean == pytest.approx(mean, rel=1e-9, abs=1e-9 * min(size, deviation or size))
    assert found.deviation == pytest.approx(deviation, rel=1e-4, abs=1e-15 * size)


@given(
    st.sampled_from(NUMBERS), st.integers(1, 3000), st.sampled_from(LAYOUTS), st.integers(0, 2**32)
)
@example(torch.float32, 300_000, "plain", 4)
@example(torch.bfloat16, 600_000, "plain", 4)
@example(torch.float8_e4m3fn, 1_100_000, "plain", 4)
@examples
def test_statistics_are_those_of_float64(
    dtype: torch.dtype, count: int, layout: str, seed: int
) -> None:
    check(laid_out(dtype, (count,), layout, seed))


HARD: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "near one": lambda n: 1 + 1e-5 * n,
    "large squares": lambda n: (1e37 * n).float(),
    "small squares": lambda n: (1e-30 * n).float(),
    "larger squares": lambda n: 1e306 * n,
    "smaller squares": lambda n: 1e-250 * n,
    "denormal": lambda n: 1e-310 * n,
    "extremes": lambda n: torch.tensor([1.0, -1.0]).double() * torch.finfo(torch.float64).max,
    "far from zero": lambda n: (1e6 + n).float(),
    "constant": lambda n: torch.full_like(n, 0.1).float(),
    "one step differs": lambda n: torch.cat([torch.zeros(262144), torch.ones(5)]),
    "NaN in one step": lambda n: torch.cat([torch.full((262144,), math.nan), torch.ones(5)]),
    "one infinity": lambda n: torch.cat([n, torch.tensor([math.inf]).double()]),
    "both infinities": lambda n: torch.tensor([math.inf, 1.0, -math.inf]),
    "infinity and NaN": lambda n: torch.tensor([math.inf, math.nan]),
    "integers beyond 2**53": lambda n: torch.tensor([2**63 - 1, 2**53 + 1, -(2**63), 0]),
    "unsigned": lambda n: torch.tensor([-1, 0, 1]).view(torch.uint64),
    "zeros of both signs": lambda n: torch.tensor([0.0, -0.0, 1.0]),
}


@pytest.mark.parametrize("kind", HARD)
def test_statistics_of_what_overflows_or_cancels(kind: str) -> None:
    noise = torch.randn(300_000, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    check(HARD[kind](noise))


def test_statistics_of_nothing_and_of_nothing_but_nan() -> None:
    assert Statistics.of(torch.zeros(0, 3)) == Statistics(zeros=0, nans=0)
    assert Statistics.of(torch.full((5,), math.nan)) == Statistics(zeros=0, nans=5)


def test_statistics_of_a_complex_tensor_are_of_its_real_parts() -> None:
    found = Statistics.of(torch.tensor([3 + 100j, -1 - 100j]))
    assert found == Statistics(-1.0, 3.0, 1.0, 2.0, 0, 0)


def test_a_dtype_that_torch_cannot_compute_with_has_no_statistics() -> None:
    assert Statistics.of(random_tensor(DTYPES["uint4"], (5,), 0)) == Statistics()
    assert Statistics.of(random_tensor(DTYPES["float4_e2m1fn_x2"], (4, 5), 0).t()) == Statistics()
