"""Imports by SQL that would read what is not in the folder that the owner has named."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from mmdb.db.postgres import translate_error
from tests.attacks.scene import Scene, refused

CALL = "SELECT * FROM mmdb.import_model(%s, 'new')"
#: What an error names of a path out of the folder: the path, and not whether there is such a file.
OUTSIDE = "is not in the folder that the owner has named"


@pytest.fixture
def box(scene: Scene) -> Iterator[Path]:
    """Yield the folder of imports, emptied of what a test has put there."""
    before = set(os.listdir(scene.imports))
    yield scene.imports
    for name in set(os.listdir(scene.imports)) - before:
        path = scene.imports / name
        shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()


@pytest.mark.parametrize(
    "path",
    [
        "../private/net.pt",
        "../private/no-such-file",
        "../../../../../../etc/passwd",
        "/etc/passwd",
        "/etc/no-such-file",
        "/proc/self/environ",
        "{data}/PG_VERSION",
        "{data}/global/pg_control",
        "{data}",
        "{imports}/../private/net.pt",
        "{imports}2",
        "./x/../../private/net.safetensors",
    ],
)
def test_a_path_out_of_the_folder_is_refused_alike(scene: Scene, path: str) -> None:
    given = path.format(data=scene.cluster.data, imports=scene.imports)
    with scene.watched():
        error = refused(scene.session("trainer"), CALL, [given])
    assert (error.sqlstate, OUTSIDE in error.message) == ("MM183", True), error


def _link(target: str) -> Callable[[Scene, Path], str]:
    def make(scene: Scene, box: Path) -> str:
        (box / "linked").symlink_to(target.format(data=scene.cluster.data, box=box))
        return "linked"

    return make


def _link_in_folder(name: str, target: str) -> Callable[[Scene, Path], str]:
    """Return what makes a folder that holds a model and a link."""

    def make(scene: Scene, box: Path) -> str:
        (box / "folder").mkdir()
        shutil.copy(box / "net.safetensors", box / "folder" / "model.safetensors")
        (box / "folder" / name).unlink(missing_ok=True)
        (box / "folder" / name).symlink_to(target.format(data=scene.cluster.data, box=box))
        return "folder"

    return make


def _index(scene: Scene, box: Path) -> str:
    """Return an index at the top of the folder, beside a config.json that leads out."""
    places = {"weight_map": {"head.weight": "net.safetensors", "head.bias": "net.safetensors"}}
    (box / "x.safetensors.index.json").write_text(json.dumps(places))
    (box / "config.json").symlink_to("/etc/hostname")
    return "x.safetensors.index.json"


LINKS: dict[str, Callable[[Scene, Path], str]] = {
    "a file": _link("{box}/../private/net.pt"),
    "a folder": _link("{box}/../private"),
    "the root": _link("/"),
    "the data directory": _link("{data}"),
    "a file that is missing": _link("/no/such/file"),
    "weights": _link_in_folder("model.safetensors", "{box}/../private/net.safetensors"),
    "a config": _link_in_folder("config.json", "{data}/postmaster.opts"),
    "a preprocessor": _link_in_folder("preprocessor_config.json", "/etc/hostname"),
    "what mmdb wrote": _link_in_folder("mmdb.json", "/etc/hostname"),
    "an adapter": _link_in_folder("adapter_config.json", "/etc/hostname"),
    "a config beside an index": _index,
}


@pytest.mark.parametrize("what", LINKS)
def test_a_link_out_of_the_folder_is_refused(scene: Scene, box: Path, what: str) -> None:
    path = LINKS[what](scene, box)
    with scene.watched():
        error = refused(scene.session("trainer"), CALL, [path])
    assert error.sqlstate == "MM183", error


def test_a_link_within_the_folder_is_followed(scene: Scene, box: Path) -> None:
    (box / "linked.pt").symlink_to(box / "net.pt")
    session = scene.session("trainer")
    with session.transaction(force_rollback=True):
        assert session.execute(CALL, ["linked.pt"]).fetchone()[:2] == ("new", 1)
        assert session.execute(CALL, [str(box / "net.safetensors")]).fetchone()[:2] == ("new", 2)


@pytest.mark.parametrize("path", ["", "x\ny", "n" * 300, "n/" * 3000, "missing", "net.pt/x"])
def test_a_path_of_no_file_is_an_error_of_mmdb(scene: Scene, path: str) -> None:
    with scene.watched():
        error = refused(scene.session("trainer"), CALL, [path])
    assert error.sqlstate in ("MM181", "MM183"), error


def test_a_folder_that_the_server_may_not_read_says_so(scene: Scene, box: Path) -> None:
    (box / "shut").mkdir(mode=0o700)
    (box / "shut.pt").write_bytes(b"x")
    (box / "shut.pt").chmod(0o600)
    for path in ("shut", "shut.pt"):
        with scene.watched():
            assert refused(scene.session("trainer"), CALL, [path]).sqlstate == "MM181"


@pytest.mark.parametrize("who", ["outsider", "reader"])
@pytest.mark.parametrize(
    "call", ["mmdb.import_model('net.pt', 'new')", "mmdb.attach('bare', 'linear', 'd')"]
)
def test_who_does_not_train_does_not_import(scene: Scene, who: str, call: str) -> None:
    with scene.watched(), pytest.raises(psycopg.Error) as raised:
        scene.session(who).execute(f"SELECT * FROM {call}")
    assert raised.value.sqlstate == "42501"


@pytest.mark.parametrize("who", ["trainer", "admin"])
def test_nobody_but_the_owner_names_the_folder(scene: Scene, who: str) -> None:
    for statement in (
        "UPDATE mmdb.setting SET value = '/' WHERE name = 'import_directory'",
        "INSERT INTO mmdb.setting VALUES ('import_directory', '/')",
    ):
        with scene.watched():
            assert refused(scene.session(who), statement).sqlstate == "MM407"
    for setting in ("import_directory", "mmdb.import_directory"):
        with pytest.raises(psycopg.Error) if "." not in setting else scene.watched():
            scene.session(who).execute(f"SET {setting} = '/'")
    with scene.watched():
        assert refused(scene.session(who), CALL, ["/etc/passwd"]).sqlstate == "MM183"


@pytest.mark.parametrize(
    ("folder", "sqlstate"),
    [
        ("/", "MM183"),
        ("{data}", "MM183"),
        ("{data}/base", "MM183"),
        ("{data}/..", "MM183"),
        ("{imports}/missing", "MM181"),
        ("{imports}/net.pt", "MM181"),
        ("relative", "MM181"),
        ("", "MM181"),
        (None, "MM181"),
    ],
)
def test_a_folder_that_cannot_be_meant_is_refused(
    scene: Scene, folder: str | None, sqlstate: str
) -> None:
    session: Any = scene.owner
    with session.transaction(force_rollback=True):
        session.execute("DELETE FROM mmdb.setting WHERE name = 'import_directory'")
        if folder is not None:
            given = folder.format(data=scene.cluster.data, imports=scene.imports)
            session.execute("INSERT INTO mmdb.setting VALUES ('import_directory', %s)", [given])
        with pytest.raises(psycopg.Error) as raised:
            session.execute(CALL, ["net.pt"])
    error = translate_error(raised.value)
    assert (error.sqlstate, "import_directory" in str(error)) == (sqlstate, True), error
