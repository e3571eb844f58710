"""Every type of a column: a dataset whose rows are read alike by query and as JSON, or an error."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import count
from typing import Any

import numpy as np
import pytest

import mmdb
from mmdb import errors
from mmdb.data.dataset import find_dataset
from mmdb.data.decoding import Decoding
from mmdb.data.inputs import object_input
from mmdb.data.query_rows import scan_inputs
from mmdb.server.arguments import json_row

ROWS = 60
_numbers = count()

Samples = dict[str, tuple[str, tuple[str, ...]]]

#: Values of PostgreSQL's types, by i from 0; the paths that a document needs.
POSTGRES: Samples = {
    name: (value, ())
    for name, value in {
        "bool": "i % 3 = 0",
        "bytea": "decode(lpad(to_hex(i), 4, '0'), 'hex')",
        '"char"': "chr(65 + i % 3)::\"char\"",
        "name": "('n' || i % 4)::name",
        "int8": "i * 9007199254740993 % 9007199254740997",
        "int2": "(i - 9)::int2",
        "int4": "i * i",
        "text": "('t ' || i % 4 || ' ')",
        "oid": "(i % 5)::oid",
        "xml": "('<a>' || i % 3 || '</a>')::xml",
        "cidr": "('10.' || i % 5 || '.0.0/16')::cidr",
        "inet": "('10.0.0.' || i % 5 || CASE WHEN i % 2 = 0 THEN '/24' ELSE '' END)::inet",
        "macaddr": "('08:00:2b:01:02:0' || i % 5)::macaddr",
        "macaddr8": "('08:00:2b:01:02:03:04:0' || i % 5)::macaddr8",
        "float4": "(i * 0.1)::float4",
        "float8": "i * 0.1::float8",
        "bpchar": "('ab' || i % 3)::character(7)",
        "varchar": "('ab' || i % 12)::varchar(7)",
        "date": "date '1969-12-01' + i",
        "time": "time '05:00' + i * interval '61.5 minute'",
        "timestamp": "timestamp '1969-12-31' + i * interval '61.123456 minute'",
        "timestamptz": "timestamptz '2013-03-01 05:00+05:30' + i * interval '1 day'",
        "interval": "i * interval '1 month -3 days 00:00:01.5' - interval '400 days'",
        "timetz": "('0' || i % 9 || ':00:00+0' || i % 7)::timetz",
        "bit": "(i % 4)::bit(4)",
        "varbit": "(i % 4)::bit(4)::varbit",
        "numeric": "(i * 12345678901234567890.000000001)::numeric(40, 9)",
        "uuid": "md5((i % 6)::text)::uuid",
        "int4range": "CASE WHEN i % 9 = 0 THEN 'empty' ELSE int4range(i, i + i % 5 + 1, '[]') END",
        "int8range": "int8range(i, NULLIF(i + i % 5 + 1, 9))",
        "numrange": "numrange(NULLIF(i, 7) / 3.0, i + 0.125, '(]')",
        "tsrange": "tsrange(timestamp '2020-01-01' + i * interval '1 hour', timestamp '2021-01-01'"
        " + i * interval '1 day')",
        "tstzrange": "tstzrange(timestamptz '2020-01-01' + i * interval '1 hour', NULL)",
        "daterange": "daterange(NULL, date '2020-01-01' + i)",
        "textrange": "textrange('a\"\\, ' || i % 3, 'b')",
        "mood": "CASE i % 3 WHEN 0 THEN 'good' ELSE 'so so' END::mood",
        "small": "(i % 7)::small",
        "pair": "ROW(i, ROW('x' || i % 3, int4range(i, i + 1)), ARRAY[i, 2], date '2020-01-01' + i,"
        " ('10.0.0.' || i % 5)::inet)::pair",
        "citext": "('Ab' || i % 3)::citext",
        "_bool": "ARRAY[i % 3 = 0, true]",
        "_int2": "ARRAY[i, 2]::int2[]",
        "_int4": "ARRAY[[i, 2], [3, i % 7]]",
        "_int8": "ARRAY[i, 2]::int8[]",
        "_float4": "ARRAY[i, 0.1]::float4[]",
        "_float8": "ARRAY[i, 0.1]::float8[]",
        "_numeric": "ARRAY[i, 0.1]::numeric[]",
    }.items()
} | {
    "json": ("json_build_object('a', i, 'b', i % 3)", ("x.a", "x.b")),
    "jsonb": (
        """jsonb_build_object('n', CASE WHEN i % 4 > 0 THEN i * 1.50 END, 'a.b "é''\\', i % 2 = 0,
        'mixed', CASE WHEN i % 2 = 0 THEN to_jsonb(i % 3 + 0.50) ELSE '"1.50"' END,
        'list', jsonb_build_array(i, jsonb_build_object('deep', 'v' || i % 3))) ||
        CASE WHEN i % 5 > 0 THEN '{"t": "some"}'::jsonb ELSE '{}' END""",
        ("x.n", 'x."a.b ""é\'\\"', "x.mixed", "x.list[0]", "x.list[1].deep", "x.t", "x.none"),
    ),
    "hstore": ("hstore('k', 'v' || i % 3)", ("x.k",)),
    "_text": ("ARRAY['t' || i % 3, 'x']", ("x[0]",)),
    "_mood": ("ARRAY['good']::mood[]", ("x[0]", "x[1]")),
    "_pair": ("ARRAY[ROW(i, ROW('x', NULL), NULL, NULL, NULL)::pair]", ("x[0].a", "x[0].b.s")),
}  # fmt: skip

POSTGRES_TYPES = """
CREATE EXTENSION citext;
CREATE EXTENSION hstore;
CREATE TYPE mood AS ENUM ('good', 'so so');
CREATE DOMAIN small AS smallint CHECK (value < 100);
CREATE TYPE textrange AS RANGE (subtype = text);
CREATE TYPE inner_pair AS (s text, "r.q" int4range);
CREATE TYPE pair AS (a small, b inner_pair, c int[], d date, "E f" inet);
"""
#: All that a column can be of; of tables' row types those of the test alone.
POSTGRES_CATALOG = """
SELECT t.oid::bigint AS oid, format_type(t.oid, NULL) AS full_name,
    CASE t.typname WHEN 'char' THEN '"char"' ELSE t.typname END AS name
