"""Models between two databases: what arrives, what is sent, and what goes wrong on the way."""

from __future__ import annotations

import copy
import math
import shutil
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import psycopg
import pytest
import torch
from torch import nn

import mmdb
from mmdb.api import Database
from mmdb.data.dataset import find_dataset
from mmdb.data.registration import create_dataset
from mmdb.db.connection import Connection
from mmdb.db.install import install
from mmdb.db.queries import Query
from mmdb.db.url import AnyConnection, connect
from mmdb.errors import (
    AlreadyExists,
    ConnectionLost,
    CorruptTensor,
    DatabaseFailed,
    InTransaction,
    InvalidName,
    InvalidOption,
    ModelNotFound,
    NotInstalled,
    NotReplayable,
    RightsMissing,
    RunEnded,
    WrongUrl,
)
from mmdb.graph.spec.build import architecture_of
from mmdb.store.files.exchange import Replay
from mmdb.store.garbage import collect
from mmdb.store.models.model_rows import ModelDefinition, find_entries, find_model, weights_hash
from mmdb.store.models.recipe import Recipe
from mmdb.store.models.recover import load_tensors
from mmdb.store.models.registry import drop_model, log_metric, note_model, set_alias, tag_model
from mmdb.store.models.save import About, save_model
from mmdb.store.sync.push_pull import CopyOptions, CopyReport, copy_model, pull, push
from mmdb.store.tensors.tensor_bytes import hash_of, raw_bytes
from mmdb.train.replay.recipe_replay import recover_module, train_by_recipe
from mmdb.train.replay.saving import save_candidate, save_with_recipe
from tests.cluster import Cluster
from tests.relay import Relay

Tensors = dict[str, torch.Tensor]

DEFINITION = ModelDefinition(
    architecture={"factory": "mlp", "arguments": {"hidden": [8]}},
    arguments={"dropout": 0.5},
    input_shape=(4,),
    outputs=3,
)
FACTORIES = {"mlp": "mmdb.graph.factories:mlp"}
NEXT = CopyOptions(version="next")


