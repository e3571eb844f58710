"""Models come back from the store bit for bit, share what they shared, and are stored once."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import nn

import mmdb
from mmdb import errors
from mmdb.api import Database
from mmdb.db.connection import Connection
from mmdb.db.duck import DuckConnection
from mmdb.store import chunks
from mmdb.store.content import Statistics, hash_of
from mmdb.store.models import find_entries, find_model
from mmdb.store.recover import ModelReader, load_tensors, read_many
from mmdb.store.save import Saved, save_model
from tests.tensors import changed, random_tensor, same_bits, tensors

Tensors = Mapping[str, torch.Tensor]

pytestmark = pytest.mark.filterwarnings("ignore:ComplexHalf support is experimental")
SMALL_CHUNK = 2 << 10
examples = settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
#: Any text but what PostgreSQL refuses, and half characters.
names = st.text(st.characters(exclude_characters="\x00", exclude_categories=["Cs"]), max_size=12)
models = st.dictionaries(names, tensors, max_size=6)
seeds = st.integers(0, 2**32)
large = st.builds(
    lambda dtype, rows, columns, seed: random_tensor(dtype, (rows, columns), seed),
    st.sampled_from([torch.uint8, torch.bfloat16, torch.float32, torch.int64, torch.complex128]),
    st.integers(1, 90),
    st.integers(1, 700),
    seeds,
)


@pytest.fixture
def db(database_url: str) -> Iterator[Database]:
    """Yield an open database, once on each engine."""
    with mmdb.connect(database_url) as opened:
        yield opened


@pytest.fixture
def connection(db: Database) -> Connection:
    """Return the session of an open database."""
    return db.connection


def load(connection: Connection, saved: Saved | str) -> dict[str, torch.Tensor]:
    """Return what was saved, verified."""
    reference = saved if isinstance(saved, str) else saved.reference
    return load_tensors(connection, find_model(connection, reference))


def check(connection: Connection, saved: Saved, expected: Tensors) -> None:
    """Assert that a model is what was saved, bit for bit and in its order."""
    found = load(connection, saved)
    assert list(found) == list(expected)
    for path, tensor in expected.items():
        assert same_bits(found[path], tensor), path


def count(db: Database, what: str) -> int:
    """Return a number that a query over the store's tables gives."""
    return int(db.sql(f"SELECT {what}")[0]["n"])


def rows_of(db: Database, table: str) -> int:
    """Return how many rows a table has."""
    return count(db, f"count(*) AS n FROM mmdb.{table}")


def weights(seed: int = 0, size: int = 128) -> dict[str, torch.Tensor]:
    """Return a model of two tensors with chunks of their own and two in the pack."""
    generator = torch.Generator().manual_seed(seed)
    return {
        "body.weight": torch.randn(size, size, generator=generator) * 0.02,
        "body.bias": torch.randn(size, generator=generator) * 0.02,
        "head.weight": torch.randn(40, size, generator=generator) * 0.02,
        "head.bias": torch.randn(40, generator=generator) * 0.02,
    }


def moved(base: Tensors, seed: int, scale: float = 1e-4) -> dict[str, torch.Tensor]:
    """Return a model whose every weight moved a little."""
    generator = torch.Generator().manual_seed(seed)
    return {p: t + scale * torch.randn(t.shape, generator=generator) for p, t in base.items()}


# -- bit for bit --------------------------------------------------------------


@given(model=models, more=st.lists(large, max_size=2), seed=seeds)
@examples
def test_whatever_is_saved_comes_back_whole_in_rows_and_one_by_one(
    connection: Connection, model: dict[str, torch.Tensor], more: list[torch.Tensor], seed: int
) -> None:
    source = random.Random(seed)
    model |= {f"large.{k}": tensor for k, tensor in enumerate(more)}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(chunks, "CHUNK_BYTES", source.choice([SMALL_CHUNK, chunks.CHUNK_BYTES]))
        saved = save_model(connection, "any", model)
    check(connection, saved, model)
    reader, found = ModelReader(connection), find_model(connection, saved.reference)
    for path in source.sample(list(model), min(3, len(model))):
        tensor = model[path]
        assert same_bits(reader.tensors(found, [path])[path], tensor)
        if tensor.shape:
            lo, hi = sorted(source.randint(0, tensor.shape[0]) for _ in range(2))
            assert same_bits(reader.rows(found, path, lo, hi), tensor[lo:hi])


