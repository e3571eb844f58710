"""TLS with client certificates, and Unix sockets: all of mmdb gets in by the URL, or says why not.

A server that speaks TLS alone refuses each session, a worker's too, that does not come as the URL
says.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.parse import quote, urlencode

import psycopg
import pytest

import mmdb
from mmdb import errors
from mmdb.cli import main
from mmdb.db.doctor import examine
from mmdb.db.install import install
from mmdb.db.postgres import PostgresConnection
from mmdb.errors import ConnectionLost
from tests.cluster import Cluster
from tests.network.certificates import Authority
from tests.server_user import server_owner

pytestmark = pytest.mark.skipif(not shutil.which("openssl"), reason="There is no program `openssl`")
#: Without encryption nobody gets in but over the socket.
ENTRIES = """
hostssl all ann,helper all cert
hostssl all postgres all scram-sha-256
local all all scram-sha-256
"""
ROWS = "SELECT (i * 7 % 100)::real AS a, i % 3 AS y FROM generate_series(1, 300) AS g (i)"
QUERY = "SELECT 1 AS id, 2.0 AS a"


class TlsServer(Cluster):
    """A server with a certificate for `localhost`; the files of all certificates."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        authority = self.authority = Authority(folder, "authority")
        Authority(folder, "other").sign("stranger", "ann")
        for file, name, days in (
            ("server", "localhost", 2),
            ("expired", "localhost", -1),
            ("ann", "ann", 2),
            ("bob", "bob", 2),
            ("helper", "helper", 2),
            ("late", "ann", -1),
        ):
            authority.sign(file, name, days=days)
        owner = server_owner()
        for file in ("server", "expired", "helper"):
            os.chown(folder / f"{file}.key", owner.pw_uid, owner.pw_gid)
        super().__init__(
            {
                "ssl": "on",
                "ssl_cert_file": str(folder / "server.crt"),
                "ssl_key_file": str(folder / "server.key"),
                "ssl_ca_file": str(authority.certificate),
            }
        )

    def tls_url(
        self,
        host: str = "localhost",
        cert: str = "ann",
        root: str = "authority",
        mode: str = "",
        role: str = "ann",
    ) -> str:
        """Return a role's URL of the database."""
        options = {"sslmode": mode or "verify-full", "sslrootcert": self.folder / f"{root}.crt"}
        if cert:
            options["sslcert"] = self.folder / f"{cert}.crt"
            options["sslkey"] = self.folder / f"{cert}.key"
        return f"postgresql://{role}@{host}:{self.port}/shop?{urlencode(options)}"

    def socket_url(self, host: str = "") -> str:
        """Return the URL of the socket, after another host if one is given."""
        places = quote(",".join(filter(None, (host, str(self.directory)))))
        ports = f"1,{self.port}" if host else self.port
        return (
            f"postgresql:///shop?host={places}&port={ports}&user=postgres&password={self.password}"
        )


@pytest.fixture(scope="module")
def server() -> Iterator[TlsServer]:
    with TemporaryDirectory(prefix="mmdb-tls-") as folder:
        Path(folder).chmod(0o755)  # the server's user reads there
        with TlsServer(Path(folder)) as running:
            url = running.create_database("shop")
            with psycopg.connect(url, autocommit=True) as session:
                session.execute("CREATE ROLE ann SUPERUSER LOGIN")
                (running.data / "pg_hba.conf").write_text(ENTRIES)
                session.execute("SELECT pg_reload_conf()")
            yield running


def use(url: str, name: str) -> None:
    """Use a database all the way, over a URL alone."""
    with mmdb.connect(url) as db:
        db.create_dataset(name, ROWS, partitions=2)
        run = db.create_run(name, dataset=name, architecture="linear", epochs=1)
        assert run.train(workers=2).failed == 0
        assert len(db.predict_query(name, QUERY)) == 1
    assert main(["predict", name, QUERY, "--database", url]) == 0


