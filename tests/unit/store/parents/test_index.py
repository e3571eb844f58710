from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import cast

import pytest

from mmdb.db.connection import Connection
from mmdb.errors import ConnectionLost
from mmdb.graph.match.pack import PackedSkeleton, pack
from mmdb.graph.match.packed_zoo import Stack, stack
from mmdb.graph.ops.skeleton import MODEL_INPUT, LayerSkeleton, SkeletonLayer
from mmdb.store.parents import choosing as module
from mmdb.store.parents.choosing import Index, index_of


def chain(*widths: int) -> PackedSkeleton:
    """Return the outline of linear layers one after the other."""
    sizes = list(pairwise(widths))
    layers = [
        SkeletonLayer(ordinal=k, kind="linear", shape=(o, i), parameters=o * i)
        for k, (i, o) in enumerate(sizes)
    ]
    return pack(
        LayerSkeleton(layers=tuple(layers), inputs=tuple((k - 1,) for k in range(len(layers))))
    )


SESSION = cast("Connection", None)
ZOO = {k: chain(8, 16, 8 + k % 3) for k in range(1, 40)}
BATCH = 7
CHILD = chain(8, 16, 9)
assert MODEL_INPUT == -1


class Session:
    """Stands for a connection."""


@pytest.fixture(autouse=True)
def stored(monkeypatch: pytest.MonkeyPatch) -> list[list[int]]:
    """Read outlines from ZOO; return what was read."""
    asked: list[list[int]] = []

    def read(connection: object, ids: Sequence[int]) -> Iterator[tuple[list[int], Stack]]:
        asked.append(list(ids))
        for start in range(0, len(ids), BATCH):
            there = [one for one in ids[start : start + BATCH] if one in ZOO]
            yield there, stack(ZOO[one] for one in there)

    monkeypatch.setattr(module, "stacked_outlines", read)
    return asked


def found(index: Index, among: Sequence[int], k: int, same: int | None = None) -> list[int]:
    return [one for one, _ in index.search(CHILD, among, k, same=same)]


def test_equal_scores_come_in_the_order_of_their_numbers() -> None:
    index = Index()
    index.read(SESSION, sorted(ZOO))
    assert found(index, sorted(ZOO), 4) == [1, 4, 7, 10]


def test_the_order_in_which_a_session_read_them_does_not_count() -> None:
    at_once, late = Index(), Index()
    at_once.read(SESSION, sorted(ZOO))
    for ids in ([5, 9, 30], [4, 31], [1, 2, 3], [7], [6], sorted(ZOO)):
        late.read(SESSION, ids)
    for k in (1, 3, 14, 39):
        assert found(late, sorted(ZOO), k) == found(at_once, sorted(ZOO), k)


def test_many_late_ones_are_read_again_into_one() -> None:
    index, whole = Index(), Index()
    for one in sorted(ZOO, reverse=True):
        index.read(SESSION, range(one, 40))
    whole.read(SESSION, sorted(ZOO))
    assert found(index, sorted(ZOO), 9) == found(whole, sorted(ZOO), 9)


def test_what_cannot_be_read_at_first_is_read_at_the_next_search(
    stored: list[list[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    index, whole = Index(), Index()

    def broken(connection: object, ids: Sequence[int]) -> Iterator[tuple[list[int], Stack]]:
        yield [3, 4], stack([ZOO[3], ZOO[4]])
        raise ConnectionLost("gone")

    with monkeypatch.context() as patch:
        patch.setattr(module, "stacked_outlines", broken)
        with pytest.raises(ConnectionLost):
            index.read(SESSION, [3, 4, 5, 6])
    index.read(SESSION, sorted(ZOO))
    assert stored == [[one for one in ZOO if one not in (3, 4)]]
    whole.read(SESSION, sorted(ZOO))
    assert found(index, sorted(ZOO), 39) == found(whole, sorted(ZOO), 39)


def test_only_what_the_zoo_has_now_is_found() -> None:
    index = Index()
    index.read(SESSION, sorted(ZOO))
    assert found(index, [2, 3, 10], 9)[0] == 10
    assert sorted(found(index, [2, 3, 10], 9)) == [2, 3, 10]
    assert found(index, [], 9) == []


def test_the_childs_own_architecture_comes_first() -> None:
    index = Index()
    index.read(SESSION, sorted(ZOO))
    assert found(index, sorted(ZOO), 3, same=7) == [7, 1, 4]


def test_what_was_read_is_not_read_again(stored: list[list[int]]) -> None:
    index = Index()
    index.read(SESSION, [1, 2, 99])
    index.read(SESSION, [1, 2, 99])
    index.read(SESSION, [1, 2, 3, 99])
    assert stored == [[1, 2, 99], [3]]


def test_each_session_keeps_its_own() -> None:
    one, other = Session(), Session()
    assert index_of(one) is index_of(one)  # type: ignore[arg-type]
    assert index_of(one) is not index_of(other)  # type: ignore[arg-type]
