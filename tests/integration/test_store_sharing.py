"""Tensors that share memory share it again, others get their own, and not all need be there."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import mmdb
from mmdb.api import Database
from mmdb.db.connection import Connection
from mmdb.store.models.model_rows import find_entries, find_model
from mmdb.store.models.recover import ModelReader
from mmdb.store.models.save import save_model
from tests.stores import check, load, rows_of
from tests.tensors import same_bits


@pytest.fixture
def db(database_url: str) -> Iterator[Database]:
    """Yield an open database, once on each engine."""
    with mmdb.connect(database_url) as opened:
        yield opened


@pytest.fixture
def connection(db: Database) -> Connection:
    """Return the session of an open database."""
    return db.connection


# -- memory -------------------------------------------------------------------


class Memory:
    """The most memory that this process had since it was asked to look."""

    def __init__(self) -> None:
        Path("/proc/self/clear_refs").write_text("5")
        self._before = self._peak()

    @staticmethod
    def _peak() -> int:
        status = Path("/proc/self/status").read_text()
        return int(status.split("VmHWM:")[1].split()[0]) << 10

    def grown(self) -> int:
        """Return the bytes above those of the beginning."""
        return self._peak() - self._before


@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="needs Linux")
def test_a_tensor_of_more_than_a_gigabyte_takes_its_own_memory_and_little_more(
    connection: Connection,
) -> None:
    size = 1_100_000_000
    tensor = torch.zeros(size // 4)
    tensor[-1] = 7.0
    memory = Memory()
    saved = save_model(connection, "large", {"weight": tensor})
    assert saved.stored_bytes < 1_000_000
    assert memory.grown() < 200 << 20
    del tensor
    memory = Memory()
    found = load(connection, saved)["weight"]
    assert memory.grown() < size + (200 << 20)
    assert found.shape == (size // 4,)
    assert found[-1] == 7.0 and not found[:-1].any()
    rows = ModelReader(connection).rows(
        find_model(connection, "large"), "weight", size // 4 - 2, None
    )
    assert rows.tolist() == [0.0, 7.0]


class Loading(Mapping[str, torch.Tensor]):
    """A mapping that makes each tensor when it is asked for, and counts."""

    def __init__(self, names: list[str]) -> None:
        self.names = names
        self.loads = dict.fromkeys(names, 0)

    def __getitem__(self, path: str) -> torch.Tensor:
        self.loads[path] += 1
        size = 10 << 20 if path.startswith("large") else 10
        return torch.full((size,), float(self.names.index(path)))

    def __iter__(self) -> Iterator[str]:
        return iter(self.names)

    def __len__(self) -> int:
        return len(self.names)


@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="needs Linux")
def test_tensors_that_are_made_when_asked_for_are_never_all_there(connection: Connection) -> None:
    source = Loading([*(f"large{k}" for k in range(9)), *(f"small{k}" for k in range(9))])
    memory = Memory()
    saved = save_model(connection, "lazy", source)
    assert memory.grown() < 4 * (40 << 20)  # of 9 tensors of 40 MiB
    # To be named, described and written; one more time for the one that tells what is similar.
    assert sorted(source.loads.values())[-2:] == [3, 4]
    found = load(connection, saved)
    assert [t[0].item() for t in found.values()] == [float(k) for k in range(18)]


# -- what is one tensor stays one ---------------------------------------------


def memory_of(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage().data_ptr()


@pytest.mark.parametrize("size", [10, 100])  # in the pack, and not
def test_tied_tensors_are_one_again(db: Database, size: int) -> None:
    weight = torch.randn(size, size)
    model = {"a": weight, "b": torch.zeros(3), "c": weight, "d": weight[:]}
    saved = save_model(db.connection, "net", model)
    found = load(db.connection, saved)
    assert found["a"] is found["c"] is found["d"]
    check(db.connection, saved, model)
    assert rows_of(db, "tensor") == 3  # the pack is one
    assert same_bits(
        ModelReader(db.connection).rows(find_model(db.connection, "net"), "c", 1, 4), weight[1:4]
    )


class Zoo(nn.Module):
    """Everything in which a module's tensors may differ."""

    def __init__(self) -> None:
        super().__init__()
        self.encode = nn.Embedding(60, 50)
        self.decode = nn.Linear(50, 60, bias=False)
        self.decode.weight = self.encode.weight
        self.norm = nn.BatchNorm1d(50)
        self.frozen = nn.Parameter(torch.ones(4), requires_grad=False)
        self.register_buffer("alias", self.norm.weight.detach())
        self.register_buffer("mask", torch.arange(5) > 2, persistent=False)
        self.register_buffer("mask_again", self.get_buffer("mask"), persistent=False)


