"""A module's tensors as entries: what is tied, what shares memory, what only lies beside it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from mmdb.errors import InputError, UnsupportedTensor
from mmdb.store.tensors.hashing import hash_entries
from mmdb.store.tensors.state_entries import Entry, ModuleContents, contents_of, view_of
from mmdb.store.tensors.tensor_bytes import hash_of
from tests.tensors import same_bits

spans = st.lists(
    st.tuples(st.integers(0, 60), st.integers(1, 20), st.sampled_from([1, 2, 3])), max_size=7
)
dtypes = st.sampled_from([torch.uint8, torch.int16, torch.float32, torch.complex128])


def by_path(contents: ModuleContents) -> dict[str, Entry]:
    """Return the entries but for storages."""
    return {e.path: e for e in contents.entries if e.kind != "storage"}


def restored(contents: ModuleContents) -> dict[str, torch.Tensor]:
    """Return what can be made of the entries and the storages alone, as when they are read."""
    made: dict[int, torch.Tensor] = {}
    for entry in (e for e in contents.entries if e.kind == "storage"):
        made[entry.ordinal] = contents.tensor(entry).clone()
    for entry in contents.entries:
        if entry.layout is not None:
            made[entry.ordinal] = view_of(entry, made[entry.layout["storage"]])
        elif entry.tied_to is not None:
            made[entry.ordinal] = made[entry.tied_to]
        elif entry.kind != "storage":
            made[entry.ordinal] = contents.tensor(entry).clone()
    return {e.path: made[e.ordinal] for e in contents.entries if e.kind != "storage"}


@given(spans, dtypes)
@settings(max_examples=200, deadline=None)
def test_slices_of_one_memory_come_back_and_share_what_they_shared(
    cuts: list[tuple[int, int, int]], dtype: torch.dtype
) -> None:
    memory = torch.arange(130 * dtype.itemsize, dtype=torch.int64).to(torch.uint8).view(dtype)
    model = {f"{k}": memory[at : at + n * step : step] for k, (at, n, step) in enumerate(cuts)}
    found = restored(contents_of(model))
    for path, tensor in model.items():
        assert same_bits(found[path], tensor)
    covered = [
        set(range(at * dtype.itemsize, (at + (n - 1) * step + 1) * dtype.itemsize))
        for at, n, step in cuts
    ]
    for a in range(len(cuts)):
        for b in range(a):
            shares = found[f"{a}"].untyped_storage().data_ptr() == (
                found[f"{b}"].untyped_storage().data_ptr()
            )
            if covered[a] & covered[b]:
                assert shares


def test_only_what_overlaps_is_stored_together() -> None:
    memory = torch.arange(1_000_000.0)
    contents = contents_of(
        {"a": memory[:5], "b": memory[3:8], "c": memory[500:], "d": memory[90:95]}
    )
    storages = [e for e in contents.entries if e.kind == "storage"]
    assert [e.byte_count for e in storages] == [32]
    entries = by_path(contents)
    assert entries["a"].layout == {"storage": 4, "offset": 0, "stride": [1]}
    assert entries["b"].layout == {"storage": 4, "offset": 12, "stride": [1]}
    assert entries["c"].layout is None and entries["d"].layout is None


def test_the_same_view_is_tied_to_the_first_and_an_equal_copy_is_not() -> None:
    weight = torch.ones(3)
    entries = by_path(
        contents_of(
            {"a": weight, "b": weight[:], "c": torch.ones(3), "d": weight.view(torch.int32)}
        )
    )
    assert entries["b"].tied_to == 0
    assert entries["c"].tied_to is None and entries["c"].layout is None
    assert entries["a"].layout is not None and entries["d"].layout is not None
    assert entries["b"].layout is None


def test_empty_lazy_and_unusual_tensors_share_nothing() -> None:
    base = torch.ones(3, dtype=torch.complex64)
    entries = by_path(
        contents_of(
            {
                "a": torch.zeros(0),
                "b": torch.zeros(0),
                "base": base,
                "conjugate": base.conj(),
                "meta": torch.empty(3, device="meta"),
                "sparse": torch.eye(2).to_sparse(),
            }
        )
    )
    assert all(e.tied_to is None and e.layout is None for e in entries.values())


def test_two_arrays_of_one_memory_are_read_from_the_longer() -> None:
    array = np.arange(50.0)
    model = {"short": torch.from_numpy(array[:4]), "long": torch.from_numpy(array)}
    contents = contents_of(model)
    found = restored(contents)
    assert all(same_bits(found[path], model[path]) for path in model)
    assert contents.entries[-1].byte_count == array.nbytes


class Layer(nn.Module):
    """A layer with one tensor of every kind."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(2))
        self.frozen = nn.Parameter(torch.zeros(2), requires_grad=False)
        self.register_buffer("running_mean", torch.ones(2) * 3)
        self.register_buffer("cache", torch.ones(2) * 4, persistent=False)


