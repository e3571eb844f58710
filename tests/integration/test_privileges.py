"""Who may do what with every object of schema mmdb.

`.venv/bin/python -m tests.integration.test_privileges` writes `privileges.txt` anew.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import psycopg
import pytest

from mmdb import api, errors
from mmdb.db.install import install
from mmdb.db.postgres import PostgresConnection
from mmdb.graph.factories import linear
from tests.cluster import Cluster

GOLDEN = Path(__file__).with_name("privileges.txt")

#: Kind, name, grantee and privileges; what has no list of its own has PostgreSQL's default one.
LISTING = """
WITH object (kind, name, acl) AS (
    SELECT 'schema', n.nspname::text, coalesce(n.nspacl, acldefault('n', n.nspowner))
    FROM pg_namespace AS n
    WHERE n.nspname IN ('mmdb', 'mmdb_call')
    UNION ALL
    SELECT
        CASE c.relkind WHEN 'v' THEN 'view' WHEN 'S' THEN 'sequence' ELSE 'table' END,
        c.relname::text,
        coalesce(
            c.relacl,
            acldefault((CASE c.relkind WHEN 'S' THEN 's' ELSE 'r' END)::"char", c.relowner)
        )
    FROM pg_class AS c
    WHERE c.relnamespace = 'mmdb'::regnamespace AND c.relkind NOT IN ('i', 'I', 'c', 't')
    UNION ALL
    SELECT 'column', c.relname || '.' || a.attname, a.attacl
    FROM pg_attribute AS a
    INNER JOIN pg_class AS c ON a.attrelid = c.oid
    WHERE c.relnamespace = 'mmdb'::regnamespace AND a.attacl IS NOT NULL
    UNION ALL
    SELECT
        CASE
            WHEN p.prosecdef THEN 'definer' WHEN p.prokind = 'p' THEN 'procedure' ELSE 'function'
        END,
        p.proname || '(' || pg_get_function_identity_arguments(p.oid) || ')',
        coalesce(p.proacl, acldefault('f', p.proowner))
    FROM pg_proc AS p
    WHERE p.pronamespace IN ('mmdb'::regnamespace, 'mmdb_call'::regnamespace)
    UNION ALL
    SELECT 'type', t.typname::text, coalesce(t.typacl, acldefault('T', t.typowner))
    FROM pg_type AS t
    INNER JOIN pg_class AS c ON t.typrelid = c.oid
    WHERE t.typnamespace = 'mmdb'::regnamespace AND c.relkind = 'c'
)

SELECT
    o.kind,
    o.name,
    CASE WHEN x.grantee = 0 THEN 'public' ELSE x.grantee::regrole::text END AS grantee,
    string_agg(lower(x.privilege_type), ' ' ORDER BY x.privilege_type) AS privileges
FROM object AS o
CROSS JOIN LATERAL aclexplode(o.acl) AS x
WHERE x.grantee <> 10 -- the superuser who installs
GROUP BY 1, 2, 3
UNION ALL
SELECT o.kind, o.name, 'owner only', ''
FROM object AS o
WHERE NOT EXISTS (SELECT 1 FROM aclexplode(o.acl) AS x WHERE x.grantee <> 10)
UNION ALL
SELECT
    'policy',
    c.relname || '.' || p.polname,
    r.role::regrole::text,
    CASE p.polcmd WHEN 'r' THEN 'select' WHEN 'a' THEN 'insert' ELSE 'all' END