FROM pg_type AS t LEFT JOIN pg_type AS e ON t.typelem = e.oid AND t.typcategory = 'A'
WHERE t.typtype IN ('b', 'c', 'd', 'e', 'r', 'm') AND t.typname NOT IN ('_cstring', 'inner_pair')
    AND (
        t.typnamespace = 'public'::regnamespace
        OR (t.typnamespace = 'pg_catalog'::regnamespace AND 'c' NOT IN (t.typtype, e.typtype))
        OR (t.typnamespace = 'pg_catalog'::regnamespace AND t.typtype <> 'c' AND e.oid IS NULL)
    )
"""

DUCKDB: Samples = {
    name: (value, ())
    for name, value in {
        **{
            name: f"(i + 1)::{name}"
            for name in (
                *("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT", "BIGNUM"),
                *("UTINYINT", "USMALLINT", "UINTEGER", "UBIGINT", "UHUGEINT"),
            )
        },
        "BOOLEAN": "i % 3 = 0",
        "FLOAT": "(i * 0.1)::FLOAT",
        "DOUBLE": "i * 0.1::DOUBLE",
        "DECIMAL": "(i * 12345678901.25)::DECIMAL(30, 9)",
        "VARCHAR": "'t ' || i % 4 || ' '",
        "UUID": "md5((i % 6)::text)::UUID",
        "BLOB": "encode(chr(65 + (i % 9)::INTEGER) || 'é')",
        "BIT": "(i % 4)::INTEGER::BIT",
        "DATE": "DATE '1969-12-01' + i::INTEGER",
        "TIME": "TIME '05:00' + i * INTERVAL '61 minute'",
        "TIME_NS": "(TIME '05:00' + i * INTERVAL '61 minute')::TIME_NS",
        "TIME WITH TIME ZONE": "('0' || i % 9 || ':00:00+0' || i % 7)::TIMETZ",
        "TIMESTAMP": "TIMESTAMP '1969-12-31' + i * INTERVAL '61123 millisecond'",
        **{
            name: f"(TIMESTAMP '1969-12-31' + i * INTERVAL '61123 second')::{name}"
            for name in ("TIMESTAMP_S", "TIMESTAMP_MS", "TIMESTAMP_NS", "TIMESTAMPTZ_NS")
        },
        "TIMESTAMP WITH TIME ZONE": "TIMESTAMPTZ '2013-03-01 05:00+05:30' + i * INTERVAL '1 day'",
        "INTERVAL": "i * INTERVAL '1 month -3 days 1.5 seconds' - INTERVAL '400 days'",
        "ENUM": "CASE i % 3 WHEN 0 THEN 'good' ELSE 'so so' END::ENUM('good', 'so so')",
        "LIST": "[i, 0.1]",
        "ARRAY": "[[i, 2], [3, 4]]::INTEGER[2][2]",
        "STRUCT": "{'a': i, 'b': {'s': 'x' || i % 3, 'r.q': [i, 2]}, 'd e': DATE '2020-01-01'"
        " + i::INTEGER, 'f': i % 2 = 0, 't': ('0' || i % 9 || ':00:00+01')::TIMETZ}",
        "NULL": "NULL",
    }.items()
} | {
    "JSON": (
        """json_object('n', CASE WHEN i % 4 > 0 THEN i * 1.5 END, 'a.b "é''/~', i % 2 = 0,
        'mixed', CASE WHEN i % 2 = 0 THEN to_json((i % 3 + 0.5)::DOUBLE) ELSE '"1.5"'::JSON END,
        'list', json_array(i, json_object('deep', 'v' || i % 3)))""",
        ("x.n", 'x."a.b ""é\'/~"', "x.mixed", "x.list[0]", "x.list[1].deep", "x.none"),
    ),
    "MAP": ("MAP {'k': i, 'z': 2}", ("x.k",)),
    "UNION": ("union_value(num := i)", ("x.num",)),
    "TUPLE": ("row(i, 'x' || i % 3)", ("x[0]", "x[1]")),
    "VARIANT": ("{'a': i}::VARIANT", ("x.a",)),
    "VARCHAR[]": ("['t' || i % 3, 'x']", ("x[0]",)),
    "BOOLEAN[]": ("[i % 3 = 0, true]", ()),
    "STRUCT(a INTEGER)[]": ("[{'a': i}]", ("x[0].a",)),
}


@pytest.fixture
def db(database_url: str) -> Iterator[mmdb.Database]:
    with mmdb.connect(database_url) as database:
        yield database


def of_rows(value: str, where: str = "true") -> str:
    """Return a query of a column x."""
    return (
        f"SELECT i AS id, i % 11 AS b, {value} AS x, i % 2 = 0 AS y"
        f" FROM generate_series(0, {ROWS - 1}) AS g (i) WHERE {where}"
    )


def as_json(db: mmdb.Database, query: str) -> dict[int, str]:
    """Return the rows of a query as the text of JSON objects, by id."""
    whole = "to_jsonb(t)::text" if db.connection.engine == "postgres" else "to_json(t)::VARCHAR"
    rows = db.sql(f"SELECT id, {whole} AS r FROM ({query}) AS t")
    return {row["id"]: row["r"] for row in rows}


def decoding_of(db: mmdb.Database, query: str, paths: tuple[str, ...] = ()) -> Decoding:
    """Make a dataset and return what its columns are."""
    name = f"d{next(_numbers)}"
    options = {"transforms": dict.fromkeys(paths, "auto"), "roles": {"id": "key"}}
    db.create_dataset(name, query, label="y", options=options)
    return find_dataset(db.connection, name).decoding


def by_query(db: mmdb.Database, decoding: Decoding, query: str) -> dict[int, np.ndarray]:
    """Return the inputs of a query's rows, by id."""
    return {
        int(key): row
        for keys, inputs in scan_inputs(db.connection, decoding, query, "id")
        for key, row in zip(keys, np.asarray(inputs), strict=True)
    }


