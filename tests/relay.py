"""A relay between a client and a PostgreSQL server, which counts bytes and can break."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress
from typing import Self
from urllib.parse import urlsplit, urlunsplit


class Relay:
    """Listens on a port of this machine and passes bytes both ways; use it in `with`.

    Args:
        url: of the server.
        cut_after: bytes to the server after which all its connections are closed, for good.
    Attributes:
        url: the server's URL, by way of the relay.
        sent, received: bytes to the server and from it.
    """

    def __init__(self, url: str, *, cut_after: int | None = None) -> None:
        parts = urlsplit(url)
        self._server = (parts.hostname or "localhost", parts.port or 5432)
        self._listener = socket.create_server(("127.0.0.1", 0))
        login, at, _ = parts.netloc.rpartition("@")
        port = self._listener.getsockname()[1]
        self.url = urlunsplit(parts._replace(netloc=f"{login}{at}127.0.0.1:{port}"))
        self.sent = self.received = 0
        self._cut_after = cut_after
        self._lock = threading.Lock()
        self._sockets = [self._listener]

    @property
    def passed(self) -> int:
        """Bytes in both directions."""
        with self._lock:
            return self.sent + self.received

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def cut(self) -> None:
        """End every connection that is open now; new ones are let through."""
        with self._lock:
            ended, self._sockets = self._sockets[1:], self._sockets[:1]
        for open_socket in ended:
            with suppress(OSError):
                open_socket.shutdown(socket.SHUT_RDWR)
            open_socket.close()

    def close(self) -> None:
        """End every connection, at once."""
        for open_socket in self._sockets:
            with suppress(OSError):
                open_socket.shutdown(socket.SHUT_RDWR)
            open_socket.close()

    def _accept(self) -> None:
        with suppress(OSError):  # the listener is closed
            while True:
                client, _ = self._listener.accept()
                try:
                    server = socket.create_connection(self._server)
                except OSError:  # the server is down
                    client.close()
                    continue
                with self._lock:
                    self._sockets += [client, server]
                for ends in ((client, server, True), (server, client, False)):
                    threading.Thread(target=self._pass_on, args=ends, daemon=True).start()

    def _pass_on(self, source: socket.socket, target: socket.socket, is_sent: bool) -> None:
        try:
            while data := source.recv(1 << 16):
                with self._lock:
                    if is_sent:
                        self.sent += len(data)
                    else:
                        self.received += len(data)
                if self._cut_after is not None and self.sent > self._cut_after:
                    self.close()
                    return
                target.sendall(data)
            target.shutdown(socket.SHUT_WR)
        except OSError:  # a reset of one side is passed on to the other
            for end in (source, target):
                with suppress(OSError):
                    end.shutdown(socket.SHUT_RDWR)
