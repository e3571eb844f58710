"""Models out of files, into files, and a whole zoo to and from a folder, on both engines."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch

from mmdb.db.connection import Connection
from mmdb.db.install import install
from mmdb.db.queries import Query, load
from mmdb.db.url import connect
from mmdb.errors import (
    AlreadyExists,
    FileDamaged,
    FileError,
    FileExists,
    ImportMismatch,
    InvalidName,
    ModelNotFound,
    NotReplayable,
    UnsafeFile,
)
from mmdb.store.files.description import Description
from mmdb.store.files.exchange import export_model, import_model, open_model, state_dict
from mmdb.store.files.formats import open_tensors, write_tensors
from mmdb.store.files.lazy import LazyTensors
from mmdb.store.files.zoo_exchange import export_zoo, import_zoo
from mmdb.store.models.model_rows import ModelDefinition, find_entries, find_model, model_of
from mmdb.store.models.recover import load_tensors
from mmdb.store.models.registry import log_metric, note_model, set_alias, tag_model
from mmdb.store.models.save import About, save_model
from mmdb.store.tensors.tensor_bytes import raw_bytes

DEFINITION = ModelDefinition(
    architecture={"factory": "mlp", "arguments": {"hidden": [8]}},
    arguments={"dropout": 0.5},
    input_shape=(4,),
    outputs=3,
)


def open_database(url: str) -> Connection:
    if url.startswith("duckdb"):
        install(url)
    return connect(url)


@pytest.fixture
def connection(database_url: str) -> Iterator[Connection]:
    connection = open_database(database_url)
    yield connection
    connection.close()  # type: ignore[attr-defined]


@pytest.fixture
def other(tmp_path: Path) -> Iterator[Connection]:
    """Yield a second, empty database."""
    connection = open_database(f"duckdb:///{tmp_path / 'other.duckdb'}")
    yield connection
    connection.close()  # type: ignore[attr-defined]


def network(seed: int = 0) -> dict[str, torch.Tensor]:
    """Return a state dict with a tie, a view, small and large tensors and odd dtypes."""
    generator = torch.Generator().manual_seed(seed)
    shared = torch.randn(100, 32, generator=generator)
    memory = torch.randn(64, generator=generator)
    return {
        "embed.weight": shared,
        "body.weight": torch.randn(32, 32, generator=generator).to(torch.bfloat16),
        "body.scale": torch.tensor([math.nan, -0.0, math.inf]),
        "body.spectrum": torch.randn(4, dtype=torch.complex128, generator=generator),
        "norm.num_batches_tracked": torch.tensor(3),
        "low": memory[:40],
        "high": memory[24:].view(2, 20),
        "none": torch.empty(0, 3),
        "head.weight": shared,
    }


def plain(seed: int = 0) -> dict[str, torch.Tensor]:
    """Return a network that safetensors can hold."""
    return {path: t for path, t in network(seed).items() if t.dtype != torch.complex128}


def assert_same(found: Mapping[str, torch.Tensor], expected: Mapping[str, torch.Tensor]) -> None:
    assert list(found) == list(expected)
    for path, tensor in expected.items():
        assert (found[path].dtype, found[path].shape) == (tensor.dtype, tensor.shape), path
        assert raw_bytes(found[path]).tobytes() == raw_bytes(tensor).tobytes(), path


def tensors_of(connection: Connection, reference: str) -> dict[str, torch.Tensor]:
    return load_tensors(connection, find_model(connection, reference))


TABLES = ("model", "tensor", "encoding", "manifest", "model_tag", "model_metric", "model_note")
COUNT = Query(
    "count",
    "Rows by table.",
    " UNION ALL ".join(
        f"SELECT '{name}' AS name, count(*) AS count FROM mmdb.{name}"
        for name in (*TABLES, "alias_event")
    ),
)


def counts(connection: Connection) -> dict[str, int]:
    """Return the number of rows of each table that holds models."""
    return {row["name"]: row["count"] for row in connection.rows(COUNT)}


def dump(connection: Connection) -> dict[str, tuple[object, ...]]:
    """Return all that is said of every model, but for times and authors, by name@version."""
    queries = load("exchange")
    aliases = connection.rows(queries.list_aliases)
    found: dict[str, tuple[object, ...]] = {}
    for row in connection.rows(queries.list_models, every=True, names=[]):
        model = model_of(connection, row["model_id"])
        parents = connection.rows(queries.find_parent, model_id=model.model_id)
        found[model.reference] = (
            Description.of(connection, model),
            model.weights_hash,
            [f"{parent['name']}@{parent['version']}" for parent in parents],
            [
                a["alias"]
                for a in aliases
                if (a["model"], a["version"]) == (model.name, model.version)
            ],
        )
    return found


# -- one model ----------------------------------------------------------------


@pytest.mark.parametrize("name", ["m.safetensors", "m.pt", "folder"])
def test_an_exported_model_is_imported_again(
    connection: Connection, other: Connection, tmp_path: Path, name: str
) -> None:
    about = About(definition=DEFINITION, metrics={"accuracy": 0.75})
    save_model(connection, "net", plain(), about=about)
    tag_model(connection, "net", "owner", "größe 🦒")
    log_metric(connection, "net", "loss", math.inf, dataset="test")
    exported = export_model(connection, "net", tmp_path / name)
    assert (exported.model, exported.tensors) == ("net@1", len(plain()))

    imported = import_model(other, tmp_path / name, "copy")
    assert imported.model == "copy@1"
    found = tensors_of(other, "copy")
    assert_same(found, plain())
    assert found["head.weight"].data_ptr() == found["embed.weight"].data_ptr()
    if name != "m.pt":  # which has no place for what is said of a model
        assert find_model(other, "copy").definition == DEFINITION
        assert dump(other)["copy@1"][0] == dump(connection)["net@1"][0]


def test_a_file_of_another_program_is_imported(connection: Connection, tmp_path: Path) -> None:
    module = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.BatchNorm1d(4))
    torch.save({"epoch": 1, "model": module.state_dict()}, tmp_path / "checkpoint.pt")
    safetensors.torch.save_file(module.state_dict(), tmp_path / "m.safetensors")
    first = import_model(connection, tmp_path / "checkpoint.pt", "net")
    second = import_model(connection, tmp_path / "m.safetensors", "net", parent="net@1")
    assert first.notes == ("took the state dict under 'model'",)
    assert second.stored_bytes == 0 or second.approach == "update"
    assert_same(tensors_of(connection, "net@1"), module.state_dict())
    assert tensors_of(connection, "net@2").keys() == module.state_dict().keys()
    kinds = {
        e.path: e.kind for e in find_entries(connection, find_model(connection, "net").model_id)
    }
    assert {path for path, kind in kinds.items() if kind == "buffer"} == {
        path for path, _ in module.named_buffers()
    }


def test_the_config_of_a_folder_comes_back(connection: Connection, tmp_path: Path) -> None:
    safetensors.torch.save_file({"w": torch.ones(3)}, tmp_path / "model.safetensors")
    config = {"model_type": "bert", "hidden_size": 3}
    (tmp_path / "config.json").write_text(json.dumps(config))
    import_model(connection, tmp_path, "bert")
    export_model(connection, "bert", tmp_path / "again")
    assert json.loads((tmp_path / "again" / "config.json").read_text()) == config
    assert json.loads((tmp_path / "again" / "mmdb.json").read_text())["model"] == "bert"


def test_views_stay_views_in_a_torch_file(connection: Connection, tmp_path: Path) -> None:
    save_model(connection, "net", network())
    export_model(connection, "net", tmp_path / "m.pt")
    assert_same(torch.load(tmp_path / "m.pt", weights_only=True), network())
    import_model(connection, tmp_path / "m.pt", "net")
    first, second = (find_model(connection, f"net@{version}") for version in (1, 2))
    assert first.weights_hash == second.weights_hash


def test_a_model_kept_as_its_recipe_is_made_first(connection: Connection) -> None:
    save_model(connection, "net", network())
    kept = find_model(connection, "net")
    recipe = dataclasses.replace(kept, manifest_id=None)
    with pytest.raises(NotReplayable, match="net@1"):
        open_model(connection, recipe, None)
    stored, made = (
        open_model(connection, kept, None),
        open_model(connection, recipe, lambda connection, model: network()),
    )
    assert made.hashes == stored.hashes
    assert_same(made.read(list(network())), stored.read(list(network())))
    assert state_dict(made).tied == state_dict(stored).tied == {"head.weight": "embed.weight"}


def test_a_changed_file_is_refused_and_nothing_stored(
    connection: Connection, tmp_path: Path
) -> None:
    save_model(connection, "net", plain())
    path = tmp_path / "m.safetensors"
    export_model(connection, "net", path)
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    before = counts(connection)
    with pytest.raises(ImportMismatch, match="net"):
        import_model(connection, path, "copy")
    assert counts(connection) == before


class Evil:
    def __reduce__(self) -> tuple[Any, ...]:
        return print, ("run",)


def test_bad_files_store_nothing(connection: Connection, tmp_path: Path) -> None:
    torch.save({"w": torch.ones(3), "x": Evil()}, tmp_path / "evil.pt")
    (tmp_path / "cut.safetensors").write_bytes(safetensors.torch.save({"w": torch.ones(3)})[:-2])
    own = {"metrics": [{"metric": "m", "dataset": "", "value": "x"}]}
    write_tensors(tmp_path / "own.safetensors", LazyTensors.holding(plain()), own=own)
    before = counts(connection)
    for name, error in (
        ("evil.pt", UnsafeFile),
        ("cut.safetensors", FileDamaged),
        ("own.safetensors", FileDamaged),
        ("missing", FileError),
    ):
        with pytest.raises(error, match=name):
            import_model(connection, tmp_path / name, "net")
    with pytest.raises(InvalidName):
        import_model(connection, tmp_path / "own.safetensors", "a name")
    torch.save({"w": torch.ones(3)}, tmp_path / "good.pt")
    with pytest.raises(ModelNotFound):
        import_model(connection, tmp_path / "good.pt", "net", parent="net@1")
    with pytest.raises(ModelNotFound):
        export_model(connection, "net", tmp_path / "net.pt")
    assert counts(connection) == before
    assert not (tmp_path / "net.pt").exists()


# -- a zoo --------------------------------------------------------------------


def fill(connection: Connection) -> None:
    """Save a zoo of parents, children, gaps, aliases and everything that is said of models."""
    save_model(connection, "base", network(), about=About(definition=DEFINITION))
    for seed in (1, 2):
        tensors = network() | {"body.weight": network(seed)["body.weight"]}
        about = About(metrics={"accuracy": seed / 4})
        save_model(connection, "tuned/deep.v2", tensors, parent="base", about=about)
    save_model(connection, "Base", network(3), parent="tuned/deep.v2@2")
    set_alias(connection, "base", 1, "prod")
    set_alias(connection, "tuned/deep.v2", 1, "prod")
    tag_model(connection, "base", "owner", "größe 🦒")
    log_metric(connection, "Base", "loss", -math.inf, dataset="test")
    note_model(connection, "base", "first\nnote")


def test_a_zoo_comes_back_whole_and_twice_changes_nothing(
    connection: Connection, other: Connection, tmp_path: Path
) -> None:
    fill(connection)
    folder = tmp_path / "zoo"
    exported = export_zoo(connection, folder)
    assert exported.added == ("base@1", "tuned/deep.v2@1", "tuned/deep.v2@2", "Base@1")
    imported = import_zoo(other, folder)
    assert (sorted(imported.added), imported.notes) == (sorted(exported.added), [])
    assert dump(other) == dump(connection)
    for reference in exported.added:
        assert_same(tensors_of(other, reference), tensors_of(connection, reference))
    found = tensors_of(other, "base")
    assert found["low"].untyped_storage().data_ptr() == found["high"].untyped_storage().data_ptr()
    assert find_model(other, "base").definition == DEFINITION

    before = counts(other)
    again = import_zoo(other, folder)
    assert (again.added, again.kept, again.stored_bytes) == ([], 4, 0)
    assert counts(other) == before
    assert dump(other) == dump(connection)


def test_exporting_again_adds_what_is_new_alone(connection: Connection, tmp_path: Path) -> None:
    fill(connection)
    folder = tmp_path / "zoo"
    export_zoo(connection, folder)
    files = {path: path.stat().st_mtime_ns for path in folder.rglob("*") if path.is_file()}
    again = export_zoo(connection, folder)
    assert (again.added, again.kept, again.bytes) == ((), 4, 0)
    save_model(connection, "base", network() | {"body.scale": torch.ones(3)}, parent="base@1")
    third = export_zoo(connection, folder, ["base"])
    assert (third.added, third.kept) == (("base@2",), 1)
    changed = {path for path, time in files.items() if path.stat().st_mtime_ns != time}
    assert changed == {folder / "zoo.json"}
    listed = json.loads((folder / "zoo.json").read_text())
    assert len(listed["models"]) == 5
    assert len(listed["aliases"]) == 2


def test_a_hundred_variants_are_not_a_hundred_copies(
    connection: Connection, tmp_path: Path
) -> None:
    base = {f"layer.{k}": torch.randn(64, 64) for k in range(20)}
    save_model(connection, "net", base)
    for _ in range(20):
        save_model(connection, "net", base | {"layer.19": torch.randn(64, 64)}, parent="net@1")
    exported = export_zoo(connection, tmp_path / "zoo")
    raw = 64 * 64 * 4
    assert 40 * raw <= exported.bytes <= 40 * raw + 21 * 1000
    for path in (tmp_path / "zoo" / "tensors").iterdir():  # any reader of safetensors reads them
        safetensors.torch.load_file(path)


def test_a_part_of_a_zoo_is_imported_without_its_parents(
    connection: Connection, other: Connection, tmp_path: Path
) -> None:
    fill(connection)
    export_zoo(connection, tmp_path / "zoo", ["tuned/deep.v2"])
    imported = import_zoo(other, tmp_path / "zoo")
    assert [parents for _, _, parents, _ in dump(other).values()] == [[], []]
    assert imported.notes == [
        "tuned/deep.v2@1 is here without its parent base@1",
        "tuned/deep.v2@2 is here without its parent base@1",
    ]
    with pytest.raises(ModelNotFound, match="nothing"):
        export_zoo(connection, tmp_path / "zoo", ["base", "nothing"])


def test_an_interrupted_import_is_run_again(
    connection: Connection, other: Connection, tmp_path: Path
) -> None:
    fill(connection)
    folder = tmp_path / "zoo"
    export_zoo(connection, folder)
    (version,) = folder.glob("models/Base-*/1.json")
    version.rename(tmp_path / "away")
    with pytest.raises(FileError):
        import_zoo(other, folder)
    assert 0 < len(dump(other)) < 4
    (tmp_path / "away").rename(version)
    import_zoo(other, folder)
    assert dump(other) == dump(connection)


def test_an_interrupted_export_is_run_again(connection: Connection, tmp_path: Path) -> None:
    fill(connection)
    whole, part = tmp_path / "whole", tmp_path / "part"
    export_zoo(connection, whole)
    export_zoo(connection, part, ["base"])
    (part / "zoo.json").write_bytes(b'{"format": 1, "models": [], "aliases": []}\n')
    for path in part.glob("models/base-*/1.json"):
        path.unlink()
    export_zoo(connection, part)
    assert sorted((part / "zoo.json").read_text()) == sorted((whole / "zoo.json").read_text())


def test_versions_keep_their_numbers(
    connection: Connection, other: Connection, tmp_path: Path
) -> None:
    fill(connection)
    export_zoo(connection, tmp_path / "zoo")
    manifest = json.loads((tmp_path / "zoo" / "zoo.json").read_text())
    manifest["models"] = [
        row for row in manifest["models"] if (row["name"], row["version"]) != ("tuned/deep.v2", 1)
    ]
    (tmp_path / "zoo" / "zoo.json").write_text(json.dumps(manifest))
    import_zoo(other, tmp_path / "zoo")
    assert dump(other).keys() == dump(connection).keys() - {"tuned/deep.v2@1"}


def test_other_weights_under_a_versions_name_stop_both_ways(
    connection: Connection, other: Connection, tmp_path: Path
) -> None:
    fill(connection)
    export_zoo(connection, tmp_path / "zoo")
    save_model(other, "Base", plain(9))
    with pytest.raises(AlreadyExists, match="Base@1"):
        import_zoo(other, tmp_path / "zoo")
    assert len(dump(other)) == 1
    with pytest.raises(FileExists, match="another Base@1"):
        export_zoo(other, tmp_path / "zoo")


def test_a_folder_that_is_no_zoo_is_left_alone(connection: Connection, tmp_path: Path) -> None:
    (tmp_path / "letter").write_text("dear")
    with pytest.raises(FileExists):
        export_zoo(connection, tmp_path)
    with pytest.raises(FileError, match=r"zoo\.json"):
        import_zoo(connection, tmp_path)
    assert [path.name for path in tmp_path.iterdir() if "duckdb" not in path.name] == ["letter"]


# -- zoos of ill will -----------------------------------------------------------


@pytest.fixture
def zoo(connection: Connection, tmp_path: Path) -> Path:
    fill(connection)
    export_zoo(connection, tmp_path / "zoo")
    return tmp_path / "zoo"


def test_a_flipped_bit_is_found_and_nothing_of_that_version_stored(
    zoo: Path, other: Connection
) -> None:
    largest = max((zoo / "tensors").iterdir(), key=lambda path: path.stat().st_size)
    data = bytearray(largest.read_bytes())
    data[-1] ^= 1
    largest.write_bytes(data)
    with pytest.raises(ImportMismatch):
        import_zoo(other, zoo)
    assert "base@1" not in dump(other)


def edit(path: Path, **changes: object) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def test_manifests_of_ill_will_are_refused(zoo: Path, other: Connection) -> None:
    whole = json.loads((zoo / "zoo.json").read_text())
    first = whole["models"][0]
    for changes in (
        {"format": 2},
        {"models": 3},
        {"models": [3]},
        {"models": [first | {"version": "1"}]},
        {"models": [first | {"version": 0}]},
        {"models": [first | {"weights_hash": "x"}]},
        {"models": [first | {"parent": {"name": 3}}]},
        {"models": [first | {"parent": first}]},
        {"models": [first | {"tags": {"a": 3}}]},
        {"models": [first | {"definition": {"architecture": 3}}]},
        {"models": [first | {"metrics": [{"metric": "a"}]}]},
        {"models": [first | {"notes": ["\ud800"]}]},
        {"models": [first | {"name": "../../base"}]},
        {"aliases": [{"model": "base"}]},
    ):
        edit(zoo / "zoo.json", **(whole | changes))
        with pytest.raises(FileError):
            import_zoo(other, zoo)
        assert counts(other)["model"] == 0, changes


def test_lists_of_tensors_of_ill_will_are_refused(zoo: Path, other: Connection) -> None:
    (version,) = zoo.glob("models/base-*/1.json")
    whole = json.loads(version.read_text())["tensors"]
    views = [k for k, row in enumerate(whole) if "layout" in row]
    for place, change in (
        (0, {"path": 3}),
        (0, {"path": "body.weight"}),
        (0, {"dtype": "float99"}),
        (0, {"dtype": "__class__"}),
        (0, {"shape": [-1]}),
        (0, {"shape": [1 << 60]}),
        (0, {"shape": [3200]}),
        (0, {"kind": "code"}),
        (0, {"tied_to": 99}),
        (0, {"tied_to": 1}),
        (0, {"hash": "../../secret"}),
        (0, {"hash": "0" * 64}),
        (views[0], {"layout": {"storage": 0, "offset": 0, "stride": [1]}}),
        (views[0], {"layout": {"storage": 99, "offset": 0, "stride": [1]}}),
        (views[0], {"layout": whole[views[0]]["layout"] | {"offset": 1 << 40}}),
        (views[0], {"layout": whole[views[0]]["layout"] | {"stride": [1 << 40]}}),
    ):
        edit(version, tensors=[row | (change if k == place else {}) for k, row in enumerate(whole)])
        with pytest.raises(FileError):
            import_zoo(other, zoo)
        assert counts(other)["model"] == 0, change


def test_every_tensor_of_a_zoo_is_opened_by_name(zoo: Path) -> None:
    listed = {
        row["hash"]
        for path in zoo.glob("models/*/*.json")
        for row in json.loads(path.read_text())["tensors"]
        if "layout" not in row
    }
    there = [name for path in (zoo / "tensors").iterdir() for name in open_tensors(path)]
    assert sorted(there) == sorted(listed)
