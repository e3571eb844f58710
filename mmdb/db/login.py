"""How a URL of PostgreSQL is read, and what mends one that lets nobody in."""

from __future__ import annotations

from typing import Any

import psycopg
from psycopg.conninfo import conninfo_to_dict

from mmdb.db.check import shown
from mmdb.errors import ConnectionLost, EngineError, WrongUrl

_HINT = "Check each part of postgresql://user@host:port/database, and the password."
#: What libpq and servers say, in part, and what mends it; the first that is found.
_HINTS = {
    "does not match host name": "Name the server in the URL as its certificate names it.",
    "certificate verify failed": "The server's certificate has expired, or none of those in "
    "sslrootcert=FILE vouches for it: ask who runs the server for both.",
    "root certificate file": "sslrootcert=FILE in the URL names the certificates that you trust.",
    "server does not support SSL": "The server has ssl = off; without encryption mmdb connects "
    "only where sslmode in the URL lets it.",
    "requires a valid client certificate": "Add sslcert=FILE and sslkey=FILE to the URL: a "
    "certificate that the server's ssl_ca_file vouches for, and its key.",
    "certificate authentication failed": "The certificate of sslcert=FILE names another role: "
    "take that one's name as user, or a certificate of this one.",
    " alert ": "The server refuses the certificate of sslcert=FILE: it has expired, or the "
    "server's ssl_ca_file does not vouch for it.",
    "private key file": "sslkey=FILE in the URL names the key of sslcert, which only you may read.",
    "session is read-only": "No server of the URL takes writes now: promote the standby, or name "
    "the primary.",
    "server is in hot standby mode": "No server of the URL is a primary now: promote the standby.",
    "server is not in hot standby mode": "No server of the URL is a standby; leave out "
    "target_session_attrs, or write prefer-standby.",
    "no pg_hba.conf entry": "pg_hba.conf of the server has no line for this address, role and "
    "database, with or without encryption as the message says.",
}


def parameters_of(url: str) -> dict[str, Any]:
    """Return the connection parameters of a URL or connection string.

    Raises:
        WrongUrl: libpq does not understand it.
    """
    try:
        return conninfo_to_dict(url)
    except psycopg.ProgrammingError as error:
        # What it quotes may be a password.
        text = str(error).partition('"')[0].rstrip(": ").removesuffix(" in")
        hint = "In names and passwords, %, @ and / are written %25, %40 and %2F; a space %20."
        raise WrongUrl(f"The URL {shown(url)!r} is not understood: {text}.", hint=hint) from error


def login_error(error: psycopg.Error) -> EngineError:
    """Return the error of mmdb for one that libpq or a server raises as a session is opened."""
    text = str(error).strip()
    if "the database system is " in text:  # starting up, shutting down, in recovery mode
        return ConnectionLost(text)
    hint = next((hint for said, hint in _HINTS.items() if said in text), _HINT)
    return WrongUrl(f"Cannot connect: {text}", hint=hint)