# -- databases ------------------------------------------------------------------


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a DuckDB file with mmdb, to be copied."""
    path = tmp_path_factory.mktemp("installed") / "installed.duckdb"
    install(f"duckdb:///{path}")
    return path


@pytest.fixture
def edge_url(installed: Path, tmp_path: Path) -> str:
    """Return the URL of a DuckDB file."""
    shutil.copy(installed, tmp_path / "edge.duckdb")
    return f"duckdb:///{tmp_path}/edge.duckdb"


@pytest.fixture
def other_url(installed: Path, tmp_path: Path) -> str:
    """Return the URL of a second DuckDB file."""
    shutil.copy(installed, tmp_path / "other.duckdb")
    return f"duckdb:///{tmp_path}/other.duckdb"


@contextmanager
def opened(*urls: str) -> Iterator[tuple[AnyConnection, ...]]:
    connections = tuple(connect(url) for url in urls)
    yield connections
    for connection in connections:
        connection.close()


@pytest.fixture
def edge(edge_url: str) -> Iterator[AnyConnection]:
    """Yield a DuckDB file."""
    with opened(edge_url) as (connection,):
        yield connection


@pytest.fixture
def other(other_url: str) -> Iterator[AnyConnection]:
    """Yield a second DuckDB file."""
    with opened(other_url) as (connection,):
        yield connection


@pytest.fixture
def server(postgres_url: str) -> Iterator[AnyConnection]:
    """Yield a PostgreSQL database."""
    with opened(postgres_url) as (connection,):
        yield connection


@pytest.fixture
def second_url(cluster: Cluster, template: str) -> Iterator[str]:
    """Yield the URL of a second PostgreSQL database."""
    yield cluster.create_database("mmdb_second", template)
    cluster.drop_database("mmdb_second")


URLS = {
    "edge-server": ("edge_url", "postgres_url"),
    "server-edge": ("postgres_url", "edge_url"),
    "edge-edge": ("edge_url", "other_url"),
    "server-server": ("postgres_url", "second_url"),
}
Pair = tuple[AnyConnection, AnyConnection]


def pair_of(request: pytest.FixtureRequest) -> Iterator[Pair]:
    names = URLS[request.param]
    with opened(*(str(request.getfixturevalue(name)) for name in names)) as (source, target):
        yield source, target


@pytest.fixture(params=list(URLS))
def pair(request: pytest.FixtureRequest) -> Iterator[Pair]:
    """Yield source and target, once for each pair of engines."""
    yield from pair_of(request)


@pytest.fixture(params=["edge-server", "server-edge"])
def across(request: pytest.FixtureRequest) -> Iterator[Pair]:
    """Yield source and target of different engines."""
    yield from pair_of(request)


# -- models ---------------------------------------------------------------------


def network(seed: int = 0) -> Tensors:
    """Return a state dict with a tie, views, small and large tensors and odd dtypes."""
    generator = torch.Generator().manual_seed(seed)
    shared = torch.randn(100, 64, generator=generator)
    memory = torch.randn(4096, generator=generator)
    return {
        "embed.weight": shared,
        "body.weight": torch.randn(128, 64, generator=generator).to(torch.bfloat16),
        "body.scale": torch.tensor([math.nan, -0.0, math.inf]),
        "body.spectrum": torch.randn(4, dtype=torch.complex128, generator=generator),
        "norm.num_batches_tracked": torch.tensor(3),
        "low": memory[:2500],
        "high": memory[1596:].view(2, 1250),
        "none": torch.empty(0, 3),
        "head.weight": shared,
    }


def plain(seed: int = 0, layers: int = 12) -> Tensors:
    """Return a state dict of some layers of 16 KiB with a small scale each."""
    generator = torch.Generator().manual_seed(seed)
    found: Tensors = {}
    for k in range(layers):
        found[f"{k}.weight"] = torch.randn(64, 64, generator=generator)
        found[f"{k}.scale"] = torch.randn(64, generator=generator)
    return found


def tuned(tensors: Mapping[str, torch.Tensor], *paths: str, seed: int = 9) -> Tensors:
    """Return tensors of which some have moved a little."""
    generator = torch.Generator().manual_seed(seed)

    def move(value: torch.Tensor) -> torch.Tensor:
        return value + 1e-3 * torch.randn(value.shape, generator=generator).to(value.dtype)

    return {path: move(value) if path in paths else value for path, value in tensors.items()}


def save(connection: Connection, name: str, tensors: Tensors, parent: str | None = None) -> str:
    approach = "snapshot" if parent is None else "update"
    return save_model(connection, name, tensors, parent=parent, approach=approach).reference


def assert_same(found: Mapping[str, torch.Tensor], expected: Mapping[str, torch.Tensor]) -> None:
    assert list(found) == list(expected)
    for path, tensor in expected.items():
        assert (found[path].dtype, found[path].shape) == (tensor.dtype, tensor.shape), path
        assert raw_bytes(found[path]).tobytes() == raw_bytes(tensor).tobytes(), path


def tensors_of(connection: Connection, reference: str) -> Tensors:
    return load_tensors(connection, find_model(connection, reference))


def count(connection: AnyConnection, table: str) -> int:
    return int(connection.select(f"SELECT count(*) AS n FROM mmdb.{table}")[0]["n"])


MODEL = Query(
    "model",
    "What a copy keeps of a model's row.",
    "SELECT m.approach, m.weights_hash, m.epoch, m.tensor_count, m.byte_count, m.save_s, "
    "m.metrics::text AS metrics, extract(epoch FROM m.created_at)::double precision AS created, "
    "d.definition_hash, a.canonical_hash, n.environment_hash "
    "FROM mmdb.model AS m LEFT JOIN mmdb.definition AS d ON m.definition_id = d.definition_id "
    "LEFT JOIN mmdb.architecture AS a ON m.architecture_id = a.architecture_id "
    "LEFT JOIN mmdb.environment AS n ON m.environment_id = n.environment_id "
    "WHERE m.name = %(name)s::text AND m.version = %(version)s::integer",
)
SAID = Query(
    "said",
    "Tags, metrics and notes.",
    "SELECT key AS a, value AS b, NULL::double precision AS c, "
    "extract(epoch FROM created_at)::double precision AS d FROM mmdb.model_tag "
    "UNION ALL SELECT metric, dataset, value, "
    "extract(epoch FROM created_at)::double precision FROM mmdb.model_metric "
    "UNION ALL SELECT note, '', NULL::double precision, NULL::double precision "
    "FROM mmdb.model_note ORDER BY a, b",
)
CHUNKS = Query(
    "chunks",
    "Every chunk by the name of its tensor.",
    "SELECT t.tensor_hash, b.tensor_hash AS base_hash, x.word, x.stored_bytes, c.ordinal, c.codec, "
    "c.digest, c.data FROM mmdb.tensor_chunk AS c "
    "INNER JOIN mmdb.tensor AS t ON c.tensor_id = t.tensor_id "
    "INNER JOIN mmdb.encoding AS x ON c.tensor_id = x.tensor_id "
    "LEFT JOIN mmdb.tensor AS b ON x.base_id = b.tensor_id ORDER BY t.tensor_hash, c.ordinal",
)
PARENT = Query(
    "parent",
    "A model's parent.",
    "SELECT p.name, p.version, m.reason::text AS reason FROM mmdb.model AS m "
    "LEFT JOIN mmdb.model AS p ON m.parent_id = p.model_id "
    "WHERE m.name = %(name)s::text AND m.version = %(version)s::integer",
)


def rows(connection: AnyConnection, query: Query, **parameters: object) -> list[dict[str, Any]]:
    return [dict(row) for row in connection.rows(query, **parameters)]


# -- what arrives ---------------------------------------------------------------


def test_a_model_arrives_with_all_that_is_known_of_it(
    pair: Pair,
) -> None:
    source, target = pair
    about = About(
        definition=DEFINITION,
        metrics={"accuracy": 0.75},
        structure=architecture_of("mlp", {"hidden": [8]}, (4,), 3, FACTORIES),
    )
    save_model(source, "m", network(), about=about)
    tag_model(source, "m", "stage", "näxt")
    log_metric(source, "m", "loss", math.inf, dataset="d")
    note_model(source, "m", "First.\nSecond.")
    copied = copy_model(source, target, "m")
    assert (copied.models, copied.kept) == (("m@1",), ())
    expected = tensors_of(source, "m")
    assert_same(tensors_of(target, "m"), expected)
    found = tensors_of(target, "m")
    assert found["embed.weight"] is found["head.weight"]
    assert found["low"].untyped_storage().data_ptr() == found["high"].untyped_storage().data_ptr()
    (own,), (other,) = (rows(db, MODEL, name="m", version=1) for db in pair)
    assert own.pop("metrics").replace(" ", "") == other.pop("metrics").replace(" ", "")
    assert own.pop("created") == pytest.approx(other.pop("created"), abs=1e-6, rel=0)
    assert own == other and [k for k, value in other.items() if value is None] == ["epoch"]
    said = [rows(db, SAID) for db in pair]
    at = [[row.pop("d") or 0.0 for row in each] for each in said]  # a note has no time of its own
    assert said[0] == said[1] and len(said[0]) == 4
    assert at[0] == pytest.approx(at[1], abs=1e-6, rel=0)  # DuckDB rounds seconds
    assert rows(source, CHUNKS) == rows(target, CHUNKS)
    for table in ("architecture_node", "architecture_edge", "architecture_prefix", "definition"):
        assert count(source, table) == count(target, table) > 0
    described = "SELECT tensor_hash, minimum, deviation, zeros, nans FROM mmdb.tensor ORDER BY 1"
    assert str(source.select(described)) == str(target.select(described))


def test_of_datasets_of_equal_content_a_model_has_the_one_of_its_query(across: Pair) -> None:
    source, target = across
    for connection, tables in ((source, ["t1"]), (target, ["t1", "t2"])):
        for table in tables:
            connection.script(
                f"CREATE TABLE {table} AS SELECT i AS id, i / 2.0 AS a, i % 2 AS y"
                " FROM generate_series(1, 40) AS g (i)"
            )
            query = f"SELECT a, y FROM {table} WHERE id > 0"
            create_dataset(connection, f"of-{table}", query, partitions=1)
    about = About(dataset_id=find_dataset(source, "of-t1").dataset_id)
    save_model(source, "m", network(), about=about)
    copy_model(source, target, "m")
    (found,) = target.select(
        "SELECT d.name FROM mmdb.model AS m JOIN mmdb.dataset AS d ON m.dataset_id = d.dataset_id"
    )
    assert found["name"] == "of-t1"


def test_a_tensor_tied_to_an_overlapping_view_arrives(pair: Pair) -> None:
    source, target = pair
    large = [torch.arange(6000.0) + k for k in range(2)]
    first, second = ({**plain(), "w": x, "tied": x, "view": x[:9]} for x in large)
    save(source, "m", first)
    save(source, "m", second, "m")
    for version, tensors in (("m@1", first), ("m@2", second)):
        copy_model(source, target, version)
        found = tensors_of(target, version)
        assert_same(found, tensors)
        assert found["w"] is found["tied"]
    assert count(target, "model_change") == count(source, "model_change") > 0
    assert rows(source, CHUNKS) == rows(target, CHUNKS)


def test_an_update_sends_what_changed_and_nothing_else(
    pair: Pair,
) -> None:
    source, target = pair
    first = plain()
    second = tuned(first, "3.weight", "4.scale")
    save(source, "m", first)
    saved = save_model(source, "m", second, parent="m", approach="update")
    copy_model(source, target, "m@1")
    copied = copy_model(source, target, "m")
    assert copied.bytes_sent == saved.stored_bytes
    assert (copied.tensors, copied.chunks) == (3, 2)  # two tensors and the pack
    assert copied.bytes_skipped > 8 * copied.bytes_sent
    assert rows(source, CHUNKS) == rows(target, CHUNKS)
    assert count(target, "manifest") == 1 and count(target, "model_change") == 2
    assert rows(target, PARENT, name="m", version=2)[0]["version"] == 1
    assert_same(tensors_of(target, "m@1"), first)
    assert_same(tensors_of(target, "m@2"), second)


def test_what_is_there_is_left_alone(across: Pair) -> None:
    source, target = across
    save(source, "m", plain())
    copy_model(source, target, "m")
    before = {table: count(target, table) for table in ("model", "tensor", "manifest")}
    again = copy_model(source, target, "m")
    assert (again.models, again.kept, again.bytes_sent, again.tensors) == ((), ("m@1",), 0, 0)
    assert {table: count(target, table) for table in before} == before


def test_a_model_without_tensors_arrives_too(across: Pair) -> None:
    source, target = across
    save(source, "m", {})
    copy_model(source, target, "m")
    assert tensors_of(target, "m") == {}


def test_a_copy_goes_back_and_changes_nothing(edge: AnyConnection, server: AnyConnection) -> None:
    save(edge, "m", plain())
    copy_model(edge, server, "m")
    assert copy_model(server, edge, "m").kept == ("m@1",)


# -- several versions -----------------------------------------------------------


def chain(connection: Connection, steps: int = 4) -> list[Tensors]:
    """Save versions each of which moves one layer of the one before."""
    versions = [plain()]
    save(connection, "m", versions[0])
    for k in range(steps):
        versions.append(tuned(versions[-1], f"{k}.weight", seed=k))
        save(connection, "m", versions[-1], parent=f"m@{k + 1}")
    return versions


def test_all_versions_go_in_one_call_and_only_the_new_ones_in_the_next(
    edge: AnyConnection, server: AnyConnection
) -> None:
    versions = chain(edge)
    copied = copy_model(edge, server, "m", all_versions=True)
    assert copied.models == ("m@1", "m@2", "m@3", "m@4", "m@5")
    assert rows(edge, CHUNKS) == rows(server, CHUNKS)
    for k, expected in enumerate(versions):
        assert_same(tensors_of(server, f"m@{k + 1}"), expected)
    save(edge, "m", tuned(versions[-1], "7.weight"), parent="m")
    again = copy_model(edge, server, "m", all_versions=True)
    assert (again.models, len(again.kept), again.tensors) == (("m@6",), 5, 1)


def test_a_version_is_described_by_the_nearest_ancestor_that_is_there(
    edge: AnyConnection, server: AnyConnection
) -> None:
    versions = chain(edge)
    copy_model(edge, server, "m@2")
    copied = copy_model(edge, server, "m@5")
    assert copied.tensors == 3
    assert count(server, "manifest") == 1
    assert_same(tensors_of(server, "m@5"), versions[4])
    found = rows(server, PARENT, name="m", version=5)[0]
    assert found["name"] is None
    assert '"parent":' in found["reason"].replace('" :', '":') and "m@4" in found["reason"]


def test_a_model_with_other_layers_frozen_does_not_share_its_list(
    edge: AnyConnection, other: AnyConnection
) -> None:
    module = nn.Linear(64, 64)
    frozen = nn.Linear(64, 64)
    frozen.load_state_dict(module.state_dict())
    frozen.weight.requires_grad_(False)
    save_model(edge, "m", module)
    save_model(edge, "m", frozen, parent="m@1")
    copy_model(edge, other, "m@1")
    assert copy_model(edge, other, "m@2").bytes_sent == 0
    for version, expected in ((1, True), (2, False)):
        entries = find_entries(other, find_model(other, f"m@{version}").model_id)
        assert entries[0].trainable is expected


def test_weights_that_are_there_under_another_name_are_not_sent(
    edge: AnyConnection, other: AnyConnection
) -> None:
    save(edge, "m", plain())
    save(other, "other", plain())
    copied = copy_model(edge, other, "m")
    assert (copied.models, copied.bytes_sent) == (("m@1",), 0)
    assert_same(tensors_of(other, "m"), plain())


# -- differences ----------------------------------------------------------------


def test_a_difference_whose_base_is_not_wanted_there_arrives_whole(
    edge: AnyConnection, other: AnyConnection
) -> None:
    first = plain(layers=2)
    second = tuned(first, "0.weight")
    save(edge, "m", first)
    save(edge, "m", second, parent="m")
    copied = copy_model(edge, other, "m@2")
    assert all(row["base_hash"] is None for row in rows(other, CHUNKS))
    assert copied.tensors == 5  # four and the pack
    assert_same(tensors_of(other, "m"), second)


def test_differences_are_kept_where_that_is_asked_for(
    edge: AnyConnection, other: AnyConnection
) -> None:
    first = plain(layers=2)
    save(edge, "m", first)
    save(edge, "m", tuned(first, "0.weight"), parent="m")
    copy_model(edge, other, "m@2", options=CopyOptions(keep_differences=True))
    found = rows(other, CHUNKS)
    names = {bytes(row["tensor_hash"]) for row in found}
    assert [row for row in rows(edge, CHUNKS) if bytes(row["tensor_hash"]) in names] == found
    assert any(row["base_hash"] is not None for row in found)


def test_a_base_that_is_a_difference_there_carries_no_other_one(
    edge: AnyConnection, other: AnyConnection
) -> None:
    first = plain(layers=2)
    second = tuned(first, "0.weight", seed=1)
    third = tuned(second, "0.weight", seed=2)
    save(other, "m", first)
    save(other, "m", second, parent="m")  # a difference to the first
    save(edge, "m", second)  # whole
    save(edge, "n", third, parent="m")  # a difference to the second
    copy_model(edge, other, "n")
    assert_same(tensors_of(other, "n"), third)
    assert_same(tensors_of(other, "m@2"), second)


# -- names ----------------------------------------------------------------------


def test_another_model_of_the_same_name_and_version_is_an_error_that_names_both(
    edge: AnyConnection, server: AnyConnection
) -> None:
    save(edge, "m", plain(1))
    save(server, "m", plain(2))
    own, other = (find_model(db, "m").weights_hash.hex()[:12] for db in (edge, server))
    with pytest.raises(AlreadyExists, match=f"(?s){other}.*{own}.*version="):
        copy_model(edge, server, "m")
    assert_same(tensors_of(server, "m"), plain(2))


def test_it_can_be_appended_as_the_next_version_once(
    edge: AnyConnection, other: AnyConnection
) -> None:
    save(edge, "m", plain(1))
    save(other, "m", plain(2))
    assert copy_model(edge, other, "m", options=NEXT).models == ("m@2",)
    assert copy_model(edge, other, "m", options=NEXT).kept == ("m@2",)
    assert_same(tensors_of(other, "m@2"), plain(1))


def test_it_can_get_another_name(edge: AnyConnection, other: AnyConnection) -> None:
    save(edge, "m", plain(1))
    save(edge, "m", plain(3))
    save(other, "m", plain(2))
    assert copy_model(edge, other, "m@2", options=CopyOptions(name="of/edge")).models == (
        "of/edge@2",
    )
    with pytest.raises(InvalidName):
        copy_model(edge, other, "m", options=CopyOptions(name="a@b"))


def test_a_version_that_was_dropped_there_stays_dropped(
    edge: AnyConnection, other: AnyConnection
) -> None:
    save(edge, "m", plain())
    copy_model(edge, other, "m")
    drop_model(other, "m")
    with pytest.raises(AlreadyExists, match="m@1 was dropped there"):
        copy_model(edge, other, "m")
    assert copy_model(edge, other, "m", options=NEXT).models == ("m@2",)


def test_aliases_go_where_that_is_asked_for(edge: AnyConnection, other: AnyConnection) -> None:
    save(edge, "m", plain(1))
    save(edge, "m", plain(2))
    set_alias(edge, "m", 2, "prod")
    copy_model(edge, other, "m@2")
    with pytest.raises(ModelNotFound):
        find_model(other, "m@prod")
    for _ in range(2):
        assert copy_model(edge, other, "m@prod", options=CopyOptions(aliases=True)).kept
    assert find_model(other, "m@prod").version == 2
    assert count(other, "alias_event") == 1


# -- recipes and what is behind a model -----------------------------------------

ROWS, WIDTH = 300, 6
SEARCH = {"space": {"optimizer": ["adam"], "lr": [0.02], "batch_size": [48]}}


@pytest.fixture(scope="module")
def trained_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a DuckDB file with a trained run, and models that are kept as recipes.

    `hops` is a candidate's, `child` a trainer's whose parent is `origin`.
    """
    folder = tmp_path_factory.mktemp("trained")
    path = folder / "trained.duckdb"
    with mmdb.connect(f"duckdb:///{path}") as db:
        fill(db)
        architecture = "mlp(hidden=[64, 64], dropout=0.1)"
        run = db.create_run(
            "r", dataset="d", architecture=architecture, search=SEARCH, epochs=2, seed=7
        )
        run.train(workers=1)
        candidate = int(db.sql("SELECT candidate_id FROM mmdb.candidate")[0]["candidate_id"])
        save_candidate(db.connection, candidate, "origin", approach="snapshot")
        save_candidate(db.connection, candidate, "hops", approach="provenance")
        db.sql("DELETE FROM mmdb.checkpoint")
        recipe = Recipe(trainer="fine_tune", dataset="d", arguments={"lr": 0.001}, seed=3)
        module = recover_module(db.connection, find_model(db.connection, "origin"))
        train_by_recipe(db.connection, recipe, module, find_dataset(db.connection, "d"))
        save_with_recipe(
            db.connection, "child", module, recipe, parent="origin", approach="provenance"
        )
    return path