def test_a_module_tells_kinds_and_a_state_dict_guesses_them_by_name() -> None:
    module = Layer()
    told = {p: (e.kind, e.trainable) for p, e in by_path(contents_of(module)).items()}
    assert told == {
        "weight": ("parameter", True),
        "frozen": ("parameter", False),
        "running_mean": ("buffer", False),
        "cache": ("transient", False),
    }
    guessed = {p: e.kind for p, e in by_path(contents_of(module.state_dict())).items()}
    assert guessed == {"weight": "parameter", "frozen": "parameter", "running_mean": "buffer"}


def test_entries_are_numbered_in_the_order_of_the_state_dict() -> None:
    module = nn.Sequential(Layer(), nn.Linear(2, 2), Layer())
    entries = contents_of(module).entries
    assert [e.ordinal for e in entries] == list(range(len(entries)))
    state = list(module.state_dict())
    assert [e.path for e in entries[: len(state)]] == state
    assert [e.path for e in entries[len(state) :]] == ["0.cache", "2.cache"]


@pytest.mark.parametrize("path", [3, None, b"a", ("a",), "\ud800"])
def test_a_path_that_is_not_text_is_refused(path: object) -> None:
    with pytest.raises(InputError):
        contents_of({path: torch.ones(2)})  # type: ignore[dict-item]


def test_what_is_not_a_tensor_is_named() -> None:
    with pytest.raises(UnsupportedTensor, match="'steps' is a list"):
        contents_of({"a": torch.ones(1), "steps": [1, 2]})  # type: ignore[dict-item]


class Counted(Mapping[str, torch.Tensor]):
    """A mapping that makes its tensors anew each time, and counts."""

    def __init__(self, count: int) -> None:
        self.reads = dict.fromkeys(map(str, range(count)), 0)

    def __getitem__(self, path: str) -> torch.Tensor:
        self.reads[path] += 1
        return torch.full((5,), float(path))

    def __iter__(self) -> Iterator[str]:
        return iter(self.reads)

    def __len__(self) -> int:
        return len(self.reads)


@pytest.mark.parametrize("threads", [0, 2])
def test_a_mapping_is_read_once_for_its_entries_and_hashes(threads: int) -> None:
    source = Counted(20)
    contents = contents_of(source)
    hashes = hash_entries(contents, threads)
    assert set(source.reads.values()) == {1}
    assert [hashes[k] for k in range(20)] == [
        hash_of(torch.full((5,), float(k))) for k in range(20)
    ]


@pytest.mark.parametrize("threads", [0, 2])
def test_a_tensor_that_cannot_be_hashed_is_named(threads: int) -> None:
    contents = contents_of({"fine": torch.ones(2), "bad": torch.ones(2, device="meta")})
    with pytest.raises(UnsupportedTensor, match="'bad': A tensor that is without memory"):
        hash_entries(contents, threads)


def test_tied_tensors_have_the_hash_of_the_first() -> None:
    weight = torch.ones(3)
    hashes = hash_entries(contents_of({"a": weight, "b": weight}), 2)
    assert hashes[0] == hashes[1] == hash_of(weight)
