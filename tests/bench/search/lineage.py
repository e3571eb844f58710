"""Random queries whose columns two databases know: no column may be lost in silence.

PostgreSQL writes into `pg_depend` which columns a view's query names. On DuckDB every column that
was not found gets other values, which must not change the result, and is then taken away, which
must not keep the query from being bound. No parser of mmdb's plays a part in what is true.
"""

from __future__ import annotations

import random
import re
import sys
import tempfile
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field
from functools import cache
from multiprocessing import get_context
from threading import Timer
from typing import Any

import duckdb
import psycopg

from mmdb.bench.figures import Figure
from mmdb.data.query import Analysis, Engine, analyse
from mmdb.data.query.columns import QueryRows, touching
from mmdb.db.connection import Relation, TableName
from mmdb.db.postgres import PostgresConnection
from mmdb.errors import QueryError
from tests.bench.search import lineage_words as words
from tests.bench.search.campaigns import none_of
from tests.bench.search.lineage_queries import Query, Writer
from tests.cluster import Cluster

#: Of valid queries, how many may be refused, and of outputs, how many may be marked.
REFUSED, MARKED = 0.01, 0.1
#: Queries in one transaction.
BATCH = 100
#: Rows of a table.
ROWS = 6
#: Rows of a result that are compared.
MOST_ROWS = 5000
#: Seconds of a query; one that takes longer is not compared.
MOST_SECONDS = 2.0
#: What makes of the order of rows, ties too, which rows there are.
_ORDERED = re.compile(r"LIMIT|DISTINCT ON|OVER")
_BROKEN = (duckdb.InternalException, duckdb.FatalException)
#: The one value of a result that could not be computed.
ERROR = "error"

#: Table and column.
Place = tuple[str, str]


@dataclass
class Found:
    """What a search has seen."""

    engine: Engine
    valid: int = 0
    invalid: int = 0
    marked: list[str] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)
    refused: Counter[str] = field(default_factory=Counter)
    errors: Counter[str] = field(default_factory=Counter)  # of the database

    def figures(self) -> list[Figure]:
        refused = sum(self.refused.values())
        name = f"lineage.{self.engine}"
        return [
            none_of(f"{name}.queries_with_lost_columns", len(self.lost), "queries"),
            _share(f"{name}.refused", refused, self.valid, REFUSED),
            _share(f"{name}.marked", len(self.marked), self.valid, MARKED),
            Figure(name=f"{name}.queries", value=self.valid, unit="queries"),
        ]


def _share(name: str, count: int, of: int, most: float) -> Figure:
    share = count / max(of, 1)
    return Figure(name=name, value=share, unit="of 1", bar=f"<= {most}", holds=share <= most)