def fill(db: Database) -> None:
    source = np.random.default_rng(5)
    x = source.normal(size=(ROWS, WIDTH)).astype(np.float32)
    y = (x[:, 0] > 0).astype(int) + (x[:, 1] > 0).astype(int)
    db.sql(f"CREATE TABLE points ({', '.join(f'c{k} real' for k in range(WIDTH))}, y integer)")
    lines = (f"({', '.join(repr(float(v)) for v in x[k])}, {y[k]})" for k in range(ROWS))
    db.sql(f"INSERT INTO points VALUES {', '.join(lines)}")
    db.create_dataset("d", "SELECT * FROM points", partitions=2, seed=3)
    # As its owner would register it; the function would load torch in the server first.
    db.sql(
        "INSERT INTO mmdb.trainer (name, target) VALUES ('fine_tune', 'tests.trainers:fine_tune')"
    )


@pytest.fixture
def trained(trained_file: Path, tmp_path: Path) -> Iterator[AnyConnection]:
    """Yield a copy of that file."""
    path = tmp_path / "trained.duckdb"
    shutil.copy(trained_file, path)
    connection = connect(f"duckdb:///{path}")
    yield connection
    connection.close()


def replay(connection: Connection, model: Any) -> nn.Module:
    return recover_module(connection, model)


