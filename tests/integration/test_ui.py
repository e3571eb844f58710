"""The live pages: on both engines, for whoever may only read, and what they refuse."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.client import HTTPConnection
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlencode

import psycopg
import pytest
import uvicorn
from playwright.sync_api import Browser

import mmdb
from mmdb.cli import main
from mmdb.errors import InvalidOption
from mmdb.ui.app import make_app, rules_of, served_address
from mmdb.ui.pages import address_of as address_of_page
from mmdb.ui.security import POLICY, Rules, is_loopback
from mmdb.ui.sessions import PageSessions
from tests.browser import open_browser, opened
from tests.cluster import Cluster
from tests.run_rows import Writer, add_run, ids

LOCAL = Rules(host="127.0.0.1")
TOKEN = "a-token-of-a-test"
OPEN = Rules(host="0.0.0.0", token=TOKEN, names=frozenset({"box"}))
ROWS = "SELECT i * 0.01 AS a, i % 3 AS y FROM generate_series(1, 90) AS g (i)"
#: Names of runs that a browser would take for other addresses.
DOTTED = ("..", "a/../../b")
NASTY = "<script>alert(1)</script>"


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with open_browser() as running:
        yield running


@contextmanager
def served(url: str, rules: Rules = LOCAL) -> Iterator[int]:
    """Serve a database's pages; yield the port."""
    sessions = PageSessions(url)
    listener = socket.create_server(("127.0.0.1", 0))
    config = uvicorn.Config(make_app(sessions, rules), log_level="warning", access_log=False)
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
    thread.start()
    try:
        yield listener.getsockname()[1]
    finally:
        server.should_exit = True
        thread.join(30)
        sessions.close()
        listener.close()


class Answer(NamedTuple):
    status: int
    headers: Mapping[str, str]
    text: str


def ask(port: int, path: str = "/", method: str = "GET", **headers: str) -> Answer:
    """Send a request as it stands; underscores in names of headers are hyphens."""
    connection = HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        given = {name.replace("_", "-"): value for name, value in headers.items()}
        connection.request(method, path, headers=given)
        found = connection.getresponse()
        return Answer(found.status, dict(found.getheaders()), found.read().decode())
    finally:
        connection.close()


def fill(url: str) -> None:
    """Write a run of two candidates, and a dataset of a table; nothing is trained."""
    with mmdb.connect(url) as db:
        db.sql(f"CREATE TABLE t AS {ROWS}")
        db.create_dataset("points", "SELECT a, y FROM t", label="y", partitions=2)
        (dataset_id,) = ids(db, "dataset", "dataset_id")
        for name in ("a/b", *DOTTED):
            add_run(db, name, dataset_id, metric="accuracy", maximize=True, epochs=3,
                    strategy="mop")  # fmt: skip
        writer = Writer(db, "a/b")
        for lr in (0.1, 0.2):
            writer.candidate({"lr": lr, "note": NASTY})
            writer.epoch(writer.candidates.index(writer.candidates[-1]), 0, lr)


