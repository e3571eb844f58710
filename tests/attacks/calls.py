"""Attacks by SQL: name, who tries it, the statement, and the error that it meets.

`{candidate}`, `{part}`, ... are ids of the scene.
"""

from __future__ import annotations

from typing import NamedTuple

from mmdb import errors


class Attack(NamedTuple):
    """One attempt."""

    name: str
    who: str  # a key of `scene.LOGINS`
    statement: str
    refused: type[errors.MmdbError]


CALL, DROP = "SELECT * FROM mmdb.", "'); DROP TABLE points; --"
RIGHTS, QUERY, OPTION = errors.RightsMissing, errors.QueryError, errors.InvalidOption


def _dataset(query: str) -> str:
    return f"{CALL}create_dataset('stolen', $q${query}$q$)"


def _run(architecture: str, more: str = "") -> str:
    return f"{CALL}create_run('stolen', 'd', $a${architecture}$a${more})"


def _into(target: str) -> str:
    return f"SELECT mmdb.predict_into('r', 'SELECT id, a FROM points', $t${target}$t$)"


def _sql_from_text() -> list[Attack]:
    """A statement hidden in what should be a name, a path or a SELECT."""
    return [
        Attack("a second statement in a query", "trainer",
               _dataset("SELECT a, y FROM points; CREATE TABLE stolen (a int)"), QUERY),
        Attack("a query that closes a parenthesis", "trainer",
               _dataset("SELECT a, y FROM points) AS q; DROP TABLE points; --"), QUERY),
        Attack("a comment that hides the rest", "trainer",
               _dataset("SELECT a, y FROM points /* */; DELETE FROM mmdb.hop /*"), QUERY),
        Attack("a CTE that writes", "trainer",
               _dataset("WITH x AS (INSERT INTO points VALUES (1, 1, 1) RETURNING a, y) "
                        "SELECT * FROM x"), QUERY),
        Attack("SELECT INTO", "trainer", _dataset("SELECT a, y INTO stolen FROM points"), QUERY),
        Attack("COPY to a program", "trainer",
               _dataset("COPY (SELECT 1) TO PROGRAM 'id'"), QUERY),
        Attack("a DO block", "trainer", _dataset("DO $$ BEGIN END $$"), QUERY),
        Attack("a lock in a query", "trainer",
               _dataset("SELECT a, y FROM points FOR UPDATE"), errors.MmdbError),
        Attack("mmdb's own calls in a query", "trainer",
               _dataset("SELECT mmdb.drop_model('r', 1)::text AS a, y FROM points"), QUERY),
        Attack("mmdb's own calls in quotes", "trainer",
               _dataset('SELECT "mmdb"."drop_dataset"(\'d\', true) AS a, y FROM points'), QUERY),
        Attack("mmdb's tables in a query", "reader",
               f"{CALL}predict_query('r', 'SELECT candidate_id AS id, 1.0 AS a FROM mmdb.hop')",
               RIGHTS),
        Attack("a file read by a query", "trainer",
               _dataset("SELECT pg_read_file('/etc/passwd') AS a, y FROM points"),
               errors.MmdbError),
        Attack("passwords read by a query", "trainer",
               _dataset("SELECT rolpassword AS a, 1 AS y FROM pg_authid"), errors.MmdbError),
        Attack("a table of others read by a query", "trainer",
               _dataset("SELECT pay AS a, id % 2 AS y FROM salary"), errors.MmdbError),
        Attack("the same in a subquery", "trainer",
               _dataset("SELECT a, (SELECT max(pay) FROM salary) % 2 AS y FROM points"),
               errors.MmdbError),
        Attack("the same to predict from", "trainer",
               f"{CALL}predict_query('r', 'SELECT id, pay AS a FROM salary')", errors.MmdbError),
        Attack("a query that runs on for ever", "trainer",
               "SET statement_timeout = '500ms'; "
               + _dataset("SELECT pg_sleep(60)::text AS a, y FROM points"), errors.MmdbError),
        Attack("a rollback in a query", "trainer", _dataset("ROLLBACK"), QUERY),
        Attack("a role set in a query", "trainer", _dataset("SET ROLE postgres"), QUERY),
        Attack("a label that is SQL", "trainer",
               f"{CALL}create_dataset('stolen', 'SELECT a, y FROM points', label => 'y{DROP[1:]}')"
               .replace("y)", "y''"), errors.UnknownColumn),
        Attack("a key that is SQL", "trainer",
               f"{CALL}predict_query('r', 'SELECT id, a FROM points', 'id\"; DROP TABLE points')",
               errors.UnknownColumn),
        Attack("a dataset's name that is SQL", "trainer",
               f"{CALL}create_dataset($n$x{DROP}$n$, 'SELECT a, y FROM points')",
               errors.InvalidName),
        Attack("an alias that is SQL", "trainer",
               f"SELECT mmdb.set_alias('r', 1, $n$x{DROP}$n$)", errors.InvalidName),
        Attack("a model chosen by SQL", "trainer",
               "SELECT mmdb.predict('r'' OR ''1''=''1', ARRAY[1.0]::real[])",
               errors.ModelNotFound),
        Attack("a tensor's path that is SQL", "trainer",
               f"SELECT mmdb.tensor_values('r', $n$weight{DROP}$n$)", errors.TensorNotFound),
        Attack("a tensor's path that is a file", "trainer",
               "SELECT mmdb.tensor_values('r', '../../../etc/passwd')", errors.TensorNotFound),
        Attack("an entity that is SQL", "reader",
               f"{CALL}lineage($n$model:r{DROP}$n$)", errors.MmdbError),
        Attack("a direction that is SQL", "reader",
               f"{CALL}lineage('model:r@1', $n$up{DROP}$n$)", OPTION),
    ]  # fmt: skip


