"""Teams: what is one's own, what is shared, and every way by which another's does not come out."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import psycopg
import pytest
import torch
from safetensors.torch import save_file

from mmdb import errors
from mmdb.db.connection import Row
from mmdb.db.install import current_files, install
from mmdb.db.url import AnyConnection
from mmdb.db.url import connect as open_connection
from mmdb.store import stored_features
from mmdb.store.stored_features import FeatureSpec
from tests import feature_rows
from tests.cluster import Cluster
from tests.teams import COMMON, QUERY, Teams, make, module, teams_in

LISTED = (
    "SELECT c.relname::text AS name FROM pg_class AS c"
    " WHERE c.relnamespace = 'mmdb'::regnamespace AND c.relkind IN ({})"
    " AND NOT c.relispartition AND has_table_privilege({}, c.oid, 'SELECT') ORDER BY 1"
)
#: Views that say what there is to choose from, and how views hang together.
OPEN_VIEWS = {
    "view_key",
    "worker_status",
    "profile_overview",
    "profile_latest",
    "metric",
    "server_metric",
}


@pytest.fixture(scope="module")
def teams(cluster: Cluster, template: str) -> Iterator[Teams]:
    """Yield a database in which ann and bob have each made one of everything."""
    with teams_in(cluster, "mmdb_teams", template) as made:
        make(made, "ann", "north")
        make(made, "bob", "south")
        yield made


def numbers(teams: Teams) -> dict[str, int]:
    """Return the ids of what ann has made, by the column that holds them."""
    with teams.connect() as db:
        (row,) = db.sql(
            "SELECT d.dataset_id, r.run_id, c.candidate_id, m.model_id, m.manifest_id, m.pack_id,"
            " e.tensor_id, p.part_id"
            " FROM mmdb.dataset AS d JOIN mmdb.run AS r USING (dataset_id)"
            " JOIN mmdb.candidate AS c USING (run_id) JOIN mmdb.partition AS p USING (dataset_id)"
            " JOIN mmdb.model AS m ON m.name = 'model_north' AND m.version = 1"
            " JOIN mmdb.manifest_tensor AS t USING (manifest_id)"
            " JOIN mmdb.encoding AS e USING (tensor_id)"
            " WHERE d.name = 'data_north' AND p.role = 'train' LIMIT 1"
        )
    return {name: int(value) for name, value in row.items()}


# -- what one sees ------------------------------------------------------------


def mentions(rows: list[Row], tag: str) -> bool:
    """Return whether rows hold a name that `make` gave."""
    text = repr(rows)
    return any(f"{name}_{tag}" in text for name in ("data", "run", "best", "model"))


def test_views_show_a_reader_what_is_its_teams(teams: Teams) -> None:
    with (
        closing(open_connection(teams.url_of("rita"))) as reader,
        closing(open_connection(teams.url_of("rob"))) as stranger,
        closing(open_connection(teams.url)) as owner,
    ):
        names = [row["name"] for row in owner.select(LISTED.format("'v'", "'rita'"))]
        assert len(names) > 30
        seen = {name: reader.select(f"SELECT * FROM mmdb.{name}") for name in names}
        told = {name for name, rows in seen.items() if mentions(rows, "north")}
        assert {"leaderboard", "run_progress", "model_overview", "dataset_overview"} <= told
        for name, rows in seen.items():
            assert not mentions(rows, "south"), name
            if name not in OPEN_VIEWS:
                assert stranger.select(f"SELECT * FROM mmdb.{name}") == [], name
        for name in told:
            assert mentions(owner.select(f"SELECT * FROM mmdb.{name}"), "south"), name


def test_tables_hold_for_a_trainer_what_is_its_teams(teams: Teams) -> None:
    with teams.connect() as owner:
        names = [row["name"] for row in owner.sql(LISTED.format("'r', 'p'", "'mmdb_system'"))]
        teams.run("CREATE ROLE new LOGIN IN ROLE mmdb_trainer")
        filled, seen = set(), set()
        for name in set(names) - COMMON:
            counts = []
            for role in ("postgres", "new", "ann", "bob"):
                owner.sql(f"SET ROLE {role}")
                (row,) = owner.sql(
                    f"SELECT * FROM public.through_rows('SELECT count(*) AS n FROM mmdb.{name}') r"
                )
                counts.append(row["r"]["n"])
            owner.sql("RESET ROLE")
            whole, nothing, hers, his = counts
            assert nothing == 0 and hers + his == whole, name
            filled |= {name} if whole else set()
            seen |= {name} if hers and his else set()
        teams.run("DROP OWNED BY new", "DROP ROLE new")
    assert seen == filled and len(filled) > 20


def test_nobody_has_a_right_on_a_table(teams: Teams) -> None:
    """But for the numbers of the migrations, by which a client knows the version."""
    for role in ("guard", "serf", "ann", "rita"):
        for kinds in ("'r', 'p'", "'S'"):
            with teams.connect() as owner:
                names = [row["name"] for row in owner.sql(LISTED.format(kinds, f"'{role}'"))]
            assert names == (["migration"] if "r" in kinds else []), (role, names)


def test_every_table_is_a_teams_or_known_to_be_common(teams: Teams) -> None:
    with psycopg.connect(teams.url) as session:
        rows = session.execute(
            "SELECT relname FROM pg_class WHERE relnamespace = 'mmdb'::regnamespace"
            " AND relkind IN ('r', 'p') AND NOT relispartition"
            " AND NOT EXISTS (SELECT 1 FROM pg_policy WHERE polrelid = pg_class.oid"
            "                 AND polname = 'team_reads' AND relrowsecurity)"
        ).fetchall()
    assert {row[0] for row in rows} == COMMON - {"worker", "worker_beat"}


def test_a_team_is_one_owner(teams: Teams) -> None:
    with teams.connect("amy") as db:
        assert db.predict("best_north", [0.5])
        db.tag("model_north", by="amy")
    owners = "SELECT DISTINCT owner FROM mmdb.model"
    assert teams.rows_of("amy", owners) == [{"owner": "team_a"}]
    assert teams.rows_of("bob", owners) == [{"owner": "bob"}]
    with teams.connect("bob") as db:
        with pytest.raises(errors.RightsMissing):
            db.sql("SET mmdb.team = 'team_a'")
            db.create_dataset("mine", QUERY, partitions=1)


def test_features_are_the_teams_that_computed_them(teams: Teams) -> None:
    known = numbers(teams)
    with (
        closing(open_connection(teams.url_of("ann"))) as ann,
        closing(open_connection(teams.url_of("bob"))) as bob,
        teams.connect("guard") as guard,
    ):
        assert stored_features.owner_of(ann, known["run_id"]) == "team_a"

        def of(owner: str) -> FeatureSpec:
            return feature_rows.spec(dataset_id=known["dataset_id"], owner=owner)

        def found(connection: AnyConnection) -> set[str]:
            rows = connection.select(
                "SELECT r ->> 'owner' AS owner"
                " FROM public.through_rows('SELECT owner FROM mmdb.feature') AS r"
            )
            assert len(rows) == len(connection.select("SELECT * FROM mmdb.feature_overview"))
            return {row["owner"] for row in rows}

        (hers,) = stored_features.put(ann, [of("team_a")]).values()
        assert stored_features.put(ann, [of("team_a")]) == {hers.feature_key: hers}
        stored_features.add_blocks(ann, hers.feature_id, known["part_id"], feature_rows.blocks(2))
        for owner in ("bob", "team_a", "public"):  # of rows that he may not read
            with pytest.raises(errors.RightsMissing):
                stored_features.put(bob, [of(owner)])
        assert found(bob) == set()
        teams.run(f"INSERT INTO mmdb.share VALUES ('dataset', {known['dataset_id']}, 'bob')")
        assert found(bob) == set()
        with pytest.raises(errors.RightsMissing):
            stored_features.put(bob, [of("team_a")])
        with pytest.raises(errors.RightsMissing):
            stored_features.add_blocks(bob, hers.feature_id, 99, feature_rows.blocks(1))
        assert stored_features.evict(bob, [hers.feature_id]) == 0
        (his,) = stored_features.put(bob, [of("bob")]).values()
        stored_features.add_blocks(bob, his.feature_id, known["part_id"], feature_rows.blocks(3))
        assert (found(ann), found(bob)) == ({"team_a"}, {"bob"})
        assert len(list(stored_features.read_blocks(ann, hers.feature_id, known["part_id"]))) == 2
        assert list(stored_features.read_blocks(ann, his.feature_id, known["part_id"])) == []
        teams.run("DELETE FROM mmdb.share WHERE role = 'bob' AND kind = 'dataset'")
        assert found(bob) == set()
        (what,) = [one for one in guard.gc().found if one.what == "feature"]
        assert (what.items, what.bytes) == (2, 500_000)
    teams.run(*(f"DELETE FROM mmdb.{t}" for t in ("feature_block", "feature_part", "feature")))


# -- what is another's --------------------------------------------------------

GET = {
    "bytes by a number": "SELECT data FROM mmdb.tensor_chunk WHERE tensor_id = {tensor_id}",
    "a tensor by its hash": "SELECT * FROM mmdb.tensor WHERE tensor_id = {tensor_id}",
    "blocks": "SELECT data FROM mmdb.block WHERE part_id = {part_id}",
    "checkpoints": "SELECT data FROM mmdb.checkpoint_chunk WHERE candidate_id = {candidate_id}",
    "hops through a join": "SELECT h.* FROM mmdb.hop AS h JOIN mmdb.partition USING (part_id)"
    " WHERE candidate_id = {candidate_id}",
    "lineage": "SELECT * FROM mmdb.lineage('model:model_north@1')",
    "a leaky function": "SELECT * FROM mmdb.model WHERE public.tell(name) AND name = 'model_north'",
}
PUT = {
    "a list with another's tensor": "INSERT INTO mmdb.manifest_tensor"
    " SELECT manifest_id, 99, 'x', {tensor_id}, 'parameter', true FROM mmdb.manifest LIMIT 1",
    "a model with another's list": "INSERT INTO mmdb.model (name, version, approach, manifest_id,"
    " weights_hash, tensor_count, byte_count, metrics, reason, stored_bytes, save_s)"
    " VALUES ('x', 1, 'snapshot', {manifest_id}, '', 0, 0, '{{}}', '{{}}', 0, 0)",
    "a model with another's pack": "INSERT INTO mmdb.model (name, version, approach, pack_id,"
    " weights_hash, tensor_count, byte_count, metrics, reason, stored_bytes, save_s)"
    " VALUES ('x', 1, 'snapshot', {pack_id}, '', 0, 0, '{{}}', '{{}}', 0, 0)",
    "a model on another's dataset": "INSERT INTO mmdb.model (name, version, approach, dataset_id,"
    " weights_hash, tensor_count, byte_count, metrics, reason, stored_bytes, save_s)"
    " VALUES ('x', 1, 'snapshot', {dataset_id}, '', 0, 0, '{{}}', '{{}}', 0, 0)",
    "a model of another's candidate": "INSERT INTO mmdb.model (name, version, approach,"
    " candidate_id, weights_hash, tensor_count, byte_count, metrics, reason, stored_bytes, save_s)"
    " VALUES ('x', 1, 'snapshot', {candidate_id}, '', 0, 0, '{{}}', '{{}}', 0, 0)",
    "a child of another's model": "INSERT INTO mmdb.model (name, version, approach, parent_id,"
    " weights_hash, tensor_count, byte_count, metrics, reason, stored_bytes, save_s)"
    " VALUES ('x', 1, 'snapshot', {model_id}, '', 0, 0, '{{}}', '{{}}', 0, 0)",
    "a version of another's model": "INSERT INTO mmdb.model (name, version, approach,"
    " weights_hash, tensor_count, byte_count, metrics, reason, stored_bytes, save_s)"
    " VALUES ('model_north', 9, 'snapshot', '', 0, 0, '{{}}', '{{}}', 0, 0)",
    "a model in another's name": "INSERT INTO mmdb.model (name, version, approach, owner,"
    " weights_hash, tensor_count, byte_count, metrics, reason, stored_bytes, save_s)"
    " VALUES ('x', 1, 'snapshot', 'team_a', '', 0, 0, '{{}}', '{{}}', 0, 0)",
    "a difference to another's tensor": "WITH mine AS (INSERT INTO mmdb.tensor"
    " (tensor_hash, dtype, shape, byte_count) VALUES ('y', 'uint8', '{{1}}', 1)"
    " RETURNING tensor_id)"
    " INSERT INTO mmdb.encoding SELECT tensor_id, {tensor_id}, 1, 1, 1, 1 FROM mine",
    "a chunk of another's tensor": "INSERT INTO mmdb.tensor_chunk"
    " VALUES ({tensor_id}, 99, 0, '', '')",
    "a change to another's tensor": "INSERT INTO mmdb.model_change"
    " SELECT model_id, 99, {tensor_id} FROM mmdb.model LIMIT 1",
    "a mean of another's candidate": "INSERT INTO mmdb.model_member"
    " SELECT model_id, 9, {candidate_id}, 0 FROM mmdb.model LIMIT 1",
    "a recipe from another's tensor": "INSERT INTO mmdb.recipe_tensor"
    " SELECT model_id, 'x', {tensor_id} FROM mmdb.model LIMIT 1",
    "a run on another's dataset": "INSERT INTO mmdb.run (name, dataset_id, architecture, search,"
    " epochs, strategy, warm_start, seed, options)"
    " VALUES ('x', {dataset_id}, '{{}}', '{{}}', 1, 'mop', 'off', 0, '{{}}')",
    "a candidate of another's run": "INSERT INTO mmdb.candidate (run_id, ordinal, config, seed)"
    " VALUES ({run_id}, 9, '{{}}', 0)",
    "a clone of another's candidate": "INSERT INTO mmdb.candidate (run_id, ordinal, config, seed,"
    " parent_id) SELECT run_id, 9, '{{}}', 0, {candidate_id} FROM mmdb.run LIMIT 1",
    "a hop of another's candidate": "INSERT INTO mmdb.hop SELECT part_id, {candidate_id}, 9,"
    " ordinal, seed, row_count, steps, loss, metrics, read_s, load_s, compute_s, store_s, total_s,"
    " state_in, state_out, state_bytes, worker, node, device, environment, started_at, finished_at"
    " FROM mmdb.hop LIMIT 1",
    "a checkpoint of another's candidate": "INSERT INTO mmdb.checkpoint_chunk"
    " VALUES ({part_id}, {candidate_id}, 'x', 0, 'x')",
    "a request for another's run": "INSERT INTO mmdb.run_request (run_id, request)"
    " VALUES ({run_id}, 'submit')",
    "work for the workers": "INSERT INTO mmdb.assignment (worker_id, candidate_id, epoch, detail)"
    " SELECT 1, candidate_id, 0, '{{}}' FROM mmdb.candidate LIMIT 1",
    "a worker": "INSERT INTO mmdb.worker (name, process, node, device, mode)"
    " VALUES ('x', 'x', 'x', 'x', 'server')",
    "an alias of another's model": "INSERT INTO mmdb.alias_event (model, alias, version)"
    " VALUES ('model_north', 'prod', 2)",
    "a note on another's model": "INSERT INTO mmdb.model_note (model_id, note)"
    " VALUES ({model_id}, 'x')",
    "a tag on another's model": "INSERT INTO mmdb.model_tag VALUES ({model_id}, 'x', 'x')",
    "a share of another's model": "INSERT INTO mmdb.share (kind, object_id, role)"
    " VALUES ('model', {model_id}, 'bob')",
    "a limit": "INSERT INTO mmdb.role_limit (role) VALUES ('bob')",
    "a block of another's dataset": "INSERT INTO mmdb.block VALUES ({part_id}, 99, 1, 'x', 'x')",
}
CALL = {
    "predict": "SELECT mmdb.predict('best_north', ARRAY[1]::real[])",
    "generate": "SELECT * FROM mmdb.generate('best_north', 'x')",
    "embed": "SELECT mmdb.embed('best_north', ARRAY[1]::real[])",
    "embed_into": "SELECT mmdb.embed_into('best_north', 'SELECT 1 AS id, 2 AS x', 'work.t')",
    "embed_on_insert": "SELECT mmdb.embed_on_insert('work.t', 'best_north')",
    "predict_query": "SELECT * FROM mmdb.predict_query('best_north', 'SELECT 1 AS id, 2 AS x')",
    "predict_into": "SELECT mmdb.predict_into('best_north', 'SELECT 1 AS id, 2 AS x', 'work.t')",
    "predict_rows": "SELECT mmdb.predict_rows({model_id}, 'id', '{{float,integer}}', '{{}}')",
    "calibrate_model": "SELECT * FROM mmdb.calibrate_model('best_south', 'data_north', 'isotonic')",
    "evaluate": "SELECT * FROM mmdb.evaluate('best_south', 'data_north')",
    "compare_models": "SELECT * FROM mmdb.compare_models('best_south', 'best_north', 'data_south')",
    "confusion_matrix": "SELECT * FROM mmdb.confusion_matrix('best_north', 'data_south')",
    "importance": "SELECT * FROM mmdb.importance('best_north', 'SELECT x, y FROM public.points')",
    "explain_predict": "SELECT * FROM mmdb.explain_predict('best_north', 'SELECT 1 AS id, 2 AS x')",
    "training_rows": "SELECT * FROM mmdb.training_rows('best_north', 'SELECT x, y FROM points')",
    "drift": "SELECT * FROM mmdb.drift('best_north', 'SELECT x FROM points')",
    "score_on_insert": "SELECT mmdb.score_on_insert('work.t', 'best_north', 'y')",
    "unschedule": "SELECT mmdb.unschedule('run_north')",
    "tensor_values": "SELECT mmdb.tensor_values('model_north', '0.weight')",
    "model_diff": "SELECT * FROM mmdb.model_diff('model_north@1', 'model_north@2')",
    "set_alias": "SELECT mmdb.set_alias('model_north', 1, 'mine')",
    "rollback_alias": "SELECT mmdb.rollback_alias('model_north', 'prod')",
    "refresh_dataset": "SELECT * FROM mmdb.refresh_dataset('data_north')",
    "begin_retraining": "SELECT * FROM mmdb.begin_retraining('model_north')",
    "end_retraining": "SELECT * FROM mmdb.end_retraining('run_north')",
    "forget": "SELECT * FROM mmdb.forget('data_north', 'x > 0')",
    "tag_model": "SELECT mmdb.tag_model('model_north', 'mine', 'x')",
    "note_model": "SELECT mmdb.note_model('model_north', 'x')",
    "log_metric": "SELECT mmdb.log_metric('model_north', 'accuracy', 1)",
    "drop_model": "SELECT * FROM mmdb.drop_model('model_north', 1)",
    "drop_dataset": "SELECT mmdb.drop_dataset('data_north', true)",
    "drop_run": "SELECT mmdb.drop_run('run_north')",
    "create_run": "SELECT * FROM mmdb.create_run('x', 'data_north', 'linear')",
    "train_hop": "SELECT * FROM mmdb.train_hop({part_id}, {candidate_id})",
    "train_hops": "SELECT * FROM mmdb.train_hops({part_id}, ARRAY[{candidate_id}])",
    "begin_candidate": "SELECT * FROM mmdb.begin_candidate({candidate_id})",
    "clone_candidate": "SELECT mmdb.clone_candidate({candidate_id})",
    "stop_candidate": "SELECT mmdb.stop_candidate({candidate_id})",
    "save_candidate": "SELECT * FROM mmdb.save_candidate({candidate_id}, 'mine')",
    "submit": "SELECT * FROM mmdb.submit('run_north')",
    "cancel_run": "SELECT * FROM mmdb.cancel_run('run_north')",
    "explain_train": "SELECT * FROM mmdb.explain_train('run_north')",
    "zoo_admit": "SELECT mmdb.zoo_admit('model_north')",
    "zoo_refuse": "SELECT mmdb.zoo_refuse('model_north')",
    "similar_models": "SELECT * FROM mmdb.similar_models('model_north')",
    "accept_parent": "SELECT mmdb.accept_parent('model_north', 'model_north@1')",
    "share_model": "SELECT mmdb.share_model('model_north', 'bob')",
    "share_dataset": "SELECT mmdb.share_dataset('data_north', 'bob')",
    "share_run": "SELECT mmdb.share_run('run_north', 'bob')",
    "share_objects": "SELECT mmdb.share_objects('model', ARRAY[{model_id}]::bigint[], 'bob', true)",
    "common_prefix": "SELECT * FROM mmdb.common_prefix('model_north@1')",
    "match": "SELECT * FROM mmdb.match('model_north@1')",
    "import_model": "SELECT * FROM mmdb.import_model('x', 'mine', parent => 'model_north')",
    "attach": "SELECT * FROM mmdb.attach('model_north', 'linear', 'data_south')",
    "train": "CALL mmdb.train('run_north')",
}


def test_what_is_anothers_is_not_read(teams: Teams) -> None:
    teams.run(
        "CREATE OR REPLACE FUNCTION public.tell(a text) RETURNS boolean LANGUAGE plpgsql COST 0.01"
        " AS $$ BEGIN IF a LIKE '%\\_north' THEN RAISE 'told'; END IF; RETURN true; END $$"
    )
    known = numbers(teams)
    for role in ("bob", "rob"):
        with psycopg.connect(teams.url_of(role), autocommit=True) as session:
            for what, sql in GET.items():
                with pytest.raises(psycopg.Error) as raised:
                    session.execute(sql.format(**known).encode())
                assert str(raised.value.sqlstate) in {"42501", "MM159"}, what
                if what != "lineage":
                    assert teams.rows_of(role, sql.format(**known)) == [], what


def test_an_index_borrows_nobodys_rights(teams: Teams) -> None:
    """ANALYZE by a superuser calls the code of whoever made the index, in its own session."""
    with teams.connect("bob") as bob:
        bob.sql("CREATE TABLE work.bait AS SELECT 1 AS a")
        bob.sql(
            "CREATE FUNCTION work.peek() RETURNS integer LANGUAGE plpgsql AS $$ BEGIN"
            " RETURN (SELECT count(*) FROM mmdb_call.runs_find_run('run_north')); END $$"
        )
        bob.sql(
            "CREATE FUNCTION work.trap(integer) RETURNS integer LANGUAGE plpgsql IMMUTABLE AS $$"
            " BEGIN IF current_setting('work.armed', true) = 'yes' THEN RETURN work.peek(); END IF;"
            " RETURN 0; END $$"
        )
        bob.sql("CREATE INDEX ON work.bait (work.trap(a))")
    with psycopg.connect(teams.url, autocommit=True) as owner:
        owner.execute("SET work.armed = 'yes'")
        with pytest.raises(psycopg.Error, match="within security-restricted operation"):
            owner.execute("ANALYZE work.bait")
        owner.execute("DROP TABLE work.bait")
        owner.execute("DROP FUNCTION work.trap, work.peek")


def test_nothing_is_written_beside_what_is_anothers(teams: Teams) -> None:
    known = numbers(teams)
    with psycopg.connect(teams.url_of("bob"), autocommit=True) as session:
        for what, sql in PUT.items():
            for through in (False, True):
                with pytest.raises(psycopg.Error) as raised:
                    statement = sql.format(**known)
                    if through:
                        session.execute("SELECT public.through(%s)", [statement])
                    else:
                        session.execute(statement.encode())
                assert raised.value.sqlstate in {"42501", "MM155"}, (what, str(raised.value))


@pytest.fixture
def imports(teams: Teams) -> Iterator[None]:
    """Let the owner name a folder with a file 'x' in it."""
    with TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        save_file({"w": torch.ones(2)}, Path(folder, "x"))
        os.chmod(Path(folder, "x"), 0o644)
        teams.run(f"INSERT INTO mmdb.setting VALUES ('import_directory', '{folder}')")
        yield
    teams.run("DELETE FROM mmdb.setting WHERE name = 'import_directory'")


@pytest.mark.usefixtures("imports")
def test_no_call_does_anything_with_what_is_anothers(teams: Teams) -> None:
    known = numbers(teams)
    with psycopg.connect(teams.url_of("bob"), autocommit=True) as session:
        for what, sql in CALL.items():
            with pytest.raises(psycopg.Error) as raised:
                session.execute(sql.format(**known).encode())
            state = str(raised.value.sqlstate)
            allowed = {"42501"} if what == "share_objects" else {"MM407"}
            assert state[:4] == "MM15" or state in allowed | {"MM163"}, (
                what,
                state,
                str(raised.value),
            )


def test_a_name_of_another_team_is_refused_with_a_hint(teams: Teams) -> None:
    with teams.connect("bob") as db:
        with pytest.raises(errors.RightsMissing) as raised:
            db.save("model_north", module(3))
        assert "name is taken" in raised.value.hint
        for create in (
            lambda: db.create_dataset("data_north", QUERY, partitions=1),
            lambda: db.create_run("run_north", dataset="data_south", architecture="linear"),
        ):
            with pytest.raises((errors.AlreadyExists, errors.WriteConflict)):
                create()


# -- one store, and shares of it ----------------------------------------------


def test_equal_tensors_of_two_teams_are_stored_apart(teams: Teams) -> None:
    with teams.connect() as db:
        rows = db.sql(
            "SELECT tensor_hash, array_agg(owner ORDER BY owner) AS owners FROM mmdb.tensor"
            " WHERE byte_count = 64 * 64 * 4 GROUP BY 1"
        )
    assert [row["owners"] for row in rows] == [["bob", "team_a"]] * 2  # version 1 and 2
    for role, name in (("amy", "model_north"), ("bob", "model_south")):
        with teams.connect(role) as db:
            found = db.recover(f"{name}@1", into=module(7)).state_dict()
            for path, tensor in module().state_dict().items():
                assert torch.equal(found[path], tensor), path


def test_a_model_is_shared_and_taken_back(teams: Teams) -> None:
    with teams.connect("ann") as ann, teams.connect("bob") as bob:
        assert ann.share_model("model_north", "bob") == 2
        assert ann.share_model("best_north", "bob") == 1
        try:
            assert len(bob.predict("best_north", [0.5])) == 2
            for version in (1, 2):  # the second is a difference to the first
                bob.recover(f"model_north@{version}", into=module(7))
            assert {"model_north", "best_north"} <= {
                row["model"] for row in bob.sql("SELECT model FROM mmdb.model_overview")
            }
            rows_of_hers = (
                "SELECT 1 FROM mmdb.block AS b JOIN mmdb.partition AS p USING (part_id)"
                " JOIN mmdb.dataset AS d USING (dataset_id) WHERE d.name = 'data_north'"
            )
            assert teams.rows_of("bob", rows_of_hers) == []
            for change in (
                lambda: bob.tag("model_north", stage="stolen"),
                lambda: bob.note("model_north", "x"),
                lambda: bob.set_alias("model_north", "prod", version=2),
                lambda: bob.drop_model("model_north@2"),
                lambda: bob.save("model_north", module(3)),
                lambda: bob.create_run("on_a", dataset="data_north", architecture="linear"),
            ):
                with pytest.raises(errors.RightsMissing):
                    change()
            tuned = bob.recover("model_north@1", into=module(7))
            saved = bob.save("tuned_south", tuned, parent="model_north@1")
            assert saved.stored_bytes == 0  # of what it may read, nothing is stored twice
        finally:
            assert ann.share_model("model_north", "bob", shared=False) == 2
            assert ann.share_model("best_north", "bob", shared=False) == 1
        with pytest.raises(errors.ModelNotFound):
            bob.predict("best_north", [0.5])  # which this session holds in its memory
        bob.recover("tuned_south", into=module(7))  # it is bob's


def test_drift_is_seen_by_who_asked_and_by_the_models_team(teams: Teams) -> None:
    shown = "SELECT DISTINCT author FROM mmdb.drift_overview ORDER BY author"
    ask = ("best_north", "SELECT x, y FROM points")
    with teams.connect("ann") as ann, teams.connect("bob") as bob:
        ann.drift(*ask)
        ann.share_model("best_north", "bob")
        ann.share_dataset("data_north", "bob")
        try:
            assert bob.sql(shown) == []
            assert {row["column_name"] for row in bob.drift(*ask)} >= {"x", "y"}
            assert bob.sql(shown) == [{"author": "bob"}]
        finally:
            ann.share_model("best_north", "bob", shared=False)
            ann.share_dataset("data_north", "bob", shared=False)
        assert ann.sql(shown) == [{"author": "ann"}, {"author": "bob"}]
    for role, count in (("amy", 2), ("rita", 2), ("rob", 0)):
        with closing(open_connection(teams.url_of(role))) as session:
            assert len(session.select(shown)) == count, role


def test_a_session_that_takes_another_role_has_lost_what_it_knew(teams: Teams) -> None:
    predict = "SELECT mmdb.predict('best_north', ARRAY[1]::real[])"
    with psycopg.connect(teams.url, autocommit=True) as session:
        session.execute("SET ROLE amy")
        assert session.execute(predict).fetchone()
        session.execute("SET ROLE bob")
        with pytest.raises(psycopg.Error) as raised:
            session.execute(predict)
    assert raised.value.sqlstate == "MM156"


def test_a_function_that_takes_another_role_has_lost_what_it_knew(teams: Teams) -> None:
    """Within one statement of the client's, in which nothing is written."""
    predict = "PERFORM mmdb.predict('best_north', ARRAY[1]::real[]);"
    with psycopg.connect(teams.url, autocommit=True) as session:
        session.execute("SET ROLE amy")
        for _ in range(2):  # the first call of a session loads the model
            session.execute(f"DO $$ BEGIN {predict} {predict} END $$".encode())
        turn = f"DO $$ BEGIN {predict} RESET ROLE; SET ROLE bob; {predict} END $$"
        with pytest.raises(psycopg.Error) as raised:
            session.execute(turn.encode())
    assert raised.value.sqlstate == "MM156"