def by_json(db: mmdb.Database, decoding: Decoding, query: str) -> dict[int, np.ndarray]:
    """Return the inputs of a query's rows when each is given as JSON, by id."""
    engine = db.connection.engine
    return {
        key: np.asarray(object_input(decoding, json_row(row), {}, engine))[0]
        for key, row in as_json(db, query).items()
    }


def check(db: mmdb.Database, value: str, paths: tuple[str, ...] = ()) -> None:
    """Make a dataset with a column of values, which are read alike by query and as JSON.

    Raises:
        UnsupportedType
    """
    query = of_rows(value)
    decoding = decoding_of(db, query, paths)
    parts = {c.name for c in decoding.columns} - {"id", "b", "y"}
    assert parts == set(paths) if paths else all(part.startswith("x") for part in parts) and parts
    found = by_query(db, decoding, query)
    rows = by_json(db, decoding, query)
    assert found.keys() == rows.keys() and len(rows) == ROWS
    for key, row in found.items():
        np.testing.assert_allclose(row, rows[key], rtol=1e-6, atol=1e-6)
    if len(decoding.features) > 1:  # x tells rows apart that b does not
        assert len(np.unique(np.stack(list(found.values())), axis=0)) > 11


def check_all(db: mmdb.Database, samples: Samples, catalog: dict[str, str]) -> None:
    """Check a type for each sample; those of the catalog without one are refused by name."""
    wrong = {}
    for name, (value, paths) in samples.items():
        try:
            check(db, value, paths)
        except (AssertionError, errors.MmdbError) as error:
            wrong[name] = str(error)
    for name in sorted(catalog.keys() - samples.keys()):
        db.sql(f'CREATE TABLE "t {name}" (x {catalog[name]})')
        try:
            check(db, f'(SELECT x FROM "t {name}")')
            wrong[name] = "it has neither a sample nor an error"
        except errors.UnsupportedType as error:
            if "'x'" not in error.message:
                wrong[name] = error.message
    assert not wrong, json.dumps(wrong, indent=1)


