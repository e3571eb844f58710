"""Writes texts and events to files, whole or not at all, or posts them to a service."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from mmdb.errors import SinkFailed
from mmdb.standards.http_service import HttpService
from mmdb.store.files.atomic import replacing


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