def test_a_dataset_is_shared_to_be_trained_on(teams: Teams) -> None:
    with teams.connect("ann") as ann, teams.connect("bob") as bob:
        assert ann.share_dataset("data_north", "bob") == 1
        try:
            run = bob.create_run("bob_on_a", dataset="data_north", architecture="linear")
            run.train(workers=1)
            assert ann.sql("SELECT run FROM mmdb.run_progress WHERE run = 'bob_on_a'") == []
            with pytest.raises(errors.RightsMissing):
                bob.drop_dataset("data_north", force=True)
        finally:
            ann.share_dataset("data_north", "bob", shared=False)
    owner = "SELECT owner FROM mmdb.model WHERE name = 'bob_on_a'"
    assert teams.rows_of("bob", owner) == [{"owner": "bob"}]


def test_a_shared_run_is_seen_and_not_trained(teams: Teams) -> None:
    with teams.connect("ann") as ann, teams.connect("bob") as bob:
        ann.share_run("run_north", "public")
        try:
            assert [r["run"] for r in bob.sql("SELECT DISTINCT run FROM mmdb.hop_timeline")].count(
                "run_north"
            ) == 1
            with pytest.raises(errors.RightsMissing, match="another team"):
                bob.run("run_north").train(workers=1)
            with pytest.raises(errors.RightsMissing):
                bob.run("run_north").submit()
        finally:
            ann.share_run("run_north", "public", shared=False)


