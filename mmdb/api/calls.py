"""The base class of the parts of `Database`: its session, and the way to mmdb's functions."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

from mmdb.db.url import AnyConnection


class Calls:
    """A part of `Database`: methods of one subject, over its session."""

    connection: AnyConnection

    @abstractmethod
    def _call(self, function: str, **arguments: Any) -> Any:
        """Call one of mmdb's functions: in the server, or here where the server has none."""
