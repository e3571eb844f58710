"""The mapped classes on both databases: every row is read, and none is written."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from datetime import timedelta
from decimal import Decimal
from typing import Any, assert_type, cast
from urllib.parse import urlsplit

import pytest
from sqlalchemy import (
    Double,
    Float,
    Integer,
    Numeric,
    String,
    Table,
    all_,
    any_,
    column,
    delete,
    distinct,
    extract,
    func,
    insert,
    inspect,
    literal,
    literal_column,
    select,
    text,
    tuple_,
    union,
    union_all,
    update,
)
from sqlalchemy import cast as cast_sql
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.exc import InvalidRequestError
from sqlalchemy.orm import Mapper, joinedload, selectinload, undefer
from sqlalchemy.orm.attributes import set_attribute

import mmdb
from mmdb import errors, orm
from mmdb.api import Database
from tests import run_rows
from tests.cluster import Cluster
from tests.filled import LARGE, WHEN, fill, tables_of

MAPPERS = sorted(orm.Base.registry.mappers, key=lambda mapper: mapper.class_.__name__)
TABLES = [m for m in MAPPERS if isinstance(m.local_table, Table)]
RELATIONS = [relation for mapper in MAPPERS for relation in mapper.relationships]


def is_here(mapper: Mapper[Any], db: Database) -> bool:
    """Return whether the database's engine has a class's table."""
    info: dict[str, object] = getattr(mapper.local_table, "info", {})
    return info.get("engine", db.connection.engine) == db.connection.engine


@pytest.fixture(scope="module", params=["duckdb", "postgres"])
def db(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """Yield a database with a row in every table."""
    if request.param == "duckdb":
        url, drop = f"duckdb:///{tmp_path_factory.mktemp('orm') / 'mmdb.duckdb'}", None
    else:
        cluster: Cluster = request.getfixturevalue("cluster")
        url = cluster.create_database("mmdb_orm", request.getfixturevalue("template"))
        drop = cluster
    with mmdb.connect(url) as opened:
        fill(opened)
        yield opened
    if drop is not None:
        drop.drop_database("mmdb_orm")


@pytest.fixture
def session(db: Database) -> Iterator[orm.ReadSession]:
    """Yield a session on the filled database."""
    with orm.session(db) as opened:
        yield opened


# -- reading ---------------------------------------------------------------------


def test_every_class_reads_its_rows(session: orm.ReadSession, db: Database) -> None:
    for mapper in MAPPERS:
        if is_here(mapper, db):
            rows = session.scalars(select(mapper.class_)).all()
            assert len(rows) == len(set(rows)), mapper.class_
            assert rows or getattr(mapper.local_table, "info", {}).get("is_view"), mapper.class_


@pytest.mark.parametrize("load", [None, selectinload, joinedload], ids=["lazy", "selectin", "join"])
def test_every_relationship_loads(session: orm.ReadSession, db: Database, load: Any) -> None:
    for relation in RELATIONS:
        if not is_here(relation.parent, db) or not is_here(relation.mapper, db):
            continue
        query = select(relation.parent.class_)
        if load is not None:
            query = query.options(load(relation.class_attribute))
        owners = session.scalars(query).unique().all()
        values = [getattr(owner, relation.key) for owner in owners]
        found = [one for value in values for one in (value if relation.uselist else [value])]
        assert any(isinstance(one, relation.mapper.class_) for one in found), str(relation)
        assert all(isinstance(one, (relation.mapper.class_, type(None))) for one in found)
        session.expunge_all()


def test_bytes_are_read_only_where_they_are_asked_for(session: orm.ReadSession) -> None:
    block = session.scalars(select(orm.Block)).one()
    with pytest.raises(InvalidRequestError, match="raiseload"):
        _ = block.data
    session.expunge_all()
    asked = session.scalars(select(orm.Block).options(undefer(orm.Block.data))).one()
    assert asked.data == b"\x00\xff"


def test_no_class_reads_bytes_by_itself() -> None:
    for mapper in TABLES:
        for one in mapper.local_table.columns:
            if str(one.type) == "BLOB" and not one.primary_key and not one.foreign_keys:
                attribute = mapper.get_property_by_column(one)
                assert attribute.deferred and attribute.raiseload, one


def test_values_arrive_as_they_are(session: orm.ReadSession) -> None:
    run = session.scalars(select(orm.Run)).one()
    tensor = session.scalars(select(orm.Tensor)).one()
    assert run.seed == LARGE and session.scalars(
        select(orm.Run.name).where(orm.Run.seed == LARGE)
    ).all() == ["one"]
    assert run.options == {"a": {"b": [1, 2.5]}, "name": "one"}
    assert run.created_at == WHEN and run.created_at.utcoffset() == timedelta(0)
    assert tensor.shape == [1, LARGE]


def test_json_arrays_and_times_are_compared_in_the_database(session: orm.ReadSession) -> None:
    options = orm.Run.options
    for condition in (
        options["name"].astext == "one",
        options["a"]["b"][0].as_integer() == 1,
        options[("a", "b", 1)].as_float() > 2,
        options[("a", "b", 1)].astext == "2.5",
        orm.Run.created_at < WHEN + timedelta(microseconds=1),
        orm.Run.name.in_(["one", "two"]),
        orm.Run.name.like("%n%"),
        orm.Run.candidates.any(orm.Candidate.seed == LARGE),
    ):
        assert session.scalars(select(orm.Run.run_id).where(condition)).all() == [1], str(condition)
    shape = orm.Tensor.shape
    for holds in (any_(shape) == LARGE, shape.contains([LARGE]), shape[2] == LARGE):
        assert session.scalars(select(orm.Tensor.tensor_id).where(holds)).all() == [1], str(holds)


def test_equal_json_is_equal_however_it_is_written(session: orm.ReadSession) -> None:
    options = orm.Run.options
    same: dict[str, Any] = {"name": "one", "a": {"b": [1.0, 2.5]}}
    other: dict[str, Any] = {"name": "one", "a": {"b": [2.5, 1]}}
    for condition in (
        options == same,
        options != other,
        options["a"] == same["a"],
        literal(same["a"], JSONB) == options["a"],
        options["a"].in_([other["a"], same["a"]]),
        options["a"].not_in([other["a"]]),
        options["a"].is_not_distinct_from(same["a"]),
        options["a"].is_distinct_from(other["a"]),
        options["a"] == options["a"],
    ):
        assert session.scalars(select(orm.Run.run_id).where(condition)).all() == [1], str(condition)


def test_strings_in_json_are_compared_as_they_are(session: orm.ReadSession) -> None:
    def equal(left: object, right: object) -> object:
        return session.scalar(select(literal(left, JSONB) == literal(right, JSONB)))

    assert equal(["a\\", '"', 1.0, 2e0], ["a\\", '"', 1, 2]) and equal({"1.0": 1e2}, {"1.0": 100})
    assert not equal({"x": '1.0",1.0'}, {"x": '1",1'}) and not equal([1.05], [1.5])


def test_equal_json_is_one_however_it_is_written(session: orm.ReadSession) -> None:
    def written(text: str) -> Any:
        return cast_sql(literal_column(f"'{text}'"), JSONB)

    texts = ('{"a": 1.0, "b": 2}', '{"b":2, "a":1}', "[1]", "[ 1.0]")
    given = union_all(
        *(select(written(text).label("j"), literal(n).label("n")) for n, text in enumerate(texts))
    )
    one = given.subquery()
    other = union_all(select(written('{"b": 2.0, "a": 1}')), select(written("[2]")))
    for statement, expected in (
        (select(one.c.j).distinct(), [[1], {"a": 1, "b": 2}]),
        (select(one.c.j["a"]).distinct(), [1, None]),
        (select(func.count(distinct(one.c.j))), [2]),
        (select(func.count(one.c.n)).group_by(one.c.j), [2, 2]),
        (select(one.c.n).where(one.c.j.in_(other.subquery().select())), [0, 1]),
        (select(one.c.n).where(one.c.j.not_in(select(other.subquery()))), [2, 3]),
        (union(select(one.c.j), other), [[1], [2], {"a": 1, "b": 2}]),
    ):
        found = session.scalars(statement).all()
        assert sorted(found, key=str) == expected, str(statement)
    kind = "JSON" if session.get_bind().dialect.name == "duckdb" else "JSONB"
    rows = [f"SELECT CAST('{one}' AS {kind}) AS j, {n} AS n" for n, one in enumerate(texts)]
    query = text(" UNION ALL ".join(rows).replace(":", r"\:"))
    stored = query.columns(column("j", JSONB), column("n", Integer)).subquery()  # as in a table
    j, n = stored.c.j, stored.c.n
    accents = tuple_(literal({"é": "1.0"}, JSONB), 1).in_([({"é": "1.0"}, 1)])
    some = [({"b": 2.0, "a": 1}, 0), ([1.0], 2), ([2], 3)]
    for statement, expected in (
        (select(func.count().over(partition_by=j)), [2, 2, 2, 2]),
        (select(func.row_number().over(partition_by=[j, n % 1], order_by=n)), [1, 1, 2, 2]),
        (select(func.count().over(partition_by=j["a"])), [2, 2, 2, 2]),
        (select(n).where(tuple_(j, n).in_(some)), [0, 2]),
        (select(n).where(accents), [0, 1, 2, 3]),
        (select(n).where(tuple_(j, n).not_in(some)), [1, 3]),
        (select(n).where(tuple_(j, n) == tuple_(literal({"b": 2, "a": 1}, JSONB), 1)), [1]),
        (select(n).where(tuple_(j, n).in_(select(one.c.j, one.c.n))), [0, 1, 2, 3]),
        (select(n).where(j == any_(other.scalar_subquery())), [0, 1]),
        (select(n).where(j != all_(other.scalar_subquery())), [2, 3]),
        (select(func.count(n)).group_by(func.rollup(j)), [2, 2, 4]),
        (select(func.count(distinct(tuple_(j, n % 1)))), [2]),
        (select(func.count(distinct(j))), [2]),
        (select(func.count()).where(func.nullif(j, written("[1]")).is_(None)), [2]),
        (select(n).order_by(j.desc(), n).limit(0), []),
    ):
        assert sorted(session.scalars(statement).all()) == expected, str(statement)
    runs = select(orm.Run.options, func.count()).group_by(orm.Run.options)
    assert session.execute(runs).all() == [({"a": {"b": [1, 2.5]}, "name": "one"}, 1)]
    same = orm.Run.options.in_(select(orm.Run.options))
    assert session.scalars(select(orm.Run.name).where(same)).all() == ["one"]


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        (cast_sql(literal("abcdef"), String(3)), "abc"),
        (cast_sql(literal("abcdef"), String), "abcdef"),
        (cast_sql(literal(12345), String(2)), "12"),
        (orm.Run.options[("a", "b", 1)].as_float() == 2.5, True),
        (literal({"lr": 0.1}, JSONB)["lr"].as_float(), 0.1),
        (literal({"lr": 0.1}, JSONB)["lr"].as_float().between(0.01, 0.1), True),
        (literal({"lr": 0.1}, JSONB)["lr"].as_float().in_([0.1]), True),
        (cast_sql(literal(0.1), Float), 0.1),
        (func.sum(cast_sql(literal(0.1), Float)), 0.1),
        (cast_sql(literal(1e-7), Numeric), Decimal("1e-7")),
        (cast_sql(literal(1.23456), Numeric), Decimal("1.23456")),
        (literal(7) // literal(2), 3),
        (literal(-7) // literal(2), -3),
        (literal(1) + literal(7) // literal(2) * literal(2), 7),
        (literal(20) // (literal(7) // literal(2)), 6),
        (literal(-7.5) // literal(2), -4),
        (literal(7) / literal(2), Decimal("3.5")),
        (literal(-7) % literal(3), -1),
        (literal("a%b").like(r"a\%b"), True),
        (literal("axb").like(r"a\%b"), False),
        (literal("axb").not_ilike(r"A\%b"), True),
        (literal("a%b").contains("%", autoescape=True), True),
        (literal("a\\b").like("a\\b", escape="\\"), False),
        (extract("second", orm.Run.created_at), 5.678901),
        (extract("milliseconds", orm.Run.created_at), 5678.901),
        (extract("year", orm.Run.created_at), 2026),
    ],
    ids=str,
)
def test_an_expression_has_the_value_that_postgres_gives_it(
    session: orm.ReadSession, expression: Any, expected: object
) -> None:
    found = session.scalar(select(expression).select_from(orm.Run))
    assert found is not None
    assert (float(found) if isinstance(expected, float) else found) == expected


@pytest.mark.parametrize("wrong", [literal(7) / literal(0), cast_sql(literal(1.5), Double) / 0])
def test_a_division_by_zero_is_an_error(session: orm.ReadSession, wrong: Any) -> None:
    with pytest.raises(errors.DatabaseFailed, match=r"(?i)division by zero"):
        session.scalar(select(wrong))


def test_nulls_stand_where_postgres_puts_them(session: orm.ReadSession) -> None:
    parent = orm.Transfer.parent_id
    for order, first in (
        (parent, 1),
        (parent.desc(), None),
        (parent.desc().nulls_last(), 1),
        (parent.nulls_first(), None),
        (parent.desc().nulls_first(), None),
    ):
        assert session.scalars(select(parent).order_by(order)).first() == first, str(order)


def test_windows_subqueries_and_limits(session: orm.ReadSession) -> None:
    place = func.row_number().over(order_by=orm.Transfer.transfer_id.desc())
    count = select(func.count()).where(orm.Hop.candidate_id == orm.Candidate.candidate_id)
    rows = select(orm.Transfer.transfer_id, place).order_by(orm.Transfer.transfer_id)
    assert session.execute(rows.limit(1).offset(1)).all() == [(2, 1)]
    assert session.scalars(select(count.correlate(orm.Candidate).scalar_subquery())).all() == [1]


def test_type_checkers_know_what_is_read(session: orm.ReadSession) -> None:
    run = session.scalars(select(orm.Run)).one()
    (candidate,) = assert_type(run.candidates, list[orm.Candidate])
    (hop,) = assert_type(candidate.hops, list[orm.Hop])
    assert_type(hop.loss, float)
    assert_type(run.metric, str | None)
    assert_type(session.scalars(select(orm.Model)).one().parent, orm.Model | None)


def test_a_model_has_the_tensors_that_replaced_its_manifests(db: Database) -> None:
    with orm.session(db) as session:
        model = session.scalars(select(orm.Model)).one()
        assert [(t.path, t.tensor.dtype) for t in model.tensors] == [("one", "one")]
        assert model.parents == [model] and model.children == [model]
        assert model.candidate is not None and model.candidate.run.models == [model]


def test_the_reader_reads_views_and_no_tables(postgres_url: str) -> None:
    parts = urlsplit(postgres_url)
    with mmdb.connect(postgres_url) as db:
        db.sql("CREATE ROLE orm_reader LOGIN PASSWORD 'r' IN ROLE mmdb_reader")
        with orm.session(
            f"postgresql://orm_reader:r@{parts.hostname}:{parts.port}{parts.path}"
        ) as s:
            assert s.scalars(select(orm.Leaderboard)).all() == []
            with pytest.raises(errors.RightsMissing):
                s.scalars(select(orm.Run)).all()
        db.sql("DROP ROLE orm_reader")


# -- writing is refused -----------------------------------------------------------


def test_nothing_is_written(session: orm.ReadSession, db: Database) -> None:
    run = session.scalars(select(orm.Run)).one()

    def assign() -> None:
        run.name = "other"

    def slip_past() -> None:
        set_attribute(run, "name", "other")
        session.flush()

    attempts: dict[str, Callable[[], object]] = {
        "assign": assign,
        "slip past": slip_past,
        "make": lambda: orm.Run(name="new"),
        "add": lambda: session.add(run),
        "add all": lambda: session.add_all([run]),
        "delete": lambda: session.delete(run),
        "merge": lambda: session.merge(run),
        "bulk": lambda: session.bulk_insert_mappings(inspect(orm.Setting), [{"name": "b"}]),
        "bulk update": lambda: session.bulk_update_mappings(inspect(orm.Run), [{"run_id": 1}]),
        "bulk save": lambda: session.bulk_save_objects([run]),
        "insert": lambda: session.execute(insert(orm.Setting).values(name="a", value="b")),
        "update": lambda: session.execute(update(orm.Run).values(name="other")),
        "delete rows": lambda: session.execute(delete(orm.Block)),
        "core": lambda: session.connection().execute(delete(cast(Table, orm.Block.__table__))),
        "text": lambda: session.execute(text("DELETE FROM mmdb.block")),
        "two statements": lambda: session.execute(text("COMMIT; DELETE FROM mmdb.block")),
        "ddl": lambda: orm.Base.metadata.drop_all(session.get_bind(), checkfirst=False),
        "text ddl": lambda: session.execute(text("CREATE TABLE mmdb.other (x integer)")),
    }
    before = counts(db)
    for name, attempt in attempts.items():
        with pytest.raises(errors.ReadOnly):
            attempt()
            pytest.fail(f"{name} was not refused")
        session.rollback()
    assert counts(db) == before and before["block"] == 1
    assert db.sql("SELECT name FROM mmdb.run") == [{"name": "one"}]


def counts(db: Database) -> dict[str, int]:
    """Return the number of rows in each table."""
    names = [table.name for table in tables_of(db)]
    return {name: db.sql(f"SELECT count(*) AS n FROM mmdb.{name}")[0]["n"] for name in names}


def test_a_refusal_names_the_call_that_writes(session: orm.ReadSession) -> None:
    with pytest.raises(errors.ReadOnly) as refused:
        session.execute(update(orm.Dataset).values(name="other"))
    assert "Database.create_dataset" in refused.value.hint


# -- sessions ------------------------------------------------------------------


def test_an_open_session_sees_what_is_written_meanwhile(db: Database) -> None:
    with orm.session(db) as session:
        count = select(func.count()).select_from(orm.Setting)
        before = session.scalar(count)
        run_rows.insert(db, "setting", name="later", value="1")
        assert before is not None and session.scalar(count) == before + 1
        db.sql("DELETE FROM mmdb.setting WHERE name = 'later'")


def test_sessions_of_several_threads_share_an_engine(db: Database) -> None:
    engine = orm.engine(db)
    found: list[Any] = []

    def read() -> None:
        with orm.ReadSession(engine) as session:
            found.append(
                session.scalars(select(orm.Run).options(selectinload(orm.Run.candidates)))
                .one()
                .candidates[0]
                .seed
            )

    threads = [threading.Thread(target=read) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    engine.dispose()
    assert found == [LARGE] * 4


def test_a_wrong_statement_raises_an_error_of_mmdb(session: orm.ReadSession) -> None:
    with pytest.raises(errors.DatabaseFailed):
        session.execute(text("SELECT nothing FROM mmdb.run"))


def test_a_session_of_a_url_opens_and_closes_the_file(installed_duckdb_url: str) -> None:
    with orm.session(installed_duckdb_url) as session:
        assert session.scalars(select(orm.Run)).all() == []
        with pytest.raises(errors.DatabaseLocked):
            mmdb.connect(installed_duckdb_url)
    with mmdb.connect(installed_duckdb_url):
        pass


def test_a_database_without_mmdb_is_told(cluster: Cluster) -> None:
    with pytest.raises(errors.NotInstalled):
        orm.session(cluster.url())
    with pytest.raises(errors.WrongUrl):
        orm.session("sqlite://")
