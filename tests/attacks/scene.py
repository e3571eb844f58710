"""A database that is attacked: who attacks it, what it holds, and what its log says of it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, LiteralString

import psycopg
import torch
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict
from safetensors.torch import save_file

import mmdb
from mmdb.db.postgres import translate_error
from tests.cluster import Cluster

DATABASE = "mmdb_attacked"
#: Login -> the role it is a member of; the outsider is a member of none.
LOGINS = {
    "outsider": "",
    "reader": "mmdb_reader",
    "trainer": "mmdb_trainer",
    "admin": "mmdb_admin",
}
IDS = ("candidate", "trained", "part", "dataset", "run", "model")
#: Stands in the settings, in no log and in no answer.
SECRET = "s3cret-of-the-worker"
#: What nobody may find in the server's log.
ALARMS = re.compile(rf"PANIC|FATAL|terminated by signal|unexpected|{SECRET}|\w+Error:(?! )")

#: A line of PostgreSQL's catalogs for each kind of object that an attack might leave.
OBJECTS = """
SELECT 'object ' || kind AS name, count(*) AS rows, coalesce(sum(hash), 0) AS hash FROM (
    SELECT 'relation', hashtext(oid::text || relname) FROM pg_class WHERE relpersistence <> 't'
        AND relnamespace::regnamespace::text !~ '^pg_toast'
    UNION ALL SELECT 'function', hashtext(oid::text || proname || coalesce(proacl::text, ''))
        FROM pg_proc WHERE pronamespace::regnamespace::text !~ '^pg_temp'
    UNION ALL SELECT 'schema', hashtext(nspname) FROM pg_namespace
        WHERE nspname !~ '^pg_(toast_)?temp'
    UNION ALL SELECT 'role', hashtext(rolname || rolsuper::text) FROM pg_roles
        WHERE rolname ~ '^(mmdb|attack)_'
    UNION ALL SELECT 'membership', hashtext(roleid::regrole::text || member::regrole::text)
        FROM pg_auth_members WHERE member::regrole::text ~ '^attack_'
    UNION ALL SELECT 'setting', hashtext(setconfig::text) FROM pg_db_role_setting
        WHERE setdatabase IN (0, (SELECT oid FROM pg_database WHERE datname = current_database()))
    UNION ALL SELECT 'large object', oid::int FROM pg_largeobject_metadata
) AS all_objects (kind, hash) GROUP BY kind
"""


class Scene:
    """The database under attack, with its owner's session.

    Attributes:
        ids: of what it holds, by one of IDS; `trained` is a candidate that is.
        imports: the folder from which the owner allows imports.
    """

    def __init__(self, cluster: Cluster, template: str) -> None:
        self.cluster = cluster
        self.url = cluster.create_database(DATABASE, template)
        self._log = cluster.directory / "log"
        self.imports = cluster.directory / "imports"
        self.owner: Any = psycopg.connect(self.url, autocommit=True)
        self._sessions: dict[str, Any] = {}
        try:
            self._make_logins()
            self._fill()
            self.ids = self._find_ids()
            self._tables = self._find_tables()
        except BaseException:
            self.owner.close()
            raise

    def close(self) -> None:
        """Drop the database and the logins."""
        for session in (*self._sessions.values(), self.owner):
            session.close()
        self.cluster.drop_database(DATABASE)
        with psycopg.connect(self.cluster.url(), autocommit=True) as connection:
            for name in LOGINS:
                login = sql.Identifier(f"attack_{name}")
                connection.execute(sql.SQL("DROP ROLE {}").format(login))

    def url_of(self, who: str) -> str:
        """Return the URL by which a login attacks."""
        if who == "owner":
            return self.url
        given = conninfo_to_dict(self.url)
        return f"postgresql://attack_{who}:x@{given['host']}:{given['port']}/{DATABASE}"

    def session(self, who: str) -> Any:
        """Return a login's session, the same again while it lives: torch is slow to load."""
        session = self._sessions.get(who)
        if session is None or session.closed:
            url = self.url_of(who)
            session = self._sessions[who] = psycopg.connect(url, autocommit=True)
        return session

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Let an attack happen inside the block: nothing changes, and the log stays clean."""
        before, offset = self.fingerprint(), self._log.stat().st_size
        yield
        after = self.fingerprint()
        changed = {k for k in before.keys() | after.keys() if before.get(k) != after.get(k)}
        assert not changed, f"changed: {sorted(changed)}"
        with self._log.open("rb") as log:
            log.seek(offset)
            said = [line for line in log.read().decode(errors="replace").splitlines()]
        alarms = [line for line in said if ALARMS.search(line)]
        assert not alarms, alarms
        raw = [line for line in said if re.search("ERROR:  (XX|38)", line)]
        assert not raw, (raw, said)

    def fingerprint(self) -> dict[str, tuple[int, int]]:
        """Return rows and a hash of every table, and of the objects that there are."""
        rows = self.owner.execute(f"{self._tables} UNION ALL {OBJECTS}").fetchall()
        return {name: (count, int(hashed)) for name, count, hashed in rows}

    def _make_logins(self) -> None:
        # The SQLSTATE of each refusal stands in the log then.
        self.owner.execute(f"ALTER DATABASE {DATABASE} SET log_error_verbosity = verbose")
        for name, role in LOGINS.items():
            login = sql.Identifier(f"attack_{name}")
            self.owner.execute(sql.SQL("DROP ROLE IF EXISTS {}").format(login))
            self.owner.execute(sql.SQL("CREATE ROLE {} LOGIN PASSWORD 'x'").format(login))
            if role:
                grant = sql.SQL("GRANT {} TO {}").format(sql.Identifier(role), login)
                self.owner.execute(grant)
        self.owner.execute("GRANT attack_trainer TO attack_admin")  # who forgets rows of theirs

    def _fill(self) -> None:
        with mmdb.connect(self.url) as db:
            db.sql(
                "CREATE TABLE points AS SELECT i AS id, (i / 7.0)::real AS a, i % 2 AS y "
                "FROM generate_series(1, 40) AS g (i)"
            )
            db.sql(
                "CREATE TABLE salary AS SELECT i AS id, i * 1000 AS pay "
                "FROM generate_series(1, 9) AS g (i)"
            )
            db.sql("GRANT SELECT ON points TO PUBLIC")
            db.sql(
                "INSERT INTO mmdb.setting (name, value) VALUES ('worker_dsn', %(dsn)s)",
                {"dsn": f"host=127.0.0.1 passfile={SECRET}"},
            )
            db.create_dataset("d", query="SELECT a, y FROM points", partitions=2)
            db.create_run("r", dataset="d", architecture="linear").train(workers=1)
            db.set_alias("r@1", "good")
            db.save_candidate(db.run("r").leaderboard()[0]["candidate_id"], "q")
            state = db.recover("q").state_dict()
            db.save("bare", {path: tensor + 1 for path, tensor in state.items()})
            self._put_imports(state)
            db.sql(
                "INSERT INTO mmdb.setting (name, value) VALUES ('import_directory', %(folder)s)",
                {"folder": str(self.imports)},
            )
            db.sql("CREATE SCHEMA own AUTHORIZATION attack_trainer")
            db.create_run("s", dataset="d", architecture="linear", epochs=2)
            db.sql("SET ROLE attack_trainer")
            columns = "id bigint PRIMARY KEY, a real, guess text, vector real[]"
            for table in ("fresh", "scored"):
                db.sql(f"CREATE TABLE own.{table} ({columns})")
            db.score_on_insert("own.scored", "r", "guess")
            db.sql("RESET ROLE")
            db.schedule("nightly", "SELECT 1", "1 day", starts="2100-01-01 00:00+00")
            for table in (
                "dataset",
                "run",
                "model",
                "schedule",
            ):  # so that no call is refused for its owner
                db.sql(f"UPDATE mmdb.{table} SET owner = 'attack_trainer'")

    def _put_imports(self, state: Mapping[str, torch.Tensor]) -> None:
        """Write a model where the owner allows imports, and one beside that folder."""
        for folder in (self.imports, self.imports.with_name("private")):
            folder.mkdir(exist_ok=True)
            torch.save({"weights": dict(state)}, folder / "net.pt")
            save_file(dict(state), folder / "net.safetensors")
            for path in (folder, *folder.iterdir()):
                path.chmod(0o755)

    def _find_ids(self) -> dict[str, int]:
        query: LiteralString = """
            SELECT min(c.candidate_id) FILTER (WHERE r.name = 's'),
                min(c.candidate_id) FILTER (WHERE r.name = 'r'), min(p.part_id),
                min(p.dataset_id), min(r.run_id), (SELECT min(model_id) FROM mmdb.model)
            FROM mmdb.candidate AS c JOIN mmdb.run AS r USING (run_id)
            JOIN mmdb.partition AS p USING (dataset_id)
        """
        found = self.owner.execute(query).fetchone()
        return dict(zip(IDS, found, strict=True))

    def _find_tables(self) -> str:
        rows = self.owner.execute(
            "SELECT format('%I.%I', n.nspname, c.relname) FROM pg_class AS c "
            "JOIN pg_namespace AS n ON c.relnamespace = n.oid "
            "WHERE n.nspname IN ('mmdb', 'public') AND c.relkind IN ('r', 'p') "
            "AND NOT c.relispartition"
        ).fetchall()
        return " UNION ALL ".join(
            f"SELECT '{name}', count(*), coalesce(sum(hashtextextended(t::text, 0)), 0) "
            f"FROM {name} AS t"
            for (name,) in rows
        )


def refused(session: Any, statement: str, parameters: Any = None) -> mmdb.MmdbError:
    """Return the error with which a statement is refused, as mmdb's clients see it.

    Raises:
        AssertionError: it is not refused.
    """
    try:
        with session.cursor() as cursor:
            cursor.execute(statement, parameters)
            while cursor.nextset():
                pass
    except psycopg.Error as error:
        return translate_error(error)
    finally:
        if not session.closed:
            session.rollback()
            session.execute("DISCARD TEMP; RESET ALL")
    raise AssertionError(f"It got through: {statement[:200]}")
