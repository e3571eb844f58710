"""A database with teams in which one team hides something of everything from the others.

ann of team a made a dataset, a run, models and what hangs on them; every table has a row besides
that is nobody's here. bob, who trains, made the like for himself; rob only reads. What they may
know is what bob made.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import psycopg
from psycopg.rows import dict_row

from mmdb.db.install import install
from tests.cluster import Cluster
from tests.filled import fill
from tests.teams import COMMON, Teams, make, teams_in

#: Stands in every text that is hidden.
CANARY = "canary"
#: In the setting of the workers' login.
SECRET = f"host=127.0.0.1 user=serf dbname={CANARY}"
#: Who looks for what is hidden.
ATTACKERS = ("rob", "bob")
OTHER_ROWS = "SELECT x + 7 AS x, y FROM public.points"

#: Values of columns, by the column's name.
Values = dict[str, list[Any]]


@dataclass(slots=True)
class Hidden:
    """The database, with the values of its tables by their columns' names.

    Attributes:
        values: of rows that are hidden from the attackers, and of no other row.
        own: of rows that bob made.
    """

    teams: Teams
    values: Values = field(default_factory=dict)
    own: Values = field(default_factory=dict)

    def session(self, role: str) -> psycopg.Connection[Any]:
        """Open a session of an attacker, in autocommit mode."""
        return psycopg.connect(self.teams.url_of(role), autocommit=True)


@contextmanager
def hidden_in(cluster: Cluster, name: str, template: str) -> Iterator[Hidden]:
    """Yield the database, which is gone afterwards."""
    with teams_in(cluster, name, template) as teams:
        with teams.connect() as db:
            fill(db, f"{CANARY}_filled")
        install(teams.url)  # the ranges of columns, which these rows do not keep
        make(teams, "ann", CANARY, query=OTHER_ROWS, seed=9)
        teams.run(
            f"INSERT INTO mmdb.setting (name, value) VALUES ('worker_dsn', '{SECRET}')"
            " ON CONFLICT (name) DO UPDATE SET value = excluded.value"
        )
        before = _values(teams)
        make(teams, "bob", "own")
        after = _values(teams)
        teams.run("ANALYZE")  # so that plans know what there is
        hidden = Hidden(teams)
        for column, values in after.items():
            old = before.get(column, {})
            new = {key: value for key, (value, n) in values.items() if n > old.get(key, (0, 0))[1]}
            hidden.own[column] = list(new.values())
            hidden.values[column] = [value for key, (value, _) in old.items() if key not in new]
        yield hidden


def _values(teams: Teams) -> dict[str, dict[str, tuple[Any, int]]]:
    """Return each column's values by their texts, with how many rows have them."""
    found: dict[str, dict[str, tuple[Any, int]]] = {}
    with psycopg.connect(teams.url, autocommit=True, row_factory=dict_row) as session:
        tables = session.execute(
            "SELECT relname FROM pg_class WHERE relnamespace = 'mmdb'::regnamespace"
            " AND relkind = 'r' AND NOT relname = ANY (%s)",
            (["migration", *COMMON - {"role_limit", "setting"}],),
        ).fetchall()
        for table in (row["relname"] for row in tables):
            for row in session.execute(f"SELECT * FROM mmdb.{table}".encode()):
                for column, value in row.items():
                    if value is None or isinstance(value, dict):
                        continue
                    known = found.setdefault(column, {})
                    key = repr(value)
                    known[key] = (value, known.get(key, (value, 0))[1] + 1)
    return found
