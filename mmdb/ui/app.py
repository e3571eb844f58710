"""`mmdb ui`: the pages as an application, GET alone, served until somebody stops it."""

from __future__ import annotations

import logging
import re
import secrets
import socket
from collections.abc import Awaitable, Callable
from hashlib import sha256
from html import escape
from urllib.parse import quote

import uvicorn
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

from mmdb.errors import EngineError, InvalidOption, MmdbError
from mmdb.report import picture
from mmdb.report.file import report_json
from mmdb.report.page import SCRIPTS, PageFrame, page, script, stylesheet
from mmdb.ui.pages import KINDS, Kind, address_of, first_page, path_of, status_of, tag_of
from mmdb.ui.security import Guard, Rules, is_loopback, names_of_this_machine
from mmdb.ui.sessions import PageSessions

Endpoint = Callable[[Request], Awaitable[Response]]
_NEVER = {"Cache-Control": "no-store"}
_ALWAYS = {"Cache-Control": "private, max-age=31536000, immutable"}
_JAVASCRIPT = "text/javascript; charset=utf-8"


def make_app(sessions: PageSessions, rules: Rules) -> ASGIApp:
    """Return the application.

    Raises:
        EngineError: vl-convert is not installed.
    """
    served = _Served(sessions)
    routes = [
        Route("/", served.page_of("home")),
        Route("/runs", served.page_of("runs")),
        Route("/models", served.page_of("models")),
        *(
            Route(f"/{kind}/{{name:path}}", served.page_of(kind))
            for kind in ("run", "model", "lineage")
        ),
        Route("/api/{kind}/{name:path}", served.values),
        Route("/state/{kind}/{name:path}", served.state),
        Route("/static/{name}", served.script),
    ]
    app = Starlette(routes=routes, exception_handlers={404: _nothing, Exception: _failed})
    return Guard(app, rules)


class _Served:
    """The answers, which share the sessions."""

    def __init__(self, sessions: PageSessions) -> None:
        self._sessions = sessions
        self._kinds: dict[str, Kind] = {"home": first_page(sessions.url), **KINDS}
        own = "\n".join(script(name) for name in (*SCRIPTS, "live.js"))
        texts = {"vega.js": picture.libraries(), "page.js": own}
        self._scripts = {name: text.encode() for name, text in texts.items()}
        self._addresses = tuple(
            f"/static/{name}?{sha256(text).hexdigest()[:12]}"
            for name, text in self._scripts.items()
        )

    def page_of(self, kind: str) -> Endpoint:
        """Return what answers with a page of a kind."""

        async def answer(request: Request) -> Response:
            name = _name_of(request)
            return await run_in_threadpool(self._page, kind, name)

        return answer

    async def values(self, request: Request) -> Response:
        """Answer with what a page says, as JSON."""
        kind, name = request.path_params["kind"], _name_of(request)
        if kind not in self._kinds:
            return JSONResponse({"error": "There is no such kind."}, 404, _NEVER)
        return await run_in_threadpool(self._values, kind, name)

    async def state(self, request: Request) -> Response:
        """Answer whether a page is out of date: 304 where it is not."""
        kind, name = request.path_params["kind"], _name_of(request)
        if kind not in self._kinds:
            return Response(status_code=404)
        known = request.headers.get("if-none-match", "").strip('"')
        return await run_in_threadpool(self._state, kind, name, known)

    async def script(self, request: Request) -> Response:
        """Answer with one of the scripts."""
        content = self._scripts.get(request.path_params["name"])
        if content is None:
            return Response(status_code=404)
        return Response(content, headers=_ALWAYS, media_type=_JAVASCRIPT)

    def _page(self, kind: str, name: str) -> Response:
        try:
            with self._sessions.session() as connection:
                # The state first: what changes in between makes the page out of date, no more.
                tag = tag_of(self._kinds[kind].state(connection, name))
                report = self._kinds[kind].report(connection, name)
        except MmdbError as error:
            return _text_page(status_of(error), error.message, str(error.hint or ""))
        frame = PageFrame(
            above=_BAR,
            scripts=self._addresses,
            page_of=address_of,
            state=path_of(f"state/{kind}", name),
            tag=tag,
        )
        return HTMLResponse(page(report, frame), headers=_NEVER)

    def _values(self, kind: str, name: str) -> Response:
        try:
            with self._sessions.session() as connection:
                report = self._kinds[kind].report(connection, name)
        except MmdbError as error:
            said = {"error": error.message, "hint": error.hint, "sqlstate": error.sqlstate}
            return JSONResponse(said, status_of(error), _NEVER)
        return Response(report_json(report), headers=_NEVER, media_type="application/json")

    def _state(self, kind: str, name: str, known: str) -> Response:
        try:
            with self._sessions.session() as connection:
                tag = tag_of(self._kinds[kind].state(connection, name))
        except MmdbError as error:
            return Response(status_code=status_of(error), headers=_NEVER)
        headers = {**_NEVER, "ETag": f'"{tag}"'}
        if tag == known:
            return Response(status_code=304, headers=headers)
        return JSONResponse({"state": tag}, headers=headers)


