"""`register_function`."""

from __future__ import annotations

from mmdb.data import functions
from mmdb.server.backend import Backend, exposed


@exposed
def register_function(backend: Backend, name: str, target: str, kind: str) -> str:
    """Put a function on the allow-list; see `mmdb.data.functions.register_function`."""
    functions.register_function(backend.connection, name, target, kind)
    return name
