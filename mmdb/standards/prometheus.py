"""A database's metrics in Prometheus' text format, once or again at each request of `/metrics`.

Source: https://prometheus.io/docs/instrumenting/exposition_formats/
"""

from __future__ import annotations

import math
import re
import socket
from collections.abc import Callable, Iterable, Iterator
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import groupby

from mmdb.db.connection import Row
from mmdb.db.queries import load
from mmdb.errors import EngineError, InvalidOption, MmdbError
from mmdb.report.facts import connected_to_read

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


def exposition(samples: Iterable[Row]) -> str:
    """Return samples as Prometheus reads them.

    Args:
        samples: rows of `mmdb.metric`, those of one name together.
    """
    families = groupby(samples, lambda row: (row["name"], row["type"], row["help"]))
    return "".join(line + "\n" for family, rows in families for line in _lines(*family, rows))


def _lines(name: str, kind: str, about: str, rows: Iterable[Row]) -> Iterator[str]:
    yield f"# HELP {name} {_escaped(about)}"
    yield f"# TYPE {name} {kind}"
    for row in rows:
        value = _escaped(row["label_value"]).replace('"', r"\"")
        labels = f'{{{row["label"]}="{value}"}}' if row["label"] else ""
        yield f"{name}{labels} {number(row['value'])}"


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace("\n", r"\n")


def number(value: float) -> str:
    """Return a sample's value, a whole number without its point.

    >>> number(3.0), number(0.25), number(float("nan")), number(float("inf")), number(1e300)
    ('3', '0.25', 'NaN', '+Inf', '1e+300')
    """
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    return str(int(value)) if value == int(value) and abs(value) < 1e15 else repr(value)


_Q = load("metrics")
_ADDRESS = re.compile(r"(?:(\[[^]]+\]|[^:\[\]]*):)?(\d{1,5})")
#: Seconds after which a client that sends nothing is left.
_PATIENCE_S = 5


def read_metrics(url: str) -> str:
    """Return the metrics of a database, over a session of their own, as Prometheus reads them.

    Raises:
        WrongUrl, DatabaseLocked, NotInstalled, MigrationMismatch, RightsMissing
    """
    with connected_to_read(url) as connection:
        rows = connection.rows(_Q.read_metrics) + connection.rows(_Q.read_server_metrics)
    return exposition(rows)


def serve_metrics(url: str, address: str, say: Callable[[str], None]) -> None:
    """Answer `GET /metrics` until interrupted.

    Args:
        address: "port", for this machine alone, or "host:port" or "[IPv6]:port"; port 0 for any
            that is free.
        say: is told the address, once it answers.
    Raises:
        InvalidOption: that is no address.
        EngineError: it cannot be had.
    """
    host, port = address_of(address)
    try:
        server = _server_of(host)((host, port), _handler(url))
    except OSError as error:
        raise EngineError(f"Cannot listen on {address}: {error}.") from error
    with server:
        shown = f"[{host}]" if ":" in host else host
        say(f"http://{shown}:{server.server_port}/metrics")
        server.serve_forever()


def address_of(text: str) -> tuple[str, int]:
    """Return host and port of an address.

    >>> address_of("9187"), address_of("0.0.0.0:9187"), address_of("[::1]:9187")
    (('127.0.0.1', 9187), ('0.0.0.0', 9187), ('::1', 9187))
    """
    found = _ADDRESS.fullmatch(text)
    if found is None or int(found[2]) > 65535:
        raise InvalidOption(f"{text!r} is no address.", hint="Give PORT or HOST:PORT.")
    return (found[1] or "127.0.0.1").strip("[]"), int(found[2])


def _server_of(host: str) -> type[ThreadingHTTPServer]:
    """Return a server for a host: a thread for each request, so that nobody waits for another."""

    class MetricsServer(ThreadingHTTPServer):
        address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        daemon_threads = True

    return MetricsServer


def _handler(url: str) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        """Reads the metrics anew for each request: a database that was away is found again."""

        timeout = _PATIENCE_S
        server_version = "mmdb"
        sys_version = ""

        def do_GET(self) -> None:
            if self.path.partition("?")[0] != "/metrics":
                self.send_error(HTTPStatus.NOT_FOUND)
                return
            try:
                status, text = HTTPStatus.OK, read_metrics(url)
            except MmdbError as error:  # the code alone: the text may name the database
                status, text = HTTPStatus.SERVICE_UNAVAILABLE, f"{error.sqlstate}\n"
            data = text.encode()
            self.send_response(status)
            self.send_header("Content-Type", CONTENT_TYPE)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, format: str, *args: object) -> None:
            """Write no log: a scrape every few seconds says nothing."""

    return Handler