def test_only_what_there_is_can_be_shared(teams: Teams) -> None:
    with teams.connect("ann") as db:
        with pytest.raises(errors.InvalidOption, match="no role 'nobody'"):
            db.share_model("model_north", "nobody")
        with pytest.raises(errors.ModelNotFound):
            db.share_model("model_south", "bob")


# -- those who serve all teams -------------------------------------------------


def test_the_workers_of_the_server_train_for_the_caller(teams: Teams, cluster: Cluster) -> None:
    bare = teams.url_of("serf").replace(f":{cluster.password}@", "@")
    teams.run(f"INSERT INTO mmdb.setting VALUES ('worker_dsn', '{bare}')")
    _train_by_the_server(teams)


def test_a_mean_belongs_to_the_team_whoever_takes_it(teams: Teams) -> None:
    widths = [[8], [16], [32], [64]]  # which all learn by heart, each in its own way
    space = {"lr": [0.1], "architecture.hidden": widths, "batch_size": [8], "optimizer": ["adam"]}
    with teams.connect("bob") as bob, teams.connect("ann") as ann:
        bob.create_run(
            "averaged",
            dataset="data_south",
            architecture="mlp(activation='tanh')",
            epochs=6,
            search={"space": space},
            options={"ensemble": 3, "metric": "loss"},
        )
        bob.run("averaged").train(workers=1)
        model = "SELECT model, members FROM mmdb.model_overview WHERE model = 'averaged'"
        (saved,) = bob.sql(model)
        assert saved["members"] in (2, 3) and ann.sql(model) == []
        lineage = bob.lineage("model:averaged@1")
        assert [edge["depth"] for edge in lineage].count(1) == saved["members"]