def test_every_type_of_postgresql_is_read_or_refused_by_name(postgres_url: str) -> None:
    with mmdb.connect(postgres_url) as db:
        for statement in POSTGRES_TYPES.strip().split("\n"):
            db.sql(statement)
        found = db.sql(POSTGRES_CATALOG)
        check_all(db, POSTGRES, {row["name"]: row["full_name"] for row in found})


def test_every_type_of_duckdb_is_read_or_refused_by_name(duckdb_url: str) -> None:
    with mmdb.connect(duckdb_url) as db:
        found = db.sql("SELECT DISTINCT logical_type AS name FROM duckdb_types()")
        names = {row["name"] for row in found} - {"TYPE"}  # of which no column can be
        check_all(db, DUCKDB, dict(zip(names, names, strict=True)))


#: Values, and one that no number stands for; of a JSON object n.
STRANGE = {
    "postgresql": [
        ("(i + 0.5)::numeric", "'1e400'::numeric"),
        ("(i + 0.5)::numeric", "'NaN'::numeric"),
        ("(i + 0.5)::float8", "'-Infinity'::float8"),
        ("date '2020-01-01' + i", "'infinity'::date"),
        ("ARRAY[i, 2]::numeric[]", "ARRAY[1, 1e400]"),
        ("ARRAY[i, 2]", "ARRAY[1, NULL]"),
        ("ARRAY[i, 2]", "ARRAY[1, 2, 3]"),
        ("ARRAY[i > 2, true]", "ARRAY[true, NULL]"),
        ("decode('0102', 'hex')", "decode('01', 'hex')"),
        ("numrange(i, i + 2)", "numrange(0, 1e400)"),
        ("tsrange(timestamp '2020-01-01' + i * interval '1 day', NULL)",
         "tsrange('-infinity', '2020-01-01')"),
        ("jsonb_build_object('n', i)", "'{\"n\": 1e400}'::jsonb"),
        ("jsonb_build_object('n', i)", "'{\"n\": [1]}'::jsonb"),
        ("jsonb_build_object('n', i)", "'{\"n\": \"many\"}'::jsonb"),
    ],
    "duckdb": [
        ("i::DOUBLE", "'nan'::DOUBLE"),
        ("i::BIGNUM", "('1' || repeat('0', 400))::BIGNUM"),
        ("DATE '2020-01-01' + i::INTEGER", "'infinity'::DATE"),
        ("[i, 2]", "[1, NULL]"),
        ("[i, 2]", "[1, 2, 3]"),
        ("[i::DOUBLE, 2]", "[1, 1e300]"),
        ("json_object('n', i)", "'{\"n\": 1e400}'::JSON"),
        ("json_object('n', i)", "'{\"n\": [1]}'::JSON"),
        ("json_object('n', i)", "'{\"n\": \"many\"}'::JSON"),
    ],
}  # fmt: skip


