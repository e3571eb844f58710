"""Between teams: by a hash, a worker, a team's name, an alias or a setting nobody comes by more."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest

from mmdb import errors
from tests.attacks.test_rows import add, by_owner, candidate_of, taken_back
from tests.cluster import Cluster
from tests.teams import Teams, make, module, teams_in


@pytest.fixture(scope="module")
def teams(cluster: Cluster, template: str) -> Iterator[Teams]:
    """Yield a database with what ann and bob have each made, and a model shared with bob."""
    with teams_in(cluster, "mmdb_attacked_teams", template) as made:
        make(made, "ann", "north")
        make(made, "bob", "south")
        with made.connect("ann") as db:
            db.sql("SELECT mmdb.share_model('best_north', 'bob')")
        yield made


def test_a_partition_that_the_node_has_decoded_is_not_had_by_its_hash(teams: Teams) -> None:
    with teams.connect() as owner:
        (known,) = owner.sql(
            "SELECT p.* FROM mmdb.partition AS p JOIN mmdb.dataset USING (dataset_id) "
            "WHERE name = 'data_north' AND p.role = 'train'"
        )
    with (
        psycopg.connect(teams.url, autocommit=True) as session,
        pytest.raises(errors.BlockCorrupt),
        taken_back(session, "bob"),
    ):
        query = "SELECT x + 1 AS x, y FROM public.points"
        session.execute("SELECT mmdb.create_dataset('theft', %s, partitions => 1)", (query,))
        session.execute(
            "SELECT mmdb.create_run('theft', 'theft', 'linear', options => '{\"order\": \"free\"}')"
        )
        found = "SELECT dataset_id FROM mmdb.dataset WHERE name = 'theft'"
        row = {name: known[name] for name in ("role", "row_count", "byte_count", "content_hash")}
        row |= {"dataset_id": by_owner(session, found), "ordinal": 1}
        part_id = add(session, "partition", row)
        candidate_id = candidate_of(session, "theft")
        session.execute("SELECT * FROM mmdb.train_hop(%s, %s)", (part_id, candidate_id))


def test_what_a_worker_saves_takes_nothing_of_another_team(teams: Teams) -> None:
    """The bits of bob's candidate lie there as ann's, and bob may not read them."""
    find = (
        "SELECT t.tensor_id, t.tensor_hash, t.owner, m.candidate_id FROM mmdb.tensor AS t"
        " JOIN mmdb.model AS m ON t.tensor_id = m.pack_id WHERE m.name = %(name)s"
    )
    with (
        teams.connect() as owner,
        teams.connect("ann") as ann,
        teams.connect("serf") as serf,
        teams.connect("bob") as bob,
    ):
        (hers,) = owner.sql(find, {"name": "best_north"})
        (his,) = owner.sql(find, {"name": "best_south"})
        assert hers["tensor_hash"] == his["tensor_hash"] and hers["owner"] == "team_a"
        teams.run(
            "UPDATE mmdb.tensor SET tensor_hash = decode(repeat('00', 32), 'hex')"
            f" WHERE tensor_id = {his['tensor_id']}"
        )
        ann.share_model("best_north", "bob", shared=False)
        try:
            serf.save_candidate(his["candidate_id"], "saved_by_serf")
        finally:
            ann.share_model("best_north", "bob")
        (saved,) = owner.sql(find, {"name": "saved_by_serf"})
        assert (saved["owner"], saved["tensor_hash"]) == ("bob", his["tensor_hash"])
        assert saved["tensor_id"] not in {his["tensor_id"], hers["tensor_id"]}
        assert len(bob.predict("saved_by_serf", [0.5])) == 2


def test_a_shared_models_query_is_not_run_by_who_borrows_it(teams: Teams) -> None:
    asked = "SELECT 1::real AS x, 1 AS y"
    with teams.connect("ann") as ann, teams.connect("bob") as bob:
        with pytest.raises(errors.RightsMissing, match="would run with your rights"):
            bob.training_rows("best_north", asked, key="x")
        trained = "SELECT 1 AS id, x, y FROM public.points"
        assert bob.training_rows("best_north", asked, trained=trained, key="id")
        assert ann.training_rows("best_north", asked, key="x")


def test_nobody_is_everybody(teams: Teams) -> None:
    through = "SELECT public.through(%s)"
    with psycopg.connect(teams.url_of("bob"), autocommit=True) as session:
        for team in ("public", "mmdb_trainer"):
            session.execute("SELECT set_config('mmdb.team', %s, false)", (team,))
            for statement in (
                "SELECT * FROM mmdb.create_dataset('evader', 'SELECT x, y FROM public.points')",
                "SELECT * FROM mmdb.create_run('evader', 'data_south', 'linear')",
                "INSERT INTO mmdb.manifest DEFAULT VALUES",
                "INSERT INTO mmdb.tensor (tensor_hash, dtype, shape, byte_count)"
                " VALUES ('z', 'uint8', '{1}', 1)",
                "INSERT INTO mmdb.model (name, version, approach, weights_hash, tensor_count,"
                " byte_count, metrics, reason, stored_bytes, save_s)"
                " VALUES ('evader', 1, 'snapshot', '', 0, 0, '{}', '{}', 0, 0)",
            ):
                with pytest.raises(psycopg.Error) as raised:
                    if statement.startswith("INSERT"):
                        session.execute(through, [statement])
                    else:
                        session.execute(statement.encode())
                assert raised.value.sqlstate in {"42501", "MM407"}, (team, statement)


def test_a_team_is_bound_by_the_smaller_limit(teams: Teams) -> None:
    teams.run("INSERT INTO mmdb.role_limit (role, bytes) VALUES ('team_a', 1000000000), ('ann', 1)")
    try:
        with teams.connect("ann") as ann, pytest.raises(errors.LimitReached, match="team_a may"):
            ann.save("over", module(5))
        with teams.connect("amy") as amy:
            amy.save("over", module(5))
    finally:
        teams.run("DELETE FROM mmdb.role_limit")


def test_an_alias_is_seen_with_its_version(teams: Teams) -> None:
    moves = "SELECT * FROM mmdb.alias_event WHERE model = 'model_north'"
    with teams.connect("ann") as ann:
        ann.share_model("model_north@2", "bob")
        try:
            assert teams.rows_of("bob", moves) == []
            ann.share_model("model_north@1", "bob")
            assert len(teams.rows_of("bob", moves)) == 1
        finally:
            ann.share_model("model_north", "bob", shared=False)


def test_no_password_stands_in_a_setting(teams: Teams) -> None:
    with teams.connect() as owner:
        add = "INSERT INTO mmdb.setting VALUES ('worker_dsn', %(value)s)"
        for value in (
            "postgresql://127.0.0.1/shop?user=serf&password=hidden",
            "host=127.0.0.1 user=serf PASSWORD = 'hidden'",
            "host=127.0.0.1 sslpassword=hidden",
            "postgresql://serf:hidden@127.0.0.1/shop",
        ):
            with pytest.raises(errors.InvalidOption, match="no password") as raised:
                owner.sql(add, {"value": value})
            assert ".pgpass" in raised.value.hint and "hidden" not in str(raised.value)
        owner.sql(add, {"value": "postgresql://serf@127.0.0.1/shop?passfile=/etc/mmdb"})
        owner.sql("DELETE FROM mmdb.setting")
