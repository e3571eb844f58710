"""What the parts of `Database` have in common."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

from mmdb.db.url import AnyConnection


class Calls:
    """Calls of an open database: a part of `Database`."""

    connection: AnyConnection

    @abstractmethod
    def _call(self, function: str, **arguments: Any) -> Any:
        """Call one of mmdb's functions: in the server, or here where the server has none."""
