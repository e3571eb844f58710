"""The campaign `shadows`: objects under the names that mmdb uses, of which none is ever run.

In a database where everybody may create in `public`, as in those carried over from PostgreSQL 14,
somebody plants them there and in a schema named like the superuser. Then the owner does all that
mmdb does, and so do an admin, a worker and a reader. Last the somebody, who is a trainer, gives
temporary tables and views the names of mmdb's and of the catalog's, and calls every function.
"""

from __future__ import annotations

import random
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout, suppress
from io import StringIO
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psycopg

import mmdb
from mmdb.bench.figures import Figure
from mmdb.cli import main
from mmdb.db.install import install
from tests.bench.attack.functions import Function, functions_of, good_value
from tests.bench.attack.planted import MARK, Shadow, chosen, shadows
from tests.bench.search.campaigns import none_of_these
from tests.cluster import Cluster
from tests.teams import module

DATABASE, ATTACKER = "shadowed", "mallory"
SCHEMAS = ("public", "postgres")
LOGINS = {"admin": "mmdb_admin", "worker": "mmdb_worker",
          "reader": "mmdb_reader", ATTACKER: "mmdb_trainer"}  # fmt: skip
#: Statements that wait or measure for long.
_LONG = {"calibrate", "measure", "manage_zoo", "warm_up", "train_group"}


class Stage:
    """A database with planted objects, and who acts in it.

    Attributes:
        failed: what the owner and others were refused, and by what.
    """

    def __init__(self, cluster: Cluster, planted: Callable[[Any], Sequence[Shadow]]) -> None:
        self._cluster = cluster
        self._log = cluster.directory / "log"
        self.url = cluster.create_database(DATABASE)
        self.failed: list[str] = []
        with psycopg.connect(self.url, autocommit=True) as owner:
            owner.execute("CREATE EXTENSION plpython3u")
            owner.execute("GRANT CREATE ON SCHEMA public TO public")
            for login in LOGINS:
                owner.execute(f"CREATE ROLE {login} LOGIN PASSWORD '{cluster.password}'".encode())
            owner.execute(f"CREATE SCHEMA postgres AUTHORIZATION {ATTACKER}".encode())
            owner.execute("GRANT USAGE ON SCHEMA postgres TO public")
            chosen = planted(owner)
        with self.session(ATTACKER) as attacker:
            self.count = sum(plant(attacker, one, k) for k, one in enumerate(chosen))

    def close(self) -> None:
        """Drop the database and the logins."""
        self._cluster.drop_database(DATABASE)
        with psycopg.connect(self._cluster.url(), autocommit=True) as owner:
            for login in LOGINS:
                owner.execute(f"DROP ROLE {login}".encode())

    def url_of(self, role: str) -> str:
        """Return the URL with which a role connects."""
        return self.url.replace("postgres:", f"{role}:", 1)

    def session(self, role: str) -> psycopg.Connection[Any]:
        """Open a session of a role, in autocommit mode."""
        return psycopg.connect(self.url_of(role), autocommit=True)

    def ran(self) -> list[str]:
        """Return which shadows were run, and as whom."""
        said = self._log.read_text(errors="replace").splitlines()
        return sorted({line.partition(MARK)[2].strip() for line in said if f"LOG:  {MARK}" in line})

    def attempt(self, what: str, act: Callable[[], Any]) -> None:
        """Do something; what is refused is noted."""
        try:
            act()
        except (mmdb.MmdbError, psycopg.Error) as error:
            self.failed.append(f"{what}: {type(error).__name__}: {error}"[:300])

    def command(self, *arguments: str) -> None:
        """Run a command of mmdb."""
        said = StringIO()
        with redirect_stdout(said), redirect_stderr(said):
            code = main(arguments)
        if code and "doctor" not in arguments:  # which says what it thinks of such a database
            self.failed.append(f"mmdb {arguments[0]}: {said.getvalue()[-300:]}")


