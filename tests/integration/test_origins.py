"""Where models came from: files and other databases leave one origin each."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import blake3
import pytest
import safetensors.torch
import torch

import mmdb
from mmdb import errors
from mmdb.store.models.model_rows import of_database, of_file

ORIGINS = "SELECT model, version, kind, source, format FROM mmdb.origin_overview ORDER BY 1, 2"
TENSORS = {"weight": torch.arange(6.0).reshape(2, 3), "bias": torch.zeros(2)}


@pytest.fixture
def db(tmp_path: Path) -> Iterator[mmdb.Database]:
    with mmdb.connect(f"duckdb:///{tmp_path / 'own.duckdb'}") as database:
        yield database


def rows(db: mmdb.Database) -> list[tuple[Any, ...]]:
    return [tuple(row.values()) for row in db.sql(ORIGINS)]


def write_safetensors(path: Path) -> Path:
    safetensors.torch.save_file(TENSORS, path)
    return path


def write_torch(path: Path) -> Path:
    torch.save(TENSORS, path)
    return path


def write_folder(path: Path) -> Path:
    path.mkdir()
    safetensors.torch.save_file(TENSORS, path / "model.safetensors", {"format": "pt"})
    (path / "config.json").write_text("{}")
    return path


FILES: dict[str, Callable[[Path], Path]] = {
    "safetensors": write_safetensors,
    "torch": write_torch,
    "huggingface": write_folder,
}


@pytest.mark.parametrize("format", FILES)
def test_an_import_leaves_one_origin(
    db: mmdb.Database, tmp_path: Path, format: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = FILES[format](tmp_path / "fíle 'a'")
    monkeypatch.chdir(tmp_path)
    db.import_model(source.name, "m")
    assert rows(db) == [("m", 1, "import", str(source), format)]
    digest = blake3.blake3(source.read_bytes()).digest() if source.is_file() else None
    assert db.sql("SELECT digest FROM mmdb.model_origin") == [{"digest": digest}]


def test_an_import_that_fails_leaves_none(db: mmdb.Database, tmp_path: Path) -> None:
    source = write_safetensors(tmp_path / "a.safetensors")
    with pytest.raises(errors.ModelNotFound):
        db.import_model(source, "m", parent="nobody", approach="update")
    assert rows(db) == []


def test_what_is_saved_here_has_no_origin(db: mmdb.Database) -> None:
    db.save("m", TENSORS)
    assert rows(db) == []


def test_a_zoo_leaves_one_origin_for_each_version(db: mmdb.Database, tmp_path: Path) -> None:
    db.save("a", TENSORS)
    db.save("a", {**TENSORS, "bias": torch.ones(2)})
    folder = tmp_path / "zoo"
    db.export_zoo(folder)
    with mmdb.connect("duckdb://") as other:
        for _ in range(2):  # a second import adds nothing
            other.import_zoo(folder)
            assert rows(other) == [("a", n, "import", str(folder), "zoo") for n in (1, 2)]


def test_copies_know_where_they_came_from(
    db: mmdb.Database, postgres_url: str, tmp_path: Path
) -> None:
    assert "postgres:" in postgres_url  # its password
    bare = f"postgresql://postgres@{postgres_url.partition('@')[2]}"
    db.save("a", TENSORS)
    db.push("a", to=postgres_url)
    own = f"duckdb:///{tmp_path / 'own.duckdb'}"
    with mmdb.connect(postgres_url) as middle, mmdb.connect("duckdb://") as last:
        assert rows(middle) == [("a", 1, "push", own, None)]
        last.pull("a", from_=postgres_url)
        last.pull("a", from_=postgres_url)  # it is there
        assert rows(last) == [("a", 1, "pull", bare, None)]
    assert rows(db) == []


@pytest.mark.parametrize(
    ("url", "source"),
    [
        ("postgresql://ann:s3cret@db/zoo", "postgresql://ann@db/zoo"),
        ("postgresql://ann:s3@cret@db/zoo", "postgresql://ann@db/zoo"),
        ("postgresql://ann:s3?cr#et@db/zoo?x=1", "postgresql://ann@db/zoo"),
        ("postgresql://:s3cret@db/zoo", "postgresql://db/zoo"),
        ("postgresql://db/zoo?user=ann&password=s3@cret", "postgresql://db/zoo"),
        ("postgres://db:5433/zoo?password=s3cret&x=1", "postgres://db:5433/zoo"),
        ("postgresql://a@h1:1,h2:2/zoo?sslpassword=s3cret", "postgresql://a@h1:1,h2:2/zoo"),
        ("postgresql:///zoo?host=/run&password=s3cret", "postgresql:///zoo"),
        ("duckdb:///:memory:", "duckdb:///:memory:"),
        ("duckdb:////data/zoo.duckdb", "duckdb:////data/zoo.duckdb"),
    ],
)
def test_a_database_is_named_without_secrets(url: str, source: str) -> None:
    assert of_database(url, "pull").source == source


def test_a_name_that_is_no_text_is_kept_as_one(tmp_path: Path) -> None:
    path = tmp_path / "caf\udce9"  # a byte that is not UTF-8
    path.mkdir()
    origin = of_file(path, "zoo")
    assert origin.source == f"{tmp_path}/caf\\udce9"
    assert origin.digest is None