def test_groups_are_measured_for_the_team_whoever_saves_them(
    teams: Teams, cluster: Cluster
) -> None:
    teams.run(
        "CREATE TABLE public.shops AS SELECT i % 4 AS shop, i / 90.0 AS x, i % 4 + i / 90.0 AS y"
        " FROM generate_series(1, 90) AS g (i)",
        "GRANT SELECT ON public.shops TO bob",
    )
    bare = teams.url_of("serf").replace(f":{cluster.password}@", "@")
    with teams.connect("bob") as bob, teams.connect("ann") as ann:
        options = {"transforms": {"shop": "index"}}
        bob.create_dataset("shops", "SELECT shop, x, y FROM shops", label="y", options=options)
        for name in ("shops_bob", "shops_served"):
            how: dict[str, Any] = {"per": "shop", "architecture": "linear", "epochs": 2}
            bob.create_run(name, dataset="shops", options={"group_patience": 1}, **how)
        bob.run("shops_bob").train(workers=1)
        try:
            teams.run(f"INSERT INTO mmdb.setting VALUES ('worker_dsn', '{bare}')")
            with psycopg.connect(teams.url_of("bob"), autocommit=True) as session:
                session.execute("CALL mmdb.train('shops_served', 1)")
        finally:
            teams.run("DELETE FROM mmdb.setting")
        seen = "SELECT count(*) AS n FROM mmdb.group_overview WHERE model = '{}'"
        for name in ("shops_bob", "shops_served"):
            assert [one.sql(seen.format(name))[0]["n"] for one in (bob, ann)] == [4, 0]


