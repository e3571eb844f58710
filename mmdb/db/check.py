"""One finding of the doctor, and URLs as it shows them."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from shlex import quote
from urllib.parse import urlsplit

#: After the name: up to the @ before the path, in which libpq takes a ? or # for a letter.
_PASSWORD = re.compile(r"(://[^:/@]*):(?:[^/]*|[^?]*)@")
#: Things that are wrong which one check names.
SHOWN = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One thing that was looked at."""

    name: str
    ok: bool
    detail: str
    mend: str = ""  # one or two sentences with a command; empty where nothing is wrong


@dataclass(slots=True)
class Verified:
    """How many stored bytes of one kind were verified, and which of them are damaged."""

    what: str  # "blocks", "tensors" ...
    items: int = 0
    bytes: int = 0
    wrong: list[str] = field(default_factory=list)  # one text each
    note: str = ""
    mend: str = (
        "Bytes in the database changed, or are gone: look at its disk and its memory, and "
        "restore what is named from a backup; docs/runbook/damaged-bytes.md."
    )

    def add(self, size: int) -> None:
        """Count one more, of `size` bytes."""
        self.items += 1
        self.bytes += size

    def check(self) -> Check:
        """Return what the doctor says of it."""
        detail = f"{self.items:,} compared with their hashes, {self.bytes:,} bytes{self.note}"
        if not self.wrong:
            return Check(name=self.what, ok=True, detail=detail)
        others = f"; and {len(self.wrong) - SHOWN} more" if len(self.wrong) > SHOWN else ""
        return Check(
            name=self.what,
            ok=False,
            detail=f"{'; '.join(self.wrong[:SHOWN])}{others}",
            mend=self.mend,
        )


def shown(url: str) -> str:
    """Return a URL without its passwords; what may be one is left out of a URL that is wrong, too.

    >>> shown("postgresql://ann:secret@db.example/zoo"), shown("duckdb:///zoo.duckdb")
    ('postgresql://ann@db.example/zoo', 'duckdb:///zoo.duckdb')
    >>> shown("postgresql://a:1,b:2/zoo?password=secret&user=ann&sslpassword=secret")
    'postgresql://a:1,b:2/zoo?user=ann'
    """
    bare = _PASSWORD.sub(r"\1@", url)
    return re.sub(r"([?&])(?:(?:ssl)?password=[^&]*(?:&|$))+", r"\1", bare).rstrip("?&")


def as_postgres(url: str) -> str:
    """Return the URL by which a superuser reaches the same database, for a command of the shell.

    >>> as_postgres("postgresql://ann:secret@db.example:5433/zoo")
    'postgresql://postgres@db.example:5433/zoo'
    >>> as_postgres("postgresql:///zoo?host=/home/ann/zoo&user=ann")
    "'postgresql://postgres@/zoo?host=/home/ann/zoo'"
    """
    parts = urlsplit(shown(url))
    host = parts.netloc.rpartition("@")[2]
    options = "&".join(one for one in parts.query.split("&") if not one.startswith("user="))
    postgres = f"{parts.scheme}://postgres@{host}{parts.path}{'?' if options else ''}{options}"
    return quote(postgres)
