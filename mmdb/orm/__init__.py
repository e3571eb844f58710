"""The tables and views as SQLAlchemy classes with relationships: to read; calls write.

    with orm.session("duckdb:///zoo.duckdb") as session:
        run = session.scalars(select(orm.Run).where(orm.Run.name == "search")).one()
        run.candidates[0].hops

A class for each table and view of the schema, named after it; docs/orm.md.
"""

from __future__ import annotations

from mmdb.errors import EngineError

try:
    import sqlalchemy as _sqlalchemy  # noqa: F401
except ModuleNotFoundError as error:
    raise EngineError("mmdb.orm needs SQLAlchemy.", hint="pip install 'mmdb-learn[orm]'") from error

from mmdb.orm.base import Base as Base
from mmdb.orm.base import View as View
from mmdb.orm.data_tables import *  # noqa: F403
from mmdb.orm.lineage_views import *  # noqa: F403
from mmdb.orm.model_tables import *  # noqa: F403
from mmdb.orm.model_views import *  # noqa: F403
from mmdb.orm.monitoring_views import *  # noqa: F403
from mmdb.orm.read_session import ReadSession as ReadSession
from mmdb.orm.read_session import engine as engine
from mmdb.orm.read_session import session as session
from mmdb.orm.run_tables import *  # noqa: F403
from mmdb.orm.run_views import *  # noqa: F403
from mmdb.orm.service_tables import *  # noqa: F403
from mmdb.orm.tensor_tables import *  # noqa: F403

__all__ = sorted(
    [m.class_.__name__ for m in Base.registry.mappers]
    + ["Base", "ReadSession", "View", "engine", "session"]
)


def __dir__() -> list[str]:
    return __all__
