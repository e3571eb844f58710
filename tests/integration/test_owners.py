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


def test_what_is_nobodys_is_everybodys(alone: Teams) -> None:
    with psycopg.connect(alone.url) as session:
        session.execute("UPDATE mmdb.model SET owner = NULL WHERE name = 'best_north'")
        session.execute("SET ROLE bob")
        session.execute("SELECT * FROM mmdb.drop_model('best_north')")
        session.rollback()
