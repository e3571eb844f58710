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

from tests.bi.environments import Service, program
from tests.cluster import ROOT

PREPARED_S = 900  # it makes its own database first
USER, PASSWORD = "admin", secrets.token_urlsafe(12)
_CONTAINER = ROOT / "docker" / "superset"


@contextmanager
def superset(folder: Path) -> Iterator[Service]:
    """Run what the container of docker/superset runs, and serve while the context lasts."""
    for name, secret in {"key": secrets.token_hex(32), "password": PASSWORD}.items():
        (folder / name).write_text(f"{secret}\n")
    gunicorn = program("superset", "gunicorn")
    variables = {
        "PATH": f"{gunicorn.parent}:/usr/bin:/bin",
        "SUPERSET_CONFIG_PATH": str(_CONTAINER / "settings.py"),
        "SUPERSET_HOME": str(folder),
        "SUPERSET_KEY_FILE": str(folder / "key"),
        "SUPERSET_PASSWORD_FILE": str(folder / "password"),
        "MMDB_URI": "postgresql+psycopg2://dashboard@127.0.0.1/shop",  # not connected to
        "FLASK_APP": "superset",
        "HOME": str(folder),
        "SCARF_ANALYTICS": "false",
    }
    command = ("env", "BIND=127.0.0.1:{port}", _CONTAINER / "serve.sh")
    with Service(*command, log=folder / "server.log", variables=variables) as server:
        server.wait(PREPARED_S)
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