REPLAY: Replay = replay


def hashes(connection: Connection, reference: str) -> dict[str, bytes]:
    module = recover_module(connection, find_model(connection, reference))
    return {path: hash_of(tensor) for path, tensor in module.state_dict().items()}


def lineage(connection: AnyConnection, model: str = "hops") -> list[Any]:
    """Return the hops behind a model, without numbers."""
    return connection.select(
        "SELECT d.name AS dataset, d.content_hash, r.name AS run, r.seed, h.epoch, h.ordinal, "
        "p.role, p.ordinal AS part, p.content_hash AS part_hash, h.loss, h.state_in, h.state_out, "
        "CAST(extract(epoch FROM h.started_at) AS double precision) AS started "
        "FROM mmdb.model AS m JOIN mmdb.hop AS h ON h.candidate_id = m.candidate_id "
        "JOIN mmdb.partition AS p ON h.part_id = p.part_id "
        "JOIN mmdb.candidate AS c ON h.candidate_id = c.candidate_id "
        "JOIN mmdb.run AS r ON c.run_id = r.run_id "
        "JOIN mmdb.dataset AS d ON r.dataset_id = d.dataset_id AND p.dataset_id = d.dataset_id "
        f"WHERE m.name = '{model}' AND h.epoch <= m.epoch ORDER BY h.ordinal"
    )