@given(model=models, more=st.lists(large, min_size=1, max_size=2), seed=seeds)
@examples
def test_whatever_is_saved_as_an_update_comes_back(
    connection: Connection, model: dict[str, torch.Tensor], more: list[torch.Tensor], seed: int
) -> None:
    source = random.Random(seed)
    model |= {f"large.{k}": tensor for k, tensor in enumerate(more)}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(chunks, "CHUNK_BYTES", SMALL_CHUNK)
        parent = save_model(connection, "parent", model)
        child = dict(model)
        for path in source.sample(list(model), source.randint(1, len(model))):
            child[path] = changed(model[path], source.choice([0.01, 0.5]), seed)
        saved = save_model(connection, "child", child, parent=parent.reference, approach="update")
    check(connection, saved, child)
    check(connection, parent, model)
    reader, found = ModelReader(connection), find_model(connection, saved.reference)
    for path in (path for path in child if path.startswith("large.")):
        lo, hi = sorted(source.randint(0, child[path].shape[0]) for _ in range(2))
        assert same_bits(reader.rows(found, path, lo, hi), child[path][lo:hi])


STATISTICS = {
    "weights": torch.randn(70, 70, generator=torch.Generator().manual_seed(0)),
    "infinite": torch.tensor([1.0, math.inf, -math.inf, math.nan]),
    "nothing but NaN": torch.full((3,), math.nan, dtype=torch.bfloat16),
    "empty": torch.zeros(0, 4),
    "complex": torch.tensor([3 + 100j, -1 - 100j, 0j]),
    "large integers": torch.tensor([2**63 - 1, -(2**63), 2**53 + 1]),
    "large squares": torch.tensor([1e300, -1e300], dtype=torch.float64),
    "no numbers": torch.zeros(4, dtype=torch.uint8).view(torch.float4_e2m1fn_x2),
    "true": torch.tensor([True, False, True]),
}


def test_statistics_are_columns(db: Database) -> None:
    save_model(db.connection, "net", STATISTICS)
    rows = db.sql(
        "SELECT tensor_hash, minimum, maximum, mean, deviation, zeros, nans FROM mmdb.tensor"
    )
    found = {bytes(row.pop("tensor_hash")): row for row in map(dict, rows)}
    for path, tensor in STATISTICS.items():
        row, expected = tuple(found[hash_of(tensor)].values()), Statistics.of(tensor).row()
        assert repr(row) == repr(expected), path  # as text, NaN is equal to NaN


# -- names --------------------------------------------------------------------

NAMES = [
    "",
    ".",
    "..",
    "a.b",
    "/etc/passwd",
    "%(tensor_id)s %s %",
    "'; DROP TABLE mmdb.tensor; --",
    'a "quoted" $1 \\ backslash',
    "tab\tand\nnewline",
    "слой.вес",
    "层",
    "🙂‍🙃",
    "e\u0301",
    "\u00e9",
    "\u202eright to left",
    "\x7f\x01",
    "x" * 3000,
]


def test_a_tensor_may_have_any_name(connection: Connection) -> None:
    model = {name: torch.tensor([float(k)]) for k, name in enumerate(NAMES)}
    saved = save_model(connection, "net", model)
    check(connection, saved, model)
    reader, found = ModelReader(connection), find_model(connection, "net")
    for name, tensor in model.items():
        assert same_bits(reader.rows(found, name, 0, 1), tensor)


def test_a_name_with_nul_comes_back_or_is_refused(db: Database) -> None:
    model = {"a\x00b": torch.ones(3)}
    if db.connection.engine == "duckdb":
        check(db.connection, save_model(db.connection, "net", model), model)
        return
    with pytest.raises(errors.InputError, match="NUL"):
        save_model(db.connection, "net", model)
    assert rows_of(db, "model") == rows_of(db, "tensor") == 0
    check(db.connection, save_model(db.connection, "net", weights()), weights())


def test_ten_thousand_parameters_come_back(db: Database) -> None:
    model = {f"layers.{k}.weight": torch.full((3,), float(k % 5000)) for k in range(10_000)}
    saved = save_model(db.connection, "net", model)
    check(db.connection, saved, model)
    assert rows_of(db, "tensor") == 5_001  # equal ones once, and the pack
    model["layers.7.weight"] = torch.ones(3) * 0.5
    child = save_model(db.connection, "net", model, parent="net", approach="update")
    check(db.connection, child, model)
    assert rows_of(db, "model_change") == 1