def _targets() -> list[Attack]:
    """Predictions written where they must not be."""
    return [
        Attack("predictions into mmdb's tables", "trainer", _into("mmdb.factory"),
               errors.MmdbError),
        Attack("predictions into the catalog", "trainer", _into("pg_catalog.pg_proc"),
               errors.MmdbError),
        Attack("predictions into a table of others", "trainer", _into("salary"), errors.MmdbError),
        Attack("predictions into SQL", "trainer", _into('x" (id int); DROP TABLE points; --'),
               errors.MmdbError),
        Attack("predictions into a schema of others", "trainer", _into("public.stolen"),
               errors.MmdbError),
        Attack("predictions into another database", "trainer", _into("postgres.public.stolen"),
               errors.MmdbError),
        Attack("predictions into a temporary mmdb", "trainer",
               "CREATE TEMP TABLE factory (id int, prediction text, probability real); "
               + _into("pg_temp.factory"), errors.MmdbError),
    ]  # fmt: skip


def _architectures() -> list[Attack]:
    """Graphs that are code, that never end, or that are larger than any machine."""
    deep = "[" * 50_000 + "]" * 50_000
    cycle = (
        '{"layers": [{"type": "relu", "name": "a", "input": "b"}, '
        '{"type": "relu", "name": "b", "input": "a"}]}'
    )
    return [
        Attack("a factory that is a program", "trainer", _run("os:system"),
               errors.FactoryNotAllowed),
        Attack("a factory that imports", "trainer", _run('{"factory": "subprocess:run"}'),
               errors.FactoryNotAllowed),
        Attack("a factory's argument that is code", "trainer",
               _run("mlp(hidden=__import__('os').system('id'))"), errors.ArchitectureError),
        Attack("a factory's argument that is a comprehension", "trainer",
               _run("mlp(hidden=[64 for _ in range(10**9)])"), errors.ArchitectureError),
        Attack("a factory's argument that is a power", "trainer",
               _run("mlp(hidden=[9**9**9])"), errors.ArchitectureError),
        Attack("a billion layers", "trainer", _run("mlp(hidden=[1]*1000000000)"),
               errors.ArchitectureError),
        Attack("a layer of a billion", "trainer", _run("mlp(hidden=[1000000000])"),
               errors.ArchitectureError),
        Attack("a layer of less than nothing", "trainer", _run("mlp(hidden=[-5])"),
               errors.ArchitectureError),
        Attack("a graph as deep as the stack", "trainer", _run('{"layers": ' + deep + "}"),
               errors.InvalidLayerGraph),
        Attack("a graph with a cycle", "trainer", _run(cycle), errors.InvalidLayerGraph),
        Attack("a layer that mmdb does not know", "trainer",
               _run('{"layers": [{"type": "__import__"}]}'), errors.InvalidLayerGraph),
        Attack("a layer that is a dunder", "trainer",
               _run('{"layers": [{"type": "linear", "__class__": "x"}]}'),
               errors.InvalidLayerGraph),
        Attack("a layer of NaN", "trainer",
               _run('{"layers": [{"type": "linear", "features": NaN}]}'), errors.InvalidLayerGraph),
        Attack("a layer of 1e400", "trainer",
               _run('{"layers": [{"type": "linear", "features": 1e400}]}'),
               errors.InvalidLayerGraph),
        Attack("the same key twice", "trainer",
               _run('{"layers": [{"type": "relu"}], "layers": []}'), errors.InvalidLayerGraph),
        Attack("a hundred thousand layers", "trainer",
               _run('{"layers": [' + ",".join(['{"type": "relu"}'] * 100_000) + "]}"),
               errors.InvalidLayerGraph),
        Attack("a million candidates", "trainer",
               _run("linear", """, '{"space": {"lr": {"low": 0.1, "high": 1}}, "method": "random",
                    "trials": 1000000000}'::jsonb"""), errors.SearchError),
        Attack("a product of lists without end", "trainer",
               _run("linear", ", (SELECT jsonb_build_object('space', jsonb_build_object("
                    "'lr', l, 'loss', l, 'schedule', l, 'optimizer', l)) "
                    "FROM (SELECT jsonb_agg(i) AS l FROM generate_series(1, 1000) AS g(i)) AS x)"),
               errors.SearchError),
        Attack("a search of strange keys", "trainer",
               _run("linear", """, '{"space": {"__class__": [1]}}'::jsonb"""), errors.SearchError),
        Attack("options that are a list", "trainer",
               _run("linear", ", options => '[1]'::jsonb"), errors.InputError),
        Attack("a search as deep as the stack", "trainer",
               _run("linear", ", (repeat('[', 100000) || repeat(']', 100000))::jsonb"),
               errors.MmdbError),
    ]  # fmt: skip