def _name_of(request: Request) -> str:
    """Return the name that is asked for; one that no path can hold is a parameter."""
    return str(request.path_params.get("name") or request.query_params.get("name", ""))


_BAR = (
    '<nav class="bar" aria-label="Pages"><a href="/">Database</a><a href="/runs">Runs</a>'
    '<a href="/models">Models</a><span class="live" id="live"></span></nav>\n'
)


def _text_page(status: int, said: str, hint: str) -> Response:
    text = f"""<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><title>mmdb</title>
<meta name="viewport" content="width=device-width, initial-scale=1">
<style>
{stylesheet()}</style></head>
<body><header>{_BAR}<h1>{escape(said)}</h1></header>
<main><p>{escape(hint)}</p></main></body></html>
"""
    return HTMLResponse(text, status, _NEVER)


async def _nothing(_request: Request, _error: Exception) -> Response:
    return _text_page(404, "There is no such page.", "")


async def _failed(_request: Request, error: Exception) -> Response:
    logging.getLogger("mmdb.ui").error("a page failed", exc_info=error)
    return _text_page(500, "This page could not be made.", "The server's output says why.")


#: What a bearer token may consist of (RFC 6750), and any cookie or address can hold.
_TOKEN = re.compile(r"[\w\-.~+/]+=*", re.ASCII)


def serve(url: str, host: str, port: int, token: str | None, say: Callable[[str], None]) -> None:
    """Serve a database's pages until interrupted.

    Args:
        port: 0 for any that is free.
        token: that is asked for; where others than this machine reach the host one is made.
        say: is told the address, once it answers.
    Raises:
        WrongUrl, DatabaseLocked, NotInstalled, MigrationMismatch
        InvalidOption: there is no such port, or the token is none.
        EngineError: the address cannot be had, or vl-convert is not installed.
    """
    rules = rules_of(host, token)
    with _listen(host, port) as listener:
        _serve_on(listener, url, rules, say)


def _serve_on(listener: socket.socket, url: str, rules: Rules, say: Callable[[str], None]) -> None:
    sessions = PageSessions(url)
    try:
        config = uvicorn.Config(
            make_app(sessions, rules),
            log_level="warning",
            ws="none",
            access_log=False,  # addresses hold the token
            server_header=False,
            timeout_graceful_shutdown=2,
        )
        say(served_address(listener, rules))
        uvicorn.Server(config).run(sockets=[listener])
    except KeyboardInterrupt:
        pass  # that is how it ends
    finally:
        sessions.close()


def rules_of(host: str, token: str | None) -> Rules:
    """Return what a server on a host lets in; a host that others reach has a token.

    Raises:
        InvalidOption: the token is empty, or has characters that none may have.
    """
    if token is not None and not _TOKEN.fullmatch(token):
        raise InvalidOption(
            "That cannot be a token.", hint="--token is letters, digits and any of - . _ ~ + /."
        )
    if token is None and not is_loopback(host):
        token = secrets.token_urlsafe(24)
    return Rules(host=host, token=token, names=names_of_this_machine())


def served_address(listener: socket.socket, rules: Rules) -> str:
    """Return the address to open."""
    port = listener.getsockname()[1]
    everywhere = rules.host in ("", "0.0.0.0", "::")
    host = socket.gethostname() if everywhere else rules.host
    host = f"[{host}]" if ":" in host else host
    asked = "" if rules.token is None else f"?token={quote(rules.token, safe='')}"
    return f"http://{host}:{port}/{asked}"


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    if not 0 <= port <= 65535:
        raise InvalidOption(f"There is no port {port}.", hint="--port is 0 to 65535.")
    try:
        return socket.create_server((host, port), family=family, backlog=128)
    except (OSError, UnicodeError) as error:
        raise EngineError(
            f"{host}:{port} cannot be listened on: {error}.",
            hint="Choose others with --host and --port.",
        ) from error
