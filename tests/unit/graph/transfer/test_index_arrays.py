from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mmdb.graph.ops.op_graph import Operation
from mmdb.graph.transfer import index_arrays
from mmdb.graph.transfer.rearranged_axes import view_groups

CASES = [
    ("view", {"size": (2, 3, 2, 4)}, (2, 3, 8), [(2, 3, 2, 4)]),
    ("view", {"size": (6, 8)}, (2, 3, 8), [(6, 8)]),
    ("permute", {"dims": (2, 0, 1)}, (2, 3, 8), [(8, 2, 3)]),
    ("unsqueeze", {"dim": 1}, (2, 3, 8), [(2, 1, 3, 8)]),
    ("squeeze", {"dims": (1,)}, (2, 1, 8), [(2, 8)]),
    ("select", {"dim": 2, "index": 5}, (2, 3, 8), [(2, 3)]),
    ("unbind", {"dim": 1}, (2, 3, 8), [(2, 8)] * 3),
    ("slice", {"dim": 2, "start": 2, "end": 8, "step": 2}, (2, 3, 8), [(2, 3, 3)]),
    ("split_with_sizes", {"dim": 2, "split_sizes": (3, 5)}, (2, 3, 8), [(2, 3, 3), (2, 3, 5)]),
]


@pytest.mark.parametrize(("op", "arguments", "shape", "shapes"), CASES)
def test_numbers_go_where_their_elements_go(
    op: str,
    arguments: dict[str, object],
    shape: tuple[int, ...],
    shapes: list[tuple[int, ...]],
) -> None:
    done = Operation(ordinal=0, op=op, arguments=arguments, shapes=tuple(shapes))
    along = np.arange(1.0, shape[-1] + 1)
    array = index_arrays.placed_at(along, len(shape) - 1, len(shape))
    whole = np.broadcast_to(array, shape)
    back = np.full(shape, np.nan)
    for output, made in enumerate(shapes):
        small = index_arrays.forward(done, array, shape, output)
        full = index_arrays.forward(done, whole, shape, output)
        assert np.array_equal(np.broadcast_to(small, made), np.broadcast_to(full, made))
        back = index_arrays.merged(back, index_arrays.backward(done, small, shape, output))
    known = ~np.isnan(back)
    assert known.any() and np.array_equal(whole[known], back[known])


@given(sizes=st.lists(st.integers(1, 4), min_size=1, max_size=5), data=st.data())
def test_groups_of_a_view_have_as_many_elements(sizes: list[int], data: st.DataObject) -> None:
    after: list[int] = []
    for size in sizes:
        choice = data.draw(st.integers(0, 2))
        if after and choice == 0:
            after[-1] *= size
        else:
            after += [1, size] if choice == 1 else [size]
    for one, other in view_groups(sizes, after):
        assert product(sizes, one) == product(after, other)
    with pytest.raises(ValueError):
        list(view_groups(sizes, [*after, 2]))


def product(sizes: Sequence[int], dims: Sequence[int]) -> int:
    return int(np.prod([sizes[dim] for dim in dims]))
