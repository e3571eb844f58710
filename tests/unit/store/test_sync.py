"""What a copy between two databases sends, and in what form."""

from __future__ import annotations

import pytest

from mmdb.store.sync.exchange import (
    Described,
    HeldTensor,
    Need,
    Shipment,
    There,
    bases_to_ask,
    batches,
    missing,
    plan_shipments,
    same_model,
)

CHUNK = 1024


def tensor(name: str, stored: int | None = 100, base: str | None = None) -> Described:
    """Return a tensor of the source; without stored bytes it lies in a pack."""
    return Described(
        tensor_id=ord(name),
        tensor_hash=name.encode(),
        dtype="float32",
        shape=(4,),
        byte_count=16,
        statistics=(0.0, 1.0, 0.5, 0.1, 0, 0),
        word=None if stored is None else 4,
        chunk_bytes=None if stored is None else CHUNK,
        chunks=None if stored is None else 1,
        stored_bytes=stored,
        base_id=None if base is None else ord(base),
        base_hash=None if base is None else base.encode(),
    )


def whole(name: str, chunk_bytes: int | None = CHUNK) -> dict[bytes, HeldTensor]:
    return {name.encode(): HeldTensor(ord(name), chunk_bytes)}


def difference(name: str) -> dict[bytes, HeldTensor]:
    return {name.encode(): HeldTensor(ord(name), CHUNK, is_difference=True)}


def form(shipments: list[Shipment]) -> list[tuple[str, bool]]:
    """Return names, and whether each goes as it is stored."""
    return [(s.tensor.tensor_hash.decode(), s.as_stored) for s in shipments]


# -- what is missing ------------------------------------------------------------


def test_what_the_target_has_is_not_sent() -> None:
    needs = [Need(1, b"a", True), Need(2, b"b", True), Need(3, b"c", False)]
    held = {b"a": HeldTensor(7, CHUNK), b"c": HeldTensor(8, None)}
    assert missing(needs, held) == [Need(2, b"b", True)]


def test_a_tensor_known_by_its_name_alone_is_sent_where_its_chunks_are_needed() -> None:
    held = {b"a": HeldTensor(7, None)}
    assert missing([Need(1, b"a", False)], held) == []
    assert missing([Need(1, b"a", True)], held) == [Need(1, b"a", True)]


def test_a_tensor_is_sent_once_and_with_chunks_if_any_use_needs_them() -> None:
    needs = [Need(1, b"a", False), Need(1, b"a", True), Need(1, b"a", False)]
    assert missing(needs, {}) == [Need(1, b"a", True)]


# -- differences and their bases ------------------------------------------------


def test_a_difference_to_a_base_that_the_target_has_whole_goes_as_it_is() -> None:
    found = plan_shipments([(tensor("d", 10, "b"), True)], whole("b"), {})
    assert form(found) == [("d", True)]


@pytest.mark.parametrize("held", [difference("b"), whole("b", CHUNK // 2)])
def test_a_difference_to_a_base_that_the_target_has_in_another_form_is_encoded_anew(
    held: dict[bytes, HeldTensor],
) -> None:
    found = plan_shipments([(tensor("d", 10, "b"), True)], held, {})
    assert form(found) == [("d", False)]


def test_a_base_that_is_sent_anyway_comes_before_its_differences() -> None:
    lacking = [(tensor("d", 10, "b"), True), (tensor("b"), True)]
    assert bases_to_ask(lacking) == {}
    assert form(plan_shipments(lacking, {}, {})) == [("b", True), ("d", True)]


def test_one_difference_is_encoded_anew_rather_than_sent_with_its_base() -> None:
    lacking = [(tensor("d", 10, "b"), True)]
    assert bases_to_ask(lacking) == {b"b": ord("b")}
    assert form(plan_shipments(lacking, {}, {b"b": tensor("b")})) == [("d", False)]


def test_a_base_is_sent_where_that_is_cheaper_for_its_differences_together() -> None:
    bases = {b"b": tensor("b", 100)}
    small = [(tensor("d", 40, "b"), True), (tensor("e", 50, "b"), True)]
    assert form(plan_shipments(small, {}, bases)) == [("b", True), ("d", True), ("e", True)]
    large = [(tensor("d", 60, "b"), True), (tensor("e", 50, "b"), True)]
    assert form(plan_shipments(large, {}, bases)) == [("d", False), ("e", False)]


def test_a_base_is_sent_where_differences_are_kept_as_they_are() -> None:
    lacking = [(tensor("d", 10, "b"), True)]
    found = plan_shipments(lacking, {}, {b"b": tensor("b")}, keep_differences=True)
    assert form(found) == [("b", True), ("d", True)]


def test_a_base_without_chunks_at_the_target_is_not_there() -> None:
    lacking = [(tensor("d", 10, "b"), True)]
    found = plan_shipments(lacking, whole("b", None), {b"b": tensor("b")}, keep_differences=True)
    assert form(found) == [("b", True), ("d", True)]


def test_a_difference_whose_chunks_are_not_needed_needs_no_base() -> None:
    lacking = [(tensor("d", 10, "b"), False)]
    assert bases_to_ask(lacking) == {}
    (found,) = plan_shipments(lacking, {}, {})
    assert (found.has_chunks, found.size) == (False, 0)


# -- batches --------------------------------------------------------------------


def sizes(stored: list[int], limit: int) -> list[list[int]]:
    shipments = [Shipment(tensor("t", size), has_chunks=True) for size in stored]
    return [[s.size for s in batch] for batch in batches(shipments, limit)]


@pytest.mark.parametrize(
    ("stored", "expected"),
    [
        ([], []),
        ([4, 4, 4], [[4, 4], [4]]),
        ([12], [[12]]),
        ([1, 12, 1], [[1], [12], [1]]),
        ([5, 5, 0, 0], [[5, 5, 0, 0]]),
    ],
)
def test_batches_keep_to_the_limit_unless_one_tensor_is_larger(
    stored: list[int], expected: list[list[int]]
) -> None:
    assert sizes(stored, 10) == expected


# -- models of the same weights -------------------------------------------------


def there(model_id: int, name: str, version: int, *, is_dropped: bool = False) -> There:
    return There(
        model_id=model_id,
        name=name,
        version=version,
        weights_hash=b"w",
        manifest_id=1,
        approach="snapshot",
        is_dropped=is_dropped,
    )


def test_a_parent_is_known_by_its_weights_and_its_own_name_comes_first() -> None:
    models = [there(1, "other", 1), there(2, "m", 2), there(3, "m", 1)]
    found = [same_model(models[:count], b"w", "m", 1) for count in (1, 2, 3)]
    assert [model.model_id for model in found if model] == [1, 2, 3]
    assert same_model(models, b"v", "m", 1) is None


def test_a_dropped_model_is_the_last_choice() -> None:
    models = [there(1, "m", 1, is_dropped=True), there(2, "other", 5)]
    found = same_model(models, b"w", "m", 1)
    assert found is not None and found.model_id == 2
