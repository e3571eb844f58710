"""Services that take JSON over HTTP, and the sinks of texts and events: files or a service."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterable, Mapping, Sequence
from http.client import HTTPException, IncompleteRead
from pathlib import Path
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.parse import urlencode, urlsplit, urlunsplit
from urllib.request import HTTPRedirectHandler, Request, build_opener

from mmdb.errors import InvalidOption, SinkFailed, SinkRefused
from mmdb.messages import show
from mmdb.store.files.atomic import replacing

#: Answers that may be others a moment later.
_TRY_AGAIN = (408, 425, 429, 500, 502, 503, 504)
#: Seconds before the second, third, … try.
_DELAYS = (0.2, 1.0, 3.0, 10.0)
_TIMEOUT_S = 60
_SHOWN_CHARACTERS = 300
#: Bytes of an answer; pages of MLflow's have a thousand runs.
_MOST_BYTES = 1 << 28
_KEY = re.compile(r"[!-~]+")


class _Stays(HTTPRedirectHandler):
    """Follows no redirection: a POST would become a GET, and the token go to another host."""

    def redirect_request(self, *_: Any, **__: Any) -> None:
        """Return no request, which makes the answer an HTTPError."""


_OPENER = build_opener(_Stays)


class HttpService:
    """Where requests go.

    Args:
        url: `http://host:port` or `https://…`; paths are put behind it.
        key: sent as a bearer token.
        objects: whether what is no JSON object is no answer; else it counts as an empty one.
        delays: seconds before each further try.
    Raises:
        InvalidOption: the URL is of another kind, or the key cannot be sent.
    """

    def __init__(
        self,
        url: str,
        key: str | None = None,
        *,
        objects: bool = False,
        delays: Sequence[float] | None = None,
    ) -> None:
        if not _is_address(url):
            raise InvalidOption(
                f"{show(url.rpartition('@')[2])} is no address of a service.",
                hint="It begins with http:// or https://, and has no user or password: "
                "a token is passed as the key.",
            )
        if key and not _KEY.fullmatch(key):
            raise InvalidOption("The key has characters that no header may have.")
        self.url = url.rstrip("/")
        self._headers = {"Content-Type": "application/json", "Accept": "application/json"}
        if key:
            self._headers["Authorization"] = f"Bearer {key}"
        self._objects = objects
        self._delays = _DELAYS if delays is None else delays

    def post(self, path: str, body: Mapping[str, Any], *, again: bool = True) -> dict[str, Any]:
        """Send a body and return the answer's.

        Args:
            again: whether it may be sent twice: else only what surely was not taken is repeated.
        Raises:
            SinkRefused, SinkFailed
        """
        return self._send("POST", path, json.dumps(body, allow_nan=False).encode(), again)

    def get(self, path: str, **parameters: str) -> dict[str, Any]:
        """Ask, and return the answer's body.

        Raises:
            SinkRefused, SinkFailed
        """
        return self._send("GET", f"{path}?{urlencode(parameters)}", None, True)

    def _send(self, method: str, path: str, body: bytes | None, again: bool) -> dict[str, Any]:
        for delay in (*self._delays, None):
            request = Request(self.url + path, body, self._headers, method=method)
            try:
                with _OPENER.open(request, timeout=_TIMEOUT_S) as answer:
                    text = answer.read(_MOST_BYTES)
                    if answer.length:  # there was to be more
                        raise IncompleteRead(text, answer.length)
                    return self._understood(text)
            except HTTPError as error:
                with error:
                    text = _read_refusal(error)
                if (
                    delay is None
                    or error.code not in _TRY_AGAIN
                    or not (again or error.code == 429)
                ):
                    raise _refused(method, self.url + path, error.code, text) from error
            except (URLError, HTTPException, OSError) as error:
                reason = getattr(error, "reason", error)
                if delay is None or not (again or isinstance(reason, ConnectionRefusedError)):
                    raise SinkFailed(f"{self.url} does not answer: {reason}.") from error
            time.sleep(delay)
        raise AssertionError("unreachable")

    def _understood(self, text: bytes) -> dict[str, Any]:
        found = _parsed(text)
        if found is None and self._objects:
            raise SinkFailed(f"{self.url} does not answer with JSON.")
        return found or {}


def _is_address(url: str) -> bool:
    """Return whether requests can be sent to a URL.

    >>> _is_address("http://box:5000/a"), _is_address("http://ann:secret@box"), _is_address("a b")
    (True, False, False)
    """
    if not url.isascii() or not url.isprintable() or " " in url:
        return False
    try:
        parts = urlsplit(url)
        _ = parts.port  # raises where there is no such port
        (parts.hostname or "").encode("idna")
    except ValueError:
        return False
    return parts.scheme in ("http", "https") and bool(parts.hostname) and "@" not in parts.netloc


def _read_refusal(error: HTTPError) -> bytes:
    """Return what was answered; of a redirection, where it leads."""
    if error.code in (301, 302, 303, 307, 308):
        return f"it leads to {error.headers.get('Location')}".encode()
    try:
        return error.read(_MOST_BYTES)
    except (HTTPException, OSError):  # the status says enough
        return b""


def _parsed(text: bytes) -> dict[str, Any] | None:
    """Return a JSON object, or None where it is none: some answer with a word, or nothing."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def _refused(method: str, url: str, status: int, text: bytes) -> SinkRefused:
    body = _parsed(text) or {}
    said = body.get("message") or text.decode(errors="replace")
    where, shown = url.partition("?")[0], " ".join(str(said).split())
    error = SinkRefused(f"{method} {where} was answered with {status}: {shown[:_SHOWN_CHARACTERS]}")
    error.status, error.code = status, str(body.get("error_code", ""))
    return error


def write_text(content: str, file: str | Path) -> int:
    """Write a text, over a file that is there; return its bytes.

    Raises:
        FileNotWritten, FileExists: it is a folder.
    """
    data = content.encode()
    with replacing(Path(file), overwrite=True) as target:
        target.write(data)
    return len(data)


#: Where collectors of OpenLineage listen.
_PATH = "/api/v1/lineage"


def write_events(events: Iterable[Mapping[str, Any]], file: str | Path) -> int:
    """Write events to a file, over one that is there; return how many.

    Equal events give equal bytes.

    Raises:
        FileNotWritten, FileExists: it is a folder.
    """
    count = 0
    with replacing(Path(file), overwrite=True) as target:
        for event in events:
            line = json.dumps(event, sort_keys=True, ensure_ascii=False, allow_nan=False)
            target.write(line.encode() + b"\n")
            count += 1
    return count


def post_events(events: Iterable[Mapping[str, Any]], url: str, key: str | None = None) -> int:
    """Send events to a collector, one by one and in order; return how many.

    Args:
        url: of the service (events go to its /api/v1/lineage), or of its endpoint.
        key: sent as a bearer token.
    Raises:
        InvalidOption: the URL is none.
        SinkFailed: an event was not taken; those before it were, and may be sent again.
    """
    service, path = _endpoint(url, key)
    count = 0
    for event in events:
        try:
            service.post(path, event)
        except SinkFailed as error:
            raise SinkFailed(f"{error.message} {count} events were taken before.") from error
        count += 1
    return count


def _endpoint(url: str, key: str | None) -> tuple[HttpService, str]:
    service = HttpService(url, key)
    parts = urlsplit(service.url)
    if not parts.path:
        return service, _PATH
    base = urlunsplit((parts.scheme, parts.netloc, "", "", ""))
    query = f"?{parts.query}" if parts.query else ""
    return HttpService(base, key), parts.path + query
