"""Tensors are cut into chunks of whole rows where rows fit; small ones lie in a pack, aligned."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from mmdb.store.tensors.tensor_bytes import (
    CHUNK_BYTES,
    DTYPES,
    PACKED_BELOW,
    ROW_CHUNK_BYTES,
    chunk_bytes,
    chunk_count,
    pack_layout,
    spans,
    word_bytes,
)

itemsizes = st.sampled_from([1, 2, 4, 8, 16])
sizes = st.one_of(st.integers(0, 9), st.integers(1, 3 * CHUNK_BYTES))
members = st.lists(st.tuples(st.sampled_from(sorted(DTYPES)), st.integers(0, 40)), max_size=30).map(
    lambda found: [
        (ordinal, name, count * DTYPES[name].itemsize)
        for ordinal, (name, count) in enumerate(found)
    ]
)


@given(st.lists(sizes, max_size=4), itemsizes, st.booleans())
def test_a_chunk_holds_whole_rows_or_whole_elements(
    shape: list[int], itemsize: int, by_row: bool
) -> None:
    size, row = chunk_bytes(shape, itemsize, by_row=by_row), math.prod(shape[1:]) * itemsize
    limit = ROW_CHUNK_BYTES if by_row else CHUNK_BYTES
    assert 0 < size <= limit
    assert size % itemsize == 0
    if 0 < row <= limit:
        assert size % row == 0
        assert size + row > limit


@given(st.integers(0, 50_000), st.integers(1, 5_000))
def test_the_spans_cover_every_byte_once_and_in_order(byte_count: int, size: int) -> None:
    found = list(spans(byte_count, size))
    assert len(found) == chunk_count(byte_count, size)
    assert [ordinal for ordinal, _, _ in found] == list(range(len(found)))
    ends = [0, *(stop for _, _, stop in found)]
    assert [start for _, start, _ in found] == ends[:-1]
    assert ends[-1] == byte_count
    assert all(0 < stop - start <= size for _, start, stop in found)


@given(members)
def test_a_pack_holds_each_tensor_once_aligned_to_its_words(
    listed: list[tuple[int, str, int]],
) -> None:
    layout = pack_layout(listed)
    assert layout.byte_count == sum(size for _, _, size in listed)
    taken: set[int] = set()
    for ordinal, name, size in listed:
        start = layout.offsets[ordinal]
        assert start % DTYPES[name].itemsize == 0
        own = set(range(start, start + size))
        assert not own & taken
        taken |= own
    assert taken == set(range(layout.byte_count))


@given(members)
def test_a_pack_is_split_into_the_words_that_most_of_its_bytes_have(
    listed: list[tuple[int, str, int]],
) -> None:
    by_word = dict.fromkeys((1, 2, 4, 8), 0)
    for _, name, size in listed:
        by_word[word_bytes(DTYPES[name])] += size
    assert by_word[pack_layout(listed).word] == max(by_word.values())


def test_places_in_a_pack_are_a_format_that_stored_models_rely_on() -> None:
    listed = [(0, "uint8", 3), (1, "float32", 8), (3, "complex128", 16), (4, "float32", 4)]
    layout = pack_layout(listed)
    assert layout.offsets == {3: 0, 1: 16, 4: 24, 0: 28}
    assert (layout.byte_count, layout.word) == (31, 8)
    assert PACKED_BELOW == 8192  # which entries lie in a pack is not written down either


@given(members, st.sets(st.integers(0, 29)))
def test_an_adapter_moves_no_other_tensor_of_a_pack(
    listed: list[tuple[int, str, int]], added: set[int]
) -> None:
    layout, alone = (
        pack_layout(listed, added),
        pack_layout([m for m in listed if m[0] not in added]),
    )
    assert alone.offsets.items() <= layout.offsets.items()
    taken: set[int] = set(range(alone.byte_count))
    for ordinal, name, size in [m for m in listed if m[0] in added]:
        start = layout.offsets[ordinal]
        assert start % DTYPES[name].itemsize == 0
        own = set(range(start, start + size))
        assert not own & taken
        taken |= own
    assert max(taken, default=-1) < layout.byte_count


def test_nothing_makes_an_empty_pack() -> None:
    assert pack_layout([]).byte_count == 0
