"""Objects under the names that mmdb's SQL uses, with types that fit its arguments better.

PostgreSQL looks into its own catalog first, but there only an exact match wins: where mmdb gives an
integer to a function of a bigint, or anything to one of any type, one in `public` of just that type
is taken before. Each shadow writes to the server's log as whom it is run, which outlives rollbacks.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import psycopg

from mmdb.db.queries import Query, load, sql_directory
from tests.cluster import ROOT

#: In the log, before the shadow, as whom it ran, and in whose session.
MARK = "a shadow ran:"
#: Types that arguments of mmdb's statements have.
TYPES = (
    "smallint", "integer", "bigint", "real", "double precision", "numeric", "text",
    "character varying", "name", '"char"', "boolean", "bytea", "jsonb", "oid", "regclass",
    "regtype", "regrole", "date", "timestamp without time zone", "timestamp with time zone",
    "interval",
)  # fmt: skip
ARRAYS = tuple(f"{kind}[]" for kind in ("text", "bigint", "integer", "name", "bytea", "oid",
                                        "double precision", "real"))  # fmt: skip
#: Arguments of any type, and the concrete types that stand for them.
_ANY = {
    **dict.fromkeys(("anyelement", "anynonarray", "anycompatible", "anycompatiblenonarray",
                     '"any"', "anyenum"), TYPES),
    **dict.fromkeys(("anyarray", "anycompatiblearray"), ARRAYS),
}  # fmt: skip
_COMBINATIONS = 40  # of types, for each function of the catalog
_MOST_ARGUMENTS = 4

_WORD, _SYMBOL = re.compile(r"\b([a-z_][a-z0-9_]*)\s*\("), re.compile(r"[-+*/<>=~!@#%^&|`?]+")
_FUNCTIONS = """
SELECT p.proname, p.prokind::text, p.proretset, p.prorettype::regtype::text,
    ARRAY(SELECT t.type::regtype::text FROM unnest(p.proargtypes) WITH ORDINALITY AS t (type, k)
        ORDER BY t.k) || v.more
FROM pg_catalog.pg_proc AS p
CROSS JOIN LATERAL (
    SELECT '{}'::text[] AS more
    UNION ALL SELECT m.more FROM (
        VALUES (ARRAY['text']), (ARRAY['"any"']), (ARRAY['text', 'text'])
    ) AS m (more) WHERE p.provariadic = '"any"'::regtype
) AS v
WHERE p.pronamespace = 'pg_catalog'::regnamespace AND p.proname = ANY (%s)
ORDER BY p.oid
"""
_OPERATORS = """
SELECT oprname, oprleft::regtype::text, oprright::regtype::text, oprresult::regtype::text
FROM pg_catalog.pg_operator
WHERE oprnamespace = 'pg_catalog'::regnamespace AND oprkind = 'b' AND oprname = ANY (%s)
ORDER BY oid
"""
_COERCIONS = """
SELECT casttarget::regtype::text, castsource::regtype::text FROM pg_catalog.pg_cast
WHERE castcontext = 'i' AND castsource::regtype::text = ANY (%s) ORDER BY 1, 2
"""
#: Files of the engine's that are sent, not run at an install.
_SENT = ("postgres_space.sql", "postgres_reclaim.sql", "postgres_columns.sql")
_TAKEN = """
SELECT pg_catalog.pg_describe_object(d.refclassid, d.refobjid, 0)
FROM pg_catalog.pg_depend AS d
LEFT JOIN pg_catalog.pg_proc AS p ON d.refobjid = p.oid
LEFT JOIN pg_catalog.pg_operator AS o ON d.refobjid = o.oid
LEFT JOIN pg_catalog.pg_type AS t ON d.refobjid = t.oid
WHERE d.objid = 'pg_temp.looked_at'::pg_catalog.regproc
    AND coalesce(p.pronamespace, o.oprnamespace, t.typnamespace)::regnamespace::text = ANY (%s)
