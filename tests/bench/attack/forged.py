"""The campaign `forged`: rows written with ill will stop nothing that other people read.

A trainer calls every function of mmdb that writes, each parameter in turn with an extreme value
beside sound ones, and the functions that people call with extremes of their own. After each
function somebody else reads every view, the monitor's metrics and every page, the owner asks the
doctor and verifies, and a trainer looks for parents and hands a run to workers.
"""

from __future__ import annotations

import asyncio
import random
import re
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from typing import Any

import psycopg
from psycopg import sql
from psycopg.rows import dict_row
from psycopg.types.json import Jsonb

import mmdb
from mmdb.bench.figures import Figure
from mmdb.db.doctor import examine
from mmdb.db.install import install
from mmdb.db.queries import Query, load, sql_directory
from mmdb.errors import MmdbError
from mmdb.standards.prometheus import read_metrics
from mmdb.store.verify import verify_at
from mmdb.ui.app import make_app
from mmdb.ui.security import Rules
from mmdb.ui.sessions import PageSessions
from tests.bench.search.campaigns import none_of
from tests.cluster import Cluster

DATABASE, TRAINER, READER = "mmdb_forged", "forger", "onlooker"
#: Seconds in which a reader has an answer.
PATIENCE_S = 30
_WRITES = re.compile(r"\b(?:INSERT INTO|UPDATE) mmdb\.(\w+)")
_PYTHON_ERROR = re.compile(r"^[A-Z]\w*(?:Error|Exception): ")
_DEEP = "[" * 3000 + "]" * 3000
#: Values of each SQL type that are no sound ones.
EXTREMES: dict[str, tuple[Any, ...]] = {
    "double precision": ("NaN", "Infinity", "-Infinity", 1.7e308, -1.7e308, 1e101, -1.0, 1e12),
    "integer": (2**31 - 1, 2**31 - 2, -1, -(2**31)),
    "bigint": (2**63 - 1, 2**43, -1, -(2**63)),
    "text": ("x" * 2**20, "", "\x1b[2J\x07<script>", "é" * 8000),
    "bytea": (b"", b"\xff" * 2**20),
    "jsonb": (
        "[1]", '"x"', "null", "1", "{}", "[]", _DEEP, f'{{"a": {_DEEP}}}', '{"accuracy": "x"}',
        '{"accuracy": 1e400, "rmse": -1e400}', '{"workers": "x", "group": [], "accuracy": {}}',
        '{"workers": 1e30, "group": 1e30}', '{"a": null, "kind": 1, "factory": []}',
        '{"config": [], "by": 1, "idle": "x", "reason": []}', '[{"name": 1}]',
        '["a", {"b": null}]', f'{{"a": "{"x" * 2**20}"}}',
    ),
    "timestamptz": ("infinity", "-infinity", "4713-01-01 BC", "294276-12-31", "0001-01-01"),
    "integer[]": ([2**31 - 1] * 64, [-1], [None], [[1], [2]], [1] * 10_000),
    "bigint[]": ([2**63 - 1] * 64, [-1], [None], [[1], [2]], [1] * 10_000),
}  # fmt: skip
_SOUND: dict[str, Any] = {
    "double precision": 0.5, "integer": 1, "bigint": 1, "text": "x", "bytea": b"x" * 32,
    "jsonb": "{}", "timestamptz": "2026-01-01", "boolean": True, "integer[]": [1], "bigint[]": [1],
    "text[]": ["x"], "bytea[]": [b"x" * 32], "boolean[]": [True], "double precision[]": [0.5],
}  # fmt: skip
#: Calls of people's functions; each is refused, or what it leaves stops nobody.
CALLS = (
    "SELECT mmdb.log_metric('kept', 'accuracy', 'NaN')",
    "SELECT mmdb.log_metric('kept', 'worst', '-Infinity')",
    "SELECT mmdb.log_metric('kept', 'most', 1.7e308)",
    "SELECT mmdb.log_metric('kept', repeat('m', 100000), 1)",
    "SELECT mmdb.note_model('kept', repeat('n', 1048576))",
    "SELECT mmdb.note_model('kept', E'\\x1b[2J')",
    "SELECT mmdb.tag_model('kept', 'long', repeat('t', 1048576))",
    "SELECT mmdb.tag_model('kept', repeat('k', 1000000), 'x')",
    "SELECT mmdb.create_run('long', 'd', 'linear', epochs => 2147483647)",
    "SELECT mmdb.create_run('seed', 'd', 'linear', seed => -9223372036854775808)",
    "SELECT mmdb.create_run('rate', 'd', 'linear', search => '{\"space\": {\"lr\": [1e308]}}')",
    "SELECT mmdb.create_run('tiny', 'd', 'linear', search => '{\"space\": {\"lr\": [1e-320]}}')",
    "SELECT mmdb.create_run('odd', 'd', 'linear', options => '{\"group\": \"x\"}')",
    "SELECT mmdb.create_run('listed', 'd', 'linear', options => '[1]')",
    "SELECT mmdb.submit('waiting', 2147483647)",
    "SELECT mmdb.submit('waiting', -2147483648)",
    "SELECT * FROM mmdb.explain_train('waiting', '{\"workers\": 1e30}')",
    "SELECT * FROM mmdb.explain_train('waiting', '{\"workers\": \"x\"}')",
)  # fmt: skip