FROM pg_policy AS p
INNER JOIN pg_class AS c ON p.polrelid = c.oid
CROSS JOIN LATERAL unnest(p.polroles) AS r (role)
WHERE c.relnamespace = 'mmdb'::regnamespace AND c.relrowsecurity
"""


def listing(url: str) -> list[str]:
    """Return one line for each object and each role that may use it."""
    with psycopg.connect(url) as connection:
        rows = connection.execute(LISTING).fetchall()
    return sorted(" | ".join(filter(None, row)) for row in rows)


def test_the_privileges_are_those_of_the_golden_file(postgres_url: str) -> None:
    command = "Run: .venv/bin/python -m tests.integration.test_privileges"
    assert listing(postgres_url) == GOLDEN.read_text().splitlines(), command


def test_the_public_may_use_nothing_but_types(postgres_url: str) -> None:
    assert {line.split()[0] for line in listing(postgres_url) if "| public |" in line} == {"type"}


# -- what the roles meet ------------------------------------------------------


@pytest.fixture
def role_url(postgres_url: str, cluster: Cluster) -> Iterator[str]:
    """Yield the URL of a role that may connect and nothing else."""
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute(f"CREATE ROLE eve LOGIN PASSWORD '{cluster.password}'".encode())
        yield postgres_url.replace("postgres:", "eve:", 1)
        connection.execute("DROP OWNED BY eve")
        connection.execute("DROP ROLE eve")


def grant(url: str, *statements: str) -> None:
    """Run statements as the superuser."""
    with psycopg.connect(url, autocommit=True) as connection:
        for statement in statements:
            connection.execute(statement.encode())


def names(kind: str) -> list[str]:
    """Return the names of the golden file's objects of a kind."""
    rows = [line.split(" | ") for line in GOLDEN.read_text().splitlines()]
    return sorted({name for found, name, *_ in rows if found == kind})


def test_a_stranger_sees_nothing(role_url: str) -> None:
    with closing(PostgresConnection(role_url)) as connection:
        for name in names("view") + names("table"):
            with pytest.raises(errors.RightsMissing):
                connection.select(f"SELECT * FROM mmdb.{name}")


def test_a_reader_sees_the_views_and_nothing_else(role_url: str, postgres_url: str) -> None:
    grant(postgres_url, "GRANT mmdb_reader TO eve")
    with closing(PostgresConnection(role_url)) as connection:
        for name in names("view"):
            connection.select(f"SELECT * FROM mmdb.{name}")
        for name in set(names("table")) - {"migration"}:  # by which a client knows the version
            with pytest.raises(errors.RightsMissing):
                connection.select(f"SELECT * FROM mmdb.{name}")
        with pytest.raises(errors.RightsMissing):
            connection.select("SELECT mmdb.warm_up()")


def test_views_show_no_bytes(postgres_url: str) -> None:
    with psycopg.connect(postgres_url) as connection:
        found = connection.execute(
            "SELECT table_name, column_name FROM information_schema.columns AS c"
            " INNER JOIN information_schema.views AS v USING (table_schema, table_name)"
            " WHERE table_schema = 'mmdb' AND data_type = 'bytea'"
        ).fetchall()
    assert found == []


def test_a_trainer_registers_no_factory(role_url: str, postgres_url: str) -> None:
    grant(postgres_url, "GRANT mmdb_trainer TO eve")
    with api.connect(role_url) as db, pytest.raises(errors.FactoryNotAllowed):
        db.register_factory("mine", "os:system")
    with api.connect(role_url) as db, pytest.raises(errors.RightsMissing):
        db.sql("INSERT INTO mmdb.factory (name, target) VALUES ('mine', 'os:system')")


def test_a_trainer_changes_no_setting_and_makes_no_object(role_url: str, postgres_url: str) -> None:
    grant(postgres_url, "GRANT mmdb_trainer TO eve")
    with closing(PostgresConnection(role_url)) as connection:
        for statement in (
            "UPDATE mmdb.setting SET value = ''",
            "INSERT INTO mmdb.setting (name, value) VALUES ('worker_dsn', '')",
            "CREATE TABLE mmdb.mine (a integer)",
            "UPDATE mmdb.hop SET loss = 0",
            "DELETE FROM mmdb.model",
            "UPDATE mmdb.dataset SET query = 'SELECT 1'",
            "DROP VIEW mmdb.leaderboard",
        ):
            with pytest.raises(errors.EngineError, match=r"permission denied|must be owner"):
                connection.select(statement)