def test_what_is_no_number_is_named_however_it_is_given(db: mmdb.Database) -> None:
    engine = "postgresql" if db.connection.engine == "postgres" else "duckdb"
    for value, strange in STRANGE[engine]:
        paths = ("x.n",) if "'n'" in value else ()
        decoding = decoding_of(db, of_rows(value), paths)
        one = of_rows(strange, "i = 7")
        for read in (by_query, by_json):
            with pytest.raises(errors.MmdbError, match=r"'x|of x\b"):
                read(db, decoding, one)
                raise RuntimeError(f"{strange} is read")
        if "many" not in strange:  # with it, they are texts
            mixed = of_rows(f"CASE WHEN i = 7 THEN {strange} ELSE {value} END")
            with pytest.raises(errors.MmdbError, match=r"'x|\bx\b"):
                decoding_of(db, mixed, paths)


def test_numbers_that_no_double_holds_are_0_or_an_error(postgres_url: str) -> None:
    with mmdb.connect(postgres_url) as db:
        check(db, "CASE WHEN i = 7 THEN '1e-400'::numeric ELSE i + 0.5 END")
        check(db, "CASE WHEN i = 7 THEN 1e300 ELSE i END::float8")
        check(db, "CASE WHEN i = 7 THEN time '24:00' ELSE time '05:00' + i * interval '1 s' END")


#: Devices as people have them: an object, a row, and a key that no row shares.
VISITS = {
    "postgres": """
CREATE TYPE place AS (town text, at int4range);
CREATE TABLE visit AS SELECT i AS id,
    jsonb_build_object('device', jsonb_build_object('os', 'os' || i % 3, 'age', i % 7),
        'price', i * 1.5, 'clicked', i % 2 = 0) AS payload,
    ROW('t' || i % 12, int4range(i, i + 9))::place AS place
FROM generate_series(0, 199) AS g (i)""",
    "duckdb": """
CREATE TABLE visit AS SELECT i AS id,
    json_object('device', json_object('os', 'os' || i % 3, 'age', i % 7),
        'price', i * 1.5, 'clicked', i % 2 = 0) AS payload,
    {'town': 't' || i % 12, 'at': {'lower': i, 'upper': i + 9}} AS place
FROM generate_series(0, 199) AS g (i)""",
}
PATHS = ["payload.device.age", "payload.device.os", "payload.price"]
PARTS = ["place.at.lower", "place.at.upper", "place.town"]
OPTIONS = {"transforms": dict.fromkeys(PATHS, "auto"), "roles": {"id": "key"}}


def make_visits(db: mmdb.Database) -> None:
    for statement in VISITS[db.connection.engine].strip().split(";"):
        db.sql(statement)