@dataclass(slots=True)
class Found:
    """What the forged values came to."""

    tried: int = 0
    kept: int = 0  # rows that a function wrote
    raw: list[str] = field(default_factory=list)  # errors of mmdb's functions that are none of its
    broken: list[str] = field(default_factory=list)

    def figures(self, where: str) -> list[Figure]:
        """Return the figures of one database."""
        name = f"{where}: {self.tried} forged values, {self.kept} of them kept"
        return [
            none_of(f"{name}, stopped a reader", len(self.broken), "readers"),
            none_of(f"{name}, answered by no error of mmdb", len(self.raw), "calls"),
        ]


class Place:
    """A database with a run and models, one who forges rows and one who reads."""

    def __init__(self, cluster: Cluster, template: str, *, teams: bool) -> None:
        self._cluster, self._template, self._teams = cluster, template, teams
        self._filled = f"{DATABASE}_filled"
        self._password = cluster.password
        self.url = cluster.create_database(self._filled, template)
        if teams:
            install(self.url, teams=True)
        with psycopg.connect(self.url, autocommit=True) as owner:
            for role, member_of in ((TRAINER, "mmdb_trainer"), (READER, "mmdb_reader")):
                owner.execute(
                    sql.SQL("CREATE ROLE {} LOGIN PASSWORD {} IN ROLE {}").format(
                        *(sql.Identifier(role), sql.Literal(self._password)),
                        sql.Identifier(member_of),
                    )
                )
            owner.execute(
                "CREATE TABLE public.points AS SELECT i AS id, sin(i)::real AS x, i % 2 AS y"
                " FROM generate_series(1, 60) AS i"
            )
            owner.execute("GRANT SELECT ON public.points TO public")
            if teams:
                owner.execute(f"GRANT {TRAINER} TO {READER}")
        with mmdb.connect(self.url_of(TRAINER)) as db:
            _fill(db)
        self.renew()

    def close(self) -> None:
        """Drop the databases and the roles."""
        for name in (DATABASE, self._filled):
            self._cluster.drop_database(name)
        with psycopg.connect(self._cluster.url(), autocommit=True) as session:
            session.execute(f"DROP ROLE {READER}, {TRAINER}")

    def renew(self) -> None:
        """Let the database be as it was before anything was forged."""
        self._cluster.drop_database(DATABASE)
        self.url = self._cluster.create_database(DATABASE, self._filled)

    def url_of(self, role: str) -> str:
        """Return the URL with which a role connects."""
        return self.url.replace(f"postgres:{self._password}", f"{role}:{self._password}", 1)


def _fill(db: mmdb.Database) -> None:
    query = "SELECT x, y FROM public.points"
    db.create_dataset("d", query, partitions=2, validation=0.2)
    db.create_dataset("other", "SELECT x + 1 AS x, y FROM public.points", partitions=1)
    space = {"space": {"lr": [0.1, 0.01]}}
    run = db.create_run("trained", dataset="d", architecture="mlp(hidden=[4])", search=space)
    run.explain()
    run.train(workers=1)
    best = run.leaderboard()[0]["candidate_id"]
    db.save_candidate(best, "kept")
    db.set_alias("kept@1", "good")
    db.tag("kept", a="b")
    db.note("kept", "fine")
    db.create_run("waiting", dataset="d", architecture="linear", epochs=2)


