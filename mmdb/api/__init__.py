"""`connect`, and what it returns: the same calls over either engine."""

from mmdb.api.database import Database, connect
from mmdb.api.run import Run

__all__ = ["Database", "Run", "connect"]
