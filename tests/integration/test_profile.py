"""What is measured through a database, and inside PostgreSQL's sessions; nothing of it stays."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from pathlib import Path

import psycopg
import pytest

import mmdb
from mmdb.api import Database
from mmdb.errors import Cancelled
from mmdb.plan.calibration import calibrate
from mmdb.plan.profile.measurers import LocalMeasurer, Order, perform, processes
from tests import points

#: In a session of the server: compute in a thread that a cancel reaches, the database in its own.
INSIDE = """
DO $$
from functools import partial
from mmdb.plan.profile.measurers import Order, perform
from mmdb.server.apart import interruptible
from mmdb.server.plpy_connection import PlpyConnection

def computed(what, budget_s):
    order = Order(what=what, budget_s=budget_s)
    return interruptible(plpy, lambda stopped: perform(order, None, stopped))

def read(what, **given):
    return perform(Order(what=what, budget_s=3.0, **given), PlpyConnection(plpy))

rows = %s
plpy.notice(",".join(sorted({row.kind for row in rows})))
$$ LANGUAGE plpython3u
"""


@pytest.fixture
def db(database_url: str) -> Iterator[Database]:
    """Return a database with a dataset of two partitions."""
    with mmdb.connect(database_url) as database:
        points.fill(database)
        yield database


def left(db: Database) -> int:
    """Return how many states are in the database."""
    tables = ["checkpoint", "checkpoint_chunk"]
    tables += ["state_chunk"] if db.connection.engine == "postgres" else []
    return sum(db.sql(f"SELECT count(*) AS n FROM mmdb.{table}")[0]["n"] for table in tables)


def test_states_and_blocks_are_measured_through_a_connection(db: Database) -> None:
    part_id = db.sql("SELECT min(part_id) AS part_id FROM mmdb.partition")[0]["part_id"]
    hops = perform(Order(what="hops", budget_s=2.0), db.connection)
    assert {row.kind for row in hops} == {"publish", "load", "checkpoint"}
    for given in (part_id, None):
        reading = perform(Order(what="reading", budget_s=1.0, part_id=given), db.connection)
        assert {row.kind for row in reading} == {"read"}
    assert left(db) == 0
    assert perform(Order(what="reading", budget_s=0.5, part_id=-7), db.connection) == []


def test_a_cancel_leaves_no_state_behind(db: Database, cache_folder: Path) -> None:
    looks = count()
    with pytest.raises(Cancelled):
        perform(Order(what="hops", budget_s=60.0), db.connection, lambda: next(looks) > 60)
    assert left(db) == 0
    assert not [path for path in cache_folder.rglob("*") if path.is_file()]


def test_a_calibration_with_a_database(db: Database) -> None:
    with processes(1) as places:
        rows = list(calibrate(places, 4.0, database=LocalMeasurer(db.connection)))
    kinds = {row.kind for row in rows}
    assert {"product", "decode", "query", "read", "checkpoint", "publish"} <= kinds
    assert left(db) == 0


def test_a_session_of_postgresql_measures_itself(postgres_url: str) -> None:
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        said: list[str] = []
        connection.add_notice_handler(lambda notice: said.append(notice.message_primary or ""))
        connection.execute(INSIDE % "computed('products', 0.5) + computed('states', 0.5)")
        connection.execute(INSIDE % "read('queries') + read('reading') + read('hops')")
        connection.execute("SET statement_timeout = '50ms'")
        with pytest.raises(psycopg.errors.QueryCanceled):
            connection.execute(INSIDE % "computed('memory', 60.0)")
        with pytest.raises(psycopg.errors.QueryCanceled):
            connection.execute(INSIDE % "read('hops')")
        connection.execute("SET statement_timeout = 0")
        connection.execute(INSIDE % "computed('dispatch', 0.5)")
    assert said[0].startswith("merge,product,product_backward,state_decode")
    assert said[1] == "checkpoint,load,publish,query,read"
    assert said[2] == "dispatch,dispatch_backward"
