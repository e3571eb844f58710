"""A database of version 0.1, with models in it, comes over to the model store.

`schema_0_1` holds the SQL files of that version as they were published.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from mmdb.api import connect
from mmdb.db.ddl import translate_schema
from mmdb.db.duck import DuckConnection
from mmdb.db.install import install
from mmdb.db.queries import Query
from mmdb.db.url import AnyConnection
from mmdb.db.url import connect as open_connection
from mmdb.store.content import tensor_hash
from mmdb.store.models import find_model
from mmdb.store.recover import ModelReader, load_tensors
from mmdb.store.save import save_model
from tests.cluster import Cluster
from tests.integration.test_privileges import listing

OLD = Path(__file__).with_name("schema_0_1")
_numbers = count(1)

CHUNK = 1 << 20
TENSORS: dict[str, np.ndarray] = {
    "features.weight": np.arange(700_000, dtype=np.float32).reshape(1000, 700),  # three chunks
    "features.bias": np.arange(8, dtype=np.float32),
    "norm.running_mean": np.zeros(8, np.float32),
    "norm.num_batches_tracked": np.array(5, np.int64),
    "empty": np.zeros((0, 3), np.float32),
}
CHANGED = TENSORS | {"features.bias": np.arange(8, 16, dtype=np.float32)}


def query(sql: str) -> Query:
    """Return a statement with the placeholders of either engine."""
    return Query("test", "", sql)


ADD = {
    "dataset": query(
        "INSERT INTO mmdb.dataset (name, query, label, task, seed, partitions, validation,"
        " row_count, byte_count, content_hash, input_shape, classes, options)"
        " VALUES ('points', 'SELECT 1', 'y', 'classification', 0, 1, 0, 10, 80,"
        " %(content_hash)s::bytea, ARRAY[700], '[0, 1, 2]', '{}') RETURNING dataset_id"
    ),
    "run": query(
        "INSERT INTO mmdb.run (name, dataset_id, architecture, search, epochs, strategy,"
        " warm_start, seed, options) VALUES ('search', %(dataset_id)s::bigint,"
        " '{\"factory\": \"mlp\"}', '{}', 1, 'mop', 'off', 0, '{}') RETURNING run_id"
    ),
    "candidate": query(
        "INSERT INTO mmdb.candidate (run_id, ordinal, config, seed)"
        " VALUES (%(run_id)s::bigint, 0, '{}', 7) RETURNING candidate_id"
    ),
    "model": query(
        "INSERT INTO mmdb.model (name, version, architecture, arguments, dataset_id,"
        " candidate_id, epoch, metrics) VALUES ('search', %(version)s::integer,"
        ' \'{"factory": "mlp", "arguments": {"hidden": [8]}}\', \'{"hidden": [4]}\','
        " %(dataset_id)s::bigint, %(candidate_id)s::bigint, %(version)s::integer,"
        ' \'{"accuracy": 0.75, "rmse": null}\') RETURNING model_id'
    ),
    "tensor": query(
        "INSERT INTO mmdb.tensor (tensor_hash, dtype, shape, byte_count) VALUES"
        " (%(hash)s::bytea, %(dtype)s::text, %(shape)s::bigint[], %(byte_count)s::bigint)"
        " ON CONFLICT (tensor_hash) DO NOTHING RETURNING byte_count"
    ),
    "chunk": query(
        "INSERT INTO mmdb.tensor_chunk (tensor_hash, ordinal, data)"
        " VALUES (%(hash)s::bytea, %(ordinal)s::integer, %(data)s::bytea)"
    ),
    "member": query(
        "INSERT INTO mmdb.model_tensor (model_id, ordinal, path, tensor_hash) VALUES"
        " (%(model_id)s::bigint, %(ordinal)s::integer, %(path)s::text, %(hash)s::bytea)"
    ),
}


def old_files(engine: str) -> list[Path]:
    """Return the files of version 0.1 in the order in which it ran them."""
    files = [*sorted(OLD.glob("sql/schema/*.sql")), OLD / f"sql/engines/{engine}.sql"]
    files += [*sorted(OLD.glob("sql/functions/*.sql")), *sorted(OLD.glob("sql/views/*.sql"))]
    if engine == "postgres":
        files += [*sorted(OLD.glob("udf/*.sql")), OLD / "sql/engines/postgres_rights.sql"]
    return files


def install_old(connection: AnyConnection) -> None:
    """Make the schema of version 0.1."""
    connection.select("CREATE SCHEMA mmdb")
    for path in old_files(connection.engine):
        if isinstance(connection, DuckConnection) and path.parent.name != "engines":
            for statement in translate_schema(path.read_text()):
                connection.select(statement)
        else:
            connection.script(path.read_text())
    connection.select(
        "INSERT INTO mmdb.migration (number, name, digest) VALUES (0, 'schema', 'of 0.1')"
    )


def add_models(connection: AnyConnection) -> None:
    """Save two versions of a model, as version 0.1 did."""
    (dataset,) = connection.rows(ADD["dataset"], content_hash=b"d" * 32)
    (run,) = connection.rows(ADD["run"], **dataset)
    (candidate,) = connection.rows(ADD["candidate"], **run)
    for version, tensors in ((1, TENSORS), (2, CHANGED)):
        (model,) = connection.rows(ADD["model"], version=version, **dataset, **candidate)
        for ordinal, (path, array) in enumerate(tensors.items()):
            name = add_tensor(connection, array)
            connection.run(ADD["member"], **model, ordinal=ordinal, path=path, hash=name)


def add_tensor(connection: AnyConnection, array: np.ndarray) -> bytes:
    """Store an array, as version 0.1 did."""
    data = array.tobytes()
    name = tensor_hash(str(array.dtype), array.shape, data)
    shape = list(array.shape)
    added = connection.rows(
        ADD["tensor"], hash=name, dtype=str(array.dtype), shape=shape, byte_count=len(data)
    )
    for ordinal, start in enumerate(range(0, max(len(data), 1), CHUNK) if added else ()):
        chunk = data[start : start + CHUNK]
        connection.run(ADD["chunk"], hash=name, ordinal=ordinal, data=chunk)
    return name


@pytest.fixture
def empty_postgres_url(cluster: Cluster) -> Iterator[str]:
    """Return the URL of a PostgreSQL database with nothing but plpython3u."""
    name = f"mmdb_old_{next(_numbers)}"
    url = cluster.create_database(name, "template0")
    connection = open_connection(url)
    connection.select("CREATE EXTENSION plpython3u")
    connection.close()
    yield url
    cluster.drop_database(name)


@pytest.fixture(params=["duckdb", "empty_postgres"])
def old_url(request: pytest.FixtureRequest) -> str:
    """Return the URL of a database of version 0.1 with two models, once on each engine."""
    url = str(request.getfixturevalue(f"{request.param}_url"))
    connection = open_connection(url)
    with connection.transaction():
        install_old(connection)
        add_models(connection)
    connection.close()
    return url


@pytest.fixture
def fresh_url(request: pytest.FixtureRequest, old_url: str, tmp_path: Path) -> str:
    """Return the URL of a fresh database of the same engine."""
    if old_url.startswith("duckdb"):
        url = f"duckdb:///{tmp_path / 'fresh.duckdb'}"
        install(url)
        return url
    return str(request.getfixturevalue("postgres_url"))


POSTGRES_CATALOG = {
    "columns": """
        SELECT
            c.relname, c.relkind::text AS kind, a.attname,
            format_type(a.atttypid, a.atttypmod) AS type,
            a.attnotnull, a.attidentity::text AS identity, a.attstorage::text AS storage,
            pg_get_expr(d.adbin, d.adrelid) AS value,
            row_number() OVER (PARTITION BY c.oid ORDER BY a.attnum) AS place,
            col_description(c.oid, a.attnum) AS comment
        FROM pg_class AS c
        INNER JOIN pg_attribute AS a ON c.oid = a.attrelid AND a.attnum > 0 AND NOT a.attisdropped
        LEFT JOIN pg_attrdef AS d ON c.oid = d.adrelid AND a.attnum = d.adnum
        WHERE c.relnamespace = 'mmdb'::regnamespace AND c.relkind NOT IN ('i', 'I')
    """,
    "relations": """
        SELECT
            c.relname, c.relkind::text AS kind, c.relpersistence::text AS persistence,
            c.reloptions, pg_get_expr(c.relpartbound, c.oid) AS bound,
            pg_get_viewdef(c.oid) AS view, obj_description(c.oid) AS comment
        FROM pg_class AS c
        WHERE c.relnamespace = 'mmdb'::regnamespace
    """,
    "constraints": """
        SELECT
            c.conrelid::regclass::text AS relation, c.conname,
            pg_get_constraintdef(c.oid) AS definition
        FROM pg_constraint AS c
        WHERE c.connamespace = 'mmdb'::regnamespace
    """,
    "indexes": """
        SELECT pg_get_indexdef(i.indexrelid) AS definition
        FROM pg_index AS i
        INNER JOIN pg_class AS c ON i.indrelid = c.oid
        WHERE c.relnamespace = 'mmdb'::regnamespace
    """,
    "functions": """
        SELECT p.oid::regprocedure::text AS function, pg_get_functiondef(p.oid) AS definition
        FROM pg_proc AS p
        WHERE p.pronamespace = 'mmdb'::regnamespace
    """,
}
DUCKDB_CATALOG = {
    "columns": """
        SELECT
            table_name, column_name, data_type, is_nullable, lower(column_default) AS value,
            column_index, comment
        FROM duckdb_columns() WHERE schema_name = 'mmdb'
    """,
    "tables": "SELECT table_name, comment FROM duckdb_tables() WHERE schema_name = 'mmdb'",
    "views": "SELECT view_name, sql, comment FROM duckdb_views() WHERE schema_name = 'mmdb'",
    "constraints": """
        SELECT table_name, constraint_type, constraint_text, constraint_column_names
        FROM duckdb_constraints() WHERE schema_name = 'mmdb'
    """,
    "indexes": "SELECT sql FROM duckdb_indexes() WHERE schema_name = 'mmdb'",
    "sequences": "SELECT sequence_name FROM duckdb_sequences() WHERE schema_name = 'mmdb'",
}


def described(url: str, catalog: dict[str, str]) -> dict[str, list[str]]:
    """Return what a catalog says of schema mmdb, as sorted lines."""
    connection = open_connection(url)
    try:
        return {
            kind: sorted(json.dumps(dict(row), default=str) for row in connection.select(sql))
            for kind, sql in catalog.items()
        }
    finally:
        connection.close()


def test_the_catalog_is_that_of_a_fresh_database(old_url: str, fresh_url: str) -> None:
    install(old_url)
    catalog = DUCKDB_CATALOG if old_url.startswith("duckdb") else POSTGRES_CATALOG
    migrated, fresh = described(old_url, catalog), described(fresh_url, catalog)
    for kind, lines in fresh.items():
        assert migrated[kind] == lines, kind
    if old_url.startswith("postgresql"):
        assert listing(old_url) == listing(fresh_url)


def select(url: str, sql: str) -> list[dict[str, Any]]:
    """Return the rows of a query over a session of its own."""
    with connect(url) as db:
        return [dict(row) for row in db.sql(sql)]


def test_the_models_are_as_they_were(old_url: str) -> None:
    install(old_url)
    rows = select(
        old_url,
        "SELECT model, version, dataset, run, epoch, tensors, byte_count, approach, stored_bytes"
        " FROM mmdb.model_overview ORDER BY version",
    )
    whole = sum(array.nbytes for array in TENSORS.values())
    same = {"model": "search", "dataset": "points", "run": "search", "tensors": len(TENSORS)}
    same |= {"byte_count": whole, "approach": "snapshot"}
    assert rows == [
        same | {"version": 1, "epoch": 1, "stored_bytes": whole},
        same | {"version": 2, "epoch": 2, "stored_bytes": TENSORS["features.bias"].nbytes},
    ]


def test_the_definition_has_what_the_dataset_said(old_url: str) -> None:
    install(old_url)
    (row,) = select(
        old_url,
        "SELECT architecture, arguments, input_shape, outputs FROM mmdb.definition",
    )
    assert (list(row["input_shape"]), row["outputs"]) == ([700], 3)
    assert as_json(row["architecture"]) == {"factory": "mlp", "arguments": {"hidden": [8]}}
    assert as_json(row["arguments"]) == {"hidden": [4]}


def as_json(value: Any) -> Any:
    """Return a JSON value that DuckDB passes as text."""
    return json.loads(value) if isinstance(value, str) else value


def test_buffers_are_told_by_their_names(old_url: str) -> None:
    install(old_url)
    rows = select(
        old_url,
        "SELECT path, kind, trainable FROM mmdb.tensor_storage WHERE version = 2 ORDER BY ordinal",
    )
    assert [row["path"] for row in rows] == list(TENSORS)
    assert [(row["kind"], row["trainable"]) for row in rows] == [
        ("parameter", True),
        ("parameter", True),
        ("buffer", False),
        ("buffer", False),
        ("parameter", True),
    ]


def test_metrics_can_be_searched(old_url: str) -> None:
    install(old_url)
    rows = select(
        old_url,
        "SELECT metric, dataset, value, version FROM mmdb.metric_overview"
        " WHERE metric = 'accuracy' AND value > 0.5 ORDER BY version",
    )
    same = {"metric": "accuracy", "dataset": "", "value": 0.75}
    assert rows == [same | {"version": 1}, same | {"version": 2}]


def test_the_bytes_are_those_of_the_old_tensors(old_url: str) -> None:
    install(old_url)
    rows = select(
        old_url,
        "SELECT m.version, e.path, t.tensor_hash, t.dtype, t.shape, c.ordinal, c.codec, c.data"
        " FROM mmdb.model AS m"
        " INNER JOIN mmdb.manifest_tensor AS e ON m.manifest_id = e.manifest_id"
        " INNER JOIN mmdb.tensor AS t ON e.tensor_id = t.tensor_id"
        " LEFT JOIN mmdb.tensor_chunk AS c ON t.tensor_id = c.tensor_id"
        " ORDER BY m.version, e.ordinal, c.ordinal",
    )
    assert {row["codec"] for row in rows} == {0, None}  # as they are; an empty tensor has none
    for version, tensors in ((1, TENSORS), (2, CHANGED)):
        for path, array in tensors.items():
            parts = [r for r in rows if (r["version"], r["path"]) == (version, path)]
            assert b"".join(bytes(r["data"] or b"") for r in parts) == array.tobytes()
            name = tensor_hash(str(array.dtype), array.shape, array.tobytes())
            assert bytes(parts[0]["tensor_hash"]) == name


def test_the_store_reads_old_models_and_saves_new_ones_from_them(old_url: str) -> None:
    install(old_url)
    with connect(old_url) as db:
        for version, tensors in ((1, TENSORS), (2, CHANGED)):
            found = load_tensors(db.connection, find_model(db.connection, f"search@{version}"))
            assert list(found) == list(tensors)
            for path, array in tensors.items():
                assert torch.equal(found[path], torch.from_numpy(array)), path
        model = find_model(db.connection, "search")
        rows = ModelReader(db.connection).rows(model, "features.weight", 400, 402)
        assert torch.equal(rows, torch.from_numpy(TENSORS["features.weight"][400:402]))
        tuned = {path: torch.from_numpy(array) * 2 for path, array in TENSORS.items()}
        saved = save_model(db.connection, "search", tuned, parent="search@1")
        again = load_tensors(db.connection, find_model(db.connection, saved.reference))
        for path, tensor in tuned.items():
            assert torch.equal(again[path], tensor), path


def test_numbers_go_on_where_they_were(old_url: str) -> None:
    install(old_url)
    columns = "name, version, approach, weights_hash, tensor_count, byte_count, metrics, reason"
    (row,) = select(
        old_url,
        f"INSERT INTO mmdb.model ({columns}, stored_bytes, save_s)"
        " SELECT 'new', 1, 'snapshot', m.weights_hash, 0, 0, '{}', '{}', 0, 0"
        " FROM mmdb.model AS m WHERE m.version = 1 RETURNING model_id",
    )
    assert row["model_id"] == 3
    rows = select(old_url, "INSERT INTO mmdb.manifest (created_at) VALUES (now()) RETURNING *")
    assert rows[0]["manifest_id"] == 3