"""


@dataclass(frozen=True, slots=True)
class Shadow:
    """An object to be planted.

    Attributes:
        statements: that make it, in schema `{schema}`.
    """

    title: str
    statements: tuple[str, ...]


def texts() -> str:
    """Return all SQL that mmdb has, in files of SQL and inside its Python."""
    folders = (ROOT / "sql", ROOT / "udf", ROOT / "mmdb")
    files = [f for folder in folders for f in folder.rglob("*") if f.suffix in (".sql", ".py")]
    return "\n".join(file.read_text().lower() for file in sorted(files))


def shadows(session: psycopg.Connection[Any], source: random.Random, count: int) -> list[Shadow]:
    """Return so many shadows of functions, aggregates, operators and types, drawn evenly."""
    text = texts()
    words = {match for match in _WORD.findall(text)}
    known = session.execute(_FUNCTIONS, (list(words),)).fetchall()
    coerced: dict[str, list[str]] = {}
    for target, given in session.execute(_COERCIONS, (list(TYPES),)).fetchall():
        coerced.setdefault(target, []).append(given)
    symbols = {part for run in _SYMBOL.findall(text) for part in (run, run.rstrip("-+"))}
    symbols |= {"~~", "~~*", "!~~", "!~~*"}  # LIKE and ILIKE
    operators = session.execute(_OPERATORS, (list(symbols),)).fetchall()
    kinds = [
        list(_functions(known, coerced)),
        list(_operators(operators, coerced)),
        list(_types(session)),
    ]
    for kind in kinds:
        source.shuffle(kind)
    return [
        *kinds[0][: count // 2],
        *kinds[1][: count // 2 - count // 10],
        *kinds[2][: count // 10],
    ]


def _functions(known: Sequence[Any], coerced: dict[str, list[str]]) -> Iterator[Shadow]:
    exact = {(name, tuple(types)) for name, _, _, _, types in known}
    done: set[tuple[str, tuple[str, ...]]] = set()
    for name, kind, is_set, returns, declared in known:
        if not 0 < len(declared) <= _MOST_ARGUMENTS:
            continue
        for types in _alternatives(declared, coerced):
            if (name, types) in exact | done:
                continue
            done.add((name, types))
            result = _concrete(returns, declared, types)
            make = _aggregate if kind in ("a", "w") else _function
            yield make(name, types, f"SETOF {result}" if is_set else result)


def _alternatives(
    declared: Sequence[str], coerced: dict[str, list[str]]
) -> Iterator[tuple[str, ...]]:
    """Yield types that arguments of the declared ones are made from without being asked."""
    choices = [_ANY.get(kind) or (kind, *coerced.get(kind, [])) for kind in declared]
    same = [kind for kind in declared if kind in _ANY]
    for count, types in enumerate(product(*choices)):
        if count == _COMBINATIONS * len(TYPES):
            return
        first = [t for t, kind in zip(types, declared, strict=True) if kind in _ANY]
        # What is given twice for any type is mostly of one.
        if same and len({t.removesuffix("[]") for t in first}) > 1:
            continue
        yield types


def _concrete(returns: str, declared: Sequence[str], types: Sequence[str]) -> str:
    """Return the type of a result where the arguments are of some types."""
    if returns not in _ANY:
        return returns if returns not in ("record", "internal") else "integer"
    base = next(
        (t.removesuffix("[]") for t, k in zip(types, declared, strict=True) if k in _ANY), "text"
    )
    return f"{base}[]" if "array" in returns and "non" not in returns else base


def _body(title: str, returns: str) -> str:
    said = title.replace("'", "''").replace("%", "%%")
    end = "RETURN;" if returns.startswith(("SETOF", "void")) else "RETURN NULL;"
    return (
        f"LANGUAGE plpgsql AS $shadow$ BEGIN IF session_user <> 'mallory' OR current_user <> "
        f"'mallory' THEN RAISE LOG '{MARK} {said} as % for %', current_user, session_user; "
        f"END IF; {end} END $shadow$"
    )


def _function(name: str, types: Sequence[str], returns: str) -> Shadow:
    title = f"{name}({', '.join(types)})"
    return Shadow(
        title,
        (f'CREATE FUNCTION {{schema}}."{name}"({", ".join(types)}) RETURNS {returns} '
         + _body(title, returns),),
    )  # fmt: skip


def _aggregate(name: str, types: Sequence[str], returns: str) -> Shadow:
    title = f"{name}({', '.join(types)})"
    given = ", ".join(types)
    step = "step_" + re.sub(r"\W+", "_", title)
    return Shadow(
        title,
        (
            f"CREATE FUNCTION {{schema}}.{step}({returns}, {given}) RETURNS {returns} "
            + _body(title, returns),
            f'CREATE AGGREGATE {{schema}}."{name}"({given}) '
            f"(SFUNC = {{schema}}.{step}, STYPE = {returns})",
        ),
    )


def _operators(known: Sequence[Any], coerced: dict[str, list[str]]) -> Iterator[Shadow]:
    exact = {(name, left, right) for name, left, right, _ in known}
    done: set[tuple[str, str, str]] = set()
    for name, left, right, result in known:
        for types in _alternatives((left, right), coerced):
            one = (name, *types)
            if one in exact | done or result in _ANY:
                continue
            done.add(one)
            title = f"{types[0]} {name} {types[1]}"
            function = f"operator_{len(done)}"
            yield Shadow(
                title,
                (
                    f"CREATE FUNCTION {{schema}}.{function}({', '.join(types)}) "
                    f"RETURNS {result} " + _body(title, result),
                    f"CREATE OPERATOR {{schema}}.{name} (LEFTARG = {types[0]}, "
                    f"RIGHTARG = {types[1]}, FUNCTION = {{schema}}.{function})",
                ),
            )


def _types(session: psycopg.Connection[Any]) -> Iterator[Shadow]:
    """Yield domains named like the types of the catalog and of mmdb, with a check that runs."""
    names = session.execute(
        "SELECT DISTINCT typname FROM pg_catalog.pg_type WHERE typtype IN ('b', 'c', 'd') "
        "AND typnamespace IN ('pg_catalog'::regnamespace, to_regnamespace('mmdb')) "
        "AND typname !~ '^_' ORDER BY 1"
    ).fetchall()
    for (name,) in names:
        check = f'"check_{name}"'
        yield Shadow(
            f"type {name}",
            (
                f"CREATE FUNCTION {{schema}}.{check}(text) RETURNS boolean "
                + _body(f"type {name}", "boolean"),
                f'CREATE DOMAIN {{schema}}."{name}" AS pg_catalog.text '
                f"CHECK ({{schema}}.{check}(VALUE))",
            ),
        )


def chosen(session: psycopg.Connection[Any], schemas: Sequence[str]) -> Iterator[str]:
    """Yield each statement of mmdb's that is sent as it is, with what it takes of some schemas.

    A function whose body is SQL depends on what the names in it were found to be.
    """
    files = sorted(sql_directory("sql/queries").glob("*.sql"))
    queries = [query for path in files for query in load(path.stem) if query.definer is None]
    for name in _SENT:
        text = (sql_directory("sql/engines") / name).read_text().rstrip().removesuffix(";")
        queries.append(Query(name, "", text))
    for query in queries:
        taken = _taken(session, query, schemas)
        yield from (f"{query.file} {query.name} takes {one}" for one in taken)


def _taken(session: psycopg.Connection[Any], query: Query, schemas: Sequence[str]) -> list[str]:
    given = ", ".join(query.parameters.values())
    for returns in ("SETOF record", "void"):
        try:
            with session.transaction(force_rollback=True):
                session.execute(
                    f"CREATE FUNCTION pg_temp.looked_at({given}) RETURNS {returns} LANGUAGE sql "
                    f"BEGIN ATOMIC {query.numbered}; END".encode()
                )
                return [what for (what,) in session.execute(_TAKEN, (list(schemas),)).fetchall()]
        except psycopg.errors.AmbiguousFunction as error:  # it cannot run any more
            return [str(error).splitlines()[0]]
        except psycopg.Error:
            continue  # it returns otherwise, or reads nothing
    return []