def test_parts_are_columns_from_the_table_to_the_prediction(db: mmdb.Database) -> None:
    make_visits(db)
    db.create_dataset("d", "SELECT * FROM visit", label="payload.clicked", options=OPTIONS)
    shown = db.sql("SELECT column_name FROM mmdb.transform_overview WHERE dataset = 'd'")
    names = sorted(["id", *PARTS, "payload.clicked", *PATHS])
    assert sorted(row["column_name"] for row in shown) == names
    sources = db.sql(
        "SELECT table_name, column_name, output_name FROM mmdb.dataset_lineage WHERE dataset = 'd'"
    )
    assert {row["output_name"]: (row["table_name"], row["column_name"]) for row in sources} == {
        name: ("visit", name.partition(".")[0]) for name in names
    }
    for architecture in ("linear", "tabular"):
        db.create_run(architecture, dataset="d", architecture=architecture, epochs=1)
        assert db.run(architecture).train(workers=1).failed == 0
    rows = {int(row["key"]): row for row in db.predict_query("linear", "SELECT * FROM visit")}
    for key, text in as_json(db, "SELECT * FROM visit WHERE id < 12").items():
        false, true = db.predict("linear", json.loads(text))
        assert rows[key]["probability"] == pytest.approx(max(false, true), rel=1e-5)
        assert rows[key]["prediction"] == ("true" if true > false else "false")
    assert db.predict_into("linear", "SELECT * FROM visit", "guess") == 200
    assert db.evaluate("linear", "d")["accuracy"] >= 0
    for part in ("payload.device.os", "payload.device.age"):  # a text, and a number
        assert len(db.evaluate("linear", "SELECT * FROM visit", by=part).rows) > 2


def test_a_row_has_parts_in_any_form(db: mmdb.Database) -> None:
    make_visits(db)
    db.create_dataset("d", "SELECT * FROM visit", label="payload.clicked", options=OPTIONS)
    decoding = find_dataset(db.connection, "d").decoding
    engine = db.connection.engine

    def read(row: dict[str, Any]) -> list[float]:
        given = object_input(decoding, row, {}, engine)
        return np.asarray(given).tolist()  # type: ignore[no-any-return]

    payload = {"device": {"os": "os1", "age": 3}, "price": 4.5}
    flat = {"payload.device.os": "os1", "payload.device.age": 3, "payload.price": 4.5}
    places: list[dict[str, Any]] = [
        {"place": {"town": "t1", "at": {"lower": 2, "upper": 9}}},
        {"place": {"town": "t1", "at": "[2,9)"}},
        {"place.town": "t1", "place.at": {"lower": 2, "upper": 9}},
    ]
    forms: list[dict[str, Any]]
    forms = [{"payload": payload}, {"payload": json.dumps(payload)}, flat]
    found = [read({**form, **place}) for form in forms for place in places]
    assert all(one == found[0] for one in found)
    assert read({"payload": {}, "place": None}) == read(dict.fromkeys([*PATHS, *PARTS]))
    with pytest.raises(errors.InvalidInput, match="'payload' holds 'os1', which has no parts"):
        read({"payload": "os1", "place": None})
    with pytest.raises(errors.InvalidInput, match=r"lacks place\.town, place\.at\.lower"):
        read(flat)


def test_parts_are_the_same_on_both_engines(duckdb_url: str, postgres_url: str) -> None:
    hashes = []
    for url in (duckdb_url, postgres_url):
        with mmdb.connect(url) as db:
            make_visits(db)
            query = "SELECT * FROM visit"
            made = db.create_dataset("d", query, label="payload.clicked", options=OPTIONS)
            hashes.append(made.content_hash)
    assert hashes[0] == hashes[1]