def test_a_trainer_may_do_all_that_training_takes(role_url: str, postgres_url: str) -> None:
    grant(
        postgres_url,
        "GRANT mmdb_trainer TO eve",
        "CREATE TABLE public.points AS SELECT i AS id, sin(i)::real AS x, i % 2 AS y"
        " FROM generate_series(1, 100) AS i",
        "GRANT SELECT ON public.points TO eve",
    )
    with api.connect(role_url) as db:
        db.create_dataset("points", "SELECT x, y FROM public.points", partitions=1)
        db.create_run("search", dataset="points", architecture="linear")
        (candidate,) = db.sql("SELECT candidate_id FROM mmdb.leaderboard")
        for part in db.sql("SELECT part_id FROM mmdb.partition_overview ORDER BY role"):
            db.sql(
                "SELECT mmdb.train_hop(%(part)s::bigint, %(candidate)s::bigint)",
                {"part": part["part_id"], "candidate": candidate["candidate_id"]},
            )
        model = db.save_candidate(candidate["candidate_id"], "first")
        assert len(db.predict(model, [0.5])) == 2
        assert "accuracy" in db.evaluate(model, "points")
        assert db.drop_dataset("points", force=True) > 0


def test_a_trainer_reads_only_what_it_may_read_itself(role_url: str, postgres_url: str) -> None:
    grant(
        postgres_url,
        "GRANT mmdb_trainer TO eve",
        "CREATE TABLE public.salary AS SELECT 1 AS x, 2 AS y",
    )
    with api.connect(role_url) as db, pytest.raises(errors.MmdbError, match="salary"):
        db.create_dataset("salary", "SELECT x, y FROM public.salary", partitions=1)
    with psycopg.connect(postgres_url) as connection:
        assert connection.execute("SELECT count(*) FROM mmdb.dataset").fetchone() == (0,)


def call_by_sql(db: api.Database) -> None:
    db.sql("SELECT mmdb.create_dataset('pay', 'SELECT f(x) AS x, y FROM \"the pay\"')")


def call_by_python(db: api.Database) -> None:
    db.create_dataset("pay", 'SELECT f(x) AS x, y FROM "the pay"')


def call_as_another(db: api.Database) -> None:
    db.sql("SET ROLE eve_team")
    call_by_python(db)


@pytest.fixture
def eve_team(role_url: str, postgres_url: str) -> Iterator[None]:
    """Make a role that eve is a member of."""
    grant(postgres_url, "CREATE ROLE eve_team", "GRANT eve_team TO eve")
    yield
    grant(postgres_url, "DROP OWNED BY eve_team", "DROP ROLE eve_team")


@pytest.mark.usefixtures("eve_team")
@pytest.mark.parametrize(
    ("call", "role"),
    [(call_by_sql, "eve"), (call_by_python, "eve"), (call_as_another, "eve_team")],
)
def test_the_hint_of_a_missing_right_is_the_grant_that_mends_it(
    call: Callable[[api.Database], None], role: str, role_url: str, postgres_url: str
) -> None:
    grant(
        postgres_url,
        "GRANT mmdb_trainer TO eve, eve_team",
        'CREATE TABLE public."the pay" AS SELECT i AS x, i % 2 AS y FROM generate_series(1, 9) i',
        "CREATE FUNCTION public.f(integer) RETURNS real LANGUAGE sql AS 'SELECT $1::real'",
        "REVOKE EXECUTE ON FUNCTION f FROM public",
    )
    granted = []
    with api.connect(role_url) as db:
        while True:
            try:
                call(db)
                break
            except errors.RightsMissing as error:
                granted.append(error.hint.partition(";")[0])
                assert len(granted) < 5, granted
                grant(postgres_url, granted[-1])
    assert granted == [
        f'GRANT SELECT ON "the pay" TO "{role}"',
        f'GRANT EXECUTE ON FUNCTION "f" TO "{role}"',
    ]