def search(*, seed: int, cases: int) -> list[Figure]:
    """Look for lost columns in random queries, half of them on each engine, at the same time."""
    counts = {on_postgres: cases // 2, on_duckdb: cases - cases // 2}
    with ProcessPoolExecutor(2, get_context("spawn")) as pool:
        parts = [pool.submit(look, seed, count) for look, count in counts.items()]
        found = [part.result() for part in parts]
    for query in [query for part in found for query in part.lost][:5]:
        print(query, file=sys.stderr)
    return [figure for part in found for figure in part.figures()]


class Known:
    """A catalog that asks once for each name."""

    def __init__(self, find: Any) -> None:
        self.relation = cache(find)


def _analysed(query: Query, engine: Engine, known: Known, found: Found) -> Analysis | None:
    try:
        return analyse(query.text, engine, known)
    except QueryError as error:
        text = re.sub(r"line \d+, column \d+", "", str(error))
        found.refused[f"{text} <<< {query.text}"] += 1
        return None


def _places(reached: Any) -> set[Place]:
    return {(r.leaf.table, r.leaf.column) for r in reached if r.leaf.table and r.leaf.column}


def _is_marked(reached: Any) -> bool:
    return any(r.leaf.column is None and r.leaf.table is None for r in reached)


def _kinds(table: str, engine: Engine) -> list[tuple[str, str]]:
    listed = words.TABLES[table] + (f" {words.MORE[table]}" if engine == "postgres" else "")
    return re.findall(r'("(?:[^"]|"")*"|\w+):(\w)', listed)


def _bare(name: str) -> str:
    return name[1:-1].replace('""', '"') if name.startswith('"') else name


# -- PostgreSQL: pg_depend --------------------------------------------------------

_DEPENDS = r"""
SELECT (regexp_match(v.relname, '^view_\d+'))[1], substring(v.relname FROM '[a-z]+$'),
    c.relname, a.attname
FROM pg_class AS v
JOIN pg_rewrite AS r ON r.ev_class = v.oid
JOIN pg_depend AS d ON d.classid = 'pg_rewrite'::regclass AND d.objid = r.oid
JOIN pg_class AS c ON d.refclassid = 'pg_class'::regclass AND c.oid = d.refobjid AND c.oid <> v.oid
JOIN pg_attribute AS a ON a.attrelid = c.oid AND a.attnum = d.refobjsubid
WHERE v.relname ~ '^view_' AND c.relkind = 'r'
"""


def on_postgres(seed: int, cases: int) -> Found:
    """Compare with what PostgreSQL says that a view depends on."""
    found = Found("postgres")
    writer = Writer("postgres", random.Random(f"postgres {seed}"))
    with Cluster() as cluster:
        url = cluster.create_database("lineage_search")
        with psycopg.connect(url) as session, closing(PostgresConnection(url)) as asked:
            session.execute("CREATE TYPE pair_type AS (x integer, y text)")
            for table in words.TABLES:
                columns = (
                    f"{n} {words.TYPES['postgres'][k]}" for n, k in _kinds(table, "postgres")
                )
                _run(session, f"CREATE TABLE {table} ({', '.join(columns)})")
            session.execute("SET statement_timeout = '2s'")
            session.commit()
            known = Known(asked.relation)
            while found.valid < cases:
                with session.transaction(force_rollback=True):
                    made = _batch(session, writer, found, min(BATCH, cases - found.valid))
                for query, depends in made:
                    _compare(query, depends, known, found)
    return found


def _batch(
    session: psycopg.Connection, writer: Writer, found: Found, count: int
) -> list[tuple[Query, dict[str, set[Place]]]]:
    """Return queries that are valid, and what they name: whole, without outputs, with the first."""
    queries = []
    for number in range(count):
        query = writer.query()
        if _view(session, f"view_{number}", query.text, found):
            queries.append((query, f"view_{number}"))
            if query.is_plain:
                _view(session, f"view_{number}_none", f"{query.head}SELECT 1 AS o{query.tail}")
                only = f"{query.head}SELECT {query.items[0]} AS o{query.tail}"
                _view(session, f"view_{number}_first", only)
        else:
            found.invalid += 1
    found.valid += len(queries)
    depends: dict[str, dict[str, set[Place]]] = {}
    for view, part, table, column in session.execute(_DEPENDS):
        depends.setdefault(view, {}).setdefault(part or "", set()).add((table, column))
    return [(query, depends.get(view, {})) for query, view in queries]


def _run(session: psycopg.Connection, statement: str) -> None:
    session.execute(statement.encode())


def _view(session: psycopg.Connection, name: str, text: str, found: Found | None = None) -> bool:
    try:
        with session.transaction():
            _run(session, f"CREATE VIEW {name} AS {text}")
    except psycopg.Error as error:
        if found is not None:
            found.errors[str(error).splitlines()[0]] += 1
        return False
    return True


def _compare(query: Query, depends: dict[str, set[Place]], known: Known, found: Found) -> None:
    """Note what a query names and its lineage does not, of all and of the first output alone."""
    analysis = _analysed(query, "postgres", known, found)
    if analysis is None:
        return
    sources = analysis.sources
    if any(source.resolution != "column" and source.output for source in sources) or any(
        source.resolution == "unresolved" for source in sources
    ):
        found.marked.append(query.text)
        return
    told = {(source.table, source.column) for source in sources}
    missing = depends.get("", set()) - told
    if query.whole_rows:
        missing |= {("whole row", name) for name in query.whole_rows if not _has_all(name, told)}
    if query.is_plain and "SELECT" not in query.items[0]:
        fed = {(s.table, s.column) for s in sources if s.output == query.names[0]}
        missing |= depends.get("first", set()) - depends.get("none", set()) - fed
    if missing:
        found.lost.append(f"{sorted(missing)} <<< {query.text}")


def _has_all(table: str, told: set[Any]) -> bool:
    return all((table, _bare(name)) in told for name, _ in _kinds(table, "postgres"))


# -- DuckDB: other values, and no values --------------------------------------------

_VALUES = {
    "i": "{n}",
    "f": "{n} / 3.0",
    "s": "'{w}'",
    "j": """'{{"n": {n}, "x": {n}.5, "a": "{w}", "b": "b{w}", "arr": [{n}, 2, {m}], "o": {{"n": {m},
        "k": "{w}", "z": 1}}, "name": "{w}", "age": {n},
        "d": "2021-0{d}-11", "y": {{"z": {n}}}}}'""",
    "a": "[{n}, {m}, 2]",
    "b": "{b}",
    "d": "DATE '2021-0{d}-1{d}'",
    "t": "TIMESTAMP '202{d}-0{d}-1{d} 1{d}:00:00'",
}


def _value(kind: str, rng: random.Random) -> str:
    if rng.random() < 0.12:
        return "NULL"
    word = "".join(rng.choice("ab,x7") for _ in range(rng.randint(1, 6)))
    return _VALUES[kind].format(
        n=rng.randint(-3, 9),
        m=rng.randint(0, 20),
        d=rng.randint(1, 9),
        w=word,
        b=rng.random() < 0.5,
    )


def on_duckdb(seed: int, cases: int) -> Found:
    """Compare results before and after what was not found changes."""
    found = Found("duckdb")
    rng = random.Random(f"duckdb {seed}")
    writer = Writer("duckdb", rng)
    with tempfile.TemporaryDirectory() as folder:
        base = _opened(folder)
        base.execute("CREATE SCHEMA wide")
        for table in words.TABLES:
            _fill(base, table, rng)
            _expose(base, "search.main", table, None)
        known = Known(_plain_tables)
        while found.valid < cases:
            query = writer.query()
            try:
                base.execute("USE search.main")
                result = _rows(base, query.text)
                found.valid += 1
                analysis = _analysed(query, "duckdb", known, found)
                if analysis is not None:
                    _perturb(base, query, analysis, result, found)
            except _BROKEN as error:  # DuckDB's own, after which it takes no more
                found.errors[str(error).splitlines()[0]] += 1
                base.close()
                base = _opened(folder)
            except (duckdb.Error, UnicodeDecodeError) as error:
                found.invalid += 1
                found.errors[str(error).splitlines()[0]] += 1
        base.close()
    return found


def _opened(folder: str) -> duckdb.DuckDBPyConnection:
    base = duckdb.connect(f"{folder}/search.duckdb")
    base.execute("SET threads = 1; SET memory_limit = '1GB'; PRAGMA disable_optimizer")
    base.execute("ATTACH ':memory:' AS other")
    return base


def _plain_tables(name: TableName, beside: Relation | None = None) -> Relation | None:
    wanted = name.name.lower()
    if wanted not in words.TABLES or name.schema not in (None, "main"):
        return None
    columns = tuple((_bare(n), k) for n, k in _kinds(wanted, "duckdb"))
    return Relation(schema="main", name=wanted, kind="table", columns=columns)


def _fill(base: duckdb.DuckDBPyConnection, table: str, rng: random.Random) -> None:
    """Make a table that has each column twice, with other values."""
    kinds = _kinds(table, "duckdb")
    pairs = [(f"c{i}_{side}", k) for i, (_, k) in enumerate(kinds) for side in "ab"]
    columns = ", ".join(f"{name} {words.TYPES['duckdb'][kind]}" for name, kind in pairs)
    base.execute(f"CREATE TABLE wide.{table} ({columns})")
    for _ in range(ROWS):
        base.execute(
            f"INSERT INTO wide.{table} VALUES ({', '.join(_value(k, rng) for _, k in pairs)})"
        )


def _expose(
    base: duckdb.DuckDBPyConnection,
    schema: str,
    table: str,
    kept: set[Place] | None,
    *,
    has_rest: bool = True,
) -> None:
    """Show a table of which some columns are as they were; the others change, or are gone."""
    shown = []
    for number, (name, _) in enumerate(_kinds(table, "duckdb")):
        is_kept = kept is None or (table, _bare(name)) in kept
        side = "a" if is_kept else "b"
        shown.append(
            f"c{number}_{side} AS {name if is_kept or has_rest else f'gone_{table}_{number}'}"
        )
    base.execute(
        f"CREATE OR REPLACE VIEW {schema}.{table} AS "
        f"SELECT {', '.join(shown)} FROM search.wide.{table}"
    )


def _rows(base: duckdb.DuckDBPyConnection, text: str) -> list[tuple[str, ...]]:
    ended = Timer(MOST_SECONDS, base.interrupt)  # a product of many tables
    ended.start()
    try:
        return [tuple(map(repr, row)) for row in base.execute(text).fetchmany(MOST_ROWS)]
    finally:
        ended.cancel()


def _perturb(
    base: duckdb.DuckDBPyConnection,
    query: Query,
    analysis: Analysis,
    result: list[tuple[str, ...]],
    found: Found,
) -> None:
    """Note a query whose rows, or one output, what was not found changes or keeps from running."""
    whole = QueryRows([], list(analysis.rows.columns), [analysis.rows])
    reached = touching(whole)
    if _is_marked(reached) or analysis.rows.has_gap:
        found.marked.append(query.text)
        return
    told = _places(reached)
    base.execute("USE other.main")
    tables = [table for table in words.TABLES if table in query.text]
    for table in tables:
        _expose(base, "other.main", table, told)
    again = _again(base, query)
    if again is not None and again != sorted(result):
        found.lost.append(f"changes <<< {query.text}")
        return
    for place, column in enumerate(analysis.rows.columns):
        own = _places(touching(QueryRows([], [column], [analysis.rows])))
        if own == told or len(result) == MOST_ROWS or _ORDERED.search(query.text):
            continue  # nothing new to see, or which rows there are hangs on their order
        for table in tables:
            _expose(base, "other.main", table, own)
        again = _again(base, query)
        if again is None or ERROR in [row[0] for row in again]:  # of another output's value
            continue
        if sorted(row[place] for row in again) != sorted(row[place] for row in result):
            found.lost.append(f"output {column.label} changes <<< {query.text}")
            return
    for table in tables:
        _expose(base, "other.main", table, told, has_rest=False)
    try:
        base.execute(f"EXPLAIN {query.text}")
    except duckdb.Error as error:
        found.lost.append(f"{str(error).splitlines()[0]} <<< {query.text}")


def _again(base: duckdb.DuckDBPyConnection, query: Query) -> list[tuple[str, ...]] | None:
    """Return the rows that a query has now; None if that takes too long."""
    try:
        return sorted(_rows(base, query.text))
    except duckdb.InterruptException:
        return None
    except _BROKEN:
        raise
    except duckdb.Error as error:  # of a value: a division by what is zero now
        return [(ERROR, str(error))]