def plant(session: psycopg.Connection[Any], shadow: Shadow, number: int) -> bool:
    """Make a shadow's objects; return whether that could be done."""
    schema = SCHEMAS[number % len(SCHEMAS)]
    try:
        with session.transaction():
            for statement in shadow.statements:
                session.execute(statement.replace("{schema}", schema).encode())
    except psycopg.Error:
        return False
    return True


@contextmanager
def stage(cluster: Cluster, planted: Callable[[Any], Sequence[Shadow]]) -> Iterator[Stage]:
    """Yield the database, which is gone afterwards."""
    made = Stage(cluster, planted)
    try:
        yield made
    finally:
        made.close()


def search(*, seed: int, cases: int) -> list[Figure]:
    """Plant so many objects; return which of them were run as somebody else."""
    source = random.Random(seed)
    with Cluster() as cluster, stage(cluster, lambda s: shadows(s, source, cases)) as made:
        play(made)
        with psycopg.connect(made.url, autocommit=True) as owner:
            taken = list(chosen(owner, SCHEMAS))
        title = f"{made.count} objects planted"
        return [
            none_of_these(f"{title}, run as somebody else", made.ran(), "objects"),
            none_of_these(f"{title}, taken by statements", taken, "statements"),
            none_of_these(f"{title}, what failed by them", made.failed, "calls"),
        ]


def play(made: Stage) -> None:
    """Let everybody act."""
    prepare(made)
    with tempfile.TemporaryDirectory() as folder:
        act_as_owner(made, Path(folder))
    for role in ("postgres", *LOGINS):
        act(made, role)
    creep_in(made)


def prepare(made: Stage) -> None:
    """Install mmdb, and give the logins their roles."""
    install(made.url)
    with psycopg.connect(made.url, autocommit=True) as owner:
        for login, role in LOGINS.items():
            owner.execute(f"GRANT {role} TO {login}".encode())
        owner.execute("SET search_path = pg_catalog")  # what the owner sends is none of mmdb's
        owner.execute(
            "CREATE TABLE public.points AS SELECT i AS id, (i / 7.0)::real AS a, i % 2 AS y "
            "FROM generate_series(1, 40) AS g (i)"
        )
        owner.execute("GRANT SELECT ON public.points TO public")
        known = urlsplit(made.url_of("worker"))  # whose password the server's user knows
        bare = known._replace(netloc=f"{known.username}@{known.hostname}:{known.port}").geturl()
        owner.execute("INSERT INTO mmdb.setting (name, value) VALUES ('worker_dsn', %s)", [bare])


def act_as_owner(made: Stage, folder: Path, *, briefly: bool = False) -> None:
    """Install again and again, train, and run the commands: those that are quick, or all."""
    url = made.url
    made.attempt("install", lambda: install(url))
    with mmdb.connect(url) as db:
        db.create_dataset("d", "SELECT a, y FROM public.points", partitions=2)
        db.create_run("r", dataset="d", architecture="linear").train(workers=1)
        made.attempt("save", lambda: db.save("m", module()))
        candidate = db.run("r").leaderboard()[0]["candidate_id"]
        made.attempt("save_candidate", lambda: db.save_candidate(candidate, "q"))
    if not briefly:
        train_in_the_server(made)
    made.command("install", "--teams", url)
    made.command("doctor", url)
    made.command("doctor", "--verify", url)
    made.command("metrics", url)
    for words in quick_commands() if briefly else commands(folder):
        made.command(*words, "--database", url)
    made.attempt("install without teams", lambda: install(url, teams=False))
    made.attempt("install with teams", lambda: install(url, teams=True))


def train_in_the_server(made: Stage) -> None:
    """Train by a call, and by a worker of its own process."""
    with mmdb.connect(made.url) as db:
        db.create_run("s", dataset="d", architecture="linear", epochs=2)
        db.create_run("t", dataset="d", architecture="linear")
        made.attempt("train in the server", lambda: db.sql("CALL mmdb.train('s')"))
        made.attempt("submit", lambda: db.sql("SELECT * FROM mmdb.submit('t')"))
    made.command("worker", "--once", made.url)