def _train_by_the_server(teams: Teams) -> None:
    try:
        with (
            psycopg.connect(teams.url_of("bob"), autocommit=True) as session,
            psycopg.connect(teams.url) as owner,
        ):
            session.execute(
                "SELECT * FROM mmdb.create_run('served', 'data_south', 'linear', search => "
                """'{"space": {"lr": [0.1, 0.2]}}', options => '{"ensemble": 2}')"""
            )
            session.execute("CALL mmdb.train('served', 1)")
            with pytest.raises(psycopg.Error) as raised:
                session.execute("CALL mmdb.train('run_north', 1)")
            assert raised.value.sqlstate == "MM153"
            owners = owner.execute(
                "SELECT m.owner, t.owner, l.owner FROM mmdb.model AS m"
                " JOIN mmdb.manifest AS l USING (manifest_id)"
                " LEFT JOIN mmdb.tensor AS t ON m.pack_id = t.tensor_id WHERE name = 'served'"
            ).fetchone()
    finally:
        teams.run("DELETE FROM mmdb.setting")
    assert owners == ("bob", "bob", "bob")


def test_what_is_dropped_is_taken_back_too(teams: Teams) -> None:
    with teams.connect("ann") as ann:
        ann.save("leaving", module(6))
        assert ann.share_model("leaving", "bob") == 1
        ann.drop_model("leaving@1")
        with pytest.raises(errors.ModelNotFound):
            ann.share_model("leaving", "bob")
        assert ann.share_model("leaving", "bob", shared=False) == 1


