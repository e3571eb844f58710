"""Tensors of every dtype, shape and layout for property tests, and what makes two the same."""

from __future__ import annotations

import math

import numpy as np
import torch
from hypothesis import strategies as st

from mmdb.store.tensors.tensor_bytes import DTYPES

#: Integers that hold the bits of an element.
WORDS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
#: Real dtypes of which a complex tensor's imaginary part is a lazy negative.
COMPLEX_OF = {
    torch.float16: torch.complex32,
    torch.float32: torch.complex64,
    torch.float64: torch.complex128,
}
LAYOUTS = ("plain", "transposed", "steps", "expanded", "channels_last", "inner", "lazy")


def bits(tensor: torch.Tensor) -> torch.Tensor:
    """Return a tensor's elements as integers of their size; a complex number is two."""
    tensor = tensor.detach().resolve_conj().resolve_neg()
    if tensor.is_complex():
        tensor = torch.view_as_real(tensor)
    return tensor.view(WORDS[tensor.element_size()])


def same_bits(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Return whether two tensors agree in dtype, shape and every bit."""
    return a.dtype == b.dtype and a.shape == b.shape and torch.equal(bits(a), bits(b))


def random_tensor(dtype: torch.dtype, shape: tuple[int, ...], seed: int) -> torch.Tensor:
    """Return a tensor of random bits: among floats NaNs with payloads, infinities, -0.0."""
    random = np.random.default_rng(seed)
    size = math.prod(shape) * dtype.itemsize
    if not size:
        return torch.empty(shape, dtype=dtype)
    data = torch.from_numpy(random.integers(0, 256, size, dtype=np.uint8))
    kind = seed % 4
    if kind == 1 and dtype.is_floating_point and dtype.itemsize > 1:
        values = torch.from_numpy(random.standard_normal(math.prod(shape)) * 0.02)
        data = values.to(dtype).view(torch.uint8)
    elif kind == 2:
        data.fill_(int(random.integers(0, 256)))
    elif kind == 3:
        data[torch.from_numpy(random.random(size) < 0.95)] = 0
    if dtype == torch.bool:
        data &= 1
    return data.view(dtype).reshape(shape)


def changed(tensor: torch.Tensor, share: float, seed: int) -> torch.Tensor:
    """Return a contiguous copy of which about a share of the elements has other bits."""
    random = np.random.default_rng(seed)
    words = bits(tensor).clone(memory_format=torch.contiguous_format).reshape(-1)
    if not words.numel():
        return torch.empty(tensor.shape, dtype=tensor.dtype)
    words[torch.from_numpy(random.random(words.numel()) < share)] ^= 1
    return words.view(torch.uint8).view(tensor.dtype).reshape(tensor.shape)


def laid_out(dtype: torch.dtype, shape: tuple[int, ...], layout: str, seed: int) -> torch.Tensor:
    """Return a tensor of a shape whose elements do not lie one after the other, if they can."""
    if layout == "transposed":
        return random_tensor(dtype, shape[::-1], seed).permute(tuple(range(len(shape)))[::-1])
    if layout == "steps":
        wide = random_tensor(dtype, tuple(2 * n + 1 for n in shape), seed)
        return wide[tuple(slice(1, None, 2) for _ in shape)]
    if layout == "expanded" and shape:
        return random_tensor(dtype, (1, *shape[1:]), seed).expand(shape)
    if layout == "channels_last" and len(shape) == 4:
        order = random_tensor(dtype, (shape[0], *shape[2:], shape[1]), seed)
        return order.permute(0, 3, 1, 2)
    if layout == "inner":
        return random_tensor(dtype, (math.prod(shape) + 3,), seed)[3:].reshape(shape)
    if layout == "lazy" and dtype in (torch.complex64, torch.complex128):
        return random_tensor(dtype, shape, seed).conj()
    if layout == "lazy" and dtype in (torch.float32, torch.float64):
        return random_tensor(COMPLEX_OF[dtype], shape, seed).conj().imag
    return random_tensor(dtype, shape, seed)


shapes = st.one_of(
    st.just(()),
    st.lists(st.integers(0, 7), min_size=1, max_size=5).map(tuple),
    st.lists(st.integers(8, 64), min_size=2, max_size=2).map(tuple),
)
tensors = st.builds(
    laid_out,
    st.sampled_from(list(DTYPES.values())),
    shapes,
    st.sampled_from(LAYOUTS),
    st.integers(0, 2**32),
)