@pytest.fixture(scope="module")
def pages(installed_file: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """Serve a DuckDB file to this machine; return the port."""
    file = tmp_path_factory.mktemp("ui") / "zoo.duckdb"
    file.write_bytes(installed_file.read_bytes())
    fill(f"duckdb:///{file}")
    with served(f"duckdb:///{file}") as port:
        yield port


@pytest.mark.parametrize("path", ["/", "/runs", "/models", "/run/a/b", "/lineage/dataset:points"])
def test_every_page_is_whole(pages: int, path: str) -> None:
    found = ask(pages, path)
    assert found.status == 200 and found.text.startswith("<!DOCTYPE html>")
    assert found.headers["content-security-policy"] == POLICY
    assert found.headers["cache-control"] == "no-store"
    assert "<script>" not in found.text.lower() and "alert(1)</script>" not in found.text
    assert 'http-equiv="Content-Security-Policy"' not in found.text


def test_pages_lead_to_each_other(pages: int) -> None:
    assert 'href="/run/a/b"' in ask(pages).text
    assert 'href="/lineage/dataset:points"' in ask(pages, "/run/a/b").text
    lineage = ask(pages, "/lineage/points").text  # a name alone will do
    assert 'href="/run/a/b"' in lineage and 'href="/lineage/column:' in lineage


def test_names_that_no_path_can_hold_have_pages(pages: int) -> None:
    text = ask(pages, "/lineage/points").text
    assert 'href="/run/?name=a%2F..%2F..%2Fb"' in text
    for name in DOTTED:
        found = ask(pages, address_of_page(f"run:{name}"))
        assert found.status == 200 and f"<h1>Run {name}</h1>" in found.text
        assert f'data-state="/state/run/?{urlencode({"name": name})}"' in found.text
        assert ask(pages, f"/state/run/?{urlencode({'name': name})}").status == 200
    column = 'column:t."a\n/../b"'  # there is none, and that is what the page says
    found = ask(pages, address_of_page(column))
    assert found.status == 404 and "There is no such page" not in found.text


def test_what_pages_say_can_be_had_as_json(pages: int) -> None:
    found = json.loads(ask(pages, "/api/run/a/b").text)
    assert found["run"] == "a/b" and len(found["sections"]["leaderboard"]["candidates"]) == 2
    runs = json.loads(ask(pages, "/api/runs/").text)["sections"]["runs"]["runs"]
    counts = {row["run"]: row["candidates"] for row in runs}
    assert counts == {"a/b": 2} | dict.fromkeys(DOTTED, 0)
    missing = ask(pages, "/api/run/none")
    assert missing.status == 404 and json.loads(missing.text)["sqlstate"] == "MM153"


@pytest.mark.parametrize(
    "path",
    [
        "/nothing",
        "/run/none",
        "/model/none",
        "/model/a@b@c",
        "/lineage/none",
        "/lineage/column:t.none",
        "/api/zoo/x",
        "/state/zoo/x",
        "/state/run/none",
        "/static/none.js",
        "/static/../../pyproject.toml",
        "/static/..%2f..%2fpyproject.toml",
        "/static//etc/passwd",
        "/run/%00",
        "/run/" + "x" * 5000,
        "/run/" + NASTY.replace("<", "%3C").replace(">", "%3E"),
    ],
)
def test_what_is_not_there_is_not_found(pages: int, path: str) -> None:
    found = ask(pages, path)
    assert found.status == 404
    assert "<script>" not in found.text and "Traceback" not in found.text


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "HUGO"])
def test_nothing_can_be_changed(pages: int, method: str) -> None:
    found = ask(pages, "/run/a/b", method)
    assert found.status == 405 and found.headers["allow"] == "GET, HEAD"


def test_an_address_without_its_text_has_its_head(pages: int) -> None:
    found = ask(pages, "/", "HEAD")
    assert found.status == 200 and found.text == "" and int(found.headers["content-length"]) > 1000


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("127.0.0.1:{port}", 200),
        ("localhost:{port}", 200),
        ("LOCALHOST", 200),
        ("[::1]:{port}", 200),
        ("127.0.0.2", 200),
        ("", 421),
        ("evil.example", 421),
        ("evil.example:{port}", 421),
        ("localhost.evil.example", 421),
        ("127.0.0.1.evil.example", 421),
        ("localhost@evil.example", 421),
        ("localhost:x@evil.example", 421),
        ("[::1]:x@evil.example", 421),
        ("evil.example, localhost", 421),
        ("10.0.0.1", 421),
        ("[::1", 421),
        ("box", 421),
    ],
)
def test_only_names_of_this_machine_are_answered(pages: int, host: str, status: int) -> None:
    assert ask(pages, Host=host.format(port=pages)).status == status


def test_a_page_says_whether_it_is_out_of_date(pages: int) -> None:
    first = ask(pages, "/state/run/a/b")
    tag = first.headers["etag"]
    assert (
        first.status == 200
        and f'data-tag="{json.loads(first.text)["state"]}"' in ask(pages, "/run/a/b").text
    )
    again = ask(pages, "/state/run/a/b", If_None_Match=tag)
    assert again.status == 304 and again.text == "" and again.headers["etag"] == tag
    assert ask(pages, "/state/run/a/b", If_None_Match='"other"').status == 200
    for kind in ("home/", "runs/", "models/", "model/none", "lineage/points"):
        assert ask(pages, f"/state/{kind}").status == 200


def test_scripts_are_kept_by_the_browser(pages: int) -> None:
    text = ask(pages, "/run/a/b").text
    addresses = [part.split('"')[0] for part in text.split('<script src="')[1:]]
    assert [address.split("?")[0] for address in addresses] == [
        "/static/vega.js", "/static/page.js",
    ]  # fmt: skip
    for address in addresses:
        found = ask(pages, address)
        assert found.status == 200 and "immutable" in found.headers["cache-control"]
        assert found.headers["content-type"].startswith("text/javascript")