def test_a_worker_begins_no_candidate_with_another_teams_model(teams: Teams) -> None:
    def parent(run: str) -> str | None:
        """Return the model that a run's only candidate begins with."""
        (row,) = worker.sql(
            "SELECT b.parent FROM mmdb.candidate_overview AS c CROSS JOIN LATERAL"
            " mmdb.begin_candidate(c.candidate_id) AS b WHERE c.run = %(run)s",
            {"run": run},
        )
        found: str | None = row["parent"]
        return found

    with teams.connect("bob") as bob, teams.connect("serf") as worker:
        bob.zoo_admit("best_south")
        for warm_start in ("auto", "best_south"):
            for when in ("before", "after"):
                run = f"{warm_start}_{when}"
                bob.create_run(
                    run, dataset="data_south", architecture="linear", warm_start=warm_start
                )
            assert parent(f"{warm_start}_before") == "best_south@1"
        teams.run("UPDATE mmdb.model SET owner = 'team_a' WHERE name = 'best_south'")
        try:
            assert parent("auto_after") is None and parent("best_south_after") is None
        finally:
            teams.run("UPDATE mmdb.model SET owner = 'bob' WHERE name = 'best_south'")


def test_an_admin_collects_garbage_of_all_teams_and_nothing_else(teams: Teams) -> None:
    with teams.connect("guard") as db:
        db.sql("SELECT * FROM mmdb.gc(false, '0 s')")
    for role, name in (("amy", "model_north"), ("bob", "model_south")):
        with teams.connect(role) as db:
            for version in (1, 2):
                db.recover(f"{name}@{version}", into=module(7))


