"""Rows written with ill will: refused by name, or nobody else is stopped by them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from psycopg import sql

from mmdb import errors
from mmdb.db.doctor import examine
from mmdb.db.install import install
from mmdb.db.postgres import translate_error
from tests.bench.attack.forged import (
    TRAINER,
    Found,
    Place,
    attack,
    call_all,
    names_of,
    place,
    read_all,
    sound,
    writers,
)
from tests.cluster import Cluster

#: Functions whose rows others add up, plot, plan with or show.
CHOSEN = (
    "hops_add_hop",
    "hops_add_merge",
    "explain_add_plan",
    "explain_add_estimate",
    "runs_add_run",
    "runs_add_candidate",
    "runs_add_decision",
    "datasets_add_dataset",
    "models_add_model",
    "plan_add_row",
)
#: What a hop holds never: column, value.
NO_HOP: tuple[tuple[str, Any], ...] = (
    *((name, value) for name in ("total_s", "read_s") for value in (1.7e308, "NaN", "Infinity")),
    *(("loss", value) for value in (1.7e308, -1e101)),
    *(("row_count", value) for value in (-1, 2**63 - 1)),
    *(("epoch", value) for value in (-2, 2**31 - 1)),
    *(("metrics", value) for value in ("[1]", '"x"', '{"accuracy": "x"}', '{"accuracy": 1e400}')),
    *(("metrics", value) for value in ('{"a": ' * 300 + "1" + "}" * 300, '{"a": [1]}', "null")),
    *(("started_at", value) for value in ("infinity", "-infinity", "4713-01-01 BC")),
    *(("worker", value) for value in ("x" * 2**20,)),
    *(("state_out", value) for value in (b"x" * 65,)),
)


@pytest.fixture(scope="module", params=[False, True], ids=["alone", "teams"])
def forged(request: pytest.FixtureRequest, cluster: Cluster, template: str) -> Iterator[Place]:
    """Yield a database without and with teams, and who forges rows in it."""
    with place(cluster, template, teams=request.param) as subject:
        yield subject


def test_no_forged_value_stops_anybody_else(forged: Place) -> None:
    assert read_all(forged) == []
    assert set(CHOSEN) <= set(names_of(forged))
    found = Found()
    attack(forged, list(CHOSEN), found)
    call_all(forged, found)
    assert found.broken == [] and found.raw == []
    assert found.tried > 400 and found.kept > 40


@pytest.mark.parametrize(("column", "value"), NO_HOP, ids=lambda value: str(value)[:20])
def test_a_hop_beyond_a_range_is_refused_by_name(forged: Place, column: str, value: Any) -> None:
    update = sql.SQL("UPDATE mmdb.hop SET {} = {}").format(
        sql.Identifier(column), sql.Literal(value if isinstance(value, bytes) else str(value))
    )
    with (
        psycopg.connect(forged.url) as session,
        pytest.raises(psycopg.Error) as raised,
    ):
        session.execute(update)
    error = translate_error(raised.value)
    assert isinstance(error, errors.InvalidOption) and column in error.message


@pytest.mark.parametrize("what", ["hops_add_hop", "hops_add_merge", "states_add_checkpoint"])
def test_a_candidate_has_rows_on_partitions_of_its_own_dataset_alone(
    forged: Place, what: str
) -> None:
    with (
        psycopg.connect(forged.url, autocommit=True) as owner,
        psycopg.connect(forged.url_of(TRAINER), autocommit=True) as session,
    ):
        (query,) = [query for query in writers(session) if query.definer == what]
        foreign = owner.execute(
            "SELECT min(part_id) FROM mmdb.partition JOIN mmdb.dataset AS d USING (dataset_id)"
            " WHERE d.name = 'other'"
        ).fetchone()
        assert foreign
        given = sound(owner, query) | {"part_id": foreign[0]}
        with pytest.raises(psycopg.Error) as raised:
            session.execute(query.call.encode(), given)
    assert isinstance(translate_error(raised.value), errors.PartitionNotFound)


def test_every_column_that_views_add_up_or_show_has_its_range(postgres_url: str) -> None:
    with psycopg.connect(postgres_url) as session:
        free = session.execute(
            "SELECT c.relname || '.' || a.attname FROM pg_class AS c"
            " JOIN pg_attribute AS a ON c.oid = a.attrelid AND a.attnum > 0 AND NOT attisdropped"
            " WHERE c.relnamespace = 'mmdb'::regnamespace AND c.relkind IN ('r', 'p')"
            " AND NOT c.relispartition AND c.relname !~ '_total$' AND a.attname !~ '_id$|^seed$'"
            " AND NOT EXISTS (SELECT 1 FROM pg_constraint AS o WHERE o.conrelid = c.oid"
            " AND o.conname = c.relname || '_' || a.attname || '_range') ORDER BY 1"
        ).fetchall()
    boolean = "is_traced chosen feasible executed trainable simulated assumed maximize by_rule"
    boolean += " is_outside drifted passed"
    of_bytes = "data packed tensor_hashes row_hashes"
    left = {name for (name,) in free if name.split(".")[1] not in f"{boolean} {of_bytes}".split()}
    known = {f"tensor.{name}" for name in ("minimum", "maximum", "mean", "deviation")}
    assert left == known | {"migration.number"}


def test_rows_of_an_older_version_stay_and_the_doctor_names_their_constraint(
    postgres_url: str,
) -> None:
    with psycopg.connect(postgres_url, autocommit=True) as owner:
        owner.execute("ALTER TABLE mmdb.setting DROP CONSTRAINT setting_name_range")
        owner.execute("INSERT INTO mmdb.setting VALUES (repeat('x', 20000), 'y')")
        install(postgres_url)
        broken = [one for one in examine(postgres_url) if one.name == "constraints"]
        assert "setting_name_range" in broken[0].detail
        with pytest.raises(psycopg.errors.CheckViolation):
            owner.execute("INSERT INTO mmdb.setting VALUES (repeat('z', 20000), 'y')")
        assert owner.execute("SELECT count(*) FROM mmdb.setting").fetchone() == (1,)