def test_a_missing_right_on_code_sends_nobody_for_what_they_have(
    role_url: str, postgres_url: str
) -> None:
    grant(postgres_url, "GRANT mmdb_trainer TO eve")
    with api.connect(role_url) as db:
        for call in ("register_trainer('t', 'os:system')", "register_function('f', 'o:s', 'loss')"):
            with pytest.raises(errors.RightsMissing) as caught:
                db.sql(f"SELECT mmdb.{call}")
            assert "owner of schema mmdb" in caught.value.hint


# -- admins -------------------------------------------------------------------

NEVER_LOADED = "colorsys:rgb_to_hsv"  # the server's Python has no use for it


def test_the_roles_may_do_nothing_to_the_server(postgres_url: str) -> None:
    with psycopg.connect(postgres_url) as connection:
        roles = connection.execute(
            "SELECT rolname FROM pg_roles WHERE rolname LIKE 'mmdb\\_%'"
            " AND (rolsuper OR rolcreaterole OR rolcreatedb OR rolreplication"
            " OR rolbypassrls OR rolcanlogin)"
        ).fetchall()
        members = connection.execute(
            "SELECT m.member::regrole::text, m.roleid::regrole::text, m.admin_option"
            " FROM pg_auth_members AS m WHERE m.member::regrole::text LIKE 'mmdb\\_%' ORDER BY 1"
        ).fetchall()
    assert roles == []
    assert members == [
        ("mmdb_admin", "mmdb_trainer", False),
        ("mmdb_system", "mmdb_reader", False),
        ("mmdb_system_admin", "mmdb_system", False),
        ("mmdb_trainer", "mmdb_reader", False),
        ("mmdb_worker", "mmdb_trainer", False),
    ]


READ_A_QUERY = {
    *(
        "create_dataset",
        "predict_into",
        "embed_into",
        "predict_query",
        "evaluate",
        "compare_models",
    ),
    *("confusion_matrix", "roc_curve", "precision_recall", "calibration", "thresholds"),
    "calibrate_model",
    *("residuals", "importance", "explain_predict", "training_rows", "drift"),
    *("refresh_dataset", "begin_retraining", "forget"),
    *("schedule", "score_on_insert", "embed_on_insert", "stop_scoring"),
}


def test_every_function_runs_with_its_callers_rights(postgres_url: str) -> None:
    """Those of a database with teams that do not: tests/integration/test_ownership.py."""
    with psycopg.connect(postgres_url) as connection:
        definers = connection.execute(
            "SELECT proname FROM pg_proc WHERE pronamespace = 'mmdb'::regnamespace AND prosecdef"
        ).fetchall()
        calls = connection.execute(
            "SELECT DISTINCT prosecdef, proconfig FROM pg_proc"
            " WHERE pronamespace = 'mmdb_call'::regnamespace"
            " AND prosrc NOT IN ('byteasend', 'int8up')"  # which return what they are given
        ).fetchall()
        unpinned = connection.execute(
            "SELECT proname::text FROM pg_proc WHERE pronamespace = 'mmdb'::regnamespace"
            # the names in a body that is parsed once are resolved already
            " AND prokind = 'f' AND prosqlbody IS NULL"
            " AND NOT EXISTS (SELECT 1 FROM unnest(proconfig) AS c"
            " WHERE c = 'search_path=pg_catalog, pg_temp') ORDER BY 1"
        ).fetchall()
    # A predictor may call predict, and read nothing: tests/integration/test_predictor_role.py.
    assert {name for (name,) in definers} == {"keeps", "set_price", "predict", "generate"}
    assert calls == [(True, ["search_path=pg_catalog, pg_temp"])]
    # These run a query of the caller's, whose names are found as the caller finds them.
    assert {name for (name,) in unpinned} == READ_A_QUERY


