"""Where models came from that were not made in this database."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import blake3

from mmdb.db.connection import Connection
from mmdb.db.queries import load

_Q = load("predictions")
_DUCKDB = "duckdb:///"
#: As libpq takes a URL apart: a password may hold any sign but a slash, also ? and #.
_URL = re.compile(r"(?P<scheme>[^:]*)://(?:(?P<name>[^:/?#]*)[^/]*@)?(?P<place>[^?]*)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """A file or a database that models came from."""

    kind: Literal["import", "pull", "push"]
    source: str  # absolute path, or URL without password and options
    format: str | None = None
    digest: bytes | None = None  # of a file


def of_file(source: str | os.PathLike[str], format: str) -> Origin:
    """Return a file or folder as an origin; one file is known by its content, too."""
    path = Path(source).absolute()
    digest = blake3.blake3().update_mmap(path).digest() if path.is_file() else None
    return Origin(kind="import", source=_text(str(path)), format=format, digest=digest)


def of_database(url: str, kind: Literal["pull", "push"]) -> Origin:
    """Return a database as an origin.

    >>> of_database("postgresql://ann:secret@db.example/zoo?sslpassword=secret", "pull").source
    'postgresql://ann@db.example/zoo'
    """
    return Origin(kind=kind, source=_text(_bare(url)))


def add_origin(connection: Connection, model_id: int, origin: Origin) -> None:
    """Record where a model came from."""
    connection.run(
        _Q.add_origin,
        model_id=model_id,
        kind=origin.kind,
        source=origin.source,
        format=origin.format,
        digest=origin.digest,
    )


def _bare(url: str) -> str:
    """Return a URL without what may be secret: readers of the views see it."""
    if url.startswith(_DUCKDB):
        path = url.removeprefix(_DUCKDB)
        return url if path in ("", ":memory:") else _DUCKDB + str(Path(path).absolute())
    found = _URL.match(url)
    assert found is not None  # it has been connected to
    name = f"{found['name']}@" if found["name"] else ""
    return f"{found['scheme']}://{name}{found['place']}"


def _text(path: str) -> str:
    """Return a path as text that every database keeps: names of files may be any bytes."""
    return path.encode(errors="backslashreplace").decode()