@pytest.fixture(scope="module")
def guarded(installed_file: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """Serve a DuckDB file as to other machines, with a token; return the port."""
    file = tmp_path_factory.mktemp("guarded") / "zoo.duckdb"
    file.write_bytes(installed_file.read_bytes())
    with served(f"duckdb:///{file}", OPEN) as port:
        yield port


@pytest.mark.parametrize(
    ("path", "headers", "status"),
    [
        ("/", {}, 401),
        ("/static/vega.js", {}, 401),
        ("/state/home/", {}, 401),
        ("/?token=", {}, 401),
        ("/?token=wrong", {}, 401),
        (f"/?token={TOKEN}x", {}, 401),
        ("/?token=%ff%00", {}, 401),
        ("/", {"Cookie": "mmdb_token=wrong"}, 401),
        ("/", {"Cookie": f"other={TOKEN}"}, 401),
        ("/", {"Cookie": f"a=b; mmdb_token={TOKEN}"}, 200),
        ("/", {"Authorization": f"Bearer {TOKEN}"}, 200),
        ("/", {"Authorization": f"Basic {TOKEN}"}, 401),
        ("/", {"Authorization": "Bearer"}, 401),
        ("/", {"Cookie": f"mmdb_token={TOKEN}", "Host": "box:80"}, 200),
        ("/", {"Cookie": f"mmdb_token={TOKEN}", "Host": "10.0.0.1"}, 200),
        ("/", {"Cookie": f"mmdb_token={TOKEN}", "Host": "evil.example"}, 421),
        (f"/?token={TOKEN}", {"Host": "evil.example"}, 421),
    ],
)
def test_other_machines_need_the_token(
    guarded: int, path: str, headers: dict[str, str], status: int
) -> None:
    assert ask(guarded, path, **headers).status == status


def test_the_token_becomes_a_cookie(guarded: int) -> None:
    found = ask(guarded, f"/runs?a=1&token={TOKEN}")
    assert found.status == 303 and found.headers["location"] == "/runs?a=1"
    cookie = found.headers["set-cookie"]
    assert "HttpOnly" in cookie and "SameSite=strict" in cookie
    name_and_value = cookie.split(";")[0]
    assert ask(guarded, "/runs", Cookie=name_and_value).status == 200
    assert ask(guarded, f"//evil.example/?token={TOKEN}").headers["location"] == "/evil.example/"


def test_the_address_with_the_token_opens_the_pages(browser: Browser, guarded: int) -> None:
    origin = f"http://127.0.0.1:{guarded}"
    with opened(browser, f"{origin}/?token={TOKEN}") as seen:
        seen.wait("html[data-drawn]")  # the scripts came, by the cookie
        assert seen.page.url == f"{origin}/"
        assert TOKEN not in seen.page.evaluate("document.cookie")
        assert seen.complaints == []


def test_a_host_that_others_reach_has_a_token() -> None:
    assert rules_of("127.0.0.1", None).token is None
    assert rules_of("localhost", "mine").token == "mine"
    first, second = (rules_of("0.0.0.0", None).token for _ in range(2))
    assert first and second and first != second and len(first) >= 32
    assert not is_loopback("::") and is_loopback("::1")
    for wrong in ("", "a b", "a;b", "schlüssel", 'a"'):
        with pytest.raises(InvalidOption):
            rules_of("127.0.0.1", wrong)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        assert served_address(listener, LOCAL) == f"http://127.0.0.1:{port}/"
        odd = served_address(listener, Rules(host="127.0.0.1", token="a+b/c="))
        assert odd == f"http://127.0.0.1:{port}/?token=a%2Bb%2Fc%3D"
        assert (
            served_address(listener, Rules(host="::1", token="x"))
            == f"http://[::1]:{port}/?token=x"
        )


def test_a_page_follows_a_run_while_it_is_trained(
    browser: Browser, postgres_url: str, cluster: Cluster
) -> None:
    fill(postgres_url)
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute(f"CREATE ROLE looker LOGIN PASSWORD '{cluster.password}'".encode())
        connection.execute("GRANT mmdb_reader TO looker")
    url = postgres_url.replace("//postgres:", "//looker:")
    try:
        with (
            served(url) as port,
            opened(browser, f"http://127.0.0.1:{port}/run/a/b") as seen,
            mmdb.connect(postgres_url) as db,
        ):
            seen.wait("html[data-drawn]")
            page = seen.page
            assert "0.2 by candidate" in page.locator("#facts").inner_text()
            page.locator("#learning summary").click()
            page.locator("#learning summary").focus()
            writer = Writer(db, "a/b")
            writer.candidates = ids(db, "candidate", "candidate_id")
            writer.seconds = 100
            writer.epoch(0, 1, 0.75)
            seen.wait("html[data-updates]")
            assert "0.75 by candidate" in page.locator("#facts").inner_text()
            seen.wait(".chart[data-done] svg")
            assert page.locator("#learning details[open]").count() == 1  # as they were left
            assert page.evaluate("document.activeElement.tagName") == "SUMMARY"
            assert page.locator("html").get_attribute("data-failed") == "0"
            assert seen.complaints == []
            origin = f"http://127.0.0.1:{port}/"
            assert all(address.startswith(origin) for address in seen.requests)
    finally:
        with psycopg.connect(postgres_url, autocommit=True) as connection:
            connection.execute("DROP OWNED BY looker")
            connection.execute("DROP ROLE looker")


def test_the_pages_are_clicked_through_by_keys(browser: Browser, pages: int) -> None:
    origin = f"http://127.0.0.1:{pages}"
    with opened(browser, f"{origin}/", width=360) as seen:
        page = seen.page
        seen.wait("html[data-drawn]")
        assert not seen.overflows()
        page.get_by_role("link", name="a/b").press("Enter")
        page.wait_for_url(f"{origin}/run/a/b")
        seen.wait("html[data-drawn]")
        assert page.locator("html").get_attribute("data-failed") == "0"
        assert page.locator(".chart svg").count() >= 2 and not seen.overflows()
        page.locator('.narrow a.node[aria-label^="points"]').press("Enter")
        page.wait_for_url(f"{origin}/lineage/dataset:points")
        seen.wait("html[data-drawn]")
        page.locator('.narrow a.node[aria-label^="t, table"]').press("Enter")
        page.wait_for_url(f"{origin}/lineage/table:*")
        assert page.locator("h1").inner_text().startswith("Lineage of table:")
        assert seen.complaints == []
        assert all(address.startswith(f"{origin}/") for address in seen.requests)


def test_the_lists_can_be_read_by_all(browser: Browser, pages: int) -> None:
    with opened(browser, f"http://127.0.0.1:{pages}/", scheme="dark", axe=True) as seen:
        seen.wait("html[data-drawn]")
        assert seen.violations() == []


def test_a_lost_session_is_opened_anew(postgres_url: str) -> None:
    fill(postgres_url)
    with served(postgres_url) as port:
        assert ask(port, "/run/a/b").status == 200
        with psycopg.connect(postgres_url, autocommit=True) as connection:
            connection.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                "WHERE application_name = 'mmdb ui'"
            )
        assert ask(port, "/run/a/b").status == 200