def _sizes() -> list[Attack]:
    """Input larger than it could ever be meant."""
    return [
        Attack("a name of 64 MB", "trainer",
               f"{CALL}create_run(repeat('x', 67108864), 'd', 'linear')", errors.InvalidName),
        Attack("a query of 16 MB", "trainer",
               f"{CALL}create_dataset('stolen', 'SELECT ' || repeat('a,', 8388608) || "
               "' y FROM points')", errors.MmdbError),
        Attack("a query of a million parentheses", "trainer",
               f"{CALL}create_dataset('stolen', 'SELECT a, y FROM points WHERE ' || "
               "repeat('(', 1000000))", QUERY),
        Attack("an architecture of 16 MB", "trainer",
               f"{CALL}create_run('stolen', 'd', repeat('linear', 2796202))",
               errors.ArchitectureError),
        Attack("a row of a million numbers", "trainer",
               "SELECT mmdb.predict('r', array_fill(1.0::real, ARRAY[1000000]))",
               errors.InvalidInput),
        Attack("more partitions than there are rows", "trainer",
               f"{CALL}create_dataset('stolen', 'SELECT a, y FROM points', "
               "partitions => 2147483647)", errors.InputError),
        Attack("a shape of 2 ** 62", "trainer",
               f"{CALL}create_dataset('stolen', 'SELECT a, y FROM points', "
               "options => '{\"shape\": [4611686018427387904, 2]}')", errors.InputError),
        Attack("a range beyond every tensor", "trainer",
               "SELECT mmdb.tensor_values('r', (SELECT min(path) FROM mmdb.tensor_storage), "
               "-9223372036854775808, 9223372036854775807)", errors.MmdbError),
        Attack("as many parents as there are numbers", "trainer",
               f"{CALL}match('linear', k => 2147483647, dataset => 'nothing')", errors.InputError),
        Attack("a depth without end", "reader",
               f"{CALL}lineage('nothing:at all', max_depth => 2147483647)", errors.InputError),
        Attack("a note of 16 MB", "trainer",
               "SELECT mmdb.note_model('r', repeat('x', 16777216))", errors.InputError),
        Attack("a tag of 16 MB", "trainer",
               "SELECT mmdb.tag_model('r', 'key', repeat('x', 16777216))", errors.InputError),
    ]  # fmt: skip


