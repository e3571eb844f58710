"""`mmdb ui`: the pages, served until somebody stops it."""

from __future__ import annotations

import re
import secrets
import socket
from collections.abc import Callable
from urllib.parse import quote

import uvicorn

from mmdb.errors import EngineError, InvalidOption
from mmdb.ui.app import make_app
from mmdb.ui.security import Rules, is_loopback, names_of_this_machine
from mmdb.ui.sessions import PageSessions

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
        say(address_of(listener, rules))
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


def address_of(listener: socket.socket, rules: Rules) -> str:
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
