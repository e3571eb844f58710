"""The pages as an application: GET alone, each read through a session that may only read."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from hashlib import sha256
from html import escape

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

from mmdb.errors import MmdbError
from mmdb.report import file
from mmdb.report.file import report_json
from mmdb.report.page import SCRIPTS, PageFrame, page, script, stylesheet
from mmdb.ui.pages import KINDS, Kind, address_of, first_page, path_of, status_of, tag_of
from mmdb.ui.security import Guard, Rules
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
        texts = {"vega.js": file.libraries(), "page.js": own}
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
            return _error_page(error)
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


def _error_page(error: MmdbError) -> Response:
    return _text_page(status_of(error), error.message, str(error.hint or ""))


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