def test_a_missing_right_inside_a_function_is_said_with_a_hint(
    role_url: str, postgres_url: str
) -> None:
    grant(
        postgres_url,
        "GRANT mmdb_reader TO eve",
        "GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA mmdb TO eve",  # none of the tables
    )
    with psycopg.connect(role_url, autocommit=True) as connection:
        for call in ("mmdb.tag_model('m', 'a', 'b')", "mmdb.drop_dataset('d')"):
            with pytest.raises(psycopg.Error, match="permission denied for") as raised:
                connection.execute(f"SELECT {call}".encode())
            assert raised.value.sqlstate == "MM407"
            assert "GRANT mmdb_trainer" in str(raised.value.diag.message_hint)


def test_no_setting_of_a_session_brings_code_into_the_server(
    role_url: str, postgres_url: str
) -> None:
    grant(postgres_url, "GRANT mmdb_admin TO eve")
    with psycopg.connect(role_url, autocommit=True) as connection:
        for name in ("dynamic_library_path", "session_preload_libraries", "jit_provider"):
            with pytest.raises(psycopg.Error) as raised:
                connection.execute(f"SET {name} = '/tmp'".encode())
            assert raised.value.sqlstate in {"42501", "55P02"}, name
        settings = connection.execute(
            "SELECT name FROM pg_settings WHERE name LIKE 'plpython%' OR name LIKE 'mmdb%'"
        ).fetchall()
    assert settings == []  # PL/Python takes its path from the server's environment alone


def test_an_admin_registers_what_the_owner_has_allowed(role_url: str, postgres_url: str) -> None:
    grant(
        postgres_url,
        "GRANT mmdb_admin TO eve",
        "CREATE FUNCTION public.loaded(name text) RETURNS boolean LANGUAGE plpython3u AS"
        " 'import sys; return name in sys.modules'",
    )
    loaded = "SELECT public.loaded('colorsys') AS it"

    def registers(target: str) -> bool:
        """Return whether all three kinds of code may be registered; then forget them."""
        given: list[Callable[[], object]] = [
            lambda: db.register_factory("mine", target),
            lambda: db.register_trainer("mine", target),
            lambda: db.register_function("mine", target, "metric"),
        ]
        refused = 0
        for register in given:
            try:
                register()
            except errors.RightsMissing:
                refused += 1
        grant(
            postgres_url,
            *(
                f"DELETE FROM mmdb.{name} WHERE name = 'mine'"
                for name in ("factory", "trainer", "function")
            ),
        )
        assert refused in (0, len(given))
        return not refused

    with api.connect(role_url) as db:
        for target in (NEVER_LOADED, "os:system", "mmdb.graph.factories:linear"):
            assert not registers(target)
        assert db.sql(loaded) == [{"it": False}]  # what is refused is not imported
        allowed = "acme, colorsys:rgb_to_hsv ,mmdb.graph, json"
        grant(postgres_url, f"INSERT INTO mmdb.setting VALUES ('admin_targets', ' {allowed} ')")
        for target in (NEVER_LOADED, "mmdb.graph.factories:linear", "json:dumps"):
            assert registers(target)
        assert db.sql(loaded) == [{"it": True}]
        for target in ("os:system", "colorsys:hsv_to_rgb", "mmdb.errors:MmdbError", "jsonschema:x"):
            assert not registers(target)