def writers(session: Any) -> Iterator[Query]:
    """Yield the statements that write, and that the session's user may call."""
    for path in sorted(sql_directory("sql/queries").glob("*.sql")):
        for query in load(path.stem):
            if query.definer and _WRITES.search(query.sql) and query.parameters:
                given = ", ".join(query.parameters.values())
                name = f"mmdb_call.{query.definer}({given})"
                may = session.execute("SELECT has_function_privilege(%s, 'EXECUTE')", (name,))
                if may.fetchone()[0]:
                    yield query


def sound(owner: Any, query: Query) -> dict[str, Any]:
    """Return values of a statement's parameters as rows that are there have them."""
    match = _WRITES.search(query.sql)
    assert match
    with owner.cursor(row_factory=dict_row) as cursor:
        row = cursor.execute(f"SELECT * FROM mmdb.{match[1]} ORDER BY 1 LIMIT 1").fetchone() or {}
        ids = cursor.execute(
            "SELECT c.run_id, c.candidate_id, r.dataset_id, p.part_id, m.model_id, m.manifest_id,"
            " m.pack_id AS tensor_id, m.definition_id, m.architecture_id, m.environment_id"
            " FROM mmdb.candidate AS c JOIN mmdb.run AS r USING (run_id)"
            " JOIN mmdb.partition AS p USING (dataset_id) CROSS JOIN mmdb.model AS m"
            " ORDER BY r.name DESC, p.role, p.part_id, c.candidate_id, m.model_id LIMIT 1"
        ).fetchone()
    known = ids | {"started": 1.7e9, "finished": 1.7e9 + 1} | row
    found = {}
    for name, kind in query.parameters.items():
        value = ids.get(name, known.get(name))
        found[name] = _SOUND[kind] if value is None else value
        if kind == "jsonb" and not isinstance(found[name], str):
            found[name] = Jsonb(found[name])
    return found


def forge(session: Any, query: Query, given: dict[str, Any], name: str, value: Any) -> bool:
    """Call a statement's function with one forged value; return whether it was taken.

    Keys that the sound values share with rows that are there are tried anew.
    """
    source = random.Random(name)
    for fresh in ("", "integer", "bytea", "text", "integer bytea", "integer bytea text"):
        tried = dict(given)
        for other, kind in query.parameters.items():
            if kind in fresh and not other.endswith("_id") and other != "value":
                tried[other] = {
                    "integer": source.randrange(1000, 10**6),
                    "bytea": source.randbytes(32),
                    "text": f"f{source.randrange(10**9)}",
                }[kind]
        try:
            session.execute(query.call, tried | {name: value})
            return True
        except psycopg.Error:
            continue
    return False


def read_all(place: Place) -> list[str]:
    """Return what does not work any longer for those who only read."""
    return [*_views(place), *_metrics(place), *_pages(place)]


def work_on(place: Place) -> list[str]:
    """Return what does not work any longer for the owner, and for a trainer."""
    return [*_owner(place), *_trainer(place)]


def _views(place: Place) -> Iterator[str]:
    with psycopg.connect(place.url_of(READER), autocommit=True) as session:
        session.execute(f"SET statement_timeout = '{PATIENCE_S}s'")
        names = session.execute(
            "SELECT oid::regclass::text FROM pg_class WHERE relnamespace = 'mmdb'::regnamespace"
            " AND relkind = 'v' AND has_table_privilege(oid, 'SELECT') ORDER BY 1"
        ).fetchall()
        for (name,) in names:
            try:
                session.execute(f"SELECT * FROM {name}").fetchall()
            except psycopg.Error as error:
                yield f"{name}: {str(error).splitlines()[0]}"


def _metrics(place: Place) -> Iterator[str]:
    try:
        read_metrics(place.url_of(READER))
    except Exception as error:
        yield f"metrics: {type(error).__name__}: {error}"


def _pages(place: Place) -> Iterator[str]:
    sessions = PageSessions(place.url_of(READER))
    with closing(sessions):
        app = make_app(sessions, Rules(host="127.0.0.1"))
        paths = ["/", "/runs", "/models", "/run/trained", "/run/waiting", "/model/kept"]
        paths += ["/model/kept@1", "/lineage/dataset:d", "/lineage/run:trained"]
        for path in [*paths, *(f"/api/{path}" for path in ("run/trained", "model/kept"))]:
            status, text = asyncio.run(_get(app, path))
            if status != 200:
                yield f"page {path}: {status} {re.sub('<[^>]*>', ' ', text)[-900:]}"


