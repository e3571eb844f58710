"""What an open database writes for other tools."""

from __future__ import annotations

from mmdb.db.url import AnyConnection


class Exports:
    """Part of `Database`."""

    connection: AnyConnection
