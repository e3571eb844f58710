"""The relay passes bytes on unchanged and counts them."""

from __future__ import annotations

import socket
import threading
from urllib.parse import urlsplit

import pytest

from mmdb.bench.store_subject import Wire
from mmdb.errors import InvalidInput


def echo_twice(listener: socket.socket) -> None:
    connection, _ = listener.accept()
    with connection:
        while data := connection.recv(1 << 16):
            connection.sendall(data * 2)


def test_a_relay_counts_the_bytes_of_both_directions() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        threading.Thread(target=echo_twice, args=(listener,), daemon=True).start()
        with Wire(f"postgresql://user:secret@127.0.0.1:{port}/base") as wire:
            parts = urlsplit(wire.url)
            assert (parts.username, parts.password, parts.path) == ("user", "secret", "/base")
            assert parts.port not in (None, port)
            sent = bytes(range(256)) * 1000
            found = b""
            with socket.create_connection(("127.0.0.1", parts.port)) as client:
                threading.Thread(target=client.sendall, args=(sent,), daemon=True).start()
                while len(found) < 2 * len(sent):
                    found += client.recv(1 << 16)
            assert sorted(found) == sorted(sent * 2)
            assert wire.passed == (len(sent), 2 * len(sent))


@pytest.mark.parametrize(
    "url", ["postgresql://a:1,b:2/base", "postgresql:///base?host=/run/postgresql"]
)
def test_a_relay_has_one_host_to_lead_to(url: str) -> None:
    with pytest.raises(InvalidInput, match="one host"):
        Wire(url)
