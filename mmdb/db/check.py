"""What the doctor says about one thing that it looked at."""

from __future__ import annotations

import re
from dataclasses import dataclass
from urllib.parse import urlsplit


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One thing that was looked at."""

    name: str
    ok: bool
    detail: str
    mend: str = ""  # one or two sentences with a command; empty where nothing is wrong


def shown(url: str) -> str:
    """Return a URL without its password.

    >>> shown("postgresql://ann:secret@db.example/zoo"), shown("duckdb:///zoo.duckdb")
    ('postgresql://ann@db.example/zoo', 'duckdb:///zoo.duckdb')
    >>> shown("postgresql://db.example/zoo?user=ann&password=secret")
    'postgresql://db.example/zoo?user=ann'
    """
    try:
        password = urlsplit(url).password
    except ValueError:  # as it stands it is no URL
        password = None
    bare = url.replace(f":{password}@", "@", 1) if password else url
    return re.sub(r"[?&]password=[^&]*", "", bare)


def as_postgres(url: str) -> str:
    """Return the URL by which a superuser reaches the same database.

    >>> as_postgres("postgresql://ann:secret@db.example:5433/zoo")
    'postgresql://postgres@db.example:5433/zoo'
    """
    parts = urlsplit(shown(url))
    host = parts.netloc.rpartition("@")[2]
    return f"{parts.scheme}://postgres@{host}{parts.path}"
