"""What an open database does with models."""

from __future__ import annotations

from mmdb.zoo.exchange import Exchange
from mmdb.zoo.lineage import Lineage
from mmdb.zoo.models import Models
from mmdb.zoo.parents import Parents
from mmdb.zoo.registry import Registry
from mmdb.zoo.sync import Sync
from mmdb.zoo.warm import WarmStarts


class Zoo(Models, Registry, Exchange, Sync, Parents, WarmStarts, Lineage):
    """The models of a database. `Database` is one."""