def _names() -> list[Attack]:
    """Objects of one's own under the names that mmdb uses: none of them is ever called."""
    own = (
        "CREATE FUNCTION pg_temp.{}({}) RETURNS {} LANGUAGE plpgsql AS $f$ BEGIN "
        "RAISE EXCEPTION 'shadowed'; END $f$; SET search_path = pg_temp, mmdb, pg_catalog; "
    )
    gone = f"{CALL}create_run('stolen', 'nothing', 'linear')"
    return [
        Attack("a function that shadows count", "trainer",
               own.format("count", "bigint", "bigint") + gone, errors.DatasetNotFound),
        Attack("a function that shadows jsonb's", "trainer",
               own.format("jsonb_build_object", "text, text", "jsonb") + gone,
               errors.DatasetNotFound),
        Attack("a function that shadows predict", "trainer",
               own.format("predict", "text, real[]", "real[]")
               + "SELECT mmdb.predict('nothing', ARRAY[1.0]::real[])", errors.ModelNotFound),
        Attack("a table that shadows the factories", "trainer",
               "CREATE TEMP TABLE factory (name text, target text); "
               "INSERT INTO factory VALUES ('evil', 'os:system'); "
               "SET search_path = pg_temp, mmdb, pg_catalog; " + _run("evil"),
               errors.UnknownFactory),
        Attack("a table that shadows the models", "trainer",
               "CREATE TEMP TABLE model AS SELECT * FROM mmdb.model_overview; "
               "SET search_path = pg_temp, mmdb; SELECT mmdb.predict('nope', ARRAY[1.0]::real[])",
               errors.ModelNotFound),
        Attack("a table that shadows the rows of a query", "trainer",
               "CREATE TEMP TABLE pg_class (oid int); SET search_path = pg_temp, public; "
               + _dataset("SELECT a, y FROM nowhere"), QUERY),
        Attack("an operator that shadows =", "trainer",
               own.format("equal", "text, text", "boolean")
               + "CREATE OPERATOR pg_temp.= (LEFTARG = text, RIGHTARG = text, "
               "FUNCTION = pg_temp.equal); " + gone, errors.DatasetNotFound),
        Attack("a type that shadows text", "trainer",
               "CREATE DOMAIN pg_temp.text AS int; SET search_path = pg_temp, mmdb, pg_catalog; "
               + gone, errors.DatasetNotFound),
        Attack("a search path of nothing", "trainer",
               "SET search_path = ''; " + gone, errors.DatasetNotFound),
        Attack("a cast of one's own", "trainer",
               "CREATE CAST (text AS jsonb) WITH INOUT AS IMPLICIT", RIGHTS),
        Attack("an operator in the catalog", "trainer",
               "CREATE OPERATOR pg_catalog.=== (LEFTARG = text, RIGHTARG = text, "
               "FUNCTION = pg_catalog.texteq)", RIGHTS),
        Attack("a schema of one's own", "trainer", "CREATE SCHEMA evil", RIGHTS),
        Attack("a trigger on mmdb's rows", "trainer",
               "CREATE TRIGGER t AFTER INSERT ON mmdb.run FOR EACH ROW "
               "EXECUTE FUNCTION suppress_redundant_updates_trigger()", RIGHTS),
        Attack("a rule on mmdb's rows", "trainer",
               "CREATE RULE r AS ON INSERT TO mmdb.run DO INSTEAD NOTHING", RIGHTS),
        Attack("a policy on mmdb's rows", "trainer",
               "CREATE POLICY p ON mmdb.run USING (true)", RIGHTS),
    ]  # fmt: skip