def test_sessions_of_pages_only_read(postgres_url: str) -> None:
    sessions = PageSessions(postgres_url)
    try:
        with sessions.session() as connection, pytest.raises(mmdb.MmdbError, match="read-only"):
            connection.select("CREATE TABLE public.x (i integer)")
    finally:
        sessions.close()


def test_the_command_serves_until_it_is_interrupted(installed_duckdb_url: str) -> None:
    command = [sys.executable, "-m", "mmdb.cli", "ui", installed_duckdb_url, "--port", "0"]
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment, text=True) as process:
        try:
            assert process.stdout is not None
            address = process.stdout.readline().strip()
            port = int(address.removeprefix("http://127.0.0.1:").rstrip("/"))
            assert "There are no runs yet." in ask(port).text
        finally:
            process.send_signal(signal.SIGINT)
        assert process.wait(120) == 0


def test_what_cannot_be_served_is_said(
    tmp_path: Path, installed_duckdb_url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    def ui(*arguments: Any) -> str:
        assert main(["ui", *map(str, arguments)]) == 1
        return " ".join(capsys.readouterr().err.split())

    with socket.create_server(("127.0.0.1", 0)) as taken:
        assert "--port" in ui(installed_duckdb_url, "--port", taken.getsockname()[1])
    assert "--port" in ui(installed_duckdb_url, "--port", "70000")
    assert "WrongUrl" in ui("mysql://here", "--port", "0")
    assert "There is no file" in ui(f"duckdb:///{tmp_path}/none.duckdb", "--port", "0")
    assert not (tmp_path / "none.duckdb").exists()
    assert "DatabaseLocked" in _locked(installed_duckdb_url, ui)


def _locked(url: str, ui: Any) -> str:
    with mmdb.connect(url):
        return str(ui(url, "--port", "0"))