def test_everything_goes_through_tls_with_a_client_certificate(server: TlsServer) -> None:
    url = server.tls_url()
    install(url)
    use(url, "tls")
    with mmdb.connect(url) as db:
        sessions = "SELECT count(*) AS n FROM pg_stat_ssl WHERE client_dn = '/CN=ann' AND ssl"
        assert db.sql(sessions)[0]["n"] >= 1
        db.sql("CREATE ROLE helper LOGIN IN ROLE mmdb_worker")
        login = server.tls_url(cert="helper", role="helper")  # of the server's user
        db.sql("INSERT INTO mmdb.setting VALUES ('worker_dsn', %(url)s)", {"url": login})
    (tried,) = [check for check in examine(url) if check.name == "worker login"]
    assert tried.ok, tried.detail


def test_everything_goes_through_a_socket(server: TlsServer) -> None:
    install(server.socket_url())
    use(server.socket_url("127.0.0.1"), "socket")  # at the first place nothing listens


@pytest.mark.parametrize("way", ["tls", "socket"])
def test_a_statement_is_cancelled_and_a_session_severed(server: TlsServer, way: str) -> None:
    url = server.tls_url() if way == "tls" else server.socket_url("127.0.0.1")
    asleep = "SELECT 1 FROM pg_stat_activity WHERE pid = %(pid)s AND wait_event = 'PgSleep'"
    with closing(PostgresConnection(url)) as session, closing(PostgresConnection(url)) as beside:
        for end, error in ((session.cancel, errors.Cancelled), (session.sever, ConnectionLost)):
            with ThreadPoolExecutor(1) as thread:
                waits = thread.submit(session.select, "SELECT pg_sleep(600)")
                while not beside.select(asleep, {"pid": session.raw.info.backend_pid}):
                    pass
                end()
                with pytest.raises(error):
                    waits.result(timeout=60)


@pytest.mark.parametrize(
    ("url", "hint"),
    [
        ({"host": "127.0.0.1"}, "as its certificate names it"),
        ({"host": "127.0.0.1:1,127.0.0.1"}, "as its certificate names it"),
        ({"root": "other"}, "none of those in sslrootcert"),
        ({"root": "missing"}, "names the certificates that you trust"),
        ({"cert": ""}, "Add sslcert=FILE and sslkey=FILE"),
        ({"cert": "missing"}, "Add sslcert=FILE and sslkey=FILE"),
        ({"cert": "bob"}, "names another role"),
        ({"cert": "stranger"}, "does not vouch for it"),
        ({"cert": "late"}, "it has expired"),
        ({"mode": "disable"}, "pg_hba.conf of the server has no line"),
    ],
)
def test_who_does_not_get_in_reads_why(
    server: TlsServer, url: dict[str, str], hint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(errors.WrongUrl, match=hint):
        mmdb.connect(server.tls_url(**url))
    assert main(["doctor", server.tls_url(**url)]) == 1
    assert main(["sql", "SELECT 1", "--database", server.tls_url(**url)]) == 1
    said = capsys.readouterr()
    assert "Traceback" not in said.out + said.err
    assert "MM401" in said.err


def test_a_key_that_others_may_read_is_refused(server: TlsServer) -> None:
    key = server.folder / "ann.key"
    key.chmod(0o644)
    try:
        with pytest.raises(errors.WrongUrl, match="which only you may read"):
            mmdb.connect(server.tls_url())
    finally:
        key.chmod(0o600)


@pytest.mark.parametrize(
    ("settings", "hint"),
    [
        ({"ssl_cert_file": "expired.crt", "ssl_key_file": "expired.key"}, "has expired"),
        ({"ssl": "off"}, "The server has ssl = off"),
    ],
)
def test_a_server_that_cannot_prove_itself_gets_no_session(
    server: TlsServer, settings: dict[str, str], hint: str
) -> None:
    def restart(changes: dict[str, str]) -> None:
        server.halt()
        server.settings |= changes
        server.start()

    before = {name: server.settings[name] for name in settings}
    there = server.folder
    restart({n: str(there / v) if v.startswith("expired") else v for n, v in settings.items()})
    try:
        entry = server.data / "pg_hba.conf"
        entry.write_text(f"host all ann all trust\n{ENTRIES if 'ssl' not in settings else ''}")
        restart({})
        with pytest.raises(errors.WrongUrl, match=hint):
            mmdb.connect(server.tls_url())
    finally:
        entry.write_text(ENTRIES)
        restart(before)
