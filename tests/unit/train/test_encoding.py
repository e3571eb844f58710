"""The bytes of a state over its tensors, beside what the safetensors library writes."""

from __future__ import annotations

import pytest
import safetensors.torch
import torch
from blake3 import blake3
from hypothesis import given
from hypothesis import strategies as st

from mmdb.store.files.safetensors_format import StateEncoding

DTYPES = [
    torch.bool,
    torch.uint8,
    torch.int8,
    torch.int16,
    torch.int32,
    torch.int64,
    torch.float16,
    torch.bfloat16,
    torch.float32,
    torch.float64,
    torch.complex64,
    torch.float8_e4m3fn,
    torch.float8_e5m2,
]
NAMES = st.text(
    st.characters(exclude_categories=["Cs"], exclude_characters="\x00"), min_size=1, max_size=12
)
SHAPES = st.lists(st.integers(0, 4), max_size=3).map(tuple)
TENSORS = st.dictionaries(NAMES, st.tuples(st.sampled_from(DTYPES), SHAPES), max_size=8)


@given(TENSORS, st.dictionaries(NAMES, NAMES, min_size=1, max_size=1), st.integers(0, 2**31))
def test_the_bytes_are_those_of_the_library(
    kinds: dict[str, tuple[torch.dtype, tuple[int, ...]]], metadata: dict[str, str], seed: int
) -> None:
    generator = torch.Generator().manual_seed(seed)
    tensors = {
        name: torch.randint(0, 2, shape, generator=generator).to(dtype)
        for name, (dtype, shape) in kinds.items()
    }
    kept = {name: tensor for name, tensor in tensors.items() if name != "__metadata__"}
    found, written = StateEncoding(kept, metadata), safetensors.torch.save(kept, metadata)
    assert bytes(found) == written
    assert len(found) == len(written)
    assert found.digest() == blake3(written).digest()


def test_a_dtype_without_a_name_is_refused() -> None:
    with pytest.raises(KeyError):
        StateEncoding({"a": torch.zeros(1, dtype=torch.complex128)}, {})