def test_parts_and_predictions_are_there_where_all_names_are_quoted(postgres_url: str) -> None:
    with mmdb.connect(postgres_url) as db:
        db.sql("SET quote_all_identifiers = on")
        make_visits(db)
        query = "SELECT *, CAST('10.0.0.1' AS inet) AS address FROM visit"
        db.create_dataset("d", query, label="payload.clicked", options=OPTIONS)
        db.create_run("linear", dataset="d", architecture="linear", epochs=1)
        assert db.run("linear").train(workers=1).failed == 0
        query = query.replace("id,", "CAST(id AS text) AS id,")
        for rows in (200, 200):
            assert db.predict_into("linear", query, "guess", probabilities=True) == rows


def test_what_is_no_part_is_said_with_what_to_do(db: mmdb.Database) -> None:
    make_visits(db)
    long = "payload." + "os" * 30

    def make(query: str, *paths: str, label: str = "y", **roles: str) -> None:
        options = {"transforms": dict.fromkeys(paths, "auto"), "roles": roles}
        db.create_dataset("d", f"SELECT {query} FROM visit", label=label, options=options)

    with pytest.raises(errors.UnsupportedType, match=r"'payload' has type (?i:json)") as caught:
        make("payload, id % 2 AS y")
    assert '{"transforms": {"payload.price": "auto"}}' in caught.value.hint
    with pytest.raises(errors.UnsupportedType, match=r"'payload\.device' holds objects"):
        make("payload, id % 2 AS y", "payload.device")
    with pytest.raises(errors.InvalidOption, match=r"'payload\.\.os', which is no feature"):
        make("payload, id % 2 AS y", "payload..os")
    with pytest.raises(errors.InvalidOption, match=r"'place\.street', which is no feature"):
        make("place, id % 2 AS y", "place.street")
    with pytest.raises(errors.UnsupportedType, match="Label 'place'"):
        make("place, id", label="place")
    with pytest.raises(errors.QueryError, match="two columns named 'id'"):
        make("payload, id, id", "payload.price")
    if db.connection.engine == "postgres":
        with pytest.raises(errors.InvalidOption, match=r"'payload\.osos.* more than 63 bytes"):
            make("payload, id % 2 AS y", long)
    make("payload, place, id % 2 AS y", "payload.price", payload="excluded", place="excluded")
    columns = find_dataset(db.connection, "d").decoding.columns
    kinds = {"payload": "excluded", "payload.price": "numeric", "place": "excluded", "y": "label"}
    assert {column.name: column.kind for column in columns} == kinds


@pytest.mark.parametrize("dropped", ["place", "place.at", "place.at.lower", "payload"])
def test_a_part_or_what_has_parts_is_dropped(db: mmdb.Database, dropped: str) -> None:
    make_visits(db)
    transforms = {dropped: "drop", "payload.price": "auto"}
    query = "SELECT payload, place, id % 2 AS y FROM visit"
    db.create_dataset("d", query, options={"transforms": transforms})
    decoding = find_dataset(db.connection, "d").decoding
    assert {column.name: column.kind for column in decoding.columns}[dropped] == "dropped"
    left = {part for part in PARTS if not f"{part}.".startswith(f"{dropped}.")}
    assert {column.name for column in decoding.features} == left | {"payload.price"}


@pytest.mark.parametrize("role", ["key", "label"])
def test_a_whole_number_that_no_bigint_holds_is_named(duckdb_url: str, role: str) -> None:
    asked: dict[str, Any] = {"label": "h"}
    if role == "key":
        asked = {"label": "y", "options": {"roles": {"h": "key"}}}
    number = f"(9223372036854775800::hugeint + {'i' if role == 'key' else 'i % 12'})::ubigint"
    query = f"SELECT {number} AS h, i % 7 AS a, i % 9 AS y FROM range(60) AS g (i)"
    with mmdb.connect(duckdb_url) as db:
        with pytest.raises(errors.UnsupportedType, match="'h' holds whole numbers that no bigint"):
            db.create_dataset("d", query, **asked)
        as_text = query.replace("ubigint", "text")  # as the hint says
        assert db.create_dataset("d", as_text, **asked).rows == 60