def test_a_module_s_kinds_are_told_apart(connection: Connection) -> None:
    save_model(connection, "zoo", Zoo())
    entries = {e.path: e for e in find_entries(connection, find_model(connection, "zoo").model_id)}
    assert entries["decode.weight"].tied_to == entries["encode.weight"].ordinal
    assert entries["norm.weight"].tied_to == entries["alias"].ordinal
    assert entries["mask_again"].tied_to == entries["mask"].ordinal
    kinds = {path: (e.kind, e.trainable) for path, e in entries.items()}
    assert kinds["encode.weight"] == kinds["decode.weight"] == ("parameter", True)
    assert kinds["frozen"] == ("parameter", False)
    assert kinds["alias"] == kinds["norm.running_mean"] == ("buffer", False)
    assert kinds["mask"] == ("transient", False)
    assert [e.ordinal for e in entries.values()] == list(range(len(entries)))


def test_a_module_s_transient_buffers_come_back_with_its_state_dict(connection: Connection) -> None:
    zoo = Zoo()
    found = load(connection, save_model(connection, "zoo", zoo))
    state = zoo.state_dict()
    assert list(found) == [*state, "mask", "mask_again"]
    assert all(same_bits(found[path], state[path]) for path in state)
    assert same_bits(found["mask"], zoo.get_buffer("mask"))
    assert found["alias"] is found["norm.weight"]


@pytest.mark.parametrize("size", [50, 10_000])
def test_views_that_overlap_share_memory_again(db: Database, size: int) -> None:
    memory = torch.arange(float(2 * size))
    model = {
        "low": memory[: size + 7],
        "high": memory[size:],
        "steps": memory[1::2],
        "bits": memory.view(torch.int16)[3:9],
        "low again": memory[: size + 7],
        "apart": torch.ones(4),
    }
    saved = save_model(db.connection, "net", model)
    check(db.connection, saved, model)
    found = load(db.connection, saved)
    assert found["low again"] is found["low"]
    found["low"][size] = -1
    assert found["high"][0] == -1
    assert len({memory_of(t) for t in found.values()}) == 2
    reader, net = ModelReader(db.connection), find_model(db.connection, "net")
    for path in model:
        assert same_bits(reader.rows(net, path, 2, 4), model[path][2:4]), path
        assert same_bits(reader.tensors(net, [path])[path], model[path]), path


def test_slices_of_one_buffer_that_do_not_overlap_are_tensors_of_their_own(db: Database) -> None:
    flat = torch.randn(3, 100, 100)
    model = {"a": flat[0], "b": flat[1], "c": flat[2], "over": flat[2, 50:]}
    saved = save_model(db.connection, "net", model)
    check(db.connection, saved, model)
    found = load(db.connection, saved)
    assert len({memory_of(found[p]) for p in "abc"}) == 3
    assert memory_of(found["c"]) == memory_of(found["over"])
    assert (
        db.sql("SELECT byte_count FROM mmdb.model")[0]["byte_count"] == flat.nbytes
    )  # nothing twice


def test_arrays_that_begin_in_one_place_are_shared_whatever_their_lengths(
    connection: Connection,
) -> None:
    array = np.arange(5000.0)
    model = {"short": torch.from_numpy(array[:9]), "long": torch.from_numpy(array)}
    saved = save_model(connection, "net", model)
    check(connection, saved, model)
    found = load(connection, saved)
    found["short"][0] = -1
    assert found["long"][0] == -1


def test_a_lazy_conjugate_beside_its_base_keeps_its_values(connection: Connection) -> None:
    base = torch.randn(60, 60, dtype=torch.complex64)
    model = {"base": base, "conjugate": base.conj(), "negative": base.conj().imag}
    check(connection, save_model(connection, "net", model), model)


def test_equal_tensors_are_stored_once_and_come_back_apart(db: Database) -> None:
    model = {f"{k}": torch.ones(100, 100) for k in range(4)} | {"small": torch.ones(2)}
    model["small too"] = torch.ones(2)
    saved = save_model(db.connection, "net", model)
    assert rows_of(db, "encoding") == 2  # and the pack
    found = load(db.connection, saved)
    assert len({memory_of(t) for t in found.values()}) == len(model)
    check(db.connection, saved, model)


def test_a_tensor_that_equals_a_view_is_stored_by_itself(connection: Connection) -> None:
    """The view lies in the memory that it shares; its equal has no such place."""
    for order in (1, -1):
        memory = torch.ones(3, 100, 100)
        model = {"view": memory[:2], "over": memory[1:], "equal": torch.ones(2, 100, 100)}
        model = dict(list(model.items())[::order])
        check(connection, save_model(connection, f"net{order}", model), model)
    alone = {"a": torch.ones(2, 100, 100)}
    check(connection, save_model(connection, "alone", alone), alone)


def test_a_tensor_that_equals_a_parent_s_view_is_stored_by_itself(connection: Connection) -> None:
    memory = torch.arange(30_000.0).reshape(3, 100, 100)
    parent = {"view": memory[:2], "tied": memory[:2], "over": memory[1:]}
    save_model(connection, "net", parent)
    child = {"other": memory[:2].clone()}
    check(connection, save_model(connection, "net", child, parent="net"), child)
