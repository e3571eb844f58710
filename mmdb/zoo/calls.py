"""What parts of an open database need of it: calls of mmdb's functions, wherever these run."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any


class Calls:
    """Base of the parts of `Database` that call functions."""

    @abstractmethod
    def _call(self, function: str, **arguments: Any) -> Any:
        """Call one of mmdb's functions: in the server, or here where the server has none."""
