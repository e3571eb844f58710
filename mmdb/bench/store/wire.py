"""A relay before a server that counts the bytes that pass."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit, urlunsplit


class Wire:
    """Listens on a port of this machine and passes everything on to a server; use it in `with`.

    Attributes:
        url: the server's URL, by way of the relay.
    """

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self._server = (parts.hostname or "localhost", parts.port or 5432)
        self._listener = socket.create_server(("127.0.0.1", 0))
        login, at, _ = parts.netloc.rpartition("@")
        port = self._listener.getsockname()[1]
        self.url = urlunsplit(parts._replace(netloc=f"{login}{at}127.0.0.1:{port}"))
        self._lock = threading.Lock()
        self._sent = self._received = 0
        self._sockets: list[socket.socket] = [self._listener]

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for open_socket in self._sockets:
            with suppress(OSError):
                open_socket.shutdown(socket.SHUT_RDWR)
            open_socket.close()

    @property
    def passed(self) -> tuple[int, int]:
        """Bytes so far to the server and from it."""
        with self._lock:
            return self._sent, self._received

    def _accept(self) -> None:
        with suppress(OSError):  # the listener is closed
            while True:
                client, _ = self._listener.accept()
                server = socket.create_connection(self._server)
                self._sockets += [client, server]
                for source, target, sent in ((client, server, True), (server, client, False)):
                    threading.Thread(
                        target=self._pump, args=(source, target, sent), daemon=True
                    ).start()

    def _pump(self, source: socket.socket, target: socket.socket, sent: bool) -> None:
        with suppress(OSError):
            while data := source.recv(1 << 16):
                with self._lock:
                    if sent:
                        self._sent += len(data)
                    else:
                        self._received += len(data)
                target.sendall(data)
            target.shutdown(socket.SHUT_WR)