async def _get(app: Any, path: str) -> tuple[int, str]:
    """Return status and content of what an application answers."""
    scope = {
        "type": "http", "method": "GET", "path": path, "raw_path": path.encode(), "root_path": "",
        "query_string": b"", "headers": [(b"host", b"127.0.0.1")], "http_version": "1.1",
        "scheme": "http", "client": ("127.0.0.1", 1), "server": ("127.0.0.1", 2),
    }  # fmt: skip
    said: list[dict[str, Any]] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b""}

    async def send(message: dict[str, Any]) -> None:
        said.append(message)

    try:
        await app(scope, receive, send)
    except Exception as error:  # the server logs it, and has answered
        return 500, f"{type(error).__name__}: {error}"
    body = b"".join(message.get("body", b"") for message in said)
    return said[0]["status"], body.decode()


def _owner(place: Place) -> Iterator[str]:
    for one in (*examine(place.url), *verify_at(place.url)):
        if not one.ok and _PYTHON_ERROR.search(one.detail):
            yield f"{one.name}: {one.detail[:300]}"


def _trainer(place: Place) -> Iterator[str]:
    with mmdb.connect(place.url_of(TRAINER)) as db:
        for name, call in (
            ("match", lambda: db.match("mlp(hidden=[4])", dataset="d")),
            ("submit", lambda: db.run("waiting").submit()),
            ("plan", lambda: db.run("waiting").explain()),
            ("lineage", lambda: db.lineage("dataset:d")),
        ):
            try:
                call()
            except MmdbError as error:
                if type(error).sqlstate in ("MM000", "MM408"):
                    yield f"{name}: {error}"
            except Exception as error:
                yield f"{name}: {type(error).__name__}: {error}"


def attack(place: Place, chosen: list[str], found: Found) -> None:
    """Forge values through the named functions, and look after each at all that is read."""
    place.renew()
    for definer in chosen:
        with (
            psycopg.connect(place.url, autocommit=True) as owner,
            psycopg.connect(place.url_of(TRAINER), autocommit=True) as session,
        ):
            kept = list(_forge_all(owner, session, definer, found))
        found.kept += len(kept)
        broken = [f"{definer}: {one}" for one in read_all(place)] if kept else []
        found.broken += broken
        if broken:
            place.renew()
    found.broken += work_on(place)


def _forge_all(owner: Any, session: Any, definer: str, found: Found) -> Iterator[str]:
    (query,) = [query for query in writers(session) if query.definer == definer]
    given = sound(owner, query)
    for name, kind in query.parameters.items():
        for value in EXTREMES.get(kind, ()):
            found.tried += 1
            if forge(session, query, given, name, value):
                yield f"{name} = {str(value)[:60]}"


def call_all(place: Place, found: Found) -> None:
    """Call the functions of people with extremes, and look at all that is read."""
    place.renew()
    with psycopg.connect(place.url_of(TRAINER), autocommit=True) as session:
        for statement in CALLS:
            found.tried += 1
            try:
                session.execute(statement)
                found.kept += 1
            except psycopg.Error as error:
                if not (error.sqlstate or "").startswith("MM"):
                    found.raw.append(f"{statement}: {error}")
    found.broken += [f"calls: {one}" for one in (*read_all(place), *work_on(place))]


@contextmanager
def place(cluster: Cluster, template: str, *, teams: bool) -> Iterator[Place]:
    """Yield a database to forge rows in."""
    made = Place(cluster, template, teams=teams)
    try:
        yield made
    finally:
        made.close()


def names_of(subject: Place) -> list[str]:
    """Return the functions that write, and that a trainer may call."""
    with psycopg.connect(subject.url_of(TRAINER), autocommit=True) as session:
        return [str(query.definer) for query in writers(session)]


def search(*, seed: int, cases: int) -> list[Figure]:
    """Forge values through so many functions, with and without teams; return what that came to."""
    figures: list[Figure] = []
    with Cluster() as cluster:
        template = "mmdb_forged_template"
        install(cluster.create_database(template))
        for teams in (False, True):
            found = Found()
            with place(cluster, template, teams=teams) as subject:
                names = names_of(subject)
                count = min(cases, len(names))
                attack(subject, random.Random(seed).sample(names, count), found)
                call_all(subject, found)
            for text in (*found.broken, *found.raw):
                print(text)
            figures += found.figures("with teams" if teams else "without teams")
    return figures
