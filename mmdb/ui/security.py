"""Who may ask, and for what: names of this machine, GET alone, and a token where it is open."""

from __future__ import annotations

import hmac
import ipaddress
import re
import socket
from dataclasses import dataclass, field
from urllib.parse import parse_qsl, urlencode

from starlette.datastructures import Headers
from starlette.requests import cookie_parser
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

METHODS = ("GET", "HEAD")
_PORT = re.compile(r"(:\d+)?")
#: Nothing but what this server has; scripts are files of it, none stands in a page.
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'unsafe-inline'; img-src data:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}


def is_loopback(host: str) -> bool:
    """Return whether only this machine reaches a host's name or address.

    >>> is_loopback("127.0.0.1"), is_loopback("localhost"), is_loopback("0.0.0.0")
    (True, True, False)
    """
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """The rules by which a server lets requests in."""

    host: str  # that it is bound to
    token: str | None = None
    names: frozenset[str] = field(default_factory=frozenset)  # of this machine

    @property
    def cookie(self) -> str:
        """The name of the token's cookie."""
        return "mmdb_token"

    def allows_host(self, header: str) -> bool:
        """Return whether a Host header names this server: else a page of another site, whose name
        was made to lead here, would read what is served.
        """
        host = _without_port(header)
        if host is None:
            return False
        if is_loopback(host):
            return True
        if is_loopback(self.host):
            return False
        return _is_address(host) or host in {self.host.lower(), *self.names}

    def knows(self, given: str | None) -> bool:
        """Return whether a token is the right one, in the same time whatever it is."""
        if self.token is None:
            return True
        return given is not None and hmac.compare_digest(given.encode(), self.token.encode())


def names_of_this_machine() -> frozenset[str]:
    """Return the names that this machine knows itself by."""
    return frozenset({socket.gethostname().lower(), socket.getfqdn().lower()})


def _without_port(header: str) -> str | None:
    """Return the host of a header, or None where it is none.

    >>> _without_port("localhost:8765"), _without_port("[::1]:80"), _without_port("localhost:x@b")
    ('localhost', '::1', None)
    """
    text = header.strip().lower().removesuffix(".")
    if text.startswith("["):
        host, closed, rest = text[1:].partition("]")
        return host if closed and _PORT.fullmatch(rest) else None
    host, colon, port = text.partition(":")
    is_one = host and _PORT.fullmatch(colon + port) and not set(host) & set("@/\\ ,")
    return host if is_one else None


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


class Guard:
    """Lets through what the rules allow, and gives every answer its headers."""

    def __init__(self, app: ASGIApp, rules: Rules) -> None:
        self._app, self._rules = app, rules

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":
            return  # a web socket: it is never accepted

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                given = [(k.lower().encode(), v.encode()) for k, v in HEADERS.items()]
                message["headers"] = [*message.get("headers", []), *given]
            await send(message)

        refused = self._refusal(scope)
        await (refused or self._app)(scope, receive, with_headers)

    def _refusal(self, scope: Scope) -> Response | None:
        headers = Headers(scope=scope)
        if not self._rules.allows_host(headers.get("host", "")):
            return PlainTextResponse("This server has another name.\n", 421)
        if scope["method"] not in METHODS:
            allowed = {"Allow": ", ".join(METHODS)}
            return PlainTextResponse("Nothing can be changed here.\n", 405, allowed)
        if self._rules.token is None:
            return None
        return self._ask_for_token(scope, headers)

    def _ask_for_token(self, scope: Scope, headers: Headers) -> Response | None:
        asked = parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True)
        given = next((value for key, value in asked if key == "token"), None)
        if given is not None and self._rules.knows(given):
            rest = urlencode([pair for pair in asked if pair[0] != "token"])
            path = scope.get("raw_path", scope["path"].encode()).decode("latin-1")
            # one slash: two would be another server's address
            address = f"/{path.lstrip('/')}{'?' if rest else ''}{rest}"
            response = RedirectResponse(address, 303, {"Cache-Control": "no-store"})
            response.set_cookie(
                self._rules.cookie, given, httponly=True, samesite="strict", path="/"
            )
            return response
        scheme, _, bearer = headers.get("authorization", "").partition(" ")
        cookie = cookie_parser(headers.get("cookie", "")).get(self._rules.cookie)
        if self._rules.knows(cookie) or (scheme.lower() == "bearer" and self._rules.knows(bearer)):
            return None
        text = "Open the address with the token that mmdb ui has printed.\n"
        return PlainTextResponse(text, 401, {"WWW-Authenticate": "Bearer"})
