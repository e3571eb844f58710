"""Without teams: an owner is asked for before anything of its own is dropped or overwritten."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest

from mmdb import errors
from mmdb.db.install import install
from tests.cluster import Cluster
from tests.teams import Teams, make, module, teams_in


@pytest.fixture(scope="module")
def alone(cluster: Cluster, template: str) -> Iterator[Teams]:
    """Yield a database without teams in which ann and bob have each made one of everything."""
    with teams_in(cluster, "mmdb_alone", template) as made:
        install(made.url, teams=False)
        make(made, "ann", "north")
        make(made, "bob", "south")
        with made.connect("bob") as bob:
            bob.save("model_north", module(2))  # a version of his own
        yield made


#: Calls that drop what ann has made, or overwrite what hangs on it.
DESTROY = {
    "drop_alias": "SELECT mmdb.drop_alias('model_north', 'prod')",
    "set_alias": "SELECT mmdb.set_alias('model_north', 2, 'prod')",
    "another alias": "SELECT mmdb.set_alias('model_north', 2, 'mine')",
    "an alias to a version of one's own": "SELECT mmdb.set_alias('model_north', 3, 'prod')",
    "tag_model": "SELECT mmdb.tag_model('model_north@2', 'stage', 'x')",
    "untag_model": "SELECT mmdb.tag_model('model_north@2', 'stage', NULL)",
    "log_metric": "SELECT mmdb.log_metric('model_north@2', 'accuracy', 1)",
    "zoo_refuse": "SELECT mmdb.zoo_refuse('model_north@2')",
    "zoo_admit": "SELECT mmdb.zoo_admit('model_north@2')",
    "accept_parent": "SELECT mmdb.accept_parent('model_north@1', NULL)",
    "drop_model": "SELECT * FROM mmdb.drop_model('best_north')",
    "drop_run": "SELECT mmdb.drop_run('run_north')",
    "drop_dataset": "SELECT mmdb.drop_dataset('data_north', true)",
}


def test_without_teams_an_owner_is_asked_for(alone: Teams) -> None:
    with alone.connect("bob") as bob:
        for what, sql in DESTROY.items():
            with pytest.raises(errors.RightsMissing, match=r"'\S+@?\d?' is team_a's\.") as raised:
                bob.sql(sql)
            assert "Ask team_a" in raised.value.hint, what
        assert bob.manage_zoo(0)  # and of those that he may not drop, none is named
        assert not [d for d in bob.manage_zoo(0) if d.event == "evicted" and "north@1" in d.model]
        bob.note("model_north@1", "seen")  # says more, and takes nothing away
        bob.predict("best_north", [0.5])
        bob.recover("model_north@1", into=module(7))


@pytest.mark.parametrize("role", ["amy", "guard", "postgres"], ids=["amy", "guard", "the owner"])
def test_a_member_an_admin_and_the_owner_may(alone: Teams, role: str) -> None:
    with psycopg.connect(alone.url_of(role)) as session:
        for what, sql in DESTROY.items():
            if role != "amy" or "one's own" not in what:  # that version is bob's
                session.execute(sql.encode())
        session.rollback()


@pytest.mark.parametrize(
    ("creator", "trainer", "owner"),
    [
        ("postgres", "serf", "serf"),  # who may not act for a superuser
        ("postgres", "bob", "bob"),
        ("ann", "bob", "bob"),
        ("ann", "serf", "team_a"),
        ("ann", "amy", "team_a"),
    ],
)
def test_a_run_is_trained_by_others(alone: Teams, creator: str, trainer: str, owner: str) -> None:
    run = f"{creator}_{trainer}"
    with alone.connect(creator) as db:
        search = {"space": {"lr": [0.1]}}
        db.create_run(run, dataset="data_north", architecture="linear", search=search, epochs=1)
    with alone.connect(trainer) as db:
        db.run(run).train(workers=1)
    with psycopg.connect(alone.url) as session:
        found = session.execute("SELECT owner FROM mmdb.model WHERE name = %s", [run]).fetchall()
    assert found == [(owner,)]


def test_what_is_nobodys_is_everybodys(alone: Teams) -> None:
    with psycopg.connect(alone.url) as session:
        session.execute("UPDATE mmdb.model SET owner = NULL WHERE name = 'best_north'")
        session.execute("SET ROLE bob")
        session.execute("SELECT * FROM mmdb.drop_model('best_north')")
        session.rollback()


REFRESH = "SELECT is_new FROM mmdb.refresh_dataset('data_north', dry_run => true)"
FORGET = "SELECT * FROM mmdb.forget('data_north', 'x > 2', dry_run => true)"


def test_a_datasets_query_runs_with_no_strangers_rights(alone: Teams) -> None:
    with alone.connect("guard") as guard, alone.connect() as owner, alone.connect("amy") as amy:
        for call in (REFRESH, FORGET):
            for one in (guard, owner):
                with pytest.raises(errors.RightsMissing, match="would run with your rights"):
                    one.sql(call)
        assert amy.sql(REFRESH) == [{"is_new": False}]
        owner.sql("SET mmdb.team = 'team_a'")  # it says for whom it acts
        assert owner.sql(REFRESH) == [{"is_new": False}]
        with pytest.raises(errors.DataError, match="no row"):
            owner.sql(FORGET)


def test_everybody_runs_a_query_of_the_owner_of_mmdb(alone: Teams) -> None:
    with alone.connect() as owner, alone.connect("guard") as guard:
        owner.create_dataset("data_owner", "SELECT x, y FROM public.points", partitions=1)
        refresh = REFRESH.replace("data_north", "data_owner")
        assert guard.sql(refresh) == [{"is_new": False}]
        owner.drop_dataset("data_owner")


def test_an_admin_adds_no_version_in_a_superusers_name_and_forgets_rows(alone: Teams) -> None:
    with alone.connect() as owner, alone.connect("guard") as guard:
        owner.sql("CREATE TABLE public.crops AS SELECT * FROM public.points")
        owner.sql("GRANT SELECT ON public.crops TO PUBLIC")
        owner.create_dataset("crops", "SELECT x, y FROM public.crops", partitions=1)
        search = {"space": {"lr": [0.1]}}
        owner.create_run("crops", dataset="crops", architecture="linear", search=search, epochs=1)
        owner.run("crops").train(workers=1)
        owner.sql("INSERT INTO public.crops SELECT * FROM public.points LIMIT 2")
        for fit in (False, True):  # the version's query would be whose it is
            with pytest.raises(errors.RightsMissing, match="guard may not act for postgres"):
                guard.refresh_dataset("crops", fit=fit)
        assert owner.refresh_dataset("crops").is_new
        guard.sql("SELECT * FROM mmdb.forget('crops', 'x > 0')")
        assert guard.remake(workers=1) == 1
        made = "SELECT version, owner FROM mmdb.model WHERE name = 'crops' ORDER BY version"
        assert [row["owner"] for row in owner.sql(made)] == ["postgres", "guard"]
        owner.drop_dataset("crops", force=True)
        owner.sql("DROP TABLE public.crops")


@pytest.mark.parametrize("team", ["postgres", "team_a", "nobody", "public"])
def test_nobody_acts_for_a_team_that_it_is_no_member_of(alone: Teams, team: str) -> None:
    with alone.connect("bob") as bob:
        bob.sql(f"SET mmdb.team = '{team}'")
        with pytest.raises(errors.RightsMissing, match="Role bob may not act for"):
            bob.create_dataset("forged", "SELECT x, y FROM public.points", partitions=1)
        with pytest.raises(errors.RightsMissing, match="may not act for"):
            bob.save("forged", module())


#: Of ann's table, which a table of bob's refers to; and what bob's trigger does as it goes.
CASCADE = (
    "CREATE TABLE work.customer (id integer PRIMARY KEY)",
    "INSERT INTO work.customer VALUES (2)",
    "GRANT REFERENCES, SELECT ON work.customer TO bob",
)
TRIGGER = (
    "CREATE TABLE work.orders (c integer REFERENCES work.customer ON DELETE CASCADE)",
    "INSERT INTO work.orders VALUES (2)",
    "CREATE FUNCTION work.act() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
    "PERFORM mmdb.note_model('model_north@1', 'approved'); RETURN OLD; END $$",
    "CREATE TRIGGER act BEFORE DELETE ON work.orders FOR EACH ROW EXECUTE FUNCTION work.act()",
)


@pytest.mark.parametrize("role", ["ann", "postgres"])
def test_what_a_foreign_key_deletes_acts_for_nobody(alone: Teams, role: str) -> None:
    notes = "SELECT author FROM mmdb.model_note WHERE note = 'approved'"
    try:
        for one, statements in (("ann", CASCADE), ("bob", TRIGGER)):
            with psycopg.connect(alone.url_of(one)) as session:
                for statement in statements:
                    session.execute(statement.encode())
        with psycopg.connect(alone.url_of(role), autocommit=True) as session:
            with pytest.raises(psycopg.Error, match="foreign key") as refused:
                session.execute("DELETE FROM work.customer")
            assert refused.value.sqlstate == "MM407"
        with psycopg.connect(alone.url_of("bob"), autocommit=True) as session:
            session.execute("DELETE FROM work.orders")  # by himself he may
        with alone.connect() as owner:
            assert owner.sql(notes) == [{"author": "bob"}]
    finally:
        alone.run(
            "DROP TABLE IF EXISTS work.orders, work.customer",
            "DROP FUNCTION IF EXISTS work.act",
            "DELETE FROM mmdb.model_note WHERE note = 'approved'",
        )


#: An index whose expression, once ANALYZE comes by, writes in the name of whom it runs as.
ANALYZED = (
    "CREATE FUNCTION work.note() RETURNS void LANGUAGE plpgsql AS $$ BEGIN"
    " PERFORM mmdb_call.registry_add_note(1, 'approved'); END $$",
    "CREATE FUNCTION work.same(i integer) RETURNS integer IMMUTABLE LANGUAGE plpgsql"
    " AS 'BEGIN RETURN i; END'",
    "CREATE TABLE work.seen (i integer)",
    "INSERT INTO work.seen VALUES (1), (2)",
    "CREATE INDEX ON work.seen (work.same(i))",
    "CREATE OR REPLACE FUNCTION work.same(i integer) RETURNS integer IMMUTABLE LANGUAGE plpgsql"
    " AS $$ BEGIN IF current_user <> session_user THEN PERFORM work.note(); END IF;"
    " RETURN i; END $$",
)


def test_what_analyze_calls_writes_in_nobodys_name(alone: Teams) -> None:
    try:
        with psycopg.connect(alone.url_of("bob"), autocommit=True) as session:
            for statement in ANALYZED:
                session.execute(statement.encode())
        with psycopg.connect(alone.url, autocommit=True) as session:
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                session.execute("ANALYZE work.seen")
    finally:
        alone.run(
            "DROP TABLE IF EXISTS work.seen",
            "DROP FUNCTION IF EXISTS work.note, work.same",
        )
