"""What the dialect for DuckDB writes, where its SQL is not PostgreSQL's."""

from __future__ import annotations

import pytest
from sqlalchemy import Float, Numeric, Select, cast, select
from sqlalchemy.orm import undefer

from mmdb import orm
from mmdb.orm.read_session import DuckDialect

DIALECT = DuckDialect()  # type: ignore[no-untyped-call]
options = orm.Run.options
name = orm.Run.name


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        (select(options["k"]), "mmdb.run.options -> '$.\"k\"'"),
        (select(options[("a", 0)].astext), "mmdb.run.options ->> '$.\"a\"[0]'"),
        (select(options["it's"].astext), "mmdb.run.options ->> '$.\"it''s\"'"),
        (select(options["a"]["b"].as_integer()), "CAST("),
        (select(name).where(options["k"].astext == "x"), "(mmdb.run.options ->> '$.\"k\"') = 'x'"),
        (select(name).order_by(name.desc()), "ORDER BY mmdb.run.name DESC NULLS FIRST"),
        (select(name).order_by(name.desc().nulls_last()), "mmdb.run.name DESC NULLS LAST"),
        (select(name).order_by(name.desc().nulls_first()), "mmdb.run.name DESC NULLS FIRST"),
        (select(name).order_by(name.nulls_first()), "mmdb.run.name NULLS FIRST"),
        (select(name).where(name.in_(["a", "b"])), "IN ('a', 'b')"),
        (select(name).where(name.contains("a")), "LIKE '%' || 'a' || '%' ESCAPE '\\'"),
        (select(name).where(name.ilike("a", escape="/")), "ILIKE 'a' ESCAPE '/'"),
        (select(orm.Run.epochs // 2, orm.Run.epochs / 2), "run.epochs // 2 AS anon_1, mmdb.run."),
        (select(cast(orm.Hop.loss, Float), cast(orm.Hop.loss, Float(24))), "AS DOUBLE) AS loss"),
        (select(cast(orm.Hop.loss, Numeric)), "AS NUMERIC(38, 12))"),
        (select(name).limit(2).offset(1), "LIMIT 2 OFFSET 1"),
        (select(orm.Block), "FROM mmdb.block"),
        (select(orm.Block).options(undefer(orm.Block.data)), "mmdb.block.data"),
    ],
    ids=str,
)  # fmt: skip
def test_a_query_is_written(query: Select[tuple[object]], expected: str) -> None:
    made = query.compile(dialect=DIALECT, compile_kwargs={"literal_binds": True})
    assert expected in str(made)


def test_bytes_are_not_selected_unasked() -> None:
    assert "data" not in str(select(orm.Block).compile(dialect=DIALECT))
