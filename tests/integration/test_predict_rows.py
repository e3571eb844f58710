"""`mmdb.predict_rows`: the predictions of `predict_query`, and bytes of anybody's."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pytest
import torch

import mmdb
from mmdb import errors
from mmdb.db.postgres import PostgresConnection
from mmdb.graph.factories import linear
from tests.cluster import Cluster

QUERY = "SELECT id, a, kind, wide FROM t"
TYPES = ["float", "text", "float_array", "integer"]
ROW = "ROW(a::float8, convert_to(kind, 'UTF8'), wide, id)"


@pytest.fixture(scope="module")
def db(cluster: Cluster, template: str) -> Iterator[mmdb.Database]:
    name = "predict_rows"
    with mmdb.connect(cluster.create_database(name, template)) as opened:
        opened.sql(
            "CREATE TABLE t AS SELECT i AS id, nullif(i % 7, 0)::float8 AS a,"
            " nullif(i % 5, 1)::text AS kind, ARRAY[i, i % 3]::real[] AS wide, i % 2 AS y"
            " FROM generate_series(1, 200::bigint) AS g (i)"
        )
        opened.create_dataset("d", "SELECT a, kind, wide, y FROM t", partitions=1)
        (dataset,) = opened.sql("SELECT input_shape FROM mmdb.dataset WHERE name = 'd'")
        torch.manual_seed(0)
        module = linear(tuple(dataset["input_shape"]), 2)
        opened.save("m", module, architecture="linear", dataset="d")
        yield opened
    cluster.drop_database(name)


def sent(db: mmdb.Database) -> list[bytes]:
    rows = db.sql(f"SELECT record_send({ROW}) AS r FROM t ORDER BY id")
    return [bytes(row["r"]) for row in rows]


def ask(db: mmdb.Database, rows: Any, **other: Any) -> dict[str, Any]:
    assert isinstance(db.connection, PostgresConnection)
    (model,) = db.sql("SELECT model_id FROM mmdb.model WHERE name = 'm'")
    given = {"model_id": model["model_id"], "key": "id", "types": TYPES, "rows": rows} | other
    (found,) = db.sql(
        "SELECT * FROM mmdb.predict_rows(%(model_id)s, %(key)s, %(types)s, %(rows)s, true)", given
    )
    return dict(found)


def test_the_predictions_are_those_of_predict_query(db: mmdb.Database) -> None:
    wanted = db.predict_query("m", f"{QUERY} ORDER BY id", probabilities=True)
    found = ask(db, sent(db))
    assert found["keys"] == [row["key"] for row in wanted]
    assert found["prediction"] == [row["prediction"] for row in wanted]
    chances = [row["probability"] for row in wanted]
    assert found["probability"] == pytest.approx(chances, abs=1e-6)
    assert [set(each) for each in found["probabilities"]] == [{"0", "1"}] * len(wanted)


@pytest.mark.parametrize(
    "other",
    [
        {"rows": []},
        {"rows": [None]},
        {"rows": [b""]},
        {"types": []},
        {"types": TYPES[1:]},
        {"types": [*TYPES, "text"]},
        {"types": [None] * 4},
        {"types": ["float", "text", "bytes", "integer"]},
        {"types": None},
        {"rows": None},
    ],
    ids=repr,
)
def test_what_is_no_block_is_refused(db: mmdb.Database, other: dict[str, Any]) -> None:
    with pytest.raises(errors.InvalidInput):
        ask(db, **{"rows": sent(db)[:3]} | other)


def test_a_model_that_is_not_there_is_told(db: mmdb.Database) -> None:
    with pytest.raises(errors.ModelNotFound):
        ask(db, sent(db)[:3], model_id=0)


def test_bytes_of_anybodys_are_refused_or_are_rows(db: mmdb.Database) -> None:
    draw, good = random.Random(5), sent(db)[:4]
    refused = 0
    for _ in range(600):
        rows = [bytearray(row) for row in good]
        row = draw.choice(rows)
        for _ in range(draw.choice([1, 1, 2, 8])):
            row[draw.randrange(len(row))] = draw.choice([0, 1, 127, 128, 255, draw.randrange(256)])
        if draw.random() < 0.3:
            del row[draw.randrange(len(row)) :]
        try:
            found = ask(db, [bytes(row) for row in rows])
            assert len(found["keys"]) == len(rows)
        except errors.InputError:
            refused += 1
    assert 100 < refused < 600
