"""Files and paths of ill will, given to imports and exports: refused, and nothing is stored."""

from __future__ import annotations

import json
import os
import pickle
import struct
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import mmdb
from mmdb import errors
from mmdb.api import Database

Make = Callable[[Path], Path]


class Evil:
    """Unpickled by a careless reader, it makes a folder."""

    def __init__(self, target: Path) -> None:
        self._target = target

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return os.mkdir, (str(self._target),)


@pytest.fixture(scope="module")
def db(tmp_path_factory: pytest.TempPathFactory, installed_file: Path) -> Iterator[Database]:
    """Yield a zoo with one model, whose name is a path."""
    file = tmp_path_factory.mktemp("files") / "zoo.duckdb"
    file.write_bytes(installed_file.read_bytes())
    with mmdb.connect(f"duckdb:///{file}") as opened:
        opened.save(ESCAPE, nn.Linear(2, 2))
        yield opened


ESCAPE = "../../../escape"


def contents(db: Database) -> list[int]:
    """Return the rows of every table of mmdb."""
    found = db.sql(
        "SELECT table_name AS name FROM information_schema.tables "
        "WHERE table_schema = 'mmdb' AND table_type = 'BASE TABLE' ORDER BY 1"
    )
    return [db.sql(f'SELECT count(*) AS n FROM mmdb."{row["name"]}"')[0]["n"] for row in found]


def safetensors_file(folder: Path, header: object, data: bytes = b"") -> Path:
    """Write a safetensors file with a header as it is given."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    path = folder / "bad.safetensors"
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)
    return path


def tensor(begin: int, end: int, shape: list[int]) -> dict[str, Any]:
    """Return a tensor's entry in a header."""
    return {"dtype": "F32", "shape": shape, "data_offsets": [begin, end]}


def _bomb(folder: Path) -> Path:
    path = folder / "bad.safetensors"
    path.write_bytes(struct.pack("<Q", 2**63 - 1) + b"{")
    return path


def _pickle(folder: Path) -> Path:
    path = folder / "bad.pt"
    torch.save({"w": torch.ones(2), "x": Evil(folder / "canary")}, path)
    return path


def _plain_pickle(folder: Path) -> Path:
    path = folder / "bad.bin"
    path.write_bytes(pickle.dumps(Evil(folder / "canary")))
    return path


def _pickle_by_another_name(folder: Path) -> Path:
    path = folder / "bad.safetensors"
    torch.save({"x": Evil(folder / "canary")}, path)
    return path


def _archive(folder: Path) -> Path:
    path = folder / "bad.pt"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("../../canary", b"x")
        archive.writestr("a/data.pkl", b"\0" * 10_000_000)
    return path


def _fifo(folder: Path) -> Path:
    os.mkfifo(folder / "bad.safetensors")
    return folder / "bad.safetensors"


def _link_to(target: str) -> Make:
    def make(folder: Path) -> Path:
        (folder / "bad.safetensors").symlink_to(target)
        return folder / "bad.safetensors"

    return make


def _loop(folder: Path) -> Path:
    (folder / "a.pt").symlink_to(folder / "b.pt")
    (folder / "b.pt").symlink_to(folder / "a.pt")
    return folder / "a.pt"


def _index(place: str) -> Make:
    """Return a folder of shards whose index leads out of it."""

    def make(folder: Path) -> Path:
        inside = folder / "hub"
        inside.mkdir()
        (inside / "config.json").write_text("{}")
        index = {"metadata": {}, "weight_map": {"w": place}}
        (inside / "model.safetensors.index.json").write_text(json.dumps(index))
        safetensors_file(folder, {"w": tensor(0, 4, [1])}, b"1234")
        return inside

    return make


def _zoo(folder: Path) -> Path:
    """Return a zoo's folder whose list of models is a pickle."""
    inside = folder / "zoo"
    inside.mkdir()
    (inside / "zoo.json").write_bytes(pickle.dumps({"models": []}))
    return inside


