"""Databases that get teams and lose them, by who may."""

from __future__ import annotations

from contextlib import closing

import psycopg
import pytest

import mmdb
from mmdb import errors
from mmdb.db.doctor_schema import roles
from mmdb.db.install import install, is_up_to_date
from mmdb.db.postgres import PostgresConnection
from mmdb.db.url import connect as open_connection
from tests.cluster import Cluster
from tests.integration.test_privileges import listing
from tests.teams import module


def test_teams_come_and_go(postgres_url: str) -> None:
    before = listing(postgres_url)
    install(postgres_url, teams=True)
    install(postgres_url)  # as the database has it
    connection = open_connection(postgres_url)
    assert is_up_to_date(connection)
    assert isinstance(connection, PostgresConnection)
    (check,) = roles(connection)
    assert check.ok, check.detail
    install(postgres_url, teams=False)
    assert is_up_to_date(connection) and listing(postgres_url) == before
    connection.close()


def test_what_was_nobodys_stays_everybodys(postgres_url: str, cluster: Cluster) -> None:
    with psycopg.connect(postgres_url, autocommit=True) as session:
        session.execute(f"CREATE ROLE eva LOGIN PASSWORD '{cluster.password}' IN ROLE mmdb_trainer")
        session.execute("CREATE TABLE public.points AS SELECT 1 AS id, 1.0 AS x, 1 AS y")
    try:
        with mmdb.connect(postgres_url) as owner:
            owner.save("old", module())
            owner.save("new", module(1))
            owner.sql("UPDATE mmdb.model SET owner = NULL WHERE name = 'old'")
            owner.sql("UPDATE mmdb.manifest SET owner = NULL WHERE manifest_id = 1")
        install(postgres_url, teams=True)
        with mmdb.connect(postgres_url.replace("postgres:", "eva:", 1)) as db:
            db.recover("old", into=module(7))
            with pytest.raises(errors.ModelNotFound):
                db.recover("new", into=module(7))
            db.save("own", module(), parent="old")
            db.drop_model("old@1")
            seen = db.sql("SELECT DISTINCT model FROM mmdb.model_overview ORDER BY 1")
            assert [row["model"] for row in seen] == ["old", "own"]
    finally:
        with psycopg.connect(postgres_url, autocommit=True) as session:
            session.execute("DROP OWNED BY eva")
            session.execute("DROP ROLE eva")


def test_the_doctor_looks_at_teams(postgres_url: str) -> None:
    install(postgres_url, teams=True)
    with closing(PostgresConnection(postgres_url)) as connection:
        execute = connection.raw.execute
        assert [check.ok for check in roles(connection)] == [True]
        execute(b"ALTER VIEW mmdb_view.leaderboard OWNER TO postgres")
        execute(
            b"CREATE OR REPLACE VIEW mmdb.alias_history AS SELECT * FROM mmdb_view.alias_history"
        )
        execute(b"GRANT SELECT ON mmdb.block TO mmdb_reader")
        execute(b"ALTER ROLE mmdb_system BYPASSRLS")
        (check,) = roles(connection)
        execute(b"ALTER ROLE mmdb_system NOBYPASSRLS")
    assert "row security does not hold for it" in check.detail
    for name in ("leaderboard", "alias_history"):
        assert f"view mmdb.{name} shows the rows of all teams" in check.detail
    assert "mmdb_reader has rights on table mmdb.block itself" in check.detail


def test_teams_are_made_by_who_may(postgres_url: str, cluster: Cluster) -> None:
    """An owner who is no superuser has mmdb without functions, which need none."""
    url = cluster.create_database("mmdb_landlord", "template0")
    with psycopg.connect(url, autocommit=True) as session:
        session.execute(f"CREATE ROLE landlord LOGIN PASSWORD '{cluster.password}'")
        session.execute("GRANT CREATE ON DATABASE mmdb_landlord TO landlord")
    own = url.replace("postgres:", "landlord:", 1)
    install(postgres_url, teams=True)  # the roles are there
    try:
        with pytest.raises(errors.RightsMissing) as raised:
            install(own, mode="client")
        assert "mmdb_system" in raised.value.hint and "plpython3u" not in raised.value.hint
        with psycopg.connect(url, autocommit=True) as session:
            session.execute("GRANT mmdb_system_admin TO landlord")
        install(own, mode="client")
        install(own, teams=True)
    finally:
        cluster.drop_database("mmdb_landlord")
        with psycopg.connect(postgres_url, autocommit=True) as session:
            session.execute("DROP OWNED BY landlord")
            session.execute("DROP ROLE landlord")
