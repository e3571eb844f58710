"""SQL's functions of imports: a file or folder of the server, from where the owner allows it."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from mmdb.db.connection import Connection
from mmdb.db.queries import load
from mmdb.errors import FileNotRead, UnsafeFile
from mmdb.messages import show
from mmdb.server.backend import Backend
from mmdb.server.plpy_connection import PlpyConnection
from mmdb.store.files.huggingface_format import INDEX
from mmdb.train.replay import imported
from mmdb.train.replay.imported import ImportRequest

#: The owner's setting: the folder of the server below which models may be imported.
SETTING = "import_directory"
_HINT = (
    f"The owner of schema mmdb names a folder of the server: INSERT INTO mmdb.setting VALUES "
    f"('{SETTING}', '/srv/models')."
)


def import_model(
    backend: Backend,
    path: str,
    name: str,
    dataset: str | None,
    architecture: str | None,
    input_shape: Sequence[int] | None,
    outputs: int | None,
    parent: str | None,
    format: str,
    key: str | None,
    skip: bool,
) -> list[dict[str, Any]]:
    """Save a file or folder as a model; see `Database.import_model`.

    Raises:
        FileNotRead, UnsafeFile: the owner has named no folder, or the source is not in it.
        and what `Database.import_model` raises
    """
    connection = backend.connection
    found = imported.import_source(
        connection,
        source_of(connection, path, is_folder=format == "huggingface"),
        name,
        ImportRequest(
            architecture=architecture, input_shape=input_shape, outputs=outputs, dataset=dataset
        ),
        parent=parent,
        format=format,
        key=key,
        skip=skip,
    )
    return [
        _named(found.model, found.notes)
        | {"tensors": found.tensors, "stored_bytes": found.stored_bytes}
    ]


def attach(
    backend: Backend,
    model: str,
    architecture: str | None,
    dataset: str | None,
    input_shape: Sequence[int] | None,
    outputs: int | None,
) -> list[dict[str, Any]]:
    """Give a model its architecture or dataset; see `mmdb.train.replay.imported.attach`."""
    wanted = ImportRequest(
        architecture=architecture, input_shape=input_shape, outputs=outputs, dataset=dataset
    )
    found = imported.attach(backend.connection, model, wanted)
    return [_named(found.model, found.notes)]


def _named(reference: str, notes: Sequence[str]) -> dict[str, Any]:
    name, _, version = reference.rpartition("@")
    return {"name": name, "version": int(version), "notes": list(notes)}


def source_of(connection: Connection, path: str, *, is_folder: bool = False) -> Path:
    """Return the source that a path names: in the server, of the owner's folder alone.

    A process of the user's own (DuckDB, a server without Python) reads what that user may read.

    Args:
        is_folder: of a file, its whole folder is read.
    Raises:
        FileNotRead: the owner has named no folder, or none that may be read from.
        UnsafeFile: the path, or a file of the folder that it names, leads out of it.
    """
    if not isinstance(path, str) or not path or "\0" in path:
        raise FileNotRead(f"{show(path)} names no file.")
    if not isinstance(connection, PlpyConnection):
        return Path(path)
    root = _root(connection)
    source = _resolved(root / path)
    if not source.is_relative_to(root):
        raise UnsafeFile(f"{show(path)} is not in the folder that the owner has named.", hint=_HINT)
    is_directory = os.path.isdir(source)
    if not os.access(source, os.R_OK | os.X_OK if is_directory else os.R_OK):
        raise FileNotRead(f"The server reads no {show(path)}.", hint="It is missing, or not its.")
    folder = source if is_directory else source.parent
    is_folder = is_folder or is_directory or source.name.endswith(INDEX)
    for entry in _entries(folder) if is_folder else ():
        if not _resolved(entry).is_relative_to(root):
            raise UnsafeFile(
                f"{show(entry.name)} is a link out of the folder that the owner has named.",
                hint="Put the file itself there.",
            )
    return source


def _root(connection: Connection) -> Path:
    rows = connection.rows(load("catalog").find_setting, name=SETTING)
    if not rows:
        raise FileNotRead("No folder is named from which models may be imported.", hint=_HINT)
    root = Path(rows[0]["value"])
    if not root.is_absolute() or not os.path.isdir(root):
        raise FileNotRead(f"Setting {SETTING} names no folder of the server.", hint=_HINT)
    root = _resolved(root)
    for own in _own_folders():
        if root.is_relative_to(own) or own.is_relative_to(root):
            raise UnsafeFile(
                f"Setting {SETTING} names a folder in which PostgreSQL has its own files.",
                hint="Name one that holds models alone.",
            )
    return root


def _own_folders() -> Iterator[Path]:
    """Yield where the server has its files: a session's process stands in its data directory."""
    data = Path.cwd().resolve()
    yield data
    for link in (data / "pg_wal", *_entries(data / "pg_tblspc")):
        yield _resolved(link)


def _entries(folder: Path) -> list[Path]:
    with suppress(OSError):
        return sorted(folder.iterdir())
    return []


def _resolved(path: Path) -> Path:
    try:
        return Path(os.path.realpath(path))
    except (OSError, ValueError) as error:
        raise FileNotRead(f"{show(str(path))} cannot be read.") from error
