"""Services that are not what they should be: none of them ends in a traceback or a lie."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from mmdb.errors import InvalidOption, SinkFailed
from mmdb.standards.http_service import HttpService, post_events
from mmdb.standards.mlflow_export import _params, key_text
from mmdb.standards.mlflow_tracking import Tracking

Answer = tuple[int, dict[str, str], bytes]


class Liar(ThreadingHTTPServer):
    """Answers each path with what `answer` returns, and keeps what was asked."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.asked: list[tuple[str, str]] = []
        self.answer: Callable[[str], Answer] = lambda path: (200, {}, b"{}")
        self.url = f"http://127.0.0.1:{self.server_port}"


class _Handler(BaseHTTPRequestHandler):
    def _answer(self) -> None:
        server: Any = self.server
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        server.asked.append((self.command, self.path))
        status, headers, body = server.answer(self.path)
        self.send_response(status)
        for name, value in ({"Content-Length": str(len(body))} | headers).items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    do_GET = do_POST = _answer

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def liar() -> Iterator[Liar]:
    with Liar() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.mark.parametrize(
    "url",
    [
        "ftp://box", "", "http://", "http://[::1", "http://box:99999", "http://box:x", "http://a..b",
        "http://b ox", "http://box/\n", "http://bö.example", "http://ann:secret@box",
    ],
)  # fmt: skip
def test_what_is_no_address_is_refused(url: str) -> None:
    with pytest.raises(InvalidOption) as caught:
        HttpService(url)
    assert "secret" not in str(caught.value)


def test_a_key_that_is_no_header_is_refused() -> None:
    for key in ("a\n", "a b", "schlüssel"):
        with pytest.raises(InvalidOption, match="key"):
            HttpService("http://box", key)


def test_a_redirection_is_not_followed(liar: Liar) -> None:
    liar.answer = lambda path: (302, {"Location": f"{liar.url}/elsewhere"}, b"")
    with pytest.raises(SinkFailed, match=r"leads to .*elsewhere 0 events were taken"):
        post_events([{"a": 1}], liar.url, "token")
    assert liar.asked == [("POST", "/api/v1/lineage")]


@pytest.mark.parametrize(
    "body", [b"<html>", b"[1]", b"[" * 99_999, b'{"experiment": null}', b'{"experiment": {}}',
             b'{"experiment": {"experiment_id": 1, "tags": "abc"}}'],
)  # fmt: skip
def test_what_is_not_mlflow_is_said(liar: Liar, body: bytes) -> None:
    liar.answer = lambda path: (200, {}, body)
    with pytest.raises(SinkFailed, match="does not answer"):
        Tracking(HttpService(liar.url, objects=True)).find_experiment("search")


def test_half_an_answer_is_none(liar: Liar) -> None:
    liar.answer = lambda path: (200, {"Content-Length": "100"}, b'{"runs": []}')
    with pytest.raises(SinkFailed, match="more expected"):
        HttpService(liar.url, delays=()).post("/runs/search", {})


def test_a_page_without_end_ends(liar: Liar) -> None:
    page = json.dumps({"runs": [], "next_page_token": "again"}).encode()
    liar.answer = lambda path: (200, {}, page)
    with pytest.raises(SinkFailed, match="for ever"):
        list(Tracking(HttpService(liar.url)).runs("1"))
    assert len(liar.asked) == 2


def test_params_that_mlflow_takes_for_one_stay_several() -> None:
    rows = [{"key": key, "value": str(n)} for n, key in enumerate(("a!", "a?", "a_", "b"))]
    found = {param["key"]: param["value"] for param in _params(rows)}
    assert found == {"a_": "0", "a_ 2": "1", "a_ 3": "2", "b": "3"}


def test_keys_that_are_no_path_are_mended() -> None:
    given = ("a/b", "a//b", "../x", "/a", "a/", "..", ".", "")
    mended = ("a/b", "a__b", "_.._x", "_a", "a_", "_..", "_.", "_")
    assert tuple(map(key_text, given)) == mended