def same_lineage(own: list[Any], other: list[Any]) -> bool:
    if not own or len(own) != len(other):
        return False
    pairs = zip(own, other, strict=True)
    return all(a.keys() == b.keys() and all(near(a[k], b[k]) for k in a) for a, b in pairs)


def near(a: object, b: object) -> bool:
    """Return whether two values are equal; DuckDB's seconds are off by a rounding."""
    if isinstance(a, float) and isinstance(b, float):
        return abs(a - b) < 1e-5
    return a == b


def test_without_its_data_a_recipe_arrives_as_weights_with_its_lineage(
    trained: AnyConnection, server: AnyConnection
) -> None:
    copied = copy_model(trained, server, "hops", replay=REPLAY)
    assert copied.models == ("hops@1",)
    found = find_model(server, "hops")
    assert found.approach == "snapshot" and found.manifest_id is not None
    reason = rows(server, PARENT, name="hops", version=1)[0]["reason"]
    assert "dataset 'd' is not there" in reason
    assert hashes(server, "hops") == hashes(trained, "hops")
    entries = find_entries(server, found.model_id)
    assert weights_hash((e, e.tensor_hash) for e in entries) == found.weights_hash
    assert same_lineage(lineage(trained), lineage(server))
    (dataset,) = server.select("SELECT name, dropped_at FROM mmdb.dataset")
    assert dataset["dropped_at"] is not None and count(server, "block") == 0
    (view,) = server.select("SELECT * FROM mmdb.model_lineage WHERE model = 'hops'")[:1]
    assert "r" in view.values() and "d" in view.values()
    copy_model(trained, server, "origin")
    assert [count(server, table) for table in ("run", "candidate", "dataset")] == [1, 1, 1]
    assert same_lineage(lineage(trained, "origin"), lineage(server, "origin"))
    sources = "SELECT * FROM mmdb.dataset_lineage ORDER BY column_name, output_name"
    assert server.select(sources) == trained.select(sources)
    assert {row["resolution"] for row in server.select(sources)} == {"column"}


@pytest.mark.parametrize("place", ["server", "other"])
def test_a_copied_candidate_trains_no_more_where_its_model_is_of_an_earlier_epoch(
    trained: AnyConnection, place: str, request: pytest.FixtureRequest
) -> None:
    target: AnyConnection = request.getfixturevalue(place)
    trained.select("UPDATE mmdb.model SET epoch = 0 WHERE name = 'origin'")
    copy_model(trained, target, "origin")
    (board,) = target.select("SELECT status, epochs FROM mmdb.leaderboard")
    assert tuple(board.values()) == ("resting", 1)
    counted = "training, resting, hops_total - hops_done AS hops_left"
    (run,) = target.select(f"SELECT {counted} FROM mmdb.run_progress")
    assert tuple(run.values()) == (0, 1, 0)
    (shown,) = target.select("SELECT status, end_time IS NULL AS is_open FROM mmdb.mlflow_runs")
    assert tuple(shown.values()) == ("FINISHED", False)


