"""Models come back from the store bit for bit, and what they hold is stored once."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import nn

import mmdb
from mmdb import errors
from mmdb.api import Database
from mmdb.db.connection import Connection
from mmdb.store.models.model_rows import find_model
from mmdb.store.models.recover import ModelReader, read_many
from mmdb.store.models.save import save_model
from mmdb.store.tensors import tensor_bytes
from mmdb.store.tensors.tensor_bytes import Statistics, hash_of
from tests.stores import Tensors, check, rows_of
from tests.tensors import changed, random_tensor, same_bits, tensors

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


def count(db: Database, what: str) -> int:
    """Return a number that a query over the store's tables gives."""
    return int(db.sql(f"SELECT {what}")[0]["n"])


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
        patch.setattr(
            tensor_bytes, "CHUNK_BYTES", source.choice([SMALL_CHUNK, tensor_bytes.CHUNK_BYTES])
        )
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
        patch.setattr(tensor_bytes, "CHUNK_BYTES", SMALL_CHUNK)
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


@pytest.mark.parametrize("bad", [1.7e308, math.inf, math.nan])
def test_a_base_is_found_among_numbers_at_the_end_of_their_range(
    connection: Connection, bad: float
) -> None:
    generator = torch.Generator().manual_seed(0)
    first = torch.randn(64, 512, generator=generator, dtype=torch.float64)
    first[0, 0], first[0, 1] = bad, -bad
    other = torch.full((64, 512), -bad, dtype=torch.float64)
    second = first.clone()
    second[1] += 1e-9
    for name, tensor in (("other", other), ("first", first), ("second", second)):
        check(connection, save_model(connection, name, {"a": tensor}), {"a": tensor})


def test_a_base_is_compared_at_the_paths_where_it_has_the_shape(connection: Connection) -> None:
    def draw(*shape: int) -> torch.Tensor:
        return torch.randn(shape, generator=generator)

    generator = torch.Generator().manual_seed(0)
    first, shared = draw(64, 512), draw(40, 512)
    save_model(connection, "at b", {"a": first, "b": shared})
    save_model(connection, "at c", {"a": draw(64, 512), "c": shared})
    model = {"a": first + 1e-6 * draw(64, 512), "b": shared + 0, "c": draw(50, 300)}
    model["b"][0] += 1
    saved = save_model(connection, "of three shapes", model)
    check(connection, saved, model)


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
        check(db.connection, f"net@{version}", expected)
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
    differences = "count(*) AS n FROM mmdb.encoding AS e WHERE e.base_id IS NOT NULL"
    packs = "SELECT m.pack_id FROM mmdb.model AS m WHERE m.pack_id IS NOT NULL"
    assert count(db, f"{differences} AND e.tensor_id NOT IN ({packs})") == 0


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
        patch.setattr(tensor_bytes, "CHUNK_BYTES", 1 << 20)
        old = save_model(db.connection, "net", base)
        second = save_model(db.connection, "net", moved(base, 1), parent="net", approach="update")
    monkeypatch.setattr(tensor_bytes, "CHUNK_BYTES", 256 << 10)
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


def test_a_few_tensors_are_read_whichever_are_differences_or_bases(connection: Connection) -> None:
    draw = random.Random(0)
    base = weights()
    stored = {"a@1": base, "a@2": moved(base, 1), "a@3": moved(base, 2), "b@1": weights(3)}
    for name, parent in (("a@1", None), ("a@2", "a@1"), ("a@3", "a@1"), ("b@1", None)):
        save_model(connection, name[0], stored[name], parent=parent)
    every = [(name, path) for name, model in stored.items() for path in model]
    for _ in range(40):
        wanted = draw.choices(every, k=draw.choice([1, 2, 3, 8]))
        for (name, path), tensor in zip(wanted, read_many(connection, wanted), strict=True):
            assert same_bits(tensor, stored[name][path]), (wanted, name, path)