def test_a_model_without_tensors_comes_back(db: Database) -> None:
    check(db.connection, save_model(db.connection, "nothing", {}), {})
    check(db.connection, save_model(db.connection, "nothing", nn.ReLU(), parent="nothing"), {})
    empty = {"empty": torch.zeros(0, 3)}
    check(db.connection, save_model(db.connection, "nothing", empty), empty)
    assert rows_of(db, "tensor_chunk") == 0


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
    assert max(source.loads.values()) <= 3
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
    assert rows_of(db, "tensor") == 3 - (size == 100) + (size == 100)
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
    assert count(db, "sum(byte_count) AS n FROM mmdb.model") == flat.nbytes  # nothing twice


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
    check(connection, save_model(connection, "alone", {"a": memory[:2]}), {"a": memory[:2]})


# -- stored once --------------------------------------------------------------


def test_saving_a_model_twice_stores_nothing_new(db: Database) -> None:
    model = weights()
    first = save_model(db.connection, "net", model)
    assert first.stored_bytes > 0
    before = {t: rows_of(db, t) for t in ("tensor", "tensor_chunk", "encoding")}
    for k, parent in enumerate([None, "net", "net@1"]):
        again = save_model(db.connection, "net", model, parent=parent)
        assert (again.version, again.stored_bytes) == (k + 2, 0)
        check(db.connection, again, model)
    assert {t: rows_of(db, t) for t in before} == before
    hashes = db.sql("SELECT DISTINCT weights_hash FROM mmdb.model")
    assert len(hashes) == 1


def test_few_changes_are_rows_over_the_parent_s_manifest_and_many_a_new_one(db: Database) -> None:
    model = {f"{k}": torch.full((5,), float(k)) for k in range(10)}
    save_model(db.connection, "net", model)
    few = model | {"3": torch.zeros(5), "4": torch.ones(5)}
    second = save_model(db.connection, "net", few, parent="net")
    assert (rows_of(db, "manifest"), rows_of(db, "model_change")) == (1, 2)
    third = save_model(db.connection, "net", few | {"0": torch.ones(5) * 9}, parent="net")
    assert (rows_of(db, "manifest"), rows_of(db, "model_change")) == (1, 5)
    fourth = save_model(db.connection, "net", model, parent="net")  # as the manifest says
    assert (rows_of(db, "manifest"), rows_of(db, "model_change")) == (1, 5)
    many = {path: tensor + 0.5 for path, tensor in model.items()}
    fifth = save_model(db.connection, "net", many, parent="net")
    assert (rows_of(db, "manifest"), rows_of(db, "model_change")) == (2, 5)
    other = dict(reversed(model.items()))
    sixth = save_model(db.connection, "net", other, parent="net")
    assert (rows_of(db, "manifest"), rows_of(db, "model_change")) == (3, 5)
    for saved, expected in [(second, few), (fourth, model), (fifth, many), (sixth, other)]:
        check(db.connection, saved, expected)
    assert third.version == 3


# -- updates ------------------------------------------------------------------


def test_a_chain_of_updates_has_one_base_and_every_version_comes_back(db: Database) -> None:
    chain = [weights(size=300)]
    save_model(db.connection, "net", chain[0])
    for k in range(12):
        chain.append(moved(chain[-1], k))
        save_model(db.connection, "net", chain[-1], parent="net", approach="update")
    for version, expected in enumerate(chain, 1):
        found = load_tensors(db.connection, find_model(db.connection, f"net@{version}"))
        assert all(same_bits(found[path], expected[path]) for path in expected)
    assert count(db, "count(*) AS n FROM mmdb.encoding WHERE base_id IS NOT NULL") > 20
    deeper = db.sql(
        "SELECT e.tensor_id FROM mmdb.encoding AS e JOIN mmdb.encoding AS b "
        "ON e.base_id = b.tensor_id WHERE b.base_id IS NOT NULL"
    )
    assert not deeper