@pytest.mark.parametrize("epoch", [0, 1])
@pytest.mark.parametrize("url", ["postgres_url", "other_url"])
def test_a_copied_run_is_refused_before_anything_is_trained(
    trained: AnyConnection, url: str, epoch: int, request: pytest.FixtureRequest
) -> None:
    target_url: str = request.getfixturevalue(url)
    trained.select(f"UPDATE mmdb.model SET epoch = {epoch} WHERE name = 'origin'")
    with opened(target_url) as (target,):
        copy_model(trained, target, "origin", options=CopyOptions(data=True))
    with mmdb.connect(target_url) as db:
        hops = db.sql("SELECT count(*) AS n FROM mmdb.hop")
        with pytest.raises(RunEnded, match=r"(?s)'r' is a copy.*HINT: .*warm_start => 'NAME@VER"):
            db.run("r").train(workers=1)
        assert db.sql("SELECT count(*) AS n FROM mmdb.hop") == hops
        mlp = "mlp(hidden=[64, 64])"
        db.create_run(
            "again", dataset="d", architecture=mlp, search=SEARCH, epochs=1, warm_start="origin@1"
        ).train(workers=1)
        (begun,) = db.sql("SELECT parent FROM mmdb.warm_start_overview WHERE run = 'again'")
        assert begun["parent"] == "origin@1"


def test_with_its_data_a_recipe_stays_one_and_is_followed_there(
    trained: AnyConnection, server: AnyConnection
) -> None:
    copied = copy_model(trained, server, "hops", options=CopyOptions(data=True))
    assert copied.bytes_sent > 0
    assert find_model(server, "hops").approach == "provenance"
    assert count(server, "tensor") == 0 and count(server, "block") == count(trained, "block")
    assert hashes(server, "hops") == hashes(trained, "hops")
    again = copy_model(trained, server, "origin", options=CopyOptions(data=True))
    assert again.models == ("origin@1",) and count(server, "dataset") == 1


def test_where_the_same_data_is_a_recipe_stays_one(
    trained: AnyConnection, server: AnyConnection, postgres_url: str
) -> None:
    with mmdb.connect(postgres_url) as db:
        fill(db)
    copied = copy_model(trained, server, "hops")
    assert copied.bytes_sent == 0 and count(server, "dataset") == 1
    assert find_model(server, "hops").approach == "provenance"
    assert hashes(server, "hops") == hashes(trained, "hops")


def test_a_trainer_s_recipe_takes_the_parent_that_it_begins_with_along(
    trained: AnyConnection, server: AnyConnection, postgres_url: str
) -> None:
    with mmdb.connect(postgres_url) as db:
        fill(db)
    copied = copy_model(trained, server, "child")
    assert copied.models == ("origin@1", "child@1")
    found = find_model(server, "child")
    assert found.approach == "provenance"
    assert found.parent_id == find_model(server, "origin").model_id
    assert hashes(server, "child") == hashes(trained, "child")


def test_a_trainer_that_is_not_registered_there_is_not_relied_on(
    trained: AnyConnection, server: AnyConnection
) -> None:
    copy_model(trained, server, "origin")
    copied = copy_model(trained, server, "child", options=CopyOptions(data=True), replay=REPLAY)
    assert copied.models == ("child@1",)
    found = find_model(server, "child")
    assert found.approach == "update" and found.parent_id is not None
    assert any(row["base_hash"] is not None for row in rows(server, CHUNKS))
    assert "trainer 'fine_tune'" in rows(server, PARENT, name="child", version=1)[0]["reason"]
    assert hashes(server, "child") == hashes(trained, "child")


def test_weights_can_be_refused_or_asked_for(trained: AnyConnection, server: AnyConnection) -> None:
    with pytest.raises(NotReplayable, match="dataset 'd' is not there"):
        copy_model(trained, server, "hops", options=CopyOptions(weights="never"))
    assert count(server, "model") == 0
    with pytest.raises(NotReplayable, match="the recipe is kept"):
        copy_model(trained, server, "hops")
    always = CopyOptions(weights="always", data=True)
    copy_model(trained, server, "hops", options=always, replay=REPLAY)
    assert find_model(server, "hops").manifest_id is not None


def test_a_run_of_the_same_name_there_stays_another_one(
    trained: AnyConnection, server: AnyConnection, postgres_url: str
) -> None:
    with mmdb.connect(postgres_url) as db:
        fill(db)
        db.sql(
            "INSERT INTO mmdb.run (name, dataset_id, architecture, search, epochs, strategy, "
            "warm_start, seed, options) "
            "SELECT 'r', dataset_id, '{}', '{}', 1, 'mop', 'off', 7, '{}' FROM mmdb.dataset"
        )
    copy_model(trained, server, "hops")
    copy_model(trained, server, "origin")
    names = [row["name"] for row in server.select("SELECT name FROM mmdb.run ORDER BY run_id")]
    assert len(names) == 2 and names[0] == "r" and names[1].startswith("r/")
    assert hashes(server, "hops") == hashes(trained, "hops")


