"""Limits of roles: bytes, workers and seconds, from SQL and from Python."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest

import mmdb
from mmdb import errors
from mmdb.db.owners import check_start
from mmdb.db.queries import load
from tests.cluster import Cluster
from tests.teams import QUERY, module

LIMITED = "lim"


@pytest.fixture(scope="module")
def url(cluster: Cluster, template: str) -> Iterator[str]:
    """Yield the URL of a database with a dataset and a run of a role that gets limits."""
    owner_url = cluster.create_database("mmdb_limits", template)
    own = owner_url.replace("postgres:", f"{LIMITED}:", 1)
    with psycopg.connect(owner_url, autocommit=True) as session:
        session.execute(
            f"CREATE ROLE {LIMITED} LOGIN PASSWORD '{cluster.password}' IN ROLE mmdb_trainer"
        )
        session.execute("CREATE TABLE public.points AS SELECT i / 20.0 AS x, i % 2 AS y"
                        " FROM generate_series(1, 20) AS i")  # fmt: skip
        session.execute("GRANT SELECT ON public.points TO public")
    with mmdb.connect(own) as db:
        db.create_dataset("d", QUERY, partitions=1)
        db.create_run("r", dataset="d", architecture="linear")
        db.save("m", module())
    yield owner_url
    with psycopg.connect(owner_url, autocommit=True) as session:
        session.execute(f"DROP OWNED BY {LIMITED}")
        session.execute(f"DROP ROLE {LIMITED}")
    cluster.drop_database("mmdb_limits")


@pytest.fixture
def owner(url: str) -> Iterator[mmdb.Database]:
    """Yield the database as its owner sees it, who sets the limits; they are gone afterwards."""
    with mmdb.connect(url) as opened:
        yield opened
        opened.sql("DELETE FROM mmdb.role_limit")


@pytest.fixture
def db(url: str) -> Iterator[mmdb.Database]:
    """Yield the database as the limited role sees it."""
    with mmdb.connect(url.replace("postgres:", f"{LIMITED}:", 1)) as opened:
        yield opened


def limit(owner: mmdb.Database, role: str, **most: float | None) -> None:
    """Set what a role may use."""
    names = ("workers", "bytes", "seconds", "predict_rows")
    values = dict.fromkeys(names) | most | {"role": role}
    owner.sql(
        "INSERT INTO mmdb.role_limit (role, workers, bytes, seconds, predict_rows) VALUES"
        " (%(role)s, %(workers)s::integer, %(bytes)s::bigint, %(seconds)s::double precision,"
        " %(predict_rows)s::bigint)",
        values,
    )


def kept(owner: mmdb.Database) -> int:
    """Return the bytes that the limited role keeps."""
    (row,) = owner.sql(
        "SELECT ((SELECT sum(byte_count) FROM mmdb.dataset WHERE dropped_at IS NULL)"
        " + (SELECT sum(stored_bytes) FROM mmdb.model WHERE dropped_at IS NULL))::bigint AS n"
    )
    return int(row["n"])


def test_datasets_stop_at_the_bytes(owner: mmdb.Database, db: mmdb.Database) -> None:
    before = kept(owner)
    limit(owner, LIMITED, bytes=before + 10)
    with pytest.raises(errors.LimitReached, match=f"lim may keep {before + 10:,} bytes"):
        db.create_dataset("more", QUERY, partitions=1)
    with pytest.raises(errors.LimitReached):
        db.sql("SELECT * FROM mmdb.create_dataset('more', 'SELECT x, y FROM public.points')")
    assert kept(owner) == before
    assert db.sql("SELECT name FROM mmdb.dataset_overview") == [{"name": "d"}]
    owner.sql("UPDATE mmdb.role_limit SET bytes = 1000000")
    db.create_dataset("more", QUERY, partitions=1)
    db.drop_dataset("more")
    assert kept(owner) == before  # what is dropped counts no more


def test_models_stop_at_the_bytes(owner: mmdb.Database, db: mmdb.Database) -> None:
    before = kept(owner)
    chunks = owner.sql("SELECT count(*) AS n FROM mmdb.tensor_chunk")
    limit(owner, LIMITED, bytes=before + 10)
    with pytest.raises(errors.LimitReached):
        db.save("m", module(1))
    assert owner.sql("SELECT count(*) AS n FROM mmdb.tensor_chunk") == chunks
    db.save("m", module())  # adds no byte
    assert kept(owner) == before


def test_no_setting_takes_a_calls_memory_limit_away(
    owner: mmdb.Database, db: mmdb.Database
) -> None:
    limits = "INSERT INTO mmdb.role_limit (role, memory_bytes) VALUES ('public', 7000000)"
    owner.sql(f"{limits}, ('lab', NULL)")
    for team in ("", "lab", "postgres", "public"):
        db.sql(f"SET mmdb.team = '{team}'")
        assert db.connection.rows(load("owners").find_memory) == [{"bytes": 7000000}]


def test_runs_stop_at_the_bytes_workers_and_seconds(
    owner: mmdb.Database, db: mmdb.Database
) -> None:
    run = db.run("r")
    for most, said in (
        ({"bytes": 1}, "bytes"),
        ({"workers": 0}, "0 workers at a time"),
        ({"seconds": 0.0}, "0 seconds in 24 hours"),
    ):
        limit(owner, LIMITED, **most)
        for start in (lambda: run.train(workers=1), run.submit):
            with pytest.raises(errors.LimitReached, match=said):
                start()
        with pytest.raises(errors.LimitReached, match=said):
            db.sql("SELECT * FROM mmdb.submit('r')")
        owner.sql("DELETE FROM mmdb.role_limit")
    assert owner.sql("SELECT * FROM mmdb.run_event") == []


def test_workers_of_runs_under_way_count(owner: mmdb.Database, db: mmdb.Database) -> None:
    limit(owner, LIMITED, workers=2)
    db.create_run("other", dataset="d", architecture="linear")
    (other,) = owner.sql("SELECT run_id FROM mmdb.run WHERE name = 'other'")
    started = (
        "INSERT INTO mmdb.run_event (run_id, event, workers) VALUES (%(run_id)s, 'started', 2)"
    )
    owner.sql(started, other)
    owner.sql(started.replace("'started'", "'replanned'"), other)
    assert db.connection.try_lock("run", other["run_id"])  # as its driver does
    with pytest.raises(errors.LimitReached, match="2 are at work on other runs"):
        db.run("r").train(workers=1)
    db.connection.unlock("run", other["run_id"])  # its driver died
    db.run("r").train(workers=1)
    (row,) = owner.sql("SELECT owner FROM mmdb.model WHERE name = 'r'")
    assert row == {"owner": LIMITED}
    limit_s = "UPDATE mmdb.role_limit SET seconds = (SELECT sum(total_s) / 2 FROM mmdb.hop)"
    owner.sql(limit_s)
    with pytest.raises(errors.LimitReached, match="seconds in 24 hours"):
        db.run("other").train(workers=1)


def test_statements_stop_at_the_predicted_rows(owner: mmdb.Database, db: mmdb.Database) -> None:
    limit(owner, LIMITED, predict_rows=19)
    keyed = "SELECT row_number() OVER () AS id, x FROM public.points"
    for call in (
        lambda: db.predict_query("r", keyed),
        lambda: db.predict_into("r", keyed, "public.said"),
        lambda: db.sql("SELECT mmdb.predict('r', ARRAY[x]::real[]) FROM public.points"),
        lambda: db.sql(
            "SELECT mmdb.predict('r', ARRAY[1]::real[]), (SELECT count(*) FROM"
            " mmdb.predict_query('r', 'SELECT 1 AS id, x FROM public.points LIMIT 19')) AS n"
        ),
    ):
        with pytest.raises(errors.LimitReached, match="may predict 19 rows in a statement"):
            call()
    assert owner.sql("SELECT to_regclass('public.said') IS NULL AS gone") == [{"gone": True}]
    assert len(db.predict_query("r", f"{keyed} LIMIT 19")) == 19
    owner.predict_query("r", keyed)  # who sees all has no limits
    owner.sql("UPDATE mmdb.role_limit SET predict_rows = 20")
    assert len(db.predict_query("r", keyed)) == 20


def test_the_row_of_public_is_for_those_without_one(
    owner: mmdb.Database, db: mmdb.Database
) -> None:
    limit(owner, "public", bytes=1)
    with pytest.raises(errors.LimitReached):
        db.save("n", module(2))
    owner.save("owners", module(2))  # who sees all has no limits
    limit(owner, LIMITED)
    db.save("n", module(2))


def test_an_admin_has_no_limits(owner: mmdb.Database, db: mmdb.Database) -> None:
    limit(owner, LIMITED, bytes=1, workers=0, seconds=0.0)
    (row,) = owner.sql("SELECT run_id FROM mmdb.run WHERE name = 'r'")
    run_id = row["run_id"]
    with pytest.raises(errors.LimitReached):
        check_start(db.connection, run_id, 1)
    owner.sql(f"GRANT mmdb_admin TO {LIMITED}")
    try:
        check_start(db.connection, run_id, 1)
        db.save("n", module(3))
    finally:
        owner.sql(f"REVOKE mmdb_admin FROM {LIMITED}")


def test_only_the_owner_sets_limits(db: mmdb.Database) -> None:
    for statement in (
        "INSERT INTO mmdb.role_limit (role) VALUES ('lim')",
        "UPDATE mmdb.role_limit SET bytes = 1",
        "DELETE FROM mmdb.role_limit",
    ):
        with pytest.raises(errors.RightsMissing):
            db.sql(statement)
