"""Rows for a bulk insert: tables of a bounded size, and the statements that take them."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from mmdb.db import row_formats
from mmdb.db.queries import Query, load
from mmdb.db.row_formats import arrow_batches
from tests.named_queries import named_queries

EVERY_TYPE: dict[str, tuple[str, Any]] = {
    "a": ("bigint", 2**62),
    "b": ("bigint[]", [1, 2**40]),
    "c": ("boolean", True),
    "d": ("bytea", b"\x00\xff"),
    "e": ("double precision", 0.1),
    "f": ("integer", -5),
    "g": ("integer[]", []),
    "h": ("jsonb", '{"a": 1}'),
    "i": ("text", "ж\x00🙂"),
    "j": ("text[]", ["", "x"]),
}
PLAIN = """INSERT INTO mmdb.thing (thing_id, name, size)
VALUES (
    %(thing_id)s::bigint, %(name)s::text,
    %(size)s::double precision
)"""


def query(sql: str) -> Query:
    return Query("trial", "For a test.", sql)


# -- tables -------------------------------------------------------------------


def test_every_type_comes_back_and_so_does_null() -> None:
    types = {name: kind for name, (kind, _) in EVERY_TYPE.items()}
    row = {name: value for name, (_, value) in EVERY_TYPE.items()}
    nulls: dict[str, object] = dict.fromkeys(types)
    (table,) = arrow_batches(types, [row, nulls])
    assert table.to_pylist() == [row, nulls]


def test_a_table_ends_at_its_number_of_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_formats, "_ROWS", 3)
    tables = list(arrow_batches({"n": "bigint"}, ({"n": n} for n in range(7))))
    assert [t["n"].to_pylist() for t in tables] == [[0, 1, 2], [3, 4, 5], [6]]


def test_a_table_ends_at_its_bytes_and_no_row_is_read_ahead() -> None:
    taken = 0

    def rows() -> Any:
        nonlocal taken
        for taken in range(1, 41):
            yield {"n": taken, "data": bytes(1 << 20)}

    sizes = []
    for table in arrow_batches({"n": "integer", "data": "bytea"}, rows()):
        sizes.append(table.num_rows)
        assert taken == sum(sizes)
    assert sizes == [2] * 20


def test_no_rows_make_no_table() -> None:
    assert list(arrow_batches({"n": "bigint"}, [])) == []


def test_a_value_that_does_not_fit_its_type_is_refused() -> None:
    for kind, value in [("integer", 2**40), ("bigint", "one"), ("bytea", 1)]:
        with pytest.raises((pa.ArrowInvalid, pa.ArrowTypeError, TypeError, OverflowError)):
            list(arrow_batches({"n": kind}, [{"n": value}]))


# -- statements ---------------------------------------------------------------


def test_a_plain_insert_becomes_a_copy_and_an_insert_of_a_table() -> None:
    assert query(PLAIN).copy == (
        "COPY mmdb.thing (thing_id, name, size) FROM STDIN (FORMAT BINARY)"
    )
    assert query(PLAIN).insert_from("there") == (
        "INSERT INTO mmdb.thing (thing_id, name, size) SELECT thing_id, name, size FROM there"
    )


def test_parameters_in_another_order_than_the_columns_stay_with_them() -> None:
    crossed = query("INSERT INTO t (a, b) VALUES (%(b)s::text, %(a)s::bigint)")
    assert crossed.insert_from("there") == "INSERT INTO t (a, b) SELECT b, a FROM there"


@pytest.mark.parametrize("key", ["name", "thing_id, name"])
def test_rows_that_may_be_there_cannot_be_copied(key: str) -> None:
    careful = query(f"{PLAIN}\nON CONFLICT ({key}) DO NOTHING")
    with pytest.raises(ValueError, match="trial is not a plain INSERT"):
        _ = careful.copy
    assert str(careful.insert_from("there")).endswith(f"FROM there\nON CONFLICT ({key}) DO NOTHING")


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT 1 AS one",
        "INSERT INTO t (a, b) VALUES (%(a)s::bigint, now())",
        "INSERT INTO t (a, b) VALUES (%(a)s::bigint, %(a)s::bigint)",
        "INSERT INTO t (a) VALUES (%(a)s::bigint) RETURNING a",
        "INSERT INTO t (a) SELECT %(a)s::bigint",
        "UPDATE t SET a = %(a)s::bigint",
    ],
)
def test_any_other_statement_is_not_taken_for_a_plain_insert(sql: str) -> None:
    assert query(sql).insert_from("there") is None
    with pytest.raises(ValueError, match="not a plain INSERT"):
        _ = query(sql).copy


@pytest.mark.parametrize("name", ["add_chunk", "add_encoding", "add_tensor"])
def test_what_the_store_adds_in_bulk_is_a_plain_insert(name: str) -> None:
    assert getattr(load("tensors"), name).insert_from("there") is not None


def test_every_plain_insert_has_types_that_a_table_can_hold() -> None:
    plain = [q for q in named_queries() if q.insert_from("there") is not None]
    assert len(plain) > 10
    for found in plain:
        assert list(arrow_batches(found.parameters, [dict.fromkeys(found.parameters)])), found.name