def test_states_that_a_recipe_starts_from_come_along(
    trained: AnyConnection, server: AnyConnection, postgres_url: str
) -> None:
    with mmdb.connect(postgres_url) as db:
        fill(db)
    module = recover_module(trained, find_model(trained, "origin"))
    optimizer = torch.optim.Adam(module.parameters(), lr=0.01)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)
    module(torch.ones(4, WIDTH)).sum().backward()
    optimizer.step()
    module.load_state_dict(recover_module(trained, find_model(trained, "origin")).state_dict())
    state = {"optimizer": optimizer.state_dict(), "schedule": schedule.state_dict()}
    recipe = Recipe(trainer="fine_tune", dataset="d", seed=3, state=state)
    used = Recipe(trainer="fine_tune", dataset="d", seed=3, state=copy.deepcopy(state))
    train_by_recipe(trained, used, module, find_dataset(trained, "d"))
    save_with_recipe(trained, "warm", module, recipe, parent="origin", approach="provenance")
    copy_model(trained, server, "warm")
    assert count(server, "recipe_tensor") == count(trained, "recipe_tensor") > 0
    assert hashes(server, "warm") == hashes(trained, "warm")


# -- interruptions --------------------------------------------------------------


def test_an_interrupted_push_shows_nothing_and_goes_on_where_it_was(
    edge: AnyConnection, server: AnyConnection, postgres_url: str
) -> None:
    tensors = plain(layers=40)
    save(edge, "m", tensors)
    options = CopyOptions(batch_bytes=64 << 10)
    with Relay(postgres_url, cut_after=300_000) as relay:
        with pytest.raises(ConnectionLost, match=r"(?s)HINT: Call again"):
            push(edge, "m", to=relay.url, options=options)
    assert count(server, "model") == 0
    arrived = count(server, "encoding")
    assert 0 < arrived < 40
    assert collect(server, "7 days") == []  # what has arrived is left alone for some time
    with Relay(postgres_url) as relay:
        copied = push(edge, "m", to=relay.url, options=options)
        assert relay.sent < 400_000
    assert copied.tensors == count(server, "tensor") - arrived
    assert_same(tensors_of(server, "m"), tensors)


def test_an_interrupted_pull_shows_nothing_and_goes_on_where_it_was(
    edge: AnyConnection, server: AnyConnection, postgres_url: str
) -> None:
    tensors = plain(layers=40)
    save(server, "m", tensors)
    options = CopyOptions(batch_bytes=64 << 10)
    seen: list[tuple[int, int]] = []
    with Relay(postgres_url) as relay:

        def break_it(done: int, total: int) -> None:
            seen.append((done, total))
            if done > total / 2:
                relay.close()

        with pytest.raises(ConnectionLost):
            pull(edge, "m", from_=relay.url, options=options, on_progress=break_it)
    arrived = count(edge, "encoding")
    assert count(edge, "model") == 0 and 0 < arrived < 40
    assert seen == sorted(seen) and seen[0][0] == 0
    copied = pull(edge, "m", from_=postgres_url, options=options)
    assert copied.tensors == count(edge, "tensor") - arrived
    assert_same(tensors_of(edge, "m"), tensors)


def test_two_at_once_store_a_model_once(
    installed: Path, tmp_path: Path, server: AnyConnection, postgres_url: str
) -> None:
    edges = []
    for k in range(3):
        shutil.copy(installed, tmp_path / f"{k}.duckdb")
        edges.append(connect(f"duckdb:///{tmp_path}/{k}.duckdb"))
        save(edges[-1], "m", plain())
    found: list[CopyReport] = []
    work: Callable[[AnyConnection], None] = lambda edge: found.append(  # noqa: E731
        push(edge, "m", to=postgres_url)
    )
    threads = [threading.Thread(target=work, args=(edge,)) for edge in edges]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for edge in edges:
        edge.close()
    assert sorted(copied.models + copied.kept for copied in found) == [("m@1",)] * 3
    assert [count(server, table) for table in ("model", "encoding", "manifest")] == [1, 13, 1]
    assert_same(tensors_of(server, "m"), plain())


@pytest.mark.parametrize("verify", ["full", "none"])
def test_a_damaged_chunk_is_named_and_nothing_is_visible_there(across: Pair, verify: Any) -> None:
    source, target = across
    save(source, "m", plain(layers=2))
    entry = find_entries(source, find_model(source, "m").model_id)[0]
    flipped = "'\\x00'::bytea || substring(data FROM 2)"
    if source.engine == "duckdb":
        flipped = "'\\x00'::BLOB || data[2:]"
    source.select(
        f"UPDATE mmdb.tensor_chunk SET data = {flipped} WHERE tensor_id = {entry.tensor_id}"
    )
    with pytest.raises(CorruptTensor, match=r"Model m@1, tensor '0.weight'"):
        copy_model(source, target, "m", options=CopyOptions(verify=verify))
    assert count(target, "model") == 0 and count(target, "tensor_chunk") == 0


def test_bytes_that_are_another_tensor_s_are_found_by_its_hash(
    across: Pair,
) -> None:
    source, target = across
    save(source, "m", plain(layers=2))
    first, _, other, _ = find_entries(source, find_model(source, "m").model_id)
    for column in ("data", "digest", "codec"):
        source.select(
            f"UPDATE mmdb.tensor_chunk SET {column} = (SELECT o.{column} FROM mmdb.tensor_chunk "
            f"AS o WHERE o.tensor_id = {other.tensor_id}) WHERE tensor_id = {first.tensor_id}"
        )
    source.select(
        "UPDATE mmdb.encoding SET stored_bytes = (SELECT o.stored_bytes FROM mmdb.encoding AS o "
        f"WHERE o.tensor_id = {other.tensor_id}) WHERE tensor_id = {first.tensor_id}"
    )
    wrong = r"Model m@1, tensor '0.weight'.*not (those of its hash|as it was written)"
    with pytest.raises(CorruptTensor, match=wrong):
        copy_model(source, target, "m")
    assert count(target, "tensor_chunk") == 0


# -- errors ---------------------------------------------------------------------


def test_a_model_that_is_not_there_is_not_found(
    edge: AnyConnection, server: AnyConnection, postgres_url: str
) -> None:
    for model in ("m", "m@1", "m@prod"):
        with pytest.raises(ModelNotFound):
            push(edge, model, to=postgres_url)
        with pytest.raises(ModelNotFound):
            pull(edge, model, from_=postgres_url)
    save(edge, "m", plain())
    with pytest.raises(ModelNotFound, match="without a version"):
        push(edge, "m@1", to=postgres_url, all_versions=True)


