"""An Apache Superset of its own in a folder, and its REST API as a browser session meets it."""

from __future__ import annotations

import json
import secrets
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from http.cookiejar import CookieJar
from pathlib import Path
from typing import Any

from tests.bi.environments import Service, output, program

USER, PASSWORD = "admin", secrets.token_urlsafe(12)
_SETTINGS = """
SECRET_KEY = {secret!r}
SQLALCHEMY_DATABASE_URI = "sqlite:///{folder}/superset.db"
WTF_CSRF_ENABLED = True
TALISMAN_ENABLED = False  # it warns that there is no https, which loopback needs not
RATELIMIT_ENABLED = False
"""
_ADMIN = ("--firstname", "Ann", "--lastname", "Admin", "--email", "ann@example.org")


@contextmanager
def superset(folder: Path) -> Iterator[Service]:
    """Make Superset's own database, and serve it while the context lasts."""
    settings = folder / "superset_config.py"
    settings.write_text(_SETTINGS.format(secret=secrets.token_hex(32), folder=folder))
    variables = {
        "SUPERSET_CONFIG_PATH": str(settings),
        "SUPERSET_HOME": str(folder),
        "FLASK_APP": "superset",
        "HOME": str(folder),
        "SCARF_ANALYTICS": "false",
    }
    command = program("superset", "superset")
    for arguments in (
        ("db", "upgrade"),
        ("fab", "create-admin", "--username", USER, "--password", PASSWORD, *_ADMIN),
        ("init",),
    ):
        output(command, *arguments, limit_s=300, folder=folder, variables=variables)
    server = Service(
        program("superset", "gunicorn"),
        *("--bind", "127.0.0.1:{port}", "--workers", "1", "--threads", "8", "--timeout", "120"),
        "superset.app:create_app()",
        log=folder / "server.log",
        variables=variables,
    )
    with server:
        server.wait()
        yield server


class Rest:
    """Superset's REST API, logged in."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._opener = urllib.request.build_opener(
            urllib.request.HTTPCookieProcessor(CookieJar())  # the CSRF token goes with a session
        )
        self._headers = {"Content-Type": "application/json", "Referer": url}
        login = {"username": USER, "password": PASSWORD, "provider": "db", "refresh": False}
        token = self.post("/security/login", login)["access_token"]
        self._headers["Authorization"] = f"Bearer {token}"
        self._headers["X-CSRFToken"] = self.get("/security/csrf_token/")["result"]

    def get(self, path: str) -> Any:
        """Return the answer to a GET."""
        return self._call("GET", path, None)

    def post(self, path: str, body: object) -> Any:
        """Return the answer to a POST."""
        return self._call("POST", path, body)

    def put(self, path: str, body: object) -> Any:
        """Return the answer to a PUT."""
        return self._call("PUT", path, body)

    def _call(self, method: str, path: str, body: object) -> Any:
        request = urllib.request.Request(
            f"{self._url}/api/v1{path}",
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers=self._headers,
        )
        try:
            with self._opener.open(request, timeout=120) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as refused:
            text = refused.read().decode(errors="replace")[:2000]
            raise AssertionError(f"{method} {path}: {refused.code} {text}") from None