IMPORTS: dict[str, Make] = {
    "overlapping tensors": lambda f: safetensors_file(
        f, {"a": tensor(0, 8, [2]), "b": tensor(4, 12, [2])}, b"x" * 12
    ),
    "a tensor outside the file": lambda f: safetensors_file(f, {"a": tensor(0, 2**50, [2**48])}),
    "a negative shape": lambda f: safetensors_file(f, {"a": tensor(0, 4, [-1])}, b"x" * 4),
    "a shape that overflows": lambda f: safetensors_file(
        f, {"a": tensor(0, 4, [2**62, 2**62])}, b"x" * 4
    ),
    "a header without end": _bomb,
    "a header as deep as the stack": lambda f: safetensors_file(f, b'{"a":' + b"[" * 100_000),
    "a header that is a list": lambda f: safetensors_file(f, [1]),
    "a pickle in an archive": _pickle,
    "a plain pickle": _plain_pickle,
    "a pickle by another name": _pickle_by_another_name,
    "an archive that unpacks elsewhere": _archive,
    "a pipe that nobody writes": _fifo,
    "a link to a device without end": _link_to("/dev/zero"),
    "a link to a password file": _link_to("/etc/passwd"),
    "links in a circle": _loop,
    "a folder": lambda f: f,
    "a file that is not there": lambda f: f / "../../nowhere.pt",
    "a name with NUL": lambda f: Path(f"{f}/a\0b.safetensors"),
    "an index that leads upwards": _index("../bad.safetensors"),
    "an index that leads to a file of the system": _index("/etc/passwd"),
    "a zoo that is a pickle": _zoo,
}


@pytest.mark.timeout(30)
@pytest.mark.parametrize("make", IMPORTS.values(), ids=IMPORTS)
def test_a_file_of_ill_will_is_refused(db: Database, tmp_path: Path, make: Make) -> None:
    before, path = contents(db), make(tmp_path)
    with pytest.raises(errors.FileError) as raised:
        db.import_zoo(path) if path.name == "zoo" else db.import_model(path, "stolen")
    assert raised.value.message and raised.value.hint is not None
    assert not (tmp_path / "canary").exists()
    assert contents(db) == before


def _device(folder: Path) -> Path:
    return Path("/dev/null")


def _under_a_file(folder: Path) -> Path:
    (folder / "file").write_text("x")
    return folder / "file" / "model.safetensors"


def _link_elsewhere(folder: Path) -> Path:
    (folder / "precious").write_text("precious")
    (folder / "model.safetensors").symlink_to(folder / "precious")
    return folder / "model.safetensors"


EXPORTS: dict[str, Make] = {
    "onto a device": _device,
    "onto a pipe": _fifo,
    "below a file": _under_a_file,
    "through a link": _link_elsewhere,
    "into a folder that is not there": lambda f: f / "nowhere" / "model.safetensors",
    "onto a name with NUL": lambda f: Path(f"{f}/a\0b.safetensors"),
}


@pytest.mark.timeout(30)
@pytest.mark.parametrize("make", EXPORTS.values(), ids=EXPORTS)
def test_an_export_overwrites_nothing_that_it_should_not(
    db: Database, tmp_path: Path, make: Make
) -> None:
    target = make(tmp_path)
    with pytest.raises(errors.FileError):
        db.export_model(ESCAPE, target, format="safetensors")
    assert not (tmp_path / "precious").exists() or (tmp_path / "precious").read_text() == "precious"
    assert not list(tmp_path.glob(".mmdb-*"))


def test_a_model_named_like_a_path_stays_in_the_folder_of_its_zoo(
    db: Database, tmp_path: Path
) -> None:
    inside = tmp_path / "a" / "b" / "c" / "zoo"
    inside.parent.mkdir(parents=True)
    db.export_zoo(inside)
    db.model_card(ESCAPE, tmp_path / "a" / "b" / "c" / "card.md")
    db.export_parquet(tmp_path / "a" / "b" / "c" / "parquet")
    outside = [p for p in tmp_path.rglob("*") if p.is_file() and inside.parent not in p.parents]
    assert not outside and any("escape" in p.name for p in inside.rglob("*"))