def test_a_database_is_not_pushed_to_itself(
    edge: AnyConnection, server: AnyConnection, edge_url: str, postgres_url: str
) -> None:
    save(edge, "m", plain())
    save(server, "m", plain())
    with pytest.raises(InvalidOption, match="this very database"):
        push(edge, "m", to=edge_url)
    with Relay(postgres_url) as relay, pytest.raises(InvalidOption, match="this very database"):
        push(server, "m", to=relay.url)


def test_a_copy_begins_outside_of_a_transaction(edge: AnyConnection, server: AnyConnection) -> None:
    save(edge, "m", plain())
    for connection in (edge, server):
        with connection.transaction(), pytest.raises(InTransaction):
            copy_model(edge, server, "m")


@pytest.mark.parametrize(
    "options", [{"version": "last"}, {"weights": "some"}, {"verify": "half"}], ids=str
)
def test_an_unknown_choice_is_an_error(
    edge: AnyConnection, other: AnyConnection, options: dict[str, Any]
) -> None:
    with pytest.raises(InvalidOption, match="HINT: Choose"):
        copy_model(edge, other, "m", options=CopyOptions(**options))


def test_the_other_database_must_have_this_version_of_mmdb(
    edge: AnyConnection, cluster: Cluster, server: AnyConnection, postgres_url: str
) -> None:
    save(edge, "m", plain())
    bare = cluster.create_database("mmdb_bare")
    with pytest.raises(NotInstalled):
        push(edge, "m", to=bare)
    cluster.drop_database("mmdb_bare")
    server.select("UPDATE mmdb.migration SET digest = 'older' WHERE number = -1")
    with pytest.raises(NotInstalled, match="another version"):
        push(edge, "m", to=postgres_url)


def test_nobody_answers_or_there_is_no_such_file(edge: AnyConnection, tmp_path: Path) -> None:
    save(edge, "m", plain())
    with pytest.raises(WrongUrl):
        push(edge, "m", to="postgresql://postgres@127.0.0.1:1/none")
    with pytest.raises(WrongUrl, match="There is no file"):
        pull(edge, "m", from_=f"duckdb:///{tmp_path}/none.duckdb")
    assert not (tmp_path / "none.duckdb").exists()


def test_a_file_is_made_by_a_push(edge: AnyConnection, tmp_path: Path) -> None:
    save(edge, "m", plain())
    url = f"duckdb:///{tmp_path}/new.duckdb"
    assert push(edge, "m", to=url).models == ("m@1",)
    other = connect(url)
    assert_same(tensors_of(other, "m"), plain())
    other.close()


def test_a_file_from_elsewhere_reads_no_file_of_whoever_pulls(
    edge: AnyConnection, other: AnyConnection, tmp_path: Path
) -> None:
    file, secret = tmp_path / "made.duckdb", tmp_path / "secret"
    secret.write_text("mine")
    save(edge, "m", plain())
    push(edge, "m", to=f"duckdb:///{file}")
    with duckdb.connect(str(file)) as made:
        made.execute("DROP TABLE mmdb.model_tag CASCADE")
        made.execute(
            "CREATE VIEW mmdb.model_tag AS SELECT model_id, 'licence' AS key, content AS value,"
            f" now() AS created_at FROM mmdb.model, read_text('{secret}')"
        )
    with pytest.raises(DatabaseFailed, match="disabled by configuration"):
        pull(other, "m", from_=f"duckdb:///{file}")


def as_role(cluster: Cluster, url: str, role: str) -> str:
    """Return the URL of a login that has a role of mmdb."""
    name = f"sync_{role}"
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(f"CREATE ROLE {name} LOGIN PASSWORD 'sync' IN ROLE mmdb_{role}")
    scheme, _, rest = url.partition("://")
    return f"{scheme}://{name}:sync@{rest.rpartition('@')[2]}"


def drop_role(url: str, role: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(f"DROP ROLE sync_{role}")


def test_a_trainer_may_push_and_a_reader_may_not(
    edge: AnyConnection, server: AnyConnection, cluster: Cluster, postgres_url: str
) -> None:
    save(edge, "m", plain())
    note_model(edge, "m", "hello")
    set_alias(edge, "m", 1, "prod")
    for role in ("reader", "trainer"):
        url = as_role(cluster, postgres_url, role)
        try:
            if role == "reader":
                with pytest.raises(RightsMissing):
                    push(edge, "m", to=url)
                assert count(server, "tensor") == 0
            else:
                push(edge, "m", to=url, options=CopyOptions(aliases=True))
                assert_same(tensors_of(server, "m@prod"), plain())
                (note,) = server.select("SELECT note, author FROM mmdb.model_note")
                assert dict(note) == {"note": "hello", "author": "sync_trainer"}
        finally:
            drop_role(postgres_url, role)


def test_a_database_pushes_and_pulls_aliases_where_it_is_asked_to(tmp_path: Path) -> None:
    urls = [f"duckdb:///{tmp_path}/{name}.duckdb" for name in ("here", "there", "third")]
    aliases = "SELECT alias FROM mmdb.alias_event"
    with mmdb.connect(urls[0]) as here:
        here.save("m", torch.nn.Linear(2, 2))
        here.set_alias("m", "prod")
        assert here.push("m", to=urls[1], data=True).models
        assert here.push("m", to=urls[1], aliases=True).kept
    with mmdb.connect(urls[2]) as third:
        assert third.pull("m", from_=urls[1], data=True).models and not third.sql(aliases)
        assert third.pull("m", from_=urls[1], aliases=True).kept
        assert third.sql(aliases) == [{"alias": "prod"}]