def test_an_admin_sets_a_price_and_nothing_else(role_url: str, postgres_url: str) -> None:
    settings = {"worker_dsn": "host=db", "admin_targets": "acme"}
    grant(
        postgres_url,
        "GRANT mmdb_admin TO eve",
        *(f"INSERT INTO mmdb.setting VALUES ('{n}', '{v}')" for n, v in settings.items()),
    )

    def found() -> dict[str, str]:
        with psycopg.connect(postgres_url) as owner:
            return dict(owner.execute("SELECT name, value FROM mmdb.setting").fetchall())

    with closing(PostgresConnection(role_url)) as connection:
        for price, kept in (
            ("2", "2.000000000"),
            ("0.015", "0.015000000"),
            ("1e9", "1000000000.0"),
        ):
            connection.select(f"SELECT mmdb.set_price({price})")
            assert found()["price_per_worker_hour"].startswith(kept)
        for price in ("'NaN'", "-1", "'infinity'"):
            with pytest.raises(errors.InvalidOption):
                connection.select(f"SELECT mmdb.set_price({price})")
        connection.select("SELECT mmdb.set_price(NULL)")
        for statement in (
            "INSERT INTO mmdb.setting VALUES ('price_per_worker_hour', '2')",
            "DELETE FROM mmdb.setting",
        ):
            with pytest.raises(errors.RightsMissing):
                connection.select(statement)
    assert found() == settings


def test_an_admin_collects_garbage_and_a_trainer_does_not(role_url: str, postgres_url: str) -> None:
    module = linear((200,), 200)
    with api.connect(postgres_url) as owner:
        owner.save("gone", module, architecture="linear", input_shape=(200,), outputs=200)
        owner.drop_model("gone@1")
    grant(postgres_url, "GRANT mmdb_trainer TO eve")
    with api.connect(role_url) as db:
        with pytest.raises(errors.RightsMissing):
            db.sql("SELECT * FROM mmdb.gc(false, '0 s')")
        grant(postgres_url, "GRANT mmdb_admin TO eve")
        went = {row["what"] for row in db.sql("SELECT * FROM mmdb.gc(false, '0 s')") if row["goes"]}
        assert went == {"model", "manifest", "tensor", "architecture"}
    with psycopg.connect(postgres_url) as owner:
        assert owner.execute("SELECT count(*) FROM mmdb.tensor_chunk").fetchone() == (0,)


def test_an_admin_makes_no_object_and_runs_no_code(role_url: str, postgres_url: str) -> None:
    grant(postgres_url, "GRANT mmdb_admin TO eve")
    with closing(PostgresConnection(role_url)) as connection:
        for statement in (
            "CREATE TABLE mmdb.mine (a integer)",
            "CREATE FUNCTION mmdb.mine() RETURNS integer LANGUAGE sql AS 'SELECT 1'",
            "CREATE FUNCTION pg_temp.mine() RETURNS integer LANGUAGE plpython3u AS 'return 1'",
            "DO LANGUAGE plpython3u $$ pass $$",
            "COPY (SELECT 1) TO PROGRAM 'id'",
            "UPDATE mmdb.factory SET target = 'os:system'",
            "UPDATE mmdb.trainer SET target = 'os:system'",
            "UPDATE mmdb.function SET target = 'os:system'",
            "DELETE FROM mmdb.factory",
            "ALTER TABLE mmdb.factory DISABLE ROW LEVEL SECURITY",
            "DROP POLICY factory_add ON mmdb.factory",
            "CREATE POLICY mine ON mmdb.factory FOR INSERT WITH CHECK (true)",
            "COPY mmdb.factory (name, target) FROM STDIN",
            "CREATE TRIGGER t BEFORE INSERT ON mmdb.factory FOR EACH ROW"
            " EXECUTE FUNCTION suppress_redundant_updates_trigger()",
            "SET ROLE postgres",
            "GRANT mmdb_admin TO eve WITH ADMIN OPTION",
            "ALTER ROLE mmdb_admin SUPERUSER",
            "CREATE ROLE mine SUPERUSER",
        ):
            with pytest.raises(errors.MmdbError, match=r"permission|must |COPY FROM not"):
                connection.select(statement)


if __name__ == "__main__":
    with Cluster() as own:
        install(own.url())
        GOLDEN.write_text("\n".join(listing(own.url())) + "\n")