def _rights() -> list[Attack]:
    """What a role may not do, by mmdb's functions and past them."""
    return [
        Attack("an outsider looks at a view", "outsider", f"{CALL}leaderboard", RIGHTS),
        Attack("an outsider predicts", "outsider",
               "SELECT mmdb.predict('r', ARRAY[1.0]::real[])", RIGHTS),
        Attack("an outsider asks for lineage", "outsider", f"{CALL}lineage('model:r@1')", RIGHTS),
        Attack("a reader trains", "reader", "CALL mmdb.train('s')", RIGHTS),
        Attack("a reader predicts", "reader",
               "SELECT mmdb.predict('r', ARRAY[1.0]::real[])", RIGHTS),
        Attack("a reader reads weights", "reader", "SELECT data FROM mmdb.tensor_chunk", RIGHTS),
        Attack("a reader drops a model", "reader", "SELECT mmdb.drop_model('r', 1)", RIGHTS),
        Attack("a trainer registers code", "trainer",
               "SELECT mmdb.register_factory('evil', 'os:system')", errors.FactoryNotAllowed),
        Attack("a trainer writes down code", "trainer",
               "INSERT INTO mmdb.factory (name, target) VALUES ('evil', 'os:system')", RIGHTS),
        Attack("a trainer registers a loss", "trainer",
               "SELECT mmdb.register_function('evil', 'os:system', 'loss')", errors.MmdbError),
        Attack("an admin registers what is not allowed", "admin",
               "SELECT mmdb.register_factory('evil', 'os:system')", errors.MmdbError),
        Attack("an admin writes it down", "admin",
               "INSERT INTO mmdb.factory (name, target) VALUES ('evil', 'os:system')", RIGHTS),
        Attack("an admin allows it", "admin",
               "INSERT INTO mmdb.setting (name, value) VALUES ('admin_targets', 'os')", RIGHTS),
        Attack("a trainer names the worker's login", "trainer",
               "UPDATE mmdb.setting SET value = 'host=192.0.2.1' WHERE name = 'worker_dsn'",
               RIGHTS),
        Attack("an admin names the worker's login", "admin",
               "INSERT INTO mmdb.setting (name, value) VALUES ('worker_dsn', 'host=192.0.2.1') "
               "ON CONFLICT (name) DO UPDATE SET value = 'host=192.0.2.1'", RIGHTS),
        Attack("a trainer changes history", "trainer", "UPDATE mmdb.hop SET loss = 0", RIGHTS),
        Attack("a trainer deletes a model", "trainer", "DELETE FROM mmdb.model", RIGHTS),
        Attack("a trainer empties a table", "trainer", "TRUNCATE mmdb.tensor_chunk", RIGHTS),
        Attack("a trainer replaces a function", "trainer",
               "CREATE OR REPLACE FUNCTION mmdb.node() RETURNS text LANGUAGE sql AS 'SELECT 1'",
               RIGHTS),
        Attack("a trainer makes a function of mmdb", "trainer",
               "CREATE FUNCTION mmdb.predict(text, text) RETURNS text LANGUAGE sql AS 'SELECT $1'",
               RIGHTS),
        Attack("a trainer becomes an admin", "trainer", "SET ROLE mmdb_admin", RIGHTS),
        Attack("a trainer makes an admin", "trainer", "GRANT mmdb_admin TO attack_trainer",
               RIGHTS),
        Attack("a trainer runs Python", "trainer",
               "DO LANGUAGE plpython3u $$ import os $$", RIGHTS),
        Attack("an admin runs Python", "admin", "DO LANGUAGE plpython3u $$ import os $$", RIGHTS),
        Attack("an admin sets the import path", "admin",
               "SET dynamic_library_path = '/tmp'", RIGHTS),
        Attack("an admin reads the server's files", "admin",
               "SELECT pg_read_file('/etc/passwd')", RIGHTS),
        Attack("an admin drops the schema", "admin", "DROP SCHEMA mmdb CASCADE", RIGHTS),
        Attack("an admin takes a view over", "admin",
               "CREATE OR REPLACE VIEW mmdb.leaderboard AS SELECT 1 AS x", RIGHTS),
        Attack("a trainer lets the server call another machine", "trainer",
               "SELECT * FROM mmdb.train_group(ARRAY[{part}], {candidate}, 0, "
               """'{{"name": "x", "rank": 0, "size": 2, "host": "192.0.2.1", "port": 80}}')""",
               OPTION),
        Attack("a trainer names a device that is a path", "trainer",
               "SELECT mmdb.warm_up('/dev/mem')", errors.MmdbError),
        Attack("a measurement that is a program", "trainer",
               """SELECT * FROM mmdb.measure('{{"what": "os.system", "command": "id"}}')""",
               errors.MmdbError),
        Attack("a hop of a candidate on others' rows", "trainer",
               f"{CALL}train_hop(999999, {{candidate}})", errors.InputError),
        Attack("hops of candidates on others' rows", "trainer",
               f"{CALL}train_hops(999999, ARRAY[{{candidate}}])", errors.InputError),
        Attack("a hop out of its turn", "trainer",
               f"{CALL}train_hop({{part}}, {{candidate}}, 7)", errors.HopError),
    ]  # fmt: skip


ATTACKS = [*_sql_from_text(), *_targets(), *_architectures(), *_sizes(), *_names(), *_rights()]