def test_an_update_is_smaller_than_a_snapshot(connection: Connection) -> None:
    base = weights(size=600)
    first = save_model(connection, "net", base)
    update = save_model(connection, "net", moved(base, 1), parent="net", approach="update")
    assert update.stored_bytes < 0.8 * first.stored_bytes
    assert update.approach == "update"


def test_tensors_of_another_shape_dtype_or_path_are_stored_by_themselves(db: Database) -> None:
    base = weights()
    save_model(db.connection, "net", base)
    other = {
        "body.weight": base["body.weight"].to(torch.bfloat16),
        "body.bias": base["body.bias"],
        "head.weight": torch.randn(41, 128),
        "neck.weight": base["head.weight"] + 1e-4,
    }
    saved = save_model(db.connection, "net", other, parent="net", approach="update")
    check(db.connection, saved, other)
    assert count(db, "count(*) AS n FROM mmdb.encoding WHERE base_id IS NOT NULL") == 0


def test_a_pack_of_other_words_is_no_base(connection: Connection) -> None:
    """Of the same length: split into words of 8 bytes, it would be read wrongly in words of 4."""
    parent = {"a": torch.arange(1500.0), "b": torch.arange(700).double()}
    child = {"a": torch.arange(1400.0), "b": torch.arange(750).double(), "c": torch.zeros(0)}
    assert sum(t.nbytes for t in parent.values()) == sum(t.nbytes for t in child.values())
    child["d"] = torch.zeros(3)
    parent["d"] = torch.ones(3)
    save_model(connection, "net", parent)
    saved = save_model(connection, "net", child, parent="net", approach="update")
    check(connection, saved, child)


def test_a_base_in_chunks_of_another_size_is_no_base_but_still_read(
    db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    base = weights(size=700)
    with monkeypatch.context() as patch:
        patch.setattr(chunks, "CHUNK_BYTES", 1 << 20)
        old = save_model(db.connection, "net", base)
        db.sql("UPDATE mmdb.tensor_chunk SET digest = NULL")  # as before there were any
        second = save_model(db.connection, "net", moved(base, 1), parent="net", approach="update")
    monkeypatch.setattr(chunks, "CHUNK_BYTES", 256 << 10)
    third = save_model(db.connection, "net", moved(base, 2), parent="net", approach="update")
    check(db.connection, old, base)
    check(db.connection, second, moved(base, 1))
    check(db.connection, third, moved(base, 2))
    reader = ModelReader(db.connection)
    for saved, expected in [(old, base), (second, moved(base, 1)), (third, moved(base, 2))]:
        found = reader.rows(find_model(db.connection, saved.reference), "body.weight", 300, 400)
        assert same_bits(found, expected["body.weight"][300:400])


def test_a_parent_may_be_of_another_architecture(connection: Connection) -> None:
    save_model(connection, "other", nn.Linear(3, 3))
    saved = save_model(connection, "net", weights(), parent="other")
    assert saved.approach == "snapshot"
    check(connection, saved, weights())


# -- many at once -------------------------------------------------------------


def test_tensors_of_many_models_are_read_together(connection: Connection) -> None:
    zoo = {f"net{k}": weights(k) for k in range(5)}
    for name, model in zoo.items():
        save_model(connection, name, model)
    save_model(connection, "net0", moved(zoo["net0"], 1), parent="net0", approach="update")
    wanted = [(f"net{k}", path) for k in range(1, 5) for path in weights()] * 2
    found = read_many(connection, [*wanted, ("net0", "body.weight"), ("net0@1", "body.weight")])
    for (name, path), tensor in zip(wanted, found, strict=False):
        assert same_bits(tensor, zoo[name][path])
    assert same_bits(found[-2], moved(zoo["net0"], 1)["body.weight"])
    assert same_bits(found[-1], zoo["net0"]["body.weight"])


# -- what cannot be saved -----------------------------------------------------


class Noted(nn.Linear):
    """A layer with a note in its state dict."""

    def get_extra_state(self) -> str:
        return "a note"

    def set_extra_state(self, state: object) -> None:
        return


def bad(kind: str) -> tuple[Any, str]:
    """Return something that cannot be saved, and what the error says."""
    eye = torch.eye(40)
    with_bad = {
        "note": ({"fine": eye, "epoch": 3}, "'epoch' is a int"),
        "extra state": (Noted(2, 2), "_extra_state' is a str"),
        "none": ({"fine": eye, "bias": None}, "'bias' is a NoneType"),
        "sparse": ({"fine": eye, "bad": eye.to_sparse()}, "'bad'.*sparse_coo"),
        "meta": ({"fine": eye, "bad": eye.to("meta")}, "'bad'.*without memory"),
        "lazy": (nn.LazyLinear(3), "'weight' has no shape"),
        "number": ({3: eye}, "3 is a int"),
        "half a character": ({"\ud800": eye}, "half a character"),
    }
    return with_bad[kind]


KINDS = ["note", "extra state", "none", "sparse", "meta", "lazy", "number", "half a character"]


@pytest.mark.filterwarnings("ignore:Lazy modules are")
@pytest.mark.parametrize("kind", KINDS)
def test_what_is_no_tensor_is_named_and_nothing_is_stored(db: Database, kind: str) -> None:
    source, message = bad(kind)
    with pytest.raises(errors.MmdbError, match=message):
        save_model(db.connection, "net", source)
    assert rows_of(db, "model") == rows_of(db, "tensor") == rows_of(db, "tensor_chunk") == 0


@pytest.mark.filterwarnings("ignore")
def test_a_quantized_tensor_is_named(connection: Connection) -> None:
    quantized = torch.quantize_per_tensor(torch.eye(3), 0.1, 0, torch.qint8)
    with pytest.raises(errors.UnsupportedTensor, match=r"'bad'.*quantized"):
        save_model(connection, "net", {"bad": quantized})


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"parent": "nobody"}, errors.ModelNotFound),
        ({"parent": "net@7"}, errors.ModelNotFound),
        ({"parent": "net@prod"}, errors.ModelNotFound),
        ({"approach": "update"}, errors.NoParent),
        ({"approach": "update", "parent": "small"}, errors.NoParent),
        ({"approach": "provenance"}, errors.InvalidRecipe),
        ({"approach": "shrink"}, errors.InvalidOption),
        ({"options": {"weight": 1}}, errors.InvalidOption),
        ({"version": 1}, errors.AlreadyExists),
    ],
)
def test_a_save_that_cannot_be_leaves_the_database_as_it_was(
    db: Database, options: dict[str, Any], error: type[errors.MmdbError]
) -> None:
    save_model(db.connection, "net", weights())
    save_model(db.connection, "small", {"x": torch.ones(3)})
    tables = ("model", "tensor", "tensor_chunk", "encoding", "manifest", "manifest_tensor")
    before = {table: rows_of(db, table) for table in tables}
    with pytest.raises(error):
        save_model(db.connection, "net", weights(1), **options)
    assert {table: rows_of(db, table) for table in tables} == before
    check(db.connection, save_model(db.connection, "net", weights(1)), weights(1))