# -- with and without teams ----------------------------------------------------


def test_definers_are_few_and_pinned(teams: Teams) -> None:
    with psycopg.connect(teams.url) as session:
        definers = session.execute(
            "SELECT proname, proconfig FROM pg_proc WHERE pronamespace = 'mmdb'::regnamespace"
            " AND prosecdef ORDER BY 1"
        ).fetchall()
        open_to_all = session.execute(
            "SELECT proname FROM pg_proc WHERE pronamespace = 'mmdb'::regnamespace"
            " AND has_function_privilege('public', oid, 'EXECUTE')"
        ).fetchall()
    assert {name for name, _ in definers} == {
        "generate", "keeps", "know_caller", "note_past_owner", "owns_candidate", "owns_name",
        "predict", "reads_manifest", "reads_model", "reads_tensor", "set_price", "share_dataset",
        "share_model", "share_run", "shows_dataset",
    }  # fmt: skip
    assert {tuple(config) for _, config in definers} == {("search_path=pg_catalog, pg_temp",)}
    assert open_to_all == []


def test_only_postgres_has_teams(duckdb_url: str) -> None:
    with pytest.raises(errors.InvalidOption, match="no teams on duckdb"):
        install(duckdb_url, teams=True)
    names = {path.name for path in current_files("postgres", teams=True)}
    assert {"postgres_teams.sql", "postgres_policies.sql"} <= names


def test_an_application_predicts_by_the_models_that_are_shared_with_it(teams: Teams) -> None:
    call = "SELECT mmdb.predict(%s, ARRAY[0.5]::real[])"
    with psycopg.connect(teams.url_of("app"), autocommit=True) as app:
        with pytest.raises(psycopg.Error) as raised:
            app.execute(call, ["best_north"])
        assert raised.value.sqlstate == "MM156"
        with teams.connect("ann") as ann:
            ann.share_model("best_north", "app")
            expected = ann.predict("best_north", [0.5])
        (found,) = app.execute(call, ["best_north"]).fetchone() or ()
        assert found == pytest.approx(expected)
        for other in ("best_south", "model_north"):
            with pytest.raises(psycopg.Error) as raised:
                app.execute(call, [other])
            assert raised.value.sqlstate == "MM156"
        with teams.connect("ann") as ann:
            ann.share_model("best_north", "app", shared=False)
        with pytest.raises(psycopg.Error) as raised:
            app.execute(call, ["best_north"])
        assert raised.value.sqlstate == "MM156"