def quick_commands() -> list[tuple[str, ...]]:
    """Return commands, but for the database."""
    return [
        ("gc",), ("gc", "--delete", "--grace", "0 s"), ("lineage", "model:m@1"), ("card", "m"),
        ("predict", "q", "SELECT id, a FROM public.points"), ("sql", "SELECT 1 AS one"),
    ]  # fmt: skip


def commands(folder: Path) -> list[tuple[str, ...]]:
    """Return those and what takes longer."""
    return [
        *quick_commands(), ("explain", "r"), ("dbt",), ("calibrate", "--budget", "1"),
        ("report", "r", "--kind", "run", "--out", str(folder / "r.html")),
        ("report", "m", "--kind", "model", "--out", str(folder / "m.html")),
        ("tensorboard", "r", str(folder)), ("openlineage", "--all", "--out", str(folder / "l")),
        ("parquet", "--out", str(folder / "parquet")),
        ("export", "m", str(folder / "m.safetensors")),
    ]  # fmt: skip


def act(made: Stage, role: str) -> None:
    """Read every view and call every function as a role; what is refused does no harm."""
    with made.session(role) as session:
        views = session.execute(
            "SELECT oid::regclass::text FROM pg_catalog.pg_class WHERE relkind = 'v' "
            "AND relnamespace = 'mmdb'::regnamespace"
        ).fetchall()
        for (view,) in views:
            with suppress(psycopg.Error):
                session.execute(f"SELECT * FROM {view}".encode())
        call_all(session, functions_of(session))


def call_all(session: psycopg.Connection[Any], functions: Sequence[Function]) -> None:
    """Call functions with what they might take; nothing of it stays."""
    session.execute("SET statement_timeout = '5s'")
    for function in functions:
        if function.name not in _LONG and not function.is_procedure:
            values = [good_value(name, kind, {}) for name, kind in function.arguments]
            with suppress(psycopg.Error), session.transaction(force_rollback=True):
                session.execute(function.call().encode(), values)


def creep_in(made: Stage) -> None:
    """Let the attacker give its session views, and a search path, that come before all others."""
    with made.session(ATTACKER) as session:
        session.execute("SET search_path = pg_catalog")  # else what was planted is in its own way
        functions = functions_of(session)
        session.execute(
            "CREATE FUNCTION pg_temp.shadow(text) RETURNS text LANGUAGE plpgsql AS $$ BEGIN "
            f"IF current_user <> '{ATTACKER}' THEN RAISE LOG '{MARK} pg_temp.% as % for %', $1, "
            "current_user, session_user; END IF; RETURN NULL; END $$".encode()
        )
        relations = session.execute(
            "SELECT c.oid::regclass::text, c.relname FROM pg_catalog.pg_class AS c "
            "WHERE c.relkind IN ('r', 'v') AND c.relnamespace IN ('pg_catalog'::regnamespace, "
            "'mmdb'::regnamespace) ORDER BY 1"
        ).fetchall()
        for full, name in relations:
            columns = session.execute(
                "SELECT string_agg(format('NULL::%%s AS %%I', atttypid::regtype, attname), ', ' "
                "ORDER BY attnum) FROM pg_catalog.pg_attribute WHERE attnum > 0 "
                "AND NOT attisdropped AND atttypid::regtype::text NOT LIKE 'any%%' "
                "AND attrelid = %s::regclass",
                (full,),
            ).fetchone()
            with suppress(psycopg.Error):
                session.execute(
                    f'CREATE TEMP VIEW "{name}" AS SELECT {columns and columns[0]} '
                    f"WHERE pg_temp.shadow('{name}') IS NULL".encode()
                )
        session.execute("SET search_path = pg_temp, public, mmdb, pg_catalog")
        call_all(session, functions)