def test_paths_and_rows_that_are_not_there_are_named(connection: Connection) -> None:
    save_model(connection, "net", weights() | {"scalar": torch.tensor(1.0)})
    reader, net = ModelReader(connection), find_model(connection, "net")
    with pytest.raises(errors.TensorNotFound, match="net@1 has no tensor 'nose'"):
        reader.tensors(net, ["body.bias", "nose"])
    for path, lo, hi in [("body.bias", 0, 129), ("body.bias", -1, 2), ("body.bias", 5, 4)]:
        with pytest.raises(errors.TensorNotFound, match="has 128 rows"):
            reader.rows(net, path, lo, hi)
    with pytest.raises(errors.TensorNotFound):
        reader.rows(net, "scalar", 0, 1)
    with pytest.raises(errors.InvalidOption):
        reader.tensors(net, verify="perhaps")  # type: ignore[arg-type]


def test_two_sessions_that_take_the_same_version_both_save(db: Database) -> None:
    """In one process, where the second cannot see what the first has not committed."""
    if not isinstance(db.connection, DuckConnection):
        pytest.skip("test_store_concurrency.py has it for PostgreSQL")
    other = db.connection.cursor()
    with other.transaction():
        save_model(other, "net", weights(1))
        with pytest.raises(errors.MmdbError):
            with db.connection.transaction():
                save_model(db.connection, "net", weights(2))
                raise errors.WriteConflict("as DuckDB says when the second commits")
    check(db.connection, save_model(db.connection, "net", weights(2)), weights(2))
    assert [row["version"] for row in db.sql("SELECT version FROM mmdb.model")] == [1, 2]
